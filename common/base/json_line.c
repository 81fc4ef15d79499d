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
	if (!root)
		return fail(-ENOMEM, NULL, "no memory for the JSON result");
	json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(root);
	putchar('\n');
	return 0;
}
