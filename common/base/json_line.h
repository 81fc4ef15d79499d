/* SPDX-License-Identifier: MIT */
/*
 * json_line.h - a result as one line of JSON, for a script to read.
 */
#ifndef BASE_JSON_LINE_H
#define BASE_JSON_LINE_H

#include <jansson.h>

/*
 * Print @root on stdout, on one line of its own, and free it. NULL stands for
 * "no memory for it": -ENOMEM (reported).
 */
int print_json_line(json_t *root);

#endif
