// SPDX-License-Identifier: MIT
/*
 * unit_line.c FILE —— 记录器写得出的，报告都读得回来
 *
 * 用 line.h 把两万行写进 FILE：每种整数类型的边界与随机值，文本是任意的字节。再用报告自
 * 己的 report_load 读：一行也不许拒绝，每个数都是原来的数；合法的 UTF-8，每个字节也是。
 * 快满的行，成员要么整个在，要么不在。
 */
#include "../../recorder/line.h"
#include "../../report/parts.h"
#include "../unit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LINES 20000u

/* 每种长度最小与最大的字符，和 JSON 要转义的。*/
static const char *const whole[] = {
	"\x01",
	"\x1f",
	" ",
	"~",
	"\x7f",
	"\"",
	"\\",
	"\xc2\x80",
	"\xdf\xbf",
	"\xe0\xa0\x80",
	"\xed\x9f\xbf",
	"\xee\x80\x80",
	"\xef\xbf\xbf",
	"\xf0\x90\x80\x80",
	"\xf4\x8f\xbf\xbf",
	"",
};
#define WHOLE (sizeof(whole) / sizeof(whole[0]))

struct values {
	int i;
	unsigned int u;
	int64_t l;
	uint64_t ul;
	uint16_t half;
	bool flag;
};

/* 三次里有一次在边界上。*/
static uint64_t some(void)
{
	static const uint64_t edges[] = { 0,
					  1,
					  9,
					  99,
					  INT_MAX,
					  1ull + INT_MAX,
					  UINT_MAX,
					  1ull << 53,
					  INT64_MAX,
					  1ull << 63,
					  UINT64_MAX - 1,
					  UINT64_MAX };
	uint64_t value = (uint64_t)mrand48() << 32 ^ (uint64_t)mrand48();

	return value % 3 ? value >> value % 64 : edges[value % 12];
}

static struct values some_values(void)
{
	return (struct values){ (int)some(),	  (unsigned int)some(),
				(int64_t)some(),  some(),
				(uint16_t)some(), some() % 2 };
}

static void write_line(FILE *out, uint64_t t, const struct values *v)
{
	char text[300];
	struct line line;
	size_t n = some() % sizeof(text);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(some() % 255 + 1);
	text[n] = '\0';
	line_start(&line, "warning");
	LINE_NUMBER(&line, "t", t);
	LINE_NUMBER(&line, "i", v->i);
	LINE_NUMBER(&line, "u", v->u);
	LINE_NUMBER(&line, "l", v->l);
	LINE_NUMBER(&line, "ul", v->ul);
	LINE_NUMBER(&line, "half", v->half);
	LINE_NUMBER(&line, "flag", v->flag);
	LINE_TEXT(&line, "text", text);
	fprintf(out, "{%.*s}\n", (int)line.used, line.text);
}

static int64_t number(const json_t *line, const char *key)
{
	json_t *value = json_object_get(line, key);

	CHECK(json_is_integer(value), "%s is a number", key);
	return json_integer_value(value);
}

static void compare(json_t *line, const struct values *v)
{
	const char *hex = text_in(line, "ul");

	CHECK(number(line, "i") == v->i, "%d", v->i);
	CHECK(number(line, "u") == v->u, "%u", v->u);
	CHECK(number(line, "l") == v->l, "%" PRId64, v->l);
	CHECK(number(line, "half") == v->half, "%d", v->half);
	CHECK(number(line, "flag") == v->flag, "%d", v->flag);
	CHECK((*hex ? strtoull(hex, NULL, 16) : number_in(line, "ul")) == v->ul,
	      "%" PRIu64, v->ul);
	CHECK(json_is_string(json_object_get(line, "text")), "text");
	json_decref(line);
}

static void write_whole(FILE *out, uint64_t t, const char *text)
{
	struct line line;

	line_start(&line, "warning");
	LINE_NUMBER(&line, "t", t);
	LINE_TEXT(&line, "text", text);
	fprintf(out, "{%.*s}\n", (int)line.used, line.text);
}

#define TAIL 40
#define FULL (TAIL + 1u)

/* 只剩 TAIL 个字节的行，再放一个 @n 字节的。堆上的：越界由 ASan 来抓。*/
static void write_full(FILE *out, uint64_t t, size_t n, bool is_word)
{
	struct line *line = malloc(sizeof(*line));
	char filler[LINE_SIZE], *text = calloc(1, n + 1);
	size_t before;

	memset(filler, 'f', sizeof(filler));
	memset(text, 'w', n);
	line_start(line, "warning");
	LINE_NUMBER(line, "t", t);
	before = LINE_SIZE - TAIL - line->used - strlen(",\"filler\":\"\"");
	filler[before] = '\0';
	LINE_WORD(line, "filler", filler);
	before = line->used;
	CHECK(before == LINE_SIZE - TAIL, "%zu", before);
	if (is_word)
		LINE_WORD(line, "w", text);
	else
		LINE_TEXT(line, "w", text);
	fprintf(out, "{%.*s}\n", (int)line->used, line->text);
	free(text);
	free(line);
}

/* ,"w": 和两个引号用掉 7 个字节。*/
static void check_full(json_t *line, size_t n)
{
	bool fits = 7 + n <= TAIL;
	json_t *text = json_object_get(line, "w");

	CHECK((text != NULL) == fits, "%zu bytes", n);
	CHECK(!text || json_string_length(text) == n, "%zu bytes", n);
	json_decref(line);
}

int main(int argc, char **argv)
{
	static struct values all[LINES];
	static struct report r;
	FILE *out = argc > 1 ? fopen(argv[1], "w") : NULL;

	if (!out)
		return 2;
	for (unsigned int i = 0; i < LINES; i++) {
		all[i] = some_values();
		write_line(out, i, &all[i]);
	}
	for (unsigned int i = 0; i < WHOLE; i++)
		write_whole(out, LINES + i, whole[i]);
	for (size_t i = 0; i < 2 * FULL; i++)
		write_full(out, LINES + WHOLE + i, i / 2, i % 2);
	fclose(out);
	CHECK(!report_load(&r, argv + 1, 1), "the report takes them");
	CHECK(r.count == LINES + WHOLE + 2 * FULL, "%zu of them", r.count);
	for (size_t i = 0; i < LINES; i++)
		compare(event_line(&r, &r.events[i]), &all[i]);
	for (size_t i = 0; i < WHOLE; i++) {
		json_t *line = event_line(&r, &r.events[LINES + i]);

		CHECK(!strcmp(text_in(line, "text"), whole[i]), "\"%s\"",
		      whole[i]);
		json_decref(line);
	}
	for (size_t i = 0; i < 2 * FULL; i++)
		check_full(event_line(&r, &r.events[LINES + WHOLE + i]), i / 2);
	return unit_result("unit_line");
}
