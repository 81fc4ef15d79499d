/* SPDX-License-Identifier: MIT */
/*
 * sock.h - TCP connections whose every wait ends, and reads and writes of an exact
 * number of bytes. Stage 4 talks over one. Failures are reported.
 */
#ifndef BASE_SOCK_H
#define BASE_SOCK_H

#include <stddef.h>
#include <stdint.h>

/* Listen on @port, on all IPv4 and IPv6 addresses. Returns the socket. */
int tcp_listen(uint16_t port);

/* Accept one connection before @deadline. Returns the socket. */
int tcp_accept(int listen_sock, int64_t deadline);

/*
 * Accept connections until one begins with @magic (four bytes, big-endian), and
 * return it; nothing has been read from it. Each is sent @greeting first (@size
 * bytes, few enough for a socket's buffer; NULL: none). A peer that begins otherwise
 * or goes away is reported as a stranger. A silent peer keeps nobody waiting.
 */
int tcp_accept_client(int listen_sock, uint32_t magic, const void *greeting,
		      size_t size, int64_t deadline);

/* The addresses of @server, with @port, for freeaddrinfo(3). */
struct addrinfo;
int tcp_look_up(const char *server, uint16_t port, struct addrinfo **list);

/*
 * Connect to @server:@port, trying again until @deadline while nobody listens
 * there yet. Returns the socket.
 */
int tcp_connect(const char *server, uint16_t port, int64_t deadline);

/* Close *@sock if it is one, and set it to -1. */
void sock_close(int *sock);

/* "ADDRESS port PORT" of @address, an IPv4 or IPv6 one. */
struct sockaddr;
void address_name(const struct sockaddr *address, char *out, size_t size);

/* The same of the peer, or "unknown". */
void sock_peer_name(int sock, char *out, size_t size);

/*
 * Read or write exactly @size bytes before @deadline. @what names them in the
 * failure report ("hello", ...). -ETIMEDOUT, -ECONNRESET (peer closed), -EINTR
 * (stop requested).
 */
int sock_read_exact(int sock, void *data, size_t size, int64_t deadline,
		    const char *what);
int sock_write_exact(int sock, const void *data, size_t size, int64_t deadline,
		     const char *what);

/*
 * Report that a wait ended with @rc (-EINTR, -ETIMEDOUT, -ECONNRESET, ...) and
 * return it; @fmt with @what says what was waited for.
 */
int wait_failed(int rc, const char *fmt, const char *what);

#endif
