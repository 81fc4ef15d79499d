// SPDX-License-Identifier: MIT
/* Right, in another hand: gotos, a larger CQ, memory by mmap, the MR goes first. */
#include "base/call_failed.h"
#include "rdma_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int create_pd(struct rdma_resources *res)
{
	res->pd = ibv_alloc_pd(res->context);
	return res->pd ? 0 : call_failed(errno, "ibv_alloc_pd()");
}

int create_cq(struct rdma_resources *res, bool events)
{
	int entries = 16 + (int)(res->recv_slots + res->send_slots);

	if (events) {
		res->channel = ibv_create_comp_channel(res->context);
		if (!res->channel)
			return call_failed(errno, "ibv_create_comp_channel()");
	}
	res->cq = ibv_create_cq(res->context, entries, res, res->channel, 0);
	if (!res->cq)
		return create_cq_failed(res->context, entries, errno);
	return 0;
}

int create_qp(struct rdma_resources *res, uint32_t max_inline)
{
	struct ibv_qp_init_attr how;

	memset(&how, 0, sizeof(how));
	how.qp_type = IBV_QPT_RC;
	how.send_cq = how.recv_cq = res->cq;
	how.cap.max_send_wr = res->send_slots + 1;
	how.cap.max_recv_wr = res->recv_slots + 1;
	how.cap.max_send_sge = how.cap.max_recv_sge = 1;
	how.cap.max_inline_data = max_inline;
	res->posted = calloc(res->recv_slots + res->send_slots,
			     sizeof(struct posted));
	if (!res->posted)
		return call_failed(ENOMEM, "calloc()");
	res->qp = ibv_create_qp(res->pd, &how);
	if (!res->qp)
		return create_qp_failed(res->pd, &how, errno);
	res->max_inline = how.cap.max_inline_data;
	return 0;
}

static int create_memory(struct rdma_resources *res)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ;
	void *memory = mmap(NULL, res->buf_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return no_memory_for_buffer(res->buf_size);
	res->buf = memory;
	res->mr = ibv_reg_mr(res->pd, memory, res->buf_size, access);
	if (!res->mr)
		return reg_mr_failed(res->pd, memory, res->buf_size, access,
				     errno);
	return 0;
}

int create_objects(struct rdma_resources *res, const struct rdma_config *config)
{
	int rc;

	if (!config->msg_size || config->msg_size > res->port_attr.max_msg_sz)
		return size_refused(ibv_get_device_name(res->context->device),
				    res->ib_port, config->msg_size,
				    res->port_attr.max_msg_sz);
	res->recv_slots = config->recv_slots ?: 1;
	res->send_slots = config->send_slots ?: 1;
	res->msg_size = config->msg_size;
	res->slot_size = (config->msg_size + 4095ul) & ~4095ul;
	res->buf_size = (res->recv_slots + res->send_slots) * res->slot_size;
	rc = create_pd(res);
	if (rc)
		goto undo;
	rc = create_cq(res, config->events);
	if (rc)
		goto undo;
	rc = create_memory(res);
	if (rc)
		goto undo;
	rc = create_qp(res, config->max_inline);
	if (!rc)
		return 0;
undo:
	destroy_objects(res);
	return rc;
}

static void note(int *first, const char *call, int err)
{
	int rc = check_destroyed(call, err);

	if (!*first)
		*first = rc;
}

int destroy_objects(struct rdma_resources *res)
{
	int first = 0;

	if (res->qp)
		note(&first, "ibv_destroy_qp", ibv_destroy_qp(res->qp));
	if (res->mr)
		note(&first, "ibv_dereg_mr", ibv_dereg_mr(res->mr));
	if (res->buf)
		munmap(res->buf, res->buf_size);
	if (res->cq && res->event_debt)
		ibv_ack_cq_events(res->cq, res->event_debt);
	if (res->cq)
		note(&first, "ibv_destroy_cq", ibv_destroy_cq(res->cq));
	if (res->channel)
		note(&first, "ibv_destroy_comp_channel",
		     ibv_destroy_comp_channel(res->channel));
	if (res->pd)
		note(&first, "ibv_dealloc_pd", ibv_dealloc_pd(res->pd));
	free(res->posted);
	res->qp = NULL;
	res->mr = NULL;
	res->buf = NULL;
	res->cq = NULL;
	res->channel = NULL;
	res->pd = NULL;
	res->posted = NULL;
	res->event_debt = 0;
	res->armed = false;
	return first;
}

int init_rdma_resources(struct rdma_resources *res,
			const struct rdma_config *config)
{
	int rc;

	*res = (struct rdma_resources){ 0 };
	rc = open_device(res, config);
	if (rc)
		return rc;
	rc = create_objects(res, config);
	if (rc)
		close_device(res);
	return rc;
}

int destroy_rdma_resources(struct rdma_resources *res)
{
	int a = destroy_objects(res);
	int b = close_device(res);

	memset(res, 0, sizeof(*res));
	return a ? a : b;
}
