// SPDX-License-Identifier: MIT
/*
 * misused.c —— 用了不能用的对象：拆掉了的、NULL、父进程的
 */
#include "rules.h"

#include <string.h>

/* ---- 拆掉了还用 ------------------------------------------------------------ */

/* 拆它的那一次。*/
static size_t destroyed_at(const struct report *r, const struct event *use)
{
	const char *call =
		use->owner_kind == OBJECT_QP ? "destroy_qp" : "destroy_cq";
	const char *key = use->owner_kind == OBJECT_QP ? "qp" : "cq";
	size_t found = NOWHERE;

	EACH(i, &r->side[use->side].own)
		if (&r->events[i] < use && !strcmp(r->events[i].ev, call) &&
		    event_number(r, &r->events[i], key) == use->owner)
			found = i;
	return found;
}

void check_used_after(const struct report *r, struct causes *all)
{
	struct explanation why;
	char name[32];

	for (size_t i = 0; i < r->count; i++) {
		const struct event *use = &r->events[i], *end;
		bool qp = use->owner_kind == OBJECT_QP;
		size_t at = use->late ? destroyed_at(r, use) : NOWHERE;

		if (at == NOWHERE)
			continue;
		end = &r->events[at];
		/* 崩溃的线程自己拆的：它早就不看那个 CQ 了。*/
		if (!strcmp(use->ev, "signal") &&
		    use->place.tid == end->place.tid)
			continue;
		snprintf(name, sizeof(name), qp ? "QP %u" : "CQ %u",
			 qp ? use->qpn : use->owner);
		why = because("used-after-destroy", "%s\t%.1f\t%d\t%d\t%s",
			      name, (double)(use->t - end->t) / 1e6,
			      (int)end->place.tid, (int)use->place.tid,
			      qp ? "posts to it" : "polls it");
		cause_add(r, all, i, NULL, &why);
		return;
	}
}

#define NEAR_NULL UINT64_C(4096)

/* 交给一个 verb 的 context 是 NULL。*/
static bool opens_nothing(const struct report *r, int side)
{
	size_t last = last_event(r, side, "open_device", NULL);

	return last != NOWHERE && event_says(r, &r->events[last], "dev", "?");
}

/*
 * 通过 NULL 附近的指针崩溃：扩展 API 里，没有要的操作与字段，函数指针就是 NULL。刚取到
 * completion 的，是在读它的字段；否则是在 post。librdmacm 的 id->qp，拆了 QP 以后是 NULL。
 */
void check_crash(const struct report *r, struct causes *all)
{
	enum {
		OPS,
		FIELDS,
		QP_GONE,
		NO_QP,
		NO_DEVICE
	};
	static const char *const words[][2] = {
		{ "a QP of it has ibv_wr functions only for the operations in "
		  "its send_ops_flags",
		  "set IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, and in send_ops_flags "
		  "each operation that is posted; check that ibv_qp_to_qp_ex "
		  "gives no NULL" },
		{ "a CQ of it gives only the fields in its wc_flags",
		  "ask for each field that is read (ibv_wc_read_...) in "
		  "wc_flags of ibv_create_cq_ex" },
		{ "its last QP was destroyed before, and rdma_destroy_qp "
		  "leaves id->qp NULL",
		  "let one path destroy the QP, after the last use" },
		{ "it has an rdma_cm_id without a QP: id->qp is NULL",
		  "call rdma_create_qp before the first post, and check what "
		  "it returns" },
		{ "it has an rdma_cm_id without a device: id->verbs is NULL",
		  "bind to an address of an RDMA device (127.0.0.1 and 0.0.0.0 "
		  "belong to none), or wait for ADDR_RESOLVED or "
		  "CONNECT_REQUEST: id->verbs is set then" },
	};
	struct explanation why;

	for (int s = 0; s < r->sides; s++) {
		size_t at = last_event(r, s, "signal", NULL);
		bool reads = false, cq = false, qp = false;
		size_t gone = last_event(r, s, "destroy_qp", NULL);
		int said = OPS;
		json_t *line =
			at == NOWHERE ? NULL : event_line(r, &r->events[at]);
		bool null = json_object_get(line, "fault") &&
			    value_in(line, "fault") + NEAR_NULL < 2 * NEAR_NULL;

		json_decref(line);
		if (!null || believe(all, s, "no-wr-functions") ||
		    believe(all, s, "cm-order"))
			continue;
		EACH(i, &r->side[s].own) {
			const struct event *e = &r->events[i];

			if (is_data(e))
				reads = e->class == CLASS_COMPLETION;
			if (strncmp(e->ev, "create_", 7))
				continue;
			line = event_line(r, e);
			qp = qp || value_in(line, "send_ops");
			cq = cq || json_object_get(line, "wc_flags");
			json_decref(line);
		}
		cq = cq && reads;
		if (cq)
			said = FIELDS;
		else if (opens_nothing(r, s))
			said = NO_DEVICE;
		else if (is_after(gone, last_event(r, s, "create_qp", NULL)))
			said = QP_GONE;
		else if (last_event(r, s, "create_qp", NULL) == NOWHERE &&
			 last_event(r, s, "rdma_create_id", NULL) != NOWHERE)
			said = NO_QP;
		else if (!qp)
			continue;
		why = because("null-operation", "%s\t%s\t%s", r->side[s].name,
			      words[said][0], words[said][1]);
		cause_suggest(r, all, at, &why);
	}
}

/* fork 出来的进程，用着父进程造的对象。*/
void check_forked(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];

		if (!number_in(r->side[e->side].start, "forked") || e->late ||
		    (e->class != CLASS_POST_SEND &&
		     e->class != CLASS_POST_RECV &&
		     strcmp(e->ev, "modify_qp") &&
		     strcmp(e->ev, "destroy_qp") &&
		     !event_says(r, e, "about", "post")) ||
		    (e->qp &&
		     !strcmp(text_in(qp_of(r, e->side, e->qp)->first, "ev"),
			     "create_qp")))
			continue;
		why = because("used-in-child", "%s\t%s", r->side[e->side].name,
			      strcmp(e->ev, "explain") ? e->ev : "post_send");
		cause_add(r, all, i, NULL, &why);
		return;
	}
}
