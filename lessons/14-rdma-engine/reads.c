// SPDX-License-Identifier: MIT
/*
 * reads.c —— 亲手当一回 engine：连上存储节点，拿到目录，然后只有单边的 READ
 *
 * 连接用的是第 1 到 4 阶段，目录走的是第 4 阶段那条 TCP；READ 交给 common/engine/remote_read.c，
 * 或者（--break）用第 5 阶段的 post_read() 一个一个地犯错。
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "engine/buffer.h"
#include "engine/remote_read.h"
#include "explain/explain.h"
#include "explain/qp_table.h"
#include "needle/catalog.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH	 4	     /* work requests at once */
#define CHUNK	 (32u << 10) /* bytes of one */
#define NEEDLES	 3
#define POOL_MAX (64u << 20)
#define TAIL	 64 /* bytes at the end that come last */

/* 一个 needle 的读取。remote 必须是第一个成员：回调里凭它的地址找回整个。*/
struct reading {
	struct remote_read remote;
	struct by_hand *h;
	const struct needle_entry *needle;
	struct engine_buffer *buffer;
	int status;
};

struct by_hand {
	struct walk *w;
	struct rdma_resources res;
	int sock;
	struct needle_catalog catalog;
	struct engine_pool pool;
	struct budget memory; /* of the pool */
	struct remote_reader reader;
	struct reading readings[NEEDLES];
	unsigned int completions, left;
};

// region connect
/* 与 rdma_client 走的是同一条路；多出来的只有最后一步：收下目录。*/
static int connect_to_node(struct by_hand *h)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	int rc = modify_qp_to_init(&h->res);

	report_step(
		"be an engine: connect as in lesson 04, then the catalogue");
	if (!rc)
		h->sock = tcp_connect(NODE_HOST, NODE_PORT, deadline);
	if (h->sock < 0)
		return h->sock;
	if (!rc)
		rc = connect_qp(&h->res, h->sock, deadline);
	if (!rc)
		rc = needle_catalog_receive(&h->catalog, h->sock, deadline);
	for (size_t i = 0; i < h->catalog.count && !rc; i++) {
		const struct needle_entry *n = &h->catalog.entries[i];

		report_fact("needle %ju: %6ju bytes at 0x%jx, rkey 0x%05x, "
			    "CRC-32C 0x%08x",
			    n->needle_id, n->size, n->remote_addr, n->rkey,
			    n->crc32c);
	}
	return rc || h->catalog.count == NEEDLES
		       ? rc
		       : bad("the catalogue has not three needles");
}
// endregion connect

static void on_arrived(struct remote_read *remote, uint64_t from, uint64_t upto)
{
	struct reading *r = (struct reading *)remote;

	report_fact("completion %2u: needle %ju, bytes %6ju to %6ju",
		    ++r->h->completions, r->needle->needle_id, from, upto - 1);
}

static void on_done(struct remote_read *remote, int status)
{
	struct reading *r = (struct reading *)remote;

	r->status = status;
	r->h->left--;
}

/* 给 needle @id 一块注册过的内存，并填好它的读取。*/
static int prepare(struct by_hand *h, uint64_t id, struct reading *r)
{
	struct engine_buffer *none = NULL;
	int rc;

	r->h = h;
	r->needle = needle_catalog_find(&h->catalog, VOLUME, id);
	if (!r->needle)
		return bad("a needle is missing in the catalogue");
	rc = engine_pool_get(&h->pool, r->needle->size, &none, &r->buffer);
	if (rc)
		return rc == -EDQUOT ? bad("no room for a needle") : rc;
	r->remote = (struct remote_read){ .remote_addr = r->needle->remote_addr,
					  .rkey = r->needle->rkey,
					  .local = r->buffer->addr,
					  .lkey = r->buffer->mr->lkey,
					  .size = r->needle->size,
					  .arrived = on_arrived,
					  .done = on_done };
	return 0;
}

/* 长的在前，短的在后：看短的是否要等长的全部读完。*/
static int connect_and_prepare(struct by_hand *h)
{
	static const uint64_t order[NEEDLES] = { LONG_NEEDLE, PAGE_NEEDLE,
						 TEXT_NEEDLE };
	int rc = connect_to_node(h);

	h->memory.most = POOL_MAX;
	engine_pool_init(&h->pool, h->res.pd, &h->memory);
	for (size_t i = 0; i < NEEDLES && !rc; i++)
		rc = prepare(h, order[i], &h->readings[i]);
	return rc;
}

