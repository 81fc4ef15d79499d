// SPDX-License-Identifier: MIT
/*
 * main.c —— 命令行与两个进程
 */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT_S	  20
#define WRONG_USE 2

static int usage(FILE *out)
{
	fputs("usage: faults [-s BYTES] [-n COUNT] [-p PSN] [-g GID-INDEX] [-t "
	      "TIMEOUT]\n"
	      "              [-r RETRIES] [-R RNR-RETRIES] [-i|-u|-f CMD] "
	      "SCENE\n"
	      "       faults [-A STEPS] [-B STEPS] cm\n"
	      "\n"
	      "Play SCENE as two processes, A on the first RDMA device and B "
	      "on "
	      "the\n"
	      "second. A runs CMD in INIT (-i), when both are up (-u), or "
	      "before it posts (-f).\n"
	      "labs/faults/run is meant for people. Exit: 0 done, 1 an end "
	      "failed,\n"
	      "2 wrong usage. Scenes:",
	      out);
	for (const struct scene *s = scenes; s->name; s++)
		fprintf(out, " %s", s->name);
	fputc('\n', out);
	return out == stdout ? 0 : WRONG_USE;
}

static bool read_options(int argc, char **argv, struct end *end,
			 struct scene *scene)
{
	uint32_t bytes = 0;
	int option, count = 0;

	while ((option = getopt(argc, argv, "s:n:p:g:t:r:R:i:u:f:A:B:")) !=
	       -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (option) {
		case 's':
			bytes = (uint32_t)value;
			break;
		case 'n':
			count = (int)value;
			break;
		case 'p':
			end->first_psn = (uint32_t)value;
			break;
		case 'g':
			end->gid_index = (uint8_t)value;
			break;
		case 't':
			end->timeout = (uint8_t)value;
			break;
		case 'r':
			end->retry_cnt = (uint8_t)value;
			break;
		case 'R':
			end->rnr_retry = (uint8_t)value;
			break;
		case 'A':
		case 'B':
			end->steps[option - 'A'] = optarg;
			break;
		case 'i':
		case 'u':
		case 'f':
			end->hook = optarg;
			end->hooked = option == 'i'   ? INITED
				      : option == 'u' ? UP
						      : FILLED;
			break;
		default:
			return false;
		}
	}
	for (const struct scene *s = scenes; argc == optind + 1 && s->name; s++)
		if (!strcmp(s->name, argv[optind]))
			*scene = *s;
	scene->bytes = bytes ? bytes : scene->bytes;
	scene->count = count ? count : scene->count;
	return scene->name;
}

int main(int argc, char **argv)
{
	struct scene scene = { 0 };
	struct end end = { .name = 'A',
			   .scene = &scene,
			   .first_psn = 0x100000,
			   .gid_index = 1,
			   .timeout = 12,
			   .retry_cnt = 2,
			   .rnr_retry = 1 };
	int sockets[2];
	pid_t child;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		return usage(stdout);
	if (!read_options(argc, argv, &end, &scene))
		return usage(stderr);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return EXIT_FAILURE;
	child = fork();
	alarm(LIMIT_S);
	end.socket = sockets[!child];
	close(sockets[!!child]);
	if (!child)
		end.name = 'B';
	play(&end);
	leave(&end, EXIT_SUCCESS);
}
