// SPDX-License-Identifier: MIT
/*
 * words.c —— 从一行原因到一句话
 *
 * 规则只说“哪一行、参数是什么”，记录文件里也只有这些；用哪种语言，印的时候才定。一份记录
 * 谁都能读，脚本认 id，不认句子。
 */
#include "explain.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct explain_row rows[] = {
#define CAUSE(id, en, zh, ne, nz) { id, { en, zh }, { ne, nz }, false },
#define HINT(id, en, zh, ne, nz)  { id, { en, zh }, { ne, nz }, true },
#define SEEN(id, en, zh)	  { id, { en, zh }, { NULL, NULL }, false },
#define WORD(en, zh)		  { en, { en, zh }, { NULL, NULL }, false },
#include "causes.def"
};

const struct explain_row *explain_rows(size_t *count)
{
	*count = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

const struct explain_row *explain_row(const char *id)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].id, id))
			return &rows[i];
	return NULL;
}

const char *explain_word(const char *english, bool chinese)
{
	const struct explain_row *row = chinese ? explain_row(english) : NULL;

	return row && !strcmp(row->id, row->text[0]) ? row->text[1] : english;
}

bool explain_speaks_chinese(const char *lang)
{
	static const char *const names[] = { "LC_ALL", "LC_MESSAGES", "LANG" };

	/* setlocale 会改变被记录的程序，也要求装有那个 locale：只看名字。*/
	for (size_t i = 0; i < 3 && (!lang || !*lang); i++)
		lang = getenv(names[i]);
	return lang && !strncmp(lang, "zh", 2);
}

/* ---- 规则用的 ------------------------------------------------------------- */

struct explanation explain_because(const char *id, const char *fmt, ...)
{
	const struct explain_row *row = explain_row(id);
	struct explanation why = { 0 };
	va_list ap;

	/* 总开关只有这一处：关掉之后，谁也造不出一条解释来。*/
	if (!explain_is_on())
		return why;
	va_start(ap, fmt);
	vsnprintf(why.args, sizeof(why.args), fmt, ap);
	va_end(ap);
	memmove(why.args, why.args + 1, sizeof(why.args) - 1);
	why.id = id;
	why.hint = row && row->hint;
	return why;
}

static void add_seen(struct explanation *why, const char *id, const char *args)
{
	size_t used = strlen(why->seen), room = sizeof(why->seen) - used;
	int n;

	if (!why->id)
		return;
	n = snprintf(why->seen + used, room, "%s%s%s", used ? "\n" : "", id,
		     args);
	/* 半行证据比没有更糟：放不下就整行不要。*/
	if ((size_t)n >= room)
		why->seen[used] = '\0';
}

void explain_also(struct explanation *why, const char *id, const char *fmt, ...)
{
	char args[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	add_seen(why, id, args);
}

void also_cause(struct explanation *why, const struct explanation *other)
{
	char args[sizeof(other->args) + 1];

	snprintf(args, sizeof(args), "\t%s", other->args);
	add_seen(why, other->id, args);
}

bool explained_as(const struct explanation *why, const char *id)
{
	return why->id && !strcmp(why->id, id);
}

/* ---- 写 ------------------------------------------------------------------- */

struct sink {
	char *out;
	size_t size, used;
	bool chinese;
};

static void put(struct sink *s, const char *text, size_t len)
{
	if (len >= s->size - s->used)
		len = s->size - s->used - 1;
	memcpy(s->out + s->used, text, len);
	s->used += len;
	s->out[s->used] = '\0';
}

static void put_argument(struct sink *s, const char *args, int n)
{
	char word[400];
	size_t len;

	for (; n > 1 && *args; n--)
		args += strcspn(args, "\t") + (strchr(args, '\t') != NULL);
	len = strcspn(args, "\t");
	snprintf(word, sizeof(word), "%.*s", (int)len, args);
	args = explain_word(word, s->chinese);
	put(s, args, strlen(args));
}

/* “对端 的 MR”：填进去的若是中文，两边就不该有空格。*/
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

static void fill(struct sink *s, const char *text, const char *args)
{
	size_t from = s->used;

	for (; *text; text++) {
		if (text[0] == '{' && isdigit((unsigned char)text[1])) {
			put_argument(s, args, text[1] - '0');
			text += 2;
		} else {
			put(s, text, 1);
		}
	}
	while (s->used > from && s->out[s->used - 1] == ' ')
		s->out[--s->used] = '\0';
	close_up(s, from);
}

/* 不认识的一行，是更新或更旧的记录里的：原样给人看。*/
static void fill_evidence(struct sink *s, const char *line, size_t len)
{
	char id[400];
	const struct explain_row *row;
	size_t end;

	snprintf(id, sizeof(id), "%.*s", (int)len, line);
	end = strcspn(id, "\t");
	line = id + end + (id[end] == '\t');
	id[end] = '\0';
	row = explain_row(id);
	if (!row) {
		put(s, id, strlen(id));
		return;
	}
	if (row->next[0])
		put(s, s->chinese ? "另外：" : "also: ",
		    strlen(s->chinese ? "另外：" : "also: "));
	fill(s, row->text[s->chinese], line);
}

void explain_in_words(struct explain_words *out, const struct explanation *why,
		      bool chinese)
{
	const struct explain_row *row = why->id ? explain_row(why->id) : NULL;
	struct sink cause = { out->cause, sizeof(out->cause), 0, chinese };
	struct sink next = { out->next, sizeof(out->next), 0, chinese };
	struct sink seen = { out->seen, sizeof(out->seen), 0, chinese };

	out->cause[0] = out->next[0] = out->seen[0] = '\0';
	if (!why->id)
		return;
	fill(&cause, row ? row->text[chinese] : why->id, why->args);
	if (row && row->next[0])
		fill(&next, row->next[chinese], why->args);
	for (const char *line = why->seen; *line;) {
		size_t len = strcspn(line, "\n");

		if (seen.used)
			put(&seen, "\n", 1);
		fill_evidence(&seen, line, len);
		line += len + (line[len] == '\n');
	}
}
