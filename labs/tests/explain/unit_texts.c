// SPDX-License-Identifier: MIT
/*
 * unit_texts.c —— texts.def 的每一行：两种语言都有，转换相同，译得出来
 *
 *	unit_texts            检查每一行
 *	unit_texts --list     每行一个英文格式串，给 test_texts.sh 去和源代码比
 *	unit_texts --causes   每行一个 "id<TAB>英文格式串"
 *	unit_texts --page     页面上的话
 *	unit_texts LINE…      各译成中文
 */
#include "explain/explain.h"
#include "labs/tests/unit.h"

#include <stdlib.h>
#include <string.h>

#define MOST 16

/* 第 n 个转换是什么："d"、"llu"…；"%2$s" 算第 2 个。返回个数，-1 是写错了。*/
static int conversions(const char *format, char out[MOST][8])
{
	int n = 0;

	memset(out, 0, MOST * sizeof(out[0]));
	for (; *format; format++) {
		const char *begin = format + 1, *end;
		int at = n;

		if (*format != '%')
			continue;
		if (*begin == '%') {
			format++;
			continue;
		}
		if (begin[0] >= '1' && begin[0] <= '9' && begin[1] == '$') {
			at = begin[0] - '1';
			begin += 2;
		}
		end = begin + strspn(begin, "-.0123456789hljz");
		if (!*end || !strchr("diuxcspf", *end) || at >= MOST ||
		    out[at][0] || end - begin > 6)
			return -1;
		memcpy(out[at], begin, (size_t)(end - begin) + 1);
		format = end;
		n++;
	}
	return n;
}

static bool has_han(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text >= 0xe3)
			return true;
	return false;
}

/* 每个洞里填上印得出的东西。*/
static void example(const char *format, char *out, size_t size)
{
	char all[MOST][8];
	int hole = 0;
	size_t used = 0;

	conversions(format, all);
	while (*format && used + 8 < size) {
		if (*format != '%') {
			out[used++] = *format++;
			continue;
		}
		format += 1 + strlen(all[hole]);
		used += (size_t)sprintf(
			out + used, "%s",
			strchr("sc", all[hole][strlen(all[hole]) - 1]) ? "Q"
								       : "17");
		hole++;
	}
	out[used] = '\0';
}

static void check_row(const struct explain_text *row)
{
	char english[MOST][8], chinese[MOST][8], line[1024], said[2048];
	int n = conversions(row->english, english);

	CHECK(row->english[0] && row->chinese[0], "%s|%s", row->english,
	      row->chinese);
	CHECK(n >= 0 && n == conversions(row->chinese, chinese) &&
		      !memcmp(english, chinese, sizeof(english)),
	      "conversions differ: %s|%s", row->english, row->chinese);
	CHECK(!has_han(row->english), "Chinese in: %s", row->english);
	CHECK(has_han(row->chinese) || !row->id, "no Chinese: %s",
	      row->chinese);
	if (row->page)
		return;
	/* 译得出来，而且是它自己：没有别的行抢走。*/
	example(row->english, line, sizeof(line));
	explain_in_chinese(said, sizeof(said), line);
	CHECK(strcmp(said, line) || !has_han(row->chinese),
	      "not translated: %s", line);
	CHECK(!has_han(row->chinese) || !strstr(said, " the "),
	      "half translated: %s", said);
}

static int print_rows(const char *how)
{
	size_t count;
	const struct explain_text *rows = explain_texts(&count);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(how, "--list"))
			puts(rows[i].english);
		else if (!strcmp(how, "--page") && rows[i].page)
			puts(rows[i].english);
		else if (!strcmp(how, "--causes") && rows[i].id)
			printf("%s\t%s\n", rows[i].id, rows[i].english);
	return 0;
}

int main(int argc, char *argv[])
{
	char out[8192];
	size_t count;
	const struct explain_text *rows = explain_texts(&count);

	if (argc == 2 && !strncmp(argv[1], "--", 2))
		return print_rows(argv[1]);
	for (int i = 1; i < argc; i++)
		puts(explain_in_chinese(out, sizeof(out), argv[i]));
	if (argc > 1)
		return 0;
	for (size_t i = 0; i < count; i++) {
		check_row(&rows[i]);
		for (size_t j = 0; j < i; j++)
			CHECK(strcmp(rows[i].english, rows[j].english),
			      "twice: %s", rows[i].english);
	}
	return unit_result("unit_texts");
}
