// SPDX-License-Identifier: MIT
/*
 * main.c —— qptrace-report：一份或两份记录，合成一条时间线
 */
#include "parts.h"

#include "base/report.h"

#include <getopt.h>
#include <stdio.h>

static int usage(FILE *to)
{
	fprintf(to,
		"usage: qptrace report [--html FILE] [--all] A.json [B.json]\n"
		"\n"
		"  --html FILE  write a page instead of the text\n"
		"  --all        leave out nothing of long recordings\n");
	return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "html", required_argument, NULL, 'w' },
		{ "template", required_argument, NULL, 't' },
		{ "all", no_argument, NULL, 'a' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *html = NULL, *template_path = "report.html";
	static struct report r;
	bool all = false;
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'w':
			html = optarg;
			break;
		case 't':
			template_path = optarg;
			break;
		case 'a':
			all = true;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	if (argc - optind < 1 || argc - optind > MAX_SIDES)
		return usage(stderr);
	if (report_load(&r, argv + optind, argc - optind))
		return 1;
	report_build(&r, all);
	if (html)
		return report_as_html(&r, template_path, html) ? 1 : 0;
	report_as_text(&r, all);
	return report_flush() ? 1 : 0;
}
