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

/* 一个转换印出来是什么：规定了宽度的，有空白。*/
static int print_one(char *out, size_t size, const char *conversion)
{
	const size_t width = strspn(conversion, "-.0123456789");
	const char last = conversion[strlen(conversion) - 1];
	char format[16];

	snprintf(format, sizeof(format), "%%%.*s%s%c", (int)width, conversion,
		 strchr("diux", last) ? "j" : "", last);
	if (last == 's')
		return snprintf(out, size, format, "Q");
	if (last == 'c')
		return snprintf(out, size, format, 'Q');
	if (last == 'f')
		return snprintf(out, size, format, 17.5);
	if (last == 'p')
		return snprintf(out, size, format, (void *)0x17);
	return snprintf(out, size, format, (intmax_t)17);
}

static void example(const char *format, char *out, size_t size)
{
	char all[MOST][8];
	int next = 0;
	size_t used = 0;

	conversions(format, all);
	while (*format && used + 32 < size) {
		int at = next;

		if (*format != '%') {
			out[used++] = *format++;
			continue;
		}
		format++;
		if (format[0] && format[1] == '$') {
			at = format[0] - '1';
			format += 2;
		} else {
			next++;
		}
		format += strlen(all[at]);
		used += (size_t)print_one(out + used, size - used, all[at]);
	}
	out[used] = '\0';
}

/* 把 @text 放在刚好够大的内存里去译：多读一个字节，ASan 就看见。*/
static const char *translated(const char *text)
{
	static char said[8192];
	char *exact = strdup(text);

	memset(said, 'x', sizeof(said) - 1);
	explain_in_chinese(said, sizeof(said), exact);
	free(exact);
	return said;
}

static void check_row(const struct explain_text *row)
{
	char english[MOST][8], chinese[MOST][8], line[1024], wanted[2048];
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
	example(row->chinese, wanted, sizeof(wanted));
	CHECK(!strcmp(translated(line), wanted), "%s: \"%s\", not \"%s\"", line,
	      translated(line), wanted);
}

static void check(const char *text, const char *wanted)
{
	CHECK(!strcmp(translated(text), wanted),
	      "%.60s: \"%.99s\", not \"%.99s\"", text, translated(text),
	      wanted);
}

/* @head，然后重复 @unit，不超过 @len 个字节。*/
static void many(char *out, const char *head, const char *unit, size_t len)
{
	size_t used = strlen(strcpy(out, head));

	for (; used + strlen(unit) <= len; used += strlen(unit))
		strcpy(out + used, unit);
}

static void check_lines(void)
{
	const char *row = "the peer's MR lacks REMOTE_WRITE";
	const char *in_chinese = "对端的 MR 没有 REMOTE_WRITE";
	char text[256], wanted[256], line[2048];

	check("", "");
	check("\n", "\n");
	snprintf(text, sizeof(text), "%s\n%s\n\nnew\n", row, row);
	snprintf(wanted, sizeof(wanted), "%s\n%s\n\nnew\n", in_chinese,
		 in_chinese);
	check(text, wanted);
	/* 两边都是中文的空格才去掉，行首行尾的不是。*/
	check(" 对 端 a 的 ", " 对端 a 的 ");
	/* 洞里的话，译到第四层为止。*/
	check("also: also: also: length is 0", "另外：另外：另外：length 是 0");
	check("also: also: also: also: length is 0",
	      "另外：另外：另外：另外：length is 0");
	/* 多长的一行还看，多长的就不看了。*/
	for (size_t len = 2000; len <= 2001; len++) {
		memset(line, 'x', len);
		memcpy(line, "also: ", strlen("also: "));
		line[len] = '\0';
		CHECK((translated(line)[0] == 'a') == (len > 2000),
		      "a line of %zu bytes: %.20s", len, translated(line));
	}
	/* 有太多种办法比：不比了，就还是英文。*/
	many(line, "the peer's MAC address could not be resolved: ",
	     " on  did not answer ", 1900);
	check(line, line);
}

static void check_language(void)
{
	static const char *const names[] = { "LC_ALL", "LC_MESSAGES", "LANG" };

	for (int i = 0; i < 3; i++)
		unsetenv(names[i]);
	CHECK(!explain_speaks_chinese(NULL) && !explain_speaks_chinese(""),
	      "nothing is set");
	for (int i = 2; i >= 0; i--) {
		setenv(names[i], "zh_TW", 1);
		CHECK(explain_speaks_chinese(NULL), "%s", names[i]);
		CHECK(!explain_speaks_chinese("en"), "en before %s", names[i]);
		setenv(names[i], "C", 1);
		CHECK(!explain_speaks_chinese(NULL), "%s is C", names[i]);
		CHECK(explain_speaks_chinese("zh"), "zh before %s", names[i]);
	}
}

/* 多小的地方都够：放得下多少是多少。*/
static void check_room(const char *text)
{
	const size_t most = strlen(text) + 200;

	for (size_t size = 1; size < most; size++) {
		char *out = malloc(size);

		explain_in_chinese(out, size, text);
		CHECK(strlen(out) < size, "room for %zu bytes", size);
		CHECK(size + 1 < most || !strcmp(out, translated(text)),
		      "%s is \"%s\"", text, out);
		free(out);
	}
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
	check_language();
	check_lines();
	check_room("the peer's MR lacks REMOTE_WRITE\nsomebody says something "
		   "new");
	return unit_result("unit_texts");
}
