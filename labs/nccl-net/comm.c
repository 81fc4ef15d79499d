// SPDX-License-Identifier: MIT
/*
 * comm.c —— comm 的生与死
 *
 * comm 是插件里的“一条连接”：一个 control socket 和几个 data socket，外加 16 个 request
 * 的位置。request 就放在 comm 里面：每条消息都 malloc 一次的话，小消息的时间有一半会
 * 花在分配器里；位置数固定，也正好就是“最多 16 个未完成”这条规矩。
 *
 * 调用者手里只有 void *。NCCL 的三种 comm 类型都是它，编译器帮不上忙，所以每个 comm 的
 * 第一个字段是 kind，拿错了当场就知道，而不是把 listener 的字节当 fd 用。
 */
#include "net_lab.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct lab_comm *lab_comm_of(void *p, enum lab_kind kind, const char *call)
{
	struct lab_comm *c = p;

	if (c && c->kind == (uint32_t)kind)
		return c;
	LAB_WARN("%s: %p is no %s comm", call, p,
		 kind == LAB_SEND ? "send" : "receive");
	return NULL;
}

void lab_addr_text(char *text, size_t size, const struct sockaddr_in *addr)
{
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &addr->sin_addr, ip, sizeof(ip));
	snprintf(text, size, "%s:%u", ip, ntohs(addr->sin_port));
}

/*
 * 两个选项都是为了小消息的延迟：
 *
 * NODELAY：credit 只有几十字节，Nagle 会让它等上一个 ACK，微秒变成毫秒。
 *
 * QUICKACK 关掉：我们的每个 socket 只有一个方向有数据，ACK 没有回程的数据可以搭车。
 * 默认情况下，接收方每 recvmsg 一条小消息，内核就在这次调用里单独发一个 ACK，正好挡
 * 在回信之前。关掉之后 ACK 可以攒两条再发（大消息不受影响，满一个 MSS 总要 ACK）。
 * 这个选项内核可能自己改回去（man 7 tcp），所以它只影响快慢，不影响对错。
 */
void lab_set_low_latency(int fd)
{
	const int on = 1, off = 0;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off));
}

struct lab_comm *lab_comm_new(enum lab_kind kind, const int *fds,
			      unsigned int count,
			      const struct sockaddr_in *peer)
{
	struct lab_comm *c = calloc(1, sizeof(*c));

	if (!c) {
		LAB_WARN("no memory for a comm (%zu bytes)", sizeof(*c));
		return NULL;
	}
	c->kind = kind;
	c->control = fds[0];
	c->nstreams = count - 1;
	for (unsigned int i = 0; i < c->nstreams; i++)
		c->streams[i].fd = fds[i + 1];
	lab_addr_text(c->peer, sizeof(c->peer), peer);
	LAB_INFO("%s comm %p with %s: %u data sockets",
		 kind == LAB_SEND ? "send" : "receive", (void *)c, c->peer,
		 c->nstreams);
	return c;
}

/* 一个 frame 搬完了；若它是该 part 的最后一块，part 就完成了。*/
void lab_frame_done(struct lab_comm *c, struct lab_stream *s)
{
	struct lab_part *p = s->part;

	if (p->moved == p->total && !--s->req->unfinished)
		c->waiting--;
	s->req = NULL;
	s->part = NULL;
}

/* 见 receive.c 的 peek_stream()。*/
void lab_discard_peeked(struct lab_stream *s)
{
	if (s->peeked)
		(void)!recv(s->fd, s->stash, s->peeked,
			    MSG_DONTWAIT | MSG_TRUNC);
	s->peeked = 0;
	s->idle = 0;
}

/*
 * close() 之后内核继续把 socket buffer 里的字节发完（没有设 SO_LINGER 0），但若对端的
 * 程序已经不在，谁也不会知道它们没到。所以“先确认，后关闭”是应用层的责任。
 */
static int close_comm(void *comm, enum lab_kind kind, const char *call)
{
	struct lab_comm *c;

	if (!comm)
		return NCCL_SUCCESS;
	c = lab_comm_of(comm, kind, call);
	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (c->nmrs)
		LAB_WARN("%s: %u registrations were not taken back (deregMr)",
			 call, c->nmrs);
	for (unsigned int i = 0; i < c->nstreams; i++) {
		/* 没读完就 close，内核发的是 RST，不是 FIN。*/
		lab_discard_peeked(&c->streams[i]);
		close(c->streams[i].fd);
	}
	close(c->control);
	c->kind = 0;
	free(c);
	return NCCL_SUCCESS;
}

int lab_close_send(void *comm)
{
	return close_comm(comm, LAB_SEND, "closeSend");
}

int lab_close_recv(void *comm)
{
	return close_comm(comm, LAB_RECV, "closeRecv");
}
