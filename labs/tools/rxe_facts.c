// SPDX-License-Identifier: MIT
/*
 * rxe_facts.c —— 把 common/explain/rxe_facts.c 的表印给人看，也回答脚本
 *
 *	rxe_facts [--lang zh]      整张表，Markdown，课文由它生成
 *	rxe_facts NAME [RELEASE]   这一条在此内核（或 RELEASE）上成立吗？0 是，1 否
 */
#include "explain/rxe_facts.h"
#include "base/report.h"

#include <string.h>
#include <sys/utsname.h>

#define WRONG_USE 2

static int print_table(bool chinese)
{
	report_result("%s\n|---|---|---|---|",
		      chinese ? "| 从哪个 Linux 起 | 以前 | 以后 | 怎样验证 |"
			      : "| from Linux | before | since | shown by |");
	for (int i = 0; i < RXE_FACTS; i++) {
		const struct rxe_fact_row *row = rxe_fact_row(i);

		report_result("| %u.%u | %s | %s | `%s` |", row->major,
			      row->minor, row->before[chinese],
			      row->since[chinese], row->seen_by);
	}
	return report_flush() ? 1 : 0;
}

int main(int argc, char *argv[])
{
	struct utsname kernel;

	if (argc == 1)
		return print_table(false);
	if (argc == 3 && !strcmp(argv[1], "--lang"))
		return print_table(!strcmp(argv[2], "zh"));
	if (argc > 3 || uname(&kernel))
		return fail(WRONG_USE, "rxe_facts [--lang zh | NAME [RELEASE]]",
			    "wrong usage");
	for (int i = 0; i < RXE_FACTS; i++)
		if (!strcmp(rxe_fact_row(i)->name, argv[1]))
			return rxe_fact_in(i,
					   argc > 2 ? argv[2] : kernel.release)
				       ? 0
				       : 1;
	return fail(WRONG_USE, "rxe_facts shows them all",
		    "there is no fact \"%s\"", argv[1]);
}
