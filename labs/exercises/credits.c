// SPDX-License-Identifier: MIT
/*
 * credits.c —— 只问 credit.c 的账：不经设备，一行一个答案，"名字 值"
 *
 * 计数都模 256，所以每一问都在 0 附近与绕回之处各问一遍。对错由评分器判断。
 */
#include "tag/parts.h"

#include <stdio.h>
#include <string.h>

static char memory[TAG_RING + 1];
static struct rdma_resources res;

/* 一个发了 @sent 条、知道还回了 @returned 条的 channel；信箱里是 @mail。*/
static struct tag_channel after(uint8_t sent, uint8_t returned, uint8_t mail)
{
	memory[TAG_RING] = (char)mail;
	return (struct tag_channel){ .res = &res,
				     .sent = sent,
				     .returned = returned };
}

static void take(const char *name, uint8_t sent, uint8_t returned, uint8_t told)
{
	struct tag_channel ch = after(sent, returned, returned);

	tag_take_credits(&ch, told);
	printf("%s %u\n", name, ch.returned);
}

static void has(const char *name, uint8_t sent, uint8_t returned, uint8_t mail)
{
	struct tag_channel ch = after(sent, returned, mail);
	bool yes = tag_has_credit(&ch);

	printf("%s %d %u\n", name, yes, ch.returned);
}

static void owes(const char *name, uint8_t consumed, uint8_t told,
		 uint32_t in_ring)
{
	const struct tag_channel ch = { .consumed = consumed,
					.told = told,
					.n_in_ring = in_ring };

	printf("%s %d\n", name, tag_owes_credits(&ch));
}

static void old(const char *name, uint8_t consumed, uint8_t written)
{
	const struct tag_channel ch = { .consumed = consumed,
					.written = written };

	printf("%s %d\n", name, tag_credits_are_old(&ch));
}

int main(void)
{
	res.buf = memory;
	res.slot_size = 1;
	res.msg_size = 1;
	res.recv_slots = TAG_RING + 1;
	take("forward", 10, 4, 7);
	take("all", 10, 4, 10);
	take("same", 10, 4, 4);
	take("stale", 10, 4, 3);
	take("stale-wrapped", 3, 1, 254);
	take("false", 10, 4, 11);
	take("false-far", 10, 4, 100);
	take("wrapped", 3, 250, 1);
	has("free", 63, 0, 0);
	has("full", 64, 0, 0);
	has("full-wrapped", 20, 212, 212);
	has("mail", 64, 0, 2);
	has("mail-wrapped", 20, 212, 3);
	has("mail-stale", 74, 10, 9);
	owes("owes-little", TAG_DEPTH / 2 - 1, 0, 0);
	owes("owes-half", TAG_DEPTH / 2, 0, 0);
	owes("owes-wrapped", 10, 10 - TAG_DEPTH / 2 + 256, 0);
	owes("owes-pressed", 1, 0, 1);
	owes("owes-nothing", 5, 5, 3);
	old("fresh", TAG_DEPTH - 1, 0);
	old("old", TAG_DEPTH, 0);
	old("old-wrapped", 10, 10 - TAG_DEPTH + 256);
	old("fresh-wrapped", 10, 10 - TAG_DEPTH + 257);
	return 0;
}
