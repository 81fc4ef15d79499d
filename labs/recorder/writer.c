// SPDX-License-Identifier: MIT
/*
 * writer.c —— 一把锁、一个后台线程
 *
 * 写就是写内存：记录在映射的文件里，程序被 kill -9、崩溃、exec，写好的都在。event 先写好，
 * 再推进 used：看见 used 的，就看得见整条。后台线程什么也不写，它只跟着记账，看程序是不是
 * 卡住了。
 */
#include "writer.h"

#include "file.h"
#include "objects.h"
#include "ring.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS	   100000000u /* 后台线程多久看一次 */
#define SECOND	   1000000000u
#define STACK_SIZE (512u * 1024)

struct anchor {
	uint64_t stamp, ns;
};

static struct {
	pthread_mutex_t lock;
	atomic_int owner;     /* tid，持 lock 者 */
	struct anchor base;   /* 一到两秒以前 */
	struct anchor middle; /* 至多一秒以前 */
	struct anchor now;    /* 这一次记账 */
	double rate;	      /* 从 base 到 now，一个 stamp 有几个 ns */
	struct block *block;  /* 放 event 的 */
	pid_t pid;
} writer = { .lock = PTHREAD_MUTEX_INITIALIZER };

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

uint64_t writer_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/*
 * ring_stamp() 是 TSC，clock 是纳秒：每次记账同时读两者，用一到两秒之间的斜率
 * 换算。不用开机时的频率：虚拟机会迁移，CPU 会休眠。
 */
static void take_anchor(void)
{
	uint64_t before = ring_stamp(), ticks, ns;

	writer.now.ns = writer_now();
	writer.now.stamp = before + (ring_stamp() - before) / 2;
	if (!writer.base.ns || writer.now.ns - writer.middle.ns >= SECOND) {
		writer.base = writer.base.ns ? writer.middle : writer.now;
		writer.middle = writer.now;
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

/* ---- event ---------------------------------------------------------------- */

/* 放得下 @size 的地方；没有了就数着。*/
static char *room(size_t size)
{
	struct recording_header *header = file_header();

	if (!header)
		return NULL;
	if (!writer.block || atomic_load(&writer.block->used) + size >
				     BLOCK_SIZE - sizeof(struct block))
		writer.block = ring_control_block();
	if (!writer.block) {
		atomic_fetch_add(&header->events_lost, 1);
		return NULL;
	}
	return (char *)(writer.block + 1) + atomic_load(&writer.block->used);
}

void writer_add(uint64_t stamp, uint64_t end, const struct line *line)
{
	size_t size = (sizeof(struct event_head) + line->used + 7) & ~(size_t)7;
	char *at = room(size);
	struct event_head head = { .size = (uint32_t)size,
				   .tid = (pid_t)syscall(SYS_gettid),
				   .stamp = stamp,
				   .end = end,
				   .at = ring_stamp(),
				   .ns = writer_now() };

	if (!at)
		return;
	head.wall = (int64_t)(clock_ns(CLOCK_REALTIME) - head.ns);
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), line->bytes, line->used);
	memset(at + sizeof(head) + line->used, 0,
	       size - sizeof(head) - line->used);
	atomic_fetch_add_explicit(&writer.block->used, size,
				  memory_order_release);
}

void writer_add_now(const struct line *line)
{
	uint64_t now = ring_stamp();

	writer_add(now, 0, line);
}

/* ---- 所有线程的记录，按时间先后记账 ---------------------------------------- */

static void book_one(struct ring *ring, const struct record *record)
{
	uint64_t ns = writer_time(record->stamp);
	struct object *owner = NULL;

	if (ns < ring->last_time)
		ns = ring->last_time;
	ring->last_time = ns;
	objects_book(record, ns, &owner);
	ring_advance(ring);
}

/* 记录最早的那个环；@next：在别的环里最早的之前都可以接着取。*/
static struct ring *earliest(uint64_t until, uint64_t *next)
{
	struct ring *ring = atomic_load(&all_rings), *first = NULL;
	uint64_t stamp = until;

	*next = until;
	for (; ring; ring = ring->next) {
		const struct record *record = ring_oldest(ring);

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
 * 先取时间，再读各环的 head，只记这个时间以前的：completion 在 post 之后，post 的
 * 记录在交给驱动之前就已发布，所以看得到 completion 就一定看得到它的 post，哪怕
 * 两者在不同线程的环里。
 */
static void book(void)
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
		while (first && (record = ring_oldest(first)) &&
		       record->stamp <= next)
			book_one(first, record);
	} while (first);
}

/* ---- 锁 ------------------------------------------------------------------- */

static void locked(void)
{
	atomic_store(&writer.owner, (int)syscall(SYS_gettid));
	book();
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

void writer_book(void)
{
	writer_lock();
	writer_unlock();
}

static bool is_mine(void)
{
	return atomic_load(&writer.owner) == (int)syscall(SYS_gettid);
}

bool writer_puts_off(int sig)
{
	if (!is_mine())
		return false;
	put_off = sig;
	return true;
}

/* 被信号打断的线程自己可能正拿着锁：那就等不到它了。*/
void writer_last_words(const struct line *last)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	for (int i = 0; i < 200 && !is_mine(); i++) {
		if (writer_try_lock()) {
			writer_add_now(last);
			writer_unlock();
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
	ring_hooks = (struct ring_hooks){ writer_book, writer_wake };
	writer.pid = getpid();
	has_thread = false;
	return file_claim(child);
}

bool writer_owns_process(void)
{
	return writer.pid == getpid();
}

void writer_before_fork(void)
{
	writer_lock();
	ring_before_fork();
}

void writer_after_fork(void)
{
	ring_fork_is_over();
	writer_unlock();
}

void writer_after_fork_child(void)
{
	writer.block = NULL;
	file_close();
	ring_after_fork();
	writer_after_fork();
}
