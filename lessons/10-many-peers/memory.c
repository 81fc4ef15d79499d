// SPDX-License-Identifier: MIT
/*
 * memory.c —— 64 个 QP 要多少内存：各有各的 receive，还是共用一个 SRQ
 */
#include "many_peers.h"

#include "base/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QPS	 64
#define OWN	 16 /* 每个 QP 自己的 receive */
#define TOGETHER 64 /* 大家共用的 */

/* /proc/self/status 里的一行，kB。VmPin：内核替 MR 钉住的；VmSize 里有 QP 的队列。*/
static long status_kb(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kb = -1;

	while (f && kb < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			kb = strtol(line + strlen(name), NULL, 10);
	if (f)
		fclose(f);
	return kb;
}

// region own-queues
/* 每个 QP 一个 RQ，每个 RQ 16 个 receive，每个 receive 一块内存。*/
static int own_queues(struct rdma_resources *all, struct rdma_resources *qps)
{
	int rc;

	all->recv_slots = QPS * OWN;
	rc = create_slots(all);
	for (int i = 0; i < QPS && !rc; i++) {
		qps[i] = *all;
		qps[i].recv_slots = OWN;
		qps[i].send_slots = 1;
		qps[i].qp = NULL;
		qps[i].posted = NULL;
		rc = create_qp(&qps[i], 0);
	}
	return rc;
}
// endregion own-queues

static int one_queue(struct shared_queues *q, struct rdma_resources *qps)
{
	int rc = renew_srq(q);

	if (!rc)
		rc = create_slots(&q->res);
	for (int i = 0; i < QPS && !rc; i++)
		rc = create_peer_qp(q, &qps[i], 1, NULL);
	return rc;
}

static int count(struct classroom *c, bool shared)
{
	struct shared_queues q = { 0 };
	struct rdma_resources qps[QPS] = { 0 };
	long pinned = status_kb("VmPin:"), mapped;
	int rc = open_device(&q.res, &c->config), undo;

	q.res.msg_size = SLOT_SIZE;
	q.res.recv_slots = TOGETHER;
	if (!rc)
		rc = create_pd(&q.res);
	if (!rc)
		rc = create_cq(&q.res, false);
	mapped = status_kb("VmSize:");
	if (!rc)
		rc = shared ? one_queue(&q, qps) : own_queues(&q.res, qps);
	if (!rc)
		report_fact(
			"%s: %u receives, %ld kB pinned, %ld kB more mapped",
			shared ? "one SRQ for all 64 QPs"
			       : "64 QPs, a queue for each",
			q.res.recv_slots, status_kb("VmPin:") - pinned,
			status_kb("VmSize:") - mapped);
	for (int i = 0; i < QPS; i++) {
		free(qps[i].posted);
		undo = destroy_peer_qp(&q, &qps[i]);
		rc = rc ? rc : undo;
	}
	undo = close_shared_queues(&q);
	return rc ? rc : undo;
}

int sum_of_memory(struct classroom *c)
{
	int rc;

	report_step("what 64 QPs cost, with receives of %u bytes", SLOT_SIZE);
	rc = count(c, false);
	return rc ? rc : count(c, true);
}
