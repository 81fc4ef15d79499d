// SPDX-License-Identifier: MIT
/*
 * ring.c —— 每个线程写自己的块：快路径上只有“填 64 字节、推进 used”
 *
 * 快路径是纳秒级的：ibv_post_send 与 ibv_poll_cq 不进内核。若在这里加锁、
 * write(2) 或者读一次慢的时钟，测出来的就是记录器而不是程序。所以每个线程写自己
 * 的块（单生产者，不需要锁）；块就在映射的文件里，程序怎样结束都已经写好了。
 *
 * 一千个记录才换一次块：后台线程事先备好的，或者让文件再长一块，或者（到了 --last 的上限）
 * 取最旧的来用。记账（objects.h）的人跟在后面；还没有记过账的块不能取走。
 */
#include "ring.h"

#include "file.h"
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPARES 2

/* 一个块的私事，不必让读文件的人知道。*/
struct note {
	struct block *_Atomic next; /* 同一个线程的下一块 */
	bool booked;		    /* 里面的都记过账了 */
};

static struct {
	pthread_mutex_t lock;
	struct block *spare[SPARES];
	struct block **full; /* 写满了的，从旧到新，环形 */
	uint64_t first, last;
	uint64_t number;  /* 取走过的块 */
	uint32_t rings;	  /* 文件里有几块是 ring 的 */
	uint32_t control; /* 几块是 event 的 */
	struct note *notes;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

__thread struct ring *ring_of_thread;
struct ring *_Atomic all_rings;
struct ring_hooks ring_hooks;

static pthread_key_t ring_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* ---- 块 ------------------------------------------------------------------- */

static struct note *note_of(const struct block *block)
{
	return &pool.notes[file_index(block)];
}

static bool have_notes(void)
{
	const size_t most = file_most_blocks();

	if (!pool.notes && most)
		pool.notes = recorder_pages(most * sizeof(*pool.notes));
	if (!pool.full && most)
		pool.full = recorder_pages(most * sizeof(struct block *));
	return pool.notes && pool.full;
}

/* 持 pool.lock。*/
static struct block *take_spare(void)
{
	for (size_t i = 0; i < SPARES; i++) {
		struct block *block = pool.spare[i];

		if (block) {
			pool.spare[i] = NULL;
			return block;
		}
	}
	return NULL;
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

/* 最旧的那块，如果已经记过账。*/
static struct block *take_oldest(void)
{
	struct block *block;

	if (pool.first == pool.last)
		return NULL;
	block = pool.full[pool.first % file_most_blocks()];
	if (!note_of(block)->booked)
		return NULL;
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

/* 写满了的排进队里：从此可以被取走，只要记过账。*/
static void retire(struct ring *ring, struct block *next)
{
	if (!ring->block)
		return;
	atomic_store(&note_of(ring->block)->next, next);
	pool.full[pool.last++ % file_most_blocks()] = ring->block;
}

static struct block *next_block(void)
{
	struct block *block = take_spare();

	if (!block && may_grow())
		block = grow();
	if (!block)
		block = take_oldest();
	return block;
}

/*
 * 每个线程总要有一块，哪怕超过 --last。最旧的还没有记账，就自己动手记：漏掉一个
 * completion 的账比慢一点的程序更没用。
 */
bool ring_next_block(struct ring *ring)
{
	int saved_errno = errno;
	struct block *block = NULL;

	for (int i = 0; i < 2 && !block && file_header(); i++) {
		pthread_mutex_lock(&pool.lock);
		if (have_notes()) {
			block = next_block();
			if (!block && (i || pool.first == pool.last))
				block = grow();
		}
		if (block) {
			start_block(block, BLOCK_RING, ring->tid);
			note_of(block)->booked = false;
			atomic_store(&note_of(block)->next, NULL);
			retire(ring, block);
		}
		pthread_mutex_unlock(&pool.lock);
		if (!block)
			ring_hooks.book();
	}
	if (block) {
		if (!ring->booking)
			ring->booking = block;
		ring->block = block;
		ring->used = 0;
		ring_hooks.wake();
	}
	errno = saved_errno;
	return block;
}

void ring_prepare(void)
{
	pthread_mutex_lock(&pool.lock);
	for (size_t i = 0; i < SPARES; i++) {
		if (pool.spare[i] || !may_grow() || !all_rings)
			continue;
		pool.spare[i] = grow();
		/* 先碰一遍：缺页归后台线程，不归程序。*/
		if (pool.spare[i])
			memset(pool.spare[i], 0, BLOCK_SIZE);
	}
	pthread_mutex_unlock(&pool.lock);
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

/* ---- 记账的人 -------------------------------------------------------------- */

/* 有了下一块，这一块的 used 就不再变：先看前者，再看后者。*/
const struct record *ring_oldest(struct ring *ring)
{
	struct block *block = ring->booking, *next;

	if (!block)
		return NULL;
	next = atomic_load(&note_of(block)->next);
	if (next && ring->booked == atomic_load(&block->used)) {
		note_of(block)->booked = true;
		ring->booking = next;
		ring->booked = 0;
	}
	if (ring->tail == ring->limit)
		return NULL;
	return (const struct record *)(ring->booking + 1) + ring->booked;
}

void ring_advance(struct ring *ring)
{
	ring->tail++;
	ring->booked++;
}

/* ---- 线程 ----------------------------------------------------------------- */

/* 线程结束：环里可能还有没记账的，所以只做个记号，不释放。*/
static void thread_ends(void *ring)
{
	ring_of_thread = NULL;
	atomic_store(&((struct ring *)ring)->orphan, true);
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
		ring->block = ring->booking = NULL;
		ring->tail = atomic_load(&ring->head);
		atomic_store(&ring->polls, 0);
		atomic_store(&ring->sleeps, NULL);
		atomic_store(&ring->in, NULL);
		if (ring == ring_of_thread)
			set_thread(ring);
		else
			atomic_store(&ring->orphan, true);
	}
	memset(pool.spare, 0, sizeof(pool.spare));
	pool.first = pool.last = 0;
	pool.rings = pool.control = 0;
}
