// SPDX-License-Identifier: MIT
/*
 * words.c —— 记录里只有原因的 id 与参数；读的人要哪种语言，就在这里说成话
 */
#include "parts.h"

#include <string.h>

/* RDMA_EXPLAIN=0 说的是被记录的程序，不是读记录的。*/
bool explain_is_on(void)
{
	return true;
}

const char *report_word(const struct report *r, char out[WORD_SIZE],
			const char *text)
{
	(void)out;
	return explain_word(text, r->chinese);
}

static void set_text(json_t *line, const char *key, const char *text)
{
	if (*text)
		json_object_set_new(line, key, json_string(text));
	else
		json_object_del(line, key);
}

/* 有 cause 的，是没有原因、只有 strerror 的，或者旧的记录：照样给人看。*/
void report_speak(const struct report *r, json_t *line)
{
	struct explanation why = { .id = text_in(line, "id") };
	struct explain_words words;

	if (!*why.id || *text_in(line, "cause"))
		return;
	snprintf(why.args, sizeof(why.args), "%s", text_in(line, "args"));
	snprintf(why.seen, sizeof(why.seen), "%s", text_in(line, "seen"));
	explain_in_words(&words, &why, r->chinese);
	set_text(line, "cause", words.cause);
	set_text(line, "next", words.next);
	set_text(line, "seen", words.seen);
}
