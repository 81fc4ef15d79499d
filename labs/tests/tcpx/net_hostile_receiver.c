// SPDX-License-Identifier: MIT
/*
 * net_hostile_receiver.c —— 插件在接收的一侧，frame 里的每个数都可以是错的
 */
#include "net_hostile.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define ARENA (1 << 16)
#define SHADE 0x5a

/* 挂着的：0 号 irecv 有两个 slot，1000 与 100 字节；1 号一个，50 字节。*/
static const int rooms[3] = { 1000, 100, 50 };
static const size_t places[3] = { 20000, 30000, 40000 };

struct frame {
	int on; /* 哪个 data socket，1 或 2；0 结束 */
	uint32_t seq, slot, total, offset, length;
	enum after after;
	size_t cut;	/* 非零：头加 payload 只发这么多 */
	uint32_t magic; /* 异或在真的上面 */
};

struct frame_case {
	const char *name, *fault; /* NULL：都收齐，没有错 */
	struct frame frame[6];
};

// clang-format off
#define REST { 1, 0, 1, 100, 0, 100 }, { 2, 1, 0, 50, 0, 50 }

static const struct frame_case frame_cases[] = {
	{ "frame: magic", "no frame begins so",
	  { { 1, 0, 0, 1000, 0, 1000, ON, 0, 1 } } },
	{ "frame: magic of a credit", "no frame begins so",
	  { { 1, 0, 0, 1000, 0, 1000, ON, 0, FRAME ^ CREDIT } } },
	{ "frame: the next seq", "no such receive",
	  { { 1, 2, 0, 50, 0, 50 } } },
	{ "frame: a seq in the same place", "no such receive",
	  { { 1, 16, 0, 1000, 0, 1000 } } },
	{ "frame: seq -16", "no such receive",
	  { { 1, 0xfffffff0, 0, 1000, 0, 1000 } } },
	{ "frame: the last seq", "no such receive",
	  { { 1, 0xffffffff, 0, 1000, 0, 1000 } } },
	{ "frame: one slot too many", "has no such slot",
	  { { 1, 0, 2, 0, 0, 0 } } },
	{ "frame: slot of the other receive", "has no such slot",
	  { { 1, 1, 1, 0, 0, 0 } } },
	{ "frame: slot 8", "has no such slot", { { 1, 0, 8, 0, 0, 0 } } },
	{ "frame: slot -1", "has no such slot",
	  { { 1, 0, 0xffffffff, 0, 0, 0 } } },
	{ "frame: a byte too long", "longer than the buffer",
	  { { 1, 0, 0, 1001, 0, 1001 } } },
	{ "frame: for the other slot's room", "longer than the buffer",
	  { { 1, 0, 1, 1000, 0, 1000 } } },
	{ "frame: total 2^31", "longer than the buffer",
	  { { 1, 0, 0, 1u << 31, 0, 1000 } } },
	{ "frame: total -1", "longer than the buffer",
	  { { 1, 0, 0, 0xffffffff, 0xffffff00, 0xff } } },
	{ "frame: length over total", "ends beyond",
	  { { 1, 0, 0, 1000, 0, 1001 } } },
	{ "frame: length -1", "ends beyond",
	  { { 1, 0, 0, 1000, 0, 0xffffffff } } },
	{ "frame: last byte outside", "ends beyond",
	  { { 1, 0, 0, 1000, 999, 2 } } },
	{ "frame: begins at the end", "ends beyond",
	  { { 1, 0, 0, 1000, 1000, 1 } } },
	{ "frame: begins behind the end", "ends beyond",
	  { { 1, 0, 0, 1000, 1001, 0 } } },
	{ "frame: offset + length is 0", "ends beyond",
	  { { 1, 0, 0, 1000, 0xfffffff0, 16 } } },
	{ "frame: offset + length is 16", "ends beyond",
	  { { 1, 0, 0, 1000, 0xffffff00, 272 } } },
	{ "frame: offset -1", "ends beyond",
	  { { 1, 0, 0, 1000, 0xffffffff, 1000 } } },
	{ "frame: an offset in nothing", "ends beyond",
	  { { 1, 0, 0, 0, 1, 0 } } },
	{ "frame: an empty piece", "empty piece", { { 1, 0, 0, 1000, 0, 0 } } },
	{ "frame: an empty piece at the end", "empty piece",
	  { { 1, 0, 0, 1000, 1000, 0 } } },
	{ "frame: two totals", "differs from the first",
	  { { 1, 0, 0, 1000, 0, 500 }, { 1, 0, 0, 999, 500, 499 } } },
	{ "frame: pieces that overlap", "more than the message",
	  { { 1, 0, 0, 1000, 0, 600 }, { 2, 0, 0, 1000, 400, 600 } } },
	{ "frame: the whole again while it comes", "message already",
	  { { 1, 0, 0, 1000, 0, 1000, ON, 900 }, { 2, 0, 0, 1000, 0, 1000 } } },
	{ "frame: the whole again", "message already",
	  { { 1, 0, 0, 1000, 0, 1000 }, { 1, 0, 0, 1000, 0, 1000 } } },
	{ "frame: for a receive that is done", "no such receive",
	  { { 1, 0, 0, 1000, 0, 1000 }, { 1, 0, 1, 100, 0, 100 },
	    { 1, 0, 0, 1000, 0, 1000 } } },
	{ "frame: nothing, again", "message already",
	  { { 1, 0, 0, 0, 0, 0 }, { 2, 0, 0, 0, 0, 0 } } },
	{ "frame: closed in its head", "in the middle",
	  { { 1, 0, 0, 1000, 0, 1000, CLOSE, 23 } } },
	{ "frame: closed behind its head", "in the middle",
	  { { 1, 0, 0, 1000, 0, 1000, CLOSE, 24 } } },
	{ "frame: closed before its last byte", "in the middle",
	  { { 1, 0, 0, 1000, 0, 1000, CLOSE, 1023 } } },
	{ "frame: all closed, one is owed", "with 2 receives outstanding",
	  { { 1, 0, 0, 1000, 0, 1000, CLOSE },
	    { 2, 0, 0, 0, 0, 0, CLOSE, 1 << 20 } } },
	{ "frame: closed behind what is only peeked at",
	  "with 1 receives outstanding",
	  { { 1, 0, 0, 1000, 0, 1000, CLOSE },
	    { 2, 0, 1, 100, 0, 100, CLOSE } } },
	{ "frame: reset", "receiving failed",
	  { { 1, 0, 0, 1000, 0, 1000, RESET, 500 } } },
	{ "frame: whole", NULL, { { 1, 0, 0, 1000, 0, 1000 }, REST } },
	{ "frame: shorter than the room", NULL,
	  { { 1, 0, 0, 1, 0, 1 }, REST } },
	{ "frame: nothing at all", NULL, { { 1, 0, 0, 0, 0, 0 }, REST } },
	{ "frame: byte by byte", NULL,
	  { { 1, 0, 0, 1000, 0, 300, DRIP }, { 1, 0, 0, 1000, 300, 700, DRIP },
	    { 1, 0, 1, 0, 0, 0, DRIP }, { 2, 1, 0, 50, 0, 50, DRIP } } },
	{ "frame: pieces backwards", NULL,
	  { { 2, 0, 0, 1000, 700, 300 }, { 1, 0, 0, 1000, 1, 699 },
	    { 2, 0, 0, 1000, 0, 1 }, REST } },
	{ "frame: one socket closes, its work done", NULL,
	  { { 1, 0, 0, 1000, 0, 1000 }, { 1, 0, 1, 100, 0, 100, CLOSE },
	    { 2, 1, 0, 50, 0, 50 } } },
};
// clang-format on

