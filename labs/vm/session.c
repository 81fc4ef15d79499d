// SPDX-License-Identifier: MIT
/*
 * session.c - 在 guest 里替一个客户执行一条命令。
 *
 * host 上的 attach 通过 virtio-serial port 发来 W_START，这里 fork 出命令，
 * 然后在一个 poll 循环里搬运字节：port → 命令的 stdin，命令的 stdout/stderr
 * → port。三条规矩决定了这个文件的样子：
 *
 *  1. 永远不阻塞。port 的 write 若是阻塞模式，virtio_console 驱动会拿着自旋锁
 *     空转，直到 host 取走数据；host 的 stdout 一堵，整个 vCPU 就跟着堵。
 *  2. 永远在读 port。stdin 有窗口 (WIRE_WINDOW)，所以 to_job 不会无限增长，
 *     而 Ctrl-C 这样的 W_SIGNAL 也就永远不会排在一堆没人读的 stdin 后面。
 *  3. 客户消失 (kill -9) 不会有任何消息，只有 POLLHUP，或者更糟：新客户的
 *     W_START 直接跟在旧客户的半个 frame 后面。两种情况都要结束旧命令。
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "wire.h"

/* 发往 host 的队列超过它就不再读命令的输出 */
#define OUT_LIMIT   (64 * 1024)
#define GRACE_MS    2000      /* SIGHUP 之后等多久才 SIGKILL */
#define DRAIN_LIMIT (2 << 20) /* 命令结束后最多再取多少输出 */

/* 一个会话。fd 为 -1 表示这一头已经关闭。 */
struct session {
	int port;	      /* /dev/vportNpM，nonblocking */
	int children;	      /* signalfd，只收 SIGCHLD */
	struct wire_buf raw;  /* 从 port 读来、还没拆开的字节 */
	struct wire_in in;    /* 正在拼的 frame */
	struct wire_in start; /* 这条命令的 W_START */
	char **list;	      /* 其中的字符串，argv 后面也有 NULL */
	struct wire_buf out;  /* 已编码、还没写进 port 的字节 */
	struct wire_buf to_job; /* 还没写进命令 stdin 的字节 */
	int job_in, job_out, job_err;
	pid_t job;    /* 也是它的 session id 和 process group id */
	int status;   /* waitpid 的结果，ended 之后有效 */
	size_t late;  /* ended 之后取到的输出 */
	bool ended;   /* 命令自己结束了 */
	bool tty;     /* job_in 和 job_out 是同一个 pty master */
	bool eof;     /* host 的 stdin 到头了 */
	bool restart; /* in.frame 里是下一个客户的 W_START */
	bool keep_clock;
};

void clock_follow(const char *host_time)
{
	char *rest;
	long long sec = strtoll(host_time, &rest, 10);
	double frac = *rest == '.' ? strtod(rest, NULL) : 0;
	struct timespec now, want = { sec, (long)(frac * 1e9) };
	double off;

	clock_gettime(CLOCK_REALTIME, &now);
	off = (double)(want.tv_sec - now.tv_sec) +
	      (double)(want.tv_nsec - now.tv_nsec) / 1e9;
	if (sec > 0 && (off > 0.2 || off < -0.2))
		clock_settime(CLOCK_REALTIME, &want);
}

void oom_score(const char *score)
{
	FILE *f = fopen("/proc/self/oom_score_adj", "w");

	if (!f)
		return;
	fputs(score, f);
	fclose(f);
}

int watch_children(void)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	return signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
}

static short events_of(int fd, short want)
{
	struct pollfd p = { .fd = fd, .events = want };

	return poll(&p, 1, 0) == 1 ? p.revents : 0;
}

/*
 * host 是否真的挂断了？PORT_OPEN 是经 control virtqueue 送来、由 workqueue
 * 处理的，数据却走 port 自己的 virtqueue，可能先到：刚连上时会看到一瞬间假的
 * POLLHUP。所以一秒之内恢复的都不算。
 */
