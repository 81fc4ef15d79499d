// SPDX-License-Identifier: MIT
/*
 * ends.c —— 一端从打开设备到关闭设备：目录里的错误都犯在这个程序里
 *
 * 超时故意取得很短（4.096 µs × 2^12 = 17 ms，重传 2 次），失败几十毫秒就有结果。它只说
 * 看见了什么，原因由 labs/qptrace 来说；记录里看不出来的几个，才由它自己解释。
 */
#include "faults.h"

#include "base/deadline.h"
#include "explain/qp_table.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUEUE_DEPTH 16
#define CQ_ENTRIES  64
#define MEET_MS	    5000
#define CANNOT_RUN  77

void say(const struct end *end, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("%c: ", end->name);
	vprintf(format, args);
	putchar('\n');
	va_end(args);
	fflush(stdout);
}

void tell(const struct explanation *why)
{
	struct explain_words words;

	if (!why->id)
		return;
	explain_in_words(&words, why, false);
	printf("ok %s\n    said: %s\n    next: %s\n", why->id, words.cause,
	       words.next);
	for (char *line = strtok(words.seen, "\n"); line;
	     line = strtok(NULL, "\n"))
		printf("    seen: %s\n", line);
	fflush(stdout);
}

void leave(const struct end *end, int code)
{
	close(end->socket);
	wait(NULL);
	exit(code);
}

void check(const struct end *end, const char *call, int err)
{
	if (!err)
		return;
	say(end, "%s: %s (%d)", call, strerrorname_np(err), err);
	leave(end, EXIT_FAILURE);
}

void need(const struct end *end, const char *call, const void *made)
{
	check(end, call, made ? 0 : errno);
}

/* ---- 两个进程 -------------------------------------------------------------- */

/* 对端早退了：它已经说了看见什么，这一端没有什么可补充的。*/
static void tell_and_hear(struct end *end, const void *mine, void *peers,
			  size_t size)
{
	struct pollfd fd = { .fd = end->socket, .events = POLLIN };

	if (send(end->socket, mine, size, MSG_NOSIGNAL) != (ssize_t)size ||
	    poll(&fd, 1, MEET_MS) != 1 ||
	    recv(end->socket, peers, size, MSG_WAITALL) != (ssize_t)size)
		leave(end, EXIT_FAILURE);
}

void meet(struct end *end)
{
	char byte = 0;

	tell_and_hear(end, &byte, &byte, 1);
}

void exchange(struct end *end)
{
	tell_and_hear(end, &end->mine, &end->peer, sizeof(end->mine));
}

/* ---- 建 -------------------------------------------------------------------- */

/* A 用名字排在最前的设备，B 用下一个；只有一个就同用它。*/
static struct ibv_device *choose(const struct end *end,
				 struct ibv_device **list, int count)
{
	int first = 0;

	for (int i = 1; i < count; i++)
		if (strcmp(ibv_get_device_name(list[i]),
			   ibv_get_device_name(list[first])) < 0)
			first = i;
	return list[end->name == 'A' ? first : (first + 1) % count];
}

void open_device(struct end *end)
{
	struct ibv_device **list;
	int count = 0;

	list = ibv_get_device_list(&count);
	need(end, "ibv_get_device_list", list);
	if (!count) {
		say(end, "ibv_get_device_list: 0 devices");
		leave(end, CANNOT_RUN);
	}
	end->context = ibv_open_device(choose(end, list, count));
	need(end, "ibv_open_device", end->context);
	ibv_free_device_list(list);
}

struct ibv_mr *make_mr(struct end *end, struct ibv_pd *pd, size_t length,
		       int access)
{
	struct ibv_mr *mr;

	mr = ibv_reg_mr(pd, end->buf, length, access);
	need(end, "ibv_reg_mr", mr);
	end->memory = (struct explain_mr){ .pd = pd,
					   .addr = (uintptr_t)end->buf,
					   .length = length,
					   .lkey = mr->lkey,
					   .rkey = mr->rkey,
					   .access = access };
	end->known.local = &end->memory;
	end->known.n_local = 1;
	return mr;
}

static struct ibv_cq *make_cq(struct end *end)
{
	struct ibv_cq *cq;

	cq = ibv_create_cq(end->context, CQ_ENTRIES, NULL, NULL, 0);
	need(end, "ibv_create_cq", cq);
	return cq;
}

