// SPDX-License-Identifier: MIT
/*
 * trace_probe.c —— 给 labs/qptrace 的测试当“被记录的程序”，每个参数一种活法
 *
 *	plain                不用 verbs，打印一行，退出码 7
 *	signal N             打开 device，然后对自己 kill(N)
 *	crash                打开 device，发 10 个消息，然后写空指针
 *	fork [SECONDS]       父子各打开一次 device；子进程退出码 3，父进程 5；子进程听 SIGUSR1
 *	threads N            N 个线程，各有一对自连的 QP，各收发 20 个消息
 *	modify               INIT→RTS，少了一步：ibv_modify_qp 失败
 *	remote               RDMA WRITE 到错的 rkey：一个坏 completion，QP 进 ERR；然后
 *	                     ERR→INIT，也失败
 *	extended             ibv_wr_* 与 start_poll/next_poll 收发 20 个消息
 *	batch                32、33、200 个 ibv_wr_send，每一批在一对 ibv_wr_start 与
 *	                     ibv_wr_complete 之间
 *	devices              打开 64 次 device，再收发 20 个消息；都关上，再收发 20 个
 *	wait SECONDS         post 一个 receive，没有人会发来；收到 SIGUSR1 就不再等
 *	unpolled SECONDS     发一个消息，不去 poll
 *	unsignaled SECONDS   发一个没有 SIGNALED 的消息，然后等它的 completion
 *	armed SECONDS        CQ 有 channel，arm 过，等 fd；没有人会发来
 *	unread SECONDS       同上，发给自己一个消息，却不去看 fd
 *	woken SECONDS        在 ibv_get_cq_event 里睡过一觉，被叫醒，取完，过 1 秒再发一个消息，
 *	                     不再 arm，也不再 poll
 *	broken SECONDS       像 remote 那样让 QP 进 ERR，然后什么也不做；也听 SIGUSR1
 *	datagram SECONDS     UD：收到自己发的一个消息，再等下一个
 *	quit                 自己处理 SIGQUIT：收到就以退出码 9 结束
 *	close                关掉 3 以上的所有 fd 再收发
 *	early                在 INIT 里 ibv_post_send：被驱动拒绝
 *	early_extended       同样，用 ibv_wr_*
 *	extremes             像 UCX 与 NCCL 那样用 fd -1 打听 DMA-BUF；再给各个调用最大、
 *	                     最小的数，都被拒绝
 *	full                 post 600 个 receive 到 SRQ，然后 fork；子进程收发 20 个消息，退出码
 *	                     3，父进程的一次调用失败
 *	brim                 post 600 个，再 post 4000 个：比环装得下的多
 *	execX                收发 10 个消息，然后用 exec 家的 execX 变成 sh，它打印 X 与 $WORD；
 *	                     带环境的给它 WORD=given，别的是 WORD=own
 *	leave N              vfork 出的子进程 _exit；自己收发 10 个消息，然后 _exit(N)
 *	cycle                post 一串 WR，最后一个的 next 又指回中间：收的、SRQ 的、发的；
 *	                     先给 SRQ 一个 num_sge 99 的，而 sg_list 是 NULL；收的、发的各有一
 *	                     个 num_sge 0 的，而 sg_list 指向别处；退出码是 -1
 *	ops                  context->ops.poll_cq 在哪个库里
 *
 * 自连：一个 QP 的对端就是它自己（rxe 支持），所以一个进程就够了。
 */
#include "ends.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked_to_quit;

static void on_quit(int sig)
{
	asked_to_quit = sig;
}

static void wait_to_be_asked(const char *said, int seconds)
{
	time_t end = time(NULL) + seconds;

	printf("%s\n", said);
	fflush(stdout);
	while (!asked_to_quit && time(NULL) < end)
		usleep(1000);
}

static void *one_thread(void *arg)
{
	struct end *e = after_a_talk();

	(void)arg;
	unmake(e);
	free(e);
	return NULL;
}

static int threads(int n)
{
	pthread_t *all = calloc((size_t)n, sizeof(*all));

	if (!all)
		die("calloc", ENOMEM);
	for (int i = 0; i < n; i++)
		if (pthread_create(&all[i], NULL, one_thread, NULL))
			die("pthread_create", EAGAIN);
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
	free(all);
	printf("%d threads are done\n", n);
	return 0;
}

