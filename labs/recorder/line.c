// SPDX-License-Identifier: MIT
/*
 * line.c —— 不用 stdio、不用 malloc 拼一行 JSON
 *
 * 为什么不用 snprintf 或 jansson？这些代码会在 signal handler 里运行（程序崩溃前
 * 的最后一次落盘），也会在每个 completion 上运行。snprintf 两样都不合适：它不是
 * async-signal-safe，而且一行要花几微秒。
 */
#include "line.h"

static bool fits(const struct line *line, size_t more)
{
	return more <= sizeof(line->text) - line->used;
}

static void put(struct line *line, const char *text, size_t len)
{
	memcpy(line->text + line->used, text, len);
	line->used += len;
}

const char two_digits[201] =
	"0001020304050607080910111213141516171819202122232425262728293031323334"
	"3536373839404142434445464748495051525354555657585960616263646566676869"
	"707172737475767778798081828384858687888990919293949596979899";

static size_t decimal_length(uint64_t value)
{
	size_t len = 1;

	for (; value >= 10000; value /= 10000)
		len += 4;
	return len + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* 一次除以 100 出两位：除法是这里最贵的指令。*/
size_t put_large_decimal(char *out, uint64_t value)
{
	size_t len = decimal_length(value);
	size_t at = len;

	while (at >= 2) {
		at -= 2;
		memcpy(out + at, two_digits + value % 100 * 2, 2);
		value /= 100;
	}
	if (at)
		out[0] = (char)('0' + value);
	return len;
}

static const char hex_digits[] = "0123456789abcdef";

size_t put_hex(char *out, uint64_t value)
{
	int shift = value ? (63 - __builtin_clzll(value)) / 4 * 4 : 0;
	size_t n = 3;

	memcpy(out, "\"0x", 3);
	for (; shift >= 0; shift -= 4)
		out[n++] = hex_digits[value >> shift & 15];
	out[n++] = '"';
	return n;
}

/* 从 @p 开始的一个合法 UTF-8 序列有几个字节；不合法则为 0。结尾的 NUL 接不上任何序列。*/
static size_t utf8_len(const unsigned char *p)
{
	size_t n = p[0] < 0x80			 ? 1
		   : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
		   : (p[0] & 0xf0) == 0xe0	 ? 3
		   : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* 过长编码与 UTF-16 代理区，严格的 JSON 解析器会拒绝。*/
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* 一个字符放进 @out（至多 6 字节），返回用掉的输入字节数。*/
static size_t escape(const unsigned char *p, char *out, size_t *out_len)
{
	size_t n = utf8_len(p);

	if (n == 0) {
		out[0] = '?';
		*out_len = n = 1;
	} else if (p[0] == '"' || p[0] == '\\') {
		out[0] = '\\';
		out[1] = (char)p[0];
		*out_len = 2;
	} else if (p[0] < 0x20 || p[0] == 0x7f) {
		memcpy(out, "\\u00", 4);
		out[4] = hex_digits[p[0] >> 4];
		out[5] = hex_digits[p[0] & 15];
		*out_len = 6;
	} else {
		memcpy(out, p, n);
		*out_len = n;
	}
	return n;
}

bool line_put_text(struct line *line, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t out_len = 0;
	char out[6];

	put(line, "\"", 1);
	while (*p) {
		size_t n = escape(p, out, &out_len);

		if (!fits(line, out_len + 1))
			return false;
		put(line, out, out_len);
		p += n;
	}
	put(line, "\"", 1);
	return true;
}

bool line_put_word(struct line *line, const char *word)
{
	size_t len = strlen(word);

	if (!fits(line, len + 2))
		return false;
	put(line, "\"", 1);
	put(line, word, len);
	put(line, "\"", 1);
	return true;
}
