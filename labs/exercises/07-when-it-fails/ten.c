// SPDX-License-Identifier: MIT
/*
 * ten.c —— 十个病人：ten N [DEVICE]。每个有一句作者的主诉
 *
 * 工具函数都是对的，病在 patient_N() 里。只用 libibverbs；cc ten.c -libverbs。
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE 4096
#define MANY 64

/* ---- 工具（没有病） --------------------------------------------------------- */

static void *check(int err, const char *what)
{
	if (!err)
		return NULL;
	fprintf(stderr, "error: %s: %s\n", what, strerror(err));
	exit(1);
}

#define OK(call)   check(call, #call)
#define MADE(call) ((call) ?: check(errno, #call))

struct world {
	struct ibv_context *context;
	struct ibv_gid_entry gid;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	char *memory; /* MANY 页 */
};

/* 一端要告诉另一端的。*/
struct address {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};

static void open_world(struct world *w, const char *name, int access, int cqes)
{
	struct ibv_device **list = MADE(ibv_get_device_list(NULL)), **it = list;
	struct ibv_gid_entry e;

	while (*it && name && strcmp(ibv_get_device_name(*it), name))
		it++;
	check(*it ? 0 : ENODEV, "no such device");
	w->context = MADE(ibv_open_device(*it));
	ibv_free_device_list(list);
	for (uint32_t i = 0; i < 16; i++)
		if (!ibv_query_gid_ex(w->context, 1, i, &e, 0) &&
		    e.gid_type == IBV_GID_TYPE_ROCE_V2)
			w->gid = e;
	w->pd = MADE(ibv_alloc_pd(w->context));
	w->memory = MADE(aligned_alloc(4096, MANY * SIZE));
	memset(w->memory, 0, MANY * SIZE);
	w->mr = MADE(ibv_reg_mr(w->pd, w->memory, MANY * SIZE, access));
	w->cq = MADE(ibv_create_cq(w->context, cqes, NULL, NULL, 0));
}

static struct ibv_qp *new_qp(struct world *w, int all_signaled)
{
	struct ibv_qp_init_attr init = { .send_cq = w->cq,
					 .recv_cq = w->cq,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = all_signaled,
					 .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp *qp = MADE(ibv_create_qp(w->pd, &init));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags =
					    IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_WRITE };

	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS));
	return qp;
}

static struct address address_of(const struct world *w, const struct ibv_qp *qp,
				 uint32_t psn)
{
	return (struct address){ w->gid.gid, qp->qp_num, psn, w->mr->rkey,
				 (uintptr_t)w->memory };
}

static void to_rts(struct world *w, struct ibv_qp *qp, uint32_t psn,
		   const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = peer->gid,
				      .sgid_index = (uint8_t)w->gid.gid_index,
				      .hop_limit = 64 } },
	};

	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	attr.timeout = 10;
	attr.retry_cnt = 3;
	attr.rnr_retry = 1;
	attr.max_rd_atomic = 1;
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC));
}

/* 同一个进程里的两端，已经连好。*/
static void two_ends(struct world *w, struct ibv_qp *qp[2], int all_signaled)
{
	struct address a, b;

	qp[0] = new_qp(w, all_signaled);
	qp[1] = new_qp(w, all_signaled);
	a = address_of(w, qp[0], 0x111);
	b = address_of(w, qp[1], 0x222);
	to_rts(w, qp[0], 0x111, &b);
	to_rts(w, qp[1], 0x222, &a);
}

static int receive(struct world *w, struct ibv_qp *qp, int page, uint32_t size)
{
	struct ibv_sge into = { (uintptr_t)w->memory + (size_t)page * SIZE,
				size, w->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)page,
				  .sg_list = &into,
				  .num_sge = 1 },
			   *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post(struct world *w, struct ibv_qp *qp, int page, uint32_t size,
		enum ibv_wr_opcode op, unsigned int flags,
		const struct address *to)
{
	struct ibv_sge sge = { (uintptr_t)w->memory + (size_t)page * SIZE, size,
			       w->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)page,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = op,
				  .send_flags = flags },
			   *bad;

	if (to) {
		wr.wr.rdma.remote_addr = to->addr;
		wr.wr.rdma.rkey = to->rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

/* 取到 @n 个成功的 completion 为止，至多 2 秒。*/
static void await(struct world *w, int n)
{
	struct timespec t;
	struct ibv_wc wc;
	time_t end;

	clock_gettime(CLOCK_MONOTONIC, &t);
	end = t.tv_sec + 2;
	while (n > 0) {
		int got = ibv_poll_cq(w->cq, 1, &wc);

		check(got < 0 ? EIO : 0, "ibv_poll_cq");
		check(got && wc.status ? EIO : 0, ibv_wc_status_str(wc.status));
		n -= got;
		clock_gettime(CLOCK_MONOTONIC, &t);
		check(t.tv_sec > end ? ETIMEDOUT : 0, "no completion");
	}
}

static void show(const char *text)
{
	printf("arrived: %s\n", text);
}

/* 两个进程：子进程跑 @other，经 socketpair 说话。*/
static void with_child(void (*other)(int sock, const char *device),
		       const char *device, int *sock, pid_t *child)
{
	int pair[2];

	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ? errno : 0);
	*child = fork();
	if (!*child) {
		close(pair[0]);
		other(pair[1], device);
		_exit(0);
	}
	close(pair[1]);
	*sock = pair[0];
}