static int open_reader(struct by_hand *h)
{
	int rc = connect_and_prepare(h);

	return rc ? rc : remote_reader_open(&h->reader, &h->res, CHUNK);
}

/* CQ 有 completion 才醒来：睡在 completion channel 的 fd 上，与第 5 课的 --events 同。*/
static int read_all(struct by_hand *h)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	int rc = 0;

	h->left = NEEDLES;
	for (size_t i = 0; i < NEEDLES; i++)
		remote_reader_submit(&h->reader, &h->readings[i].remote);
	while (!rc && h->left) {
		rc = wait_fd(h->res.channel->fd, POLLIN, deadline);
		if (!rc)
			rc = remote_reader_poll(&h->reader);
	}
	if (rc == -ETIMEDOUT)
		report_error("is the node there? lesson 07's silence",
			     "%u of %d READs are not done after %d ms", h->left,
			     NEEDLES, WAIT_MS);
	return rc;
}

static int check_bytes(const struct by_hand *h)
{
	for (size_t i = 0; i < NEEDLES; i++) {
		const struct reading *r = &h->readings[i];

		if (crc32c(0, r->buffer->addr, r->needle->size) !=
		    r->needle->crc32c)
			return bad("a needle's CRC-32C is not the catalogue's");
	}
	report_fact("%u work requests, wr_id 0x%jx to 0x%jx; %d needles, "
		    "each CRC-32C right",
		    h->completions, WR_ID_READ(0),
		    WR_ID_READ(h->reader.next_slot - 1), NEEDLES);
	return 0;
}

/*
 * 谁在干活？把节点的进程整个停住（SIGSTOP：一条用户态指令也执行不了），READ 照样成功：
 * 应答的是网卡，在 rxe 上就是内核。它的 CPU、它的 CQ、它的程序都没有参与。
 */
static int read_from_a_stopped_node(struct by_hand *h)
{
	int status = 0;
	int rc;

	report_step("stop the node's process, and READ all three at once");
	kill(h->w->node, SIGSTOP);
	if (waitpid(h->w->node, &status, WUNTRACED) != h->w->node ||
	    !WIFSTOPPED(status))
		return bad("the node does not stop");
	rc = read_all(h);
	if (!rc)
		rc = check_bytes(h);
	kill(h->w->node, SIGCONT);
	return rc;
}

/* ---- --break --------------------------------------------------------------- */

static int next_wc(struct by_hand *h, struct ibv_wc *wc)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	int n = 0;

	while (!n && !stop_requested() && !deadline_passed(deadline))
		n = ibv_poll_cq(h->res.cq, 1, wc);
	if (n != 1 || wc->status != IBV_WC_SUCCESS)
		return bad("no good completion comes");
	report_fact("a completion comes: %s, wr_id 0x%jx",
		    ibv_wc_status_str(wc->status), wc->wr_id);
	return 0;
}

/* 落地的内存生来是零：最后那一段还是零，就是还没到。*/
static bool tail_is_there(const struct reading *r)
{
	static const char zeros[TAIL];
	const char *tail = (char *)r->buffer->addr + r->needle->size - TAIL;
	bool there = memcmp(tail, zeros, TAIL);

	report_fact("the last %d bytes of needle %ju: %s", TAIL,
		    r->needle->needle_id, there ? "there" : "zeros");
	return there;
}

static int post_reading(struct by_hand *h, uint32_t slot,
			const struct reading *r)
{
	struct ibv_sge into = { (uintptr_t)r->buffer->addr,
				(uint32_t)r->needle->size,
				r->buffer->mr->lkey };

	report_fact("READ of needle %ju, wr_id 0x%jx", r->needle->needle_id,
		    WR_ID_READ(slot));
	return post_read(&h->res, slot, &into, r->needle->remote_addr,
			 r->needle->rkey);
}

/* 不看 CQ，只看内存：SQD 若来得比第一个 READ 上路还早，它也会被拦下。*/
static int wait_for_data(const struct reading *r)
{
	const volatile char *last =
		(const char *)r->buffer->addr + r->needle->size - 1;
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	int rc = 0;

	while (!rc && !*last && !deadline_passed(deadline))
		rc = deadline_sleep_ms(1, deadline);
	return *last ? rc : bad("the first READ brings nothing");
}

