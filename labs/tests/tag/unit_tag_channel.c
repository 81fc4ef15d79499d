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
#include "tag/parts.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MS	  20000
#define QUIET_MS  50
#define MOST_TOLD 20
#define MANY	  300
#define MIB	  (1u << 20)

struct end {
	struct rdma_resources res;
	struct tag_channel ch;
};

struct pair {
	struct end a, b;
};

static int failures;
static const char *device_a, *device_b;

/* Of many failures the first ones are told. */
#define CHECK(good)                                               \
	do {                                                      \
		if (!(good) && ++failures <= MOST_TOLD)           \
			printf("line %d: %s\n", __LINE__, #good); \
	} while (0)

static void open_end(struct end *end, const char *device,
		     const struct tag_limits *limits)
{
	struct rdma_config config = { .device_name = device,
				      .gid_index = GID_INDEX_AUTO };

	tag_channel_config(&config, limits);
	if (init_rdma_resources(&end->res, &config) ||
	    modify_qp_to_init(&end->res) ||
	    tag_channel_open(&end->ch, &end->res, limits))
		exit(1);
}

static void open_pair(struct pair *p, struct tag_limits limits)
{
	struct tag_plan of_a, of_b;

	open_end(&p->a, device_a, &limits);
	open_end(&p->b, device_b, &limits);
	p->a.res.remote = cm_con_data_of(&p->b.res);
	p->b.res.remote = cm_con_data_of(&p->a.res);
	of_a = tag_channel_plan(&p->a.ch);
	of_b = tag_channel_plan(&p->b.ch);
	if (modify_qp_to_rtr(&p->a.res) || modify_qp_to_rtr(&p->b.res) ||
	    modify_qp_to_rts(&p->a.res) || modify_qp_to_rts(&p->b.res) ||
	    tag_channel_meet(&p->a.ch, &of_b) ||
	    tag_channel_meet(&p->b.ch, &of_a))
		exit(1);
}

static void close_pair(struct pair *p)
{
	CHECK(!tag_channel_close(&p->a.ch));
	CHECK(!tag_channel_close(&p->b.ch));
	CHECK(!destroy_rdma_resources(&p->a.res));
	CHECK(!destroy_rdma_resources(&p->b.res));
}

/* One step of both; false when the time is over or a channel has failed. */
static bool both(struct pair *p, int64_t deadline)
{
	int a = tag_progress(&p->a.ch), b = tag_progress(&p->b.ch);

	if (!a && !b)
		sched_yield(); /* to rxe's softirq */
	return a >= 0 && b >= 0 && !deadline_passed(deadline);
}

static void finish(struct pair *p, const struct tag_request *request)
{
	int64_t deadline = deadline_in_ms(LONG_MS);

	while (request->status == -EINPROGRESS && both(p, deadline))
		;
}

static uint64_t came(const struct end *end)
{
	return end->ch.counts.eager_received +
	       end->ch.counts.rendezvous_received;
}

/* Messages that were sent and have not come. */
static uint64_t under_way(const struct pair *p)
{
	const struct tag_counts *a = &p->a.ch.counts, *b = &p->b.ch.counts;

	return a->eager_sent + a->rendezvous_sent + b->eager_sent +
	       b->rendezvous_sent - came(&p->a) - came(&p->b);
}

/* Until all that was sent has come, and nothing more is sent for a while. */
static void settle(struct pair *p)
{
	int64_t deadline = deadline_in_ms(LONG_MS);
	int64_t quiet = deadline_in_ms(QUIET_MS);

	while (!deadline_passed(quiet) && both(p, deadline))
		if (under_way(p))
			quiet = deadline_in_ms(QUIET_MS);
}

static void arrive(struct pair *p, const struct end *at, uint64_t n)
{
	int64_t deadline = deadline_in_ms(LONG_MS);

	while (came(at) < n && both(p, deadline))
		;
	CHECK(came(at) == n);
}

static char *fill(char *data, uint64_t n, unsigned int seed)
{
	for (uint64_t i = 0; i < n; i++)
		data[i] = (char)(seed + i * 31 + (i >> 9));
	return data;
}

static char *memory(uint64_t n)
{
	char *data = calloc(1, n + 1);

	if (!data)
		exit(1);
	return data;
}

/* ---- good messages -------------------------------------------------------- */

/* @n bytes into a buffer of @room: all of them, or none if there is no room. */
static void one_size(struct pair *p, uint64_t n, uint64_t room,
		     bool receive_first)
{
	char *out = fill(memory(n), n, (unsigned int)n), *in = memory(n);
	int expected = room < n ? -EMSGSIZE : 0;
	uint64_t before = came(&p->b);
	struct tag_request s, r;

	if (receive_first)
		tag_recv(&p->b.ch, &r, in, room, n, TAG_EXACT);
	tag_send(&p->a.ch, &s, out, n, n);
	if (!receive_first) {
		arrive(p, &p->b, before + 1);
		tag_recv(&p->b.ch, &r, in, room, n, TAG_EXACT);
	}
	finish(p, &r);
	finish(p, &s);
	CHECK(r.status == expected && !s.status && r.length == n && r.tag == n);
	CHECK(expected ? !in[0] && !in[n - 1] : !memcmp(in, out, n));
	free(out);
	free(in);
}

static void test_sizes(struct pair *p)
{
	static const uint64_t sizes[] = {
		0, 1, 80, 81, 8191, 8192, 8193, MIB - 1, MIB + 1, 4 * MIB
	};

	open_pair(p, (struct tag_limits){ 0 });
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		one_size(p, sizes[i], sizes[i], i % 2);
	/* READs of 256 KiB: 16 for 4 MiB, 5 for 1 MiB + 1, and so on. */
	CHECK(p->b.ch.counts.reads == 16 + 5 + 4 + 1);
	close_pair(p);
}

static void test_truncation(struct pair *p)
{
	open_pair(p, (struct tag_limits){ 0 });
	for (int receive_first = 0; receive_first < 2; receive_first++) {
		one_size(p, 8191, 8190, receive_first);
		one_size(p, 8193, 8192, receive_first);
	}
	CHECK(!p->b.ch.counts.reads);
	one_size(p, 12, 12, true); /* and it goes on */
	close_pair(p);
}

/* Both directions at once, more than credits, slots and ids; tags in reverse. */
static void many(struct pair *p, uint64_t size, struct tag_limits limits)
{
	struct tag_request *s = calloc(2 * MANY, sizeof(*s));
	struct tag_request *r = calloc(2 * MANY, sizeof(*r));
	char *out = memory(2 * MANY * (size + 1));
	char *in = memory(2 * MANY * (size + 1));
	bool limited = limits.max_bytes || limits.max_unexpected;

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
	CHECK(!limits.max_bytes || p->b.ch.match.bytes <= limits.max_bytes);
	CHECK(!limited == !p->b.ch.counts.left_in_ring);
	/* The oldest first for a full ring, else the youngest. */
	for (unsigned int n = 0; n < 2 * MANY; n++) {
		unsigned int i = limits.max_unexpected ? n : 2 * MANY - 1 - n;

		tag_recv(i % 2 ? &p->b.ch : &p->a.ch, &r[i],
			 in + i * (size + 1), size, i, TAG_EXACT);
	}
	for (unsigned int i = 0; i < 2 * MANY; i++) {
		finish(p, &r[i]);
		finish(p, &s[i]);
		CHECK(!r[i].status && !s[i].status && r[i].length == size);
	}
	CHECK(!memcmp(in, out, 2 * MANY * (size + 1)));
	CHECK(!p->a.ch.match.bytes && !p->b.ch.match.bytes);
	CHECK(!tag_flush(&p->a.ch, LONG_MS));
	CHECK(!tag_flush(&p->b.ch, LONG_MS));
	CHECK(p->a.ch.counts.out_of_credits && p->b.ch.counts.credit_writes);
	close_pair(p);
	free(s);
	free(r);
	free(out);
	free(in);
}

static void test_many(struct pair *p)
{
	many(p, 40, (struct tag_limits){ 0 });
	many(p, 40, (struct tag_limits){ .max_bytes = 2000 });
	many(p, 300,
	     (struct tag_limits){ .eager_max = 100, .max_unexpected = 5 });
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
		CHECK(!r.status && r.length == length);
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
	CHECK(n == 64);
	for (n = 0; n < 1000; n++) {
		CHECK(!tag_recv(&p->b.ch, &r, &byte, 1, n, TAG_EXACT));
		CHECK(!tag_send(&p->a.ch, &s, &byte, 1, n));
		finish(p, &r);
		finish(p, &s);
		if (r.status || s.status)
			break;
	}
	CHECK(n == 1000);
	CHECK(p->b.ch.counts.credit_writes >= 1000 / TAG_DEPTH);
	CHECK(p->b.ch.counts.credit_writes <= 1000 / (TAG_DEPTH / 2));
	close_pair(p);
}

/*
 * The byte with the credits was written long ago, all later ones came in headers:
 * modulo 256 it must never look like news.
 */
static void test_old_byte(struct pair *p)
{
	struct tag_request s, r, burst[2 * TAG_DEPTH];
	int64_t deadline;
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
	/* Without B's progress, which might give credits back. */
	deadline = deadline_in_ms(LONG_MS);
	while (burst[TAG_DEPTH - 1].status && !deadline_passed(deadline))
		tag_progress(&p->a.ch);
	deadline = deadline_in_ms(300);
	while (!deadline_passed(deadline))
		tag_progress(&p->a.ch);
	for (int i = 0; i < 2 * TAG_DEPTH; i++)
		sent += !burst[i].status;
	CHECK(sent == TAG_DEPTH);
	close_pair(p);
}

/* ---- ends that are not good ----------------------------------------------- */

static void test_cancel(struct pair *p)
{
	struct tag_request r, s;
	struct tag_message m;
	char text[8] = "";
	char *big = memory(10000);

	open_pair(p, (struct tag_limits){ 0 });
	tag_recv(&p->b.ch, &r, text, sizeof(text), 1, TAG_EXACT);
	CHECK(tag_cancel(&p->b.ch, &r) && r.status == -ECANCELED);
	tag_send(&p->a.ch, &s, "two", 4, 1);
	arrive(p, &p->b, 1);
	CHECK(!text[0]);
	CHECK(tag_probe(&p->b.ch, 1, TAG_EXACT, &m) == 1 && m.length == 4);
	/* A wait that ends takes the receive back, and the channel goes on. */
	tag_recv(&p->b.ch, &r, text, sizeof(text), 3, TAG_EXACT);
	CHECK(tag_wait(&p->b.ch, &r, 50) == -ETIMEDOUT);
	CHECK(!p->b.ch.match.n_posted);
	one_size(p, 12, 12, true);
	/* Not so once the peer has been told where the message lies. */
	tag_send(&p->a.ch, &s, big, 10000, 9);
	CHECK(tag_wait(&p->a.ch, &s, 50) == -ETIMEDOUT);
	CHECK(p->a.ch.failed == -ETIMEDOUT && !s.mr);
	CHECK(tag_send(&p->a.ch, &s, text, 1, 1) == -ETIMEDOUT);
	close_pair(p);
	free(big);
}

/* ---- a peer that lies ----------------------------------------------------- */

struct lie {
	uint8_t protocol;
	uint32_t length;
	uint16_t id;
	uint32_t bytes; /* sent */
	int expected;
};

/* What B says when A sends @lie; every request of B's must end with that. */
static void tell(struct pair *p, const struct lie *lie)
{
	/* A key that is nobody's: B's READ is refused by A's device. */
	const struct tag_rts rts = { .head = { .tag = 77,
					       .length = lie->length,
					       .id = lie->id,
					       .protocol = lie->protocol },
				     .addr = 4096,
				     .rkey = 0x1234567 };
	int64_t deadline = deadline_in_ms(LONG_MS);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	char *data = memory(MIB);
	struct tag_request r, s;
	uint32_t slot;
	int rc = 0;

	open_pair(p, (struct tag_limits){ 0 });
	tag_recv(&p->b.ch, &r, data, MIB, 77, TAG_EXACT);
	tag_send(&p->b.ch, &s, data, MIB, 78);
	slot = tag_slot(&p->a.ch);
	memcpy(send_slot(&p->a.res, slot), &rts, sizeof(rts));
	CHECK(!post_send(&p->a.res, slot, lie->bytes,
			 tag_mark(&p->a.ch, true)));
	while (rc >= 0 && !deadline_passed(deadline))
		rc = tag_progress(&p->b.ch);
	CHECK(rc == lie->expected);
	CHECK(r.status == rc && s.status == rc);
	CHECK(!r.mr && !s.mr);
	CHECK(!query_qp(&p->b.res, &attr) && attr.qp_state == IBV_QPS_ERR);
	CHECK(tag_recv(&p->b.ch, &r, data, 1, 1, 0) == rc);
	close_pair(p);
	CHECK(s.status == lie->expected);
	free(data);
}

static void test_lies(struct pair *p)
{
	static const struct lie lies[] = {
		{ 0, 0, 0, 0, -EPROTO },
		{ 0, 0, 0, 15, -EPROTO },
		{ 9, 0, 0, 16, -EPROTO },
		{ TAG_EAGER, 9, 0, 24, -EPROTO },
		{ TAG_EAGER, UINT32_MAX, 0, 16, -EPROTO },
		{ TAG_RTS, 9, 0, 24, -EPROTO },
		{ TAG_RTS, 0, 0, 28, -EPROTO },
		{ TAG_RTS, MAX_MSG_SIZE + 1, 0, 28, -EPROTO },
		{ TAG_FIN, 0, 5, 16, -EPROTO },
		{ TAG_FIN, 0, 16, 16, -EPROTO },
		{ TAG_RTS, 100, 0, 28, -EIO },
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		tell(p, &lies[i]);
}

/* Old news, and credits that were never taken, change nothing. */
static void test_false_credits(struct pair *p)
{
	const uint8_t known = 230, ahead = 40;
	struct tag_channel *ch = &p->a.ch;

	open_pair(p, (struct tag_limits){ 0 });
	for (unsigned int i = 0; i < 256; i++) {
		ch->returned = known;
		ch->sent = (uint8_t)(known + ahead);
		tag_take_credits(ch, (uint8_t)(known + i));
		CHECK(ch->returned == (uint8_t)(known + (i > ahead ? 0 : i)));
	}
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
		{ "many", test_many },
		{ "order", test_order },
		{ "one-way", test_one_way },
		{ "old-byte", test_old_byte },
		{ "cancel", test_cancel },
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

		for (int a = 3; a < argc; a++)
			wanted |= !strcmp(argv[a], tests[i].name);
		if (!wanted)
			continue;
		printf("%s\n", tests[i].name);
		tests[i].run(&p);
		ran++;
	}
	printf("%d tests, %d failures\n", ran, failures);
	return failures ? 1 : 0;
}
