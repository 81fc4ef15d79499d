/* SPDX-License-Identifier: MIT */
/*
 * tag_pair.h - two ends of a tag channel in one process, each on a device of its
 * own, and the check that unit_tag_channel.c makes of them. The program sets
 * device_a and device_b first.
 */
#ifndef TESTS_TAG_PAIR_H
#define TESTS_TAG_PAIR_H

#include "base/deadline.h"
#include "tag/parts.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define LONG_MS	  20000
#define QUIET_MS  50
#define MOST_TOLD 20

struct end {
	struct rdma_resources res;
	struct tag_channel ch;
};

struct pair {
	struct end a, b;
};

static int failures;

/* Of many failures the first ones are told. */
#define CHECK(cond, ...)                                          \
	do {                                                      \
		if (!(cond) && ++failures <= MOST_TOLD) {         \
			printf("line %d: %s: ", __LINE__, #cond); \
			printf(__VA_ARGS__);                      \
			putchar('\n');                            \
		}                                                 \
	} while (0)

static void open_end(struct end *end, const char *device,
		     const struct tag_limits *limits)
{
	struct rdma_config config = { .device_name = device,
				      .gid_index = GID_INDEX_AUTO };

	tag_channel_config(&config, limits);
	if (init_rdma_resources(&end->res, &config) ||
	    modify_qp_to_init(&end->res) ||
	    tag_channel_open(&end->ch, &end->res, limits))
		exit(1);
}

static const char *device_a, *device_b;

static void open_pair(struct pair *p, struct tag_limits limits)
{
	struct tag_plan of_a, of_b;

	open_end(&p->a, device_a, &limits);
	open_end(&p->b, device_b, &limits);
	p->a.res.remote = cm_con_data_of(&p->b.res);
	p->b.res.remote = cm_con_data_of(&p->a.res);
	of_a = tag_channel_plan(&p->a.ch);
	of_b = tag_channel_plan(&p->b.ch);
	if (modify_qp_to_rtr(&p->a.res) || modify_qp_to_rtr(&p->b.res) ||
	    modify_qp_to_rts(&p->a.res) || modify_qp_to_rts(&p->b.res) ||
	    tag_channel_meet(&p->a.ch, &of_b) ||
	    tag_channel_meet(&p->b.ch, &of_a))
		exit(1);
}

static void close_pair(struct pair *p)
{
	CHECK(!tag_channel_close(&p->a.ch), "A");
	CHECK(!tag_channel_close(&p->b.ch), "B");
	CHECK(!destroy_rdma_resources(&p->a.res), "A");
	CHECK(!destroy_rdma_resources(&p->b.res), "B");
}

/* One step of both; false when the time is over or a channel has failed. */
static bool both(struct pair *p, int64_t deadline)
{
	int a = tag_progress(&p->a.ch), b = tag_progress(&p->b.ch);

	if (!a && !b)
		sched_yield(); /* to rxe's softirq */
	return a >= 0 && b >= 0 && !deadline_passed(deadline);
}

static void finish(struct pair *p, const struct tag_request *request)
{
	int64_t deadline = deadline_in_ms(LONG_MS);

	while (request->status == -EINPROGRESS && both(p, deadline))
		;
}

static uint64_t came(const struct end *end)
{
	return end->ch.counts.eager_received +
	       end->ch.counts.rendezvous_received;
}

static uint64_t sent_by(const struct end *end)
{
	return end->ch.counts.eager_sent + end->ch.counts.rendezvous_sent;
}

/* Until all that was sent has come, and nothing more is sent for a while. */
static void settle(struct pair *p)
{
	int64_t deadline = deadline_in_ms(LONG_MS);
	int64_t quiet = deadline_in_ms(QUIET_MS);
	uint64_t seen = 0, sent;

	while (!deadline_passed(quiet) && both(p, deadline)) {
		sent = sent_by(&p->a) + sent_by(&p->b);
		if (sent != seen || sent != came(&p->a) + came(&p->b))
			quiet = deadline_in_ms(QUIET_MS);
		seen = sent;
	}
}

static void arrive(struct pair *p, const struct end *at, uint64_t n)
{
	int64_t deadline = deadline_in_ms(LONG_MS);

	while (came(at) < n && both(p, deadline))
		;
	CHECK(came(at) == n, "%llu came", (unsigned long long)came(at));
}

/* One more READ by B of the message of @r, as a late duplicate is. */
static enum ibv_wc_status read_again(struct pair *p,
				     const struct tag_request *r)
{
	struct ibv_sge into = { (uintptr_t)send_slot(&p->b.res, 0), 64,
				p->b.res.mr->lkey };
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int64_t deadline = deadline_in_ms(LONG_MS);

	CHECK(!post_read(&p->b.res, 0, &into, r->peer_addr, r->peer_rkey), "B");
	while (!ibv_poll_cq(p->b.res.cq, 1, &wc) && !deadline_passed(deadline))
		sched_yield();
	return wc.status;
}

static char *fill(char *data, uint64_t n, unsigned int seed)
{
	for (uint64_t i = 0; i < n; i++)
		data[i] = (char)(seed + i * 31 + (i >> 9));
	return data;
}

static char *memory(uint64_t n)
{
	char *data = calloc(1, n + 1);

	if (!data)
		exit(1);
	return data;
}

#endif
