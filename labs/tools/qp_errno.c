// SPDX-License-Identifier: MIT
/*
 * qp_errno.c —— qp_explain --errno：一步转换得到这个错误号，内核按什么次序查了什么
 */
#include "qp_errno.h"

#include <stdio.h>
#include <string.h>

static void as_row(const struct qp_check *c, int number, bool chinese)
{
	printf("| %d | %s | %s (%d) | %s | %s |\n", number, c->who,
	       strerrorname_np(c->error), c->error, c->what[chinese],
	       c->next[chinese]);
}

static void as_text(const struct qp_check *c, int number, bool chinese)
{
	printf("%2d  %s (%d) %s, %s: %s\n    %s%s\n", number,
	       strerrorname_np(c->error), c->error, c->who, c->id,
	       c->what[chinese],
	       chinese ? "下一步：" : "next: ", c->next[chinese]);
}

int show_checks(const struct qp_step *step, int error, bool chinese,
		bool markdown)
{
	const struct qp_check *c = NULL;
	int number = 0;

	if (markdown)
		puts(chinese ? "| # | 谁 | errno | 原因 | 怎么办 |\n"
			       "|---|---|---|---|---|"
			     : "| # | who | errno | cause | what to do |\n"
			       "|---|---|---|---|---|");
	while ((c = qp_check_after(c, step->type, step->from, step->to, error)))
		(markdown ? as_row : as_text)(c, ++number, chinese);
	if (!number && !markdown)
		printf(chinese ? "内核的检查不会给出 %d：看驱动和 dmesg\n"
			       : "no check of the kernel answers %d: see the "
				 "driver and dmesg\n",
		       error);
	return number ? 0 : 1;
}
