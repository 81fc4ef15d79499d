// SPDX-License-Identifier: MIT
/*
 * waits.c —— 没有谁失败，都在等：谁停在哪里、谁没有留下话就没了、谁该做的没有做
 *
 * 线程停在哪个系统调用里，看着的人在停顿时写了（proc.c）。
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

#define SAME_LOOK_NS 100000000 /* threads are looked at one after another */

/* ---- 谁在哪里 -------------------------------------------------------------- */

/* 有活着的凭据。*/
static bool says_where(const struct event *e)
{
	return !strcmp(e->ev, "thread") || !strcmp(e->ev, "stall");
}

/* poll 一次睡一会儿的，不是在睡。*/
static bool sleeps(const json_t *line)
{
	return strcmp(text_in(line, "verb"), "poll_cq") != 0 &&
	       strstr(text_in(line, "in"), "nanosleep") != NULL;
}

static bool reads_socket(const json_t *line)
{
	static const char *const calls[] = { "read",	"readv", "recvfrom",
					     "recvmsg", "poll",	 "accept",
					     "accept4", "select" };

	return !strcmp(text_in(line, "on"), "socket") &&
	       IS_ONE_OF(text_in(line, "in"), calls);
}

/* 有人在等 @side：它停下（@where）之后，另一边还活着，等的又不是自己没有发的。*/
static bool is_awaited(const struct report *r, int side, size_t where)
{
	EACH_OTHER(o, r, side)
		if (r->side[o].last > r->events[where].t &&
		    !(is_waiting_for_completion(r, o) &&
		      waits_for_nothing(r, o, NULL)))
			return true;
	return false;
}

/* 别的线程里，有一个睡在某个 verb 里面：换成那一行。*/
static json_t *other_sleeper(const struct report *r, int side, json_t *main,
			     size_t *where)
{
	if (!main)
		return NULL;
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		json_t *line;

		if (strcmp(e->ev, "thread") ||
		    e->t < r->events[*where].t - END_NS)
			continue;
		line = event_line(r, e);
		if (*text_in(line, "verb") && sleeps(line)) {
			json_decref(main);
			*where = i;
			return line;
		}
		json_decref(line);
	}
	return main;
}

void check_sleepers(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; s < r->sides; s++) {
		json_t *line = stopped_at(r, s, &where);

		if (line && !sleeps(line))
			line = other_sleeper(r, s, line, &where);
		if (line && sleeps(line) && is_awaited(r, s, where)) {
			why = because("peer-asleep", "%s\t%s\t%.1f",
				      r->side[s].name, text_in(line, "in"),
				      (double)number_in(line, "idle") / 1e9);
			cause_suggest(r, all, where, &why);
		}
		json_decref(line);
	}
}

#define TELLS_SIGNALS 2 /* 更早的记录器被 SIGTERM 结束时也不留话 */

/* 它的对端里最后留话的那一个，说了自己的结尾；没有：-1。*/
static int survivor(const struct report *r, int side)
{
	int last = -1;

	EACH_OTHER(o, r, side)
		if ((r->side[o].ended || r->side[o].signalled) &&
		    r->side[o].last >= r->side[side].last &&
		    (last < 0 || r->side[o].last > r->side[last].last))
			last = o;
	return last;
}

/* kill -9 不留话：没有 exit，没有 signal，也没有停在哪里，而另一边还活了很久。*/
void check_dead(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (int s = 0; s < r->sides; s++) {
		size_t last = last_of(r, s);
		int other = survivor(r, s);

		if (number_in(r->side[s].start, "version") < TELLS_SIGNALS ||
		    r->side[s].ended || r->side[s].signalled ||
		    r->side[s].runs || other < 0 ||
		    says_where(&r->events[last]))
			continue;
		why = because("peer-died", "%s\t%.1f", r->side[s].name,
			      (double)(r->side[other].last - r->side[s].last) /
				      1e9);
		cause_add(r, all, last, NULL, &why);
	}
}

/* 列出了设备，一个也没有打开，就说没有做成。*/
void check_none_opened(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		size_t list = last_event(r, s, "get_device_list", NULL);
		uint64_t n = list == NOWHERE ? 0
					     : event_number(r, &r->events[list],
							    "count");

		if (!n || !r->side[s].ended || !gave_up(&r->side[s]) ||
		    last_event(r, s, "open_device", NULL) != NOWHERE)
			continue;
		why = because("none-opened", "%s\t%ju", r->side[s].name, n);
		cause_suggest(r, all, list, &why);
	}
}

