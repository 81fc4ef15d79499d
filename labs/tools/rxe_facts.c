// SPDX-License-Identifier: MIT
/*
 * rxe_facts.c —— 把 common/explain/rxe_facts.c 的表印给人看，也回答脚本
 *
 *	rxe_facts                  整张表，Markdown，课文由它生成
 *	rxe_facts NAME [RELEASE]   这一条在此内核（或 RELEASE）上成立吗？0 是，1 否
 */
#include "explain/rxe_facts.h"
#include "base/report.h"

#include <string.h>
#include <sys/utsname.h>

#define WRONG_USE 2

static int print_table(void)
{
	report_result("| from Linux | before | since | seen by |\n"
		      "|---|---|---|---|");
	for (int i = 0; i < RXE_FACTS; i++) {
		const struct rxe_fact_row *row = rxe_fact_row(i);

		report_result("| %u.%u | %s | %s | `%s` |", row->major,
			      row->minor, row->before, row->since,
			      row->seen_by);
	}
	return report_flush() ? 1 : 0;
}

int main(int argc, char *argv[])
{
	struct utsname kernel;

	if (argc == 1)
		return print_table();
	if (argc > 3 || uname(&kernel))
		return fail(WRONG_USE, "rxe_facts [NAME [RELEASE]]",
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
