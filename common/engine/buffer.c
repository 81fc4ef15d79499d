// SPDX-License-Identifier: MIT
/*
 * buffer.c —— READ 的落脚处：memfd，既注册给网卡，又能交给另一个进程
 *
 * 原版把 buffer 放在自己的堆里，把它的虚拟地址告诉 client。可虚拟地址只在本进程有意义，
 * client 拿着它什么也读不到。memfd 是一个没有名字的“内存文件”：engine 映射它、注册它，
 * 网卡把数据写进它的页；再把它的 fd 交给 client，client 映射到的就是同样的那些页，
 * 一个字节也不用拷贝。
 */
#include "buffer.h"

#include "base/call_failed.h"
#include "explain/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	 4096u
#define MEBIBYTE (1u << 20)
/* 留着备用的 buffer，总共不超过这么多字节，也不超过这么多个：每个占一个 fd。*/
#define KEEP_MOST (64u << 20)
#define KEEP_FDS  256
/* 每个 client 可以留一个给过它的，至多这么大。*/
#define OWN_MOST (256u << 10)

/* 小的取 2 的幂，好让它们彼此可以替换；大的要多少就是多少，凑整到页。*/
static size_t rounded(size_t size)
{
	size_t power = PAGE;

	if (size > MEBIBYTE)
		return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
	while (power < size)
		power *= 2;
	return power;
}

static struct engine_buffers *unused_of_size(struct engine_pool *pool,
					     size_t size)
{
	return &pool->unused[63 - __builtin_clzl(size)];
}

static void destroy(struct engine_buffer *b)
{
	/* 先 dereg 再 munmap：只要 MR 还在，网卡就可能往这些页里写。*/
	if (b->mr) {
		int err = ibv_dereg_mr(b->mr);

		if (err)
			verb_failed(err, explain_destroy(err),
				    "ibv_dereg_mr(%zu bytes)", b->size);
	}
	if (b->addr)
		munmap(b->addr, b->size);
	if (b->fd >= 0)
		close(b->fd);
	budget_return(b->pool->budget, b->size);
	free(b);
}

void engine_pool_trim(struct engine_pool *pool)
{
	for (size_t i = 0; i < 64; i++) {
		while (!LIST_EMPTY(&pool->unused[i])) {
			struct engine_buffer *b = LIST_FIRST(&pool->unused[i]);

			LIST_REMOVE(b, idle);
			destroy(b);
		}
	}
	pool->kept = pool->kept_fds = 0;
}

// region reclaim
/*
 * 闲着的也记在账上（它们一样 pin 着页），所以谁那里放不下了，就先请它们走：架上的，以及各
 * 个 client 留着的。
 */
static void reclaim(void *context)
{
	struct engine_pool *pool = context;

	engine_pool_trim(pool);
	while (!LIST_EMPTY(&pool->owned))
		engine_buffer_drop(LIST_FIRST(&pool->owned)->own);
}
// endregion reclaim

void engine_pool_init(struct engine_pool *pool, struct ibv_pd *pd,
		      struct budget *budget)
{
	*pool = (struct engine_pool){ .pd = pd, .budget = budget };
	budget->reclaim = reclaim;
	budget->context = pool;
}

// region memfd
static int make_memory(struct engine_buffer *b)
{
	/*
	 * F_SEAL_SHRINK：client 若能把文件截短，engine 再碰那些页就会收到 SIGBUS。
	 * 大小从此固定，所以 GROW 也封上。
	 */
	b->fd = memfd_create("rdma-engine-read",
			     MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b->fd < 0)
		return -errno;
	if (ftruncate(b->fd, (off_t)b->size) ||
	    fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	b->addr = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd,
		       0);
	if (b->addr == MAP_FAILED) {
		b->addr = NULL;
		return -errno;
	}
	return 0;
}
// endregion memfd

static int register_memory(struct engine_pool *pool, struct engine_buffer *b)
{
	/* 只有本地写：数据由我方的 READ 取来，不许任何对端凭 rkey 伸手进来。*/
	const int access = IBV_ACCESS_LOCAL_WRITE;

	b->mr = ibv_reg_mr(pool->pd, b->addr, b->size, access);
	if (b->mr)
		return 0;
	return verb_failed(errno,
			   explain_reg_mr_call(pool->pd, b->addr, b->size,
					       access, errno),
			   "ibv_reg_mr(%zu bytes of a session)", b->size);
}