/* 用 QPN 凑一个 PSN：各端不同，又能重现。*/
void make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.cap = { .max_send_wr = QUEUE_DEPTH,
			 .max_recv_wr = QUEUE_DEPTH,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = end->scene->type,
	};

	end->qp = ibv_create_qp(end->pd, &init);
	need(end, "ibv_create_qp", end->qp);
	end->mine.qpn = end->qp->qp_num;
	end->mine.psn = end->first_psn + end->qp->qp_num * 1000 % 0x80000;
}

static void make_objects(struct end *end)
{
	open_device(end);
	end->pd = ibv_alloc_pd(end->context);
	need(end, "ibv_alloc_pd", end->pd);
	if (!end->buf)
		end->buf = aligned_alloc(PAGE, BUFFER_BYTES);
	need(end, "aligned_alloc", end->buf);
	end->mr = make_mr(end, end->pd, BUFFER_BYTES, ALL_RIGHTS);
	end->send_cq = make_cq(end);
	end->recv_cq = make_cq(end);
	make_qp(end);
	end->mine.addr = (uintptr_t)end->buf;
	end->mine.rkey = end->mr->rkey;
	check(end, "ibv_query_gid",
	      ibv_query_gid(end->context, 1, end->gid_index, &end->mine.gid));
}

/* ---- 状态机 ---------------------------------------------------------------- */

static struct ibv_ah_attr way_to_peer(const struct end *end)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = end->peer.gid,
					      .sgid_index = end->gid_index,
					      .hop_limit = 64 } };
}

/* 一步：从哪里来，按该走的路算；真在哪里，由内核去查。*/
void modify(struct end *end, enum ibv_qp_state to)
{
	enum ibv_qp_state from =
		end->qp->state == IBV_QPS_SQD ? IBV_QPS_SQD : to - 1;
	const struct qp_transition *row =
		qp_transition(end->scene->type, from, to);
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = from,
		.path_mtu = IBV_MTU_4096,
		.qkey = QKEY,
		.rq_psn = end->peer.psn,
		.sq_psn = end->mine.psn,
		.dest_qp_num = end->peer.qpn,
		.qp_access_flags = ALL_RIGHTS,
		.ah_attr = way_to_peer(end),
		.port_num = 1,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = end->timeout,
		.retry_cnt = end->retry_cnt,
		.rnr_retry = end->rnr_retry,
	};
	int err;
	bool up = to >= IBV_QPS_INIT && to <= IBV_QPS_RTS;

	err = ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | (up ? row->required : 0));
	if (!end->careless)
		check(end, "ibv_modify_qp", err);
	end->careless = false;
}

void climb(struct end *end)
{
	modify(end, IBV_QPS_RTR);
	modify(end, IBV_QPS_RTS);
}

/* ---- 收发 ------------------------------------------------------------------ */

static bool is_ud(const struct end *end)
{
	return end->scene->type == IBV_QPT_UD;
}

static bool is_received(const struct end *end)
{
	return end->scene->opcode == IBV_WR_SEND ||
	       end->scene->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void post_recv(struct end *end)
{
	struct ibv_recv_wr *bad;

	end->sge =
		(struct ibv_sge){ .addr = end->mine.addr,
				  .length = end->scene->bytes + end->headroom,
				  .lkey = end->mr->lkey };
	end->recv = (struct ibv_recv_wr){ .wr_id = 2,
					  .sg_list = &end->sge,
					  .num_sge = 1 };
	end->known.recv = &end->recv;
	check(end, "ibv_post_recv", ibv_post_recv(end->qp, &end->recv, &bad));
}

void post_send(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	check(end, "ibv_post_send", ibv_post_send(end->qp, wr, &bad));
}

static void fill_request(struct end *end)
{
	struct ibv_ah_attr way = way_to_peer(end);

	end->sge = (struct ibv_sge){ .addr = end->mine.addr,
				     .length = end->scene->bytes,
				     .lkey = end->mr->lkey };
	end->wr = (struct ibv_send_wr){
		.wr_id = 1,
		.sg_list = &end->sge,
		.num_sge = 1,
		.opcode = end->scene->opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr = { .rdma = { end->peer.addr, end->peer.rkey } },
	};
	end->known.send = &end->wr;
	if (end->scene->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		end->wr.wr.atomic.compare_add = 1;
		end->wr.wr.atomic.rkey = end->peer.rkey;
	}
	if (!is_ud(end))
		return;
	end->wr.wr.ud.ah = ibv_create_ah(end->pd, &way);
	need(end, "ibv_create_ah", end->wr.wr.ud.ah);
	end->wr.wr.ud.remote_qpn = end->peer.qpn;
	end->wr.wr.ud.remote_qkey = QKEY;
}

/* CQ 溢出时 completion 不来，来的是事件。*/
static void say_event(struct end *end)
{
	struct pollfd fd = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, 0) != 1 || ibv_get_async_event(end->context, &event))
		return;
	say(end, "async event %d (%s)", event.event_type,
	    ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}