/* 在等 completion 的线程，还在一对调用的中间：provider 的锁在它手里。*/
void check_half_open(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->count; i++) {
		uint64_t open;

		if (strcmp(r->events[i].ev, "thread") ||
		    !gave_up(&r->side[r->events[i].side]) ||
		    (!event_says(r, &r->events[i], "verb", "poll_cq") &&
		     !sleeps_for_event(r, &r->events[i])))
			continue;
		open = event_number(r, &r->events[i], "open");
		why = because("pair-not-ended", "%s",
			      open & OPEN_WR ? "ibv_wr_start\tibv_wr_complete"
					     : "ibv_start_poll\tibv_end_poll");
		if (open)
			cause_add(r, all, i, NULL, &why);
	}
}

/* 最后一次停下时的线程都在 futex 里：有几个；0：有的不在。*/
static size_t threads_in_futex(const struct report *r, int side, size_t last)
{
	size_t n = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (strcmp(e->ev, "thread") ||
		    llabs(e->t - r->events[last].t) > SAME_LOOK_NS)
			continue;
		if (!event_says(r, e, "in", "futex") ||
		    !event_says(r, e, "verb", ""))
			return 0;
		n++;
	}
	return n;
}

/* 不是主线程的那个，睡在哪里，而再也不会有人叫醒它；NULL：没有。*/
static const char *asleep_for_good(const struct report *r, int side)
{
	const char *in = NULL;

	if (any_thread_in(r, side, "rdma_get_cm_event") ||
	    any_thread_in(r, side, "poll_cq"))
		return NULL;
	EACH(i, &r->side[side].own) {
		json_t *line = sleeps_for_event(r, &r->events[i])
				       ? event_line(r, &r->events[i])
				       : NULL;

		if (line && !waits_for_nothing(r, side, line)) {
			json_decref(line);
			return NULL;
		}
		if (line)
			in = "get_cq_event";
		json_decref(line);
	}
	return in || !any_thread_in(r, side, "get_async_event")
		       ? in
		       : "get_async_event";
}

/*
 * 主线程在 pthread_join 里，等的线程睡在 ibv_get_async_event 里：没有出事就没有异步事件，谁也叫不醒
 * 它；或者睡在 ibv_get_cq_event 里，而没有一个请求会带来事件。
 */
void check_idle_thread(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		json_t *line = stopped_at(r, s, &where);
		bool joins = line && !strcmp(text_in(line, "in"), "futex");
		const char *in = joins ? asleep_for_good(r, s) : NULL;
		size_t n = joins ? threads_in_futex(r, s, where) : 0;

		if (n > 1) {
			why = because("threads-wait", "%s\t%zu",
				      r->side[s].name, n);
			cause_suggest(r, all, where, &why);
		} else if (in) {
			why = because("thread-not-woken", "%s\tibv_%s",
				      r->side[s].name, in);
			cause_suggest(r, all, where, &why);
		}
		json_decref(line);
	}
}

static bool has_trouble(const struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].kind <= CAUSE_STALL &&
		    !is_weak(&all->items[i]))
			return true;
	return false;
}

/* 没有一个 QP 连上过，没有一个调用失败过，而它没有做成。*/
static bool failed_silently(const struct report *r, int side)
{
	if (side_went_up(r, side) || is_connected(r, side) ||
	    !gave_up(&r->side[side]))
		return false;
	EACH(i, &r->side[side].own)
		if (r->events[i].class == CLASS_FAILURE &&
		    strcmp(r->events[i].ev, "stall"))
			return false;
	return true;
}

/*
 * 还没有连上，没有一个 verb 失败，两边却都说自己没有做成：毛病在它们之间的别的话里。这只是
 * 推测，所以是提示。
 */
void suspect_exchange(const struct report *r, struct causes *all)
{
	struct explanation why;

	if (has_trouble(all) || is_suggested(all))
		return;
	for (int s = 0; s < r->sides; s++)
		EACH_OTHER(o, r, s) {
			if (o < s || !failed_silently(r, s) ||
			    !failed_silently(r, o))
				continue;
			why = because("exchange-short", "%s", r->side[s].name);
			cause_suggest(r, all, last_of(r, s), &why);
			return;
		}
}

static bool sends_wait(const struct report *r, int side)
{
	EACH(i, &r->side[side].own)
		if (r->events[i].class == CLASS_POST_SEND &&
		    !r->events[i].refused && r->events[i].complete == NOWHERE &&
		    r->events[i].arrival == NOWHERE)
			return true;
	return false;
}