static void swap(int sock, const void *mine, void *peers, size_t size)
{
	check(write(sock, mine, size) == (ssize_t)size ? 0 : EPIPE, "write");
	check(recv(sock, peers, size, MSG_WAITALL) == (ssize_t)size ? 0 : EPIPE,
	      "the other process has gone");
}

static void end_child(pid_t child)
{
	int status = 0;

	waitpid(child, &status, 0);
	check(status ? EREMOTEIO : 0, "the other process");
}

/* ---- 病人 ------------------------------------------------------------------- */

/* 主诉：“第一条消息就是 local protection error (4)，可 lkey 明明是对的。” */
static void patient_1(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	two_ends(&w, qp, 1);
	strcpy(w.memory, "patient 1");
	OK(receive(&w, qp[1], 1, SIZE));
	OK(post(&w, qp[0], 0, 10, IBV_WR_SEND, 0, NULL));
	await(&w, 2);
	show(w.memory + SIZE);
}

/* 主诉：“发了第一条就 RNR retry exceeded (13)，对端的程序是好好的。” */
static void patient_2(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	two_ends(&w, qp, 1);
	strcpy(w.memory, "patient 2");
	OK(receive(&w, qp[1], 1, SIZE));
	OK(post(&w, qp[0], 0, 10, IBV_WR_SEND, 0, NULL));
	await(&w, 2);
	show(w.memory + SIZE);
}

/* 主诉：“发到第九条，ibv_post_send 回 ENOMEM。队列里明明都做完了。” */
static void patient_3(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	two_ends(&w, qp, 0);
	strcpy(w.memory, "patient 3");
	for (int i = 1; i <= 24; i++) {
		OK(receive(&w, qp[1], i, SIZE));
		OK(post(&w, qp[0], 0, 10, IBV_WR_SEND, IBV_SEND_SIGNALED,
			NULL));
		await(&w, 2);
	}
	show(w.memory + 24 * SIZE);
}

/* 主诉：“RDMA WRITE 报 remote access error (10)，rkey 是对端刚刚发来的。” */
static void patient_4(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];
	struct address to;

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		   16);
	two_ends(&w, qp, 1);
	to = address_of(&w, qp[1], 0);
	to.addr += 2 * SIZE;
	strcpy(w.memory, "patient 4");
	OK(post(&w, qp[0], 0, 10, IBV_WR_RDMA_WRITE, 0, &to));
	await(&w, 1);
	show(w.memory + 2 * SIZE);
}

/* 主诉：“小消息都好，大一点的就 local length error (1)。” */
static void patient_5(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	two_ends(&w, qp, 1);
	memset(w.memory, 'p', 3000);
	strcpy(w.memory + 2990, "patient 5");
	OK(receive(&w, qp[1], 1, SIZE));
	OK(post(&w, qp[0], 0, 3000, IBV_WR_SEND, 0, NULL));
	await(&w, 2);
	show(w.memory + SIZE + 2990);
}

/* 主诉：“ibv_dealloc_pd 回 EBUSY (16)，QP 和 CQ 明明都拆了。” */
static void patient_6(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	two_ends(&w, qp, 1);
	strcpy(w.memory, "patient 6");
	OK(receive(&w, qp[1], 1, SIZE));
	OK(post(&w, qp[0], 0, 10, IBV_WR_SEND, 0, NULL));
	await(&w, 2);
	OK(ibv_destroy_qp(qp[0]));
	OK(ibv_destroy_qp(qp[1]));
	OK(ibv_destroy_cq(w.cq));
	OK(ibv_dereg_mr(w.mr));
	OK(ibv_dealloc_pd(w.pd));
	OK(ibv_close_device(w.context));
	show(w.memory + SIZE);
}

