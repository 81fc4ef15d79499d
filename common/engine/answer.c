// SPDX-License-Identifier: MIT
/*
 * answer.c —— 一个 StartRead：从请求到数据落地、算好 CRC、作答
 *
 * 其中要等两样东西：link（可能正断着）和 READ 本身。等的时候，session 可能到期，client
 * 可能死掉，存储节点可能重启；而只要 READ 还在途，那块内存就不能还。所以一个 read 有两
 * 个主人：等它的 client，和正往它的内存里写的网卡。两个都放手了，它才被释放。
 */
#include "answer.h"

#include "base/crc32c.h"
#include "base/deadline.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_MS 1000000

/* ---- 结束 --------------------------------------------------------------- */

static void release(struct engine_read *read)
{
	if (read->buffer)
		engine_buffer_put(&read->service->pool, read->buffer, NULL);
	free(read);
}

void engine_reads_idle(struct engine_service *service)
{
	/* 没有 session 了：备用的 buffer 也还回去，它们占着内存、MR 和 fd。*/
	if (!service->sessions.count)
		engine_pool_trim(&service->pool);
}

/* 与 client、timer、等待队列脱钩；之后它只剩网卡这一个主人（如果还在途）。*/
static void detach(struct engine_read *read)
{
	struct engine_service *service = read->service;

	timer_cancel(&service->loop->timers, &read->timer);
	if (read->waiting)
		TAILQ_REMOVE(&service->waiting, read, entry);
	if (read->client)
		read->client->read = NULL;
	read->client = NULL;
	if (read->session)
		read->session->read = NULL;
}

void engine_read_abandon(struct engine_read *read)
{
	detach(read);
	if (read->in_flight)
		remote_reader_cancel(&read->service->link->reader,
				     &read->remote);
	else
		release(read);
}

/* 作答总是最后一步：它可能引来这个 client 的下一个请求。*/
static void fail_read(struct engine_read *read, struct engine_failure failure)
{
	struct ipc_client *client = read->client;

	if (read->session)
		engine_session_end(read->session);
	read->session = NULL;
	engine_read_abandon(read);
	engine_ipc_fail(client, failure);
}

static void fail_by_time(void *owner)
{
	struct engine_read *read = owner;

	fail_read(read,
		  engine_network_timeout((now_ns() - read->began) / NS_PER_MS));
}

void engine_read_expire(struct engine_read *read)
{
	struct ipc_client *client = read->client;
	const struct engine_failure f =
		engine_session_expired(engine_text_of(read->session->id));

	engine_read_abandon(read);
	engine_ipc_fail(client, f);
}

static void answer(struct engine_read *read)
{
	struct ipc_client *client = read->client;
	struct engine_session *session = read->session;
	const struct engine_message m = {
		.type = ENGINE_START_READ_RESPONSE,
		.started = { .session_id = engine_text_of(session->id),
			     .local_addr = (uintptr_t)session->buffer->addr,
			     .local_key = session->buffer->mr->lkey,
			     .transfer_size = read->size,
			     .expected_crc = read->crc,
			     .expires_at_ns = session->expires_at_ns },
	};

	session->ready = true;
	session->size = read->size;
	session->crc = read->crc;
	detach(read);
	release(read);
	engine_ipc_answer(client, &m, -1);
}

static void finish(struct engine_read *read)
{
	const struct needle_entry *n = &read->needle;

	/*
	 * 读的是整个 needle，就能与存入时的 CRC 比：RC 保证了线路上不出错，保证不了
	 * 磁盘上、内存里没有坏。只读一段时没有可比的，CRC 由我们算出来交给 client。
	 */
	if (read->request.offset == 0 && read->size == n->size &&
	    read->crc != n->crc32c)
		fail_read(read, engine_failure_of(ENGINE_IO_ERROR,
						  "needle %ju of volume %u is "
						  "damaged: the CRC-32C "
						  "of its bytes is 0x%08x, its "
						  "record says 0x%08x",
						  n->needle_id, n->volume_id,
						  read->crc, n->crc32c));
	else
		answer(read);
}

/* ---- READ 在途 ---------------------------------------------------------- */

