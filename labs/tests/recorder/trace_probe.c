// SPDX-License-Identifier: MIT
/*
 * trace_probe.c —— 给 labs/qptrace 的测试当“被记录的程序”，每个参数一种活法
 *
 *	plain                不用 verbs，打印一行，退出码 7
 *	signal N             收发 10 个消息，然后对自己 kill(N)
 *	crash                收发 10 个消息，然后写空指针
 *	close                关掉 3 以上的所有 fd 再收发
 *	leave N              vfork 出的子进程 _exit；自己收发 10 个消息，然后 _exit(N)
 *	execX                收发 10 个消息，然后用 exec 家的 execX 变成 sh，它打印 X 与 $WORD；
 *	                     带环境的给它 WORD=given，别的是 WORD=own
 *	fork [SECONDS]       父子各打开一次 device；子进程退出码 3，父进程 5；子进程听 SIGUSR1
 *	threads N            N 个线程，各有一对自连的 QP，各收发 20 个消息
 *	modify               INIT→RTS，少了一步：ibv_modify_qp 失败
 *	remote               RDMA WRITE 到错的 rkey：一个坏 completion，QP 进 ERR；然后
 *	                     ERR→INIT，也失败
 *	early                在 INIT 里 ibv_post_send：被驱动拒绝
 *	full                 post 600 个 receive 到 SRQ，然后 fork；子进程收发 20 个消息，退出码
 *	                     3，父进程的一次调用失败
 *	brim                 post 600 个，再 post 4000 个：比环装得下的多
 *	wait SECONDS         post 一个 receive，没有人会发来；收到 SIGUSR1 就不再等
 *	unpolled SECONDS     发一个消息，不去 poll
 *	unsignaled SECONDS   发一个没有 SIGNALED 的消息，然后等它的 completion
 *	armed SECONDS        CQ 有 channel，arm 过，等 fd；没有人会发来
 *	unread SECONDS       同上，发给自己一个消息，却不去看 fd
 *	broken SECONDS       像 remote 那样让 QP 进 ERR，然后什么也不做；也听 SIGUSR1
 *	quit                 自己处理 SIGQUIT：收到就以退出码 9 结束
 *
 * 自连：一个 QP 的对端就是它自己（rxe 支持），所以一个进程就够了。
 */
#include "ends.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t asked_to_quit;

static void on_quit(int sig)
{
	asked_to_quit = sig;
}

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

/* 等人来叫；@e 不是 NULL 的话，一边等，一边 poll 它的 CQ。*/
static void wait_to_be_asked(const char *said, int seconds, struct end *e)
{
	time_t end = time(NULL) + seconds;
	struct ibv_wc wc;

	say(said);
	while (!asked_to_quit && time(NULL) < end) {
		if (e)
			ibv_poll_cq(e->cq, 1, &wc);
		usleep(1000);
	}
}

static struct end *after_a_talk(void)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		die("calloc", ENOMEM);
	make(e, IBV_QPT_RC, false);
	to_init(e);
	connect_to(e, e->qp->qp_num);
	converse(e, MESSAGES);
	return e;
}

static void *one_thread(void *arg)
{
	struct end *e = after_a_talk();

	unmake(e);
	free(e);
	return arg;
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

/* 紧接着 20 个消息就 fork：它们的记录这时还没有写进文件。*/
static int forks(int seconds)
{
	struct end *e = after_a_talk();
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		one_thread(NULL);
		wait_to_be_asked("child", seconds, NULL);
		exit(3);
	}
	waitpid(pid, &status, 0);
	unmake(e);
	free(e);
	printf("parent, child ended with %d\n", WEXITSTATUS(status));
	one_thread(NULL);
	return 5;
}

/* ---- 失败的调用 ----------------------------------------------------------- */

static int skip_a_step(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int err = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);

	printf("modify: %d\n", err);
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
	wr.wr.rdma.rkey = e->mr->rkey ^ 0x10000000; /* 别处的 index */
	make(&peer, IBV_QPT_RC, false);
	to_init(&peer);
	connect_to(&peer, e->qp->qp_num);
	connect_to(e, peer.qp->qp_num);
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

/* ---- 许多记录 ------------------------------------------------------------- */

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

static int fork_when_full(struct end *e)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		one_thread(NULL);
		_exit(3);
	}
	say("forked");
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
	say("full");
	if (forks_then)
		return fork_when_full(e);
	post_to(e, srq, 4000);
	return 0;
}

/* ---- 等 ------------------------------------------------------------------- */

static int wait_in_error(struct end *e, int seconds)
{
	write_with_wrong_rkey(e);
	wait_to_be_asked("waiting", seconds, NULL);
	return 6;
}

/* 有 channel 的 CQ 交给了事件循环：谁也不 poll。*/
static int wait_for_nothing(struct end *e, const char *how, int seconds)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };

	connect_to(e, e->qp->qp_num);
	post_recv(e);
	if (!strcmp(how, "unsignaled"))
		wr.send_flags = 0;
	if (!strncmp(how, "un", 2))
		post_send(e, wr);
	wait_to_be_asked("waiting", seconds,
			 e->channel || !strcmp(how, "unpolled") ? NULL : e);
	return 6;
}

static int quits(void)
{
	signal(SIGQUIT, on_quit);
	wait_to_be_asked("ready", DEADLINE_S, NULL);
	return asked_to_quit ? 9 : 1;
}

/* ---- 结束 ----------------------------------------------------------------- */

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

/* 收发 10 个消息，然后怎样结束。*/
static int talk_and_end(struct end *e, const char *how, int number)
{
	connect_to(e, e->qp->qp_num);
	if (!strcmp(how, "close"))
		for (int fd = 3; fd < 1024; fd++)
			if (fd != e->context->cmd_fd &&
			    fd != e->context->async_fd)
				close(fd);
	if (!strcmp(how, "leave"))
		leave_a_child();
	converse(e, 10);
	if (!strcmp(how, "leave"))
		_exit(number);
	if (strstr(how, "exec"))
		return become(how);
	if (!strcmp(how, "crash"))
		*(volatile int *)(uintptr_t)number = 1;
	if (!strcmp(how, "signal"))
		kill(getpid(), number);
	say("done");
	return 0;
}

static int with_a_qp(const char *how, int number)
{
	static struct end e;

	make(&e, IBV_QPT_RC, !strcmp(how, "armed") || !strcmp(how, "unread"));
	to_init(&e);
	if (!strcmp(how, "brim") || !strcmp(how, "full"))
		return fill(&e, !strcmp(how, "full"));
	if (!strcmp(how, "modify"))
		return skip_a_step(&e);
	if (!strcmp(how, "remote"))
		return wrong_rkey(&e);
	if (!strcmp(how, "early"))
		return early(&e);
	if (!strcmp(how, "broken"))
		return wait_in_error(&e, number);
	if (!strcmp(how, "quit"))
		return quits();
	if (!strcmp(how, "wait") || !strcmp(how, "armed") ||
	    !strncmp(how, "un", 2))
		return wait_for_nothing(&e, how, number);
	return talk_and_end(&e, how, number);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;

	signal(SIGUSR1, on_quit);
	if (!strcmp(how, "plain")) {
		printf("no verbs here\n");
		return 7;
	}
	if (!strcmp(how, "threads"))
		return threads(number);
	if (!strcmp(how, "fork"))
		return forks(number);
	return with_a_qp(how, number);
}
