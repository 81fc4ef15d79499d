// SPDX-License-Identifier: MIT
/*
 * world.c —— 从两份记录里还原解释器要知道的事：谁有哪些 MR、QP 被告知过什么、请求是怎样的
 *
 * 出事的那一端只知道一半：rkey 是对端的，PSN 要与对端的合得上。两份记录合在一起，解释器
 * （explain/explain.h）在一个进程里做的核对，这里就能跨进程再做一遍。
 */
#include "parts.h"

#include "base/array.h"
#include "base/verbs_names.h"
#include "explain/qp_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 数字有的写成整数，有的写成 "0x..."。*/
uint64_t value_in(const json_t *line, const char *key)
{
	const char *text = text_in(line, key);

	return *text ? strtoull(text, NULL, 0) : number_in(line, key);
}

/* ---- MR ------------------------------------------------------------------- */

static int access_of(const char *text)
{
	static const struct {
		const char *name;
		int bit;
	} rights[] = {
		{ "LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE },
		{ "REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE },
		{ "REMOTE_READ", IBV_ACCESS_REMOTE_READ },
		{ "REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC },
		{ "MW_BIND", IBV_ACCESS_MW_BIND },
	};
	int access = 0;

	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		if (strstr(text, rights[i].name))
			access |= rights[i].bit;
	return access;
}

/* PD 只拿来比较：编号当指针用。*/
static struct ibv_pd *pd_of(uint64_t id)
{
	return (struct ibv_pd *)(uintptr_t)id;
}

static void add_region(struct report *r, const struct event *event,
		       const json_t *line)
{
	struct region *more =
		array_room(r->regions, r->region_count, sizeof(*more));
	const char *start = json_object_get(line, "iova") ? "iova" : "addr";

	if (!more)
		return;
	r->regions = more;
	r->regions[r->region_count++] = (struct region){
		.side = event->side,
		.id = number_in(line, "mr"),
		.born = event->t,
		.died = INT64_MAX,
		.mr = { .pd = pd_of(number_in(line, "pd")),
			.addr = value_in(line, start),
			.length = number_in(line, "len"),
			.lkey = (uint32_t)value_in(line, "lkey"),
			.rkey = (uint32_t)value_in(line, "rkey"),
			.access = access_of(text_in(line, "access")) },
	};
}

/* 改了注册：从此是另一段，或者另一个 PD、另一些权限。*/
static void change_region(struct report *r, const struct event *event,
			  const json_t *line)
{
	struct region *more =
		array_room(r->regions, r->region_count, sizeof(*more));
	struct region *old = NULL, *new;

	if (!more)
		return;
	r->regions = more;
	for (size_t i = 0; i < r->region_count; i++)
		if (r->regions[i].side == event->side &&
		    r->regions[i].id == number_in(line, "mr") &&
		    r->regions[i].died == INT64_MAX)
			old = &r->regions[i];
	if (!old)
		return;
	new = &r->regions[r->region_count++];
	*new = *old;
	old->died = new->born = event->t;
	new->mr.lkey = (uint32_t)value_in(line, "lkey");
	new->mr.rkey = (uint32_t)value_in(line, "rkey");
	if (json_object_get(line, "pd"))
		new->mr.pd = pd_of(number_in(line, "pd"));
	if (json_object_get(line, "access"))
		new->mr.access = access_of(text_in(line, "access"));
	if (json_object_get(line, "len")) {
		new->mr.addr = value_in(line, "addr");
		new->mr.length = number_in(line, "len");
	}
}

static void end_region(struct report *r, const struct event *event,
		       const json_t *line)
{
	for (size_t i = r->region_count; i-- > 0;) {
		struct region *region = &r->regions[i];

		if (region->side == event->side &&
		    region->id == number_in(line, "mr") &&
		    region->died == INT64_MAX) {
			region->died = event->t;
			return;
		}
	}
}

void world_regions(struct report *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct event *event = &r->events[i];
		bool begins = !strcmp(event->ev, "reg_mr") ||
			      !strcmp(event->ev, "reg_dmabuf_mr");
		bool changes = !strcmp(event->ev, "rereg_mr");
		json_t *line;

		if (!begins && !changes && strcmp(event->ev, "dereg_mr"))
			continue;
		line = event_line(r, event);
		if (number_in(line, "err"))
			; /* 什么也没有变 */
		else if (begins)
			add_region(r, event, line);
		else if (changes)
			change_region(r, event, line);
		else
			end_region(r, event, line);
		json_decref(line);
	}
}

/* @side 在 @t 时有的 MR。@out 由调用者 free。*/
static size_t regions_of(const struct report *r, int side, int64_t t,
			 struct explain_mr **out)
{
	size_t n = 0;

	*out = calloc(r->region_count + 1, sizeof(**out));
	for (size_t i = 0; *out && i < r->region_count; i++)
		if (r->regions[i].side == side && r->regions[i].born <= t &&
		    t < r->regions[i].died)
			(*out)[n++] = r->regions[i].mr;
	return n;
}

/* ---- 一端被告知的 ---------------------------------------------------------- */

static enum ibv_mtu mtu_of(uint64_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && mtu_bytes(mtu) < bytes)
		mtu++;
	return mtu;
}

/* @name 要活得与结果一样久。*/
static struct explain_side side_of(const struct qp *qp, const char *name)
{
	struct explain_side side = { .name = name,
				     .qp_num = (uint32_t)qp->qpn };
	struct ibv_qp_attr *attr = &side.attr;
	const json_t *told = qp->believes;

#define TOLD(bit, key, member, value)                                 \
	do {                                                          \
		if (json_object_get(told, key)) {                     \
			side.attr_mask |= (bit);                      \
			attr->member = (typeof(attr->member))(value); \
		}                                                     \
	} while (0)
	TOLD(IBV_QP_DEST_QPN, "dest_qpn", dest_qp_num,
	     number_in(told, "dest_qpn"));
	TOLD(IBV_QP_RQ_PSN, "rq_psn", rq_psn, number_in(told, "rq_psn"));
	TOLD(IBV_QP_SQ_PSN, "sq_psn", sq_psn, number_in(told, "sq_psn"));
	TOLD(IBV_QP_QKEY, "qkey", qkey, value_in(told, "qkey"));
	TOLD(IBV_QP_PATH_MTU, "path_mtu", path_mtu,
	     mtu_of(number_in(told, "path_mtu")));
	TOLD(IBV_QP_ACCESS_FLAGS, "access", qp_access_flags,
	     access_of(text_in(told, "access")));
	TOLD(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", max_rd_atomic,
	     number_in(told, "max_rd_atomic"));
	TOLD(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic",
	     max_dest_rd_atomic, number_in(told, "max_dest_rd_atomic"));
#undef TOLD
	gid_in(qp, "sgid", &side.gid);
	if (gid_in(qp, "dgid", &attr->ah_attr.grh.dgid))
		side.attr_mask |= IBV_QP_AV;
	return side;
}

/* ---- 一个请求 -------------------------------------------------------------- */

static enum ibv_wr_opcode opcode_of(const char *name)
{
	for (unsigned int op = 0; op <= IBV_WR_DRIVER1; op++)
		if (!strcmp(wr_opcode_name(op), name))
			return (enum ibv_wr_opcode)op;
	return (enum ibv_wr_opcode)UINT8_MAX;
}

static void recall_send(struct recalled *out, const json_t *line)
{
	out->send.opcode = opcode_of(text_in(line, "op"));
	if (strstr(text_in(line, "flags"), "INLINE"))
		out->send.send_flags |= IBV_SEND_INLINE;
	if (strstr(text_in(line, "flags"), "SIGNALED"))
		out->send.send_flags |= IBV_SEND_SIGNALED;
	if (json_object_get(line, "remote_qpn")) {
		out->send.wr.ud.remote_qpn =
			(uint32_t)number_in(line, "remote_qpn");
		out->send.wr.ud.remote_qkey =
			(uint32_t)value_in(line, "remote_qkey");
	} else if (is_atomic(out->send.opcode)) {
		out->send.wr.atomic.rkey = (uint32_t)value_in(line, "rkey");
		out->send.wr.atomic.remote_addr = value_in(line, "remote_addr");
	} else {
		out->send.wr.rdma.rkey = (uint32_t)value_in(line, "rkey");
		out->send.wr.rdma.remote_addr = value_in(line, "remote_addr");
	}
}

void world_recall(const struct report *r, const struct event *post,
		  struct recalled *out)
{
	json_t *line = event_line(r, post);

	memset(out, 0, sizeof(*out));
	out->sge = (struct ibv_sge){
		.addr = value_in(line, "addr"),
		.length = (uint32_t)number_in(line, "len"),
		.lkey = (uint32_t)value_in(line, "lkey"),
	};
	out->sges = number_in(line, "sges");
	out->is_send = post->class == CLASS_POST_SEND;
	if (out->is_send)
		recall_send(out, line);
	json_decref(line);
}

static enum ibv_qp_type type_of(const char *name)
{
	enum ibv_qp_type type = IBV_QPT_RC;

	return qp_type_by_name(name, &type) ? type : IBV_QPT_RC;
}

const char *world_name(const struct report *r, char *out, size_t size,
		       const struct qp *qp)
{
	/* 一个进程自己的两个 QP，不必说是谁的。*/
	if (qp->peer && qp->peer->side == qp->side)
		snprintf(out, size, "QP %ju (%s)", qp->qpn, qp->dev);
	else
		snprintf(out, size, "QP %ju (%s, %s)", qp->qpn,
			 r->side[qp->side].name, qp->dev);
	return out;
}

/* 没有做成的 send 碰到的 receive：@to 的第一个没有用掉的。*/
static void recall_met(const struct report *r, const struct qp *to,
		       struct asked *out)
{
	uint64_t srq = number_in(to->first, "srq");

	EACH(i, srq ? &r->side[to->side].own : &to->own) {
		const struct event *e = &r->events[i];

		if (e->class != CLASS_POST_RECV || e->refused ||
		    !came_to_nothing(r, e) ||
		    (srq && (e->owner_kind != OBJECT_SRQ || e->owner != srq)))
			continue;
		world_recall(r, e, &out->met);
		out->met.recv.sg_list = &out->met.sge;
		out->met.recv.num_sge = out->met.sges == 1;
		out->rq.peer_recv = &out->met.recv;
		return;
	}
}

/* 记下的 bind 有地址与长度，没有说是哪个 MR：地址在里面的那一个。*/
static void recall_bound(const struct report *r, int side, int64_t t,
			 struct asked *out)
{
	uint64_t addr = out->wr.send.wr.rdma.remote_addr;

	for (size_t i = 0; i < r->region_count; i++)
		if (r->regions[i].side == side && r->regions[i].born <= t &&
		    t < r->regions[i].died &&
		    addr - r->regions[i].mr.addr < r->regions[i].mr.length)
			out->bound.lkey = r->regions[i].mr.lkey;
	out->wr.send.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ out->bound.lkey ? &out->bound : NULL,
					   addr, out->wr.sge.length, 0 };
}

