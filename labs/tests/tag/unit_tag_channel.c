// SPDX-License-Identifier: MIT
/*
 * unit_tag_channel.c —— tag channel 的单元测试，在真正的 rxe 上
 *
 *	unit_tag_channel DEVICE-A DEVICE-B [TEST…]
 *
 * 一个进程里两端，A 在一个设备上、B 在另一个上，包真的走过网线。每个 TEST 都新建一对
 * channel，做完收掉。每条消息的每个字节都核对。失败说出是哪一行；最后一行数一数。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "tag/parts.h"
#include "tag_pair.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MANY 300
#define MIB  (1u << 20)

/* ---- good messages -------------------------------------------------------- */

static void one_size(struct pair *p, uint64_t n, bool receive_first)
{
	char *out = fill(memory(n), n, (unsigned int)n), *in = memory(n);
	uint64_t before = came(&p->b);
	struct tag_request s, r;
	int rc = 0;

	if (receive_first)
		rc = tag_recv(&p->b.ch, &r, in, n, n, TAG_EXACT);
	CHECK(!rc && !tag_send(&p->a.ch, &s, out, n, n), "%llu",
	      (unsigned long long)n);
	if (!receive_first) {
		arrive(p, &p->b, before + 1);
		rc = tag_recv(&p->b.ch, &r, in, n, n, TAG_EXACT);
	}
	finish(p, &r);
	finish(p, &s);
	CHECK(!rc && !r.status && !s.status && r.length == n && r.tag == n &&
		      !memcmp(in, out, n),
	      "%llu bytes, %s first: status %d", (unsigned long long)n,
	      receive_first ? "receive" : "message", r.status);
	free(out);
	free(in);
}

static void test_sizes(struct pair *p)
{
	static const uint64_t sizes[] = { 0,	 1,	  12,	   80,
					  81,	 8191,	  8192,	   8193,
					  65536, MIB - 1, 1048577, 64 * MIB };

	open_pair(p, (struct tag_limits){ 0 });
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		one_size(p, sizes[i], false);
		if (sizes[i] < 64 * MIB)
			one_size(p, sizes[i], true);
	}
	/* READs of 256 KiB: 256 for 64 MiB, 5 for 1 MiB + 1, twice; and so on. */
	CHECK(p->b.ch.counts.reads == 256 + 2 * (5 + 4 + 1 + 1), "%llu",
	      (unsigned long long)p->b.ch.counts.reads);
	close_pair(p);
}

static void test_truncation(struct pair *p)
{
	static const uint64_t sizes[] = { 12, 8192, 8193, 100000 };
	char *out = memory(100000), *in = memory(100000);
	struct tag_request s, r;

	open_pair(p, (struct tag_limits){ 0 });
	for (size_t i = 0; i < 8; i++) {
		uint64_t n = sizes[i / 2], seen = came(&p->b);

		memset(in, 'u', n);
		if (i % 2)
			tag_recv(&p->b.ch, &r, in, n - 1, 5, TAG_EXACT);
		tag_send(&p->a.ch, &s, out, n, 5);
		arrive(p, &p->b, seen + 1);
		if (i % 2 == 0)
			tag_recv(&p->b.ch, &r, in, n - 1, 5, TAG_EXACT);
		finish(p, &r);
		finish(p, &s);
		CHECK(r.status == -EMSGSIZE && r.length == n && !s.status,
		      "%llu: %d", (unsigned long long)n, r.status);
		CHECK(in[0] == 'u' && in[n - 1] == 'u', "touched");
	}
	CHECK(!p->b.ch.counts.reads, "a READ for nothing");
	one_size(p, 12, true); /* and it goes on */
	close_pair(p);
	free(out);
	free(in);
}

/* ---- the channel against the matcher -------------------------------------- */

#define OPS 400

struct op_slot {
	struct tag_request request; /* the channel's receive */
	struct tag_recv recv;	    /* the model's */
	int64_t message;	    /* that the model gave it, -1: none */
	char buf[1024];
};

struct model_message {
	struct tag_message message;
	struct tag_request request;
	char data[1024];
};

