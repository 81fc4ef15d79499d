// SPDX-License-Identifier: MIT
/*
 * unit_texts.c —— texts.def 的每一行：两种语言都有，转换相同，译得出来
 *
 *	unit_texts            检查每一行
 *	unit_texts --list     每行一个英文格式串，给 test_texts.sh 去和源代码比
 *	unit_texts LINE…      各译成中文
 */
#include "explain/explain.h"
#include "labs/tests/unit.h"

#include <stdlib.h>
#include <string.h>

#define MOST 16

/*
 * 填好洞的 @format：第 n 个转换成了 n；"%2$s" 算第 2 个。kinds[n] 是第 n 个转换的字母，
 * 返回有几个。
 */
static int example(const char *format, char *out, char kinds[MOST])
{
	int n = 0;

	memset(kinds, 0, MOST);
	while (*format) {
		const char *end = format + strcspn(format, "diuxcspf");
		int at = n + 1;

		if (*format != '%') {
			*out++ = *format++;
			continue;
		}
		if (format[2] == '$')
			at = format[1] - '0';
		if (*end && at > 0 && at < MOST)
			kinds[at] = *end;
		out += sprintf(out, "%d", at);
		format = end + (*end != '\0');
		n++;
	}
	*out = '\0';
	return n;
}

static bool has_han(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text >= 0xe3)
			return true;
	return false;
}

/* 把 @text 放在刚好够大的内存里去译：多读一个字节，ASan 就看见。*/
static const char *translated(const char *text)
{
	static char said[8192];
	char *exact = strdup(text);

	explain_in_chinese(said, sizeof(said), exact);
	free(exact);
	return said;
}

static void check(const char *text, const char *wanted)
{
	CHECK(!strcmp(translated(text), wanted),
	      "%.60s: \"%.99s\", not \"%.99s\"", text, translated(text),
	      wanted);
}

static void check_row(const struct explain_text *row)
{
	char line[2048], wanted[2048], english[MOST], chinese[MOST];
	const int n = example(row->english, line, english);

	CHECK(row->english[0] && !has_han(row->english), "%s", row->english);
	CHECK(has_han(row->chinese) || (!row->id && row->chinese[0]),
	      "no Chinese: %s", row->english);
	CHECK(n < MOST && n == example(row->chinese, wanted, chinese) &&
		      !memcmp(english, chinese, MOST),
	      "conversions differ: %s|%s", row->english, row->chinese);
	/* 译得出来，而且是它自己：没有别的行抢走。*/
	if (!row->page)
		check(line, wanted);
}

static void check_lines(void)
{
	char line[2100];

	check("", "");
	check("length is 0\n\nnew\n", "length 是 0\n\nnew\n");
	check("the peer's MR lacks REMOTE_WRITE",
	      "对端的 MR 没有 REMOTE_WRITE");
	check("QP 7 of rxe1's MR lacks REMOTE_WRITE",
	      "rxe1 的 QP 7 的 MR 没有 REMOTE_WRITE");
	/* 洞里的话，译到第四层为止。*/
	check("also: also: also: length is 0", "另外：另外：另外：length 是 0");
	check("also: also: also: also: length is 0",
	      "另外：另外：另外：另外：length is 0");
	/* 太长的一行，或者有太多种办法比：还是英文。*/
	memset(line, 'x', sizeof(line));
	memcpy(line, "also: ", strlen("also: "));
	line[sizeof(line) - 1] = '\0';
	check(line, line);
	strcpy(line, "the peer's MAC address could not be resolved: ");
	while (strlen(line) < 1900)
		strcat(line, " on  did not answer ");
	check(line, line);
}

/* 多小的地方都够：放得下多少是多少。*/
static void check_room(const char *text)
{
	for (size_t size = 1; size < 200; size++) {
		char *out = malloc(size);

		explain_in_chinese(out, size, text);
		CHECK(strlen(out) < size, "room for %zu bytes", size);
		free(out);
	}
}

int main(int argc, char *argv[])
{
	size_t count;
	const struct explain_text *rows = explain_texts(&count);

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < count; i++)
			puts(rows[i].english);
		return 0;
	}
	for (int i = 1; i < argc; i++)
		puts(translated(argv[i]));
	if (argc > 1)
		return 0;
	for (size_t i = 0; i < count; i++)
		check_row(&rows[i]);
	check_lines();
	check_room("the peer's MR lacks REMOTE_WRITE");
	return unit_result("unit_texts");
}