void world_request(const struct report *r, const struct qp *qp,
		   const struct event *post, int64_t t, struct asked *out)
{
	static const struct explain_mr none;
	struct explain_request *rq = &out->rq;

	memset(out, 0, sizeof(*out));
	out->like = (struct ibv_qp){ .qp_type = type_of(qp->type),
				     .qp_num = (uint32_t)qp->qpn,
				     .pd = pd_of(number_in(qp->first, "pd")) };
	out->mine = side_of(qp, world_name(r, out->names[0],
					   sizeof(out->names[0]), qp));
	rq->mine = &out->mine;
	if (qp->peer) {
		out->theirs = side_of(
			qp->peer, world_name(r, out->names[1],
					     sizeof(out->names[1]), qp->peer));
		rq->peer = &out->theirs;
		rq->peer_pd = pd_of(number_in(qp->peer->first, "pd"));
		rq->n_remote = regions_of(r, qp->peer->side, t, &out->others);
		rq->remote = out->others;
	}
	if (!post)
		return;
	world_recall(r, post, &out->wr);
	out->wr.send.sg_list = out->wr.recv.sg_list = &out->wr.sge;
	out->wr.send.num_sge = out->wr.recv.num_sge = out->wr.sges > 0;
	if (qp->peer && takes_receive(post))
		recall_met(r, qp->peer, out);
	if (!strcmp(post->op, "BIND_MW"))
		recall_bound(r, qp->side, t, out);
	rq->send = out->wr.is_send ? &out->wr.send : NULL;
	rq->recv = out->wr.is_send ? NULL : &out->wr.recv;
	if (out->wr.sges <= 1)
		rq->n_local = regions_of(r, qp->side, t, &out->own);
	rq->local = rq->n_local ? out->own : NULL;
	/* 一个也没有：都注销了，或者记录里本来就没有它们 */
	if (!rq->n_local && out->wr.sges <= 1)
		EACH(i, &r->side[qp->side].own)
			if (!strcmp(r->events[i].ev, "dereg_mr"))
				rq->local = &none;
}

