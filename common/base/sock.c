// SPDX-License-Identifier: MIT
/*
 * sock.c —— TCP：听、连、读满、写满，每一步都有期限
 *
 * 第 4 阶段的“带外”通道，以及其他一切普通的 TCP 连接，都站在这里。对端不可信：它可能
 * 只发半个结构体，可能什么都不发，也可能在任何一步消失。所以读写都精确计数、都有期限。
 */
#include "sock.h"

#include "call_failed.h"
#include "deadline.h"
#include "report.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_MS 100

void sock_close(int *sock)
{
	if (*sock >= 0)
		close(*sock);
	*sock = -1;
}

void address_name(const struct sockaddr *address, char *out, size_t size)
{
	const socklen_t len = address->sa_family == AF_INET6
				      ? sizeof(struct sockaddr_in6)
				      : sizeof(struct sockaddr_in);
	char host[48], port[8];

	snprintf(out, size, "unknown");
	if (!getnameinfo(address, len, host, sizeof(host), port, sizeof(port),
			 NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(out, size, "%s port %s", host, port);
}

void sock_peer_name(int sock, char *out, size_t size)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);

	getpeername(sock, (struct sockaddr *)&addr, &len);
	address_name((struct sockaddr *)&addr, out, size);
}

/* 小消息要立刻发走：Nagle 算法会让 8 字节的 hello 等上几十毫秒。*/
static void set_nodelay(int sock)
{
	const int on = 1;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int listen_failed(int err, uint16_t port)
{
	if (err == EADDRINUSE)
		return call_failed_for(
			err, "another process listens on this port",
			"choose another port, or find that process with ss "
			"-ltnp",
			"bind(TCP port %u)", port);
	if (err == EACCES)
		return call_failed_for(err, "ports below 1024 need root",
				       "choose a port above 1023",
				       "bind(TCP port %u)", port);
	return call_failed(err, "listen(TCP port %u)", port);
}

int tcp_listen(uint16_t port)
{
	/* 一个 IPv6 socket 关掉 V6ONLY，就能同时收 IPv4 与 IPv6 的连接。*/
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(port),
				     .sin6_addr = in6addr_any };
	struct sockaddr_in any4 = { .sin_family = AF_INET,
				    .sin_port = htons(port) };
	const int on = 1, off = 0;
	bool v6 = true;
	int err = 0;
	int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sock < 0) { /* 内核以 ipv6.disable=1 启动时没有 IPv6 */
		v6 = false;
		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	if (sock < 0)
		return listen_failed(errno, port);
	/* 没有它，上一个 server 退出后的 TIME_WAIT 会让 bind 失败一分钟。*/
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (v6)
		setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(sock, v6 ? (struct sockaddr *)&any6 : (struct sockaddr *)&any4,
		 v6 ? sizeof(any6) : sizeof(any4)) ||
	    /* 队短了，挤在同一刻来的人里有谁的 SYN 被丢掉，要一秒后才再敲门。*/
	    listen(sock, SOMAXCONN))
		err = errno;
	if (!err)
		return sock;
	close(sock);
	return listen_failed(err, port);
}

int wait_failed(int rc, const char *fmt, const char *what)
{
	char text[128];

	if (rc == -EINTR && stop_is_expected())
		return rc;
	snprintf(text, sizeof(text), fmt, what);
	if (rc == -EINTR)
		return fail(rc, NULL, "%s: stopped by a signal", text);
	if (rc == -ETIMEDOUT)
		return fail(rc,
			    "is the peer running, and not stopped? --timeout "
			    "SECS waits longer",
			    "%s: nothing came before the deadline", text);
	if (rc == -ECONNRESET || rc == -EPIPE)
		return fail(rc, "see the peer's own messages",
			    "%s: the peer closed the connection", text);
	return fail(rc, NULL, "%s: %s", text, strerror(-rc));
}

/* 有人敲门：他的 socket；-EAGAIN，接着等；或别的 -errno。不报告。*/
static int accept_one(int listen_sock)
{
	int sock = accept4(listen_sock, NULL, NULL, SOCK_CLOEXEC);

	/* 对端可能在被 accept 之前就断开：不是我们的错误，接着等。*/
	if (sock < 0)
		return errno == EINTR || errno == ECONNABORTED ? -EAGAIN
							       : -errno;
	set_nodelay(sock);
	return sock;
}

int tcp_accept(int listen_sock, int64_t deadline)
{
	int sock, rc;

	do {
		rc = wait_fd(listen_sock, POLLIN, deadline);
		if (rc)
			return wait_failed(rc, "%s", "waiting for a client");
		sock = accept_one(listen_sock);
	} while (sock == -EAGAIN);
	return sock < 0 ? call_failed(-sock, "accept()") : sock;
}

