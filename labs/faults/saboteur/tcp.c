// SPDX-License-Identifier: MIT
/*
 * tcp.c —— 程序经 TCP 交换 QPN、PSN、GID 时少了一个字节
 *
 * 程序以为都写出去了：返回值仍是原来的长度。
 */
#include "hooks.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_tcp(int fd)
{
	int protocol = 0;
	socklen_t len = sizeof(protocol);

	return !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
	       protocol == IPPROTO_TCP;
}

static enum deed deed_for(int fd, size_t size)
{
	return rule_mine() && size && is_tcp(fd) ? rule_apply(CALL_TCP, NULL)
						 : DO;
}

EXPORTED ssize_t write(int fd, const void *data, size_t size)
{
	NEXT_OF(write, "libc.so.6");
	enum deed deed = deed_for(fd, size);

	if (deed == DO)
		return real(fd, data, size);
	if (deed == LOSE && size > 1 && real(fd, data, size - 1) < 0)
		return -1;
	return (ssize_t)size;
}

EXPORTED ssize_t send(int fd, const void *data, size_t size, int flags)
{
	NEXT_OF(send, "libc.so.6");
	enum deed deed = deed_for(fd, size);

	if (deed == DO)
		return real(fd, data, size, flags);
	if (deed == LOSE && size > 1 && real(fd, data, size - 1, flags) < 0)
		return -1;
	return (ssize_t)size;
}
