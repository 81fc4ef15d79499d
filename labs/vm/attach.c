// SPDX-License-Identifier: MIT
/*
 * attach.c - 一次 "lab run CMD" 的 host 这一半。
 *
 *	attach [-o QEMU_PID] [-t SECONDS] RUNDIR CMD [ARG...]
 *
 * 连上 VM 的一个会话 socket，把 CMD、工作目录和环境变量发过去，然后让
 * stdin/stdout/stderr、信号、终端大小和退出码表现得好像 CMD 就在这里运行。
 * -o：VM 是专为这一次启动的，结束时连同 RUNDIR 一起收拾掉。
 *
 * 两条容易踩的坑：
 *  - 不能给 0/1/2 设 O_NONBLOCK：这个标志属于 open file description，是和父
 *    shell、甚至整条 pipeline 共享的，设了会让别的程序突然得到 EAGAIN。所以先
 *    poll，再写不超过 PIPE_BUF 的一小块：pipe 可写就保证放得下。
 *  - 写终端仍可能阻塞 (^S)。信号处理函数不带 SA_RESTART，write 会以 EINTR 返回，
 *    于是 Ctrl-C 总能送进 guest。
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define GONE	   125	 /* 退出码：VM 没了 */
#define TIMED_OUT  124	 /* 退出码：超过 -t */
#define WELCOME_MS 30000 /* W_START 之后最多等这么久 */
#define GIVE_UP_MS 2000	 /* 转发致命信号后，最多等这么久 */
#define OUT_LIMIT  (128 * 1024)

struct attach {
	int sock, lock;
	pid_t qemu; /* -o，0 表示 VM 不归我们管 */
	long limit; /* -t，毫秒，0 表示没有 */
	const char *dir;
	char nonce[17];
	struct wire_in in;
	struct wire_buf out;	 /* 发往 guest */
	struct wire_buf list;	 /* 拼一个列表的地方 */
	struct wire_buf data[2]; /* 发往 stdout、stderr */
	bool closed[2];		 /* 对应的读者已经走了 */
	size_t window;		 /* 还可以发多少字节 stdin */
	bool welcome, eof, tty, done, expired;
	int status;
	long started, signalled, moved; /* now_ms()，0 表示还没有 */
	int last_signal;
	struct termios saved;
};

static int signal_pipe[2]; /* 信号处理函数唯一能碰的东西 */

/* ---- 信号和终端 -------------------------------------------------------- */

static void on_signal(int sig)
{
	unsigned char c = (unsigned char)sig;
	int keep = errno;

	if (write(signal_pipe[1], &c, 1) < 0)
		errno = keep;
	errno = keep;
}

/*
 * nohup 把 SIGHUP 设成忽略，要尊重；SIGINT 则不管继承到什么都转发：脚本里用 &
 * 放到后台的 server 也应当随 Ctrl-C 结束，而不是留在 VM 里。
 */
static int catch_signals(void)
{
	static const int caught[] = { SIGINT,  SIGTERM, SIGHUP,	 SIGQUIT,
				      SIGUSR1, SIGUSR2, SIGWINCH };
	struct sigaction act = { .sa_handler = on_signal }, old;

	if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (size_t i = 0; i < sizeof(caught) / sizeof(*caught); i++) {
		sigaction(caught[i], NULL, &old);
		if (caught[i] == SIGHUP && old.sa_handler == SIG_IGN)
			continue;
		sigaction(caught[i], &act, NULL);
	}
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

/* 后台进程组碰终端会被 SIGTTIN/SIGTTOU 停住："lab run server &" 就僵住了。 */
static bool in_foreground(void)
{
	return tcgetpgrp(0) == getpgrp();
}

static void enter_raw(struct attach *a)
{
	struct termios raw;

	a->tty = isatty(0) && isatty(1) && isatty(2) && in_foreground() &&
		 !tcgetattr(0, &a->saved);
	if (!a->tty)
		return;
	raw = a->saved;
	cfmakeraw(&raw);
	tcsetattr(0, TCSADRAIN, &raw);
}

static void add_number(struct wire_buf *list, long n)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", n);
	wire_str(list, text);
}

