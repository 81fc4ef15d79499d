// SPDX-License-Identifier: MIT
/*
 * receive_queues.c - N clients and their server, in one process, on two devices: with a
 * receive queue for each of the server's QPs, or one SRQ for all of them.
 *
 *	receive_queues own|shared N ROUNDS DEVICE CLIENTS-DEVICE
 *
 * In a round each client sends 64 bytes, and gets them back. Prints JSON: the MB that the
 * server's side has taken, and the median of half a round.
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/laps.h"
#include "base/report.h"
#include "rdma_common.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN   16 /* receives of each queue */
#define SHARE 2	 /* of each client in the SRQ: one more while one is answered */
#define SIZE  4096
#define BYTES 64
#define MOST  1024

struct side {
	struct shared_queues q;
	struct rdma_resources qp[MOST], *of[1 << 16]; /* by their numbers */
	bool own, answers;
	uint32_t heard;
};

static struct side server, clients;

/* Of /proc/self/status: all that is mapped, in kB: buffers, and the QPs' queues */
static long mapped_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kb = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmSize: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

static int post_one(struct side *s, struct rdma_resources *qp, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)recv_slot(&s->q.res, slot), SIZE,
			       s->q.res.mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = WR_ID_RECV(slot),
					.sg_list = &sge,
					.num_sge = 1 };
	int err;

	if (!s->own)
		return post_shared_receive(&s->q, slot);
	err = ibv_post_recv(qp->qp, &wr, &bad);
	return err ? call_failed(err, "ibv_post_recv(slot %u)", slot) : 0;
}

static int send_one(struct side *s, struct rdma_resources *qp, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)recv_slot(&s->q.res, slot), BYTES,
			       s->q.res.mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = WR_ID_SEND(slot),
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	int err = ibv_post_send(qp->qp, &wr, &bad);

	return err ? post_send_failed(qp->qp, &wr, err) : 0;
}

static int create_own_qp(struct side *s, struct rdma_resources *qp)
{
	struct ibv_qp_init_attr init = {
		.qp_context = qp,
		.send_cq = s->q.res.cq,
		.recv_cq = s->q.res.cq,
		.cap = { 4, OWN, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	*qp = s->q.res;
	qp->qp = ibv_create_qp(qp->pd, &init);
	return qp->qp ? 0 : create_qp_failed(qp->pd, &init, errno);
}

/* Receives for all, before anybody is connected; and @more slots, to send from. */
static int open_side(struct side *s, const char *device, uint32_t n, bool own,
		     uint32_t more)
{
	const uint32_t receives = n * (own ? OWN : SHARE);
	struct rdma_config config = { .device_name = device,
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = SIZE,
				      .recv_slots = receives + more };
	int rc = open_shared_queues(&s->q, &config);

	s->own = own;
	if (!rc && own) {
		rc = check_destroyed("ibv_destroy_srq",
				     ibv_destroy_srq(s->q.srq));
		s->q.srq = NULL;
	}
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = own ? create_own_qp(s, &s->qp[i])
			 : create_peer_qp(&s->q, &s->qp[i], 4, NULL);
		if (!rc)
			rc = modify_qp_to_init(&s->qp[i]);
		if (!rc)
			s->of[s->qp[i].qp->qp_num & 0xffff] = &s->qp[i];
	}
	for (uint32_t slot = 0; slot < receives && !rc; slot++)
		rc = post_one(s, &s->qp[own ? slot / OWN : 0], slot);
	return rc;
}

static int connect_to(struct rdma_resources *qp,
		      const struct rdma_resources *peer)
{
	int rc;

	qp->remote = cm_con_data_of(peer);
	rc = modify_qp_to_rtr(qp);
	return rc ? rc : modify_qp_to_rts(qp);
}

/* How many completions there were, or -errno. */
static int pump(struct side *s)
{
	struct ibv_wc wc[32];
	int n = ibv_poll_cq(s->q.res.cq, 32, wc), rc = n < 0 ? -EIO : 0;

	for (int i = 0; i < n && !rc; i++) {
		struct rdma_resources *qp = s->of[wc[i].qp_num & 0xffff];
		uint32_t slot = WR_ID_SLOT(wc[i].wr_id);
		bool came = wc[i].wr_id == WR_ID_RECV(slot);

		s->heard += came;
		if (wc[i].status)
			rc = fail(-EIO, NULL, "a QP failed: %s",
				  wc_status_name(wc[i].status));
		else if (came && s->answers)
			rc = send_one(s, qp, slot);
		else if (came || s->answers)
			rc = post_one(s, qp, slot);
	}
	return rc ? rc : n;
}

static int sleep_on(struct side *s, const struct pollfd *fd)
{
	if (fd->revents)
		return take_cq_event(&s->q.res);
	return s->q.res.armed ? 0 : arm_cq(&s->q.res);
}

/* Until one of them has completions: arm, look once more, sleep. */
static int wait_for_both(void)
{
	struct pollfd fds[] = { { server.q.res.channel->fd, POLLIN, 0 },
				{ clients.q.res.channel->fd, POLLIN, 0 } };
	bool armed = server.q.res.armed && clients.q.res.armed;
	int rc = 0;

	if (armed && poll(fds, 2, POLL_TIMEOUT_MS) < 1)
		return fail(-ETIMEDOUT, NULL, "nothing comes any more");
	rc = sleep_on(&server, &fds[0]);
	return rc ? rc : sleep_on(&clients, &fds[1]);
}

static int play_round(uint32_t n)
{
	int rc = 0, some, more = 0;

	clients.heard = 0;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = send_one(&clients, &clients.qp[i], SHARE * n + i);
	while (!rc && clients.heard < n) {
		some = pump(&server);
		more = some < 0 ? some : pump(&clients);
		rc = more < 0 ? more : some + more ? 0 : wait_for_both();
	}
	return rc;
}

static int play(uint32_t n, uint64_t rounds, long kb)
{
	struct laps laps;
	int rc = laps_init(&laps, rounds);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = connect_to(&server.qp[i], &clients.qp[i]);
		if (!rc)
			rc = connect_to(&clients.qp[i], &server.qp[i]);
	}
	laps_start(&laps);
	for (uint64_t i = 0; i < rounds && !rc; i++) {
		rc = play_round(n);
		laps_next(&laps);
	}
	if (!rc)
		rc = print_json_line(
			json_pack("{s:f, s:f}", "mb", (double)kb * 1.024 / 1000,
				  "half_round_us", laps_halved(&laps).median));
	laps_free(&laps);
	return rc;
}

static int close_side(struct side *s)
{
	for (int i = 0; i < MOST; i++)
		destroy_peer_qp(&s->q, &s->qp[i]);
	return close_shared_queues(&s->q);
}

int main(int argc, char *argv[])
{
	const char *usage = "usage: receive_queues own|shared N ROUNDS DEVICE "
			    "CLIENTS-DEVICE";
	uint32_t n = argc == 6 ? (uint32_t)atoi(argv[2]) : 0;
	int rounds = argc == 6 ? atoi(argv[3]) : 0, rc;
	long before = mapped_kb();

	if (!n || n > MOST || rounds < 1)
		return fail(EXIT_USAGE, usage, "the arguments are wrong");
	server.answers = true;
	rc = open_side(&server, argv[4], n, argv[1][0] == 'o', 0);
	before = mapped_kb() - before;
	if (!rc)
		rc = open_side(&clients, argv[5], n, false, n);
	if (!rc)
		rc = play(n, (uint64_t)rounds, before);
	rc |= close_side(&clients) | close_side(&server);
	return rc ? 1 : 0;
}
