// SPDX-License-Identifier: MIT
/*
 * facts.c —— 几条规则都要问的：谁还在等、谁没有做成、这个原因说得准不准
 */
#include "rules.h"

#include "base/array.h"
#include "base/verbs_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool is_one_of(const char *id, const char *const *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(id, ids[i]))
			return true;
	return false;
}

bool cause_is_vague(const char *id)
{
	static const char *const ids[] = {
		"cm-refused",	     "cm-refused-by-peer",
		"cm-unreachable",    "cm-connect-error",
		"nothing-came",	     "no-completion",
		"sent-or-not-taken", "still-retrying",
		"retry-forever",     "timeout-zero",
		"qp-in-error",	     "peer-in-error",
		"peer-qp-absent",    "lost-on-the-way",
		"acks-lost",	     "nothing-arrives",
		"qp-request",	     "qp-access",
		"qp-fatal",	     "driver-refused",
		"post-arguments",    "cq-arguments",
		"peer-not-ready",    "peer-expects-another",
	};

	return !*id || (isupper((unsigned char)*id) && !strchr(id, '-')) ||
	       IS_ONE_OF(id, ids);
}

/* 等着的时候说的，别处已经证明了原因，就只是后果。*/
bool is_weak(const struct cause *cause)
{
	static const char *const ids[] = { "unsignaled", "wrong-cq",
					   "qp-too-early" };

	return cause_is_vague(cause->id) || IS_ONE_OF(cause->id, ids);
}

enum ibv_wc_status status_of(const char *name)
{
	for (unsigned int i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE;
	     i++)
		if (!strcmp(wc_status_name(i), name))
			return (enum ibv_wc_status)i;
	return IBV_WC_SUCCESS;
}

static void set_text(json_t *line, const char *key, const char *text)
{
	if (*text)
		json_object_set_new(line, key, json_string(text));
	else
		json_object_del(line, key);
}

void cause_restate(struct cause *cause, const struct explanation *why)
{
	json_object_del(cause->line, "cause");
	json_object_del(cause->line, "next");
	set_text(cause->line, "args", why->args);
	set_text(cause->line, "id", why->id);
	if (why->seen[0])
		set_text(cause->line, "seen", why->seen);
	snprintf(cause->id, sizeof(cause->id), "%s", why->id);
	cause->kind = CAUSE_FAILURE;
	cause->proven = true;
}

/* @event: 看得见它的地方。*/
void cause_add(const struct report *r, struct causes *all, size_t event,
	       const struct qp *qp, const struct explanation *why)
{
	struct cause *more, new = { .kind = CAUSE_FAILURE,
				    .side = r->events[event].side,
				    .qp = qp ? qp->id : 0,
				    .event = event,
				    .times = 1 };

	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->items[i].id, why->id) && all->items[i].proven)
			return;
	more = array_room(all->items, all->count, sizeof(*more));
	if (!more)
		return;
	all->items = more;
	new.line = json_pack("{s:s}", "ev", "compared");
	if (qp)
		json_object_set_new(new.line, "qpn",
				    json_integer((json_int_t)qp->qpn));
	cause_restate(&new, why);
	all->items[all->count++] = new;
}

bool believe(struct causes *all, int side, const char *id)
{
	for (size_t i = 0; i < all->count; i++)
		if ((side < 0 || all->items[i].side == side) &&
		    !strcmp(all->items[i].id, id)) {
			all->items[i].kind = CAUSE_FAILURE;
			all->items[i].proven = true;
			return true;
		}
	return false;
}

size_t last_of(const struct report *r, int side)
{
	const struct list *own = &r->side[side].own;

	return own->count ? own->at[own->count - 1] : NOWHERE;
}

/* 停顿里等着的那个请求，后来完成了：等到了。*/
bool was_done(const struct report *r, const struct cause *cause)
{
	for (size_t i = 0; i < cause->proofs; i++)
		if (r->events[cause->proof[i]].complete != NOWHERE)
			return true;
	return false;
}

/* 没有自己结束，或者自己说没有做成；还在跑的，什么也没有说。*/
bool gave_up(const struct side *side)
{
	return side->ended ? side->code > 0 : !side->runs || side->stands;
}