static uint32_t dice(uint32_t *state, uint32_t sides)
{
	*state = *state * 1664525 + 1013904223;
	return (*state >> 8) % sides;
}

static void check_slot(const struct op_slot *slot,
		       const struct model_message *sent, size_t op)
{
	const struct tag_message *m;

	if (slot->message < 0) {
		CHECK(slot->request.status == -EINPROGRESS, "op %zu", op);
		return;
	}
	m = &sent[slot->message].message;
	CHECK(slot->request.status == tag_match_outcome(&slot->recv, m->length),
	      "op %zu: %d", op, slot->request.status);
	CHECK(slot->request.tag == m->tag && slot->request.length == m->length,
	      "op %zu: tag 0x%llx", op, (unsigned long long)slot->request.tag);
	CHECK(slot->request.status ||
		      !memcmp(slot->buf, sent[slot->message].data, m->length),
	      "op %zu: bytes", op);
}

/* Random sends (eager and rendezvous) and receives: what does the model say? */
static void test_random(struct pair *p)
{
	struct op_slot *slots = calloc(OPS, sizeof(*slots));
	struct model_message *sent = calloc(OPS, sizeof(*sent));
	struct tag_match model;
	size_t n_slots = 0, n_sent = 0;
	uint32_t state = 4711;

	if (!slots || !sent)
		exit(1);
	tag_match_init(&model, OPS, UINT64_MAX);
	open_pair(p, (struct tag_limits){ .eager_max = 200,
					  .max_unexpected = 12 });
	for (size_t op = 0; op < OPS; op++) {
		uint64_t tag = dice(&state, 5), n = dice(&state, 600);
		uint64_t mask = dice(&state, 3) ? TAG_EXACT : dice(&state, 4);
		struct model_message *m = &sent[n_sent];
		struct op_slot *slot = &slots[n_slots];

		/* No more than the ids for rendezvous: the rest would queue. */
		if (model.n_unexpected < TAG_RENDEZVOUS && dice(&state, 2)) {
			struct tag_recv *recv = tag_match_arrive(&model, tag);

			m->message =
				(struct tag_message){ .tag = tag, .length = n };
			fill(m->data, n, (unsigned int)op);
			tag_send(&p->a.ch, &m->request, m->data, n, tag);
			arrive(p, &p->b, ++n_sent);
			if (recv)
				tag_entry(recv, struct op_slot, recv)->message =
					(int64_t)n_sent - 1;
			else
				tag_match_keep(&model, &m->message);
		} else {
			struct tag_message *found;

			n = dice(&state, 3) ? sizeof(slot->buf) : n;
			slot->recv = (struct tag_recv){ .tag = tag,
							.mask = mask,
							.size = n };
			found = tag_match_post(&model, &slot->recv);
			slot->message =
				found ? tag_entry(found, struct model_message,
						  message) -
						sent
				      : -1;
			tag_recv(&p->b.ch, &slot->request, slot->buf, n, tag,
				 mask);
			n_slots++;
		}
		for (size_t i = 0; i < n_slots; i++)
			if (slots[i].message >= 0)
				finish(p, &slots[i].request);
	}
	for (size_t i = 0; i < n_slots; i++)
		check_slot(&slots[i], sent, i);
	printf("random: %zu sends, %zu receives, %llu unexpected, %llu left in "
	       "the ring, %llu READs\n",
	       n_sent, n_slots, (unsigned long long)p->b.ch.counts.unexpected,
	       (unsigned long long)p->b.ch.counts.left_in_ring,
	       (unsigned long long)p->b.ch.counts.reads);
	close_pair(p);
	free(slots);
	free(sent);
}

/* ---- many at once --------------------------------------------------------- */

