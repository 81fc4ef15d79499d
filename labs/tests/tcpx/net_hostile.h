/* SPDX-License-Identifier: MIT */
/*
 * net_hostile.h - what the parts of net_hostile share: net_hostile.c runs the cases,
 * the others are the peers of a listener, of a receiver and of a sender, and the
 * interfaces that the plugin finds.
 */
#ifndef LABS_TESTS_TCPX_NET_HOSTILE_H
#define LABS_TESTS_TCPX_NET_HOSTILE_H

#include "../open_files.h"
#include "tcpx/nccl_net.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* A row of a table says what is not 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define HELLO  0x4c414248u
#define FRAME  0x4c414246u
#define CREDIT 0x4c414243u

/* What becomes of the socket after the last byte. */
enum after {
	ON,
	CLOSE,
	RESET,
	DRIP /* and byte by byte before */
};

extern const ncclNet_v8_t *net;
extern const char *title;  /* of the case that runs */
extern char logged[65536]; /* the plugin's warnings, a line each */
extern char storage[NCCL_NET_DEV_HANDLE_SIZE]; /* for connect and accept */

#define CHECK(ok, ...)                                         \
	do {                                                   \
		if (ok)                                        \
			break;                                 \
		printf("FAIL %s: line %d: ", title, __LINE__); \
		printf(__VA_ARGS__);                           \
		printf("\n  log: %s\n", logged);               \
		fflush(stdout);                                \
		_exit(3);                                      \
	} while (0)

/* What comes of a call that its arguments forbid. */
#define REFUSED(call)                                                         \
	do {                                                                  \
		int refused = (call);                                         \
                                                                              \
		CHECK(refused == NCCL_INVALID_ARGUMENT, #call " returned %d", \
		      refused);                                               \
	} while (0)

/* init(), which comes before all else. */
void start(void);

/* How often the log says so. */
unsigned int count(const char *text);

/* A millisecond for the other side; fails in the 20,000th round. */
void pause_for(const char *what, int *rounds);

/* Big-endian integers; put returns what follows. */
char *put(char *at, uint64_t value, int width);
uint64_t get(const char *at, int width);

/* The head of a frame, with its magic as given. */
char *put_frame(char *at, uint32_t magic, uint32_t seq, uint32_t slot,
		uint32_t total, uint32_t offset, uint32_t length);

/* Exactly n bytes, or the case fails. */
void say(int fd, const char *bytes, size_t n);
void hear(int fd, char *bytes, size_t n);

/* Any send() of this process, the plugin's, too: a byte short, or not at all. */
enum {
	WHOLE,
	SHORT = -1
};
extern int send_fault; /* or an errno */

/* Close; reset: with an RST. */
void end(int fd, bool reset);

/* Byte offset of the message in that slot. */
uint8_t pattern(uint32_t slot, uint32_t offset);

/* Run it in a child that tells how it went. */
void in_child(const char *name, void (*run)(const void *), const void *arg);

#define EACH(table, run)                                              \
	for (size_t i = 0; i < sizeof(table) / sizeof(*(table)); i++) \
	in_child((table)[i].name, run, &(table)[i])

/* A listener of the plugin, and what became of it. */
struct victim {
	void *listen, *comm, *request[2];
	struct sockaddr_in addr;
	uint64_t cookie;
	int fds; /* open before */
};

void listen_on(struct victim *v);

/* One call of accept, which must not fail: is there a comm? */
bool accepted(struct victim *v);

/* A connection as it should be; fd[0] is the control socket. */
void join(struct victim *v, int fd[3]);

/* Its three sockets, then as close_all. */
void part(struct victim *v, const int fd[3]);

/* Both comms, and no descriptor may be left. */
void close_all(struct victim *v);

void listener_cases(void);
void receiver_cases(void);
void sender_cases(void);
void device_cases(void);

#endif
