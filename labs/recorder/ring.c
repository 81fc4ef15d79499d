// SPDX-License-Identifier: MIT
/*
 * ring.c —— 每个线程写自己的块：快路径上只有“填 64 字节、推进 used”
 *
 * 快路径是纳秒级的：ibv_post_send 与 ibv_poll_cq 不进内核。若在这里加锁、
 * write(2) 或者读一次慢的时钟，测出来的就是记录器而不是程序。所以每个线程写自己
 * 的块（单生产者，不需要锁）；块就在映射的文件里，程序怎样结束都已经写好了。
 *
 * 一千个记录才换一次块：让文件再长一块，或者（到了 --last 的上限）取最旧的来用。没有替程序备块
 * 的线程：进程里多一个线程，内核与 glibc 就走更慢的路，每次系统调用都贵一点。
 */
#include "ring.h"

#include "file.h"
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	struct block *oldest, *newest; /* 写满了的，连成一串 */
	uint64_t number;	       /* 取走过的块 */
	uint32_t rings;		       /* 文件里有几块是 ring 的 */
	uint32_t control;	       /* 几块是 event 的 */
	struct block *threads;	       /* 放 thread_slot 的最后一块 */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* 没有地方记的，都写在这里 */
static struct thread_slot no_slot;
static union {
	struct block head;
	char bytes[BLOCK_SIZE];
} no_block;

__thread struct ring ring_of_thread;

static pthread_key_t ring_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* ---- 块 ------------------------------------------------------------------- */

/* 最旧的那块。*/
static struct block *take_oldest(void)
{
	struct block *block = pool.oldest;

	if (!block)
		return NULL;
	pool.oldest = (struct block *)(uintptr_t)block->next;
	atomic_fetch_add(&file_header()->records_lost,
			 atomic_load(&block->used));
	atomic_store(&block->kind, BLOCK_FREE);
	return block;
}

static void start_block(struct block *block, enum block_kind kind, pid_t tid)
{
	atomic_store(&block->used, 0);
	block->tid = tid;
	block->number = ++pool.number;
	atomic_store_explicit(&block->kind, kind, memory_order_release);
}

/* 写满了的排进队里：从此可以被取走。*/
static void retire(struct block *block)
{
	if (block == &no_block.head)
		return;
	block->next = 0;
	if (pool.oldest)
		pool.newest->next = (uintptr_t)block;
	else
		pool.oldest = block;
	pool.newest = block;
}

static struct block *grow(void)
{
	struct block *block = file_grow();

	pool.rings += block != NULL;
	return block;
}

/* 每个线程总要有一块，哪怕超过 --last。*/
static struct block *next_block(void)
{
	bool more = (uint64_t)(pool.rings + 1) * BLOCK_SIZE <= recorder.last;
	struct block *block = more ? grow() : take_oldest();

	if (!block)
		block = more ? take_oldest() : grow();
	return block;
}

/* ---- 线程此刻在做什么 ------------------------------------------------------ */

/* 结束了的线程留下的；没有就再来一块。*/
static struct thread_slot *free_slot(void)
{
	struct thread_slot *slots;

	if (pool.threads) {
		slots = (struct thread_slot *)(pool.threads + 1);
		for (size_t i = 0; i < BLOCK_SLOTS; i++)
			if (!atomic_load(&slots[i].tid))
				return &slots[i];
	}
	pool.threads = file_grow();
	if (!pool.threads)
		return NULL;
	start_block(pool.threads, BLOCK_THREADS, 0);
	return (struct thread_slot *)(pool.threads + 1);
}

static void take_slot(struct ring *ring)
{
	struct thread_slot *slot;

	pthread_mutex_lock(&pool.lock);
	slot = file_header() ? free_slot() : NULL;
	if (slot) {
		ring->slot = slot;
		atomic_store(&slot->tid, ring->tid);
	}
	pthread_mutex_unlock(&pool.lock);
}

static struct thread_slot *slot_of(struct ring *ring)
{
	if (ring->slot == &no_slot)
		take_slot(ring);
	return ring->slot;
}

void ring_sleeps(struct ring *ring, const void *channel)
{
	atomic_store_explicit(&slot_of(ring)->sleeps, (uintptr_t)channel,
			      memory_order_relaxed);
}

void ring_opens(struct ring *ring, uint32_t pair, bool begins)
{
	struct thread_slot *slot = slot_of(ring);
	uint32_t open = atomic_load_explicit(&slot->open, memory_order_relaxed);

	atomic_store_explicit(&slot->open, begins ? open | pair : open & ~pair,
			      memory_order_relaxed);
}

void ring_enters(struct ring *ring, const char *name)
{
	ring->in = name;
	strncpy(slot_of(ring)->in, name ? name : "",
		sizeof(ring->slot->in) - 1);
}

void ring_next_block(struct ring *ring)
{
	int saved_errno = errno;
	struct block *block = NULL;

	slot_of(ring);
	pthread_mutex_lock(&pool.lock);
	if (file_header())
		block = next_block();
	if (block)
		start_block(block, BLOCK_RING, ring->tid);
	retire(ring->block);
	ring->block = block ? block : &no_block.head;
	ring->used = 0;
	pthread_mutex_unlock(&pool.lock);
	errno = saved_errno;
}

struct block *ring_control_block(void)
{
	struct block *block = NULL;

	pthread_mutex_lock(&pool.lock);
	if (pool.control < CONTROL_BLOCKS)
		block = file_grow();
	if (block) {
		pool.control++;
		start_block(block, BLOCK_CONTROL, 0);
	}
	pthread_mutex_unlock(&pool.lock);
	return block;
}

/* ---- 线程 ----------------------------------------------------------------- */

/* 线程结束：块排进队里，位置留给以后的线程：来来去去的线程不会越用越多。*/
static void thread_ends(void *ended)
{
	struct ring *ring = ended;

	pthread_mutex_lock(&pool.lock);
	retire(ring->block);
	pthread_mutex_unlock(&pool.lock);
	ring->slot->in[0] = '\0';
	atomic_store(&ring->slot->tid, 0);
	ring->tid = 0;
}

static void make_key(void)
{
	pthread_key_create(&ring_key, thread_ends);
}

void ring_begin(void)
{
	int saved_errno = errno;

	pthread_once(&key_once, make_key);
	ring_of_thread = (struct ring){ .block = &no_block.head,
					.used = BLOCK_RECORDS,
					.slot = &no_slot,
					.tid = (pid_t)syscall(SYS_gettid) };
	pthread_setspecific(ring_key, &ring_of_thread);
	errno = saved_errno;
}

/* fork 的那一刻不能有别的线程正换着块：子进程里再没有人放开它的锁。*/
void ring_before_fork(void)
{
	pthread_mutex_lock(&pool.lock);
}

void ring_fork_is_over(void)
{
	pthread_mutex_unlock(&pool.lock);
}

/* fork 之后，块都是父进程的；子进程从空的开始，写自己的文件。*/
void ring_after_fork(void)
{
	ring_of_thread.tid = 0;
	pool.oldest = NULL;
	pool.rings = pool.control = 0;
	pool.threads = NULL;
}
