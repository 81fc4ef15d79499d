// SPDX-License-Identifier: MIT
/*
 * unit_ring.c —— 一条消息来了多少个字节才算来了：从头、从尾、从中间，每一种半截都试
 */
#include "../unit.h"
#include "remote/ring.h"

#include <stdlib.h>
#include <string.h>

#define PLACE 128
#define DATA  100
#define TURN  5 /* 位置转过一圈 */

/* 位置后面还有位置：伸过去的长度，后面真有字节，crc 也对。*/
static unsigned char old[PLACE], new[PLACE], place[2 * PLACE];
static union {
	struct ring_message message;
	char bytes[2 * PLACE];
} copy;

static void make(unsigned char *at, uint64_t n, uint32_t length)
{
	struct ring_message *m = calloc(1, PLACE);

	memset(m->data, (int)('a' + n), length);
	ring_seal(m, n, length);
	memcpy(at, m, PLACE);
	free(m);
}

static bool taken(uint64_t n)
{
	return ring_take(place, PLACE, n, &copy.message);
}

/* 前 @from 个与后面的分属两条消息：只有全是新的，才算来了。*/
static void check_partial(void)
{
	const size_t all = sizeof(struct ring_message) + DATA;

	for (size_t cut = 0; cut < all; cut++) {
		memcpy(place, old, PLACE);
		memcpy(place, new, cut);
		CHECK(!taken(TURN), "the first %zu bytes", cut);
		memcpy(place, new, PLACE);
		memcpy(place, old, all - cut);
		CHECK(!taken(TURN), "the last %zu bytes", cut);
		memcpy(place, new, PLACE);
		place[cut] ^= 1;
		CHECK(!taken(TURN), "byte %zu is wrong", cut);
	}
	memcpy(place, new, PLACE);
	CHECK(taken(TURN), "all of it");
	CHECK(copy.message.length == DATA, "%u bytes", copy.message.length);
	CHECK(!taken(TURN - 1) && !taken(TURN + 1), "another number");
}

static void check_lengths(void)
{
	memset(place, 0, PLACE);
	CHECK(!taken(0), "an empty ring");
	for (uint32_t length = 0; length <= PLACE - sizeof(copy.message);
	     length++) {
		make(place, 0, length);
		CHECK(taken(0) && copy.message.length == length, "%u bytes",
		      length);
	}
	CHECK(ring_place_bytes(0) == 64 && ring_place_bytes(48) == 64 &&
		      ring_place_bytes(49) == 128,
	      "places");
}

/* crc 对，长度却伸到位置外面：生产者自己就可以这么写。*/
static void check_hostile_length(void)
{
	struct ring_message *m = calloc(1, 4 * PLACE);

	ring_seal(m, 0, PLACE);
	memcpy(place, m, PLACE);
	CHECK(!taken(0), "a length past the place");
	ring_seal(m, 0, PLACE - sizeof(*m) + 1);
	memcpy(place, m, sizeof(place));
	CHECK(!taken(0), "a length one byte past the place");
	m->length = UINT32_MAX;
	memcpy(place, m, PLACE);
	CHECK(!taken(0), "a length past everything");
	free(m);
}

static void check_credit(void)
{
	struct ring_credit credit = { 0 };
	uint64_t taken_now = 7;

	CHECK(!ring_credit_take(&credit, &taken_now) && taken_now == 7,
	      "none yet");
	credit = ring_credit_of(300);
	CHECK(ring_credit_take(&credit, &taken_now) && taken_now == 300,
	      "300, not %ju", (uintmax_t)taken_now);
	credit.taken = ring_credit_of(301).taken;
	CHECK(!ring_credit_take(&credit, &taken_now), "half of it");
}

int main(void)
{
	make(old, 0, DATA);
	make(new, TURN, DATA);
	check_partial();
	check_lengths();
	check_hostile_length();
	check_credit();
	return unit_result("ring");
}