/* Both directions at once, more than credits, slots and ids; tags in reverse. */
static void many(struct pair *p, uint64_t size, struct tag_limits limits)
{
	struct tag_request *s = calloc(2 * MANY, sizeof(*s));
	struct tag_request *r = calloc(2 * MANY, sizeof(*r));
	char *out = memory(2 * MANY * (size + 1));
	char *in = memory(2 * MANY * (size + 1));
	uint64_t limit = limits.max_bytes ? limits.max_bytes : UINT64_MAX;
	int wrong = 0;

	if (!s || !r)
		exit(1);
	open_pair(p, limits);
	/* All of A's first: B, which would give credits back, does nothing meanwhile. */
	for (unsigned int n = 0; n < 2 * MANY; n++) {
		unsigned int i = n < MANY ? 2 * n + 1 : 2 * (n - MANY);
		char *data = fill(out + i * (size + 1), size, i);

		tag_send(i % 2 ? &p->a.ch : &p->b.ch, &s[i], data, size, i);
	}
	settle(p);
	CHECK(p->b.ch.match.bytes <= limit &&
		      (!limits.max_bytes || p->b.ch.counts.left_in_ring),
	      "%llu bytes are held", (unsigned long long)p->b.ch.match.bytes);
	/* The oldest first for a full ring, else the youngest. */
	for (unsigned int n = 0; n < 2 * MANY; n++) {
		unsigned int i = limits.max_unexpected ? n : 2 * MANY - 1 - n;

		tag_recv(i % 2 ? &p->b.ch : &p->a.ch, &r[i],
			 in + i * (size + 1), size, i, TAG_EXACT);
	}
	for (unsigned int i = 0; i < 2 * MANY; i++) {
		finish(p, &r[i]);
		finish(p, &s[i]);
		wrong += r[i].status || s[i].status || r[i].length != size;
	}
	CHECK(!wrong, "%d of %d", wrong, 2 * MANY);
	CHECK(!memcmp(in, out, 2 * MANY * (size + 1)), "bytes");
	CHECK(!p->a.ch.match.bytes && !p->b.ch.match.bytes, "still held");
	CHECK(!tag_flush(&p->a.ch, LONG_MS), "flush");
	CHECK(!tag_flush(&p->b.ch, LONG_MS), "flush");
	printf("many of %llu: %llu waited for credit, %llu left in the ring, "
	       "%llu credits written\n",
	       (unsigned long long)size,
	       (unsigned long long)p->a.ch.counts.out_of_credits,
	       (unsigned long long)p->b.ch.counts.left_in_ring,
	       (unsigned long long)p->b.ch.counts.credit_writes);
	close_pair(p);
	free(s);
	free(r);
	free(out);
	free(in);
}

static void test_many(struct pair *p)
{
	many(p, 40, (struct tag_limits){ 0 });
	many(p, 40, (struct tag_limits){ .max_unexpected = 5 });
	many(p, 40, (struct tag_limits){ .max_bytes = 2000 });
	many(p, 300, (struct tag_limits){ .eager_max = 100 });
	many(p, 300,
	     (struct tag_limits){ .eager_max = 100, .max_unexpected = 5 });
}

/* Two messages, 100 bytes: neither more. */
static void test_limits(struct pair *p)
{
	struct tag_message m[] = {
		{ .held = 60 }, { .held = 41 }, { .held = 40 }, { 0 }
	};
	struct tag_match match;

	(void)p;
	tag_match_init(&match, 2, 100);
	CHECK(!tag_match_keep(&match, &m[0]), "60 bytes");
	CHECK(tag_match_keep(&match, &m[1]) == -ENOBUFS, "101 bytes");
	CHECK(!tag_match_keep(&match, &m[2]), "100 bytes");
	CHECK(tag_match_keep(&match, &m[3]) == -ENOBUFS, "a third");
}

/* Small ones may not overtake large ones that wait for an id, and so on. */
static void test_order(struct pair *p)
{
	struct tag_request s[MANY], r;
	char *data = memory(500), *in = memory(500);
	uint64_t length;

	open_pair(p, (struct tag_limits){ .eager_max = 100 });
	for (unsigned int i = 0; i < MANY; i++)
		tag_send(&p->a.ch, &s[i], data, i % 3 ? 101 + i : i / 3, 7);
	settle(p);
	for (unsigned int i = 0; i < MANY; i++) {
		length = i % 3 ? 101 + i : i / 3;
		tag_recv(&p->b.ch, &r, in, 500, 7, i % 2 ? TAG_EXACT : TAG_ANY);
		finish(p, &r);
		CHECK(!r.status && r.length == length, "%u: %llu bytes", i,
		      (unsigned long long)r.length);
		if (r.status)
			break;
	}
	close_pair(p);
	free(data);
	free(in);
}