static bool really_hung_up(int port)
{
	for (int i = 0; i < 100; i++) {
		if (!(events_of(port, POLLIN) & POLLHUP))
			return false;
		usleep(10000);
	}
	return true;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_job(struct session *s)
{
	close_fd(&s->job_in);
	close_fd(&s->job_out);
	close_fd(&s->job_err);
}

/* ---- 命令的一生 ------------------------------------------------------- */

/*
 * 子进程的最后一段。父进程的 SIGCHLD 屏蔽字、oom 豁免都会被继承，不还原的话
 * 命令里的 wait 会行为怪异，内存不够时内核也杀不掉它。RLIMIT_MEMLOCK 放开，
 * 因为 ibv_reg_mr 要 pin 内存，默认的 8 MiB 很快就 ENOMEM。
 */
static void become_job(const char *cwd, char **argv, char **env)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	struct rlimit files = { 1024, 524288 };
	sigset_t none;
	int e;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setrlimit(RLIMIT_MEMLOCK, &all);
	setrlimit(RLIMIT_NOFILE, &files);
	oom_score("0");
	if (chdir(cwd)) {
		dprintf(2,
			"lab: cannot enter %s in the VM: %s\n"
			"lab: it has the work tree, /usr, /etc and /opt of "
			"this host, nothing else; run from the work tree\n",
			cwd, strerror(errno));
		_exit(126);
	}
	environ = env;
	if (getenv("HOME")) /* 空的：host 的那个没有交出来 */
		mkdir(getenv("HOME"), 0755);
	execvp(argv[0], argv);
	e = errno;
	dprintf(2, "lab: %s: %s\n", argv[0],
		e == ENOENT ? "command not found" : strerror(e));
	_exit(e == ENOENT ? 127 : 126);
}

/* 三条 pipe：只有自己这一头是 nonblocking，命令那一头必须保持阻塞。 */
static int start_on_pipes(struct session *s, const char *cwd, char **argv,
			  char **env)
{
	int in[2], out[2], err[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ||
	    pipe2(err, O_CLOEXEC))
		return -errno;
	s->job = fork();
	if (s->job < 0)
		return -errno;
	if (!s->job) {
		setsid();
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		become_job(cwd, argv, env);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	s->job_in = in[1];
	s->job_out = out[0];
	s->job_err = err[0];
	fcntl(s->job_in, F_SETFL, O_NONBLOCK);
	fcntl(s->job_out, F_SETFL, O_NONBLOCK);
	fcntl(s->job_err, F_SETFL, O_NONBLOCK);
	return 0;
}

/* 终端：stdout 和 stderr 在 pty 里合成一路，和真的终端一样。 */
static int start_on_pty(struct session *s, const struct winsize *size,
			const char *cwd, char **argv, char **env)
{
	int master;

	s->job = forkpty(&master, NULL, NULL, size);
	if (s->job < 0)
		return -errno;
	if (!s->job)
		become_job(cwd, argv, env);
	fcntl(master, F_SETFD, FD_CLOEXEC);
	fcntl(master, F_SETFL, O_NONBLOCK);
	s->job_out = master;
	s->job_in = fcntl(master, F_DUPFD_CLOEXEC, 0);
	return s->job_in < 0 ? -errno : 0;
}

/*
 * 等子进程走到 exec：CLOEXEC 的写端在那一刻关闭，read 得到 EOF。不等的话，紧跟
 * 着来的 W_SIGNAL 可能早于子进程的 setsid，kill(-pgid) 就落空了。
 */
static void await_exec(int ready[2])
{
	char c;

	close(ready[1]);
	while (read(ready[0], &c, 1) < 0 && errno == EINTR)
		;
	close(ready[0]);
}

static int start_job(struct session *s)
{
	char **v = s->list, **argv = v + START_FIELDS;
	char **env = argv + atoi(v[START_ARGC]) + 1;
	struct winsize size = { .ws_row = (unsigned short)atoi(v[START_ROWS]),
				.ws_col = (unsigned short)atoi(v[START_COLS]) };
	int ready[2], rc;

	if (pipe2(ready, O_CLOEXEC))
		return -errno;
	s->tty = *v[START_TTY] == '1';
	if (s->tty)
		rc = start_on_pty(s, &size, v[START_CWD], argv, env);
	else
		rc = start_on_pipes(s, v[START_CWD], argv, env);
	await_exec(ready);
	return rc;
}

/*
 * 对一个 session 里的所有进程发信号（sig 为 0 时只数数）。只 kill(-pgid) 不
 * 够：timeout(1) 和带 job control 的 shell 会给孩子另开 process group。
 */
static int signal_session(pid_t sid, int sig)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int found = 0;

	while (proc && (e = readdir(proc))) {
		pid_t pid = atoi(e->d_name);

		if (pid > 1 && getsid(pid) == sid) {
			found++;
			kill(pid, sig);
		}
	}
	if (proc)
		closedir(proc);
	return found;
}

static void reap(struct session *s)
{
	struct signalfd_siginfo drain;

	while (read(s->children, &drain, sizeof(drain)) > 0)
		;
	if (!s->ended && waitpid(s->job, &s->status, WNOHANG) == s->job)
		s->ended = true;
}

