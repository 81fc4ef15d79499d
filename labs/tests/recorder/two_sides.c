// SPDX-License-Identifier: MIT
/*
 * two_sides.c —— 两个进程，一个毛病：two_sides HOW FILE
 *
 * fork 出 A 与 B，各开各的设备，用一对 socket 交换，连好，然后犯 HOW 说的那个错。单看一份
 * 记录说不出原因，两份合起来说得出。A 是要发、要写、要读的那一端。
 */
#include "ends.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG	4096
#define PAUSE_S 6

static const char *said; /* a file that will be there */
#define SENDS 5
#define RIGHTS                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ)

struct told {
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct one {
	struct end end;
	struct ibv_mr *mr;
	struct told mine, theirs;
	char buf[BIG + GRH];
	const char *how;
	bool is_a;
	int sock;
	int requests;
};

static bool asked(const struct one *o, const char *how)
{
	return !strcmp(o->how, how);
}

static void swap(struct one *o)
{
	if (write(o->sock, &o->mine, sizeof(o->mine)) != sizeof(o->mine) ||
	    read(o->sock, &o->theirs, sizeof(o->theirs)) != sizeof(o->theirs))
		die("exchange", EIO);
}

static void set_up(struct one *o)
{
	bool ud =
		asked(o, "qkey") || asked(o, "datagram") || asked(o, "same-id");
	int access = asked(o, "mr-right") ? IBV_ACCESS_LOCAL_WRITE : RIGHTS;
	struct ibv_pd *pd;

	make(&o->end, ud ? IBV_QPT_UD : IBV_QPT_RC,
	     asked(o, "solicited") || asked(o, "unacked"));
	o->end.timeout = 12;
	o->end.retry_cnt = 3;
	if (asked(o, "qp-right"))
		o->end.access = 0;
	if (asked(o, "qkey") && !o->is_a)
		o->end.qkey++;
	if (asked(o, "psn") && !o->is_a)
		o->end.rq_psn += 100000;
	if (asked(o, "mtu") && !o->is_a)
		o->end.mtu = IBV_MTU_256;
	pd = o->end.pd;
	if (asked(o, "pd"))
		pd = ibv_alloc_pd(o->end.context);
	o->mr = ibv_reg_mr(pd, o->buf, sizeof(o->buf), access);
	if (!o->mr)
		die("ibv_reg_mr", errno);
	o->mine = (struct told){ o->end.qp->qp_num, o->mr->rkey,
				 (uintptr_t)o->buf };
	swap(o);
}

static void receive(struct one *o)
{
	struct ibv_sge sge = { (uintptr_t)o->buf, sizeof(o->buf), o->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (ibv_post_recv(o->end.qp, &wr, &bad))
		die("ibv_post_recv", EINVAL);
}

/* 每一端要几个 receive。*/
static int receives(const struct one *o)
{
	if (asked(o, "solicited"))
		return 2;
	if (asked(o, "unsignaled"))
		return 3;
	if (asked(o, "pd"))
		return 0;
	if (o->is_a)
		return 1;
	return asked(o, "no-receive") ? 0 : asked(o, "doubled") ? SENDS + 2 : 1;
}

static void climb(struct one *o)
{
	to_init(&o->end);
	for (int i = 0; i < receives(o); i++)
		receive(o);
	connect_to(&o->end, o->theirs.qpn);
	/* A 先停在 read 里，停到记录器说了，才去睡；B 停在 poll 里，test_blame.sh 认得出。*/
	if (asked(o, "asleep") && !o->is_a)
		poll(NULL, 0, PAUSE_S * 1000);
	swap(o);
}

/* ---- A 的请求 ------------------------------------------------------------- */

static void request(struct one *o, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)o->buf, BIG / 2, o->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_ah_attr to = way(&o->end);
	struct ibv_send_wr *bad;

	if (asked(o, "pd"))
		sge = (struct ibv_sge){ (uintptr_t)o->end.buf, SIZE,
					o->end.mr->lkey };
	if (o->end.qp->qp_type == IBV_QPT_UD) {
		sge.length = SIZE;
		wr.wr.ud.ah = ibv_create_ah(o->end.pd, &to);
		wr.wr.ud.remote_qpn =
			o->theirs.qpn + (asked(o, "datagram") ? 1000 : 0);
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = o->theirs.addr;
		wr.wr.rdma.rkey = o->theirs.rkey;
	}
	if (asked(o, "unsignaled") && ++o->requests == 2)
		wr.send_flags = 0;
	if (asked(o, "same-id") && ++o->requests == 3)
		sge.lkey ^= 0x10000;
	else if (asked(o, "same-id"))
		wr.send_flags = 0;
	if (asked(o, "rkey"))
		wr.wr.rdma.rkey ^= 0x10000;
	if (asked(o, "rkey-swapped"))
		wr.wr.rdma.rkey = __builtin_bswap32(wr.wr.rdma.rkey);
	if (asked(o, "range"))
		wr.wr.rdma.remote_addr += BIG;
	if (ibv_post_send(o->end.qp, &wr, &bad))
		die("ibv_post_send", EINVAL);
}

static bool is_write(const struct one *o)
{
	static const char *const writes[] = { "rkey",	   "rkey-swapped",
					      "range",	   "pd",
					      "mr-right",  "qp-right",
					      "exits-zero" };

	for (size_t i = 0; i < sizeof(writes) / sizeof(*writes); i++)
		if (asked(o, writes[i]))
			return true;
	return false;
}

/* 等到有人杀它。*/
static void hang(void)
{
	for (;;)
		pause();
}

/*
 * 要等的永远不来：有 completion 就收，到有人杀它为止。几十个进程一起等，歇得太短，机器就只
 * 顾着叫醒它们。
 */
static void poll_for_ever(struct one *o)
{
	struct ibv_wc wc;

	for (;; usleep(20000))
		if (ibv_poll_cq(o->end.cq, 1, &wc) > 0 && wc.status)
			hang();
}

static int run_a(struct one *o)
{
	/* 直到看着的人说过它（test_blame.sh）。*/
	for (int i = 0; asked(o, "slow") && access(said, F_OK) && i < 600; i++)
		usleep(100000);
	if (asked(o, "asleep"))
		sleep(3600); /* 等到有人杀它 */
	if (asked(o, "dead"))
		raise(SIGKILL);
	if (!asked(o, "deadlock"))
		request(o, is_write(o) ? IBV_WR_RDMA_WRITE : IBV_WR_SEND);
	if (asked(o, "slow"))
		return reap(&o->end, 1);
	if (asked(o, "solicited")) {
		swap(o);
		request(o, IBV_WR_SEND);
	}
	for (int i = 0; i < 2 && asked(o, "same-id"); i++)
		request(o, IBV_WR_SEND);
	for (int i = 1; i < SENDS && asked(o, "doubled"); i++) {
		reap(&o->end, 1);
		request(o, IBV_WR_SEND);
		if (i == 2)
			request(o, IBV_WR_SEND);
	}
	if (asked(o, "unsignaled")) {
		reap(&o->end, 1);
		request(o, IBV_WR_SEND);
	}
	poll_for_ever(o);
	return 0;
}

static int run_b(struct one *o)
{
	if (asked(o, "slow"))
		return reap(&o->end, 1);
	if (asked(o, "unpolled"))
		hang();
	if (asked(o, "solicited")) {
		wait_for_event(&o->end);
		reap(&o->end, 1);
		ibv_req_notify_cq(o->end.cq, 1);
		swap(o);
		wait_for_event(&o->end);
	}
	if (asked(o, "unacked")) {
		wait_for_event(&o->end);
		reap(&o->end, 1);
		unmake(&o->end);
	}
	poll_for_ever(o);
	return 0;
}

static pid_t start(bool is_a, const int pair[2], const char *how)
{
	static struct one o;
	pid_t pid = fork();

	if (pid)
		return pid;
	o.how = how;
	o.is_a = is_a;
	o.sock = pair[!is_a];
	close(pair[is_a]); /* 另一个没了，read 才看得到 */
	set_up(&o);
	climb(&o);
	exit(is_a ? run_a(&o) : run_b(&o));
}

/* 卡住的要有人来结束：FILE 出现了，就是记录器已经说完话。*/
int main(int argc, char **argv)
{
	pid_t pids[2], ended[2] = { 0 };
	int pair[2];

	if (argc != 4 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
	said = argv[3];
	pids[0] = start(true, pair, argv[1]);
	pids[1] = start(false, pair, argv[1]);
	close(pair[0]);
	close(pair[1]);
	while (access(argv[2], F_OK) && (!ended[0] || !ended[1])) {
		usleep(100000);
		for (int i = 0; i < 2; i++)
			if (!ended[i])
				ended[i] = waitpid(pids[i], NULL, WNOHANG);
	}
	for (int i = 0; i < 2; i++)
		if (!ended[i])
			kill(pids[i], SIGTERM);
	while (wait(NULL) > 0)
		;
	return 0;
}