/* ---- 敲门的人里，哪一个是 client -------------------------------------------- */

/*
 * 一次端口扫描、一个走错门的浏览器，都不该让 server 结束。所以先不认：谁先说出我们的
 * magic，谁才是 client。不说话的也不赶走，只是不等他：大家一起等，各自的 socket 都在
 * 同一个 epoll 里。
 */
#define CALLERS 16 /* 满了再来人，就关掉最早的那个 */

struct callers {
	int epoll;
	int socks[CALLERS];
	unsigned int next;
	const void *greeting; /* accept 之后先发给他的 */
	size_t size;
};

static void turn_away(int sock, const char *said, ssize_t length)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(peer);
	char host[64] = "somebody", text[64];

	if (!getpeername(sock, (struct sockaddr *)&peer, &size))
		getnameinfo((struct sockaddr *)&peer, size, host, sizeof(host),
			    NULL, 0, NI_NUMERICHOST);
	if (length > 0)
		report_warning("the client must be of this program, and of "
			       "the same build",
			       "%s is no client: it begins with \"%s\"; still "
			       "waiting for one",
			       host,
			       printable_text(text, sizeof(text), said,
					      (size_t)length));
	else
		report_warning(NULL,
			       "%s has left without a word; still waiting for "
			       "a client",
			       host);
}

/* @sock 开口了：1 是我们的 client，0 还没说完，-1 不是。*/
static int peek_hello(int sock, uint32_t magic)
{
	char said[4];
	ssize_t n = recv(sock, said, sizeof(said), MSG_PEEK | MSG_DONTWAIT);
	uint32_t ours = htonl(magic);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n == sizeof(said) && !memcmp(said, &ours, sizeof(said)))
		return 1;
	turn_away(sock, said, n);
	return -1;
}

static int watch(int epoll, int sock)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = sock };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, sock, &event) ? -errno : 0;
}

static int accept_pending(struct callers *c, int listen_sock)
{
	const int whole = sizeof(uint32_t), room = 64 << 10;
	int *place = &c->socks[c->next++ % CALLERS];
	int sock = accept_one(listen_sock);

	if (sock < 0)
		return sock == -EAGAIN ? 0 : sock;
	sock_close(place);
	*place = sock;
	/* 不到四个字节就别叫醒我们。*/
	setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
	/* 问候要一次放得下：没收全，对方就答不上来。*/
	if (c->size)
		setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (c->size)
		(void)!send(sock, c->greeting, c->size,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
	return watch(c->epoll, sock);
}

/* 等下一个敲门的，或开口的；是 client 的话，记在 @client。*/
static int next_event(struct callers *c, int listen_sock, uint32_t magic,
		      int64_t deadline, int *client)
{
	struct epoll_event event;
	int rc = wait_fd(c->epoll, POLLIN, deadline);
	int *place = c->socks;

	if (rc)
		return wait_failed(rc, "%s", "waiting for a client");
	if (epoll_wait(c->epoll, &event, 1, 0) != 1)
		return 0;
	if (event.data.fd == listen_sock) {
		rc = accept_pending(c, listen_sock);
		return rc ? call_failed(-rc, "accept()") : 0;
	}
	while (*place != event.data.fd)
		place++;
	rc = peek_hello(*place, magic);
	if (rc > 0) {
		*client = *place;
		*place = -1;
	} else if (rc < 0) {
		sock_close(place);
	}
	return 0;
}

int tcp_accept_client(int listen_sock, uint32_t magic, const void *greeting,
		      size_t size, int64_t deadline)
{
	const int any = 1;
	struct callers c = { .epoll = epoll_create1(EPOLL_CLOEXEC),
			     .greeting = greeting,
			     .size = size };
	int sock = -1, rc = c.epoll < 0 ? -errno : 0;

	memset(c.socks, 0xff, sizeof(c.socks)); /* -1 */
	if (!rc)
		rc = watch(c.epoll, listen_sock);
	if (rc)
		rc = call_failed(-rc, "epoll(TCP)");
	while (!rc && sock < 0)
		rc = next_event(&c, listen_sock, magic, deadline, &sock);
	for (unsigned int i = 0; i < CALLERS; i++)
		sock_close(&c.socks[i]);
	sock_close(&c.epoll);
	if (rc)
		return rc;
	setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof(any));
	return sock;
}