/*
 * 原版：poll 到一个 completion 就当是自己的。两个请求一起在途时，后一个 READ 的主人拿着
 * 前一个的 completion，去用还没到的数据。SQD（第 7 课）让后一个 READ 等一会儿才上路，就
 * 像线路正忙：否则它到没到全看运气，而错误一样是错误。
 */
static int take_any_completion(struct by_hand *h)
{
	struct ibv_qp_attr pause = { .qp_state = IBV_QPS_SQD },
			   go_on = { .qp_state = IBV_QPS_RTS };
	const struct reading *text = &h->readings[2], *wanted = &h->readings[0];
	struct ibv_wc wc;
	int rc;

	report_step("break it: any-wr-id");
	rc = post_reading(h, 0, text);
	if (!rc)
		rc = wait_for_data(text);
	if (!rc)
		rc = modify_qp(&h->res, &pause, IBV_QP_STATE);
	if (!rc)
		rc = post_reading(h, 1, wanted);
	if (!rc)
		rc = next_wc(h, &wc);
	if (!rc && tail_is_there(wanted))
		rc = bad("it is there too early");
	if (!rc)
		rc = wait_for_drained_sq(h->res.qp, WAIT_MS);
	if (!rc)
		rc = modify_qp(&h->res, &go_on, IBV_QP_STATE);
	/* rxe 回到 RTS 后，要等下一次 post 才又动起来。*/
	if (!rc)
		rc = post_reading(h, 2, &h->readings[1]);
	if (!rc)
		rc = next_wc(h, &wc);
	if (!rc && !tail_is_there(wanted))
		rc = bad("it is not there at all");
	if (rc)
		return rc;
	return fail(-EBADMSG,
		    "a completion is for the request that has its wr_id",
		    "the first completion was taken for needle %d, which was "
		    "not there yet",
		    LONG_NEEDLE);
}

static int read_with_wrong_key(struct by_hand *h)
{
	int rc;

	report_step("break it: wrong-rkey, in the second of three READs");
	h->readings[1].remote.rkey ^= 0x00ff00;
	rc = read_all(h);
	/* QP 已在 ERR：打回 RESET，内存才安全；没完成的都算失败。*/
	remote_reader_abort(&h->reader);
	for (size_t i = 0; i < NEEDLES; i++)
		report_fact("READ of needle %ju: %s",
			    h->readings[i].needle->needle_id,
			    h->readings[i].status
				    ? strerror(-h->readings[i].status)
				    : "done");
	return rc ? rc : bad("the key was taken");
}

/*
 * 节点被 kill -9：TCP 那条由内核替它关掉，一读就知道；QP 这条什么也不知道，直到有 READ
 * 上路、重传用尽。没有 READ 在途的话，它会永远自称 RTS。
 */
static int read_from_a_dead_node(struct by_hand *h)
{
	struct ibv_qp_attr attr;
	int64_t began;
	char byte;
	int rc;

	report_step("break it: dead-node");
	end_process(&h->w->node, SIGKILL);
	rc = wait_fd(h->sock, POLLIN, deadline_in_ms(WAIT_MS));
	if (!rc)
		report_fact("the TCP connection: %s",
			    recv(h->sock, &byte, 1, MSG_DONTWAIT)
				    ? "still open"
				    : "closed by the node");
	if (!rc)
		rc = query_qp(&h->res, &attr);
	if (rc)
		return rc;
	report_fact("the QP: %s", qp_state_name(attr.qp_state));
	began = now_ns();
	rc = read_all(h);
	report_fact("the READ has failed after %.1f s",
		    (double)(now_ns() - began) / 1e9);
	remote_reader_abort(&h->reader);
	return rc ? rc : bad("a dead node was read from");
}

static int write_where_only_read(struct by_hand *h)
{
	const struct needle_entry *n = h->readings[2].needle;
	int rc;

	report_step("break it: write");
	memcpy(send_slot(&h->res, 0), "overwritten", 11);
	rc = post_write(&h->res, 0, 11, n->remote_addr, n->rkey,
			IBV_SEND_SIGNALED);
	if (!rc)
		report_fact("ibv_post_send: 0, the request was taken");
	return rc ? rc
		  : poll_completion(&h->res, WR_ID_WRITE(0), NULL,
				    POLL_TIMEOUT_MS);
}

