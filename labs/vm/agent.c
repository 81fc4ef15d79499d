// SPDX-License-Identifier: MIT
/*
 * agent.c - guest 的 1 号进程。
 *
 * 一生分两段，中间隔着一次“存盘”：
 *   第一段 由 init.sh 启动（rxe0、rxe1 已经就绪），只回答 W_PING。host 在这时
 *          把整个 VM 存成文件，以后每次都从这里醒来，不用再开机。
 *   第二段 host 恢复 VM 后发来 W_SETUP：校时、补随机数、挂 9p，然后等会话。
 * 9p 必须在醒来之后才挂：挂着 9p 的 VM 存不了盘 (migration blocker)，况且每次
 * 恢复时 host 的文件都不一样了。
 *
 * 为什么等会话要用 EPOLLET：host 没连上时，virtio port 一直报 POLLHUP，普通的
 * (level-triggered) poll 会立刻返回、空转掉一个 CPU；edge-triggered 只在状态变化
 * 时醒来。
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/random.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "wire.h"

#define ROOT	     "/root.new" /* 合并后的根，switch_root 之前的名字 */
#define NINEP	     "trans=virtio,version=9p2000.L,msize=512000,"
#define WHY_SIZE     5000
#define MOST_STRINGS 16 /* 一个请求里的字符串 */

/* 谁在用这个 VM，决定它何时自己关机。 */
enum role {
	ROLE_WARM,  /* 多个会话；闲置 idle 分钟后关机 */
	ROLE_FRESH, /* 一个会话；客户一走就关机 */
	/* 同上，且虚拟时间：绝不能设定时器或改时钟 */
	ROLE_COUNTED
};

struct agent {
	const char *failed; /* init.sh 出的错，没有就是 NULL */
	int epoll, children;
	int control;
	struct wire_in in;
	struct wire_buf list, out; /* 答话：用过一次，下次再用 */
	int port[WIRE_SESSIONS];
	pid_t server[WIRE_SESSIONS]; /* 服务这个 port 的进程，或 0 */
	bool used[WIRE_SESSIONS];    /* 服务过至少一个会话 */
	bool set_up;
	enum role role;
	long idle_ms;
	long last_busy; /* now_ms() */
};

/*
 * 关机。先 sync：work tree 是 cache=mmap 的 9p，mmap 写脏的页还在 guest 里，
 * 不写回就丢了。
 */
static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	reboot(RB_AUTOBOOT); /* 没有 ACPI 时；qemu -no-reboot 让它等于退出 */
	for (;;)
		pause();
}

/* ---- W_SETUP ----------------------------------------------------------- */

/*
 * 所有从同一个存盘醒来的 VM 都带着同样的随机数状态：不补种子，两个“不同”的 VM
 * 会选出同样的 PSN。RNDADDENTROPY 还把种子记为熵：否则刚开机的内核要等自己攒够，
 * 头一个 getrandom 就得睡几百毫秒，信号一来还会以 EINTR 结束。它只在第一次立刻
 * 生效，所以再用 RNDRESEEDCRNG 催一下。
 */
static void reseed(const char *seed)
{
	union {
		struct rand_pool_info pool;
		char room[sizeof(struct rand_pool_info) + 256];
	} of = { 0 };
	size_t size = strnlen(seed, 256);
	int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

	of.pool.entropy_count = (int)size * 4; /* 十六进制数字 */
	of.pool.buf_size = (int)size;
	memcpy(of.pool.buf, seed, size);
	ioctl(fd, RNDADDENTROPY, &of.pool);
	ioctl(fd, RNDRESEEDCRNG);
	close(fd);
}

/* mkdir -p；没有成的话，mount 会说。 */
static void make_path(const char *path)
{
	char p[PATH_MAX], *slash = p;

	snprintf(p, sizeof(p), "%s", path);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = 0;
		mkdir(p, 0755);
		*slash = '/';
	}
	mkdir(p, 0755);
}

struct mount_step {
	const char *source, *target, *type;
	unsigned long flags;
	const char *data;
	bool optional;
};

/* overlay 不看 lowerdir 里另外挂着的东西，所以每个文件夹自成一叠。*/
#define STACK(dir, optional)                                                   \
	{ dir, "/host/" dir, "9p", MS_RDONLY, NINEP "cache=loose", optional }, \
		{ "/hot/" dir, NULL, NULL, 0, NULL, false },                   \
		{ "/layer/" dir ".up", NULL, NULL, 0, NULL, false },           \
		{ "/layer/" dir ".work", NULL, NULL, 0, NULL, false },         \
	{                                                                      \
		"overlay", ROOT "/" dir, "overlay", 0,                         \
			"lowerdir=/hot/" dir ":/host/" dir                     \
			",upperdir=/layer/" dir ".up,workdir=/layer/" dir      \
			".work",                                               \
			optional                                               \
	}