static void send_winsize(struct attach *a)
{
	struct winsize w = { 0 };

	if (!a->tty || ioctl(0, TIOCGWINSZ, &w))
		return;
	add_number(&a->list, w.ws_row);
	add_number(&a->list, w.ws_col);
	wire_put_list(&a->out, W_WINSIZE, &a->list);
}

static void send_signal(struct attach *a, int sig)
{
	wire_number(&a->out, W_SIGNAL, sig);
	if (sig == SIGUSR1 || sig == SIGUSR2)
		return;
	a->last_signal = sig;
	if (!a->signalled)
		a->signalled = now_ms();
}

/* W_WELCOME 之前会话里可能还是别人的命令，不能把信号发给它：自己走就是了。 */
static void take_signals(struct attach *a)
{
	unsigned char c;

	while (read(signal_pipe[0], &c, 1) == 1) {
		if (c == SIGWINCH) {
			send_winsize(a);
		} else if (a->welcome) {
			send_signal(a, c);
		} else {
			a->status = 128 + c;
			a->done = true;
		}
	}
}

/* ---- 会话的开始 -------------------------------------------------------- */

/*
 * 挑一个空闲的 port。flock 随进程消失而消失，所以被 kill -9 的 attach 不会把
 * port 永远占住；存在一个 pid 文件就做不到。
 */
static int take_port(struct attach *a)
{
	char path[PATH_MAX];

	for (int i = 0; i < WIRE_SESSIONS; i++) {
		snprintf(path, sizeof(path), "%s/s%d.lock", a->dir, i);
		a->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (a->lock < 0)
			return -errno;
		if (flock(a->lock, LOCK_EX | LOCK_NB)) {
			close(a->lock);
			continue;
		}
		snprintf(path, sizeof(path), "%s/s%d", a->dir, i);
		a->sock = connect_to(path);
		if (a->sock < 0)
			return -ENOTCONN;
		fcntl(a->sock, F_SETFL, O_NONBLOCK);
		return 0;
	}
	return -EUSERS;
}

/* 只对 host 有意义的变量不带进 guest。 */
static bool stays_here(const char *var)
{
	static const char *const names[] = {
		"OLDPWD=", "SHLVL=", "TMPDIR=", "XDG_RUNTIME_DIR=", "LAB", "_="
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(var, names[i], strlen(names[i])))
			return true;
	return false;
}

static int send_start(struct attach *a, char **argv)
{
	struct winsize w = { 0 };
	struct wire_buf *list = &a->list;
	char cwd[PATH_MAX], text[64];
	long argc = 0, envc = 0;
	struct timespec t;
	uint64_t nonce;

	if (!getcwd(cwd, sizeof(cwd)) ||
	    getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		return -errno;
	snprintf(a->nonce, sizeof(a->nonce), "%016lx", nonce);
	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "%ld.%09ld", t.tv_sec, t.tv_nsec);
	if (a->tty)
		ioctl(0, TIOCGWINSZ, &w);
	while (argv[argc])
		argc++;
	for (char **e = environ; *e; e++)
		envc += !stays_here(*e);

	wire_str(list, a->nonce);
	wire_str(list, text);
	wire_str(list, a->tty ? "1" : "0");
	add_number(list, w.ws_row);
	add_number(list, w.ws_col);
	wire_str(list, cwd);
	add_number(list, argc);
	add_number(list, envc);
	for (char **v = argv; *v; v++)
		wire_str(list, *v);
	for (char **e = environ; *e; e++)
		if (!stays_here(*e))
			wire_str(list, *e);
	if (wire_len(list) >= WIRE_MAX)
		return -E2BIG;
	wire_put_list(&a->out, W_START, list);
	return 0;
}

/* ---- guest → 我们 ------------------------------------------------------ */

