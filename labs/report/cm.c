// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm 的连接没有建成：请求、应答、该有的那个调用，缺的是哪一个
 */
#include "rules.h"

#include <arpa/inet.h>
#include <byteswap.h>
#include <signal.h>
#include <string.h>

static bool crashed(const struct report *r, int side)
{
	size_t last = last_event(r, side, "signal", NULL);

	return last != NOWHERE &&
	       event_number(r, &r->events[last], "signal") == SIGSEGV;
}

/* 它停在那里，或者是被人叫停的；自己走了的、被杀了的，少做的那一步是后果。*/
static bool still_waits(const struct report *r, int side)
{
	size_t where;
	json_t *line = stopped_at(r, side, &where);
	bool stopped = line != NULL;

	json_decref(line);
	return !r->side[side].ended &&
	       (stopped || (r->side[side].signalled && !crashed(r, side)));
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

static size_t count_calls(const struct report *r, int side, const char *ev,
			  const char *op)
{
	size_t n = any_thread_in(r, side, ev);

	EACH(i, &r->side[side].own)
		n += r->events[i].class != CLASS_FAILURE &&
		     !strcmp(r->events[i].ev, ev) &&
		     !strcmp(r->events[i].op, op);
	return n;
}

static bool has_accepted(const struct report *r, int side)
{
	return last_event(r, side, "rdma_event", "CONNECT_REQUEST") !=
		       NOWHERE &&
	       (last_event(r, side, "rdma_accept", NULL) != NOWHERE ||
		any_thread_in(r, side, "rdma_accept"));
}

/*
 * 请求发出去了（或者正在发），还没有一个事件说怎样了。等事件的线程，多半在 rdma_connect 之前就
 * 已经在等：看它什么时候等到。
 */
bool cm_asks(const struct report *r, int side)
{
	size_t connect = last_event(r, side, "rdma_connect", NULL);
	bool now = any_thread_in(r, side, "rdma_connect");

	if (now || connect == NOWHERE)
		return now;
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (!strcmp(e->ev, "rdma_event") &&
		    returned_at(r, e) > r->events[connect].t)
			return false;
	}
	return true;
}

static struct explanation wrong_port(const struct report *r, int s, int o)
{
	struct explanation why;
	uint64_t theirs, port;

	/* 有几个对端，就不知道它要找的是哪一个。*/
	port = cm_asks(r, s) && r->side[s].other_count == 1
		       ? port_in_vain(r, s, o, &theirs)
		       : 0;
	if (!port)
		return (struct explanation){ 0 };
	why = because("cm-rejected", "%d", 8);
	also_seen(&why, "cm-ports", "%s\t%ju\t%s\t%ju", r->side[s].name, port,
		  r->side[o].name, theirs);
	if (bswap_16((uint16_t)port) == theirs)
		also_seen(&why, "cm-port-order");
	return why;
}

/* 在别的 fd 上等的，也会看见 channel 的。*/
static bool sits_in_poll(const struct report *r, int side)
{
	EACH(i, &r->side[side].own) {
		json_t *line;
		bool found;

		if (strcmp(r->events[i].ev, "thread"))
			continue;
		line = event_line(r, &r->events[i]);
		found = strstr(text_in(line, "in"), "poll") ||
			strstr(text_in(line, "in"), "select");
		json_decref(line);
		if (found)
			return true;
	}
	return false;
}

/* 请求多半到了，@o 却没有来取：它听着，人在别处。*/
static struct explanation request_lost(const struct report *r, int s, int o)
{
	size_t asked = count_calls(r, s, "rdma_connect", "");
	size_t taken = count_calls(r, o, "rdma_event", "CONNECT_REQUEST");

	if (!cm_asks(r, s) ||
	    last_event(r, o, "rdma_listen", NULL) == NOWHERE || taken >= asked)
		return (struct explanation){ 0 };
	if (r->side[s].other_count == 1 && r->side[o].other_count == 1 &&
	    !any_thread_in(r, o, "rdma_get_cm_event") && !sits_in_poll(r, o))
		return because("cm-request-unread", "%s\t%zu\t%s\t%zu",
			       r->side[s].name, asked, r->side[o].name, taken);
	if (taken)
		return (struct explanation){ 0 };
	return because("nothing-arrives", "%s", r->side[s].name);
}

static struct explanation answer_lost(const struct report *r, int s, int o)
{
	if (!cm_asks(r, s) || !has_accepted(r, o) ||
	    count_calls(r, s, "rdma_connect", "") >
		    count_calls(r, o, "rdma_accept", ""))
		return (struct explanation){ 0 };
	return because("acks-lost", "");
}

