// SPDX-License-Identifier: MIT
/*
 * cm.c —— 用 librdmacm 连接的一端：步骤写在目录的行里（-A、-B），错误就是多一步、少一步、
 * 换一个值
 */
#include "faults.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP_S	   3
#define RESOLVE_MS 1000

struct cm {
	struct end *end;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	struct sockaddr_in from;
	bool keeps; /* acknowledges no event any more */
};

enum word {
	ID, /* =alone: without a channel; =udp */
	FROM,
	ADDR, /* =IP, or the peer's */
	ROUTE,
	BIND, /* =IP, or any */
	LISTEN,
	REQUEST,
	CREATE_QP, /* =foreign: with a PD of another context */
	LEN,	   /* of the private data, from here on */
	DEPTH,
	CONNECT,
	ACCEPT,
	REJECT,
	ANSWER, /* ESTABLISHED */
	DISCONNECT,
	DOWN,
	EVENT, /* any */
	KEEP,
	CLOSE, /* the channel's fd */
	DROP,
	MEET,
	HOOK,
	SLEEP,
	DIE,
	NAME,
};

#define CALL  (-1) /* no event belongs to it */
#define WHICH (-2)

static const struct {
	const char *word, *call;
	int event;
} words[] = {
	[ID] = { "id", "rdma_create_id", CALL },
	[FROM] = { "from", "", CALL },
	[ADDR] = { "addr", "rdma_resolve_addr", RDMA_CM_EVENT_ADDR_RESOLVED },
	[ROUTE] = { "route", "rdma_resolve_route",
		    RDMA_CM_EVENT_ROUTE_RESOLVED },
	[BIND] = { "bind", "rdma_bind_addr", CALL },
	[LISTEN] = { "listen", "rdma_listen", CALL },
	[REQUEST] = { "request", "rdma_get_cm_event",
		      RDMA_CM_EVENT_CONNECT_REQUEST },
	[CREATE_QP] = { "qp", "rdma_create_qp", CALL },
	[LEN] = { "len", "", CALL },
	[DEPTH] = { "depth", "", CALL },
	[CONNECT] = { "connect", "rdma_connect", CALL },
	[ACCEPT] = { "accept", "rdma_accept", CALL },
	[REJECT] = { "reject", "rdma_reject", CALL },
	[ANSWER] = { "up", "rdma_get_cm_event", RDMA_CM_EVENT_ESTABLISHED },
	[DISCONNECT] = { "disconnect", "rdma_disconnect", CALL },
	[DOWN] = { "down", "rdma_get_cm_event", RDMA_CM_EVENT_DISCONNECTED },
	[EVENT] = { "event", "rdma_get_cm_event", WHICH },
	[KEEP] = { "keep", "", CALL },
	[CLOSE] = { "close", "close", CALL },
	[DROP] = { "drop", "rdma_destroy_id", CALL },
	[MEET] = { "meet", "", CALL },
	[HOOK] = { "hook", "system", CALL },
	[SLEEP] = { "sleep", "sleep", CALL },
	[DIE] = { "die", "", CALL },
	[NAME] = { "name", "rdma_getaddrinfo", CALL },
};

/* 目录的行同时运行，各用各的端口。*/
static struct sockaddr_in address(const struct end *end, const char *ip)
{
	pid_t pid = end->name == 'A' ? getpid() : getppid();
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(20000 + pid % 10000)),
	};

	/* 对端的 GID 是 ::ffff:a.b.c.d。*/
	if (!inet_pton(AF_INET, ip, &to.sin_addr))
		memcpy(&to.sin_addr, end->peer.gid.raw + 12, 4);
	return to;
}

static int create_qp(struct cm *cm, bool foreign)
{
	struct ibv_qp_init_attr init = {
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = cm->id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
	};

	return rdma_create_qp(
		cm->id, foreign ? ibv_alloc_pd(cm->end->context) : NULL, &init);
}

static int create_id(struct cm *cm, const char *value)
{
	return rdma_create_id(strcmp(value, "alone") ? cm->channel : NULL,
			      &cm->id, NULL,
			      strcmp(value, "udp") ? RDMA_PS_TCP : RDMA_PS_UDP);
}

static int drop(struct cm *cm)
{
	if (cm->id->qp)
		rdma_destroy_qp(cm->id);
	return rdma_destroy_id(cm->id);
}

/* 删设备要等用它的程序放手。*/
static int run_beside(const char *command)
{
	char beside[256];

	snprintf(beside, sizeof(beside), "%s &", command ? command : ":");
	return system(beside);
}

