// SPDX-License-Identifier: MIT
/*
 * epoll_echo.c - the floor under rdma_server --many: TCP, one thread, one epoll, and
 * nothing but read and write.
 *
 *	epoll_echo PORT				send back what comes
 *	epoll_echo PORT ADDRESS SIZE ROUNDS	ask for it, one at a time
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/laps.h"
#include "base/report.h"
#include "base/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 64
#define MOST   65536 /* bytes at once */

static int wait_for(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* A connection that ends, or does not take its own bytes back, is closed. */
static void echo(int fd)
{
	static char bytes[MOST];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	if (n <= 0 || write(fd, bytes, (size_t)n) != n)
		close(fd);
}

static int ask(int sock, size_t size, uint64_t rounds)
{
	const int64_t never = deadline_in_ms(3600 * 1000);
	static char bytes[MOST];
	struct lap_summary half;
	struct laps laps;
	int rc = sock < 0 ? sock : laps_init(&laps, rounds);

	if (rc)
		return rc;
	laps_start(&laps);
	for (uint64_t i = 0; i < rounds && !rc; i++) {
		rc = sock_write_exact(sock, bytes, size, never, "ping");
		if (!rc)
			rc = sock_read_exact(sock, bytes, size, never, "pong");
		laps_next(&laps);
	}
	half = laps_halved(&laps);
	if (!rc)
		rc = print_json_line(json_pack("{s:o}", "half_round_trip_us",
					       lap_summary_as_json(&half)));
	laps_free(&laps);
	return rc;
}

static int serve(int sock)
{
	struct epoll_event ready[EVENTS];
	int epoll = epoll_create1(EPOLL_CLOEXEC), n;

	if (sock < 0 || epoll < 0 || wait_for(epoll, sock))
		return -1;
	while ((n = epoll_wait(epoll, ready, EVENTS, -1)) >= 0)
		for (int i = 0; i < n; i++) {
			if (ready[i].data.fd != sock)
				echo(ready[i].data.fd);
			else if (wait_for(epoll, tcp_accept(sock, 0)))
				return -1;
		}
	return errno == EINTR ? 0 : -1;
}

int main(int argc, char *argv[])
{
	int port = argc == 2 || argc == 5 ? atoi(argv[1]) : 0, rc;
	size_t size = argc == 5 ? (size_t)atoi(argv[3]) : 1;

	if (port <= 0 || port > 65535 || size < 1 || size > MOST)
		return fail(EXIT_USAGE,
			    "usage: epoll_echo PORT [ADDRESS SIZE ROUNDS]",
			    "the arguments are wrong");
	catch_stop_signals();
	rc = argc == 2 ? serve(tcp_listen((uint16_t)port))
		       : ask(tcp_connect(argv[2], (uint16_t)port,
					 deadline_in_ms(10000)),
			     size, strtoul(argv[4], NULL, 10));
	return rc ? 1 : 0;
}