static void tell_progress(struct engine_read *read, uint64_t done)
{
	const struct engine_message m = {
		.type = ENGINE_READ_PROGRESS,
		.progress = { .done = done, .total = read->size },
	};
	int64_t now = now_ns();

	if (now < read->next_progress)
		return;
	read->next_progress =
		now + (int64_t)read->request.progress_ms.value * NS_PER_MS;
	engine_ipc_tell(read->client, &m);
}

/* 到一块，算一块：等全到了再算，1 GiB 的 CRC 会让所有 client 一起停下来。*/
static void on_arrived(struct remote_read *remote, uint64_t from, uint64_t upto)
{
	struct engine_read *read = (struct engine_read *)remote;

	if (!read->client)
		return;
	read->crc = crc32c(read->crc, remote->local + from, upto - from);
	if (upto == read->size)
		return;
	timer_set(&read->service->loop->timers, &read->timer,
		  deadline_in_ms(read->service->read_ms));
	if (read->request.progress_ms.given)
		tell_progress(read, upto);
}

static void wait_for_link(struct engine_read *read)
{
	TAILQ_INSERT_TAIL(&read->service->waiting, read, entry);
	read->waiting = true;
}

static void on_done(struct remote_read *remote, int status)
{
	struct engine_read *read = (struct engine_read *)remote;
	struct engine_service *service = read->service;

	read->in_flight = false;
	if (!read->client) {
		/* 等它的人早走了，网卡现在才放手。*/
		release(read);
		engine_reads_idle(service);
	} else if (!status) {
		finish(read);
	} else if (!read->retried) {
		/* 断的是大家共用的 QP，未必是它的错：等重新连上，再来一次。*/
		read->retried = true;
		wait_for_link(read);
	} else if (status == -ECONNRESET) {
		fail_by_time(read);
	} else {
		fail_read(read, engine_read_failed(status));
	}
}

/* ---- 开始 --------------------------------------------------------------- */

// region look-up
/*
 * 查目录、对 cookie、定范围。次序有讲究：offset 先与 needle 的大小比，再用减法得到剩余，
 * 最后才与 size 比；写成 offset + size > needle.size，2^64 附近的值就绕回去了。
 */
static int look_up(struct engine_read *read, struct engine_failure *failure)
{
	const struct engine_start_read *r = &read->request;
	const struct needle_entry *n = needle_catalog_find(
		&read->service->link->catalog, r->volume_id, r->needle_id);
	uint64_t left;

	if (!n) {
		*failure = engine_failure_of(ENGINE_INVALID_REQUEST,
					     "no needle %ju in volume %u",
					     r->needle_id, r->volume_id);
		return -ENOENT;
	}
	if (r->cookie != n->cookie) {
		*failure = engine_failure_of(
			ENGINE_PERMISSION_DENIED,
			"wrong cookie for needle %ju of volume %u",
			r->needle_id, r->volume_id);
		return -EACCES;
	}
	left = r->offset <= n->size ? n->size - r->offset : 0;
	if (r->offset > n->size || r->size > left) {
		*failure = engine_failure_of(
			ENGINE_INVALID_REQUEST,
			"offset %ju and size %ju are not within the needle, "
			"which has %ju bytes",
			r->offset, r->size, n->size);
		return -ERANGE;
	}
	read->needle = *n;
	read->size = r->size ? r->size : left;
	return 0;
}
// endregion look-up

// region address
/*
 * 该从哪里读？client 给的地址和 key，只有恰好落在这个 needle 里才用：
 *   - 别的地方（哪怕同一个 MR）由别的 cookie 管着，不能让它绕过去；
 *   - 一个坏 rkey 会让 QP 进 ERR，所有 client 的 READ 都陪着它失败；
 *   - 节点重启之后，client 手里的旧地址自然失效，而目录是新的。
 */
static void choose_address(struct engine_read *read)
{
	const struct engine_start_read *r = &read->request;
	const struct needle_entry *n = &read->needle;
	uint64_t into = r->remote_addr - n->remote_addr;
	bool inside = r->remote_key == n->rkey &&
		      r->remote_addr >= n->remote_addr && into <= n->size &&
		      n->size - into >= r->offset &&
		      n->size - into - r->offset >= read->size;

	read->remote.remote_addr =
		(inside ? r->remote_addr : n->remote_addr) + r->offset;
	read->remote.rkey = n->rkey;
}
// endregion address

