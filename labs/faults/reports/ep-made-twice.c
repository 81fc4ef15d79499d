// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/4646
// symptom: a server that has just started cannot listen: its address is in use, though no other program has it
// cause: a first id for the same address and port, made only to find the device, is still bound
// expect: (another|other|first|same|own|this) .*(id|endpoint|process)|already (bound|listen)|still bound|rdma_destroy_(ep|id)
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static struct rdma_cm_id *endpoint(const char *ip)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;

	must(rdma_getaddrinfo(ip, "7110", &hints, &res), "getaddrinfo");
	must(rdma_create_ep(&id, res, NULL, NULL), "create_ep");
	rdma_freeaddrinfo(res);
	return id;
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_cm_id *probe = endpoint(ip), *listener;

	printf("%s is %s\n", ip, ibv_get_device_name(probe->verbs->device));
	fflush(stdout);
	listener = endpoint(ip);
	must(rdma_listen(listener, 4), "listen");
	printf("listening\n");
	return 0;
}