static uint8_t arena[ARENA];
static int totals[3]; /* -1：什么也没来 */

/* 该有的字节都在，别处一个都没有动。@all 时每个 slot 都收齐了。*/
static void check_arena(bool all)
{
	for (size_t i = 0; i < ARENA; i++) {
		bool inside = false;

		for (uint32_t k = 0; k < 3; k++) {
			size_t at = i - places[k];

			if (i < places[k] || at >= (size_t)rooms[k])
				continue;
			inside = !all || at < (size_t)totals[k];
			CHECK(!inside || !all ||
				      arena[i] == pattern(k, (uint32_t)at),
			      "byte %zu of slot %u is wrong", at, k);
		}
		CHECK(inside || arena[i] == SHADE, "byte %zu was written", i);
	}
}

static void post(struct victim *v, int first, int n)
{
	void *data[2];
	int sizes[2], tags[2] = { first, first + 1 };

	for (int i = 0; i < n; i++) {
		data[i] = arena + places[first + i];
		sizes[i] = rooms[first + i];
	}
	CHECK(!net->irecv(v->comm, n, data, sizes, tags, NULL,
			  &v->request[first / 2]) &&
		      v->request[first / 2],
	      "irecv");
}

static int test_both(struct victim *v, int done[2])
{
	int sizes[2], rc = 0;

	for (int i = 0; i < 2; i++) {
		if (done[i])
			continue;
		rc = net->test(v->request[i], &done[i], sizes);
		if (rc)
			return rc;
		for (int k = 0; done[i] && k < 2 - i; k++)
			CHECK(sizes[k] == totals[2 * i + k],
			      "slot %d: %d bytes", 2 * i + k, sizes[k]);
	}
	return 0;
}

