// SPDX-License-Identifier: MIT
/*
 * two_sides.c —— 两个进程，一个毛病：two_sides HOW FILE
 *
 * fork 出 A 与 B，各开各的设备，用一对 socket 交换，连好，然后犯 HOW 说的那个错。单看一份
 * 记录说不出原因，两份合起来说得出。A 是要发、要写、要读的那一端。
 */
#include "ends.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG	4096
#define PSN	100
#define PAUSE_S 3
#define SENDS	5
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
	int access = asked(o, "mr-right") || asked(o, "opcode")
			     ? IBV_ACCESS_LOCAL_WRITE
			     : RIGHTS;
	struct ibv_pd *pd;

	make(&o->end, ud ? IBV_QPT_UD : IBV_QPT_RC,
	     asked(o, "solicited") || asked(o, "unacked") ||
		     asked(o, "thread"));
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

static void modify(struct one *o, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(o->end.qp, attr, mask);

	if (err)
		die("ibv_modify_qp", err);
}

static void init(struct one *o)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = RIGHTS,
				    .qkey = QKEY };
	bool ud = o->end.qp->qp_type == IBV_QPT_UD;

	if (asked(o, "qp-right"))
		attr.qp_access_flags = 0;
	if (asked(o, "qkey") && !o->is_a)
		attr.qkey++;
	modify(o, &attr,
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static void rtr(struct one *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = o->theirs.qpn,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .sgid_index = 1, .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		   IBV_QP_MIN_RNR_TIMER;

	if (asked(o, "psn") && !o->is_a)
		attr.rq_psn += 100000;
	if (asked(o, "mtu") && !o->is_a)
		attr.path_mtu = IBV_MTU_256;
	if (ibv_query_gid(o->end.context, 1, 1, &attr.ah_attr.grh.dgid))
		die("ibv_query_gid", errno);
	modify(o, &attr,
	       o->end.qp->qp_type == IBV_QPT_UD ? IBV_QP_STATE : mask);
}

static void rts(struct one *o)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = PSN,
				    .timeout = 12,
				    .retry_cnt = 3,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
		   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MAX_QP_RD_ATOMIC;

	modify(o, &attr,
	       o->end.qp->qp_type == IBV_QPT_UD ? IBV_QP_STATE | IBV_QP_SQ_PSN
						: mask);
}

static void receive(struct one *o)
{
	struct ibv_sge sge = { (uintptr_t)o->buf, sizeof(o->buf), o->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (asked(o, "too-long"))
		sge.length = 1000;
	if (ibv_post_recv(o->end.qp, &wr, &bad))
		die("ibv_post_recv", EINVAL);
}

/* 这些 HOW 里每一端要几个 receive；别的都是一个。*/
static int more_receives(const struct one *o)
{
	if (asked(o, "first-unsignaled"))
		return 2;
	if (o->is_a)
		return 1;
	return asked(o, "one-unsignaled")		 ? 3
	       : asked(o, "surplus")			 ? SENDS - 1
	       : asked(o, "doubled")			 ? SENDS + 2
	       : asked(o, "nothing") || asked(o, "late") ? 2
							 : 1;
}

/* 停到记录器说了为止，停在 poll 里：test_blame.sh 认得出，知道后面还有。*/
static void linger(void)
{
	poll(NULL, 0, PAUSE_S * 1000);
}

static void climb(struct one *o)
{
	init(o);
	if ((!asked(o, "no-receive") || o->is_a) && !asked(o, "pd") &&
	    !(o->is_a && (asked(o, "nothing") || asked(o, "one-unsignaled"))))
		receive(o);
	if (asked(o, "solicited") || asked(o, "unsignaled") ||
	    asked(o, "thread"))
		receive(o);
	if (asked(o, "unsignaled"))
		receive(o);
	for (int i = 1; i < more_receives(o); i++)
		receive(o);
	rtr(o);
	rts(o);
	/* A 先停在 read 里，停到记录器说了，才去睡。*/
	if (asked(o, "asleep") && !o->is_a)
		linger();
	swap(o);
}

/* ---- A 的请求 ------------------------------------------------------------- */

static struct ibv_ah *path(struct one *o)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .sgid_index = 1,
					     .hop_limit = 1 } };

	if (ibv_query_gid(o->end.context, 1, 1, &attr.grh.dgid))
		die("ibv_query_gid", errno);
	return ibv_create_ah(o->end.pd, &attr);
}