/* One way only, for long: credits come back by RDMA WRITE and nothing else. */
static void test_one_way(struct pair *p)
{
	struct tag_request s, r;
	unsigned int n = 0;
	char byte = 0;

	open_pair(p, (struct tag_limits){ 0 });
	for (; tag_has_slot(&p->a.ch); n++)
		tag_write_credits(&p->a.ch, false);
	CHECK(n == 64, "%u slots", n);
	for (n = 0; n < 1000; n++) {
		CHECK(!tag_recv(&p->b.ch, &r, &byte, 1, n, TAG_EXACT), "recv");
		CHECK(!tag_send(&p->a.ch, &s, &byte, 1, n), "send");
		finish(p, &r);
		finish(p, &s);
		if (r.status || s.status)
			break;
	}
	CHECK(n == 1000, "%u", n);
	CHECK(p->b.ch.counts.credit_writes >= 1000 / TAG_DEPTH, "%llu",
	      (unsigned long long)p->b.ch.counts.credit_writes);
	CHECK(p->b.ch.counts.credit_writes <= 1000 / (TAG_DEPTH / 2), "%llu",
	      (unsigned long long)p->b.ch.counts.credit_writes);
	close_pair(p);
}

/* Without the peer's progress, which might give credits back. */
static void finish_alone(struct end *end, const struct tag_request *request,
			 int ms)
{
	int64_t deadline = deadline_in_ms(ms);

	while (request->status == -EINPROGRESS && !deadline_passed(deadline) &&
	       tag_progress(&end->ch) >= 0)
		;
}

/*
 * The byte with the credits was written long ago, all later ones came in headers:
 * modulo 256 it must never look like news.
 */
static void test_old_byte(struct pair *p)
{
	struct tag_request s, r, burst[2 * TAG_DEPTH];
	char byte = 0;
	int sent = 0;

	open_pair(p, (struct tag_limits){ 0 });
	for (unsigned int n = 0; n < 40 + 2 * 204; n++) {
		bool back = n >= 40 && n % 2;
		struct end *from = back ? &p->b : &p->a;
		struct end *to = back ? &p->a : &p->b;

		tag_recv(&to->ch, &r, &byte, 1, n, TAG_EXACT);
		tag_send(&from->ch, &s, &byte, 1, n);
		finish(p, &r);
		finish(p, &s);
	}
	settle(p);
	for (int i = 0; i < 2 * TAG_DEPTH; i++)
		tag_send(&p->a.ch, &burst[i], &byte, 1, 1);
	finish_alone(&p->a, &burst[TAG_DEPTH - 1], LONG_MS);
	finish_alone(&p->a, &burst[TAG_DEPTH], 300);
	for (int i = 0; i < 2 * TAG_DEPTH; i++)
		sent += !burst[i].status;
	CHECK(sent == TAG_DEPTH, "%d messages went out", sent);
	close_pair(p);
}

/* ---- ends that are not good ----------------------------------------------- */

/* Nobody acknowledges; and B, which would give credits back, does nothing. */
static void test_flush(struct pair *p)
{
	struct tag_request s[2 * TAG_DEPTH];
	char byte = 0;

	open_pair(p, (struct tag_limits){ 0 });
	modify_qp_to_reset(&p->b.res);
	tag_send(&p->a.ch, &s[0], &byte, 1, 1);
	CHECK(tag_flush(&p->a.ch, 300) < 0, "nobody was there");
	close_pair(p);
	open_pair(p, (struct tag_limits){ 0 });
	for (int i = 0; i < 2 * TAG_DEPTH; i++)
		tag_send(&p->a.ch, &s[i], &byte, 1, 1);
	CHECK(tag_flush(&p->a.ch, 300) == -ETIMEDOUT, "messages wait");
	close_pair(p);
}