/* 拼好 @f 的字节：头，payload。*/
static size_t build_frame(char *bytes, const struct frame *f)
{
	uint32_t payload = f->length < 4096 ? f->length : 4096;
	size_t size = 24 + payload;
	char *at = put_frame(bytes, FRAME ^ f->magic, f->seq, f->slot, f->total,
			     f->offset, f->length);

	for (uint32_t i = 0; i < payload; i++)
		at[i] = (char)pattern(f->seq ? 2 : f->slot, f->offset + i);
	if (f->cut)
		size = f->cut < size ? f->cut : 0;
	else if (f->seq * 2 + f->slot < 3)
		totals[f->seq * 2 + f->slot] = (int)f->total;
	return size;
}

/* 说完一个，等插件看过，下一个才来。*/
static int send_frame(struct victim *v, const int *fd, const struct frame *f,
		      int done[2])
{
	char bytes[24 + 4096];
	size_t size = build_frame(bytes, f);
	int rc = 0;

	for (size_t i = 0; f->after == DRIP && i < size; i++) {
		say(fd[f->on], bytes + i, 1);
		rc = test_both(v, done);
		CHECK(!rc, "test returned %d at byte %zu", rc, i);
	}
	if (f->after != DRIP)
		say(fd[f->on], bytes, size);
	if (f->after == CLOSE)
		shutdown(fd[f->on], SHUT_WR);
	for (int k = 0; !rc && k < 40 && !(done[0] && done[1]); k++) {
		rc = test_both(v, done);
		poll(NULL, 0, 1);
	}
	if (f->after == RESET)
		end(fd[f->on], true);
	return rc;
}

static void run_frame(const void *arg)
{
	const struct frame_case *c = arg;
	struct victim v = { 0 };
	int fd[3], done[2] = { 0, 0 }, rounds = 0, rc = 0, again = 0;
	void *request = NULL;

	memset(arena, SHADE, sizeof(arena));
	memset(totals, 0xff, sizeof(totals));
	listen_on(&v);
	join(&v, fd);
	post(&v, 0, 2);
	post(&v, 2, 1);
	for (int i = 0; !rc && c->frame[i].on; i++)
		rc = send_frame(&v, fd, &c->frame[i], done);
	while (!rc && !(done[0] && done[1])) {
		rc = test_both(&v, done);
		pause_for(c->fault ? c->fault : "the messages", &rounds);
	}
	check_arena(!c->fault);
	if (c->fault) {
		CHECK(rc == NCCL_REMOTE_ERROR, "test returned %d", rc);
		CHECK(count(c->fault) == 1, "no word of \"%s\"", c->fault);
		/* 坏了就是坏了：同一个错误，不再多说。*/
		CHECK(net->test(v.request[1], &again, NULL) == rc && !again,
		      "test forgets");
		CHECK(net->irecv(v.comm, 1, (void *[]){ arena }, (int[]){ 1 },
				 (int[]){ 0 }, NULL, &request) == rc &&
			      !request,
		      "irecv forgets");
		CHECK(count("comm with") == 1, "more than one line");
		check_arena(false);
	} else {
		CHECK(!rc && !*logged, "test returned %d", rc);
	}
	part(&v, fd);
}

static int irecv_once(struct victim *v, void **request)
{
	void *data = arena;
	int size = 300, tag = 0x123456;

	return net->irecv(v->comm, 1, &data, &size, &tag, NULL, request);
}

/* 内核收不下一个 credit 的全部，或者暂时一点也不收：欠着的由 test 补上。*/
static void run_announce(const void *arg)
{
	static const int faults[] = { SHORT, EAGAIN };
	struct victim v = { 0 };
	char bytes[20], credit[20];
	int fd[3], done;

	(void)arg;
	listen_on(&v);
	join(&v, fd);
	for (uint32_t seq = 0; seq < 2; seq++) {
		send_fault = faults[seq];
		CHECK(!irecv_once(&v, &v.request[0]) && v.request[0], "irecv");
		send_fault = WHOLE;
		done = 1;
		CHECK(!net->test(v.request[0], &done, NULL) && !done,
		      "test of nothing");
		put(put(put(put(put(credit, CREDIT, 4), seq, 4), 1, 4), 300, 4),
		    0x123456, 4);
		hear(fd[0], bytes, sizeof(bytes));
		CHECK(!memcmp(bytes, credit, sizeof(bytes)),
		      "credit %u is wrong", seq);
	}
	part(&v, fd);
}

static void run_announce_fails(const void *arg)
{
	struct victim v = { 0 };
	int fd[3], rc;

	(void)arg;
	listen_on(&v);
	join(&v, fd);
	send_fault = ECONNRESET;
	rc = irecv_once(&v, &v.request[0]);
	send_fault = WHOLE;
	CHECK(rc == NCCL_REMOTE_ERROR && !v.request[0] &&
		      count("announcing a receive failed") == 1,
	      "irecv returned %d", rc);
	part(&v, fd);
}

