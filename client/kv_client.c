// SPDX-License-Identifier: MIT
/*
 * kv_client.c —— 远端的 key-value store：server 只借内存，找、读、写都在这一头
 *
 * 读与写的道理在 common/remote/kv.c。这里是它的用户：存一个，取一个，或者存取很多次，
 * 每个取回来的值都核对——不是用 kv.c 自己的 crc，而是值的内容本身：值由一个数（种子）
 * 生成，种子里有 key 的号码，谁写的都认得出来；版本也不许倒退。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/pattern.h"
#include "base/report.h"
#include "remote/kv.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MOST 4096

struct kv_options {
	struct rdma_options where;
	const char *key;
	const char *value; /* to put; NULL: get */
	uint64_t rounds;
	uint32_t keys;
	uint32_t puts; /* percent */
	bool count;
};

struct outcome {
	uint64_t gets, puts;
	uint32_t seen[KEYS_MOST]; /* the version of each key so far */
};

#define USAGE "usage: kv_client [options] <server_ip> " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] =
	USAGE "\n\n"
	      "A key-value store in the memory of memory_server, whose program "
	      "takes no part.\n"
	      "It finds keys by READ, puts them by CMP_SWAP and WRITE, and "
	      "checks each value.\n"
	      "A client may be killed at any moment: the value that it was "
	      "about to replace\n"
	      "stays, and its lock is free again when the server has destroyed "
	      "its QP. Nobody\n"
	      "knows whether its last put was done. Keys cannot be deleted; "
	      "they are lost when\n"
	      "the server ends.\n\n"
	      "  server_ip          where memory_server runs\n" DEVICE_HELP;
static const char tail[] =
	"\nExit code: 0 done, 1 failed or no such key, 2 wrong usage.\n";

static int complete_options(const struct kv_options *opt)
{
	if (!opt->key == !(opt->rounds || opt->count) ||
	    (opt->value && !opt->key))
		return wrong_usage(usage,
				   "one of --key, --rounds, --count is needed",
				   NULL);
	if (opt->key && (!*opt->key || strlen(opt->key) > KV_KEY_MOST))
		return wrong_usage(usage, "--key is not 1 ... 31 bytes long",
				   opt->key);
	return -1;
}