/* 同一个文件，同样只读，同样只要 REMOTE_READ：区别只在 MAP_PRIVATE 与 MAP_SHARED。*/
static int register_file(struct by_hand *h, int fd, int how, const char *name)
{
	const int access = IBV_ACCESS_REMOTE_READ;
	void *data = mmap(NULL, PAGE_BYTES, PROT_READ, how, fd, 0);
	struct ibv_mr *mr;
	int rc = 0;

	if (data == MAP_FAILED)
		return bad("mmap of the volume failed");
	mr = ibv_reg_mr(h->res.pd, data, PAGE_BYTES, access);
	if (mr) {
		report_fact("PROT_READ, %s: registered", name);
		ibv_dereg_mr(mr);
	} else {
		rc = verb_failed(
			errno,
			explain_reg_mr_call(h->res.pd, data, PAGE_BYTES, access,
					    errno),
			"ibv_reg_mr(volume-1.needles, %s, REMOTE_READ)", name);
	}
	munmap(data, PAGE_BYTES);
	return rc;
}

static int register_volume(struct by_hand *h)
{
	char path[128];
	int fd, rc;

	report_step("break it: map-shared");
	snprintf(path, sizeof(path), "%s/volume-%d.needles", h->w->store,
		 VOLUME);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bad("the volume cannot be opened");
	rc = register_file(h, fd, MAP_PRIVATE, "MAP_PRIVATE");
	if (!rc)
		rc = register_file(h, fd, MAP_SHARED, "MAP_SHARED");
	close(fd);
	return rc ? rc : bad("this kernel registers it");
}

/* ---- 从头到尾 --------------------------------------------------------------- */

static int close_by_hand(struct by_hand *h)
{
	for (size_t i = 0; i < NEEDLES; i++)
		if (h->readings[i].buffer)
			engine_buffer_put(&h->pool, h->readings[i].buffer,
					  NULL);
	engine_pool_trim(&h->pool);
	remote_reader_close(&h->reader);
	needle_catalog_free(&h->catalog);
	sock_close(&h->sock);
	return destroy_rdma_resources(&h->res);
}

/* 设备先由我们选定，节点与 engine 再用同一个：一台只有一个 RDMA 设备的机器也能跑。*/
static int start_storage_node(struct by_hand *h)
{
	const struct rdma_config *asked = &h->w->lesson->config;
	const struct rdma_config config = remote_reader_config(
		asked->device_name, asked->gid_index, DEPTH);
	int rc = walk_open(h->w);

	if (rc)
		return rc;
	report_step("a storage node: three needles on disk, needle_server");
	rc = init_rdma_resources(&h->res, &config);
	if (rc)
		return rc;
	snprintf(h->w->device, sizeof(h->w->device), "%s",
		 ibv_get_device_name(h->res.context->device));
	rc = start_node(h->w);
	if (!rc)
		report_fact("a process of its own, on %s; its memory is "
			    "registered for REMOTE_READ",
			    h->w->device);
	return rc;
}

typedef int part_fn(struct by_hand *h);

static int by_hand(struct walk *w, part_fn *get_ready, part_fn *play)
{
	struct by_hand h = { .w = w, .sock = -1 };
	int rc = start_storage_node(&h);
	int undo;

	if (!rc && get_ready)
		rc = get_ready(&h);
	if (!rc && play)
		rc = play(&h);
	undo = close_by_hand(&h);
	return rc ? rc : undo;
}

int open_node(struct walk *w)
{
	return by_hand(w, NULL, NULL);
}

int be_an_engine(struct walk *w)
{
	return by_hand(w, open_reader, read_from_a_stopped_node);
}

#define BREAK(name, get_ready, play)                   \
	int name(void *walk)                           \
	{                                              \
		return by_hand(walk, get_ready, play); \
	}
BREAK(any_wr_id, connect_and_prepare, take_any_completion)
BREAK(wrong_rkey, open_reader, read_with_wrong_key)
BREAK(write_to_node, connect_and_prepare, write_where_only_read)
BREAK(map_shared, NULL, register_volume)
BREAK(dead_node, open_reader, read_from_a_dead_node)
