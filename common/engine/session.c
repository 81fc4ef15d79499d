// SPDX-License-Identifier: MIT
/*
 * session.c —— session：一次读取从 StartRead 到 CompleteRead 的身份
 *
 * session 占着内存、MR 和一个 fd，所以它必须有结束的一天，而且不能指望 client 守规矩：
 * CompleteRead 是一条路，timeout 是一条路，client 消失是第三条。三条路都走
 * engine_session_end()，于是不会有哪一条漏还了什么。
 */
#include "session.h"

#include "base/call_failed.h"
#include "base/deadline.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define NS_PER_SEC INT64_C(1000000000)

uint64_t engine_unix_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)(ts.tv_sec * NS_PER_SEC + ts.tv_nsec);
}

/*
 * 原版直接 now + Duration::seconds(timeout as i64)：2^63-1 秒让进程 panic，2^64-1 变成
 * -1，session 一生下来就过期了。先问“放得下吗”，再乘再加。
 */
static int64_t after_secs(int64_t base, uint64_t secs)
{
	if (secs > (uint64_t)(INT64_MAX - base) / NS_PER_SEC)
		return INT64_MAX;
	return base + (int64_t)secs * NS_PER_SEC;
}

int engine_sessions_open(struct engine_sessions *all)
{
	all->gone = calloc(ENGINE_GONE_MOST, sizeof(*all->gone));
	if (!all->gone)
		return call_failed(ENOMEM, "calloc(%d session ids)",
				   ENGINE_GONE_MOST);
	return 0;
}

void engine_sessions_close(struct engine_sessions *all)
{
	free(all->gone);
	all->gone = NULL;
}

static int by_id(const void *a, const void *b)
{
	const struct engine_session *x = a, *y = b;

	return memcmp(x->id, y->id, ENGINE_ID_SIZE);
}

/*
 * 第 4 版 UUID：122 位随机数，猜不到别人的 session，也不会重复。libuuid 自己的生成器每
 * 次要六个系统调用，还要重新播种一遍 random()，占去整个请求的三分之一；所以随机数由我们
 * 一次取 64 个，只请它写成文字。
 */
static int new_id(struct engine_sessions *all, char id[ENGINE_ID_SIZE])
{
	unsigned char *u;

	if (!all->random_left) {
		if (getrandom(all->random, sizeof(all->random), 0) !=
		    sizeof(all->random))
			return call_failed(errno, "getrandom(%zu bytes)",
					   sizeof(all->random));
		all->random_left = 64;
	}
	u = all->random[--all->random_left];
	u[6] = (unsigned char)((u[6] & 0x0f) | 0x40); /* version 4 */
	u[8] = (unsigned char)((u[8] & 0x3f) | 0x80); /* RFC 4122 */
	uuid_unparse_lower(u, id);
	return 0;
}

/* heap 到点叫我们：告诉使用者（也许正有一个 READ 在途），然后结束它。*/
static void on_timeout(void *owner)
{
	struct engine_session *session = owner;
	struct engine_sessions *all = session->all;

	memcpy(all->gone[all->gone_next], session->id, ENGINE_ID_SIZE);
	all->gone_next = (all->gone_next + 1) % ENGINE_GONE_MOST;
	all->expired(session, all->context);
	engine_session_end(session);
}

// region begin
int engine_session_begin(struct engine_sessions *all,
			 struct engine_owner *owner, uint64_t timeout_secs,
			 struct engine_session **session)
{
	struct engine_session *s;
	uint64_t secs = timeout_secs ? timeout_secs : all->default_secs;
	int rc;

	/*
	 * “数一数”和“占一个”之间不能有任何等待。原版先查上限，await 注册内存，再插入：
	 * 一百个同时到的请求都查到“还差一个”，于是都插了进去。
	 */
	if (all->count >= all->most)
		return -EAGAIN;
	if (!budget_take(all->pool->budget, ENGINE_SESSION_BYTES,
			 ENGINE_SPARE(all->pool->budget)))
		return -EDQUOT;
	s = calloc(1, sizeof(*s));
	rc = s ? new_id(all, s->id) : -ENOMEM;
	if (rc)
		goto give_back;
	s->all = all;
	s->timer = (struct timer){ .fire = on_timeout, .owner = s };
	s->expires_at_ns =
		(uint64_t)after_secs((int64_t)engine_unix_ns(), secs);
	if (timer_set(all->timers, &s->timer, after_secs(now_ns(), secs)) ||
	    !tsearch(s, &all->tree, by_id)) {
		timer_cancel(all->timers, &s->timer);
		rc = -ENOMEM;
		goto give_back;
	}
	all->count++;
	s->owner = owner;
	LIST_INSERT_HEAD(&owner->sessions, s, next);
	*session = s;
	return 0;
give_back:
	free(s);
	budget_return(all->pool->budget, ENGINE_SESSION_BYTES);
	return rc;
}
// endregion begin

static bool is_gone(const struct engine_sessions *all, const char *id)
{
	for (size_t i = 0; i < ENGINE_GONE_MOST; i++)
		if (!memcmp(all->gone[i], id, ENGINE_ID_SIZE))
			return true;
	return false;
}

int engine_session_find(struct engine_sessions *all, struct engine_text id,
			struct engine_session **session)
{
	struct engine_session key = { .id = "" };
	void *found;

	if (id.size != ENGINE_ID_SIZE - 1)
		return -ENOENT;
	memcpy(key.id, id.data, id.size);
	found = tfind(&key, &all->tree, by_id);
	if (!found)
		return is_gone(all, key.id) ? -ETIME : -ENOENT;
	*session = *(struct engine_session **)found;
	return 0;
}

int engine_session_take_buffer(struct engine_session *session, size_t size)
{
	struct engine_owner *owner = session->owner;
	int rc;

	/* 放不下的先拒绝：注册一块几百 MB 的内存再放掉，别人就白等了。*/
	if (size > owner->share.most - owner->share.used)
		return -EDQUOT;
	rc = engine_pool_get(session->all->pool, size, &owner->buffer,
			     &session->buffer);
	if (rc || budget_take(&owner->share, session->buffer->size, 0))
		return rc;
	engine_buffer_put(session->all->pool, session->buffer, &owner->buffer);
	session->buffer = NULL;
	return -EDQUOT;
}

void engine_session_put_buffer(struct engine_session *session)
{
	struct engine_owner *owner = session->owner;

	if (!session->buffer)
		return;
	budget_return(&owner->share, session->buffer->size);
	engine_buffer_put(session->all->pool, session->buffer, &owner->buffer);
	session->buffer = NULL;
}

// region end
void engine_session_end(struct engine_session *session)
{
	struct engine_sessions *all = session->all;

	timer_cancel(all->timers, &session->timer);
	tdelete(session, &all->tree, by_id);
	LIST_REMOVE(session, next);
	engine_session_put_buffer(session);
	budget_return(all->pool->budget, ENGINE_SESSION_BYTES);
	all->count--;
	free(session);
}
// endregion end

void engine_owner_end(struct engine_owner *owner)
{
	while (!LIST_EMPTY(&owner->sessions))
		engine_session_end(LIST_FIRST(&owner->sessions));
	engine_buffer_drop(&owner->buffer);
}