static int devices(void)
{
	static struct ibv_context *all[64];

	for (int i = 0; i < 64; i++)
		all[i] = open_first();
	one_thread(NULL);
	for (int i = 0; i < 64; i++)
		ibv_close_device(all[i]);
	one_thread(NULL);
	return 0;
}

/* 紧接着 20 个消息就 fork：它们的记录这时还没有写进文件。*/
static int forks(int seconds)
{
	struct end *e = after_a_talk();
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		one_thread(NULL);
		wait_to_be_asked("child", seconds);
		exit(3);
	}
	waitpid(pid, &status, 0);
	unmake(e);
	free(e);
	printf("parent, child ended with %d\n", WEXITSTATUS(status));
	one_thread(NULL);
	return 5;
}

/* 不经网络就有的记录。*/
static void post_to(struct end *e, struct ibv_srq *srq, int n)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	static uint64_t posted;

	for (int i = 0; i < n; i++) {
		wr.wr_id = ++posted;
		if (ibv_post_srq_recv(srq, &wr, &bad))
			die("ibv_post_srq_recv", EIO);
	}
}

static int skip_a_step(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int err = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);

	printf("modify: %d\n", err);
	return err ? 4 : 0;
}

/*
 * 对端拒绝的 WRITE：QP 在内核里进了 ERR，程序记得的还是 RTS。返回它的 status。对端须是
 * 另一个 QP：拒绝的一方自己也进 ERR，同一个 QP 的话，就可能只剩 flush。
 */
static int write_with_wrong_rkey(struct end *e)
{
	struct end peer = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	int err;

	wr.wr.rdma.remote_addr = (uintptr_t)e->buf;
	wr.wr.rdma.rkey = e->mr->rkey + 77;
	make(&peer, IBV_QPT_RC, false);
	to_init(&peer);
	connect_to(&peer, e);
	connect_to(e, &peer);
	post_send(e, wr);
	post_send(e, wr);
	err = reap(e, 1);
	reap(e, 1);
	return err;
}

static int wrong_rkey(struct end *e)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT };

	printf("status: %d\n", write_with_wrong_rkey(e));
	printf("to INIT: %d, ", ibv_modify_qp(e->qp, &init, IBV_QP_STATE));
	printf("state as the program knows it: %d\n", (int)e->qp->state);
	return 4;
}

static int fork_when_full(struct end *e)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		one_thread(NULL);
		_exit(3);
	}
	skip_a_step(e);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

/* 两次，每次不到记录器的一个缓冲：它不拿着锁，停在第二次的 write 里。*/
static int fill(struct end *e, bool forks_then)
{
	struct ibv_srq_init_attr init = { .attr = { 8192, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(e->pd, &init);

	if (!srq)
		die("ibv_create_srq", errno);
	for (int i = 0; i < 2; i++) {
		post_to(e, srq, 300);
		usleep(300000);
	}
	printf("full\n");
	fflush(stdout);
	if (forks_then)
		return fork_when_full(e);
	post_to(e, srq, 4000);
	return 0;
}

static int wait_for_nothing(struct end *e, const char *how, int seconds)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	time_t end = time(NULL) + seconds;
	struct ibv_wc wc;

	to_rts(e);
	post_recv(e);
	if (strcmp(how, "wait")) {
		if (!strcmp(how, "unpolled"))
			wr.send_flags = IBV_SEND_SIGNALED;
		post_send(e, wr);
	}
	printf("waiting\n");
	fflush(stdout);
	while (!asked_to_quit && time(NULL) < end) {
		if (strcmp(how, "unpolled"))
			ibv_poll_cq(e->cq, 1, &wc);
		usleep(1000);
	}
	return 6;
}

static int wait_in_error(struct end *e, int seconds)
{
	write_with_wrong_rkey(e);
	wait_to_be_asked("waiting", seconds);
	return 6;
}

/* 最后的那个 sleep 比记录器的“刚刚还在 poll”长。*/
static void sleep_and_wake(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_cq *cq;
	void *context;

	post_send(e, wr);
	post_send(e, wr);
	if (ibv_get_cq_event(e->channel, &cq, &context))
		die("ibv_get_cq_event", errno);
	ibv_ack_cq_events(cq, 1);
	reap(e, 4);
	sleep(1);
	post_recv(e);
	post_send(e, wr);
}

/* CQ 交给了事件循环：谁也不 poll。 */
static int wait_for_event(struct end *e, const char *how, int seconds)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };

	to_rts(e);
	post_recv(e);
	post_recv(e);
	if (!strcmp(how, "unread"))
		post_send(e, wr);
	if (!strcmp(how, "woken"))
		sleep_and_wake(e, wr);
	printf("waiting\n");
	fflush(stdout);
	sleep((unsigned int)seconds);
	return 6;
}

