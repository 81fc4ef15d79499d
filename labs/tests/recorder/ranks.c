// SPDX-License-Identifier: MIT
/*
 * ranks RANK SIZE PORT MS - one of SIZE processes in a ring, as a collective has them: each
 * takes numbers from the left and passes them on to the right, until each has the sum.
 * It gives up after MS without a completion. Written by the stages; faults are the saboteur's.
 */
#include "base/deadline.h"
#include "base/report.h"
#include "rdma_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS	 16 /* so far can one be ahead of the next */
#define ROUNDS	 20
#define BEGIN_MS 30000 /* until the ring is closed */

static struct rdma_resources left, right;
static int patience_ms;

static bool begin(struct rdma_resources *res, int sock, bool receives)
{
	struct rdma_config config = { .gid_index = GID_INDEX_AUTO,
				      .msg_size = DEFAULT_MSG_SIZE,
				      .recv_slots = SLOTS,
				      .send_slots = SLOTS };

	return sock >= 0 && !init_rdma_resources(res, &config) &&
	       !modify_qp_to_init(res) &&
	       (!receives || !post_all_receives(res)) &&
	       !connect_qp(res, sock, deadline_in_ms(EXCHANGE_TIMEOUT_MS));
}

static bool pass_on(uint64_t *number, uint32_t slot)
{
	memcpy(send_slot(&right, slot), number, sizeof(*number));
	if (post_send(&right, slot, DEFAULT_MSG_SIZE, true) ||
	    poll_completion(&left, WR_ID_RECV(slot), NULL, patience_ms))
		return false;
	memcpy(number, recv_slot(&left, slot), sizeof(*number));
	return !post_receive(&left, slot) &&
	       !poll_completion(&right, WR_ID_SEND(slot), NULL, patience_ms);
}

int main(int argc, char **argv)
{
	uint64_t rank = argc == 5 ? strtoull(argv[1], NULL, 10) : 0;
	uint64_t size = argc == 5 ? strtoull(argv[2], NULL, 10) : 0;
	uint16_t port = argc == 5 ? (uint16_t)atoi(argv[3]) : 0;
	int64_t deadline = deadline_in_ms(BEGIN_MS);
	int heard = tcp_listen((uint16_t)(port + rank)), from = -1, to = -1;
	bool well = size > 1 && heard >= 0;

	patience_ms = argc == 5 ? atoi(argv[4]) : 0;
	/* one pair at a time would wait for the whole ring: 0 calls first */
	for (int turn = 0; turn < 2 && well; turn++)
		if (turn == (rank == 0)) {
			from = tcp_accept(heard, deadline);
			well = begin(&left, from, true);
		} else {
			to = tcp_connect("127.0.0.1",
					 (uint16_t)(port + (rank + 1) % size),
					 deadline);
			well = begin(&right, to, false);
		}
	for (uint32_t round = 0, n = 0; round < ROUNDS && well; round++) {
		uint64_t number = rank, sum = rank;

		for (uint32_t hop = 1; hop < size && well; hop++) {
			well = pass_on(&number, n++ % SLOTS);
			sum += number;
		}
		if (well && sum != size * (size - 1) / 2)
			well = !fail(-1, "see who sent it",
				     "round %u: sum %llu", round,
				     (unsigned long long)sum);
		deadline_sleep_ms(50, deadline_in_ms(1000));
	}
	sock_close(&to);
	sock_close(&from);
	destroy_rdma_resources(&right);
	destroy_rdma_resources(&left);
	return !well;
}
