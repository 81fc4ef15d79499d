// SPDX-License-Identifier: MIT
/*
 * waits.c —— 没有谁失败，都在等：谁停在哪里、谁没有留下话就没了、谁该做的没有做
 *
 * 线程停在哪个系统调用里，记录器在停顿时写了（labs/recorder/proc.c）。
 */
#include "rules.h"

#include <string.h>

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

/* 有人在等 @side：它停下（@where）之后，另一边还活着。*/
static bool is_awaited(const struct report *r, int side, size_t where)
{
	return r->sides > 1 && r->side[!side].last > r->events[where].t;
}

/* 别的线程里，有一个睡在某个 verb 里面：换成那一行。*/
static json_t *other_sleeper(const struct report *r, int side, json_t *main,
			     size_t *where)
{
	for (size_t i = 0; main && i < r->count; i++) {
		const struct event *e = &r->events[i];
		json_t *line;

		if (e->side != side || strcmp(e->ev, "thread") ||
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
			why = because("peer-asleep",
				      "look where it calls sleep or waits for "
				      "time to pass, and whether it should "
				      "answer first",
				      "%c sleeps (%s) for %.1f s and longer, "
				      "and the other side waits for it",
				      "AB"[s], text_in(line, "in"),
				      (double)number_in(line, "idle") / 1e9);
			cause_add(r, all, where, NULL, &why);
		}
		json_decref(line);
	}
}

#define TELLS_SIGNALS 2 /* 更早的记录器被 SIGTERM 结束时也不留话 */

/* kill -9 不留话：没有 exit，没有 signal，也没有停在哪里，而另一边还活了很久。*/
void check_dead(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (int s = 0; r->sides > 1 && s < r->sides; s++) {
		size_t last = last_of(r, s);

		if (number_in(r->side[s].start, "version") < TELLS_SIGNALS ||
		    r->side[s].ended || r->side[s].signalled ||
		    says_where(&r->events[last]) ||
		    !(r->side[!s].ended || r->side[!s].signalled) ||
		    r->side[!s].last < r->side[s].last)
			continue;
		why = because("peer-died",
			      "find out who ended it: kill -9, the OOM killer "
			      "(dmesg), a time limit",
			      "%c was killed: its recording breaks off without "
			      "an end, %.1f s before that of the other side",
			      "AB"[s],
			      (double)(r->side[!s].last - r->side[s].last) /
				      1e9);
		cause_add(r, all, last, NULL, &why);
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

/*
 * 还没有连上，没有一个 verb 失败，两边却都说自己没有做成：毛病在它们之间的别的话里。这只是
 * 推测，所以是提示。
 */
void suspect_exchange(const struct report *r, struct causes *all)
{
	struct explanation why;

	if (r->sides < 2 || has_trouble(all) || is_suggested(all) ||
	    side_went_up(r, 0) || side_went_up(r, 1) || !gave_up(&r->side[0]) ||
	    !gave_up(&r->side[1]))
		return;
	why = because("exchange-short",
		      "compare what both sides send and read over TCP: sizes, "
		      "order, and whether a short write or read is gone on "
		      "with",
		      "A and B both gave up before their QPs were connected, "
		      "and no verb failed: perhaps what they told each other "
		      "over TCP");
	cause_suggest(r, all, last_of(r, 0), &why);
}

static bool sends_wait(const struct report *r, int side)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->events[i].side == side &&
		    r->events[i].class == CLASS_POST_SEND &&
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
	return is_waiting_for_completion(r, side) &&
	       (side_went_up(r, side) || side_went_up(r, !side)) &&
	       !sends_wait(r, side);
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
			why = because(
				"tcp-blocked",
				"ping the peer, and look at `ip route get` "
				"and `ip neigh` there and here: what stops "
				"TCP stops RDMA, too",
				"%c has waited for %.1f s and longer, and not "
				"even its TCP gets through to the peer",
				"AB"[s], (double)number_in(line, "idle") / 1e9);
			cause_add(r, all, where, NULL, &why);
		}
		json_decref(line);
	}
}

/* 最后还在发：不是在等，只是没有做完就被人叫停了。*/
static bool goes_on(const struct report *r, int side)
{
	size_t i = r->count;

	while (i-- > 0 && r->events[i].t > r->side[side].last - END_NS)
		if (r->events[i].side == side &&
		    r->events[i].class == CLASS_POST_SEND)
			return true;
	return false;
}