static void test_cancel(struct pair *p)
{
	struct tag_request r, s;
	struct tag_message m;
	char text[8] = "";
	char *big = memory(10000);

	open_pair(p, (struct tag_limits){ 0 });
	tag_recv(&p->b.ch, &r, text, sizeof(text), 1, TAG_EXACT);
	CHECK(tag_cancel(&p->b.ch, &r) && r.status == -ECANCELED, "posted");
	CHECK(!tag_cancel(&p->b.ch, &r), "twice");
	tag_send(&p->a.ch, &s, "two", 4, 1);
	arrive(p, &p->b, 1);
	CHECK(!text[0], "a cancelled receive got a message");
	CHECK(tag_probe(&p->b.ch, 1, TAG_EXACT, &m) == 1 && m.length == 4,
	      "probe");
	CHECK(tag_probe(&p->b.ch, 2, TAG_EXACT, &m) == 0, "probe");
	tag_recv(&p->b.ch, &r, text, sizeof(text), 1, TAG_EXACT);
	CHECK(!r.status && !strcmp(text, "two"), "%d", r.status);
	CHECK(!tag_cancel(&p->b.ch, &r), "done");
	for (unsigned int i = 0; i < 30; i++)
		tag_send(&p->a.ch, &s, "two", 4, 1);
	arrive(p, &p->b, 31);
	/* A wait that ends takes the receive back, and the channel goes on. */
	tag_recv(&p->b.ch, &r, text, sizeof(text), 3, TAG_EXACT);
	CHECK(tag_wait(&p->b.ch, &r, 50) == -ETIMEDOUT, "%d", r.status);
	CHECK(!p->b.ch.match.n_posted, "still posted");
	one_size(p, 12, true);
	/* Not so once the peer has been told where the message lies. */
	tag_send(&p->a.ch, &s, big, 10000, 9);
	CHECK(tag_wait(&p->a.ch, &s, 50) == -ETIMEDOUT, "%d", s.status);
	CHECK(p->a.ch.failed == -ETIMEDOUT && !s.mr, "the channel lives on");
	CHECK(tag_send(&p->a.ch, &s, text, 1, 1) == -ETIMEDOUT, "a send");
	close_pair(p);
	free(big);
}

/* Memory that cannot be registered fails one request, not the connection. */
static void test_bad_memory(struct pair *p)
{
	char *good = memory(1 << 16), *hole;
	struct tag_request r, s;

	open_pair(p, (struct tag_limits){ 0 });
	hole = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	munmap(hole, 1 << 16); /* nothing is mapped there now */
	CHECK(tag_send(&p->a.ch, &s, hole, 1 << 16, 1) < 0, "%d", s.status);
	CHECK(!p->a.ch.failed && !p->a.ch.rendezvous[0], "the channel");
	tag_recv(&p->b.ch, &r, hole, 1 << 16, 2, TAG_EXACT);
	tag_send(&p->a.ch, &s, good, 1 << 16, 2);
	finish(p, &s);
	finish(p, &r);
	CHECK(r.status < 0 && r.status != -EINPROGRESS, "%d", r.status);
	CHECK(!s.status, "%d", s.status);
	CHECK(tag_send(&p->a.ch, &s, good, MAX_MSG_SIZE + UINT64_C(1), 3) ==
		      -EMSGSIZE,
	      "%d", s.status);
	one_size(p, 1 << 16, false);
	close_pair(p);
	free(good);
}

