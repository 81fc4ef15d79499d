// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/librdmacm/issues/1
// symptom: when the other program ends, this one stays in the wait for its next message for good
// cause: the receive is flushed only by this side's own disconnect, and the DISCONNECTED event that told of the end is never taken
// expect: disconnect|peer.*(gone|ended|exited|left|closed|destroyed|went away|hung up)
// kind: rdma_cm
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's';
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP,
				       .ai_flags = server ? RAI_PASSIVE : 0 };
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	const char *ip = "10.99.0.1";
	struct rdma_cm_id *id, *listener;
	struct rdma_addrinfo *res;
	static char buf[256];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	must(rdma_getaddrinfo(ip, "7109", &hints, &res), "getaddrinfo");
	if (server) {
		must(rdma_create_ep(&listener, res, NULL, &init), "create_ep");
		must(rdma_listen(listener, 1), "listen");
		must(rdma_get_request(listener, &id), "get_request");
	} else {
		sleep(1);
		must(rdma_create_ep(&id, res, NULL, &init), "create_ep");
	}
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	must(mr ? 0 : -1, "reg_msgs");
	must(rdma_post_recv(id, NULL, buf, sizeof(buf), mr), "post_recv");
	if (server) {
		must(rdma_accept(id, NULL), "accept");
		sleep(1);
		return 0; /* out of work */
	}
	must(rdma_connect(id, NULL), "connect");
	printf("connected, waiting for work\n");
	must(rdma_get_recv_comp(id, &wc) == 1 ? 0 : -1, "get_recv_comp");
	printf("%s\n", ibv_wc_status_str(wc.status));
	return 0;
}
