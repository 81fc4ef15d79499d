// SPDX-License-Identifier: MIT
/*
 * flow.c —— 在插件的连接上搬运消息：多个在途、多个 channel、逐条核对
 *
 * 与第 5 阶段相同的道理，换了一套名字：isend/irecv 只是“提交”，test 才是“完成”；
 * 提交之后、完成之前，buffer 归插件，动不得。所以每个在途消息都有自己的 buffer，
 * 前后各夹一段 guard：插件若写越界一个字节，立刻就能发现。
 */
#include "flow.h"

#include "base/deadline.h"
#include "base/pattern.h"
#include "base/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUARD	   64
#define GUARD_BYTE 0xa5
#define BUDGET	   (64u << 20) /* bytes of all buffers, unless one is more */

/* ---- buffers ------------------------------------------------------------ */

static size_t stride_of(const struct tcpx_flow *flow)
{
	return GUARD + ((flow->room + 63) & ~(size_t)63) + GUARD;
}

static unsigned char *slot(const struct tcpx_flow *flow, uint64_t message)
{
	return flow->arena + message % flow->window * stride_of(flow) + GUARD;
}

/* 收发的窗口：契约允许的个数之内，消息很大时少开几个。*/
static unsigned int choose_window(const struct tcpx_flow *flow,
				  unsigned int flows)
{
	uint64_t most = flow->sends ? TCPX_MAX_SENDS : TCPX_MAX_RECVS;
	uint64_t fits = BUDGET / flows / stride_of(flow);

	if (most > fits)
		most = fits;
	/* ping-pong 会多 post 一些 receive，与消息总数无关。*/
	if (flow->plan->mode != TCPX_PING_PONG && most > flow->plan->iters)
		most = flow->plan->iters;
	return most ? (unsigned int)most : 1;
}

/* malloc 往往“先答应、后杀进程”：与其等 OOM killer，不如先看看内存有多大。*/
static int check_memory(const struct tcpx_flow *flow, unsigned int flows)
{
	uint64_t need = (uint64_t)flow->arena_size * flows;
	uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			(uint64_t)sysconf(_SC_PAGESIZE);

	if (need <= have)
		return 0;
	return fail(-ENOMEM, "choose a smaller --size or fewer --channels",
		    "the buffers need %ju MiB, this machine has %ju MiB",
		    need >> 20, have >> 20);
}

int tcpx_flow_open(struct tcpx_flow *flow, const struct tcpx_plan *plan,
		   unsigned int flows, int mem_type)
{
	int rc;

	flow->plan = plan;
	flow->room = plan->text && !flow->sends ? TCPX_TEXT_SPACE : plan->size;
	flow->window = choose_window(flow, flows);
	flow->arena_size = flow->window * stride_of(flow);
	rc = check_memory(flow, flows);
	if (rc)
		return rc;
	flow->arena = aligned_alloc(64, flow->arena_size);
	if (!flow->arena)
		return fail(-ENOMEM,
			    "choose a smaller --size or fewer --channels",
			    "no memory for %zu bytes of buffers",
			    flow->arena_size);
	memset(flow->arena, GUARD_BYTE, flow->arena_size);
	rc = tcpx_reg_mr(flow->comm, flow->arena, flow->arena_size, mem_type,
			 &flow->mhandle);
	flow->registered = !rc;
	return rc;
}

int tcpx_flow_close(struct tcpx_flow *flow)
{
	int rc = 0, closed;

	if (flow->registered)
		rc = tcpx_dereg_mr(flow->comm, flow->mhandle);
	flow->registered = false;
	/* 在途的请求到 close 才真正结束：有后台线程的插件此前还会读写 buffer。*/
	closed = flow->sends ? tcpx_close_send(&flow->comm)
			     : tcpx_close_recv(&flow->comm);
	free(flow->arena);
	flow->arena = NULL;
	return rc ? rc : closed;
}

/* ---- contents ----------------------------------------------------------- */

/* 每条消息的种子都不同（见 base/pattern.c）；测速时只用一个，省得测的是填充。*/
static uint64_t seed_of(const struct tcpx_flow *flow, uint64_t message)
{
	if (flow->plan->mode != TCPX_CHECK)
		return 0;
	return ((uint64_t)flow->channel << 48) + (message << 24);
}

static bool guards_intact(const struct tcpx_flow *flow, uint64_t message)
{
	const unsigned char *data = slot(flow, message);

	for (size_t i = 1; i <= GUARD; i++)
		if (data[-(ssize_t)i] != GUARD_BYTE ||
		    data[flow->room + i - 1] != GUARD_BYTE)
			return false;
	return true;
}

