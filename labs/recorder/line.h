/* SPDX-License-Identifier: MIT */
/*
 * line.h - one line of JSON, built without malloc or stdio: it is called from
 * signal handlers and from threads of programs that bring their own malloc.
 *
 * A line holds the members of one object, without the braces. Keys are string
 * literals. A member that does not fit is left out whole.
 */
#ifndef RECORDER_LINE_H
#define RECORDER_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE_SIZE 4096

struct line {
	size_t used;
	char text[LINE_SIZE];
};

/* Start with the member "ev": @name. */
static inline void line_start(struct line *line, const char *name)
{
	size_t len = strlen(name); /* of a literal: known to the compiler */

	memcpy(line->text, "\"ev\":\"", 6);
	memcpy(line->text + 6, name, len);
	line->text[6 + len] = '"';
	line->used = len + 7;
}

/* "00" ... "99" */
extern const char two_digits[201];

/* Write @value in decimal to @out (20 bytes are enough). Returns its length. */
size_t put_large_decimal(char *out, uint64_t value); /* of 100 or more */
static inline size_t put_decimal(char *out, uint64_t value)
{
	if (value >= 100)
		return put_large_decimal(out, value);
	if (value >= 10) {
		memcpy(out, two_digits + value * 2, 2);
		return 2;
	}
	out[0] = (char)('0' + value);
	return 1;
}

/* "0x...", with the quotes; @out: 20 bytes. Returns its length. */
size_t put_hex(char *out, uint64_t value);

/*
 * The value of a member whose key is written already. text: any bytes; what is
 * not UTF-8 becomes '?'. word: a name that needs no care: letters, digits,
 * ". : | _ -". False: it does not fit.
 */
bool line_put_text(struct line *line, const char *text);
bool line_put_word(struct line *line, const char *word);

/* ,"key": - inline, so that a key of known length costs a store or two. */
static inline bool line_put_key(struct line *line, const char *key, size_t len)
{
	if (len + 24 > sizeof(line->text) - line->used)
		return false;
	memcpy(line->text + line->used, key, len);
	line->used += len;
	return true;
}

/* @value is an int64_t's if @has_sign. */
static inline void line_add_number(struct line *line, const char *key,
				   size_t key_len, uint64_t value,
				   bool has_sign)
{
	if (!line_put_key(line, key, key_len))
		return;
	if (value > INT64_MAX && has_sign) {
		line->text[line->used++] = '-';
		value = -value;
	}
	/* JSON readers have 63 bits, or doubles: more goes as LINE_HEX does. */
	line->used += value > INT64_MAX && !has_sign
			      ? put_hex(line->text + line->used, value)
			      : put_decimal(line->text + line->used, value);
}

static inline void line_add_hex(struct line *line, const char *key,
				size_t key_len, uint64_t value)
{
	if (line_put_key(line, key, key_len))
		line->used += put_hex(line->text + line->used, value);
}

static inline void line_add_string(struct line *line, const char *key,
				   size_t key_len, const char *string,
				   bool (*put)(struct line *, const char *))
{
	size_t before = line->used;

	if (line_put_key(line, key, key_len) && !put(line, string))
		line->used = before;
}

#define LINE_KEY(key) ",\"" key "\":", sizeof(",\"" key "\":") - 1
/* The type of @value decides whether it has a sign: an int's -1 stays -1. */
#define LINE_NUMBER(line, key, value)                           \
	line_add_number(line, LINE_KEY(key), (uint64_t)(value), \
			(__typeof__(value))-1 < (__typeof__(value))1)
/* As a string "0x...": a reader with doubles would round 64 bits. */
#define LINE_HEX(line, key, value) \
	line_add_hex(line, LINE_KEY(key), (uint64_t)(value))
#define LINE_TEXT(line, key, text) \
	line_add_string(line, LINE_KEY(key), text, line_put_text)
#define LINE_WORD(line, key, word) \
	line_add_string(line, LINE_KEY(key), word, line_put_word)

#endif
