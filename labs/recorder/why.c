// SPDX-License-Identifier: MIT
/*
 * why.c —— 把记录器知道的交给解释器
 *
 * 解释器（common/explain/explain.h）知道得越多，越能断定：WR 的 lkey 是哪个 MR 的、SGE 在不在
 * MR 里、QP 被告知过什么。我们自己的程序把这些一一传给它；别人的程序不会，但记录器都
 * 看见了，替它传。
 *
 * 对端通常是另一个进程，它的 MR 与属性这里不知道（内核里的 QP，解释器自己会去看）。
 * 一个进程里自己连自己的（测试、课堂演示、UCX 的 self），则两端都知道。
 */
#include "why.h"

#include "base/verbs_names.h"
#include "board.h"

#include <byteswap.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MOST_MRS  16
#define MOST_GIDS 32
#define LOOKS	  4
#define LOOK_MS	  5

struct knowledge {
	struct posted wr, peer_recv;
	struct explain_mr local[MOST_MRS], remote[MOST_MRS];
	struct explain_side mine, peer;
	char names[2][96];
	struct explain_request request;
};

/* ---- 请求 ----------------------------------------------------------------- */

void why_posted(struct posted *out, const struct record *post)
{
	*out = (struct posted){ .sge = { .addr = post->addr,
					 .length = post->length,
					 .lkey = post->qpn } };
	if (post->kind != RECORD_POST_SEND) {
		out->recv.wr_id = post->wr_id;
		out->recv.sg_list = &out->sge;
		out->recv.num_sge = post->num_sge ? 1 : 0;
		return;
	}
	out->send.wr_id = post->wr_id;
	out->send.sg_list = &out->sge;
	out->send.num_sge = post->num_sge ? 1 : 0;
	out->send.opcode = (enum ibv_wr_opcode)post->opcode;
	out->send.send_flags = post->flags;
	if (post->remote) {
		out->send.wr.ud.remote_qpn = post->remote;
		out->send.wr.ud.remote_qkey = post->rkey;
	} else if (is_atomic(post->opcode)) {
		out->send.wr.atomic.remote_addr = post->remote_addr;
		out->send.wr.atomic.rkey = post->rkey;
	} else {
		out->send.wr.rdma.remote_addr = post->remote_addr;
		out->send.wr.rdma.rkey = post->rkey;
	}
}

/* ---- MR ------------------------------------------------------------------- */

/*
 * 只挑与这几个 key 有关的：进程可以有上万个 MR，而解释器要的只是“这个 key 是谁的”。
 * 一个也没有挑到，就是谁的也不是。
 */
struct pick {
	uint32_t keys[4];
	struct explain_mr *out;
	size_t n;
};

static void pick_one(struct pick *pick, const struct explain_mr *mr)
{
	bool wanted = false;

	for (size_t i = 0; i < 4; i++)
		wanted = wanted || mr->lkey == pick->keys[i] ||
			 mr->rkey == pick->keys[i] ||
			 mr->rkey == bswap_32(pick->keys[i]);
	if (wanted && pick->n < MOST_MRS)
		pick->out[pick->n++] = *mr;
}

static struct pick keys_of(const struct knowledge *k, struct explain_mr *out)
{
	struct pick pick = { .out = out };

	pick.keys[0] = k->wr.sge.lkey;
	pick.keys[1] = k->peer_recv.sge.lkey;
	if (k->request.send) {
		pick.keys[2] = k->wr.send.wr.rdma.rkey;
		pick.keys[3] = k->wr.send.wr.atomic.rkey;
	}
	return pick;
}

static size_t pick_mrs(struct explain_mr *out,
		       const struct ibv_context *context,
		       const struct knowledge *k)
{
	struct pick pick = keys_of(k, out);
	const struct object *mr = NULL;

	while ((mr = object_after(OBJECT_MR, mr)))
		if (mr->context == context)
			pick_one(&pick, &mr->mr);
	return pick.n;
}

/* ---- 同一个进程里的对端 ---------------------------------------------------- */

static bool has_gid(struct ibv_context *context, const union ibv_gid *gid)
{
	union ibv_gid found;

	for (int i = 0; i < MOST_GIDS; i++)
		if (!ibv_query_gid(context, 1, i, &found) &&
		    !memcmp(found.raw, gid->raw, sizeof(found.raw)))
			return true;
	return false;
}

static bool knows_peer(const struct explain_side *side)
{
	const int needed = IBV_QP_DEST_QPN | IBV_QP_AV;

	return (side->attr_mask & needed) == needed;
}

/* @from 被告知的对端正是 @to。*/
static bool talks_to(const struct explain_side *from, const struct object *to)
{
	return knows_peer(from) && from->attr.dest_qp_num == to->qpn &&
	       has_gid(to->context, &from->attr.ah_attr.grh.dgid);
}

/* 我连的那个；QPN 填错了，就没有这样一个，那么是连着我的那个。*/
static const struct object *find_peer(const struct object *qp)
{
	const struct object *other = NULL, *aimed_at = NULL, *aims_at_me = NULL;

	while ((other = object_after(OBJECT_QP, other))) {
		if (talks_to(&qp->told, other))
			aimed_at = other;
		else if (talks_to(&other->told, qp))
			aims_at_me = other;
	}
	return aimed_at ? aimed_at : aims_at_me;
}