static void prepare(struct tcpx_flow *flow, uint64_t message)
{
	unsigned char *data = slot(flow, message);

	/* 没有空位时会反复提交同一条：内容只准备一次。*/
	if (!flow->sends || message < flow->prepared)
		return;
	flow->prepared++;
	if (flow->plan->text)
		memcpy(data, TCPX_TEXT, sizeof(TCPX_TEXT));
	/* 测速：每个 buffer 只填一次。*/
	else if (flow->plan->mode == TCPX_CHECK || message < flow->window)
		pattern_fill(data, flow->plan->size, seed_of(flow, message));
}

static int arrived_wrong(const struct tcpx_flow *flow, uint64_t message,
			 const char *how)
{
	return fail(-EBADMSG,
		    "both sides should run the same build, and the plugin be "
		    "one that works with NCCL",
		    "message %ju on channel %u arrived wrong: %s", message,
		    flow->channel, how);
}

static int check_text(const struct tcpx_flow *flow, uint64_t message)
{
	if (!memcmp(slot(flow, message), TCPX_TEXT, sizeof(TCPX_TEXT)))
		return 0;
	return arrived_wrong(flow, message, "it is not the text");
}

static int check(const struct tcpx_flow *flow, uint64_t message)
{
	const uint64_t expected = flow->plan->size;
	char how[96];
	size_t at;

	if (!guards_intact(flow, message))
		return arrived_wrong(flow, message,
				     "bytes outside the buffer were written");
	if (flow->plan->text)
		return check_text(flow, message);
	at = pattern_first_wrong(slot(flow, message), expected,
				 seed_of(flow, message));
	if (at == expected)
		return 0;
	snprintf(how, sizeof(how), "byte %zu of %ju differs", at, expected);
	return arrived_wrong(flow, message, how);
}

/*
 * 到的是什么，由内容与 guard 说了算，不由 test() 给的 size：它可以不写 (-1)；NCCL 2.19
 * 的 net_ib 用 4 个 QP 时，每个 QP 都把 immediate 里的长度加一遍；Mellanox 的 UCX 插件
 * 给的是 irecv 时 post 的大小。字节都对的话，这些就只值得提醒一句。测速时不逐条核对，
 * 但第一次见到不同，就要看一看那条消息。
 */
static int check_arrived(struct tcpx_flow *flow, uint64_t message, int size)
{
	bool odd = size != -1 && (uint64_t)(int64_t)size != flow->plan->size;

	if (odd && !flow->odd_sizes++)
		flow->odd_size = size;
	if (flow->plan->mode == TCPX_CHECK || (odd && flow->odd_sizes == 1))
		return check(flow, message);
	return 0;
}

/* ---- movement ----------------------------------------------------------- */

/* 提交下一条；@moved：提交成了（没有空位时不成，也不是错误）。*/
static int post(struct tcpx_flow *flow, bool *moved)
{
	struct tcpx_request **request =
		&flow->requests[flow->posted % TCPX_MAX_RECVS];
	void *data = slot(flow, flow->posted);
	int size = (int)flow->room;
	int tag = (int)flow->channel;
	int rc;

	prepare(flow, flow->posted);
	if (flow->sends)
		rc = tcpx_isend(flow->comm, data, size, tag, flow->mhandle,
				request);
	else
		rc = tcpx_irecv(flow->comm, 1, &data, &size, &tag,
				&flow->mhandle, request);
	if (!rc && *request) {
		flow->posted++;
		*moved = true;
	}
	return rc;
}

/* 最老的一条是否完成；完成了就核对，并让出它的 buffer。*/
static int complete(struct tcpx_flow *flow, bool *moved)
{
	struct tcpx_request *request =
		flow->requests[flow->done % TCPX_MAX_RECVS];
	bool done;
	int size;
	int rc = tcpx_test(request, &done, &size);

	if (rc || !done)
		return rc;
	if (!flow->sends) {
		rc = tcpx_irecv_consumed(flow->comm, 1, request);
		if (!rc)
			rc = check_arrived(flow, flow->done, size);
	} else if (!guards_intact(flow, flow->done)) {
		rc = arrived_wrong(flow, flow->done,
				   "the sender's guards were written");
	}
	flow->done++;
	*moved = true;
	return rc;
}

static bool may_post(const struct tcpx_flow *flow)
{
	return flow->posted < flow->plan->iters &&
	       flow->posted - flow->done < flow->window;
}

static int step(struct tcpx_flow *flow, bool *moved)
{
	int rc = 0;

	if (flow->posted > flow->done)
		rc = complete(flow, moved);
	if (!rc && may_post(flow))
		rc = post(flow, moved);
	return rc;
}

