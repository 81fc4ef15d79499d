// SPDX-License-Identifier: MIT
/*
 * sabotage.c —— 让一个没有改过的程序犯一个错：见 usage
 */
#include "rule.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void usage(FILE *out)
{
	fputs("usage: sabotage [-o FILE] [--in first|child] RULE [--] CMD "
	      "[ARG...]\n"
	      "       sabotage --list\n"
	      "\n"
	      "Run CMD with one change: RULE is CALL[:WHICH]:CHANGE. stderr, "
	      "or\n"
	      "FILE, says what was changed.\n"
	      "\n"
	      "  WHICH   the number of the call (1), \"3+\" for the third and "
	      "all "
	      "later;\n"
	      "          for modify_qp also the new state\n"
	      "  CHANGE  FIELD=V, +V, -V, ^V, <<V, >>V, FIELD~ (bytes "
	      "swapped), a bit\n"
	      "          FIELD+NAME or FIELD-NAME; or skip, twice, kill, "
	      "sleep=S, ...\n"
	      "  --in    only in CMD's first process, or only in those that it "
	      "forks\n"
	      "  --list  the calls and their fields\n"
	      "\n"
	      "labs/qptrace build/sabotage post_send:3:rkey^1 rping ...: the\n"
	      "recorder sees the change as the program's own. Exit: CMD's own; "
	      "2\n"
	      "wrong usage, 77 not built.\n",
	      out);
}

static int refuse(int code, const char *cause, const char *next)
{
	fprintf(stderr, "sabotage: %s\nsabotage: next: %s\n", cause, next);
	return code;
}

/* 排在第一个：已经在 LD_PRELOAD 里的（记录器）看到的就是改过的调用。*/
static bool preload(void)
{
	char self[PATH_MAX], list[2 * PATH_MAX];
	const char *others = getenv("LD_PRELOAD");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t len;

	if (n < 0)
		return false;
	self[n] = '\0';
	len = (size_t)snprintf(list, sizeof(list), "%s/libsaboteur.so",
			       dirname(self));
	if (access(list, R_OK))
		return false;
	snprintf(list + len, sizeof(list) - len, "%s%s", others ? ":" : "",
		 others ? others : "");
	return !setenv("LD_PRELOAD", list, 1);
}

int main(int argc, char **argv)
{
	const char *wrong, *next;
	char pid[16];
	int at = 1;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		rule_list();
		return 0;
	}
	if (argc == 2 &&
	    (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
		usage(stdout);
		return 0;
	}
	if (at + 1 < argc && !strcmp(argv[at], "-o")) {
		setenv("SABOTAGE_LOG", argv[at + 1], 1);
		at += 2;
	}
	if (at + 1 < argc && !strcmp(argv[at], "--in")) {
		if (strcmp(argv[at + 1], "first") &&
		    strcmp(argv[at + 1], "child"))
			return refuse(2, "--in takes \"first\" or \"child\"",
				      "sabotage --in child RULE CMD");
		snprintf(pid, sizeof(pid), "%d", getpid());
		setenv("SABOTAGE_PID", pid, 1);
		setenv("SABOTAGE_IN", argv[at + 1], 1);
		at += 2;
	}
	if (at < argc && !rule_parse(argv[at], &wrong, &next))
		return refuse(2, wrong, next);
	if (at < argc)
		setenv("SABOTAGE", argv[at++], 1);
	if (at < argc && !strcmp(argv[at], "--"))
		at++;
	if (at >= argc) {
		usage(stderr);
		return 2;
	}
	if (!preload())
		return refuse(77, "libsaboteur.so is not beside this program",
			      "make");
	execvp(argv[at], argv + at);
	fprintf(stderr, "sabotage: %s: %s\n", argv[at], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