static struct ibv_qp *handle_of(const struct object *qp)
{
	return (struct ibv_qp *)(uintptr_t)qp->pointer;
}

static void name_side(struct explain_side *side, char *name, size_t size,
		      const struct object *qp)
{
	snprintf(name, size, "QP %u (%s)", qp->qpn, qp->context->device->name);
	*side = qp->told;
	side->name = name;
	side->qp_num = qp->qpn;
}

/*
 * 消息碰到的是哪一个 receive？已经坏了的那一个；否则在排着队的里面，都一样大、同一个
 * MR 才说得准。
 */
static const struct record *receive_met(const struct object *peer)
{
	const struct waiting *first = queue_oldest(&peer->rq);

	if (peer->bad.number && peer->bad.post.kind == RECORD_POST_RECV)
		return &peer->bad.post;
	for (uint64_t i = 0; first && i < queue_length(&peer->rq); i++) {
		const struct waiting *wr = queue_at(&peer->rq, i);

		if (wr->post.length != first->post.length ||
		    wr->post.qpn != first->post.qpn)
			return NULL;
	}
	return first ? &first->post : NULL;
}

static void add_peer(struct knowledge *k, const struct object *peer)
{
	const struct record *met = receive_met(peer);

	name_side(&k->peer, k->names[1], sizeof(k->names[1]), peer);
	k->request.peer = &k->peer;
	if (met) {
		why_posted(&k->peer_recv, met);
		k->request.peer_recv = &k->peer_recv.recv;
	}
	k->request.remote = k->remote;
	k->request.n_remote = pick_mrs(k->remote, peer->context, k);
}

/* ---- 同一台机器上别的进程里的对端 -------------------------------------------- */

/* 我连的那个：QPN 与 GID 都要对；它的 GID 到 RTR 才知道。*/
static bool is_my_peer(const struct board_qp *other, void *arg)
{
	const struct object *qp = arg;

	return knows_peer(&qp->told) && (other->told.attr_mask & IBV_QP_AV) &&
	       qp->told.attr.dest_qp_num == other->told.qp_num &&
	       !memcmp(&qp->told.attr.ah_attr.grh.dgid, &other->told.gid,
		       sizeof(other->told.gid));
}

static bool takes_me_for_peer(const struct board_qp *other, void *arg)
{
	return talks_to(&other->told, arg);
}

static bool find_neighbour(struct neighbour *n, const struct object *qp)
{
	return board_find(n, is_my_peer, (void *)qp) ||
	       board_find(n, takes_me_for_peer, (void *)qp);
}

/*
 * 对端的 ibv_modify_qp 在内核里做完了，我的请求就可能已经被它拒绝，而它的记录器还没有来得及
 * 贴出来：出了错才问这一次，等得起几毫秒。
 */
static void add_neighbour(struct knowledge *k, const struct object *qp,
			  int looks)
{
	struct pick pick = keys_of(k, k->remote);
	bool found = false;
	struct neighbour n;

	for (; looks > 0 && !found; looks--) {
		found = find_neighbour(&n, qp);
		if (board_is_alone())
			return;
		if (!found && looks > 1)
			poll(NULL, 0, LOOK_MS);
	}
	if (!found)
		return;
	k->peer = n.qp->told;
	snprintf(k->names[1], sizeof(k->names[1]), "QP %u (process %d)",
		 n.qp->told.qp_num, n.pid);
	k->peer.name = k->names[1];
	k->request.peer = &k->peer;
	k->request.peer_pd = n.qp->pd;
	for (size_t i = 0; i < n.n_mrs; i++)
		if (n.mrs[i].lkey)
			pick_one(&pick, &n.mrs[i]);
	if (!n.all_mrs)
		return;
	k->request.remote = k->remote;
	k->request.n_remote = pick.n;
}

/* ---- 合起来 --------------------------------------------------------------- */

static void gather(struct knowledge *k, const struct object *qp,
		   const struct waiting *wr, int looks)
{
	const struct object *peer = find_peer(qp);

	memset(k, 0, sizeof(*k));
	name_side(&k->mine, k->names[0], sizeof(k->names[0]), qp);
	k->request.mine = &k->mine;
	if (wr) {
		why_posted(&k->wr, &wr->post);
		if (wr->post.kind == RECORD_POST_SEND)
			k->request.send = &k->wr.send;
		else
			k->request.recv = &k->wr.recv;
	}
	if (peer)
		add_peer(k, peer);
	else
		add_neighbour(k, qp, looks);
	/* 几个 SGE 的只记得第一个：那就不去核对。*/
	if (!wr || wr->post.num_sge > 1)
		return;
	k->request.local = k->local;
	k->request.n_local = pick_mrs(k->local, qp->context, k);
}

struct explanation why_completion(struct object *qp, enum ibv_wc_status status)
{
	const struct ibv_wc wc = { .status = status, .qp_num = qp->qpn };
	struct knowledge k;

	gather(&k, qp, qp->bad.number ? &qp->bad : NULL, LOOKS);
	return explain_completion(handle_of(qp), &wc, &k.request);
}

struct explanation why_stall(struct object *qp, const struct waiting *wr,
			     const struct ibv_cq *polled, int64_t ms)
{
	struct knowledge k;

	gather(&k, qp, wr, 1);
	k.request.polled = polled;
	return explain_stall(handle_of(qp), &k.request, ms);
}
