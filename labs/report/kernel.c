// SPDX-License-Identifier: MIT
/*
 * kernel.c —— 解释器要问一个 QP，而它是别的进程的：替 ibv_query_qp 回答
 *
 * 解释器（common/explain/stall.c）的规则不必知道 QP 是谁的。device 是真的打开了；状态与 PSN
 * 内核肯告诉别的进程（`rdma resource show qp` 所见），其余的是程序自己设过的，记录里有。
 */
#include "live.h"

#include "base/verbs_names.h"
#include "explain/qp_table.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 16

/* 正在问的那一个。*/
static struct {
	const struct qp *qp;
	const struct asked *asked;
	enum ibv_qp_state state; /* 库记得的 */
} now;

static struct ibv_context *open_by_name(const char *name)
{
	static struct {
		char name[64];
		struct ibv_context *context;
	} opened[MOST_DEVICES];
	struct ibv_device **list;
	size_t i = 0;

	while (i < MOST_DEVICES && opened[i].name[0] &&
	       strcmp(opened[i].name, name))
		i++;
	if (i == MOST_DEVICES || !*name)
		return NULL;
	if (opened[i].name[0])
		return opened[i].context;
	strncpy(opened[i].name, name, sizeof(opened[i].name) - 1);
	list = ibv_get_device_list(NULL);
	for (struct ibv_device **d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			opened[i].context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	return opened[i].context;
}

unsigned int kernel_user_state(const struct report *r, const struct qp *qp)
{
	enum ibv_qp_state state = IBV_QPS_RESET;

	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];
		const char *key = !strcmp(e->ev, "modify_qp")  ? "to"
				  : !strcmp(e->ev, "query_qp") ? "state"
							       : NULL;
		json_t *line;

		if (!key || e->class == CLASS_FAILURE)
			continue;
		line = event_line(r, e);
		qp_state_by_name(text_in(line, key), &state);
		json_decref(line);
	}
	return state;
}

bool kernel_qp(const struct qp *qp, struct ibv_qp_attr *out)
{
	return explain_kernel_qp(qp->dev, out, (uint32_t)qp->qpn);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	const json_t *told = now.qp->believes;

	(void)qp;
	(void)mask;
	*attr = now.asked->mine.attr;
	attr->qp_state = now.state;
	attr->timeout = (uint8_t)number_in(told, "timeout");
	attr->retry_cnt = (uint8_t)number_in(told, "retry_cnt");
	attr->rnr_retry = (uint8_t)number_in(told, "rnr_retry");
	attr->port_num = (uint8_t)number_in(told, "port");
	if (!attr->port_num)
		attr->port_num = 1;
	attr->ah_attr.is_global = !!json_object_get(told, "sgid_index");
	attr->ah_attr.grh.sgid_index = (uint8_t)number_in(told, "sgid_index");
	init->sq_sig_all = (int)number_in(now.qp->first, "sq_sig_all");
	kernel_qp(now.qp, attr);
	return 0;
}

struct explanation kernel_stall(const struct report *r, const struct qp *qp,
				const struct event *post,
				const struct ibv_cq *polled, int64_t ms)
{
	struct ibv_context *context = open_by_name(qp->dev);
	struct explanation why = { 0 };
	struct asked asked;

	if (!context)
		return why;
	world_request(r, qp, post, INT64_MAX - 1, &asked);
	asked.like.context = context;
	asked.like.send_cq =
		(struct ibv_cq *)(uintptr_t)number_in(qp->first, "send_cq");
	asked.like.recv_cq =
		(struct ibv_cq *)(uintptr_t)number_in(qp->first, "recv_cq");
	asked.like.state = kernel_user_state(r, qp);
	asked.rq.polled = polled;
	now.qp = qp;
	now.asked = &asked;
	now.state = asked.like.state;
	why = explain_stall(&asked.like, &asked.rq, ms);
	free(asked.own);
	free(asked.others);
	return why;
}

struct explanation kernel_port(const char *device)
{
	struct ibv_context *context = NULL;
	char path[160], state[16] = "";
	FILE *file;

	/* 打开一个 device 要读上百个文件：先看这一个。*/
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/state",
		 device);
	file = fopen(path, "r");
	if (file && fgets(state, sizeof(state), file) &&
	    !strstr(state, "ACTIVE"))
		context = open_by_name(device);
	if (file)
		fclose(file);
	return context ? explain_port(context, 1) : no_idea();
}
