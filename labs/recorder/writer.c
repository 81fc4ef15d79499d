// SPDX-License-Identifier: MIT
/*
 * writer.c —— 一个文件、一把锁、一个后台线程
 *
 * 程序被 kill -9 时谁也来不及收尾，所以记录不能攒到退出时才写：失败的调用立即写出，
 * 控制路径的每一行叫醒后台线程去写，快路径的记录由它每 0.1 s 写一次。丢的至多是最后
 * 这一点。
 */
#include "writer.h"

#include "file.h"
#include "format.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS	   100000000u /* 后台线程多久写一次 */
#define SECOND	   1000000000u
#define STACK_SIZE (512u * 1024)

struct anchor {
	uint64_t stamp, ns;
};

static struct {
	pthread_mutex_t lock;
	pthread_mutex_t io;   /* 正在写文件；先 lock 后 io */
	atomic_int owner;     /* tid，持 lock 者 */
	struct anchor base;   /* 一到两秒以前 */
	struct anchor middle; /* 至多一秒以前 */
	struct anchor now;    /* 这一次 drain */
	double rate;	      /* 从 base 到 now，一个 stamp 有几个 ns */
	int64_t wall;	      /* CLOCK_REALTIME - CLOCK_MONOTONIC，ns */
	size_t used;
	char *out; /* 两个缓冲之一：一个在填，一个在写 */
	char buffers[2][64 * 1024];
	struct line line; /* drain 用；放在栈上对 signal handler 太大 */
} writer = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.io = PTHREAD_MUTEX_INITIALIZER,
	.out = writer.buffers[0],
};

/* 等放开 lock 再来的信号；各个线程自己的：后台线程把信号都挡在外面。*/
static __thread volatile sig_atomic_t put_off
	__attribute__((tls_model("initial-exec")));

static atomic_uint wanted; /* futex：有人叫后台线程 */
static bool has_thread;

/* ---- 时间 ----------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/*
 * ring_stamp() 是 TSC，clock 是纳秒：每次 drain 同时读两者，用一到两秒之间的斜率
 * 换算。不用开机时的频率：虚拟机会迁移，CPU 会休眠。
 */
static void take_anchor(void)
{
	uint64_t before = ring_stamp(), ticks, ns;

	writer.now.ns = clock_ns(CLOCK_MONOTONIC);
	writer.now.stamp = before + (ring_stamp() - before) / 2;
	if (!writer.base.ns || writer.now.ns - writer.middle.ns >= SECOND) {
		writer.base = writer.base.ns ? writer.middle : writer.now;
		writer.middle = writer.now;
		writer.wall = (int64_t)(clock_ns(CLOCK_REALTIME) -
					clock_ns(CLOCK_MONOTONIC));
	}
	ticks = writer.now.stamp - writer.base.stamp;
	ns = writer.now.ns - writer.base.ns;
	writer.rate = ticks && ns ? (double)ns / (double)ticks : 1.0;
}

uint64_t writer_time(uint64_t stamp)
{
	int64_t back = (int64_t)(writer.now.stamp - stamp);

	if (back <= 0)
		return writer.now.ns;
	return writer.now.ns - (uint64_t)((double)back * writer.rate);
}

uint64_t writer_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* ---- 行 ------------------------------------------------------------------- */

/* 持 lock 写完为止：缓冲满了，或者进程要结束了。*/
static void write_out(void)
{
	pthread_mutex_lock(&writer.io);
	file_write(writer.out, writer.used);
	writer.used = 0;
	pthread_mutex_unlock(&writer.io);
}

/*
 * 写文件可能很慢（网络文件系统、虚拟机里的 9p 要几毫秒）：换一个缓冲接着填，放开 lock
 * 再写。只有后台线程这样做，程序自己的线程不等磁盘。
 */
void writer_write_behind(void)
{
	const char *full = writer.out;
	size_t len = writer.used;

	pthread_mutex_lock(&writer.io);
	writer.out = writer.buffers[full == writer.buffers[0]];
	writer.used = 0;
	writer_unlock();
	file_write(full, len);
	pthread_mutex_unlock(&writer.io);
}