static int make(struct engine_pool *pool, size_t size,
		struct engine_buffer **buffer)
{
	struct engine_buffer *b;
	int rc;

	if (!budget_take(pool->budget, size, ENGINE_SPARE(pool->budget)))
		return -EDQUOT;
	b = calloc(1, sizeof(*b));
	if (!b) {
		budget_return(pool->budget, size);
		return -ENOMEM;
	}
	b->pool = pool;
	b->fd = -1;
	b->size = size;
	rc = make_memory(b);
	if (!rc)
		rc = register_memory(pool, b);
	if (rc) {
		destroy(b);
		return rc;
	}
	*buffer = b;
	return 0;
}

/* 现成的：这个 client 自己的，或架子上的。*/
static struct engine_buffer *take_kept(struct engine_pool *pool, size_t size,
				       struct engine_buffer **own)
{
	struct engine_buffer *b = *own;

	if (b && b->size >= size) {
		LIST_REMOVE(b, idle);
		*own = NULL;
		return b;
	}
	LIST_FOREACH(b, unused_of_size(pool, size), idle)
		if (b->size >= size)
			break;
	if (b) {
		LIST_REMOVE(b, idle);
		pool->kept -= b->size;
		pool->kept_fds--;
	}
	return b;
}

int engine_pool_get(struct engine_pool *pool, size_t size,
		    struct engine_buffer **own, struct engine_buffer **buffer)
{
	struct engine_buffer *b;
	int rc = 0;

	/* 先比，再凑整：2^64 - 1 凑不了整。*/
	if (size > pool->budget->most)
		return -EDQUOT;
	size = rounded(size);
	b = take_kept(pool, size, own);
	if (!b)
		rc = make(pool, size, &b);
	if (rc)
		return rc;
	b->refs = 1;
	*buffer = b;
	return 0;
}

struct engine_buffer *engine_buffer_ref(struct engine_buffer *buffer)
{
	buffer->refs++;
	return buffer;
}

void engine_buffer_put(struct engine_pool *pool, struct engine_buffer *buffer,
		       struct engine_buffer **own)
{
	if (--buffer->refs)
		return;
	/*
	 * 给出去过的不再给别人：那个 client 的映射还指着这些页，下一位 client 的数据
	 * 写进来，它就全看见了。它自己的下一次读取，用它却没有什么不可以。
	 */
	if (buffer->given && own && !*own && buffer->size <= OWN_MOST) {
		*own = buffer;
		buffer->own = own;
		LIST_INSERT_HEAD(&pool->owned, buffer, idle);
		return;
	}
	if (buffer->given || pool->kept + buffer->size > KEEP_MOST ||
	    pool->kept_fds == KEEP_FDS) {
		destroy(buffer);
		return;
	}
	LIST_INSERT_HEAD(unused_of_size(pool, buffer->size), buffer, idle);
	pool->kept += buffer->size;
	pool->kept_fds++;
}

void engine_buffer_drop(struct engine_buffer **own)
{
	struct engine_buffer *b = *own;

	*own = NULL;
	if (!b)
		return;
	LIST_REMOVE(b, idle);
	destroy(b);
}

// region give
int engine_buffer_give(struct engine_buffer *buffer, size_t used)
{
	/* 尾部可能是上一个 session 的数据：复用而不清零，就是泄密。*/
	memset((char *)buffer->addr + used, 0, buffer->size - used);
	if (buffer->given)
		return buffer->fd;
	/*
	 * F_SEAL_WRITE 要求已没有可写的映射，而我们自己（和网卡）正映射着它，会得到
	 * EBUSY。F_SEAL_FUTURE_WRITE 只禁止“今后”的可写映射与 write()：已有的这一个
	 * 保留，交出去的 fd 只能读。F_SEAL_SEAL：谁也不能再改这些封条。
	 */
	if (fcntl(buffer->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return call_failed(errno, "fcntl(memfd, F_ADD_SEALS, "
					  "F_SEAL_FUTURE_WRITE)");
	buffer->given = true;
	return buffer->fd;
}
// endregion give
