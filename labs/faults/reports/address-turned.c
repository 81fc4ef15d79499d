// SPDX-License-Identifier: MIT
// report: https://github.com/joaquinbejar/IronSBE/pull/49
// symptom: no connection can be made to an address that answers pings; resolving it fails
// cause: the bytes of the IPv4 address were turned round (host order in sin_addr, which is big-endian)
// expect: 1\.0\.99\.10|byte.?order|big.?endian|network order|htonl|reversed
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

int main(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	unsigned char octets[4] = { 10, 99, 0, 1 };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7107) };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	for (int i = 0; i < 4; i++)
		to.sin_addr.s_addr = to.sin_addr.s_addr << 8 | octets[i];
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 2000), "resolve_addr");
	must(rdma_get_cm_event(ch, &e), "get_cm_event");
	printf("%s, status %d\n", rdma_event_str(e->event), e->status);
	if (e->event != RDMA_CM_EVENT_ADDR_RESOLVED)
		return 1;
	rdma_ack_cm_event(e);
	printf("resolved\n");
	return 0;
}
