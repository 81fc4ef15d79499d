// SPDX-License-Identifier: MIT
/*
 * needle_reader.c - an engine of the smallest kind: connects to a storage node
 * with the stages of the course, gets the catalogue, READs every needle in
 * pieces with several in flight, and checks every CRC-32C.
 *
 *	needle_reader [options] SERVER PORT
 *
 *	-d DEVICE  -c BYTES of one READ (4096)  -w READs in flight (16)
 *	-r ROUNDS over the whole catalogue (1; 0: until something fails)
 *	-p SEED,MIN,MAX  compare every byte with what build/needle make put there
 *	-H         stay connected until a signal comes
 *	-W         WRITE over the first needle: must fail with a remote access error
 *	-O         READ where no needle is: the same
 *	-L FILE    be a storage node at PORT, of one needle (1,1,7); when FILE is there
 *	           READ (with -W: WRITE) the engine's memory at the address and with
 *	           the key that stand in it: the same
 *
 * Prints "N needles, B bytes" and ends with 0 if all is right.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "needle/catalog.h"
#include "needle/pattern.h"
#include "rdma_common.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan {
	const char *device, *server, *key_file;
	uint16_t port;
	uint32_t piece, window;
	unsigned int rounds;
	bool compare, hold, write, outside;
	struct needle_pattern pattern;
};

struct reader {
	const struct plan *plan;
	struct rdma_resources res;
	struct needle_catalog catalog;
	uint64_t bytes;
	uint32_t crc;
};

/* Where the posting, or the checking, of the whole catalogue has got to. */
struct cursor {
	size_t entry;
	uint64_t offset;
	uint32_t slot;
};

static int post_one(struct reader *r, uint64_t addr, uint32_t rkey,
		    uint32_t slot, uint32_t length, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { .addr = (uintptr_t)send_slot(&r->res, slot),
			       .length = length,
			       .lkey = r->res.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = slot,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = addr,
					       .rkey = rkey } };
	struct ibv_send_wr *bad;
	int err = ibv_post_send(r->res.qp, &wr, &bad);

	if (err)
		report_error(NULL, "ibv_post_send(): %s", strerror(err));
	return -err;
}

/* The next completion's status, or a negative errno. */
static int await_one(struct reader *r, struct ibv_wc *wc)
{
	int64_t deadline = deadline_in_ms(POLL_TIMEOUT_MS);
	struct poll_pause pause = { 0 };
	int n, rc;

	while (!(n = ibv_poll_cq(r->res.cq, 1, wc))) {
		rc = pause_between_polls(&pause, deadline, 0);
		if (rc) {
			report_error(NULL, "no completion: %s", strerror(-rc));
			return rc;
		}
	}
	return n < 0 ? -EIO : (int)wc->status;
}

static uint32_t piece_at(const struct reader *r, const struct cursor *at)
{
	uint64_t left = r->catalog.entries[at->entry].size - at->offset;

	return left < r->plan->piece ? (uint32_t)left : r->plan->piece;
}

static void step(const struct reader *r, struct cursor *at, uint32_t length)
{
	at->offset += length;
	at->slot = (at->slot + 1) % r->plan->window;
	if (at->offset == r->catalog.entries[at->entry].size) {
		at->entry++;
		at->offset = 0;
	}
}

/* A needle of no bytes needs no READ: there is nothing to bring. */
static void pass_empty(const struct reader *r, struct cursor *at)
{
	while (at->entry < r->catalog.count &&
	       !r->catalog.entries[at->entry].size)
		at->entry++;
}