static char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

/* ,"pid":1,"tid":2, 几乎每一行都和上一行相同。*/
static struct {
	pid_t pid, tid;
	size_t len;
	char text[64];
} who;

static void set_who(pid_t tid)
{
	char *out = put(who.text, LINE_KEY("pid"));

	out += put_decimal(out, (uint64_t)who.pid);
	out = put(out, LINE_KEY("tid"));
	out += put_decimal(out, (uint64_t)tid);
	*out++ = ',';
	who.len = (size_t)(out - who.text);
	who.tid = tid;
}

/* 相邻两行的时间只差末尾几位：前面的数字留着，百万个单位才换一次。*/
#define LOW_DIGITS 1000000u

struct front {
	uint64_t base; /* LOW_DIGITS 的倍数 */
	size_t len;
	char text[24];
};

static char *put_time(char *out, struct front *front, uint64_t value)
{
	uint32_t low, high;

	if (value - front->base >= LOW_DIGITS || !front->len) {
		front->base = value - value % LOW_DIGITS;
		front->len = put_decimal(front->text, front->base / LOW_DIGITS);
	}
	low = (uint32_t)(value - front->base);
	high = low / 10000;
	low -= high * 10000;
	memcpy(out, front->text, sizeof(front->text)); /* 定长：不是一次调用 */
	out += front->len;
	memcpy(out, two_digits + high * 2, 2);
	high = low / 100;
	memcpy(out + 2, two_digits + high * 2, 2);
	memcpy(out + 4, two_digits + (low - high * 100) * 2, 2);
	return out + 6;
}

static void add_line(uint64_t ns, pid_t tid, const struct line *line)
{
	static struct front mono, wall;
	uint64_t us = (uint64_t)((int64_t)ns + writer.wall) / 1000;
	char *out;

	if (writer.used + line->used + 160 > sizeof(writer.buffers[0]))
		write_out();
	if (who.tid != tid)
		set_who(tid);
	out = writer.out + writer.used;
	out = put(out, "{\"t\":", 5);
	out = put_time(out, &mono, ns);
	out = put(out, LINE_KEY("wall"));
	out = put_time(out, &wall, us);
	memcpy(out, who.text, sizeof(who.text));
	out = put(out + who.len, line->text, line->used);
	out = put(out, "}\n", 2);
	writer.used = (size_t)(out - writer.out);
}

void writer_add(uint64_t stamp, const struct line *line)
{
	add_line(writer_time(stamp), (pid_t)syscall(SYS_gettid), line);
}

/* ---- 把所有环合成一个时间序 ----------------------------------------------- */

static const struct record *next_of(struct ring *ring)
{
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	return tail == ring->limit ? NULL : &ring->records[tail % RING_RECORDS];
}

static void drain_one(struct ring *ring, const struct record *record)
{
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	uint64_t ns = writer_time(record->stamp);

	if (ns < ring->last_time)
		ns = ring->last_time;
	ring->last_time = ns;
	format_record(&writer.line, record, ns);
	add_line(ns, ring->tid, &writer.line);
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
}

/* 记录最早的那个环；@next：在别的环里最早的之前都可以接着取。*/
static struct ring *earliest(uint64_t until, uint64_t *next)
{
	struct ring *ring = atomic_load(&all_rings), *first = NULL;
	uint64_t stamp = until;

	*next = until;
	for (; ring; ring = ring->next) {
		const struct record *record = next_of(ring);

		if (!record || record->stamp > stamp) {
			if (record && record->stamp < *next)
				*next = record->stamp;
			continue;
		}
		if (first)
			*next = stamp;
		stamp = record->stamp;
		first = ring;
	}
	return first;
}

/*
 * 先取时间，再读各环的 head，只写这个时间以前的：completion 在 post 之后，post 的
 * 记录在交给驱动之前就已发布，所以看得到 completion 就一定看得到它的 post，哪怕
 * 两者在不同线程的环里。
 */
