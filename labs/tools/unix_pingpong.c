// SPDX-License-Identifier: MIT
/*
 * unix_pingpong.c - the floor under rdma_engine's Ping: two processes, a pair of
 * connected Unix sockets, and nothing but read and write.
 *
 *	unix_pingpong [-n ITERS] [-j] REQUEST ANSWER	(bytes)
 *
 * One process sends REQUEST bytes, the other answers with ANSWER bytes.
 */
#include "base/arguments.h"
#include "base/json_line.h"
#include "base/laps.h"
#include "base/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 65536 /* bytes of a message */

static int bad_usage(void)
{
	return fail(EXIT_USAGE,
		    "usage: unix_pingpong [-n ITERS] [-j] REQUEST ANSWER",
		    "the arguments are wrong");
}

static int read_all(int fd, char *buf, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = read(fd, buf + got, size - got);

		if (n <= 0)
			return -1;
		got += (size_t)n;
	}
	return 0;
}

/* Until the other side is gone. */
static void answer(int fd, char *buf, size_t request, size_t size)
{
	while (!read_all(fd, buf, request))
		if (write(fd, buf, size) != (ssize_t)size)
			break;
}

static int ask(int fd, char *buf, size_t request, size_t size,
	       struct laps *laps, uint64_t iters)
{
	laps_start(laps);
	for (uint64_t i = 0; i < iters; i++) {
		if (write(fd, buf, request) != (ssize_t)request ||
		    read_all(fd, buf, size))
			return fail(-EIO, NULL, "ping-pong: %s",
				    strerror(errno));
		laps_next(laps);
	}
	return 0;
}

static int measure(size_t request, size_t size, struct laps *laps,
		   uint64_t iters)
{
	static char buf[MOST];
	pid_t child;
	int fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -errno;
	child = fork();
	if (!child) {
		close(fds[0]);
		answer(fds[1], buf, request, size);
		_exit(0);
	}
	close(fds[1]);
	rc = child < 0 ? -errno : ask(fds[0], buf, request, size, laps, iters);
	close(fds[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	return rc;
}

int main(int argc, char *argv[])
{
	uint64_t iters = 1000, request, size;
	struct lap_summary half;
	struct laps laps;
	bool json = false;
	int c;

	while ((c = getopt(argc, argv, "n:j")) != -1) {
		if (c == 'j')
			json = true;
		else if (c != 'n' || !parse_number(optarg, 1, 1 << 27, &iters))
			return bad_usage();
	}
	if (argc - optind != 2 ||
	    !parse_number(argv[optind], 1, MOST, &request) ||
	    !parse_number(argv[optind + 1], 1, MOST, &size))
		return bad_usage();
	if (laps_init(&laps, iters) || measure(request, size, &laps, iters))
		return 1;
	half = laps_halved(&laps);
	laps_free(&laps);
	if (!json)
		report_round_trips(iters, request, &half);
	else if (print_json_line(json_pack(
			 "{s:I, s:o}", "iters", (json_int_t)iters,
			 "half_round_trip_us", lap_summary_as_json(&half))))
		return 1;
	return report_flush() ? 1 : 0;
}
