// SPDX-License-Identifier: MIT
/*
 * needle_reader.c - an engine of the smallest kind: connects to a storage node
 * with the stages of the course, gets the catalogue, READs every needle in
 * pieces with several in flight, and checks every CRC-32C.
 *
 *	needle_reader [options] SERVER PORT
 *
 *	-d DEVICE  -c BYTES of one READ (4096)  -w READs in flight (16)
 *	-E         read the whole catalogue over and over, until something fails
 *	-H         stay connected until a signal comes
 *	-W         WRITE over the first needle: must fail with a remote access error
 *	-O         READ where no needle is: the same
 *	-L FILE    be a storage node at PORT, of one needle (1,1,7); when FILE is there
 *	           READ (with -W: WRITE) the engine's memory at the address and with
 *	           the key that stand in it: the same
 *
 * Prints the needles as build/needle lists them, with the CRC-32C of what it has
 * read, and "N needles, B bytes" (with -E: nothing); ends with 0 if all is right.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "needle/catalog.h"
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
	bool endless, hold, write, outside;
};

struct reader {
	const struct plan *plan;
	struct rdma_resources res;
	struct needle_catalog catalog;
	uint64_t bytes;
	uint32_t crc;
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

static int check_piece(struct reader *r, const struct needle_entry *e,
		       uint64_t at, uint32_t slot, uint32_t length)
{
	struct ibv_wc wc;
	int rc = await_one(r, &wc);

	if (rc || wc.wr_id != slot || wc.byte_len != length ||
	    wc.opcode != IBV_WC_RDMA_READ) {
		report_error(NULL, "READ of %u,%ju at %ju: %d", e->volume_id,
			     e->needle_id, at, rc);
		return -EIO;
	}
	r->crc = crc32c(at ? r->crc : 0, send_slot(&r->res, slot), length);
	return 0;
}

static uint32_t piece_at(const struct reader *r, const struct needle_entry *e,
			 uint64_t at)
{
	return e->size - at < r->plan->piece ? (uint32_t)(e->size - at)
					     : r->plan->piece;
}

static int read_needle(struct reader *r, const struct needle_entry *e)
{
	uint64_t posted = 0, taken = 0;
	uint32_t slot, length;
	int rc = 0;

	r->crc = 0;
	while (!rc && taken < e->size) {
		for (slot = 0;
		     !rc && slot < r->plan->window && posted < e->size;
		     slot++) {
			length = piece_at(r, e, posted);
			rc = post_one(r, e->remote_addr + posted, e->rkey, slot,
				      length, IBV_WR_RDMA_READ);
			posted += length;
		}
		for (slot = 0; !rc && taken < posted; slot++) {
			length = piece_at(r, e, taken);
			rc = check_piece(r, e, taken, slot, length);
			taken += length;
		}
	}
	r->bytes += taken;
	return rc;
}

static int read_all(struct reader *r)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < r->catalog.count; i++) {
		const struct needle_entry *e = &r->catalog.entries[i];

		rc = read_needle(r, e);
		if (!rc && !r->plan->endless)
			printf("%10u %20ju %10u %12ju  0x%08x\n", e->volume_id,
			       e->needle_id, e->cookie, e->size, r->crc);
		if (!rc && r->crc != e->crc32c) {
			report_error(NULL, "CRC-32C 0x%08x, not 0x%08x", r->crc,
				     e->crc32c);
			rc = -EBADMSG;
		}
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
	do {
		rc = read_all(r);
	} while (!rc && plan->endless);
	if (rc)
		return rc;
	printf("%zu needles, %ju bytes\n", r->catalog.count, r->bytes);
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

static int connect_and_read(const struct plan *plan)
{
	struct rdma_config config = { .device_name = plan->device,
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = plan->piece,
				      .send_slots = plan->window };
	struct reader r = { .plan = plan };
	int listener = -1, sock = -1, undo;
	int rc = init_rdma_resources(&r.res, &config);

	if (rc)
		return rc;
	r.res.max_reads = (uint8_t)plan->window;
	if (plan->key_file)
		listener = tcp_listen(plan->port);
	if (listener >= 0)
		sock = tcp_accept(listener, deadline_in_ms(60000));
	else if (!plan->key_file)
		sock = tcp_connect(plan->server, plan->port,
				   deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	rc = sock;
	if (sock >= 0)
		rc = plan->key_file ? be_a_node(&r, sock) : converse(&r, sock);
	sock_close(&listener);
	sock_close(&sock);
	needle_catalog_free(&r.catalog);
	undo = destroy_rdma_resources(&r.res);
	return rc ? rc : undo;
}

int main(int argc, char *argv[])
{
	struct plan plan = { .piece = 4096, .window = 16 };
	int c;

	while ((c = getopt(argc, argv, "d:c:w:EHWOL:")) != -1) {
		if (c == 'd')
			plan.device = optarg;
		else if (c == 'c')
			plan.piece = (uint32_t)atoi(optarg);
		else if (c == 'w')
			plan.window = (uint32_t)atoi(optarg);
		else if (c == 'E')
			plan.endless = true;
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
	plan.server = argv[optind];
	plan.port = (uint16_t)atoi(argv[optind + 1]);
	catch_stop_signals();
	report_set_level(REPORT_QUIET);
	return connect_and_read(&plan) ? 1 : 0;
}
