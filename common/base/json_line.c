// SPDX-License-Identifier: MIT
/*
 * json_line.c —— --json 的输出：一行一个结果，交给 jq
 */
#include "json_line.h"

#include "report.h"

#include <errno.h>
#include <stdio.h>

int print_json_line(json_t *root)
{
	int rc = root ? json_dumpf(root, stdout,
				   JSON_COMPACT | JSON_REAL_PRECISION(6))
		      : -1;

	json_decref(root);
	/* 写不出去是 stdout 的事，report_flush() 会说。*/
	if (rc && !ferror(stdout))
		return fail(-ENOMEM, NULL, "no memory for the JSON result");
	putchar('\n');
	return 0;
}