static void drain(void)
{
	const struct record *record;
	struct ring *ring, *first;
	uint64_t until, next;

	take_anchor();
	until = ring_stamp();
	for (ring = atomic_load(&all_rings); ring; ring = ring->next)
		ring->limit =
			atomic_load_explicit(&ring->head, memory_order_acquire);
	do {
		first = earliest(until, &next);
		while (first && (record = next_of(first)) &&
		       record->stamp <= next)
			drain_one(first, record);
	} while (first);
}

/* ---- 锁 ------------------------------------------------------------------- */

static void locked(void)
{
	atomic_store(&writer.owner, (int)syscall(SYS_gettid));
	drain();
}

void writer_lock(void)
{
	pthread_mutex_lock(&writer.lock);
	locked();
}

bool writer_try_lock(void)
{
	if (pthread_mutex_trylock(&writer.lock))
		return false;
	locked();
	return true;
}

void writer_commit(bool now)
{
	if (now || !has_thread)
		write_out();
	writer_unlock();
	if (!now)
		writer_wake();
}

void writer_unlock(void)
{
	atomic_store(&writer.owner, 0);
	pthread_mutex_unlock(&writer.lock);
	if (put_off) {
		int sig = put_off;

		put_off = 0;
		raise(sig);
	}
}

bool writer_puts_off(int sig)
{
	if (atomic_load(&writer.owner) != (int)syscall(SYS_gettid))
		return false;
	put_off = sig;
	return true;
}

void writer_flush(void)
{
	writer_lock();
	writer_commit(true);
}

/*
 * 环满了就自己动手写出去，而不是丢记录：漏掉一个 completion 的记录比慢一点的
 * 程序更没用。
 */
void writer_make_room(struct ring *ring)
{
	int saved_errno = errno;

	for (;;) {
		ring->tail_seen = atomic_load(&ring->tail);
		if (atomic_load(&ring->head) - ring->tail_seen < RING_RECORDS)
			break;
		writer_flush();
		sched_yield();
	}
	errno = saved_errno;
}

/* 被信号打断的线程自己可能正拿着锁：那就等不到它了。*/
void writer_last_words(const struct line *last)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	if (atomic_load(&writer.owner) == (int)syscall(SYS_gettid))
		return;
	for (int i = 0; i < 200; i++) {
		if (writer_try_lock()) {
			if (last)
				writer_add(ring_stamp(), last);
			writer_commit(true);
			return;
		}
		nanosleep(&nap, NULL);
	}
}

/* ---- 后台线程 ------------------------------------------------------------- */

bool writer_has_thread(void)
{
	return has_thread;
}

void writer_wake(void)
{
	if (!has_thread)
		return;
	atomic_fetch_add(&wanted, 1);
	syscall(SYS_futex, &wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void writer_wait(const atomic_bool *urgent)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };
	unsigned int seen = atomic_load(&wanted);

	if (!atomic_load(urgent))
		syscall(SYS_futex, &wanted, FUTEX_WAIT_PRIVATE, seen, &tick,
			NULL, 0);
}

/* 信号留给程序自己的线程：它们按程序的期望被送达。*/
void writer_start_thread(void *(*body)(void *))
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	has_thread = !pthread_create(&thread, &attr, body, NULL);
	if (has_thread)
		pthread_setname_np(thread, "qptrace");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

/* ---- 进程 ----------------------------------------------------------------- */

int writer_open(bool child)
{
	who.pid = getpid();
	who.tid = 0;
	has_thread = false;
	return file_claim(child);
}

bool writer_owns_process(void)
{
	return who.pid == getpid();
}

void writer_before_fork(void)
{
	writer_lock();
	pthread_mutex_lock(&writer.io);
}

void writer_after_fork(void)
{
	pthread_mutex_unlock(&writer.io);
	writer_unlock();
}

void writer_after_fork_child(void)
{
	file_close();
	writer.used = 0;
	ring_after_fork();
	writer_after_fork();
}
