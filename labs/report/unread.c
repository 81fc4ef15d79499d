// SPDX-License-Identifier: MIT
/*
 * unread.c —— completion 有了，没有人取：睡着而 CQ 不会叫醒它，或者根本没有去 poll
 */
#include "rules.h"

#include <string.h>

/* @side 的 @ev（arm、cq_event）里，关于 @cq 的最后一个。*/
static size_t last_of_cq(const struct report *r, int side, const char *ev,
			 uint64_t cq)
{
	const struct list *own = &r->side[side].own;

	for (size_t k = own->count; k-- > 0;) {
		const struct event *e = &r->events[own->at[k]];

		if (!strcmp(e->ev, ev) && event_number(r, e, "cq") == cq)
			return own->at[k];
	}
	return NOWHERE;
}

uint64_t channel_of(const struct report *r, int side, uint64_t cq)
{
	EACH(i, &r->side[side].own) {
		uint64_t channel;
		json_t *line;
		bool it;

		if (strcmp(r->events[i].ev, "create_cq"))
			continue;
		line = event_line(r, &r->events[i]);
		it = number_in(line, "cq") == cq;
		channel = number_in(line, "channel");
		json_decref(line);
		if (it)
			return channel;
	}
	return ANY_CHANNEL;
}

bool sleeps_on(const struct report *r, int side, uint64_t cq)
{
	uint64_t channel = channel_of(r, side, cq);

	EACH(i, &r->side[side].own) {
		uint64_t on;

		if (!sleeps_for_event(r, &r->events[i]))
			continue;
		on = event_number(r, &r->events[i], "channel");
		if (!on || channel == ANY_CHANNEL || on == channel)
			return true;
	}
	return false;
}

/* 没有取的那一条消息，在 arm 之前就到了，没有一个事件说起过它。*/
static bool came_before_arm(const struct report *r, int side, uint64_t cq,
			    size_t armed, size_t event)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (qp && qp->peer && qp->peer->side == side &&
		    takes_receive(e) && e->arrival == NOWHERE &&
		    !came_to_nothing(r, e) && e->complete < armed &&
		    !is_after(event, e->complete) &&
		    number_in(qp->peer->first, "recv_cq") == cq)
			return true;
	}
	return false;
}

/* 睡着等事件，而它的 @cq 不会产生事件。*/
struct explanation why_no_event(const struct report *r, int side, uint64_t cq)
{
	size_t armed = last_of_cq(r, side, "arm", cq);
	size_t event = last_of_cq(r, side, "cq_event", cq);
	struct explanation why;

	if (!channel_of(r, side, cq))
		return armed == NOWHERE
			       ? (struct explanation){ 0 }
			       : because("cq-without-channel", "%ju", cq);
	if (armed != NOWHERE && !is_after(event, armed) &&
	    came_before_arm(r, side, cq, armed, event)) {
		why = because("nobody-polls", "%ju", cq);
		also_seen(&why, "armed-late");
		return why;
	}
	if (armed == NOWHERE || (event != NOWHERE && event > armed))
		return because("cq-not-armed", "%ju\t%s", cq,
			       armed == NOWHERE ? "" : " after its last event");
	if (event_number(r, &r->events[armed], "solicited"))
		return because("armed-solicited-only", "%ju", cq);
	return (struct explanation){ 0 };
}

struct explanation why_no_event_for(const struct report *r, const struct qp *qp)
{
	uint64_t cq = qp ? number_in(qp->first, "recv_cq") : 0;

	if (!qp || !sleeps_on(r, qp->side, cq))
		return (struct explanation){ 0 };
	return why_no_event(r, qp->side, cq);
}

/* RC 的 send 到了对端，它的 completion 就已经有了；arm 在它以后，就不会再有事件。*/
static void check_late_arm_of(const struct report *r, int side,
			      struct causes *all)
{
	struct explanation why;
	size_t looked = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);
		size_t armed, event;
		uint64_t cq;

		if (looked >= MOST_POSTS || !qp ||
		    e->class != CLASS_POST_SEND || e->refused ||
		    strcmp(qp->type, "RC") || e->arrival == NOWHERE ||
		    e->complete != NOWHERE)
			continue;
		looked++;
		if (!makes_completion(r, qp, e))
			continue;
		cq = number_in(qp->first, "send_cq");
		armed = last_of_cq(r, e->side, "arm", cq);
		event = last_of_cq(r, e->side, "cq_event", cq);
		if (armed == NOWHERE || armed < i || is_after(event, i))
			continue;
		why = because("nobody-polls", "%ju", cq);
		also_seen(&why, "armed-late");
		cause_add(r, all, armed, qp, &why);
		return;
	}
}

void check_late_arm(const struct report *r, struct causes *all)
{
	for (int s = 0; s < r->sides; s++)
		if (gave_up(&r->side[s]) && any_thread_in(r, s, "get_cq_event"))
			check_late_arm_of(r, s, all);
}

/* 一个事件说的是 arm 以后到的全部：只取一个，其余的就留在里面。*/
static void count_events(const struct report *r, int side, uint64_t cq,
			 struct explanation *why)
{
	size_t events = 0, taken = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		taken += e->class == CLASS_COMPLETION && e->cq == cq;
		events += !strcmp(e->ev, "cq_event") &&
			  event_number(r, e, "cq") == cq;
	}
	if (events)
		also_seen(why, "events-taken", "%zu\t%zu", events, taken);
}

static struct explanation why_untaken(const struct report *r,
				      const struct qp *to, bool sleeps)
{
	uint64_t recv_cq = number_in(to->first, "recv_cq");
	uint64_t send_cq = number_in(to->first, "send_cq");
	struct explanation why = { 0 };

	if (sleeps)
		why = why_no_event(r, to->side, recv_cq);
	if (sleeps && !why.id && send_cq != recv_cq &&
	    !is_after(last_of_cq(r, to->side, "cq_event", recv_cq),
		      last_event(r, to->side, "completion", NULL)))
		why = why_no_event(r, to->side, send_cq);
	if (why.id)
		return why;
	why = because("nobody-polls", "%ju", recv_cq);
	also_seen(&why, "message-unread");
	if (sleeps)
		count_events(r, to->side, recv_cq, &why);
	return why;
}

/* RC 的 SEND 成功了，就是到了对端；而对端停在那里，没有取它。*/
void check_untaken(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);
		json_t *at;

		if (!qp || !qp->peer || strcmp(qp->type, "RC") ||
		    !takes_receive(e) || e->arrival != NOWHERE ||
		    came_to_nothing(r, e) ||
		    (qp->peer->side == qp->side && is_suggested(all)))
			continue;
		at = stopped_at(r, qp->peer->side, &where);
		if (at && !any_thread_in(r, qp->peer->side, "poll_cq")) {
			why = why_untaken(r, qp->peer,
					  sleeps_on(r, qp->peer->side,
						    number_in(qp->peer->first,
							      "recv_cq")));
			cause_add(r, all, where, qp->peer, &why);
		}
		json_decref(at);
		return;
	}
}

/* 事件说 CQ 里有 completion，它没有取，就说自己没有做成。*/
void check_unread_event(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		size_t event = last_event(r, s, "cq_event", NULL);
		size_t taken = last_event(r, s, "completion", NULL);

		if (!r->side[s].ended || r->side[s].code <= 0 ||
		    !is_after(event, taken))
			continue;
		why = because("nobody-polls", "%ju",
			      event_number(r, &r->events[event], "cq"));
		also_seen(&why, "event-not-followed");
		cause_suggest(r, all, event, &why);
	}
}