bool never_accepted(const struct report *r, int side)
{
	size_t asked = last_event(r, side, "rdma_event", "CONNECT_REQUEST");

	return is_after(asked, last_event(r, side, "rdma_accept", NULL)) &&
	       !any_thread_in(r, side, "rdma_accept") &&
	       !any_thread_in(r, side, "rdma_create_qp") &&
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
	       !any_thread_in(r, side, "rdma_create_qp") &&
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

/* ---- 等事件，而没有一个会来 ------------------------------------------------- */

enum cm_state {
	CM_UNKNOWN,
	CM_PENDING, /* an event will come, or others may bring one */
	CM_LISTENS,
	CM_NEW,
	CM_BOUND,
	CM_ADDRESS,
	CM_ROUTE,
	CM_ASKED,
	CM_CONNECTED,
	CM_TAKEN, /* the same, and a call has taken the event itself */
	CM_OVER,
	CM_OVER_TWICE,
	CM_GONE,
};

/* 停在那一步，接着该做什么；前面几种，没有可说的。*/
static const char *const cm_words[][2] = {
	[CM_NEW] = { "the id was only made", "call rdma_resolve_addr, or "
					     "rdma_bind_addr and rdma_listen" },
	[CM_BOUND] = { "the id is only bound",
		       "call rdma_listen, or rdma_resolve_addr" },
	[CM_ADDRESS] = { "ADDR_RESOLVED has come", "call rdma_resolve_route" },
	[CM_ROUTE] = { "ROUTE_RESOLVED has come",
		       "call rdma_create_qp and rdma_connect" },
	[CM_ASKED] = { "CONNECT_REQUEST has come",
		       "call rdma_accept or rdma_reject" },
	[CM_CONNECTED] = { "the connection is ESTABLISHED, and nobody calls "
			   "rdma_disconnect",
			   "call rdma_disconnect at one end: DISCONNECTED "
			   "comes at both" },
	[CM_TAKEN] = { "ESTABLISHED was taken inside rdma_connect, because the "
		       "id had no channel then, and it comes only once",
		       "do not wait for the events of calls that were made "
		       "before rdma_migrate_id" },
	[CM_OVER] = { "DISCONNECTED or an error has come already, and nothing "
		      "comes after it",
		      "destroy the QP and the id" },
	[CM_OVER_TWICE] = { "DISCONNECTED has come already: there is one for "
			    "each connection, and rdma_disconnect in answer to "
			    "it brings no other",
			    "destroy the QP and the id after the first "
			    "DISCONNECTED" },
};

static enum cm_state cm_step(enum cm_state now, const struct event *e,
			     const json_t *line, bool *alone)
{
	static const struct {
		const char *ev, *op;
		enum cm_state to, alone; /* alone: the call takes its event */
	} steps[] = {
		{ "rdma_create_id", "", CM_NEW, CM_NEW },
		{ "rdma_create_ep", "", CM_ROUTE, CM_ROUTE },
		{ "rdma_bind_addr", "", CM_BOUND, CM_BOUND },
		{ "rdma_listen", "", CM_LISTENS, CM_LISTENS },
		{ "rdma_resolve_addr", "", CM_PENDING, CM_ADDRESS },
		{ "rdma_event", "ADDR_RESOLVED", CM_ADDRESS, CM_ADDRESS },
		{ "rdma_resolve_route", "", CM_PENDING, CM_ROUTE },
		{ "rdma_event", "ROUTE_RESOLVED", CM_ROUTE, CM_ROUTE },
		{ "rdma_connect", "", CM_PENDING, CM_TAKEN },
		{ "rdma_event", "CONNECT_REQUEST", CM_ASKED, CM_ASKED },
		{ "rdma_accept", "", CM_PENDING, CM_PENDING },
		{ "rdma_event", "ESTABLISHED", CM_CONNECTED, CM_TAKEN },
		{ "rdma_event", "", CM_OVER, CM_OVER },
		{ "rdma_reject", "", CM_OVER, CM_OVER },
		{ "rdma_destroy_id", "", CM_GONE, CM_GONE },
	};

	if (!strcmp(e->ev, "rdma_create_id") ||
	    !strcmp(e->ev, "rdma_migrate_id"))
		*alone = !value_in(line, "events");
	if (!strcmp(e->ev, "rdma_disconnect"))
		return now == CM_OVER ? CM_OVER_TWICE : CM_PENDING;
	if (now >= CM_OVER && !strcmp(e->ev, "rdma_event"))
		return now;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		if (!strcmp(e->ev, steps[i].ev) &&
		    (!*steps[i].op || !strcmp(e->op, steps[i].op)))
			return *alone ? steps[i].alone : steps[i].to;
	return now;
}

#define MOST_IDS 64

/*
 * @side 停在 @until 的时候，channel @events 上最后有过事的 id 到了哪一步；*listens：上面还有
 * 一个在听。
 */
static enum cm_state cm_state_of(const struct report *r, int side, size_t until,
				 uint64_t events, bool *listens)
{
	enum cm_state now[MOST_IDS] = { CM_UNKNOWN };
	uint64_t on[MOST_IDS] = { 0 }, last = 0;
	bool alone[MOST_IDS] = { false };

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		uint64_t id, channel;
		json_t *line;

		if (i > until || strncmp(e->ev, "rdma_", 5) ||
		    e->class == CLASS_FAILURE ||
		    returned_at(r, e) > r->events[until].t)
			continue;
		line = event_line(r, e);
		id = number_in(line, "cm_id") % MOST_IDS;
		channel = value_in(line, "events");
		on[id] = channel ? channel : on[id];
		now[id] = cm_step(now[id], e, line, &alone[id]);
		if (on[id] == events && now[id] != CM_GONE)
			last = id;
		json_decref(line);
	}
	*listens = false;
	for (size_t id = 0; id < MOST_IDS; id++)
		*listens =
			*listens || (on[id] == events && now[id] == CM_LISTENS);
	return now[last];
}