/* 主诉：“modify_qp 到 RTR 总是 EINVAL；同样的代码在 InfiniBand 上没事。” */
static void patient_7(const char *device)
{
	struct world w;
	struct ibv_qp *qp;
	struct address self;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12 };

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	qp = new_qp(&w, 1);
	self = address_of(&w, qp, 0x777);
	attr.dest_qp_num = self.qpn;
	attr.rq_psn = self.psn;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = self.gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)w.gid.gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER));
	show("patient 7");
}

/* 主诉：“跑一天就 ibv_create_qp 失败；rdma resource 里 QP 越来越多。” */
static void patient_8(const char *device)
{
	struct world w;
	struct ibv_qp *qp[2];

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	strcpy(w.memory, "patient 8");
	for (int i = 0; i < 3; i++) {
		two_ends(&w, qp, 1);
		OK(receive(&w, qp[1], 1, SIZE));
		OK(post(&w, qp[0], 0, 10, IBV_WR_SEND, 0, NULL));
		await(&w, 2);
		OK(ibv_destroy_qp(qp[0]));
		OK(ibv_destroy_qp(qp[1]));
	}
	OK(ibv_destroy_cq(w.cq));
	OK(ibv_dereg_mr(w.mr));
	OK(ibv_dealloc_pd(w.pd));
	OK(ibv_close_device(w.context));
	show(w.memory + SIZE);
}

/* 主诉（两个进程）：“两边都到了 RTS，发出去却 retry exceeded (12)。” */
static void other_9(int sock, const char *device)
{
	struct world w;
	struct ibv_qp *qp;
	struct address mine, peer;

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	qp = new_qp(&w, 1);
	mine = address_of(&w, qp, 0x9b);
	swap(sock, &mine, &peer, sizeof(mine));
	to_rts(&w, qp, 0x9b, &peer);
	OK(receive(&w, qp, 1, SIZE));
	swap(sock, "r", &peer, 1);
	await(&w, 1);
	show(w.memory + SIZE);
	fflush(stdout);
}

static void patient_9(const char *device)
{
	struct world w;
	struct ibv_qp *qp;
	struct address mine, peer;
	pid_t child;
	int sock;

	with_child(other_9, device, &sock, &child);
	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	qp = new_qp(&w, 1);
	mine = address_of(&w, qp, 0x9a);
	swap(sock, &mine, &peer, sizeof(mine));
	to_rts(&w, qp, 0x9a, &peer);
	swap(sock, "r", &peer, 1);
	strcpy(w.memory, "patient 9");
	OK(post(&w, qp, 0, 10, IBV_WR_SEND, 0, NULL));
	await(&w, 1);
	end_child(child);
}

/* 主诉（两个进程）：“READ 报 remote access error (10)，rkey 没错，内存也一直在。” */
static void other_10(int sock, const char *device)
{
	struct world w;
	struct ibv_qp *qp;
	struct address mine, peer;
	char done;

	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		   16);
	qp = new_qp(&w, 1);
	strcpy(w.memory, "patient 10");
	mine = address_of(&w, qp, 0x10b);
	swap(sock, &mine, &peer, sizeof(mine));
	to_rts(&w, qp, 0x10b, &peer);
	swap(sock, "r", &done, 1);
	check(recv(sock, &done, 1, MSG_WAITALL) == 1 ? 0 : EPIPE, "the reader");
	OK(ibv_dereg_mr(w.mr));
}

static void patient_10(const char *device)
{
	struct world w;
	struct ibv_qp *qp;
	struct address mine, peer;
	pid_t child;
	char at;
	int sock;

	with_child(other_10, device, &sock, &child);
	open_world(&w, device, IBV_ACCESS_LOCAL_WRITE, 16);
	qp = new_qp(&w, 1);
	mine = address_of(&w, qp, 0x10a);
	swap(sock, &mine, &peer, sizeof(mine));
	to_rts(&w, qp, 0x10a, &peer);
	swap(sock, "r", &at, 1);
	OK(post(&w, qp, 1, 11, IBV_WR_RDMA_READ, 0, &peer));
	await(&w, 1);
	check(write(sock, "d", 1) == 1 ? 0 : EPIPE, "the owner of the memory");
	end_child(child);
	show(w.memory + SIZE);
}

int main(int argc, char *argv[])
{
	static void (*const patients[])(const char *) = {
		patient_1, patient_2, patient_3, patient_4, patient_5,
		patient_6, patient_7, patient_8, patient_9, patient_10
	};
	int n = argc > 1 ? atoi(argv[1]) : 0;

	setlinebuf(stdout);
	if (n < 1 || n > 10)
		return 2;
	patients[n - 1](argc > 2 ? argv[2] : NULL);
	return 0;
}