static int parse(struct kv_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'k', "key", "KEY", "get the value of KEY", TEXT(opt->key) },
		{ 'p', "put", "VALUE", "put VALUE there", TEXT(opt->value) },
		{ 'n', "rounds", "N", "get or put N times, and check all of it",
		  NUMBER(opt->rounds, 0, 1, UINT32_MAX) },
		{ 'K', "keys", "N", "--rounds: of N keys, 1 ... # (default: @)",
		  NUMBER(opt->keys, 8, 1, KEYS_MOST) },
		{ 'w', "puts", "PERCENT",
		  "--rounds: so many are puts (default: @)",
		  NUMBER(opt->puts, 50, 0, 100) },
		{ 'c', "count", NULL, "count the keys and their versions",
		  FLAG(opt->count) },
		{ EVENTS(opt->where.config.events) },
		{ 't', "timeout", "SECS",
		  "limit of every wait, also for a lock\n(default: 10 for the "
		  "server, 5 for all others)",
		  SECONDS(opt->where.timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->where.json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct kv_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = options_server(&opt->where, usage, argc, argv);
	return rc < 0 ? complete_options(opt) : rc;
}

/* ---- 一个 key ---------------------------------------------------------------- */

static int get_one(struct kv *kv, const char *key, char *value)
{
	uint32_t length, version;
	char text[256];
	int rc = kv_get(kv, key, value, &length, &version);

	if (rc == -ENOENT)
		return fail(rc, NULL, "there is no key \"%s\"", key);
	if (!rc)
		report_result("%s", printable_text(text, sizeof(text), value,
						   length));
	return rc;
}

/* ---- 很多次，全部核对 --------------------------------------------------------- */

static const char *key_name(char name[KV_KEY_MOST + 1], uint32_t key)
{
	snprintf(name, KV_KEY_MOST + 1, "key-%u", key);
	return name;
}

/* 种子的低 16 位是 key 的号码；值的头 8 个字节是种子，其余由它生成。*/
static int verify(const struct kv *kv, uint32_t key, const char *value,
		  uint32_t length)
{
	uint64_t seed = 0;

	if (length == kv_value_most(kv)) {
		memcpy(&seed, value, sizeof(seed));
		length -= (uint32_t)sizeof(seed);
		if ((seed & 0xffff) == key &&
		    pattern_first_wrong(value + sizeof(seed), length, seed) ==
			    length)
			return 0;
	}
	return fail(-EBADMSG, NULL,
		    "key-%u has a wrong value: %u bytes, seed 0x%jx", key,
		    length, (uintmax_t)seed);
}

static int see_version(struct outcome *out, uint32_t key, uint32_t version,
		       bool newer)
{
	const uint32_t last = out->seen[key];

	if (version < last || (newer && version == last))
		return fail(-EBADMSG, NULL,
			    "key-%u went from version %u back to %u", key, last,
			    version);
	out->seen[key] = version;
	return 0;
}

static int put_checked(struct kv *kv, uint32_t key, char *value,
		       struct outcome *out)
{
	const uint32_t length = kv_value_most(kv);
	const uint64_t seed =
		key | out->puts << 16 | (uint64_t)kv->memory->number << 48;
	char name[KV_KEY_MOST + 1];
	uint32_t version;
	int rc;

	memcpy(value, &seed, sizeof(seed));
	pattern_fill(value + sizeof(seed), length - sizeof(seed), seed);
	rc = kv_put(kv, key_name(name, key), value, length, &version);
	out->puts += !rc;
	return rc ? rc : see_version(out, key, version, true);
}

static int get_checked(struct kv *kv, uint32_t key, char *value,
		       struct outcome *out)
{
	char name[KV_KEY_MOST + 1];
	uint32_t length, version;
	int rc = kv_get(kv, key_name(name, key), value, &length, &version);

	if (rc == -ENOENT)
		return out->seen[key] ? fail(rc, NULL, "key-%u is gone", key)
				      : 0;
	out->gets += !rc;
	if (!rc)
		rc = verify(kv, key, value, length);
	return rc ? rc : see_version(out, key, version, false);
}

static int many(struct kv *kv, const struct kv_options *opt, char *value,
		struct outcome *out)
{
	/* 每个 client 一串自己的、可重来的随机数。*/
	unsigned int random = kv->memory->number;
	int rc = 0;

	for (uint64_t i = 0; i < opt->rounds && !rc; i++) {
		uint32_t key = (uint32_t)rand_r(&random) % opt->keys;
		bool put = (uint32_t)rand_r(&random) % 100 < opt->puts;

		rc = put ? put_checked(kv, key, value, out)
			 : get_checked(kv, key, value, out);
		if (!rc && stop_requested())
			rc = wait_failed(-EINTR, "%s", "getting and putting");
	}
	return rc;
}

/* ---- 从头到尾 --------------------------------------------------------------- */

static int print_many(const struct kv_options *opt, const struct kv *kv,
		      const struct outcome *out)
{
	if (opt->where.json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I, s:I, s:I, s:I}", "role", "kv_client",
			"puts", (json_int_t)out->puts, "gets",
			(json_int_t)out->gets, "torn", (json_int_t)kv->torn,
			"overtaken", (json_int_t)kv->overtaken, "waits",
			(json_int_t)kv->memory->lock_waits));
	report_result("%ju puts, %ju gets, all values right; %ju READs were "
		      "torn and %ju overtaken, and done again",
		      out->puts, out->gets, kv->torn, kv->overtaken);
	return report_flush();
}

static int print_count(const struct kv_options *opt, struct kv *kv)
{
	uint64_t keys, puts;
	int rc = kv_count(kv, &keys, &puts);

	if (rc)
		return rc;
	if (opt->where.json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I}", "role", "kv_client", "keys",
			(json_int_t)keys, "puts", (json_int_t)puts));
	report_result("%ju keys, put %ju times", keys, puts);
	return report_flush();
}

static int use(struct kv *kv, const struct kv_options *opt)
{
	char *value = malloc(kv_value_most(kv));
	struct outcome out = { 0 };
	uint32_t version;
	int rc = 0;

	if (!value)
		return no_memory_for_buffer(kv_value_most(kv));
	if (opt->value)
		rc = kv_put(kv, opt->key, opt->value,
			    (uint32_t)strlen(opt->value), &version);
	else if (opt->key)
		rc = get_one(kv, opt->key, value);
	if (opt->rounds)
		rc = many(kv, opt, value, &out);
	if (opt->rounds && !rc)
		rc = print_many(opt, kv, &out);
	if (opt->count && !rc)
		rc = print_count(opt, kv);
	free(value);
	return rc;
}

int main(int argc, char *argv[])
{
	struct remote_memory memory = { 0 };
	struct kv kv = { .memory = &memory };
	struct kv_options opt;
	int rc, undo;

	setlocale(LC_CTYPE, "");
	rc = parse(&opt, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	report_step("connect to the server of the memory");
	rc = memory_open(&memory, &opt.where);
	if (!rc) {
		report_step("READ, CMP_SWAP and WRITE in its memory");
		rc = use(&kv, &opt);
	}
	undo = memory_close(&memory);
	return rc || undo ? 1 : 0;
}
