// SPDX-License-Identifier: MIT
/* Another hand: events instead of polling, a list of attributes, no macros. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *call, int err, int code)
{
	fprintf(stderr, "error: %s: %s\n next: read it\n", call, strerror(err));
	exit(code);
}

struct side {
	struct ibv_qp *qp;
	uint32_t psn;
};

static struct ibv_context *find(const char *name)
{
	int n = 0;
	struct ibv_device **all = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;

	if (!all || !n)
		die("ibv_get_device_list()", ENODEV, 77);
	for (int i = 0; i < n; i++) {
		if (name && strcmp(name, all[i]->name) != 0)
			continue;
		ctx = ibv_open_device(all[i]);
		if (!ctx)
			die("ibv_open_device()", errno, 1);
		break;
	}
	ibv_free_device_list(all);
	if (!ctx)
		die(name, ENXIO, 1);
	return ctx;
}

static int gid_slot(struct ibv_context *ctx, union ibv_gid *gid)
{
	struct ibv_gid_entry all[64];
	ssize_t n = ibv_query_gid_table(ctx, all, 64, 0);

	/* Ask slot by slot, too: what the table says may be out of date. */
	for (ssize_t i = 0; i < n; i++) {
		struct ibv_gid_entry e;

		if (ibv_query_gid_ex(ctx, 1, all[i].gid_index, &e, 0))
			continue;
		if (e.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		*gid = e.gid;
		return (int)e.gid_index;
	}
	for (uint32_t i = 0; i < 16; i++) {
		struct ibv_gid_entry e;

		if (!ibv_query_gid_ex(ctx, 1, i, &e, 0) &&
		    e.gid_type == IBV_GID_TYPE_ROCE_V2) {
			*gid = e.gid;
			return (int)i;
		}
	}
	die("no RoCE v2 GID on port 1", EADDRNOTAVAIL, 1);
	return -1;
}

static void go(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	int err = ibv_modify_qp(qp, &attr, mask);

	if (err)
		die("ibv_modify_qp()", err, 1);
}

static void join(struct side me, struct side peer, union ibv_gid gid, int slot)
{
	struct ibv_ah_attr to = { .is_global = 1,
				  .port_num = 1,
				  .grh = { .dgid = gid,
					   .sgid_index = (uint8_t)slot,
					   .hop_limit = 255 } };

	go(me.qp,
	   (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 },
	   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS);
	go(me.qp,
	   (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				 .ah_attr = to,
				 .path_mtu = IBV_MTU_256,
				 .dest_qp_num = peer.qp->qp_num,
				 .rq_psn = peer.psn,
				 .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12 },
	   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		   IBV_QP_MIN_RNR_TIMER);
	go(me.qp,
	   (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				 .sq_psn = me.psn,
				 .timeout = 12,
				 .retry_cnt = 3,
				 .rnr_retry = 3,
				 .max_rd_atomic = 1 },
	   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* How many completions were there; each is looked at. */
static int drain(struct ibv_cq *cq)
{
	struct ibv_wc wc[2];
	int n = ibv_poll_cq(cq, 2, wc);

	if (n < 0)
		die("ibv_poll_cq()", EIO, 1);
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			die(ibv_wc_status_str(wc[i].status), EIO, 1);
	return n;
}

static void await_two(struct ibv_cq *cq)
{
	struct pollfd fd = { .fd = cq->channel->fd, .events = POLLIN };
	struct ibv_cq *of;
	void *context;

	for (int done = drain(cq); done < 2; done += drain(cq)) {
		if (ibv_req_notify_cq(cq, 0))
			die("ibv_req_notify_cq()", EIO, 1);
		done += drain(cq);
		if (done >= 2)
			return;
		if (poll(&fd, 1, 3000) != 1)
			die("ibv_poll_cq()", ETIME, 1);
		if (ibv_get_cq_event(cq->channel, &of, &context))
			die("ibv_get_cq_event()", errno, 1);
		ibv_ack_cq_events(cq, 1);
	}
}

int main(int argc, char *argv[])
{
	struct ibv_context *ctx = find(argc > 1 ? argv[1] : NULL);
	char *text = aligned_alloc(4096, 8192);
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	struct side a, b;
	union ibv_gid gid;
	int slot = gid_slot(ctx, &gid), err;
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, text, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, channel, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	if (!pd || !mr || !channel || !cq)
		die("the objects", errno, 1);
	printf("open %s\n", ibv_get_device_name(ctx->device));
	strcpy(text, "Hello from QP A!");
	memset(text + 4096, 0, 64);
	a.qp = ibv_create_qp(pd, &init);
	b.qp = ibv_create_qp(pd, &init);
	if (!a.qp || !b.qp)
		die("ibv_create_qp()", errno, 1);
	a.psn = (uint32_t)getpid() & 0xffffff;
	b.psn = a.psn ^ 0x555555;
	/* B first: the order is free. */
	join(b, a, gid, slot);

	struct ibv_sge into = { (uintptr_t)text + 4096, 32, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 7,
				    .sg_list = &into,
				    .num_sge = 1 };

	err = ibv_post_recv(b.qp, &recv, &bad_recv);
	if (err)
		die("ibv_post_recv()", err, 1);
	join(a, b, gid, slot);

	struct ibv_sge from = { (uintptr_t)text, 17, mr->lkey };
	struct ibv_send_wr send = { .wr_id = 8,
				    .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED |
						  IBV_SEND_SOLICITED };

	err = ibv_post_send(a.qp, &send, &bad_send);
	if (err)
		die("ibv_post_send()", err, 1);
	await_two(cq);
	printf("A's SEND is in B's RECV: \"%s\"\n", text + 4096);
	ibv_destroy_qp(a.qp);
	ibv_destroy_qp(b.qp);
	ibv_destroy_cq(cq);
	ibv_destroy_comp_channel(channel);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	free(text);
	return 0;
}