/* 客户没了：SIGHUP，像关掉终端窗口那样；两秒后还在的一律 SIGKILL。 */
static void end_job(struct session *s)
{
	close_job(s);
	if (!s->ended)
		kill(-s->job, SIGHUP);
	kill(-s->job, SIGCONT);
	for (int i = 0; i < GRACE_MS / 20; i++) {
		reap(s);
		if (!signal_session(s->job, 0))
			return;
		usleep(20000);
	}
	signal_session(s->job, SIGKILL);
	if (!s->ended)
		waitpid(s->job, &s->status, 0);
	s->ended = true;
}

/* ---- host → 命令 ------------------------------------------------------- */

static void set_winsize(struct session *s)
{
	struct winsize size = { 0 };
	char *v[3];

	if (wire_list(&s->in, v, 2) != 2 || !s->tty || s->job_in < 0)
		return;
	size.ws_row = (unsigned short)atoi(v[0]);
	size.ws_col = (unsigned short)atoi(v[1]);
	ioctl(s->job_in, TIOCSWINSZ, &size);
}

/* 被 kill -9 的客户可能只留下半个 W_START：数目对不上的一概不认。 */
static bool start_is_whole(struct session *s)
{
	size_t n = wire_strings(&s->in), argc, envc;
	char **env;

	if (n <= START_FIELDS)
		return false;
	s->list = realloc(s->list, (n + 2) * sizeof(*s->list));
	if (!s->list)
		abort();
	wire_list(&s->in, s->list, n);
	argc = (size_t)atoi(s->list[START_ARGC]);
	envc = (size_t)atoi(s->list[START_ENVC]);
	if (!argc || argc > n || envc > n || n != START_FIELDS + argc + envc)
		return false;
	env = s->list + START_FIELDS + argc;
	memmove(env + 1, env, (envc + 1) * sizeof(*env));
	*env = NULL;
	return true;
}

static void on_frame(struct session *s)
{
	const char *p = wire_payload(&s->in);
	size_t n = wire_payload_len(&s->in);
	char number[16] = "";

	memcpy(number, p, n < sizeof(number) ? n : sizeof(number) - 1);
	switch (wire_type(&s->in)) {
	case W_START:
		s->restart = start_is_whole(s);
		break;
	case W_STDIN:
		if (s->job_in >= 0) {
			wire_add(&s->to_job, p, n);
			break;
		}
		/* 没人要的 stdin 也要还 credit，否则 host 会一直等窗口。 */
		wire_number(&s->out, W_CREDIT, (long)n);
		break;
	case W_STDIN_EOF:
		s->eof = true;
		break;
	case W_SIGNAL:
		if (!s->ended)
			kill(-s->job, atoi(number));
		break;
	case W_WINSIZE:
		set_winsize(s);
		break;
	case W_CLOSE:
		/* host 那边的读者走了：让命令得到 SIGPIPE/EPIPE。 */
		close_fd(*number == '1' ? &s->job_out : &s->job_err);
		break;
	}
}

/*
 * 读 port，直到没有数据或见到下一个客户的 W_START。后一种情况下剩余的字节留在
 * raw 里：它们属于下一个会话，丢了就会让那个客户永远等不到 W_WELCOME。
 */
static void read_port(struct session *s)
{
	ssize_t n = 1;

	while (!s->restart && n > 0) {
		if (!wire_len(&s->raw)) {
			n = read(s->port, wire_room(&s->raw, 32768), 32768);
			s->raw.end += n > 0 ? (size_t)n : 0;
			continue;
		}
		wire_drop(&s->raw, wire_take(&s->in, wire_head(&s->raw),
					     wire_len(&s->raw)));
		if (s->in.whole)
			on_frame(s);
	}
}

static void feed_job(struct session *s)
{
	size_t before = wire_len(&s->to_job);

	if (s->job_in >= 0 && wire_flush(s->job_in, &s->to_job) < 0) {
		wire_clear(&s->to_job);
		close_fd(&s->job_in);
	}
	if (before != wire_len(&s->to_job))
		wire_number(&s->out, W_CREDIT,
			    (long)(before - wire_len(&s->to_job)));
	/* pty 没有“写端关闭”这回事，终端上的 EOF 是用户自己打的 ^D。 */
	if (s->eof && !wire_len(&s->to_job) && !s->tty)
		close_fd(&s->job_in);
}

/* ---- 命令 → host ------------------------------------------------------- */

static void read_job(struct session *s, int *fd, char type)
{
	char bytes[WIRE_CHUNK];

	while (*fd >= 0 && wire_len(&s->out) < OUT_LIMIT) {
		ssize_t n = read(*fd, bytes, sizeof(bytes));

		if (n > 0) {
			wire_put(&s->out, type, bytes, (size_t)n);
			s->late += s->ended ? (size_t)n : 0;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0 || errno != EAGAIN)
			close_fd(fd); /* pty 在最后一个 slave 关闭后给 EIO */
		return;
	}
}