/* A closes while everything is under way: all ends, nothing hangs or leaks. */
static void test_close_early(struct pair *p)
{
	struct tag_request s[3 * TAG_DEPTH], r[3];
	char *data = memory(MIB);
	int wrong = 0;

	open_pair(p, (struct tag_limits){ .max_unexpected = 4 });
	tag_recv(&p->b.ch, &r[0], data, MIB, 1000, TAG_EXACT);
	tag_recv(&p->a.ch, &r[1], data, MIB, 1001, TAG_EXACT);
	for (unsigned int i = 0; i < 3 * TAG_DEPTH; i++)
		tag_send(&p->a.ch, &s[i], data, i % 3 ? 100 : MIB, i);
	settle(p);
	tag_recv(&p->b.ch, &r[2], data, MIB, 0, TAG_EXACT);
	tag_progress(&p->b.ch); /* its READs are posted */
	close_pair(p);
	for (unsigned int i = 0; i < 3 * TAG_DEPTH; i++)
		wrong += s[i].status && s[i].status != -ECANCELED;
	CHECK(!wrong, "%d sends", wrong);
	for (int i = 0; i < 3; i++)
		CHECK(r[i].status == -ECANCELED, "receive %d: %d", i,
		      r[i].status);
	free(data);
}

/* Nothing is under way but one receive: not begun, being read, or refused. */
static void test_close_one(struct pair *p)
{
	static const struct {
		uint64_t tag, size;
	} receives[] = { { 2, MIB }, { 1, MIB }, { 1, MIB - 1 } };
	char *out = memory(MIB), *in = memory(MIB);
	struct tag_request s, r;

	for (int i = 0; i < 3; i++) {
		open_pair(p, (struct tag_limits){ 0 });
		tag_send(&p->a.ch, &s, out, MIB, 1);
		arrive(p, &p->b, 1);
		tag_recv(&p->b.ch, &r, in, receives[i].size, receives[i].tag,
			 TAG_EXACT);
		close_pair(p);
		CHECK(r.status == -ECANCELED && !r.mr, "%d: %d", i, r.status);
		CHECK(s.status == -ECANCELED && !s.mr, "%d: %d", i, s.status);
	}
	free(out);
	free(in);
}

/* A message can be read until the next one has been fetched, and then no more. */
static void test_late_read(struct pair *p)
{
	char *out = memory(MIB), *in = memory(MIB);
	struct tag_request s, r[2];

	open_pair(p, (struct tag_limits){ 0 });
	for (int i = 0; i < 2; i++) {
		tag_recv(&p->b.ch, &r[i], in, MIB, i, TAG_EXACT);
		tag_send(&p->a.ch, &s, out, MIB, i);
		finish(p, &s);
		settle(p);
		CHECK(read_again(p, &r[i]) == IBV_WC_SUCCESS, "%d", i);
	}
	CHECK(read_again(p, &r[0]) == IBV_WC_REM_ACCESS_ERR, "the first");
	close_pair(p);
	free(out);
	free(in);
}

/* ---- a peer that lies ----------------------------------------------------- */

struct lie {
	struct tag_header head;
	uint64_t addr;
	uint32_t rkey;
	uint32_t bytes; /* sent */
	int expected;
};

/* What B says when A sends @lie; every request of B's must end with that. */
static void tell(struct pair *p, const struct lie *lie)
{
	struct tag_request r, s;
	int64_t deadline = deadline_in_ms(LONG_MS);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	char *data = memory(MIB);
	uint32_t slot;
	int rc = 0;

	open_pair(p, (struct tag_limits){ 0 });
	tag_recv(&p->b.ch, &r, data, MIB, 77, TAG_EXACT);
	tag_send(&p->b.ch, &s, data, MIB, 78);
	slot = tag_slot(&p->a.ch);
	memcpy(send_slot(&p->a.res, slot), lie, sizeof(struct tag_rts));
	CHECK(!post_send(&p->a.res, slot, lie->bytes, tag_mark(&p->a.ch, true)),
	      "post");
	while (rc >= 0 && !deadline_passed(deadline))
		rc = tag_progress(&p->b.ch);
	CHECK(rc == lie->expected, "protocol %u, %u bytes: %d",
	      lie->head.protocol, lie->bytes, rc);
	CHECK(r.status == rc && s.status == rc, "%d, %d", r.status, s.status);
	CHECK(!r.mr && !s.mr, "still registered");
	CHECK(!query_qp(&p->b.res, &attr) && attr.qp_state == IBV_QPS_ERR,
	      "the QP is in %d", attr.qp_state);
	CHECK(tag_recv(&p->b.ch, &r, data, 1, 1, 0) == rc, "a receive");
	close_pair(p);
	CHECK(s.status == lie->expected, "ended twice: %d", s.status);
	free(data);
}