static int compare_bytes(const struct reader *r, const struct cursor *at,
			 uint32_t length)
{
	const struct needle_entry *e = &r->catalog.entries[at->entry];
	const struct needle_pattern *pattern = &r->plan->pattern;
	char *expected = malloc(length);
	int rc = 0;

	needle_pattern_bytes(pattern, e->volume_id, e->needle_id, at->offset,
			     expected, length);
	if (memcmp(expected, send_slot(&r->res, at->slot), length) ||
	    e->size !=
		    needle_pattern_size(pattern, e->volume_id, e->needle_id) ||
	    e->cookie != needle_pattern_cookie(pattern, e->volume_id,
					       e->needle_id)) {
		report_error(NULL, "needle %u,%llu at %llu: other bytes",
			     e->volume_id, (unsigned long long)e->needle_id,
			     (unsigned long long)at->offset);
		rc = -EIO;
	}
	free(expected);
	return rc;
}

static int take_piece(struct reader *r, struct cursor *at)
{
	const struct needle_entry *e = &r->catalog.entries[at->entry];
	uint32_t length = piece_at(r, at);
	struct ibv_wc wc;
	int rc = await_one(r, &wc);

	if (rc || wc.wr_id != at->slot || wc.byte_len != length ||
	    wc.opcode != IBV_WC_RDMA_READ) {
		report_error(NULL, "READ of %u,%llu at %llu: %s", e->volume_id,
			     (unsigned long long)e->needle_id,
			     (unsigned long long)at->offset,
			     rc < 0 ? strerror(-rc)
				    : ibv_wc_status_str(wc.status));
		return -EIO;
	}
	r->crc = crc32c(at->offset ? r->crc : 0, send_slot(&r->res, at->slot),
			length);
	r->bytes += length;
	if (at->offset + length == e->size && r->crc != e->crc32c) {
		report_error(NULL, "needle %u,%llu: CRC-32C 0x%08x, not 0x%08x",
			     e->volume_id, (unsigned long long)e->needle_id,
			     r->crc, e->crc32c);
		return -EBADMSG;
	}
	rc = r->plan->compare ? compare_bytes(r, at, length) : 0;
	step(r, at, length);
	pass_empty(r, at);
	return rc;
}

static int read_all(struct reader *r)
{
	struct cursor post = { 0 }, take = { 0 };
	uint32_t flying = 0;
	int rc = 0;

	pass_empty(r, &post);
	pass_empty(r, &take);
	while (!rc && take.entry < r->catalog.count) {
		while (!rc && flying < r->plan->window &&
		       post.entry < r->catalog.count) {
			const struct needle_entry *e =
				&r->catalog.entries[post.entry];
			uint32_t length = piece_at(r, &post);

			rc = post_one(r, e->remote_addr + post.offset, e->rkey,
				      post.slot, length, IBV_WR_RDMA_READ);
			step(r, &post, length);
			pass_empty(r, &post);
			flying++;
		}
		if (!rc)
			rc = take_piece(r, &take);
		flying--;
	}
	return rc;
}

static int must_be_refused(struct reader *r, uint64_t addr, uint32_t rkey)
{
	struct ibv_wc wc;
	int rc =
		post_one(r, addr, rkey, 0, 1,
			 r->plan->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);

	if (!rc)
		rc = await_one(r, &wc);
	if (rc < 0)
		return rc;
	printf("%s\n", ibv_wc_status_str(wc.status));
	return rc == IBV_WC_REM_ACCESS_ERR ? 0 : -EIO;
}

static int converse(struct reader *r, int sock)
{
	const struct plan *plan = r->plan;
	int64_t deadline = deadline_in_ms(EXCHANGE_TIMEOUT_MS);
	int rc = modify_qp_to_init(&r->res);

	if (!rc)
		rc = connect_qp(&r->res, sock, deadline);
	if (!rc)
		rc = needle_catalog_receive(&r->catalog, sock, deadline);
	if (rc)
		return rc;
	if (plan->write || plan->outside)
		return must_be_refused(r,
				       r->catalog.entries[0].remote_addr -
					       (plan->outside ? 1 << 20 : 0),
				       r->catalog.entries[0].rkey);
	for (unsigned int i = 0; !rc && (!plan->rounds || i < plan->rounds);
	     i++)
		rc = read_all(r);
	if (rc)
		return rc;
	printf("%zu needles, %llu bytes\n", r->catalog.count,
	       (unsigned long long)r->bytes);
	fflush(stdout);
	if (plan->hold)
		wait_fd(sock, POLLIN, deadline_in_ms(600000));
	return 0;
}