static void on_frame(struct attach *a)
{
	const char *p = wire_payload(&a->in);
	size_t n = wire_payload_len(&a->in);
	char text[32] = "";

	memcpy(text, p, n < sizeof(text) ? n : sizeof(text) - 1);
	if (!a->welcome) {
		/* 在我们的 nonce 之前，一切都是上一个会话的残余。 */
		a->welcome = wire_type(&a->in) == W_WELCOME &&
			     !strcmp(text, a->nonce);
		return;
	}
	switch (wire_type(&a->in)) {
	case W_STDOUT:
		if (!a->closed[0])
			wire_add(&a->data[0], p, n);
		break;
	case W_STDERR:
		if (!a->closed[1])
			wire_add(&a->data[1], p, n);
		break;
	case W_CREDIT:
		a->window += (size_t)atol(text);
		break;
	case W_EXIT:
		a->status = atoi(text);
		a->done = true;
		break;
	case W_ERROR:
		fprintf(stderr, "lab: the VM could not run the command: %.*s\n",
			(int)n, p);
		a->status = GONE;
		a->done = true;
		break;
	}
}

static void gone(struct attach *a)
{
	fprintf(stderr, "lab: the VM went away while the command ran\r\n");
	if (!a->qemu)
		fprintf(stderr,
			"lab: next: run it again; the VM's last words may be "
			"in %s/console\r\n",
			a->dir);
	a->status = GONE;
	a->done = true;
}

static void read_sock(struct attach *a)
{
	unsigned char bytes[32768];
	ssize_t n = recv(a->sock, bytes, sizeof(bytes), 0);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		gone(a);
	for (ssize_t i = 0; i < n && !a->done;) {
		i += (ssize_t)wire_take(&a->in, bytes + i, (size_t)(n - i));
		if (a->in.whole)
			on_frame(a);
	}
}

