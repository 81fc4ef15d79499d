// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/7732
// symptom: after many queries of the capabilities the process cannot open the device any more
// cause: each query opens the device and never closes it, until there are no file descriptors left
// expect: ibv_close_device|(not|never|without)[a-z ]*clos|descriptor|EMFILE|too many open|open(ed)?[a-z ]*(contexts?|devices?|times)|[0-9]+ (contexts|times)
// kind: balance
// run: one
// half: unseen
#include "rep.h"

static int wide_capabilities(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	struct ibv_device_attr attr;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!ctx)
		return -1;
	must(ibv_query_device(ctx, &attr), "query_device");
	return attr.max_sge;
}

int main(int argc, char **argv)
{
	struct end a;

	open_end(&a, device(argc, argv));
	make_qp(&a);
	for (int i = 0; i < 1000; i++)
		if (wide_capabilities(device(argc, argv)) < 0) {
			printf("query %d: ", i);
			fflush(stdout);
			perror("open_device");
			return 1;
		}
	return 0;
}
