// SPDX-License-Identifier: MIT
/*
 * datagrams.c —— UD：一问一答，那 40 个字节，三种丢法
 */
#include "many_peers.h"

#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define QKEY  0x11111111
#define BYTES 64 /* 一个 datagram */

struct datagram_pair {
	struct rdma_resources a, b; /* a 在 client 的设备上 */
	struct ibv_ah *to_b, *to_a;
};

// region open-ud
static int open_ud(struct rdma_resources *res, const struct rdma_resources *on,
		   uint32_t msg_size)
{
	struct rdma_config config = {
		.device_name = ibv_get_device_name(on->context->device),
		.gid_index = on->gid_index,
	};
	int rc = open_device(res, &config);

	/* 收的每一块都要多 40 个字节。*/
	res->msg_size = msg_size;
	res->recv_slots = res->send_slots = 4;
	if (!rc)
		rc = create_pd(res);
	if (!rc)
		rc = create_cq(res, true);
	if (!rc)
		rc = create_slots(res);
	return rc ? rc : create_datagram_qp(res, QKEY);
}
// endregion open-ud

static int open_pair(struct classroom *c, struct datagram_pair *p,
		     uint32_t msg_size)
{
	int rc = open_ud(&p->a, &c->clients.res, msg_size);

	if (!rc)
		rc = open_ud(&p->b, &c->server.res, msg_size);
	return rc ? rc : create_ah(&p->a, p->b.gid.raw, &p->to_b);
}

static int close_pair(struct datagram_pair *p)
{
	int rc = 0, undo;

	if (p->to_b)
		rc = check_destroyed("ibv_destroy_ah", ibv_destroy_ah(p->to_b));
	if (p->to_a)
		ibv_destroy_ah(p->to_a);
	undo = destroy_rdma_resources(&p->a);
	rc = rc ? rc : undo;
	undo = destroy_rdma_resources(&p->b);
	return rc ? rc : undo;
}

/* ---- 一问一答 ---------------------------------------------------------------- */

/* 十个 32 位的字，按线上的次序。*/
static void show_forty(const char *head)
{
	uint32_t word[GRH_BYTES / 4];

	memcpy(word, head, GRH_BYTES);
	for (int i = 0; i < 2; i++)
		report_fact("bytes %2d-%d: 0x%08x 0x%08x 0x%08x 0x%08x 0x%08x",
			    20 * i, 20 * i + 19, be32toh(word[5 * i]),
			    be32toh(word[5 * i + 1]), be32toh(word[5 * i + 2]),
			    be32toh(word[5 * i + 3]), be32toh(word[5 * i + 4]));
}

// region ask-answer
static int ask_and_answer(struct datagram_pair *p)
{
	struct ibv_wc wc;
	uint32_t length;
	const char *text;
	int rc = post_receive(&p->b, 0);

	strcpy(send_slot(&p->a, 0), "who is there?");
	if (!rc)
		rc = post_datagram(&p->a, 0, BYTES, p->to_b, p->b.qp->qp_num,
				   QKEY);
	if (!rc)
		rc = poll_completion(&p->a, WR_ID_SEND(0), NULL,
				     POLL_TIMEOUT_MS);
	if (!rc)
		rc = poll_completion(&p->b, WR_ID_RECV(0), &wc,
				     POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	text = datagram_of(&p->b, &wc, &length);
	if (!text)
		return not_seen("a datagram");
	report_fact("B: byte_len %u, src_qp %u; %u bytes of data: \"%s\"",
		    wc.byte_len, wc.src_qp, length, text);
	show_forty(text - GRH_BYTES);
	rc = answer_datagram(&p->b, &wc, &p->to_a);
	strcpy(send_slot(&p->b, 0), "I am");
	if (!rc)
		rc = post_receive(&p->a, 0);
	if (!rc)
		rc = post_datagram(&p->b, 0, BYTES, p->to_a, wc.src_qp, QKEY);
	if (!rc)
		rc = poll_completion(&p->b, WR_ID_SEND(0), NULL,
				     POLL_TIMEOUT_MS);
	if (!rc)
		rc = poll_completion(&p->a, WR_ID_RECV(0), &wc,
				     POLL_TIMEOUT_MS);
	text = rc ? NULL : datagram_of(&p->a, &wc, &length);
	if (text)
		report_fact("A: \"%s\"", text);
	return rc;
}
// endregion ask-answer

int datagrams(struct classroom *c)
{
	struct datagram_pair p = { 0 };
	int rc = open_pair(c, &p, GRH_BYTES + BYTES), undo;

	report_step("UD: A asks, and B answers by what has come with it");
	if (!rc)
		rc = ask_and_answer(&p);
	undo = close_pair(&p);
	return rc ? rc : undo;
}

/* ---- 三种丢法 ---------------------------------------------------------------- */

/* A 说发出去了。B 呢？*/
static int lost(struct datagram_pair *p, uint32_t length, uint32_t qkey)
{
	struct ibv_sge sge = { (uintptr_t)send_slot(&p->a, 0), length,
			       p->a.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_SEND(0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { p->to_b, p->b.qp->qp_num, qkey },
	};
	struct ibv_wc wc;
	int rc = post_receive(&p->b, 0);

	if (!rc)
		rc = post_request(&p->a, &wr);
	if (!rc)
		rc = poll_completion(&p->a, WR_ID_SEND(0), &wc,
				     POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	report_fact("A: SEND of %u bytes: %s", length,
		    wc_status_name(wc.status));
	rc = poll_completion(&p->b, WR_ID_RECV(0), NULL, SHORT_MS);
	return rc ? rc : not_seen("a loss");
}

static int lose(struct classroom *c, uint32_t room, uint32_t length,
		uint32_t qkey)
{
	struct datagram_pair p = { 0 };
	int rc = open_pair(c, &p, room), undo;

	if (!rc)
		rc = lost(&p, length, qkey);
	undo = close_pair(&p);
	return rc ? rc : undo;
}

// region break-ud
int wrong_qkey(void *classroom)
{
	return lose(classroom, GRH_BYTES + BYTES, BYTES, QKEY + 1);
}

int no_room(void *classroom)
{
	return lose(classroom, BYTES, BYTES, QKEY);
}

int over_mtu(void *classroom)
{
	struct classroom *c = classroom;
	uint32_t mtu = mtu_bytes(c->clients.res.port_attr.active_mtu);

	return lose(c, GRH_BYTES + mtu + 1, mtu + 1, QKEY);
}
// endregion break-ud