static int be_a_node(struct reader *r, int sock)
{
	int64_t deadline = deadline_in_ms(EXCHANGE_TIMEOUT_MS);
	const struct needle_entry e = { .volume_id = 1,
					.needle_id = 1,
					.cookie = 7,
					.remote_addr = (uintptr_t)r->res.buf,
					.rkey = r->res.mr->rkey,
					.size = 16,
					.crc32c = crc32c(0, r->res.buf, 16) };
	unsigned long long addr = 0;
	unsigned int rkey = 0;
	FILE *file = NULL;
	int rc = needle_catalog_add(&r->catalog, &e);

	if (!rc)
		rc = modify_qp_to_init(&r->res);
	if (!rc)
		rc = connect_qp(&r->res, sock, deadline);
	if (!rc)
		rc = needle_catalog_send(&r->catalog, sock, deadline);
	while (!rc && !(file = fopen(r->plan->key_file, "r")))
		rc = deadline_sleep_ms(10, INT64_MAX);
	if (rc)
		return rc;
	if (fscanf(file, "%llu %u", &addr, &rkey) != 2)
		rc = -EINVAL;
	fclose(file);
	return rc ? rc : must_be_refused(r, addr, rkey);
}

static int accept_engine(uint16_t port)
{
	int listener = tcp_listen(port);
	int sock = listener < 0 ? listener
				: tcp_accept(listener, deadline_in_ms(60000));

	sock_close(&listener);
	return sock;
}

static int connect_and_read(const struct plan *plan)
{
	struct rdma_config config = { .device_name = plan->device,
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = plan->piece,
				      .send_slots = plan->window };
	struct reader r = { .plan = plan };
	int sock = -1, undo;
	int rc = init_rdma_resources(&r.res, &config);

	if (rc)
		return rc;
	r.res.max_reads = (uint8_t)plan->window;
	if (plan->key_file)
		sock = accept_engine(plan->port);
	else
		sock = tcp_connect(plan->server, plan->port,
				   deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	rc = sock;
	if (sock >= 0)
		rc = plan->key_file ? be_a_node(&r, sock) : converse(&r, sock);
	sock_close(&sock);
	needle_catalog_free(&r.catalog);
	undo = destroy_rdma_resources(&r.res);
	return rc ? rc : undo;
}

int main(int argc, char *argv[])
{
	struct plan plan = { .piece = 4096, .window = 16, .rounds = 1 };
	unsigned long long seed, min, max;
	int c;

	while ((c = getopt(argc, argv, "d:c:w:r:p:HWOL:")) != -1) {
		if (c == 'd')
			plan.device = optarg;
		else if (c == 'c')
			plan.piece = (uint32_t)atoi(optarg);
		else if (c == 'w')
			plan.window = (uint32_t)atoi(optarg);
		else if (c == 'r')
			plan.rounds = (unsigned int)atoi(optarg);
		else if (c == 'p' && sscanf(optarg, "%llu,%llu,%llu", &seed,
					    &min, &max) == 3)
			plan.compare = true;
		else if (c == 'H')
			plan.hold = true;
		else if (c == 'W')
			plan.write = true;
		else if (c == 'O')
			plan.outside = true;
		else if (c == 'L')
			plan.key_file = optarg;
		else
			return 2;
	}
	if (argc - optind != 2)
		return 2;
	if (plan.compare)
		plan.pattern = (struct needle_pattern){ seed, min, max };
	plan.server = argv[optind];
	plan.port = (uint16_t)atoi(argv[optind + 1]);
	catch_stop_signals();
	report_set_level(REPORT_QUIET);
	return connect_and_read(&plan) ? 1 : 0;
}