/* ---- UD ------------------------------------------------------------------- */

static int datagram(struct end *e, int seconds)
{
	struct ibv_ah_attr ah = { .is_global = 1,
				  .port_num = 1,
				  .grh = { .sgid_index = 1, .hop_limit = 1 } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	time_t end = time(NULL) + seconds;
	struct ibv_wc wc;

	ud_to_rts(e);
	if (ibv_query_gid(e->context, 1, 1, &ah.grh.dgid))
		die("ibv_query_gid", errno);
	wr.wr.ud.ah = ibv_create_ah(e->pd, &ah);
	if (!wr.wr.ud.ah)
		die("ibv_create_ah", errno);
	wr.wr.ud.remote_qpn = e->qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	ud_recv(e);
	ud_recv(e);
	post_send(e, wr);
	printf("status: %d\n", reap(e, 2));
	fflush(stdout);
	while (time(NULL) < end) {
		ibv_poll_cq(e->cq, 1, &wc);
		usleep(1000);
	}
	return 6;
}

static int quits(void)
{
	wait_to_be_asked("ready", DEADLINE_S);
	return asked_to_quit ? 9 : 1;
}

/* ---- 扩展 API ------------------------------------------------------------- */

static void make_extended(struct end *e, struct ibv_cq_ex **cq)
{
	struct ibv_cq_init_attr_ex cq_init = {
		.cqe = 1024,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 256, 256, 2, 1, 64 },
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	e->context = open_first();
	e->pd = ibv_alloc_pd(e->context);
	e->mr = ibv_reg_mr(e->pd, e->buf, sizeof(e->buf),
			   IBV_ACCESS_LOCAL_WRITE);
	*cq = ibv_create_cq_ex(e->context, &cq_init);
	if (!e->pd || !e->mr || !*cq)
		die("extended", errno);
	e->cq = ibv_cq_ex_to_cq(*cq);
	init.pd = e->pd;
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp_ex(e->context, &init);
	if (!e->qp)
		die("ibv_create_qp_ex", errno);
}

static bool start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	time_t end = time(NULL) + DEADLINE_S;

	while (ibv_start_poll(cq, &attr))
		if (time(NULL) > end)
			return false;
	return true;
}

/*
 * librxe 的 end_poll 在 next_poll 说“没有了”之后会把位置再推进一格，于是读到旧的。所以
 * 一个一个地取；只有 @together 时，先等到两个想必都在 CQ 里了，才用 next_poll。
 */
static int reap_two(struct ibv_cq_ex *cq, bool together)
{
	int seen = 0;

	if (together)
		sleep(1);
	for (int i = 0; i < 2 && start_poll(cq); i++) {
		seen += cq->status == IBV_WC_SUCCESS;
		if (together && !ibv_next_poll(cq)) {
			seen += cq->status == IBV_WC_SUCCESS;
			i++;
		}
		ibv_end_poll(cq);
	}
	return seen;
}

/* 64 个字节，或者 inline 的 32 个；一段或两段，第三段不算。*/
static void give_data(struct ibv_qp_ex *qp, struct end *e, int i)
{
	struct ibv_data_buf bufs[] = { { e->buf, 16 },
				       { e->buf + 16, 16 },
				       { e->buf, 1000 } };
	uint64_t at = (uintptr_t)e->buf + SIZE;
	uint32_t lkey = e->mr->lkey;
	struct ibv_sge sges[] = { { at, 32, lkey },
				  { at + 32, 32, lkey },
				  { at, 1000, lkey } };

	if (i % 4 == 0)
		ibv_wr_set_sge(qp, lkey, at, SIZE);
	else if (i % 4 == 1)
		ibv_wr_set_inline_data(qp, e->buf, 32);
	else if (i % 4 == 2)
		ibv_wr_set_sge_list(qp, 2, sges);
	else
		ibv_wr_set_inline_data_list(qp, 2, bufs);
}