static int call(struct cm *cm, enum word word, const char *value)
{
	static const char data[UINT8_MAX];
	struct sockaddr_in at = address(cm->end, *value ? value : "0.0.0.0");
	uint8_t number = (uint8_t)strtoul(value, NULL, 0);
	struct rdma_addrinfo *info;

	switch (word) {
	case ID:
		return create_id(cm, value);
	case FROM:
		cm->from = at;
		cm->from.sin_port = 0;
		return 0;
	case ADDR:
		at = address(cm->end, value);
		return rdma_resolve_addr(
			cm->id, cm->from.sin_family ? (void *)&cm->from : NULL,
			(void *)&at, RESOLVE_MS);
	case ROUTE:
		return rdma_resolve_route(cm->id, RESOLVE_MS);
	case BIND:
		return rdma_bind_addr(cm->id, (void *)&at);
	case LISTEN:
		return rdma_listen(cm->id, 1);
	case CREATE_QP:
		return create_qp(cm, *value);
	case LEN:
		cm->param.private_data = data;
		cm->param.private_data_len = number;
		return 0;
	case DEPTH:
		cm->param.initiator_depth = number;
		return 0;
	case CONNECT:
		return rdma_connect(cm->id, &cm->param);
	case ACCEPT:
		return rdma_accept(cm->id, &cm->param);
	case REJECT:
		return rdma_reject(cm->id, cm->param.private_data,
				   cm->param.private_data_len);
	case DISCONNECT:
		return rdma_disconnect(cm->id);
	case KEEP:
		cm->keeps = true;
		return 0;
	case CLOSE:
		return close(cm->channel->fd);
	case DROP:
		return drop(cm);
	case MEET:
		meet(cm->end);
		return 0;
	case HOOK:
		return run_beside(cm->end->hook);
	case SLEEP:
		return (int)sleep(3 * STEP_S);
	case DIE:
		return raise(SIGKILL);
	case NAME:
		return rdma_getaddrinfo("no-such-host.invalid", "1", NULL,
					&info);
	default:
		return 0;
	}
}

/* TIMEWAIT_EXIT 只是通知，接着等。*/
static void take_event(struct cm *cm, int wanted)
{
	struct rdma_cm_event *event;
	int type;

	do {
		check(cm->end, "rdma_get_cm_event",
		      rdma_get_cm_event(cm->channel, &event) ? errno : 0);
		type = (int)event->event;
		say(cm->end, "%s, status %d", rdma_event_str(event->event),
		    event->status);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			cm->id = event->id;
		if (!cm->keeps)
			rdma_ack_cm_event(event);
	} while (type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (wanted != WHICH && type != wanted)
		leave(cm->end, EXIT_FAILURE);
}

/* 等不来的：记录器在 SIGTERM 里留下最后的话。B 的先写完。*/
static void end_waiting(int sig)
{
	(void)sig;
	wait(NULL);
	raise(SIGTERM);
}

static enum word find(const struct end *end, const char *word)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(words[i].word, word))
			return (enum word)i;
	say(end, "there is no step \"%s\"", word);
	leave(end, 2);
}

static void take_step(struct cm *cm, char *step)
{
	const char *name = strsep(&step, "=");
	enum word word = find(cm->end, name);
	const char *value = step ? step : "";

	/* 睡着的一端不先走，等它的才看得出在等。*/
	alarm(word == SLEEP ? 2 * STEP_S : STEP_S);
	check(cm->end, words[word].call, call(cm, word, value) ? errno : 0);
	/* 没有 channel 的 id，调用自己已经等过了。*/
	if (words[word].event != CALL && cm->id->channel == cm->channel)
		take_event(cm, words[word].event);
}

void connect_by_cm(struct end *end)
{
	struct cm cm = { .end = end,
			 .param = { .responder_resources = 1,
				    .initiator_depth = 1 } };
	bool first = end->name == 'A';
	char *left = strdup(end->steps[!first] ? end->steps[!first]
			    : first	       ? "id,addr,route,qp,connect,up,"
						 "disconnect,down,drop"
				    : "id,bind,listen,meet,request,qp,accept,"
				      "up,down,disconnect,drop");

	signal(SIGALRM, end_waiting);
	open_device(end);
	check(end, "ibv_query_gid",
	      ibv_query_gid(end->context, 1, 1, &end->mine.gid));
	exchange(end);
	cm.channel = rdma_create_event_channel();
	need(end, "rdma_create_event_channel", cm.channel);
	if (first)
		meet(end);
	while (left && *left)
		take_step(&cm, strsep(&left, ","));
	say(end, "done");
	leave(end, EXIT_SUCCESS);
}
