// SPDX-License-Identifier: MIT
/*
 * remote_read.c —— 一个 RC QP 上同时进行的许多 RDMA READ
 *
 * READ 是 one-sided 的：我方报出“对端的地址、rkey、长度、放到我这里的哪里”，对端网卡
 * 自己把数据送来，对端的 CPU 毫不知情，那边也不会有 completion。
 *
 * 要跑满带宽，就不能等一个 READ 回来才发下一个：一个来回几十微秒，线路大半空着。所以
 * 同时有几十个在途。原版在途只有一个，取到一个 completion 就当是自己的，从不看 wr_id；
 * 两个请求一起来，就会拿着别人的“完成”去用还没到的数据。
 */
#include "remote_read.h"

#include "base/deadline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct rdma_config remote_reader_config(const char *device, int gid_index,
					uint32_t depth)
{
	return (struct rdma_config){
		.device_name = device,
		.gid_index = gid_index,
		.msg_size =
			64, /* 自己的 slot 用不上：数据都进 session 的 buffer */
		.send_slots = depth ? depth : REMOTE_READ_DEPTH,
		.events = true,
	};
}

int remote_reader_open(struct remote_reader *reader, struct rdma_resources *res,
		       uint32_t chunk_size)
{
	uint32_t most = res->port_attr.max_msg_sz;
	int flags = fcntl(res->channel->fd, F_GETFL);

	*reader =
		(struct remote_reader){ .res = res, .depth = res->send_slots };
	reader->chunk_size = chunk_size ? chunk_size : REMOTE_READ_CHUNK;
	if (reader->chunk_size > most)
		reader->chunk_size = most;
	TAILQ_INIT(&reader->all);
	TAILQ_INIT(&reader->queue);
	/* 非阻塞：epoll 说“可读”时它通常在，万一不在也不能睡在那里。*/
	if (fcntl(res->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return call_failed(errno,
				   "fcntl(completion channel, O_NONBLOCK)");
	reader->chunks = calloc(reader->depth, sizeof(*reader->chunks));
	if (!reader->chunks)
		return call_failed(ENOMEM, "calloc(%u chunks)", reader->depth);
	return arm_cq(res);
}

void remote_reader_close(struct remote_reader *reader)
{
	free(reader->chunks);
	reader->chunks = NULL;
}

bool remote_reader_is_broken(const struct remote_reader *reader)
{
	return reader->broken;
}

static void queue_in(struct remote_reader *r, struct remote_read *read)
{
	TAILQ_INSERT_TAIL(&r->queue, read, in_queue);
	read->queued = true;
}

static void queue_out(struct remote_reader *r, struct remote_read *read)
{
	if (read->queued)
		TAILQ_REMOVE(&r->queue, read, in_queue);
	read->queued = false;
}

static void finish(struct remote_reader *r, struct remote_read *read,
		   int status)
{
	queue_out(r, read);
	TAILQ_REMOVE(&r->all, read, in_all);
	read->done(read, status);
}

// region post-read
static int post_chunk(struct remote_reader *r, struct remote_read *read,
		      struct remote_chunk *chunk, uint32_t length)
{
	struct ibv_sge into = {
		.addr = (uintptr_t)read->local + read->posted,
		.length = length,
		.lkey = read->lkey,
	};
	/*
	 * 取一个从没用过的号。若用 needle id 之类的东西凑出来，两个 client 同时读一个
	 * needle 就撞了号，completion 便不知道是谁的。
	 */
	uint32_t slot = r->next_slot++;
	int rc = post_read(r->res, slot, &into,
			   read->remote_addr + read->posted, read->rkey);

	if (rc)
		return -EIO;
	read->posted += length;
	*chunk = (struct remote_chunk){ WR_ID_READ(slot), read, read->posted };
	r->in_flight++;
	return 0;
}
// endregion post-read

// region take-turns
/* 队列里的 read 轮流来，一次一块：1 GiB 的那个不会让 4 KiB 的等上半分钟。*/
static void post_more(struct remote_reader *r)
{
	while (!r->broken && !TAILQ_EMPTY(&r->queue)) {
		struct remote_read *read = TAILQ_FIRST(&r->queue);
		uint64_t left = read->size - read->posted;
		uint32_t length =
			left < r->chunk_size ? (uint32_t)left : r->chunk_size;
		struct remote_chunk *chunk =
			&r->chunks[r->next_slot % r->depth];

		/* 这个位置上的还没回来：send queue 里已有 depth 个。*/
		if (chunk->read)
			return;
		if (post_chunk(r, read, chunk, length)) {
			r->broken = true;
			return;
		}
		queue_out(r, read);
		if (read->posted < read->size)
			queue_in(r, read);
	}
}
// endregion take-turns

void remote_reader_submit(struct remote_reader *reader,
			  struct remote_read *read)
{
	read->posted = read->completed = 0;
	read->status = 0;
	TAILQ_INSERT_TAIL(&reader->all, read, in_all);
	queue_in(reader, read);
	post_more(reader);
}

void remote_reader_cancel(struct remote_reader *reader,
			  struct remote_read *read)
{
	queue_out(reader, read);
	read->status = -ECANCELED;
	read->arrived = NULL;
	/* 已 post 的收不回来，网卡还会往那块内存里写：等它们各自完成。*/
	if (read->completed == read->posted)
		finish(reader, read, -ECANCELED);
}

// region match
/*
 * 凭 wr_id 找到它是哪一块。找不到，说明这不是我们（现在）在等的：上一条连接遗下的，
 * 或是程序错了。不管是哪种，都不能拿它给别的 READ 充数。
 */
static struct remote_chunk *chunk_of(struct remote_reader *r,
				     const struct ibv_wc *wc)
{
	struct remote_chunk *chunk =
		&r->chunks[WR_ID_SLOT(wc->wr_id) % r->depth];

	return chunk->read && chunk->wr_id == wc->wr_id ? chunk : NULL;
}
// endregion match

static int take(struct remote_reader *r, const struct ibv_wc *wc)
{
	struct remote_chunk *chunk = chunk_of(r, wc);
	struct remote_read *read;
	uint64_t from, upto;

	if (!chunk)
		return unexpected_completion(wc);
	read = chunk->read;
	/* RC 按 post 的次序完成，所以一个 read 的各块总是从前往后到。*/
	from = read->completed;
	upto = chunk->upto;
	read->completed = upto;
	chunk->read = NULL;
	r->in_flight--;
	/* 先让线路忙起来，再去算校验和：两件事就重叠了。*/
	post_more(r);
	if (read->arrived)
		read->arrived(read, from, upto);
	if (!read->queued && read->completed == read->posted)
		finish(r, read, read->status);
	return 0;
}

/*
 * 对端不在了（重传用尽、被冲掉）的 READ 值得重来；地址或 key 不对的，重来也一样。只记在
 * 第一个出错的 READ 名下：后面跟来的都是同一件事的 WR_FLUSH_ERR。
 */
static void blame(struct remote_reader *r, const struct ibv_wc *wc)
{
	struct remote_chunk *chunk = chunk_of(r, wc);
	bool gone = wc->status == IBV_WC_WR_FLUSH_ERR ||
		    wc->status == IBV_WC_RETRY_EXC_ERR ||
		    wc->status == IBV_WC_RNR_RETRY_EXC_ERR;

	if (chunk && wc->status != IBV_WC_SUCCESS && !chunk->read->status)
		chunk->read->status = gone ? -ECONNRESET : -EIO;
}

/*
 * 取到 CQ 空为止，看似理所当然，却可能永远取不完：每取走一块就 post 下一块，rxe 往往在
 * post_send 里就把它读了回来。于是一个 1 GiB 的 read 没完之前，事件循环回不去，别的
 * client 连 Ping 都没人答。所以一次最多取 depth 个：arm 之前就在 CQ 里的，不会比这更多；
 * 剩下的都是 arm 之后来的，它们已经留下了 event，epoll 会再叫我们。
 */
static int take_all(struct remote_reader *r)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int n = 1;

	for (uint32_t left = r->depth; left && n > 0 && !r->broken; left--) {
		n = try_completion(r->res, &wc);
		if (n < 0)
			blame(r, &wc);
		if (n > 0) {
			r->last_completion = now_ns();
			r->broken |= take(r, &wc) != 0;
		}
	}
	return n < 0 || r->broken ? -EIO : 0;
}

int remote_reader_poll(struct remote_reader *reader)
{
	/*
	 * 次序：取走 event，重新 arm，再取 CQ。与 transfer.c 里的道理相同。arm 一次，至多来
	 * 一个 event；真有第二个，epoll 会再叫我们。
	 */
	int rc = take_cq_event(reader->res);

	if (!rc)
		rc = arm_cq(reader->res);
	if (!rc)
		rc = take_all(reader);
	if (rc)
		reader->broken = true;
	return rc ? -EIO : 0;
}

// region abort
int remote_reader_abort(struct remote_reader *reader)
{
	struct ibv_wc wc;
	/*
	 * 次序要紧：QP 进了 RESET，网卡才保证不再碰那些 buffer；在那之前把 buffer
	 * 还给别人，迟到的数据就会写进别人的内存。
	 */
	int rc = modify_qp_to_reset(reader->res);

	while (ibv_poll_cq(reader->res->cq, 1, &wc) > 0)
		;
	for (uint32_t i = 0; i < reader->depth; i++)
		reader->chunks[i].read = NULL;
	reader->in_flight = 0;
	while (!TAILQ_EMPTY(&reader->all)) {
		struct remote_read *read = TAILQ_FIRST(&reader->all);

		finish(reader, read, read->status ? read->status : -ECONNRESET);
	}
	reader->broken = false;
	return rc;
}
// endregion abort