/* 测速时不逐条核对；结束时核对还留在各 buffer 里的那些。*/
static int check_last(const struct tcpx_flow *flow)
{
	uint64_t from =
		flow->done > flow->window ? flow->done - flow->window : 0;
	int rc = 0;

	if (flow->sends || flow->plan->mode == TCPX_CHECK)
		return 0;
	for (uint64_t i = from; i < flow->done && !rc; i++)
		rc = check(flow, i);
	return rc;
}

static const char *const stalled = "is the peer stopped? --timeout SECS waits "
				   "longer";

/* 一直有进展就从不停顿，Ctrl-C 也就没有人看：所以有进展时也要看一眼。*/
static int stop_if_asked(const char *what)
{
	if (!stop_requested())
		return 0;
	return fail(-EINTR, NULL, "%s: stopped by a signal", what);
}

int tcpx_move(struct tcpx_flow *flows, unsigned int n,
	      const struct tcpx_wait *wait)
{
	struct poll_pause pause = { 0 };
	unsigned int left = n;
	int rc = 0;

	while (left && !rc) {
		bool moved = false;

		left = 0;
		for (unsigned int i = 0; i < n && !rc; i++) {
			rc = step(&flows[i], &moved);
			left += flows[i].done < flows[i].plan->iters;
		}
		/* 期限从上一次有进展算起：传得久没关系，停住不动才算失败。*/
		if (moved)
			pause = (struct poll_pause){ 0 };
		if (!rc && moved)
			rc = stop_if_asked("moving messages");
		else if (!rc)
			rc = tcpx_pause(&pause, wait, "moving messages",
					stalled);
	}
	for (unsigned int i = 0; i < n && !rc; i++)
		rc = check_last(&flows[i]);
	return rc;
}

/* 等下一条；先前没有空位、一个也没 post 上的话，先补一个。*/
static int receive(struct tcpx_flow *flow, bool *moved)
{
	return flow->posted > flow->done ? complete(flow, moved)
					 : post(flow, moved);
}

/* 补满 receive；ping-pong 中它们总是领先于消息，不在延迟的关键路径上。*/
static int post_all(struct tcpx_flow *flow)
{
	bool moved = true;
	int rc = 0;

	while (!rc && moved && may_post(flow)) {
		moved = false;
		rc = post(flow, &moved);
	}
	return rc;
}

/*
 * 反复做 @act，直到 @count 超过 @target。@other 上在途的，也要一直 test：许多插件的 isend
 * 只是登记，字节要到 test() 里才搬；只等自己要的那一个，对端就永远等不到。
 */
static int until(struct tcpx_flow *flow, int (*act)(struct tcpx_flow *, bool *),
		 const uint64_t *count, uint64_t target,
		 struct tcpx_flow *other, const struct tcpx_wait *wait)
{
	struct poll_pause pause = { 0 };
	int rc = 0;

	while (!rc && *count <= target) {
		bool moved = false;

		rc = act(flow, &moved);
		if (!rc && !moved && other->posted > other->done)
			rc = complete(other, &moved);
		if (!rc && !moved)
			rc = tcpx_pause(&pause, wait, "ping-pong", stalled);
	}
	return rc;
}

static int send_one(struct tcpx_flow *out, struct tcpx_flow *back,
		    const struct tcpx_wait *wait)
{
	int rc = 0;

	/* 上一条 SEND 的 buffer 要先收回：窗口只有这么大。*/
	if (out->posted - out->done >= out->window)
		rc = until(out, complete, &out->done, out->done, back, wait);
	if (!rc)
		rc = until(out, post, &out->posted, out->posted, back, wait);
	return rc ? rc : post_all(back);
}

int tcpx_ping_pong(struct tcpx_flow *out, struct tcpx_flow *back,
		   const struct tcpx_wait *wait, bool first, struct laps *laps)
{
	uint64_t iters = out->plan->iters;
	int rc = post_all(back);

	if (laps)
		laps_start(laps);
	for (uint64_t i = 0; i < iters && !rc; i++) {
		if (first)
			rc = send_one(out, back, wait);
		if (!rc)
			rc = until(back, receive, &back->done, i, out, wait);
		if (!rc && !first)
			rc = send_one(out, back, wait);
		if (laps)
			laps_next(laps);
		if (!rc)
			rc = stop_if_asked("ping-pong");
	}
	if (!rc && out->done < iters)
		rc = until(out, complete, &out->done, iters - 1, back, wait);
	return rc ? rc : check_last(back);
}

const char *tcpx_flow_text(const struct tcpx_flow *flow, char *out, size_t size)
{
	return printable_text(out, size, slot(flow, flow->done - 1),
			      flow->plan->size);
}