/* 写一小块到 stdout 或 stderr；读者走了就告诉 guest，让命令得到 SIGPIPE。 */
static void write_out(struct attach *a, int i)
{
	struct wire_buf *b = &a->data[i];
	size_t n = wire_len(b) < PIPE_BUF ? wire_len(b) : PIPE_BUF;
	ssize_t w = write(i + 1, wire_head(b), n);

	if (w > 0) {
		wire_drop(b, (size_t)w);
		a->moved = now_ms();
		return;
	}
	if (w < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	wire_clear(b);
	a->closed[i] = true;
	wire_puts(&a->out, W_CLOSE, i ? "2" : "1");
}

/* ---- 我们 → guest ------------------------------------------------------ */

static void read_stdin(struct attach *a)
{
	char bytes[WIRE_CHUNK];
	size_t n = a->window < sizeof(bytes) ? a->window : sizeof(bytes);
	ssize_t r = read(0, bytes, n);

	if (r > 0) {
		wire_put(&a->out, W_STDIN, bytes, (size_t)r);
		a->window -= (size_t)r;
	} else if (r == 0 || (errno != EINTR && errno != EAGAIN)) {
		a->eof = true;
		if (a->tty)
			send_signal(a, SIGHUP); /* 终端没了 */
		else
			wire_puts(&a->out, W_STDIN_EOF, "");
	}
}

/* ---- 主循环 ------------------------------------------------------------ */

/* 到点该做的事；返回 true 表示不必再等了。 */
static bool too_late(struct attach *a)
{
	long now = now_ms();
	bool stuck;

	if (!a->welcome && now - a->started > WELCOME_MS) {
		fprintf(stderr, "lab: the VM does not answer; "
				"next: labs/lab down, then run again\n");
		a->status = GONE;
		return true;
	}
	if (a->limit && now - a->started > a->limit && !a->expired) {
		fprintf(stderr, "lab: the time limit of %ld s is over\r\n",
			a->limit / 1000);
		a->expired = true;
		a->signalled = now;
		send_signal(a, SIGTERM);
	}
	if (!a->signalled || now - a->signalled < GIVE_UP_MS)
		return false;
	if (a->expired)
		return true;
	stuck = now - a->moved > GIVE_UP_MS &&
		(wire_len(&a->data[0]) || wire_len(&a->data[1]));
	if (stuck && !a->done)
		a->status = 128 + a->last_signal;
	return stuck;
}

static bool may_read_stdin(const struct attach *a)
{
	if (!a->welcome || a->eof || a->done || !a->window ||
	    wire_len(&a->out) > WIRE_CHUNK)
		return false;
	return a->tty || !isatty(0) || in_foreground();
}

static int turn(struct attach *a)
{
	bool room = wire_len(&a->data[0]) + wire_len(&a->data[1]) < OUT_LIMIT;
	bool ears = !a->done && (room || wire_len(&a->out));
	bool quick = a->limit || a->signalled || !a->welcome;
	struct pollfd p[] = {
		{ ears ? a->sock : -1, room ? POLLIN : 0, 0 },
		{ may_read_stdin(a) ? 0 : -1, POLLIN, 0 },
		{ wire_len(&a->data[0]) ? 1 : -1, POLLOUT, 0 },
		{ wire_len(&a->data[1]) ? 2 : -1, POLLOUT, 0 },
		{ signal_pipe[0], POLLIN, 0 },
	};

	if (wire_len(&a->out))
		p[0].events |= POLLOUT;
	/* 在后台等终端时，没有事件会告诉我们回到了前台，只好不时看一眼。 */
	if (poll(p, 5, quick || (!a->eof && isatty(0)) ? 200 : -1) < 0 &&
	    errno != EINTR)
		return -errno;
	if (p[2].revents)
		write_out(a, 0);
	if (p[3].revents)
		write_out(a, 1);
	take_signals(a);
	if (p[1].revents)
		read_stdin(a);
	if (p[0].revents & POLLIN)
		read_sock(a);
	else if (p[0].revents & (POLLHUP | POLLERR) && room)
		gone(a);
	return 0;
}

static int converse(struct attach *a, char **argv)
{
	int status;

	a->started = now_ms();
	a->window = WIRE_WINDOW;
	status = send_start(a, argv);
	if (status) {
		fprintf(stderr, "lab: %s: %s\n", argv[0], strerror(-status));
		return GONE;
	}
	while (!a->done || wire_len(&a->data[0]) || wire_len(&a->data[1])) {
		if (too_late(a))
			break;
		if (!a->done && wire_flush(a->sock, &a->out) < 0)
			gone(a);
		if (turn(a) < 0)
			return GONE;
	}
	return a->expired ? TIMED_OUT : a->status;
}

/* -o：杀掉自己的 VM，它是我们的子进程，别的进程不碰。RUNDIR 里只有普通文件和 socket，没有子目录。 */
static void clean_up(struct attach *a)
{
	DIR *d = a->qemu ? opendir(a->dir) : NULL;
	struct dirent *e;

	if (!d)
		return;
	if (!waitpid(a->qemu, NULL, WNOHANG) && !kill(a->qemu, SIGKILL))
		waitpid(a->qemu, NULL, 0);
	while ((e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(a->dir);
}

/* 有人用 <&- 关掉了 0：不补上的话，下一个 open 就会得到它。 */
static void fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	close(fd);
}

static int usage(void)
{
	fprintf(stderr, "usage: attach [-o QEMU_PID] [-t SECONDS] RUNDIR "
			"CMD [ARG...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct attach a = { .sock = -1 };
	int c, rc;

	while ((c = getopt(argc, argv, "+o:t:")) != -1) {
		if (c == 'o')
			a.qemu = atoi(optarg);
		else if (c == 't')
			a.limit = atol(optarg) * 1000;
		else
			return usage();
	}
	if (argc - optind < 2)
		return usage();
	a.dir = argv[optind];
	fill_stdio();
	rc = catch_signals();
	if (!rc)
		rc = take_port(&a);
	if (rc) {
		fprintf(stderr, rc == -EUSERS ? "lab: all sessions of the VM "
						"are in use; end one\n"
					      : "lab: cannot reach the VM; "
						"try: labs/lab down\n");
		clean_up(&a);
		return GONE;
	}
	enter_raw(&a);
	rc = converse(&a, argv + optind + 1);
	if (a.tty)
		tcsetattr(0, TCSADRAIN, &a.saved);
	clean_up(&a);
	return rc;
}
