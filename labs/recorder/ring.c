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
	struct block **full; /* 写满了的，从旧到新，环形 */
	uint64_t first, last;
	uint64_t number;       /* 取走过的块 */
	uint32_t rings;	       /* 文件里有几块是 ring 的 */
	uint32_t control;      /* 几块是 event 的 */
	struct block *threads; /* 放 thread_slot 的最后一块 */
	uint32_t slots;	       /* 其中用了几个 */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

__thread struct ring *ring_of_thread;
struct ring *_Atomic all_rings;

static struct thread_slot no_slot; /* 没有地方记的，都写在这里 */

static pthread_key_t ring_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* ---- 块 ------------------------------------------------------------------- */

static bool have_queue(void)
{
	const size_t most = file_most_blocks();

	if (!pool.full && most)
		pool.full = recorder_pages(most * sizeof(struct block *));
	return pool.full != NULL;
}

static struct block *grow(void)
{
	struct block *block = file_grow();

	if (block)
		pool.rings++;
	return block;
}

static bool may_grow(void)
{
	return (uint64_t)(pool.rings + 1) * BLOCK_SIZE <= recorder.last;
}

/* 最旧的那块。*/
static struct block *take_oldest(void)
{
	struct block *block;

	if (pool.first == pool.last)
		return NULL;
	block = pool.full[pool.first % file_most_blocks()];
	pool.first++;
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
static void retire(struct ring *ring)
{
	if (ring->block)
		pool.full[pool.last++ % file_most_blocks()] = ring->block;
}

static struct block *next_block(void)
{
	struct block *block = may_grow() ? grow() : NULL;

	return block ? block : take_oldest();
}

/* ---- 线程此刻在做什么 ------------------------------------------------------ */

static bool next_slots(void)
{
	if (pool.threads && pool.slots < BLOCK_SLOTS)
		return true;
	pool.threads = file_grow();
	pool.slots = 0;
	if (pool.threads)
		start_block(pool.threads, BLOCK_THREADS, 0);
	return pool.threads != NULL;
}

static void take_slot(struct ring *ring)
{
	pthread_mutex_lock(&pool.lock);
	if (file_header() && next_slots()) {
		ring->slot =
			(struct thread_slot *)(pool.threads + 1) + pool.slots++;
		atomic_store(&ring->slot->tid, ring->tid);
	}
	pthread_mutex_unlock(&pool.lock);
}

void ring_enters(struct ring *ring, const char *name)
{
	if (ring->slot == &no_slot)
		take_slot(ring);
	ring->in = name;
	strncpy(ring->slot->in, name ? name : "", sizeof(ring->slot->in) - 1);
}

/* 每个线程总要有一块，哪怕超过 --last。*/
bool ring_next_block(struct ring *ring)
{
	int saved_errno = errno;
	struct block *block = NULL;

	if (ring->slot == &no_slot)
		take_slot(ring);
	pthread_mutex_lock(&pool.lock);
	if (file_header() && have_queue()) {
		block = next_block();
		if (!block)
			block = grow();
	}
	if (block) {
		start_block(block, BLOCK_RING, ring->tid);
		retire(ring);
		ring->block = block;
		ring->used = 0;
	}
	pthread_mutex_unlock(&pool.lock);
	errno = saved_errno;
	return block;
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

/* 线程结束：块留给以后的线程接着用，所以只做个记号，不释放。*/
static void thread_ends(void *ended)
{
	struct ring *ring = ended;

	ring_of_thread = NULL;
	if (ring->slot != &no_slot) {
		ring->slot->in[0] = '\0';
		atomic_store(&ring->slot->tid, 0);
	}
	atomic_store(&ring->orphan, true);
}

static void make_key(void)
{
	pthread_key_create(&ring_key, thread_ends);
}

/* 已经结束的线程留下的可以接着用：线程来来去去的程序不会越用越多内存。*/
static struct ring *adopt(void)
{
	struct ring *ring = atomic_load(&all_rings);
	bool orphan;

	for (; ring; ring = ring->next) {
		orphan = true;
		if (atomic_load(&ring->orphan) &&
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
	ring->slot = &no_slot;
	ring->next = atomic_load(&all_rings);
	while (!atomic_compare_exchange_weak(&all_rings, &ring->next, ring))
		;
	return ring;
}

/* 块上写着线程号：换了线程，就从新的一块写起。*/
static void set_thread(struct ring *ring)
{
	ring->tid = (pid_t)syscall(SYS_gettid);
	ring->used = BLOCK_RECORDS;
	if (ring->slot != &no_slot)
		atomic_store(&ring->slot->tid, ring->tid);
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
		set_thread(ring);
		pthread_setspecific(ring_key, ring);
	}
	errno = saved_errno;
	return ring;
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
	struct ring *ring = atomic_load(&all_rings);

	for (; ring; ring = ring->next) {
		ring->block = NULL;
		ring->slot = &no_slot;
		ring->in = NULL;
		if (ring == ring_of_thread)
			set_thread(ring);
		else
			atomic_store(&ring->orphan, true);
	}
	pool.first = pool.last = 0;
	pool.rings = pool.control = 0;
	pool.threads = NULL;
}