/* @side 在等自己的 send：那么停下来的不是 TCP 上的话。*/
static bool waits_for_send(const struct report *r, int side)
{
	return sends_wait(r, side) && is_waiting_for_completion(r, side);
}

static bool waits_to_receive(const struct report *r, int side)
{
	for (size_t i = 0; i < r->qp_count; i++)
		if (r->qps[i].side == side && r->qps[i].peer &&
		    receives_left(r, &r->qps[i]) > 0)
			return true;
	return false;
}

/* @side 已经连上，在等 completion，而它发的都完成了：缺的是另一个请求，它的或对方的。*/
static bool polls_in_vain(const struct report *r, int side)
{
	bool up = side_went_up(r, side);

	EACH_OTHER(o, r, side)
		up = up || side_went_up(r, o);
	return up && is_waiting_for_completion(r, side) && !sends_wait(r, side);
}

/*
 * 没有人听，connect() 当场就被拒绝；听着的，它立刻成功。等着，就是包没有到。connect() 不等的
 * 程序在 poll 里等；连上以后才断的，TCP 在重发。
 */
void check_tcp(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; s < r->sides; s++) {
		json_t *line = stopped_at(r, s, &where);

		if (line && (!strcmp(text_in(line, "in"), "connect") ||
			     *text_in(line, "tcp"))) {
			why = because("tcp-blocked", "%s\t%.1f",
				      r->side[s].name,
				      (double)number_in(line, "idle") / 1e9);
			cause_add(r, all, where, NULL, &why);
		}
		json_decref(line);
	}
}

/* 最后还在发：不是在等，只是没有做完就被人叫停了。*/
static bool goes_on(const struct report *r, int side)
{
	const struct list *own = &r->side[side].own;

	for (size_t k = own->count; k-- > 0;) {
		const struct event *e = &r->events[own->at[k]];

		if (e->t <= r->side[side].last - END_NS)
			break;
		if (e->class == CLASS_POST_SEND)
			return true;
	}
	return false;
}

/* @s 停在读 TCP 上，@o 也在等：说出谁在等什么。*/
static bool suggest_exchange(const struct report *r, struct causes *all, int s,
			     int o, size_t where)
{
	struct explanation why;

	if (polls_in_vain(r, o)) {
		why = because("post-forgotten", "%s", r->side[o].name);
		cause_suggest(r, all, last_of(r, o), &why);
		return true;
	}
	if (waits_for_send(r, o))
		return false;
	why = because("exchange-short", "%s", r->side[s].name);
	cause_suggest(r, all, where, &why);
	return true;
}

/* 停在读 TCP 上，而要等的永远不来：两个程序交换的字节对不上。*/
void check_exchange(const struct report *r, struct causes *all)
{
	bool found = is_suggested(all);
	size_t where;

	for (int s = 0; s < r->sides && !found; s++) {
		json_t *line = stopped_at(r, s, &where);

		if (line && reads_socket(line) && is_awaited(r, s, where))
			EACH_OTHER(o, r, s)
				found = found ||
					(!goes_on(r, o) &&
					 suggest_exchange(r, all, s, o, where));
		json_decref(line);
	}
}

/* ---- 半路停下的 QP -------------------------------------------------------- */

static bool uses_cm(const struct report *r, int side)
{
	return last_event(r, side, "rdma_event", NULL) != NOWHERE ||
	       last_event(r, side, "rdma_listen", NULL) != NOWHERE ||
	       last_event(r, side, "rdma_resolve_addr", NULL) != NOWHERE;
}

/*
 * 停在半路，而对方正等着它：等它收（它到不了 RTR），或者等它发（它到不了 RTS；自己先走了的，
 * 是别处先失败了）。由 rdma_cm 连的，半路上还在等的是连接。
 */
static bool is_halfway(const struct report *r, const struct qp *qp)
{
	if (!got_to(r, qp, "INIT") || uses_cm(r, qp->side))
		return false;
	if (sends_wait(r, qp->peer->side))
		return !got_to(r, qp, "RTR");
	return !r->side[qp->side].ended &&
	       waits_to_receive(r, qp->peer->side) && !got_to(r, qp, "RTS");
}

void check_stuck(const struct report *r, struct causes *all)
{
	struct explanation why;
	char name[80];

	if (is_suggested(all))
		return;
	for (size_t i = 0; !is_stalled_for(r, all) && i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (!qp->peer || !is_halfway(r, qp) ||
		    !got_to(r, qp->peer, "RTS"))
			continue;
		why = because("qp-too-early", "%s\t%s",
			      world_name(r, name, sizeof(name), qp),
			      got_to(r, qp, "RTR") ? "RTR" : "INIT");
		cause_add(r, all, modified(r, qp), qp, &why);
		return;
	}
}

