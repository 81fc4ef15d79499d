// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm 的连接没有建成：请求、应答、该有的那个调用，缺的是哪一个
 */
#include "rules.h"

#include <string.h>

/* 它停在那里，或者是被人叫停的；自己走了的、被杀了的，少做的那一步是后果。*/
static bool still_waits(const struct report *r, int side)
{
	size_t where;
	json_t *line = stopped_at(r, side, &where);
	bool stopped = line != NULL;

	json_decref(line);
	return !r->side[side].ended && (stopped || r->side[side].signalled);
}

static uint64_t port_of(const struct report *r, size_t call)
{
	return call == NOWHERE ? 0 : event_number(r, &r->events[call], "port");
}

/* @side 要连的端口，@other 一个也没有听。0：都对，或者不知道。*/
static uint64_t port_in_vain(const struct report *r, int side, int other,
			     uint64_t *theirs)
{
	size_t asked = last_event(r, side, "rdma_resolve_addr", NULL);
	uint64_t mine = port_of(r, asked);

	*theirs = 0;
	if (!mine)
		return 0;
	EACH(i, &r->side[other].own)
		if (!strcmp(r->events[i].ev, "rdma_bind_addr") &&
		    port_of(r, i)) {
			*theirs = port_of(r, i);
			if (*theirs == mine)
				return 0;
		}
	return *theirs ? mine : 0;
}

static bool has_accepted(const struct report *r, int side)
{
	return last_event(r, side, "rdma_event", "CONNECT_REQUEST") !=
		       NOWHERE &&
	       (last_event(r, side, "rdma_accept", NULL) != NOWHERE ||
		any_thread_in(r, side, "rdma_accept"));
}

/* 请求发出去了（或者正在发），还没有一个事件说怎样了。*/
static bool asks(const struct report *r, int side)
{
	size_t connect = last_event(r, side, "rdma_connect", NULL);

	return any_thread_in(r, side, "rdma_connect") ||
	       (connect != NOWHERE &&
		!is_after(last_event(r, side, "rdma_event", NULL), connect));
}

static struct explanation wrong_port(const struct report *r, int s, int o)
{
	struct explanation why;
	uint64_t theirs, port;

	/* 有几个对端，就不知道它要找的是哪一个。*/
	port = asks(r, s) && r->side[s].other_count == 1
		       ? port_in_vain(r, s, o, &theirs)
		       : 0;
	if (!port)
		return (struct explanation){ 0 };
	why = because("cm-rejected", "%d", 8);
	also_seen(&why, "cm-ports", "%s\t%ju\t%s\t%ju", r->side[s].name, port,
		  r->side[o].name, theirs);
	return why;
}

static struct explanation request_lost(const struct report *r, int s, int o)
{
	if (!asks(r, s) || last_event(r, o, "rdma_listen", NULL) == NOWHERE ||
	    last_event(r, o, "rdma_event", "CONNECT_REQUEST") != NOWHERE)
		return (struct explanation){ 0 };
	return because("nothing-arrives", "%s", r->side[s].name);
}

static struct explanation answer_lost(const struct report *r, int s, int o)
{
	if (!asks(r, s) || !has_accepted(r, o))
		return (struct explanation){ 0 };
	return because("acks-lost", "");
}

bool never_accepted(const struct report *r, int side)
{
	size_t asked = last_event(r, side, "rdma_event", "CONNECT_REQUEST");

	return is_after(asked, last_event(r, side, "rdma_accept", NULL)) &&
	       !any_thread_in(r, side, "rdma_accept") &&
	       is_after(asked, last_event(r, side, "rdma_reject", NULL));
}

static struct explanation not_accepted(const struct report *r, int s, int o)
{
	(void)o;
	if (!never_accepted(r, s))
		return (struct explanation){ 0 };
	return because("cm-not-accepted", "%s", r->side[s].name);
}

/* 路由有了，却从来没有调用 rdma_connect：它的 QP 当然还在 INIT。*/
bool never_connected(const struct report *r, int side)
{
	size_t connect = last_event(r, side, "rdma_connect", NULL);

	return is_after(last_event(r, side, "rdma_resolve_route", NULL),
			connect) &&
	       !any_thread_in(r, side, "rdma_connect");
}

static struct explanation not_connected(const struct report *r, int s, int o)
{
	(void)o;
	if (!never_connected(r, s))
		return (struct explanation){ 0 };
	return because("cm-not-connected", "%s", r->side[s].name);
}

/* 每个对端都问一遍；没有对端的记录，只问不需要它的。*/
static struct explanation why_unconnected(const struct report *r, int s)
{
	static const struct {
		struct explanation (*why)(const struct report *r, int side,
					  int other);
		bool of_two; /* the other side's recording is needed */
	} asked[] = {
		{ wrong_port, true },	  { request_lost, true },
		{ answer_lost, true },	  { not_accepted, false },
		{ not_connected, false },
	};
	struct explanation why = { 0 };

	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
		if (!asked[i].of_two)
			why = asked[i].why(r, s, s);
		EACH_OTHER(o, r, s)
			if (!why.id)
				why = asked[i].why(r, s, o);
		if (why.id)
			return why;
	}
	return why;
}

void check_cm(const struct report *r, struct causes *all)
{
	for (int s = 0; s < r->sides; s++) {
		struct explanation why = { 0 };

		if (still_waits(r, s))
			why = why_unconnected(r, s);
		if (why.id)
			cause_add(r, all, last_of(r, s), NULL, &why);
	}
}
