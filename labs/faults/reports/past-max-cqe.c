// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/10692
// symptom: with more ranks the start fails because a completion queue cannot be made, on this device only
// cause: the number of CQ entries grows with the connections and is not limited to the device's max_cqe
// expect: max_cqe|(more|exceed|over|above|greater|larger).*(entries|cqe|device)
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	REQUESTS = 256,
	PER_REQUEST = 3
};

int main(int argc, char **argv)
{
	struct ibv_cq *cq;
	struct end e;

	open_end(&e, device(argc, argv));
	for (int peers = 1; peers <= 64; peers *= 2) {
		cq = ibv_create_cq(e.ctx, peers * REQUESTS * PER_REQUEST, NULL,
				   NULL, 0);
		if (!cq) {
			fprintf(stderr, "no CQ for %d peers: %s\n", peers,
				strerror(errno));
			return 1;
		}
		printf("%d peers: CQ of %d entries\n", peers, cq->cqe);
		fflush(stdout);
		must(ibv_destroy_cq(cq), "destroy_cq");
	}
	return 0;
}