/* ---- 都在等 ---------------------------------------------------------------- */

/* UC、UD：发出去就算完成，到没有到，只有对端知道。*/
static bool is_unreliable(const struct qp *qp)
{
	return !strcmp(qp->type, "UC") || !strcmp(qp->type, "UD");
}

/* @side 与 @other 之间的 UC、UD QP 到 @until 为止发了几个（没有失败的）、到了几个 */
static size_t count_of(const struct report *r, int side, int other,
		       size_t until, bool arrivals)
{
	size_t n = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (i >= until || !qp || !is_unreliable(qp) ||
		    (qp->peer && qp->peer->side != other))
			continue;
		n += arrivals ? is_arrival(e) : delivers(r, e);
	}
	return n;
}

/* 它在看 CQ，或者睡着而 CQ 会叫醒它；停下时记录器也没有说没人 poll。*/
static bool would_see(const struct report *r, const struct causes *all,
		      int side)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].side == side &&
		    all->items[i].kind == CAUSE_STALL &&
		    !strcmp(all->items[i].id, "nobody-polls"))
			return false;
	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (qp->side == side && is_unreliable(qp) &&
		    any_thread_in(r, side, "get_cq_event") &&
		    why_no_event(r, side, number_in(qp->first, "recv_cq")).id)
			return false;
	}
	return is_waiting_for_completion(r, side);
}

/* @s 说完成了，@o 停在那里等，却少了：丢在路上。*/
static bool is_lost(const struct report *r, struct causes *all, int s, int o)
{
	struct explanation why;
	size_t where;
	json_t *at = stopped_at(r, o, &where);
	size_t sent = at ? count_of(r, s, o, where, false) : 0;
	size_t come = at ? count_of(r, o, s, where, true) : 0;

	json_decref(at);
	if (sent <= come || !would_see(r, all, o))
		return false;
	if (believe(all, -1, "path-mtu-above-active"))
		return true;
	why = because(come ? "lost-on-the-way" : "nothing-arrives", "%s",
		      r->side[s].name);
	also_seen(&why, "arrived", "%s\t%zu\t%zu\t%s", r->side[s].name, sent,
		  come, r->side[o].name);
	cause_add(r, all, where, NULL, &why);
	return true;
}

void check_lost(const struct report *r, struct causes *all)
{
	bool found = is_suggested(all);

	for (int s = 0; s < r->sides; s++)
		EACH_OTHER(o, r, s)
			found = found || is_lost(r, all, s, o);
}

/* 在哪里停过，此后什么也没有做成：不是自己很快就走了。*/
static bool stood_still(const struct report *r, int side)
{
	size_t i = last_event(r, side, "thread", NULL);
	size_t stall = last_event(r, side, "stall", NULL);

	if (is_after(stall, i))
		i = stall;
	if (i == NOWHERE)
		return false;
	EACH(k, &r->side[side].own)
		if (k > i && is_work(&r->events[k]))
			return false;
	return true;
}

static bool waits_for_message(const struct report *r, int side)
{
	return stood_still(r, side) && is_connected(r, side) &&
	       !sends_wait(r, side) && waits_to_receive(r, side) &&
	       !goes_on(r, side);
}

/* 谁发了几个消息，到了几个。*/
static void see_messages(const struct report *r, int side,
			 struct explanation *why)
{
	size_t sent, taken;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (qp->side != side || !qp->peer)
			continue;
		count_messages(r, qp, &sent, &taken);
		also_seen(why, "arrived", "%s\t%zu\t%zu\t%s",
			  r->side[side].name, sent, taken,
			  r->side[qp->peer->side].name);
		return;
	}
}

/* 两边都在等对方的消息，而没有一个在路上：永远等下去。谁忘了，只有它们自己知道。*/
void check_deadlock(const struct report *r, struct causes *all)
{
	struct explanation why;

	if (is_suggested(all) || is_stalled_for(r, all))
		return;
	for (int s = 0; s < r->sides; s++)
		EACH_OTHER(o, r, s) {
			if (o < s || !waits_for_message(r, s) ||
			    !waits_for_message(r, o) ||
			    (!gave_up(&r->side[s]) && !gave_up(&r->side[o])))
				continue;
			why = because("post-forgotten", "%s", r->side[s].name);
			see_messages(r, s, &why);
			see_messages(r, o, &why);
			cause_suggest(r, all, last_of(r, s), &why);
			return;
		}
}