size_t modified(const struct report *r, const struct qp *qp)
{
	for (size_t k = qp->own.count; k-- > 0;)
		if (!strcmp(r->events[qp->own.at[k]].ev, "modify_qp"))
			return qp->own.at[k];
	return last_of(r, qp->side);
}

bool got_to(const struct report *r, const struct qp *qp, const char *state)
{
	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		if (!strcmp(e->ev, "modify_qp") && e->class != CLASS_FAILURE &&
		    event_says(r, e, "to", state))
			return true;
	}
	return false;
}

bool is_connected(const struct report *r, int side)
{
	for (size_t id = 1; id < r->side[side].qps_end; id++) {
		const struct qp *qp = qp_of(r, side, id);

		if (qp && got_to(r, qp, "RTR"))
			return true;
	}
	return false;
}

/* @qp 还有几个 receive 没有用掉。*/
int64_t receives_left(const struct report *r, const struct qp *qp)
{
	bool shared = json_object_get(qp->first, "srq") != NULL;
	int64_t n = 0;

	EACH(i, shared ? &r->side[qp->side].own : &qp->own) {
		const struct event *e = &r->events[i];

		if (e->class == CLASS_POST_RECV && !e->refused &&
		    shared == !strcmp(e->ev, "post_srq_recv"))
			n++;
		n -= is_arrival(e) && went_well(e);
	}
	if (shared || !qp->peer || strcmp(qp->type, "RC"))
		return n;
	/* 到了、应答了，而这边还没有去取。*/
	EACH(i, &qp->peer->own) {
		const struct event *e = &r->events[i];

		n -= takes_receive(e) && e->arrival == NOWHERE &&
		     !came_to_nothing(r, e);
	}
	return n;
}

bool makes_completion(const struct report *r, const struct qp *qp,
		      const struct event *post)
{
	json_t *line;
	bool signaled;

	if (post->class != CLASS_POST_SEND ||
	    number_in(qp->first, "sq_sig_all"))
		return true;
	line = event_line(r, post);
	signaled = strstr(text_in(line, "flags"), "SIGNALED") != NULL;
	json_decref(line);
	return signaled;
}

/* 说不准的已经有了一个：那就不再断言“都在等”。*/
bool is_suggested(const struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].kind == CAUSE_HINT && all->items[i].proven)
			return true;
	return false;
}

/* 有一句停顿说得出究竟：那就不只是“都在等”。*/
bool is_stalled_for(const struct report *r, const struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].kind == CAUSE_STALL &&
		    !is_weak(&all->items[i]) && !was_done(r, &all->items[i]))
			return true;
	return false;
}

/* 说不准的：TCP 也许是自己断了。*/
void cause_suggest(const struct report *r, struct causes *all, size_t where,
		   const struct explanation *why)
{
	size_t before = all->count;

	cause_add(r, all, where, NULL, why);
	if (all->count > before)
		all->items[before].kind = CAUSE_HINT;
}

size_t last_event(const struct report *r, int side, const char *ev,
		  const char *op)
{
	const struct list *own = &r->side[side].own;

	for (size_t k = own->count; k-- > 0;) {
		const struct event *e = &r->events[own->at[k]];

		if (!strcmp(e->ev, ev) && (!op || !strcmp(e->op, op)))
			return own->at[k];
	}
	return NOWHERE;
}

bool is_after(size_t i, size_t than)
{
	return i != NOWHERE && (than == NOWHERE || i > than);
}

int64_t returned_at(const struct report *r, const struct event *e)
{
	return e->t + (int64_t)event_number(r, e, "dur");
}

const struct event *post_of(const struct report *r, const struct cause *cause)
{
	for (size_t i = cause->proofs; i-- > 0;) {
		const struct event *e = &r->events[cause->proof[i]];

		if (e->class == CLASS_POST_SEND)
			return e;
	}
	for (size_t i = 0; i < cause->proofs; i++)
		if (r->events[cause->proof[i]].class == CLASS_POST_RECV)
			return &r->events[cause->proof[i]];
	return NULL;
}

/* 这两个 QP 之间，有没有过一个包真的到了：成功的 completion，两边算在一起。*/
bool got_through(const struct report *r, const struct qp *qp)
{
	EACH(i, &qp->own)
		if (went_well(&r->events[i]))
			return true;
	EACH(i, &qp->peer->own)
		if (went_well(&r->events[i]))
			return true;
	return false;
}