/* 它的对端也都在等事件：谁也不会去断开。*/
static bool all_wait_for_events(const struct report *r, int side)
{
	EACH_OTHER(o, r, side)
		if (!any_thread_in(r, o, "rdma_get_cm_event"))
			return false;
	return r->side[side].other_count > 0;
}

/* 线程 @tid 在 @until 之前为 @id 调用过的、会带来事件的最后一个；没有：NULL。*/
static const char *called_for(const struct report *r, int side, uint64_t tid,
			      uint64_t id, int64_t until)
{
	static const char *const calls[] = { "rdma_resolve_addr",
					     "rdma_resolve_route",
					     "rdma_connect", "rdma_accept" };
	const char *last = NULL;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if ((uint64_t)e->place.tid == tid && e->t <= until &&
		    e->class != CLASS_FAILURE && IS_ONE_OF(e->ev, calls) &&
		    event_number(r, e, "cm_id") == id)
			last = e->ev;
	}
	return last;
}

/* 它等的那个事件，早已被同一个 channel 上的另一个线程取走了。*/
static struct explanation taken_elsewhere(const struct report *r, int side,
					  const json_t *at)
{
	uint64_t tid = number_in(at, "thread");
	struct explanation why = { 0 };

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const char *call;
		json_t *line;

		if (strcmp(e->ev, "rdma_event") ||
		    (uint64_t)e->place.tid == tid)
			continue;
		line = event_line(r, e);
		call = value_in(line, "events") == value_in(at, "events")
			       ? called_for(r, side, tid,
					    number_in(line, "cm_id"),
					    returned_at(r, e))
			       : NULL;
		json_decref(line);
		if (call)
			why = because("cm-event-taken", "%s\t%s\t%d\t%ju",
				      e->op, call, (int)e->place.tid, tid);
	}
	return why;
}

void check_no_cm_event(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = r->count; i-- > 0 && !is_suggested(all);) {
		const struct event *e = &r->events[i];
		enum cm_state state;
		json_t *line;
		bool listens;

		if (strcmp(e->ev, "thread") ||
		    !event_says(r, e, "verb", "rdma_get_cm_event"))
			continue;
		line = event_line(r, e);
		state = cm_state_of(r, e->side, i, value_in(line, "events"),
				    &listens);
		why = taken_elsewhere(r, e->side, line);
		json_decref(line);
		if (why.id) {
			cause_suggest(r, all, i, &why);
			return;
		}
		if (state < CM_NEW || state == CM_GONE ||
		    (listens && state != CM_OVER_TWICE && state != CM_ASKED &&
		     !(state == CM_CONNECTED &&
		       all_wait_for_events(r, e->side))))
			continue;
		why = because("cm-no-event", "%s\t%s\t%s",
			      r->side[e->side].name, cm_words[state][0],
			      cm_words[state][1]);
		cause_suggest(r, all, i, &why);
	}
}