static int no_memory(struct engine_read *read, int rc,
		     struct engine_failure *failure)
{
	const struct engine_service *service = read->service;

	if (rc == -EDQUOT && read->size > service->max_bytes)
		*failure =
			engine_buffer_too_small(read->size, service->max_bytes);
	else if (rc == -EDQUOT || rc == -ENOMEM)
		*failure = engine_failure_of(
			ENGINE_RESOURCE_EXHAUSTED,
			"memory for %ju bytes, %zu are in use", read->size,
			service->budget->used);
	else if (rc == -EMFILE || rc == -ENFILE)
		*failure = engine_failure_of(ENGINE_RESOURCE_EXHAUSTED,
					     "file descriptors");
	else
		*failure = engine_failure_of(ENGINE_MEMORY_REG_FAILED,
					     "ibv_reg_mr of %ju bytes",
					     read->size);
	return rc;
}

static int take_memory(struct engine_read *read, struct engine_failure *failure)
{
	int rc;

	/* 重来时，节点上的 needle 可能已经换了一个更大的。*/
	if (read->buffer && read->buffer->size >= read->size)
		return 0;
	if (read->buffer) {
		engine_buffer_put(&read->service->pool, read->buffer, NULL);
		read->buffer = NULL;
		engine_session_put_buffer(read->session);
	}
	rc = engine_session_take_buffer(read->session, read->size);
	if (rc)
		return no_memory(read, rc, failure);
	read->buffer = engine_buffer_ref(read->session->buffer);
	return 0;
}

static int take_session(struct engine_read *read,
			struct engine_failure *failure)
{
	struct engine_service *service = read->service;
	int rc;

	if (read->session)
		return 0;
	rc = engine_session_begin(&service->sessions, &read->client->owner,
				  read->request.timeout_secs, &read->session);
	if (rc == -EAGAIN)
		*failure = engine_too_many_sessions(service->max_sessions);
	else if (rc)
		*failure = engine_failure_of(ENGINE_RESOURCE_EXHAUSTED,
					     "memory for a session");
	else
		read->session->read = read;
	return rc;
}

void engine_read_go_on(struct engine_read *read)
{
	struct engine_failure failure;
	int rc;

	if (read->waiting)
		TAILQ_REMOVE(&read->service->waiting, read, entry);
	read->waiting = false;
	rc = look_up(read, &failure);
	if (!rc)
		rc = take_session(read, &failure);
	if (!rc)
		rc = take_memory(read, &failure);
	if (rc) {
		fail_read(read, failure);
		return;
	}
	read->crc = 0;
	if (!read->size) { /* 空的 needle，或恰好从末尾读起 */
		finish(read);
		return;
	}
	choose_address(read);
	read->remote.local = read->buffer->addr;
	read->remote.lkey = read->buffer->mr->lkey;
	read->remote.size = read->size;
	read->remote.arrived = on_arrived;
	read->remote.done = on_done;
	read->in_flight = true;
	engine_link_submit(read->service->link, &read->remote);
}

void engine_read_start(struct engine_service *service,
		       struct ipc_client *client,
		       const struct engine_start_read *request)
{
	struct engine_read *read = calloc(1, sizeof(*read));

	if (read) {
		read->service = service;
		read->request = *request;
		read->began = now_ns();
		read->timer =
			(struct timer){ .fire = fail_by_time, .owner = read };
	}
	if (!read ||
	    timer_set(&service->loop->timers, &read->timer,
		      read->began + (int64_t)service->read_ms * NS_PER_MS)) {
		free(read);
		engine_ipc_fail(client,
				engine_failure_of(ENGINE_RESOURCE_EXHAUSTED,
						  "memory for a request"));
		return;
	}
	read->client = client;
	client->read = read;
	if (service->link->is_up)
		engine_read_go_on(read);
	else
		wait_for_link(read);
}