/* 拿错了的：listener、另一种 comm、别人的 mhandle，或者只是看上去像。*/
static void refuse_strangers(struct victim *v, struct victim *other)
{
	ncclNetDeviceHandle_t *dh = (void *)storage;
	void *forged[4] = { NULL, v->comm }, *mr, *others, *made;
	void *data = arena, *mhandles[] = { NULL, forged };
	int size = 1, tag = 0;

	CHECK(!net->regMr(v->comm, arena, 1, NCCL_PTR_HOST, &mr) &&
		      !net->regMr(other->comm, arena, 1, NCCL_PTR_HOST,
				  &others),
	      "regMr");
	mhandles[0] = others;
	for (int i = 0; i < 2; i++) {
		REFUSED(net->irecv(v->comm, 1, &data, &size, &tag, &mhandles[i],
				   &made));
		REFUSED(net->deregMr(v->comm, mhandles[i]));
	}
	REFUSED(net->deregMr(v->comm, NULL));
	REFUSED(net->deregMr(v->listen, mr));
	REFUSED(net->regMr(v->listen, arena, 1, NCCL_PTR_HOST, &made));
	REFUSED(net->irecv(v->listen, 1, &data, &size, &tag, NULL, &made));
	REFUSED(net->isend(v->listen, arena, 1, 0, NULL, &made));
	REFUSED(net->isend(v->comm, arena, 1, 0, NULL, &made));
	REFUSED(net->accept(v->comm, &made, &dh));
	REFUSED(net->closeSend(v->listen));
	REFUSED(net->closeRecv(v->listen));
	REFUSED(net->closeSend(v->comm));
	REFUSED(net->closeListen(v->comm));
	CHECK(!net->deregMr(other->comm, others) && !net->deregMr(v->comm, mr),
	      "deregMr");
}

struct bad_irecv {
	int n;
	void *data;
	int size;
	char missing; /* 哪个数组 */
};

static const struct bad_irecv bad_irecvs[] = {
	{ 0, arena, 1 },      { -1, arena, 1 },	    { 9, arena, 1 },
	{ 1000, arena, 1 },   { 1, arena, 1, 'd' }, { 1, arena, 1, 's' },
	{ 1, arena, 1, 't' }, { 1, arena, -1 },	    { 1, arena, INT_MIN },
	{ 1, NULL, 5 },
};

static void refuse_bad_irecvs(struct victim *v)
{
	static void *data[1000];
	static int sizes[1000], tags[1000];
	void *made;

	for (size_t i = 0; i < sizeof(bad_irecvs) / sizeof(*bad_irecvs); i++) {
		const struct bad_irecv *b = &bad_irecvs[i];

		for (int k = 0; k < 1000; k++) {
			data[k] = b->data;
			sizes[k] = b->size;
		}
		REFUSED(net->irecv(
			v->comm, b->n, b->missing == 'd' ? NULL : data,
			b->missing == 's' ? NULL : sizes,
			b->missing == 't' ? NULL : tags, NULL, &made));
	}
}

/* 什么也没有挂出去，comm 还是好的：八个空的缓冲区是第一个，第 17 个没有位置。*/
static void run_caller(const void *arg)
{
	struct victim v = { 0 }, other = { 0 };
	void *data[8] = { NULL }, *request;
	int fd[3], fds[3], sizes[8] = { 0 }, tags[8] = { 0 };
	char credit[12 + 8 * 8];

	(void)arg;
	listen_on(&v);
	join(&v, fd);
	listen_on(&other);
	join(&other, fds);
	refuse_strangers(&v, &other);
	refuse_bad_irecvs(&v);
	for (int i = 0; i < 17; i++) {
		request = &v;
		CHECK(!net->irecv(v.comm, 8, data, sizes, tags, NULL,
				  &request) &&
			      (request != NULL) == (i < 16),
		      "irecv %d", i);
	}
	hear(fd[0], credit, sizeof(credit));
	CHECK(!get(credit + 4, 4) && get(credit + 8, 4) == 8, "its credit");
	request = &v;
	CHECK(!net->iflush(v.comm, 1, data, sizes, NULL, &request) && !request,
	      "iflush");
	part(&other, fds);
	part(&v, fd);
}

void receiver_cases(void)
{
	EACH(frame_cases, run_frame);
	in_child("irecv: its credit is late", run_announce, NULL);
	in_child("irecv: its credit cannot be sent", run_announce_fails, NULL);
	in_child("irecv: whose caller errs", run_caller, NULL);
}
