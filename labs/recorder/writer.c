// SPDX-License-Identifier: MIT
/*
 * writer.c —— 一把锁；叫醒旁边看着的人
 *
 * 写就是写内存：记录在映射的文件里，程序被 kill -9、崩溃、exec，写好的都在。event 先写好，
 * 再推进 used：看见 used 的，就看得见整条。出了什么事、为什么，由旁边的进程
 * （qptrace-report --watch）判断：它睡在文件头的一个字上，出了事才叫它。
 */
#include "writer.h"

#include "file.h"
#include "recorder.h"
#include "ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000u

static struct {
	pthread_mutex_t lock;
	struct block *block; /* 放 event 的 */
	pid_t pid;
} writer = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* 各个线程自己的：正拿着 lock，或正要拿；等放开 lock 再来的信号。*/
static __thread volatile sig_atomic_t holding
	__attribute__((tls_model("initial-exec")));
static __thread volatile sig_atomic_t put_off
	__attribute__((tls_model("initial-exec")));

#define WAIT_MS 3000 /* 结束时，等判断最多多久 */

/* ---- 时间 ----------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- event ---------------------------------------------------------------- */

/* 看着的人写的东西，放在它自己的一块里：两个写的人，各写各的。*/
static void give_watcher_a_block(struct recording_header *header)
{
	struct block *block = ring_control_block();

	if (block)
		header->watchers_block = (uint32_t)file_index(block) + 1;
}

/* 放得下 @size 的地方；没有了就数着。*/
static char *room(size_t size)
{
	struct recording_header *header = file_header();

	if (!header)
		return NULL;
	if (!writer.block || atomic_load(&writer.block->used) + size >
				     BLOCK_SIZE - sizeof(struct block)) {
		writer.block = ring_control_block();
		if (recorder.watcher > 0 && !header->watchers_block)
			give_watcher_a_block(header);
	}
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
				   .ns = clock_ns(CLOCK_MONOTONIC) };

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
	writer_add(ring_stamp(), 0, line);
}

void writer_put(const struct line *line)
{
	writer_lock();
	writer_add_now(line);
	writer_unlock();
}

/* ---- 锁 ------------------------------------------------------------------- */

void writer_lock(void)
{
	holding = 1;
	pthread_mutex_lock(&writer.lock);
}

void writer_unlock(void)
{
	int sig;

	pthread_mutex_unlock(&writer.lock);
	holding = 0;
	sig = put_off;
	put_off = 0;
	if (sig)
		raise(sig);
}

bool writer_puts_off(int sig)
{
	if (holding)
		put_off = sig;
	return holding;
}

/* 被信号打断的线程自己可能正拿着锁：那就等不到它了。*/
void writer_last_words(const struct line *last)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	for (int i = 0; i < 200 && !holding; i++) {
		if (!pthread_mutex_trylock(&writer.lock)) {
			holding = 1;
			writer_add_now(last);
			writer_unlock();
			return;
		}
		nanosleep(&nap, NULL);
	}
}

/* ---- 旁边看着的人 ----------------------------------------------------------- */

/* 结束之前等它说完：程序的调用者看到的，先是原因，后是提示符。它死了，就不等。*/
static void wait_for(struct recording_header *header, uint32_t ticket)
{
	const struct timespec nap = { .tv_nsec = 50000000 };

	for (int i = 0; i < WAIT_MS / 50; i++) {
		uint32_t judged = atomic_load(&header->judged);

		if ((int32_t)(judged - ticket) >= 0 ||
		    (kill(recorder.watcher, 0) && errno == ESRCH))
			return;
		syscall(SYS_futex, &header->judged, FUTEX_WAIT, judged, &nap,
			NULL, 0);
	}
}

void writer_tell(enum told what, bool badly)
{
	struct recording_header *header = file_header();
	int saved_errno = errno;
	uint32_t ticket;

	if (!header || recorder.watcher <= 0)
		return;
	badly = badly || atomic_load(&header->failures);
	if (what == TOLD_OVER)
		atomic_store(&header->over, 1 + badly);
	else
		atomic_fetch_add(what == TOLD_FAILURE ? &header->failures
						      : &header->asked,
				 1);
	ticket = atomic_fetch_add(&header->told, 1) + 1;
	file_wake();
	if (what == TOLD_OVER && badly)
		wait_for(header, ticket);
	errno = saved_errno;
}

/* ---- 进程 ----------------------------------------------------------------- */

int writer_open(bool child)
{
	writer.pid = getpid();
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
