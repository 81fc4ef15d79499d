// SPDX-License-Identifier: MIT
/*
 * classroom.c —— 八个 client，八个座位：server 一侧的八个 QP 共用一个 SRQ、一个 CQ
 */
#include "many_peers.h"

#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

int not_seen(const char *what)
{
	return fail(-EPROTO, NULL, "%s was not seen", what);
}

// region seat
int seat(struct classroom *c, int i, uint8_t rnr_retry)
{
	struct rdma_resources *client = &c->client[i], *place = &c->place[i];
	struct ibv_qp_attr rts;
	int rc = create_peer_qp(&c->clients, client, SLOTS, client);

	if (!rc)
		rc = create_peer_qp(&c->server, place, SLOTS, place);
	if (!rc)
		rc = modify_qp_to_init(client);
	if (!rc)
		rc = modify_qp_to_init(place);
	if (rc)
		return rc;
	/* 两端在同一个进程里，第 4 课的交换就是两次赋值。*/
	client->remote = cm_con_data_of(place);
	place->remote = cm_con_data_of(client);
	rc = modify_qp_to_rtr(place);
	if (!rc)
		rc = modify_qp_to_rts(place);
	if (!rc)
		rc = modify_qp_to_rtr(client);
	rts = rts_attributes(client);
	rts.rnr_retry = rnr_retry;
	return rc ? rc : modify_qp(client, &rts, RTS_MASK);
}
// endregion seat

int post_receives(struct classroom *c, uint32_t first, uint32_t count)
{
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++)
		rc = post_shared_receive(&c->server, first + i);
	return rc;
}

int client_says(struct classroom *c, int i, uint32_t slot, uint32_t length)
{
	const struct rdma_resources *res = &c->clients.res;
	struct ibv_sge sge = { (uintptr_t)recv_slot(res, slot), length,
			       res->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = WR_ID_SEND(slot),
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	int err;

	snprintf(recv_slot(res, slot), SLOT_SIZE, "I am client %d", i);
	err = ibv_post_send(c->client[i].qp, &wr, &bad);
	return err ? post_send_failed(c->client[i].qp, &wr, err) : 0;
}

int client_done(struct classroom *c, enum ibv_wc_status status)
{
	const int64_t deadline = deadline_in_ms(POLL_TIMEOUT_MS);
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(c->clients.res.cq, 1, &wc)))
		if (deadline_passed(deadline))
			return not_seen("a client's completion");
	if (n == 1 && wc.status == status)
		return 0;
	return fail(-EIO, NULL, "a client's send: %s",
		    wc_status_name(wc.status));
}

int event_within(struct classroom *c, int ms)
{
	return wait_fd(c->server.res.channel->fd, POLLIN, deadline_in_ms(ms));
}

int async_within(struct shared_queues *q, int ms)
{
	return wait_fd(q->res.context->async_fd, POLLIN, deadline_in_ms(ms));
}

int open_classroom(struct classroom *c)
{
	struct rdma_config config = c->lesson->config;
	char name[64];
	int rc;

	config.msg_size = SLOT_SIZE;
	config.recv_slots = SLOTS;
	c->config = config;
	rc = open_shared_queues(&c->server, &config);
	if (rc)
		return rc;
	if (!config.device_name) {
		lesson_other_device(c->server.res.context, name, sizeof(name));
		config.device_name = name;
	}
	rc = open_shared_queues(&c->clients, &config);
	for (int i = 0; i < CLIENTS && !rc; i++)
		rc = seat(c, i, RNR_EVER);
	return rc;
}

// region close
int close_classroom(struct classroom *c)
{
	int rc = 0, undo;

	/* 先是所有的 QP，然后 SRQ，最后 CQ、MR、PD：谁被用着，谁就拆不掉。*/
	for (int i = 0; i < CLIENTS; i++) {
		undo = destroy_peer_qp(&c->clients, &c->client[i]);
		rc = rc ? rc : undo;
		undo = destroy_peer_qp(&c->server, &c->place[i]);
		rc = rc ? rc : undo;
	}
	undo = close_shared_queues(&c->clients);
	rc = rc ? rc : undo;
	undo = close_shared_queues(&c->server);
	return rc ? rc : undo;
}
// endregion close
