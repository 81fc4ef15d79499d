// SPDX-License-Identifier: MIT
/*
 * words.c —— 记录是英文的；读的人要中文，就在这里换
 */
#include "parts.h"

#include "explain/explain.h"

const char *report_word(const struct report *r, char out[WORD_SIZE],
			const char *text)
{
	return r->chinese ? explain_in_chinese(out, WORD_SIZE, text) : text;
}

void report_speak(const struct report *r, json_t *line)
{
	static const char *const members[] = { "call", "cause", "next",
					       "seen" };
	char out[WORD_SIZE];

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const char *text = text_in(line, members[i]);

		if (r->chinese && *text)
			json_object_set_new(
				line, members[i],
				json_string(report_word(r, out, text)));
	}
}