static void test_lies(struct pair *p)
{
	static const struct lie lies[] = {
		{ .bytes = 0, .expected = -EPROTO },
		{ .bytes = 15, .expected = -EPROTO },
		{ .head = { .protocol = 0 }, .bytes = 16, -EPROTO },
		{ .head = { .protocol = 9 }, .bytes = 16, -EPROTO },
		{ .head = { .protocol = TAG_EAGER, .length = 9 },
		  .bytes = 24,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_EAGER, .length = UINT32_MAX },
		  .bytes = 16,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_RTS, .length = 9 },
		  .bytes = 24,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_RTS, .length = 0 },
		  .bytes = 28,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_RTS, .length = MAX_MSG_SIZE + 1 },
		  .bytes = 28,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_FIN, .id = 5 },
		  .bytes = 16,
		  .expected = -EPROTO },
		{ .head = { .protocol = TAG_FIN, .id = 16 },
		  .bytes = 16,
		  .expected = -EPROTO },
		/* A key that is nobody's: B's READ is refused by A's device. */
		{ .head = { .tag = 77, .protocol = TAG_RTS, .length = 100 },
		  .addr = 4096,
		  .rkey = 0x1234567,
		  .bytes = 28,
		  .expected = -EIO },
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		tell(p, &lies[i]);
}

/* Old news, or credits that were never taken, change nothing. */
static void check_credits(struct tag_channel *ch, uint8_t known)
{
	for (unsigned int ahead = 0; ahead <= TAG_DEPTH; ahead++) {
		for (unsigned int i = 0; i < 256; i++) {
			uint8_t told = (uint8_t)(known + i);

			ch->returned = known;
			ch->sent = (uint8_t)(known + ahead);
			tag_take_credits(ch, told);
			CHECK(ch->returned == (i <= ahead ? told : known),
			      "%u ahead of %u, told %u", ahead, known, told);
		}
	}
}

static void test_false_credits(struct pair *p)
{
	struct tag_request s;
	char byte = 0;
	int sent = 0;

	open_pair(p, (struct tag_limits){ 0 });
	check_credits(&p->a.ch, 0);
	check_credits(&p->a.ch, 230);
	p->a.ch.sent = 0;
	p->a.ch.returned = 0;
	*recv_slot(&p->a.res, TAG_RING) = (char)200;
	do
		tag_send(&p->a.ch, &s, &byte, 1, 1);
	while (!s.status && ++sent < 1000);
	CHECK(sent == TAG_DEPTH, "%d messages went out", sent);
	close_pair(p);
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*run)(struct pair *p);
	} tests[] = {
		{ "sizes", test_sizes },
		{ "truncation", test_truncation },
		{ "random", test_random },
		{ "many", test_many },
		{ "limits", test_limits },
		{ "order", test_order },
		{ "one-way", test_one_way },
		{ "old-byte", test_old_byte },
		{ "flush", test_flush },
		{ "cancel", test_cancel },
		{ "bad-memory", test_bad_memory },
		{ "close-early", test_close_early },
		{ "close-one", test_close_one },
		{ "late-read", test_late_read },
		{ "lies", test_lies },
		{ "false-credits", test_false_credits },
	};
	static struct pair p;
	int ran = 0;

	if (argc < 3)
		return 2;
	device_a = argv[1];
	device_b = argv[2];
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		bool wanted = argc == 3;
		int before = failures;

		for (int a = 3; a < argc; a++)
			wanted |= !strcmp(argv[a], tests[i].name);
		if (!wanted)
			continue;
		fflush(stdout);
		fprintf(stderr, "== %s\n", tests[i].name);
		tests[i].run(&p);
		printf("%s %s\n", failures > before ? "FAILED" : "ok",
		       tests[i].name);
		ran++;
	}
	printf("%d tests, %d failures\n", ran, failures);
	return failures ? 1 : 0;
}