/*
 * 从下到上：只读的 host 文件夹 (9p，可以放心缓存)，开机时复制下来的常用文件 (/hot，
 * 打开它们不必问 host)，tmpfs 上的 overlay；合起来就是命令看到的根。命令能用 host
 * 上装的一切程序，却改不坏 host，也看不到谁的 home：QEMU 只交出这几个文件夹。/run 是
 * 搬过来的，里面有 rxe.sh 留下的记录。
 */
static const struct mount_step steps[] = {
	{ "tmpfs", "/layer", "tmpfs", 0, "mode=755", false },
	{ "/layer/up", NULL, NULL, 0, NULL, false },
	{ "/layer/work", NULL, NULL, 0, NULL, false },
	{ "overlay", ROOT, "overlay", 0,
	  "lowerdir=/host,upperdir=/layer/up,workdir=/layer/work", false },
	STACK("usr", false),
	STACK("etc", false),
	STACK("opt", true),
	{ "proc", ROOT "/proc", "proc", 0, NULL, false },
	{ "sysfs", ROOT "/sys", "sysfs", 0, NULL, false },
	{ "debugfs", ROOT "/sys/kernel/debug", "debugfs", 0, NULL, true },
	{ "tracefs", ROOT "/sys/kernel/tracing", "tracefs", 0, NULL, true },
	{ "devtmpfs", ROOT "/dev", "devtmpfs", 0, NULL, false },
	{ ROOT "/dev/pts", NULL, NULL, 0, NULL, false },
	{ ROOT "/dev/shm", NULL, NULL, 0, NULL, false },
	{ "devpts", ROOT "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=666",
	  false },
	{ "tmpfs", ROOT "/dev/shm", "tmpfs", 0, "mode=1777", false },
	{ "tmpfs", ROOT "/tmp", "tmpfs", 0, "mode=1777", false },
	{ "/run", ROOT "/run", NULL, MS_MOVE, NULL, false },
};

static int cannot(char why[WHY_SIZE], const char *doing, const char *what)
{
	snprintf(why, WHY_SIZE, "%s %s: %s", doing, what, strerror(errno));
	return -1;
}

static int mount_all(const char *tree, char *why)
{
	char target[4096 + sizeof(ROOT)];

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		const struct mount_step *m = &steps[i];

		if (!m->target) {
			make_path(m->source);
			continue;
		}
		if (mount(m->source, m->target, m->type, m->flags, m->data) &&
		    !m->optional)
			return cannot(why, "mounting", m->target);
	}
	snprintf(target, sizeof(target), "%s%s", ROOT, tree);
	make_path(target);
	/*
	 * mmap 要有 page cache；read 与 write 却要直接到 host (directio)。自 6.4 起 mmap 也意味着
	 * writeback：一个进程还在写、另一个恰好去 stat，内核从 host 取回旧的长度，把刚写进
	 * cache 的当成“文件末尾之后”丢掉 (6.12 与 7.2 上，十次里有一两次少一行)。6.1 不认识
	 * directio，本来就这么做。
	 */
	if (mount("work", target, "9p", 0, NINEP "cache=mmap,directio"))
		return cannot(why, "mounting", tree);
	return 0;
}

/*
 * switch_root，而不是简单的 chroot：在 chroot 里 unshare -U 和一部分 namespace
 * 操作会被内核拒绝，命令就不像“在 host 上”了。
 */
static int switch_root(char *why)
{
	if (chdir(ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) ||
	    chroot(".") || chdir("/"))
		return cannot(why, "entering", "the root");
	return 0;
}

static const char *value(char **v, const char *key)
{
	size_t n = strlen(key);

	for (; *v; v++)
		if (!strncmp(*v, key, n) && (*v)[n] == '=')
			return *v + n + 1;
	return "";
}

static int set_up(struct agent *a, char **v, char *why)
{
	const char *role = value(v, "role");

	if (a->set_up) /* host 没等到回答，又问了一遍 */
		return 0;
	a->role = !strcmp(role, "fresh")     ? ROLE_FRESH
		  : !strcmp(role, "counted") ? ROLE_COUNTED
					     : ROLE_WARM;
	a->idle_ms = (long)(atof(value(v, "idle")) * 60) * 1000;
	clock_follow(value(v, "time"));
	reseed(value(v, "seed"));
	sethostname("rdma-lab", 8);
	if (mount_all(value(v, "tree"), why) || switch_root(why))
		return -1;
	a->last_busy = now_ms();
	a->set_up = true;
	return 0;
}

/* ---- 控制 port --------------------------------------------------------- */

static void answer(struct agent *a, char type, const char *nonce,
		   const char *text)
{
	wire_str(&a->list, nonce);
	wire_str(&a->list, text);
	wire_put_list(&a->out, type, &a->list);
	wire_flush(a->control, &a->out);
	wire_clear(&a->out); /* 写不进就算了，host 会再问 */
}