/* 没有 completion，@wc 是 NULL。*/
_Noreturn static void give_up(struct end *end, const struct ibv_wc *wc)
{
	struct explanation why = no_idea();

	if (end->scene->explains && wc)
		why = explain_completion(end->qp, wc, &end->known);
	else if (end->scene->explains)
		why = explain_stall(end->qp, &end->known, WAIT_MS);
	if (wc)
		say(end, "wc.status %d (%s)", wc->status,
		    ibv_wc_status_str(wc->status));
	else
		say(end, "no completion within %d ms", WAIT_MS);
	tell(&why);
	leave(end, EXIT_FAILURE);
}

struct ibv_wc await(struct end *end, struct ibv_cq *cq)
{
	int64_t deadline = deadline_in_ms(WAIT_MS);
	bool alone = false;
	struct ibv_wc wc;
	char byte;

	end->known.polled = cq;
	do {
		if (ibv_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status && !end->careless)
				give_up(end, &wc);
			end->careless = false;
			return wc;
		}
		usleep(1000);
		/* 对端失败了，已经说过：除了它引起的 completion，不必再等。*/
		if (alone || end->name == 'A' ||
		    recv(end->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT))
			continue;
		alone = true;
		deadline = deadline_in_ms(WAIT_MS / 10);
	} while (!deadline_passed(deadline));
	if (alone)
		leave(end, EXIT_FAILURE);
	if (end->scene->count > 1)
		say_event(end);
	give_up(end, NULL);
}

/* ---- 全过程 ---------------------------------------------------------------- */

static void at(struct end *end, enum stage stage)
{
	void (*own)(struct end *) =
		end->name == 'A' ? end->scene->a : end->scene->b;

	if (own && stage == end->scene->stage)
		own(end);
	if (end->name == 'A' && end->hook && stage == end->hooked &&
	    system(end->hook))
		leave(end, EXIT_FAILURE);
}

static void request(struct end *end)
{
	fill_request(end);
	at(end, FILLED);
	for (int i = 0; i < end->scene->count; i++)
		post_send(end, &end->wr);
	if (end->scene->count > 1)
		usleep(WAIT_MS * 100);
	at(end, POSTED);
	for (int i = 0; i < end->scene->count; i++)
		await(end, end->send_cq);
	if (end->wr.opcode == IBV_WR_SEND && is_ud(end))
		ibv_destroy_ah(end->wr.wr.ud.ah);
}

static void answer(struct end *end)
{
	at(end, FILLED);
	for (int i = 0; is_received(end) && i < end->scene->count; i++)
		await(end, end->recv_cq);
}

#define DESTROY(call, object) check(end, #call, call(object))
static void take_down(struct end *end)
{
	/* rxe 的 QP 要等绑在它上面的 window 走了才走。*/
	if (end->mw)
		DESTROY(ibv_dealloc_mw, end->mw);
	DESTROY(ibv_destroy_qp, end->qp);
	DESTROY(ibv_destroy_cq, end->recv_cq);
	DESTROY(ibv_destroy_cq, end->send_cq);
	DESTROY(ibv_dereg_mr, end->mr);
	DESTROY(ibv_dealloc_pd, end->pd);
	ibv_close_device(end->context);
}

/*
 * 两个设备各数各的 QPN：号码若碰巧相同，写错了 GID 的包也有人收。所以 B 另造一个。
 */
static void differ(struct end *end)
{
	struct ibv_qp *same = end->qp;

	exchange(end);
	if (end->name == 'A' || end->mine.qpn != end->peer.qpn)
		return;
	make_qp(end);
	ibv_destroy_qp(same);
}

void play(struct end *end)
{
	end->headroom = is_ud(end) ? GRH_BYTES : 0;
	at(end, MEMORY);
	make_objects(end);
	differ(end);
	at(end, MADE);
	exchange(end);
	modify(end, IBV_QPS_INIT);
	/* 比要来的多投一个：receive 用完之前，总要有新的。*/
	for (int i = 0;
	     end->name == 'B' && is_received(end) && i <= end->scene->count;
	     i++)
		post_recv(end);
	meet(end);
	at(end, INITED);
	climb(end);
	at(end, UP);
	meet(end);
	end->name == 'A' ? request(end) : answer(end);
	meet(end);
	take_down(end);
	say(end, "done");
}
