// SPDX-License-Identifier: MIT
/*
 * translate.c —— 同样的话，用中文说
 *
 * 解释器里、记录里都只有英文：检查原因的代码不必管语言，一份记录谁都能读，用哪种语言是
 * 看的人说了算。所以翻译放在最后，印出来之前：拿这一行去和 texts.def 里的英文格式串
 * 比，比上的就知道每个 %s、%u 当时是什么，再填进同一行的中文格式串。填进去的若也是
 * 表里的话（“the peer”、另一个原因），先译它。
 *
 * 几行都比得上时，取格式串最长的那一行；一行也比不上的，原样留着英文：宁可不译，不可译错。
 */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

#define MOST_HOLES 16	/* conversions in one text (unit_texts.c counts them) */
#define MOST_BYTES 2000 /* of a line that is looked at */
#define MOST_STEPS 20000 /* of matching one line with one row */
#define MOST_DEPTH 4	 /* texts in texts */

#define CAUSE(id, english, chinese) { id, english, chinese, false },
#define TEXT(english, chinese)	    { NULL, english, chinese, false },
#define PAGE(english, chinese)	    { NULL, english, chinese, true },
static const struct explain_text texts[] = {
#include "texts.def"
#include "texts_pairs.def"
};
#define TEXTS (sizeof(texts) / sizeof(texts[0]))

const struct explain_text *explain_texts(size_t *count)
{
	*count = TEXTS;
	return texts;
}

bool explain_speaks_chinese(const char *lang)
{
	static const char *const names[] = { "LC_ALL", "LC_MESSAGES", "LANG" };

	/* setlocale 会改变被记录的程序，也要求装有那个 locale：只看名字。*/
	for (size_t i = 0; i < 3 && (!lang || !*lang); i++)
		lang = getenv(names[i]);
	return lang && !strncmp(lang, "zh", 2);
}

/* ---- 比 ------------------------------------------------------------------- */

struct span {
	const char *text;
	size_t len;
};

struct match {
	const char *begin; /* of the line */
	struct span holes[MOST_HOLES];
	int steps;
};

/* @p 在 "%"：这个转换的最后一个字母在哪里。*/
static const char *conversion_end(const char *p)
{
	return p + 1 + strcspn(p + 1, "diuxcspf%");
}

/* 这个转换印得出 @c 吗？（补齐宽度的空白，算在旁边的 %s 里。）*/
static bool could_print(const char *p, char c)
{
	const char *end = conversion_end(p);

	switch (*end) {
	case 'd':
	case 'i':
	case 'u':
		return strchr("-0123456789", c);
	case 'x':
		return strchr("0123456789abcdef", c);
	case 'f':
		return strchr("-.0123456789", c);
	}
	return true;
}

static bool is_hole(const char *p)
{
	return *p == '%' && *conversion_end(p) && *conversion_end(p) != '%';
}

static bool fits(const char *format, struct span text, struct match *m,
		 int hole);

/* 句首的洞里是一个名字，不会是半句话（“also wrong: …”）。*/
static bool is_clause(struct span text, size_t n, const struct match *m)
{
	return text.text == m->begin && n > 1 &&
	       !memcmp(text.text + n - 2, ": ", 2);
}

/* 从短到长试：这个洞里是几个字节，后面的才比得上？*/
static bool fill(const char *format, struct span text, struct match *m,
		 int hole)
{
	const char *end = conversion_end(format);
	size_t n = *end == 's' ? 0 : 1;

	for (; n <= text.len; n++) {
		struct span rest = { text.text + n, text.len - n };

		if (n && (!could_print(format, text.text[n - 1]) ||
			  is_clause(text, n, m)))
			return false;
		m->holes[hole] = (struct span){ text.text, n };
		if (fits(end + 1, rest, m, hole + 1))
			return true;
	}
	return false;
}

static bool fits(const char *format, struct span text, struct match *m,
		 int hole)
{
	for (; *format; format++, text.text++, text.len--) {
		if (!m->steps)
			return false;
		m->steps--;
		if (is_hole(format))
			return fill(format, text, m, hole);
		if (!text.len || *text.text != *format)
			return false;
	}
	return !text.len;
}

static const struct explain_text *find(struct span text, struct match *found)
{
	const struct explain_text *best = NULL;
	size_t most = 0;

	for (size_t i = 0; text.len <= MOST_BYTES && i < TEXTS; i++) {
		struct match m = { .begin = text.text, .steps = MOST_STEPS };
		size_t n;

		if (!fits(texts[i].english, text, &m, 0))
			continue;
		n = strlen(texts[i].english);
		if (n > most) {
			best = &texts[i];
			most = n;
			*found = m;
		}
	}
	return best;
}

/* ---- 写 ------------------------------------------------------------------- */

struct sink {
	char *out;
	size_t size, used;
};

static void put(struct sink *s, const char *text, size_t len)
{
	if (len >= s->size - s->used)
		len = s->size - s->used - 1;
	memcpy(s->out + s->used, text, len);
	s->used += len;
	s->out[s->used] = '\0';
}

static void translate(struct sink *s, struct span text, int depth)
{
	struct match m;
	const struct explain_text *row =
		depth < MOST_DEPTH ? find(text, &m) : NULL;
	int next = 0;

	if (!row) {
		put(s, text.text, text.len);
		return;
	}
	for (const char *p = row->chinese; *p; p++) {
		if (!is_hole(p)) {
			put(s, p, 1);
			continue;
		}
		/* "%2$s"：次序不同的说明是第几个。*/
		if (p[2] == '$')
			translate(s, m.holes[p[1] - '1'], depth + 1);
		else
			translate(s, m.holes[next++], depth + 1);
		p = conversion_end(p);
	}
}

/* “对端 的 MR”：填进洞里的若是中文，两边就不该有空格。*/
static void close_up(struct sink *s, size_t from)
{
	size_t to = from;

	for (size_t i = from; i < s->used; i++)
		if (s->out[i] != ' ' || i == from ||
		    !(s->out[i - 1] & s->out[i + 1] & 0x80))
			s->out[to++] = s->out[i];
	s->out[to] = '\0';
	s->used = to;
}

const char *explain_in_chinese(char *out, size_t size, const char *text)
{
	struct sink s = { out, size, 0 };

	out[0] = '\0';
	while (*text) {
		size_t len = strcspn(text, "\n"), from = s.used;

		translate(&s, (struct span){ text, len }, 0);
		close_up(&s, from);
		text += len;
		if (*text)
			put(&s, text++, 1);
	}
	return out;
}
