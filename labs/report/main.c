// SPDX-License-Identifier: MIT
/*
 * main.c —— qptrace-report：几份记录，合成一条时间线
 */
#include "live.h"

#include "base/report.h"
#include "explain/explain.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(FILE *to)
{
	fprintf(to, "usage: qptrace report [--html FILE | --perfetto FILE | "
		    "--json] "
		    "[--all] A.qpt [B.qpt ...]\n"
		    "\n"
		    "  --html FILE  write a page instead of the text\n"
		    "  --perfetto FILE  write a trace for ui.perfetto.dev\n"
		    "  --json       write the causes for a script: one object\n"
		    "  --all        show long recordings in full\n");
	return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "html", required_argument, NULL, 'w' },
		{ "perfetto", required_argument, NULL, 'p' },
		{ "annotate", required_argument, NULL, 'c' },
		{ "to", required_argument, NULL, 'o' },
		{ "wire", required_argument, NULL, 'W' },
		{ "template", required_argument, NULL, 't' },
		{ "lang", required_argument, NULL, 'l' },
		{ "json", no_argument, NULL, 'j' },
		{ "all", no_argument, NULL, 'a' },
		{ "dump", no_argument, NULL, 'd' },
		{ "watch", required_argument, NULL, 'f' },
		{ "pid", required_argument, NULL, 'i' },
		{ "stall", required_argument, NULL, 's' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *html = NULL, *perfetto = NULL, *pcap = NULL, *to = NULL,
		   *wire = NULL, *lang = NULL, *template_path = "report.html";
	static struct report r;
	bool all = false, json = false, dump = false;
	const char *watched = NULL;
	bool quiet = false;
	double stall = 0;
	int option, pid = 0;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'w':
			html = optarg;
			break;
		case 'p':
			perfetto = optarg;
			break;
		case 'c':
			pcap = optarg;
			break;
		case 'o':
			to = optarg;
			break;
		case 'W':
			wire = optarg;
			break;
		case 't':
			template_path = optarg;
			break;
		case 'l':
			lang = optarg;
			if (strcmp(lang, "en") && strcmp(lang, "zh"))
				return usage(stderr);
			break;
		case 'f':
			watched = optarg;
			break;
		case 'i':
			pid = atoi(optarg);
			break;
		case 's':
			stall = strtod(optarg, NULL);
			break;
		case 'q':
			quiet = true;
			break;
		case 'j':
			json = true;
			break;
		case 'a':
			all = true;
			break;
		case 'd':
			dump = true;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	if (watched)
		return watch(watched, pid, (uint64_t)(stall * 1e9), quiet,
			     explain_speaks_chinese(lang));
	if (argc - optind < !wire ||
	    argc - optind > (wire ? WIRE_SIDES : MAX_SIDES))
		return usage(stderr);
	if (report_load(&r, argv + optind, argc - optind))
		return 1;
	r.chinese = explain_speaks_chinese(lang);
	if (dump)
		return report_dump(&r, lang != NULL) ? 1 : 0;
	if (report_build(&r))
		return 1;
	report_judge(&r);
	report_choose(&r, all);
	if (json + (html != NULL) + (perfetto != NULL) > 1)
		return usage(stderr);
	if (wire)
		return report_wire(&r, wire) || report_flush() ? 1 : 0;
	if (pcap && to)
		return report_annotate(&r, pcap, to) ? 1 : 0;
	if (perfetto)
		return report_as_perfetto(&r, perfetto) ? 1 : 0;
	if (html)
		return report_as_html(&r, template_path, html) ? 1 : 0;
	if (!json)
		report_as_text(&r, all);
	else if (report_as_json(&r))
		return 1;
	return report_flush() ? 1 : 0;
}