static int extended(void)
{
	struct end *e = calloc(1, sizeof(*e));
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp;

	if (!e)
		die("calloc", ENOMEM);
	make_extended(e, &cq);
	to_init(e);
	to_rts(e);
	qp = ibv_qp_to_qp_ex(e->qp);
	for (int i = 0; i < MESSAGES; i++) {
		post_recv(e);
		ibv_wr_start(qp);
		qp->wr_id = 2;
		/* librxe 要在这里说 INLINE，才肯去看 inline 的数据。*/
		qp->wr_flags =
			IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0u);
		ibv_wr_send(qp);
		give_data(qp, e, i);
		if (ibv_wr_complete(qp))
			die("ibv_wr_complete", EIO);
		if (reap_two(cq, i == MESSAGES - 1) != 2)
			die("ibv_next_poll", EIO);
	}
	unmake(e);
	free(e);
	printf("%d messages\n", MESSAGES);
	return 0;
}

static int batch(void)
{
	static const int sizes[] = { 32, 33, 200 };
	static struct end e;
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp;

	make_extended(&e, &cq);
	to_init(&e);
	to_rts(&e);
	qp = ibv_qp_to_qp_ex(e.qp);
	qp->wr_id = 0;
	qp->wr_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < 3; i++) {
		ibv_wr_start(qp);
		for (int k = 0; k < sizes[i]; k++) {
			post_recv(&e);
			qp->wr_id++;
			ibv_wr_send(qp);
			give_data(qp, &e, 0);
		}
		if (ibv_wr_complete(qp))
			die("ibv_wr_complete", EIO);
		for (int k = 0; k < sizes[i]; k++)
			if (reap_two(cq, false) != 2)
				die("ibv_start_poll", EIO);
	}
	unmake(&e);
	return 0;
}

static int early_extended(void)
{
	static struct end e;
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp;
	int err;

	make_extended(&e, &cq);
	to_init(&e);
	qp = ibv_qp_to_qp_ex(e.qp);
	ibv_wr_start(qp);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, e.mr->lkey, (uintptr_t)e.buf, SIZE);
	err = ibv_wr_complete(qp);
	printf("early: %d\n", err);
	return err ? 4 : 0;
}

static int early(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(e->qp, &wr, &bad);

	printf("early: %d\n", err);
	return err ? 4 : 0;
}

/* 一个也不该成功；成功了的算在返回值里。*/
static int extremes(struct end *e)
{
	struct ibv_qp_init_attr qp = { .send_cq = e->cq, .recv_cq = e->cq };
	struct ibv_qp_attr attr;
	int taken = 0;

	taken += ibv_reg_dmabuf_mr(e->pd, 0, SIZE, 0, -1, 0) != NULL;
	printf("dmabuf: %d\n", errno);
	taken += ibv_reg_dmabuf_mr(e->pd, UINT64_MAX, SIZE_MAX, UINT64_MAX,
				   INT_MIN, -1) != NULL;
	taken += ibv_reg_mr(e->pd, e->buf, SIZE_MAX, 0) != NULL;
	taken += ibv_create_cq(e->context, -1, NULL, NULL, -1) != NULL;
	taken += ibv_resize_cq(e->cq, INT_MIN) == 0;
	memset(&qp.cap, 0xff, sizeof(qp.cap));
	taken += ibv_create_qp(e->pd, &qp) != NULL;
	memset(&attr, 0xff, sizeof(attr));
	return taken + (ibv_modify_qp(e->qp, &attr, INT_MAX) == 0);
}

static int whose_ops(const struct end *e)
{
	Dl_info info = { 0 };
	void *symbol;

	memcpy(&symbol, &e->context->ops.poll_cq, sizeof(symbol));
	dladdr(symbol, &info);
	printf("%s\n", info.dli_fname ? strrchr(info.dli_fname, '/') + 1 : "?");
	return 0;
}

/* 子进程用着父进程的内存，它的 _exit 不是父进程的结束。*/
static void leave_a_child(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
}

#define SCRIPT "sh", "-c", "echo $0 $WORD"