/* 一次连接尝试：返回 socket，或 -errno（此时不报告，由调用者决定重试与否）。*/
static int connect_once(const struct addrinfo *ai, int64_t deadline)
{
	socklen_t len = sizeof(int);
	int err = 0;
	int rc;
	int sock = socket(ai->ai_family,
			  ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (sock < 0)
		return -errno;
	/* 非阻塞 connect：否则丢包时一次 connect 就会睡上两分钟，期限形同虚设。*/
	rc = connect(sock, ai->ai_addr, ai->ai_addrlen) ? -errno : 0;
	if (rc == -EINPROGRESS || rc == -EINTR)
		rc = wait_fd(sock, POLLOUT, deadline);
	if (!rc && getsockopt(sock, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (!rc)
		rc = -err;
	if (!rc) {
		set_nodelay(sock);
		return sock;
	}
	close(sock);
	return rc;
}

/*
 * server 还没启动、正在启动、或网络刚起来：这些都值得再试。ECONNRESET 不在其中：
 * 有人接了这个连接，又立刻用 RST 挂断；再连多半只会等来 ECONNREFUSED，
 * 那时再报“没有人在听”就是误导。
 */
static bool worth_retrying(int rc)
{
	return rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

static int connect_failed(int rc, const char *server, uint16_t port)
{
	const char *cause = NULL, *next = NULL;

	if (rc == -EINTR || rc == -ECONNRESET)
		return wait_failed(rc, "connecting to %s", server);
	if (rc == -ECONNREFUSED) {
		cause = "no server listened there before the deadline";
		next = "start the server first; compare address and port";
	} else if (rc == -ETIMEDOUT) {
		cause = "no answer before the deadline";
		next = "ping the address; a firewall may drop the TCP port";
	} else if (rc == -EHOSTUNREACH || rc == -ENETUNREACH) {
		cause = "no route leads there, or nobody answers ARP";
		next = "ping the address; see `ip route` and `ip neigh`";
	}
	return call_failed_for(-rc, cause, next, "connect(%s, TCP port %u)",
			       server, port);
}

/* 一个名字可能有好几个地址（::1 与 127.0.0.1）：一个不通就试下一个。*/
static int connect_any(const struct addrinfo *list, int64_t deadline,
		       bool *again)
{
	int rc = -ETIMEDOUT;

	*again = false;
	for (; list; list = list->ai_next) {
		rc = connect_once(list, deadline);
		if (rc >= 0 || rc == -EINTR)
			return rc;
		*again |= worth_retrying(rc);
	}
	return rc;
}

int tcp_look_up(const char *server, uint16_t port, struct addrinfo **list)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(server, service, &hints, list);
	if (!rc)
		return 0;
	return fail(-EINVAL,
		    "give an IPv4 or IPv6 address, or a name that resolves",
		    "getaddrinfo(\"%s\") failed: %s", server, gai_strerror(rc));
}

// region tcp-connect
int tcp_connect(const char *server, uint16_t port, int64_t deadline)
{
	struct addrinfo *list;
	int last = -ETIMEDOUT;
	bool again;
	int rc = tcp_look_up(server, port, &list);

	if (rc)
		return rc;
	/* 课堂上两个终端谁先敲回车不一定，所以 client 在期限内反复尝试。*/
	for (;;) {
		rc = connect_any(list, deadline, &again);
		if (rc >= 0 || rc == -EINTR)
			break;
		if (rc != -ETIMEDOUT)
			last = rc;
		if (!again || deadline_passed(deadline))
			break;
		rc = deadline_sleep_ms(RETRY_MS, deadline);
		if (rc)
			break;
	}
	freeaddrinfo(list);
	if (rc >= 0)
		return rc;
	return connect_failed(rc == -EINTR ? rc : last, server, port);
}
// endregion tcp-connect

// region exact
int sock_read_exact(int sock, void *data, size_t size, int64_t deadline,
		    const char *what)
{
	char *at = data;

	/*
	 * TCP 是字节流，没有消息边界：一次 read 可能只给出一半。必须循环到凑满。
	 */
	while (size) {
		ssize_t n = recv(sock, at, size, MSG_DONTWAIT);
		int rc = 0;

		if (n > 0) {
			at += n;
			size -= (size_t)n;
		} else if (n == 0) {
			rc = -ECONNRESET; /* 对端在消息中间关闭了连接 */
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_fd(sock, POLLIN, deadline);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return wait_failed(rc, "reading the peer's %s", what);
	}
	return 0;
}

int sock_write_exact(int sock, const void *data, size_t size, int64_t deadline,
		     const char *what)
{
	const char *at = data;

	/* 写也可能“短写”：socket buffer 满时只收下一部分。*/
	while (size) {
		ssize_t n = send(sock, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		int rc = 0;

		if (n >= 0) {
			at += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_fd(sock, POLLOUT, deadline);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return wait_failed(rc, "sending my %s", what);
	}
	return 0;
}
// endregion exact