static bool more_to_come(struct session *s)
{
	if (s->late > DRAIN_LIMIT)
		return false;
	return (s->job_out >= 0 && events_of(s->job_out, POLLIN) & POLLIN) ||
	       (s->job_err >= 0 && events_of(s->job_err, POLLIN) & POLLIN);
}

static void say_exit(struct session *s)
{
	wire_number(&s->out, W_EXIT,
		    WIFSIGNALED(s->status) ? 128 + WTERMSIG(s->status)
					   : WEXITSTATUS(s->status));
	close_job(s);
}

/* 一圈 poll。返回 -1 表示 host 挂断了。 */
static int turn(struct session *s)
{
	bool room = wire_len(&s->out) < OUT_LIMIT;
	struct pollfd p[] = {
		{ s->port, POLLIN, 0 },
		{ s->children, POLLIN, 0 },
		{ room ? s->job_out : -1, POLLIN, 0 },
		{ room ? s->job_err : -1, POLLIN, 0 },
		{ wire_len(&s->to_job) ? s->job_in : -1, POLLOUT, 0 },
	};

	if (wire_len(&s->out))
		p[0].events |= POLLOUT;
	if (poll(p, sizeof(p) / sizeof(*p), -1) < 0)
		return errno == EINTR ? 0 : -1;
	if (p[0].revents & POLLHUP && really_hung_up(s->port))
		return -1;
	if (p[0].revents & (POLLIN | POLLHUP))
		read_port(s);
	feed_job(s);
	if (p[2].revents)
		read_job(s, &s->job_out, W_STDOUT);
	if (p[3].revents)
		read_job(s, &s->job_err, W_STDERR);
	if (p[1].revents)
		reap(s);
	return wire_flush(s->port, &s->out);
}

/*
 * 命令结束、pipe 里已有的字节取完，会话就结束。不等 EOF：命令留在后台的
 * daemon 也握着 pipe 的写端，等它就永远等不到。
 */
static enum session_end pump(struct session *s)
{
	bool said = false;

	read_port(s);
	while (!said || wire_len(&s->out)) {
		if (turn(s) < 0) {
			end_job(s);
			return SESSION_HUNG_UP;
		}
		if (s->restart) {
			end_job(s);
			return SESSION_DONE;
		}
		if (s->ended && !said && !more_to_come(s)) {
			say_exit(s);
			said = true;
			wire_flush(s->port, &s->out);
		}
	}
	return SESSION_DONE;
}

/* 等 W_START；没有客户了就返回 false。别的 frame 都是上一个客户的残余。 */
static bool await_start(struct session *s)
{
	struct pollfd p = { .fd = s->port, .events = POLLIN };

	while (!s->restart) {
		if (poll(&p, 1, -1) < 0)
			continue;
		if (!(p.revents & POLLHUP))
			read_port(s);
		else if (really_hung_up(s->port))
			return false;
	}
	return !really_hung_up(s->port);
}

static enum session_end refuse(struct session *s, const char *why)
{
	wire_puts(&s->out, W_ERROR, why);
	while (wire_len(&s->out)) {
		struct pollfd p = { .fd = s->port, .events = POLLOUT };

		poll(&p, 1, 1000);
		if (p.revents & POLLHUP || wire_flush(s->port, &s->out) < 0)
			break;
	}
	return SESSION_DONE;
}

/* 执行 in.frame 里的 W_START：它留着，后面的 frame 拼在上一个留下的地方。 */
static enum session_end run_start(struct session *s)
{
	const struct wire_buf room = s->start.frame;
	enum session_end end;
	int rc;

	s->start = s->in;
	s->in = (struct wire_in){ .frame = { .data = room.data,
					     .size = room.size } };
	s->restart = s->ended = s->eof = false;
	s->late = 0;
	wire_clear(&s->out);
	wire_clear(&s->to_job);
	if (!s->keep_clock)
		clock_follow(s->list[START_TIME]);
	wire_puts(&s->out, W_WELCOME, s->list[START_NONCE]);
	rc = start_job(s);
	end = rc ? refuse(s, strerror(-rc)) : pump(s);
	close_job(s);
	return end;
}

enum session_end session_serve(int port, bool keep_clock)
{
	struct session s = { .port = port,
			     .job_in = -1,
			     .job_out = -1,
			     .job_err = -1,
			     .keep_clock = keep_clock };
	enum session_end end;

	/* 提前结束的命令会关掉它的 stdin：要 EPIPE，不要死于 SIGPIPE。 */
	signal(SIGPIPE, SIG_IGN);
	s.children = watch_children();
	if (s.children < 0 || !await_start(&s))
		return SESSION_HUNG_UP;
	do
		end = run_start(&s);
	while (s.restart);
	return end;
}
