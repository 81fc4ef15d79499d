// SPDX-License-Identifier: MIT
/* Right, in another hand: candidates first, then one choice; no helper opens. */
#include "base/call_failed.h"
#include "rdma_common.h"

#include <errno.h>
#include <string.h>

enum kind {
	V4,
	GLOBAL,
	LINK_LOCAL,
	USELESS
};

static enum kind kind_of(const struct ibv_gid_entry *e)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return USELESS;
	if (!memcmp(e->gid.raw, mapped, sizeof(mapped)))
		return V4;
	if (e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80)
		return LINK_LOCAL;
	return GLOBAL;
}

int choose_gid(struct rdma_resources *res, int wanted)
{
	const char *name = ibv_get_device_name(res->context->device);
	struct ibv_gid_entry of_kind[USELESS + 1], e;
	bool have[USELESS + 1] = { false };
	int n = res->port_attr.gid_tbl_len;
	enum kind k;
	int err;

	if (n > 256)
		n = 256;
	/* From the last to the first, so that the first of a kind stays. */
	while (n--) {
		if (wanted >= 0 && n != wanted)
			continue;
		err = ibv_query_gid_ex(res->context, res->ib_port, (uint32_t)n,
				       &e, 0);
		if (err == ENODATA)
			continue;
		if (err)
			return call_failed(err, "ibv_query_gid_ex(%s)", name);
		k = kind_of(&e);
		of_kind[k] = e;
		have[k] = true;
	}
	for (k = V4; k < USELESS && !have[k]; k++)
		;
	if (k == USELESS)
		return gid_refused(name, res->ib_port, wanted, have[USELESS]);
	res->gid = of_kind[k].gid;
	res->gid_index = (uint8_t)of_kind[k].gid_index;
	return 0;
}

/* 1: usable, 0: not, below 0: a call failed. */
static int first_active_port(struct ibv_context *context,
			     struct rdma_resources *res)
{
	int err = ibv_query_device(context, &res->device_attr);

	if (err)
		return -err;
	for (uint8_t p = 1; p <= res->device_attr.phys_port_cnt; p++) {
		err = ibv_query_port(context, p, &res->port_attr);
		if (err)
			return -err;
		if (res->port_attr.state != IBV_PORT_ACTIVE)
			continue;
		res->ib_port = p;
		return 1;
	}
	return 0;
}

static int use(struct ibv_device *device, struct rdma_resources *res, int gid)
{
	struct ibv_context *context = ibv_open_device(device);
	int rc;

	if (!context)
		return open_device_failed(device, errno);
	rc = first_active_port(context, res);
	if (rc < 0)
		rc = call_failed(-rc, "querying %s",
				 ibv_get_device_name(device));
	else if (!rc)
		rc = no_active_port(device, res->port_attr.state);
	else {
		res->context = context;
		rc = choose_gid(res, gid);
	}
	if (rc) {
		ibv_close_device(context);
		res->context = NULL;
	}
	return rc;
}

static bool is_usable(struct ibv_device *device)
{
	struct rdma_resources scratch;
	struct ibv_context *context = ibv_open_device(device);
	int rc = context ? first_active_port(context, &scratch) : 0;

	if (context)
		ibv_close_device(context);
	return rc == 1;
}

int open_device(struct rdma_resources *res, const struct rdma_config *config)
{
	struct ibv_device **list, *chosen = NULL;
	int n, rc;

	list = ibv_get_device_list(&n);
	if (!list)
		return device_list_failed(errno);
	for (int i = n - 1; i >= 0; i--)
		if (config->device_name ? !strcmp(ibv_get_device_name(list[i]),
						  config->device_name)
					: is_usable(list[i]))
			chosen = list[i];
	if (!chosen && !config->device_name && n)
		chosen = list[0];
	rc = chosen ? use(chosen, res, config->gid_index)
		    : no_such_device(config->device_name, n, 0);
	ibv_free_device_list(list);
	return rc;
}

int close_device(struct rdma_resources *res)
{
	struct ibv_context *context = res->context;

	res->context = NULL;
	if (!context || !ibv_close_device(context))
		return 0;
	return check_destroyed("ibv_close_device", errno);
}