static void request(struct one *o, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)o->buf, BIG / 2, o->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	if (asked(o, "pd"))
		sge = (struct ibv_sge){ (uintptr_t)o->end.buf, SIZE,
					o->end.mr->lkey };
	if (o->end.qp->qp_type == IBV_QPT_UD) {
		sge.length = SIZE;
		wr.wr.ud.ah = path(o);
		wr.wr.ud.remote_qpn =
			o->theirs.qpn + (asked(o, "datagram") ? 1000 : 0);
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = o->theirs.addr;
		wr.wr.rdma.rkey = o->theirs.rkey;
	}
	if (asked(o, "unsignaled") && ++o->requests == 2)
		wr.send_flags = 0;
	if (o->is_a &&
	    (asked(o, "first-unsignaled") || asked(o, "one-unsignaled")) &&
	    ++o->requests == 1)
		wr.send_flags = 0;
	if (asked(o, "opcode"))
		wr.wr.rdma.remote_addr = 0;
	if (asked(o, "too-long"))
		sge.length = 100 * BIG;
	if (asked(o, "same-id") && ++o->requests == 3)
		sge.lkey ^= 0x10000;
	else if (asked(o, "same-id"))
		wr.send_flags = 0;
	if (asked(o, "rkey") || asked(o, "exits-zero"))
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
	static const char *const writes[] = { "rkey",	  "rkey-swapped",
					      "range",	  "pd",
					      "mr-right", "qp-right",
					      "opcode",	  "exits-zero" };

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

/* 队伍满了，SYN 没有人应答：connect() 一直等，与半路被丢掉一样。*/
static void connect_to_nobody(int type)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&addr, len) || listen(listener, 0) ||
	    getsockname(listener, (void *)&addr, &len))
		die("listen", errno);
	for (;;) {
		int sock = socket(AF_INET, SOCK_STREAM | type, 0);
		struct pollfd fd = { .fd = sock, .events = POLLOUT };

		if (connect(sock, (void *)&addr, len) && errno != EINPROGRESS)
			die("connect", errno);
		poll(&fd, 1, -1);
	}
}

static int run_a(struct one *o)
{
	if (asked(o, "connect") || asked(o, "poll-connect"))
		connect_to_nobody(asked(o, "connect") ? 0 : SOCK_NONBLOCK);
	if (asked(o, "slow"))
		sleep(PAUSE_S);
	if (asked(o, "asleep"))
		sleep(3600); /* 等到有人杀它 */
	/* 由测试来杀，等它的记录里有了这些：自己马上就死，还没写出去的就丢了。*/
	for (; asked(o, "dead"); usleep(20000)) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		ibv_query_qp(o->end.qp, &attr, IBV_QP_STATE, &init);
	}
	if (!asked(o, "deadlock"))
		request(o, is_write(o) ? IBV_WR_RDMA_WRITE : IBV_WR_SEND);
	if (asked(o, "slow"))
		return reap(&o->end, 1);
	if (asked(o, "solicited") || asked(o, "thread")) {
		swap(o);
		request(o, IBV_WR_SEND);
	}
	for (int i = 0;
	     i < 2 && (asked(o, "same-id") || asked(o, "one-unsignaled")); i++)
		request(o, IBV_WR_SEND);
	for (int i = 1; i < SENDS && asked(o, "surplus"); i++)
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
	if (asked(o, "exits-zero")) {
		reap(&o->end, 1);
		swap(o);
		return 0;
	}
	poll_for_ever(o);
	return 0;
}

static void wait_for_event(struct one *o)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(o->end.channel, &cq, &context))
		die("ibv_get_cq_event", errno);
}

/* 等事件的不是主线程；第一个事件之后忘了再 arm。*/
static void *event_thread(void *arg)
{
	struct one *o = arg;

	wait_for_event(o);
	reap(&o->end, 1);
	swap(o);
	wait_for_event(o);
	return NULL;
}

static int run_b(struct one *o)
{
	pthread_t thread;

	if (asked(o, "exits-zero")) {
		swap(o);
		return 0;
	}
	if (asked(o, "thread") &&
	    !pthread_create(&thread, NULL, event_thread, o))
		pthread_join(thread, NULL);
	if (asked(o, "slow"))
		return reap(&o->end, 1);
	if (asked(o, "unpolled"))
		hang();
	if (asked(o, "late"))
		linger();
	if (asked(o, "surplus"))
		return reap(&o->end, SENDS - 1);
	if (asked(o, "first-unsignaled")) {
		reap(&o->end, 1);
		request(o, IBV_WR_SEND);
	}
	if (asked(o, "solicited")) {
		wait_for_event(o);
		reap(&o->end, 1);
		ibv_req_notify_cq(o->end.cq, 1);
		swap(o);
		wait_for_event(o);
	}
	if (asked(o, "unacked")) {
		wait_for_event(o);
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

	if (argc != 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
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