static void on_request(struct agent *a)
{
	char why[WHY_SIZE] = "";
	char *v[MOST_STRINGS + 1];

	if (!wire_list(&a->in, v, MOST_STRINGS))
		return;
	switch (wire_type(&a->in)) {
	case W_PING:
		answer(a, a->failed ? W_REFUSED : W_DONE, v[0],
		       a->failed ? a->failed : "ready");
		break;
	case W_SETUP:
		if (a->failed || set_up(a, v + 1, why))
			answer(a, W_REFUSED, v[0], a->failed ? a->failed : why);
		else
			answer(a, W_DONE, v[0], "set up");
		break;
	case W_OFF:
		answer(a, W_DONE, v[0], "bye");
		power_off();
	}
}

static void read_control(struct agent *a)
{
	unsigned char bytes[4096];
	ssize_t n;

	while ((n = read(a->control, bytes, sizeof(bytes))) > 0) {
		for (size_t i = 0; i < (size_t)n;) {
			i += wire_take(&a->in, bytes + i, (size_t)n - i);
			if (a->in.whole)
				on_request(a);
		}
	}
}

/* ---- 会话 port --------------------------------------------------------- */

static int watch(struct agent *a, int fd, unsigned int id)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET, .data.u32 = id };

	return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* 有字节来了：交给一个新进程，自己不再看这个 port，直到它结束。 */
static void serve(struct agent *a, int i)
{
	pid_t pid;

	epoll_ctl(a->epoll, EPOLL_CTL_DEL, a->port[i], NULL);
	pid = fork();
	if (!pid)
		_exit(session_serve(a->port[i], a->role == ROLE_COUNTED));
	if (pid < 0) {
		fprintf(stderr, "agent: fork: %s\n", strerror(errno));
		watch(a, a->port[i], (unsigned int)i);
		return;
	}
	a->server[i] = pid;
	a->used[i] = true;
}

/* 1 号进程也收养所有孤儿：不 wait 就会堆满 zombie。 */
static void reap_all(struct agent *a)
{
	struct signalfd_siginfo drain;
	int status;
	pid_t pid;

	while (read(a->children, &drain, sizeof(drain)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < WIRE_SESSIONS; i++) {
			if (a->server[i] != pid)
				continue;
			a->server[i] = 0;
			a->last_busy = now_ms();
			watch(a, a->port[i], (unsigned int)i);
			if (a->role != ROLE_WARM && WIFEXITED(status) &&
			    WEXITSTATUS(status) == SESSION_HUNG_UP)
				power_off();
		}
	}
}

/*
 * epoll 等多久 (ms)。counted 模式里空闲的 CPU 会把虚拟时钟直接拨到下一个定时器：
 * 三十分钟的定时器会立刻到期，所以那里只能无限等。
 */
static int patience(const struct agent *a)
{
	long left;

	if (!a->set_up || a->role != ROLE_WARM || !a->idle_ms)
		return -1;
	for (int i = 0; i < WIRE_SESSIONS; i++)
		if (a->server[i])
			return -1;
	left = a->last_busy + a->idle_ms - now_ms();
	if (left <= 0)
		power_off();
	return (int)(left > 60000 ? 60000 : left);
}

static void on_event(struct agent *a, const struct epoll_event *e)
{
	unsigned int id = e->data.u32;

	if (id == WIRE_SESSIONS) {
		read_control(a);
	} else if (id > WIRE_SESSIONS) {
		reap_all(a);
	} else if (!a->server[id]) {
		/* 没有 host 的 port 也报 EPOLLIN：那只是 read 会得到 0。 */
		if (!(e->events & EPOLLHUP) && e->events & EPOLLIN)
			serve(a, (int)id);
		else if (e->events & EPOLLHUP && a->used[id] &&
			 a->role != ROLE_WARM)
			power_off();
	}
}

/* ---- 开始 -------------------------------------------------------------- */

static int open_port(int nr)
{
	char name[32];

	for (int device = 0; device < 8; device++) {
		int fd;

		snprintf(name, sizeof(name), "/dev/vport%dp%d", device, nr);
		fd = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	fprintf(stderr, "agent: no virtio port %d\n", nr);
	return -1;
}

static int open_all(struct agent *a)
{
	a->children = watch_children();
	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	a->control = open_port(1);
	if (a->children < 0 || a->epoll < 0 || a->control < 0 ||
	    watch(a, a->control, WIRE_SESSIONS) ||
	    watch(a, a->children, WIRE_SESSIONS + 1))
		return -1;
	for (int i = 0; i < WIRE_SESSIONS; i++) {
		a->port[i] = open_port(i + 2);
		if (a->port[i] < 0 || watch(a, a->port[i], (unsigned int)i))
			return -1;
	}
	return 0;
}

/* agent [TEXT]：TEXT 是 init.sh 的失败原因，会原样告诉 host。 */
int main(int argc, char **argv)
{
	struct agent a = { .failed = argc > 1 && *argv[1] ? argv[1] : NULL };
	struct epoll_event event;

	signal(SIGPIPE, SIG_IGN);
	oom_score("-1000");
	if (open_all(&a))
		power_off();
	for (;;)
		if (epoll_wait(a.epoll, &event, 1, patience(&a)) == 1)
			on_event(&a, &event);
}