/* 换掉 @why 的最后一个参数：那个 key 究竟是什么。*/
static void set_reason(struct explanation *why, const char *reason)
{
	char *last = strrchr(why->args, '\t');

	if (last)
		snprintf(last + 1,
			 sizeof(why->args) - (size_t)(last + 1 - why->args),
			 "%s", reason);
}

/* 注销它的那一次。*/
static const struct event *deregistered(const struct report *r,
					const struct region *region)
{
	EACH(i, &r->side[region->side].own)
		if (r->events[i].t == region->died &&
		    !strcmp(r->events[i].ev, "dereg_mr"))
			return &r->events[i];
	return NULL;
}

static bool is_rkey_of(const struct report *r, const struct event *e,
		       uint32_t key)
{
	json_t *line = event_line(r, e);
	bool found = value_in(line, "rkey") == key;

	json_decref(line);
	return found;
}

#define KEY_BITS 0xffu /* 重新 bind 只换 rkey 的低 8 位 */

/* @side 上曾经有过 @key 的：注销了的 MR，重新 bind 过的 memory window。*/
static void tell_key(const struct report *r, int side, const struct event *post,
		     uint32_t key, bool local, struct explanation *why)
{
	struct recalled bind;

	for (size_t i = 0; i < r->region_count; i++) {
		const struct region *it = &r->regions[i];
		const struct event *end =
			it->side == side &&
					(local ? it->mr.lkey : it->mr.rkey) ==
						key &&
					it->died != INT64_MAX
				? deregistered(r, it)
				: NULL;

		if (!end)
			continue;
		set_reason(why, "the MR that had it was deregistered while "
				"requests still used it");
		also_seen(why, "mr-deregistered", "%ju\t%.1f\t%d", it->id,
			  (double)llabs(end->t - post->t) / 1e6,
			  (int)end->place.tid);
		return;
	}
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (!local && !strcmp(e->ev, "alloc_mw") &&
		    is_rkey_of(r, e, key))
			set_reason(why, "it is the key of a memory window "
					"that is not bound yet");
		if (local || e->class != CLASS_POST_SEND ||
		    strcmp(e->op, "BIND_MW"))
			continue;
		world_recall(r, e, &bind);
		if (!((bind.send.wr.rdma.rkey ^ key) & ~KEY_BITS))
			set_reason(why, "it is an old key of a memory window, "
					"which was bound anew since");
	}
}

struct explanation world_explain(const struct report *r, const struct qp *qp,
				 const struct event *post, int64_t t,
				 enum ibv_wc_status status)
{
	struct explanation why;
	struct asked asked;

	world_request(r, qp, post, t, &asked);
	why = explain_recorded(&asked.like, status, &asked.rq);
	if (post && why.id && !strcmp(why.id, "lkey-unknown")) {
		bool theirs = strstr(why.args, "peer") != NULL;

		tell_key(r, theirs ? qp->peer->side : qp->side, post,
			 theirs ? asked.met.sge.lkey : asked.wr.sge.lkey, true,
			 &why);
	}
	if (post && why.id && !strcmp(why.id, "rkey-unknown"))
		tell_key(r, qp->peer->side, post, asked.wr.send.wr.rdma.rkey,
			 false, &why);
	free(asked.own);
	free(asked.others);
	return why;
}