static int become(const char *how)
{
	char *argv[] = { SCRIPT, (char *)how, NULL };
	char *envp[] = { "WORD=given", NULL };
	int sh = open("/bin/sh", O_RDONLY | O_CLOEXEC);

	setenv("WORD", "own", 1);
	if (!strcmp(how, "execl"))
		return execl("/bin/sh", SCRIPT, how, NULL);
	if (!strcmp(how, "execlp"))
		return execlp("sh", SCRIPT, how, NULL);
	if (!strcmp(how, "execle"))
		return execle("/bin/sh", SCRIPT, how, NULL, envp);
	if (!strcmp(how, "execv"))
		return execv("/bin/sh", argv);
	if (!strcmp(how, "execvp"))
		return execvp("sh", argv);
	if (!strcmp(how, "execve"))
		return execve("/bin/sh", argv, envp);
	if (!strcmp(how, "execvpe"))
		return execvpe("sh", argv, envp);
	if (!strcmp(how, "execveat"))
		return execveat(sh, "", argv, envp, AT_EMPTY_PATH);
	return fexecve(sh, argv, envp);
}

/* 驱动走到队列满了为止：返回 ENOMEM。*/
static int cycle(struct end *e)
{
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(e->pd, &init);
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_recv_wr recv[3] = { 0 }, *bad;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr none = { .sg_list = (void *)8 }, *bad_send;

	recv[0].num_sge = 99;
	printf("sges: %d\n", srq ? ibv_post_srq_recv(srq, recv, &bad) : -1);
	recv[0].num_sge = 0;
	recv[0].sg_list = (void *)8;
	printf("none: %d\n", ibv_post_send(e->qp, &none, &bad_send));
	printf("none: %d\n", ibv_post_recv(e->qp, recv, &bad));
	for (int i = 0; i < 3; i++) {
		recv[i].sg_list = &sge;
		recv[i].num_sge = 1;
		recv[i].next = &recv[i < 2 ? i + 1 : 1];
	}
	send.next = &send;
	printf("recv: %d\n", ibv_post_recv(e->qp, recv, &bad));
	printf("srq: %d\n", srq ? ibv_post_srq_recv(srq, recv, &bad) : -1);
	printf("send: %d\n", ibv_post_send(e->qp, &send, &bad_send));
	return -1;
}

static int with_a_qp(const char *how, int number)
{
	static struct end e;

	if (!strcmp(how, "datagram")) {
		make(&e, IBV_QPT_UD, false);
		return datagram(&e, number);
	}
	make(&e, IBV_QPT_RC,
	     !strcmp(how, "armed") || !strcmp(how, "unread") ||
		     !strcmp(how, "woken"));
	to_init(&e);
	if (e.channel)
		return wait_for_event(&e, how, number);
	if (!strcmp(how, "brim") || !strcmp(how, "full"))
		return fill(&e, !strcmp(how, "full"));
	if (!strcmp(how, "modify"))
		return skip_a_step(&e);
	if (!strcmp(how, "remote"))
		return wrong_rkey(&e);
	if (!strcmp(how, "broken"))
		return wait_in_error(&e, number);
	if (!strcmp(how, "quit"))
		return quits();
	if (!strcmp(how, "early"))
		return early(&e);
	if (!strcmp(how, "extremes"))
		return extremes(&e);
	if (!strcmp(how, "cycle"))
		return cycle(&e);
	if (!strcmp(how, "ops"))
		return whose_ops(&e);
	if (!strcmp(how, "wait") || !strncmp(how, "un", 2))
		return wait_for_nothing(&e, how, number);
	to_rts(&e);
	if (!strcmp(how, "close"))
		for (int fd = 3; fd < 1024; fd++)
			if (fd != e.context->cmd_fd &&
			    fd != e.context->async_fd)
				close(fd);
	if (!strcmp(how, "leave"))
		leave_a_child();
	converse(&e, 10);
	if (!strcmp(how, "leave"))
		_exit(number);
	if (strstr(how, "exec"))
		return become(how);
	if (!strcmp(how, "crash"))
		*(volatile int *)(uintptr_t)number = 1;
	if (!strcmp(how, "signal"))
		kill(getpid(), number);
	printf("done\n");
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;

	signal(SIGUSR1, on_quit);
	if (!strcmp(how, "quit"))
		signal(SIGQUIT, on_quit);
	if (!strcmp(how, "plain")) {
		printf("no verbs here\n");
		return 7;
	}
	if (!strcmp(how, "threads"))
		return threads(number);
	if (!strcmp(how, "fork"))
		return forks(number);
	if (!strcmp(how, "extended"))
		return extended();
	if (!strcmp(how, "batch"))
		return batch();
	if (!strcmp(how, "devices"))
		return devices();
	if (!strcmp(how, "early_extended"))
		return early_extended();
	return with_a_qp(how, number);
}
