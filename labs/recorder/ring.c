// SPDX-License-Identifier: MIT
/*
 * ring.c —— 每个线程一个环：快路径上只有“填 64 字节、推进 head”
 *
 * 快路径是纳秒级的：ibv_post_send 与 ibv_poll_cq 不进内核。若在这里加锁、
 * write(2) 或者读一次慢的时钟，测出来的就是记录器而不是程序。所以每个线程写自己
 * 的环（单生产者单消费者，不需要锁），由后台线程统一变成文本。
 */
#include "ring.h"

#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct ring *ring_of_thread;
struct ring *_Atomic all_rings;

static pthread_key_t ring_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* 线程结束：环里可能还有没写出去的记录，所以只做个记号，不释放。*/
static void thread_ends(void *ring)
{
	ring_of_thread = NULL;
	atomic_store(&((struct ring *)ring)->orphan, true);
}

static void make_key(void)
{
	pthread_key_create(&ring_key, thread_ends);
}

/* 已经结束的线程留下的空环可以接着用：线程来来去去的程序不会越用越多内存。*/
static struct ring *adopt(void)
{
	struct ring *ring = atomic_load(&all_rings);
	bool orphan;

	for (; ring; ring = ring->next) {
		orphan = true;
		if (atomic_load(&ring->orphan) &&
		    atomic_load(&ring->tail) == atomic_load(&ring->head) &&
		    atomic_compare_exchange_strong(&ring->orphan, &orphan,
						   false))
			return ring;
	}
	return NULL;
}

static struct ring *map_ring(void)
{
	struct ring *ring = recorder_pages(sizeof(*ring));

	if (!ring)
		return NULL;
	ring->next = atomic_load(&all_rings);
	while (!atomic_compare_exchange_weak(&all_rings, &ring->next, ring))
		;
	return ring;
}

struct ring *ring_new(void)
{
	int saved_errno = errno;
	struct ring *ring;

	pthread_once(&key_once, make_key);
	ring = adopt();
	if (!ring)
		ring = map_ring();
	ring_of_thread = ring;
	if (ring) {
		ring->tid = (pid_t)syscall(SYS_gettid);
		pthread_setspecific(ring_key, ring);
	}
	errno = saved_errno;
	return ring;
}

/* fork 之后父进程的记录由父进程去写；子进程从空的开始。*/
void ring_after_fork(void)
{
	struct ring *ring = atomic_load(&all_rings);

	for (; ring; ring = ring->next) {
		atomic_store(&ring->tail, atomic_load(&ring->head));
		ring->tail_seen = atomic_load(&ring->head);
		atomic_store(&ring->polls, 0);
		atomic_store(&ring->sleeps, NULL);
		atomic_store(&ring->in, NULL);
		if (ring == ring_of_thread)
			ring->tid = (pid_t)syscall(SYS_gettid);
		else
			atomic_store(&ring->orphan, true);
	}
}