/* 停在读 TCP 上，而要等的永远不来：两个程序交换的字节对不上。*/
void check_exchange(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; s < r->sides; s++) {
		json_t *line = stopped_at(r, s, &where);
		bool waits = line && reads_socket(line) &&
			     is_awaited(r, s, where) && !is_suggested(all) &&
			     !goes_on(r, !s);

		if (waits && polls_in_vain(r, !s)) {
			why = because("post-forgotten", FIND_THE_NEXT,
				      "%c waits for a completion, and no send "
				      "is under way that would bring it, while "
				      "%c waits for bytes over TCP",
				      "AB"[!s], "AB"[s]);
			cause_suggest(r, all, last_of(r, !s), &why);
			s = r->sides;
		} else if (waits && !waits_for_send(r, !s)) {
			why = because("exchange-short",
				      "compare what both sides send and read "
				      "over TCP: sizes, order, and whether a "
				      "short write or read is gone on with",
				      "%c waits in %s for bytes over TCP that "
				      "do not come%s, and the other side "
				      "waits, too",
				      "AB"[s], text_in(line, "in"),
				      side_went_up(r, s) ? ""
							 : ", before its QP is "
							   "connected");
			cause_suggest(r, all, where, &why);
			s = r->sides;
		}
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
	if (sends_wait(r, !qp->side))
		return !got_to(r, qp, "RTR");
	return !r->side[qp->side].ended && waits_to_receive(r, !qp->side) &&
	       !got_to(r, qp, "RTS");
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
		why = because("qp-too-early",
			      "finish the way up; did one step fail, and "
			      "nobody looked?",
			      "%s never went to %s, and the other side's QP "
			      "is in RTS",
			      world_name(name, sizeof(name), qp),
			      got_to(r, qp, "RTR") ? "RTS" : "RTR");
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

/* @side 的 UC、UD QP 到 @until 为止发了几个（没有失败的）、到了几个 */
static size_t count_of(const struct report *r, int side, size_t until,
		       bool arrivals)
{
	size_t n = 0;

	for (size_t i = 0; i < until; i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (e->side != side || !qp || !is_unreliable(qp))
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
		    why_no_event(r, side, number_in(qp->first, "recv_cq"))
			    .cause[0])
			return false;
	}
	return is_waiting_for_completion(r, side);
}

/* 有人说过 @id：就是它。*/
static bool believe(struct causes *all, const char *id)
{
	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->items[i].id, id)) {
			all->items[i].kind = CAUSE_FAILURE;
			all->items[i].proven = true;
			return true;
		}
	return false;
}

/* 发的那边说完成了，收的那边停在那里等，却少了：丢在路上。*/
void check_lost(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; r->sides > 1 && s < 2 && !is_suggested(all); s++) {
		json_t *at = stopped_at(r, !s, &where);
		size_t sent = at ? count_of(r, s, where, false) : 0;
		size_t come = at ? count_of(r, !s, where, true) : 0;

		json_decref(at);
		if (sent <= come || !would_see(r, all, !s))
			continue;
		if (believe(all, "path-mtu-above-active"))
			return;
		why = because(come ? "lost-on-the-way" : "nothing-arrives",
			      "tcpdump udp port 4791 on both sides; look for a "
			      "firewall on UDP 4791, a link that loses, an MTU "
			      "too small on the way",
			      "%c has sent %zu messages, and %zu of them came "
			      "to %c, which waits for more: UC and UD do not "
			      "send again what is lost",
			      "AB"[s], sent, come, "AB"[!s]);
		cause_add(r, all, where, NULL, &why);
		return;
	}
}

/* 在哪里停过，此后什么也没有做成：不是自己很快就走了。*/
static bool stood_still(const struct report *r, int side)
{
	size_t i = last_event(r, side, "thread", NULL);
	size_t stall = last_event(r, side, "stall", NULL);

	if (is_after(stall, i))
		i = stall;
	while (i != NOWHERE && ++i < r->count)
		if (r->events[i].side == side && is_work(&r->events[i]))
			return false;
	return i != NOWHERE;
}

/* 两边都在等对方的消息，而没有一个在路上：永远等下去。谁忘了，只有它们自己知道。*/
void check_deadlock(const struct report *r, struct causes *all)
{
	struct explanation why;

	if (r->sides < 2 || !stood_still(r, 0) || !stood_still(r, 1) ||
	    (!gave_up(&r->side[0]) && !gave_up(&r->side[1])) ||
	    !is_connected(r, 0) || !is_connected(r, 1) || is_suggested(all) ||
	    is_stalled_for(r, all) || sends_wait(r, 0) || sends_wait(r, 1) ||
	    !waits_to_receive(r, 0) || !waits_to_receive(r, 1) ||
	    goes_on(r, 0) || goes_on(r, 1))
		return;
	why = because("post-forgotten", FIND_THE_NEXT,
		      "A and B both wait for a message of the other, and none "
		      "is under way: one of them did not post its send");
	cause_suggest(r, all, last_of(r, 0), &why);
}