#define DEPTH_OF_MOST 16 /* 许多设备只有这么多 */

/* EINVAL 多半是次序不对。可是它先前做成过，或者正是时候，错的就是别的。*/
struct explanation why_out_of_order(const struct report *r,
				    const struct cause *cause)
{
	const char *ev = text_in(cause->line, "ev");
	uint64_t depth = number_in(cause->line, "initiator_depth");
	uint64_t resources = number_in(cause->line, "responder_resources");
	bool connects = !strcmp(ev, "rdma_connect"), alone = false;
	enum cm_state now = CM_UNKNOWN;
	const char *last = "";

	if (!connects && strcmp(ev, "rdma_accept"))
		return (struct explanation){ 0 };
	EACH(i, &r->side[cause->side].own) {
		const struct event *e = &r->events[i];
		json_t *line;

		if (i >= cause->event || strncmp(e->ev, "rdma_", 5) ||
		    e->class == CLASS_FAILURE)
			continue;
		line = event_line(r, e);
		if (number_in(line, "cm_id") ==
		    number_in(cause->line, "cm_id")) {
			now = strcmp(e->ev, ev) ? cm_step(now, e, line, &alone)
						: CM_PENDING;
			last = *e->op ? e->op : e->ev;
		}
		json_decref(line);
	}
	if (now == CM_PENDING || now >= CM_CONNECTED)
		return because("cm-state", "%s\t%s", ev + strlen("rdma_"),
			       last);
	if (now != (connects ? CM_ROUTE : CM_ASKED))
		return (struct explanation){ 0 };
	if (depth <= DEPTH_OF_MOST && resources <= DEPTH_OF_MOST)
		return because("driver-refused", "%s", ev);
	return because("cm-depth", "%s\t%ju\t%ju", ev, depth, resources);
}

/*
 * 没有路、没有设备、没有应答的那个地址，倒过来读就在本机 RDMA 设备的网络里：sin_addr 是网络字节序。
 */
struct explanation why_no_address(const struct report *r,
				  const struct cause *cause)
{
	size_t asked = last_event(r, cause->side, "rdma_resolve_addr", NULL);
	json_t *line = asked == NOWHERE || *text_in(cause->line, "address")
			       ? json_incref(cause->line)
			       : event_line(r, &r->events[asked]);
	struct explanation why = { 0 };
	char text[INET_ADDRSTRLEN], like[INET_ADDRSTRLEN];
	struct in_addr address;

	if (inet_pton(AF_INET, text_in(line, "address"), &address) == 1) {
		inet_ntop(AF_INET, &address, text, sizeof(text));
		address.s_addr = bswap_32(address.s_addr);
		snprintf(like, sizeof(like), "%u.%u.", address.s_addr & 0xff,
			 address.s_addr >> 8 & 0xff);
		if (strstr(text_in(cause->line, "seen"), like)) {
			inet_ntop(AF_INET, &address, like, sizeof(like));
			why = because("cm-address-order", "%s\t%s", text, like);
		}
	}
	json_decref(line);
	return why;
}

/* 占着这个端口的，是它自己的另一个 id。*/
struct explanation why_port_in_use(const struct report *r,
				   const struct cause *cause)
{
	uint64_t port = number_in(cause->line, "port");
	struct explanation why = { 0 };

	EACH(i, &r->side[cause->side].own) {
		const struct event *e = &r->events[i];

		if (i < cause->event && e->class != CLASS_FAILURE && port &&
		    (!strcmp(e->ev, "rdma_bind_addr") ||
		     !strcmp(e->ev, "rdma_create_ep")) &&
		    event_number(r, e, "port") == port)
			why = because("cm-port-own", "%ju\t%ju\t%s", port,
				      event_number(r, e, "cm_id"), e->ev);
		if (i < cause->event && !strcmp(e->ev, "rdma_destroy_id"))
			why.id = NULL;
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

/* 没有做完就结束了，而断开不是它提的：它的对端没有记录。*/
void check_peer_gone(const struct report *r, struct causes *all)
{
	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		size_t left = last_event(r, s, "rdma_event", "DISCONNECTED");
		size_t asked = last_event(r, s, "rdma_disconnect", NULL);
		struct explanation why;

		if (left == NOWHERE || (asked != NOWHERE && asked < left) ||
		    r->side[s].other_count || !r->side[s].ended ||
		    !r->side[s].code)
			continue;
		why = because("cm-peer-gone");
		cause_suggest(r, all, left, &why);
	}
}
