// SPDX-License-Identifier: MIT
/*
 * failed.c —— 各个 verb 失败时怎么报告：调用处只写一行
 *
 * 阶段文件里，眼睛应当先看到 verbs 调用；把参数印成文字、把原因找出来，都在这里。
 */
#include "failed.h"

#include "base/report.h"
#include "base/verbs_names.h"
#include "qp_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *device_of_pd(const struct ibv_pd *pd)
{
	return ibv_get_device_name(pd->context->device);
}

int device_list_failed(int err)
{
	if (err == ENOSYS) /* ib_uverbs 没有装载：一个设备也没有 */
		return no_such_device(NULL, 0, err);
	return verb_failed(err, explain_device_list(err),
			   "ibv_get_device_list()");
}

int no_such_device(const char *name, int count, int err)
{
	char next[EXPLAIN_NEXT_SIZE];
	struct explain_words words;
	struct explanation why;

	if (name && count)
		return fail(-ENODEV,
			    "list the devices with build/01-device-open or "
			    "`rdma link`",
			    "no RDMA device is named \"%s\"", name);
	why = explain_device_list(err);
	explain_in_words(&words, &why, false);
	return fail(-ENODEV, explain_next(next, &words),
		    "there is no RDMA device on this machine%s%s",
		    words.cause[0] ? ": " : "", words.cause);
}

int open_device_failed(struct ibv_device *device, int err)
{
	return verb_failed(err, explain_open_device(err), "ibv_open_device(%s)",
			   ibv_get_device_name(device));
}

int no_active_port(struct ibv_device *device, enum ibv_port_state state)
{
	return fail(-ENETDOWN,
		    "set the network device behind it up (ip link set DEV "
		    "up) and see `rdma link`",
		    "%s has no active port (port 1 is %s)",
		    ibv_get_device_name(device), ibv_port_state_str(state));
}

int gid_refused(const char *device, unsigned int port, int wanted, bool found)
{
	return fail(-EADDRNOTAVAIL,
		    "list the GIDs with build/01-device-open and name a "
		    "filled RoCE v2 slot, or leave the GID index out",
		    "GID index %d of %s port %u %s", wanted, device, port,
		    wanted < 0 ? "(automatic): no RoCE v2 GID there"
		    : found    ? "is not RoCE v2"
			       : "is empty");
}

void warn_of_link_local(const char *device, unsigned int port)
{
	report_warning("give the network device an IPv4 address, or use GIDs "
		       "of this kind on both sides",
		       "%s port %u has only a link-local GID", device, port);
}

int size_refused(const char *device, unsigned int port, uint32_t size,
		 uint32_t most)
{
	return fail(-EMSGSIZE, "choose a --size that the port can carry",
		    "message size %u is not in 1 ... %u (max_msg_sz of %s "
		    "port %u)",
		    size, most, device, port);
}

int no_memory_for_buffer(size_t size)
{
	return fail(-ENOMEM, "choose a smaller --size",
		    "no memory for a buffer of %zu bytes", size);
}

int reg_mr_failed(struct ibv_pd *pd, const void *addr, size_t length,
		  int access, int err)
{
	return verb_failed(err,
			   explain_reg_mr_call(pd, addr, length, access, err),
			   "ibv_reg_mr(%s, %zu bytes)", device_of_pd(pd),
			   length);
}

int create_cq_failed(struct ibv_context *context, int cqe, int err)
{
	return verb_failed(err, explain_create_cq_call(context, cqe, 0, err),
			   "ibv_create_cq(%s, cqe %d)",
			   ibv_get_device_name(context->device), cqe);
}

int create_srq_failed(struct ibv_pd *pd, const struct ibv_srq_attr *attr,
		      int err)
{
	return verb_failed(err,
			   explain_create_srq(pd->context, attr->max_wr,
					      attr->max_sge, err),
			   "ibv_create_srq(%s, max_wr %u)", device_of_pd(pd),
			   attr->max_wr);
}

int create_qp_failed(struct ibv_pd *pd, const struct ibv_qp_init_attr *init,
		     int err)
{
	return verb_failed(err, explain_create_qp_call(pd, init, err),
			   "ibv_create_qp(%s, %s, %u send, %u recv)",
			   device_of_pd(pd), qp_type_name(init->qp_type),
			   init->cap.max_send_wr, init->cap.max_recv_wr);
}

int check_destroyed(const char *call, int err)
{
	return err ? verb_failed(err, explain_destroy(err), "%s()", call) : 0;
}

int modify_qp_failed(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
		     int mask, int err)
{
	char bits[256];

	return verb_failed(err, explain_modify_qp(qp, attr, mask, err),
			   "ibv_modify_qp(QP %u, %s -> %s, mask %s)",
			   qp->qp_num, qp_state_name(qp->state),
			   qp_state_name(attr->qp_state),
			   qp_mask_text(bits, sizeof(bits), mask));
}

void warn_of_accepted(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
		      int mask, enum ibv_qp_state from)
{
	struct explanation found[EXPLAIN_MOST];
	size_t n = explain_accepted(qp, attr, mask, from, found, EXPLAIN_MOST);
	struct explain_words words;

	for (size_t i = 0; i < n; i++) {
		explain_in_words(&words, &found[i], false);
		report_warning(words.next, "ibv_modify_qp(QP %u, %s): %s",
			       qp->qp_num, qp_state_name(attr->qp_state),
			       words.cause);
	}
}

/* ---- librdmacm ------------------------------------------------------------ */

int cm_call_failed(const char *call, int err, const char *peer)
{
	return verb_failed(err, explain_cm_call(call, err, false, 0, false),
			   "rdma_%s(%s)", call, peer);
}

int cm_event_failed(unsigned int type, int status, const char *peer)
{
	const char *name = cm_event_name(type);
	struct explanation why = explain_cm_event(type, status);
	char next[EXPLAIN_NEXT_SIZE];
	struct explain_words words;

	if (!strcmp(name, "DISCONNECTED"))
		why = because("cm-peer-gone");
	explain_in_words(&words, &why, false);
	return fail(!strcmp(name, "REJECTED") ? -ECONNREFUSED
		    : status < 0	      ? status
					      : -ECONNRESET,
		    explain_next(next, &words), "%s: event %s (status %d)%s%s",
		    peer, name, status, words.cause[0] ? ": " : "",
		    words.cause);
}

int device_refused(const char *peer, const char *device, const char *wanted)
{
	return fail(-ENODEV,
		    "leave the device out, or take an address on its network: "
		    "ip route get ADDRESS",
		    "%s is reached through %s, not through %s", peer, device,
		    wanted);
}

/* ---- 收与发 --------------------------------------------------------------- */

void remember_send(struct posted *posted, const struct ibv_send_wr *wr)
{
	posted->is_receive = false;
	posted->send = *wr;
	/* BIND_MW 与 LOCAL_INV 不带数据。*/
	posted->sge = wr->num_sge ? *wr->sg_list : (struct ibv_sge){ 0 };
}

void remember_receive(struct posted *posted, const struct ibv_recv_wr *wr)
{
	posted->is_receive = true;
	posted->recv = *wr;
	posted->sge = *wr->sg_list;
}

static const struct posted *find_posted(const struct posted *posted, size_t n,
					uint64_t wr_id)
{
	/* 0 是“随便哪个”；而从没 post 过的位置，里面也是 0。*/
	for (size_t i = 0; wr_id && i < n; i++)
		if ((posted[i].is_receive ? posted[i].recv.wr_id
					  : posted[i].send.wr_id) == wr_id)
			return &posted[i];
	return NULL;
}

int unexpected_completion(const struct ibv_wc *wc)
{
	return fail(-EIO, NULL,
		    "unexpected completion: wr_id 0x%jx opcode %d on QP %u",
		    wc->wr_id, wc->opcode, wc->qp_num);
}

int no_support(const char *device, const char *what)
{
	return fail(-EOPNOTSUPP,
		    "see device_cap_flags of ibv_devinfo -v, or do without",
		    "%s has no %s", device, what);
}

/* 怎样称呼一个请求：收发按 slot，单边操作按对端的地址，不带数据的只有名字。*/
static const char *send_text(char *out, size_t size,
			     const struct ibv_send_wr *wr, uint32_t length)
{
	const char *name = wr_opcode_name(wr->opcode);

	if (!strncmp(name, "RDMA_", 5) || !strncmp(name, "ATOMIC_", 7))
		snprintf(out, size, "%s of %u bytes at 0x%llx",
			 strchr(name, '_') + 1, length,
			 wr->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP
				 ? (unsigned long long)wr->wr.atomic.remote_addr
				 : (unsigned long long)wr->wr.rdma.remote_addr);
	else if (wr->opcode == IBV_WR_BIND_MW)
		snprintf(out, size, "BIND_MW as rkey 0x%x", wr->bind_mw.rkey);
	else if (wr->opcode == IBV_WR_LOCAL_INV)
		snprintf(out, size, "LOCAL_INV of rkey 0x%x",
			 wr->invalidate_rkey);
	else
		snprintf(out, size, "send of slot %u", (uint32_t)wr->wr_id);
	return out;
}

static const char *posted_text(char *out, size_t size, const struct posted *p)
{
	if (!p->is_receive)
		return send_text(out, size, &p->send, p->sge.length);
	snprintf(out, size, "receive of slot %u", (uint32_t)p->recv.wr_id);
	return out;
}

int post_send_failed(struct ibv_qp *qp, const struct ibv_send_wr *wr, int err)
{
	struct explanation why = explain_post_send(qp, wr, err);
	const uint32_t length = wr->num_sge ? wr->sg_list->length : 0;
	char text[64];

	if (wr->opcode == IBV_WR_SEND)
		return verb_failed(err, why,
				   "ibv_post_send(QP %u, slot %u, %u bytes)",
				   qp->qp_num, (uint32_t)wr->wr_id, length);
	return verb_failed(err, why, "ibv_post_send(QP %u, %s)", qp->qp_num,
			   send_text(text, sizeof(text), wr, length));
}

int post_recv_failed(struct ibv_qp *qp, const struct ibv_recv_wr *wr, int err)
{
	return verb_failed(err, explain_post_recv(qp, wr, err),
			   "ibv_post_recv(QP %u, slot %u, %u bytes)",
			   qp->qp_num, (uint32_t)wr->wr_id,
			   wr->num_sge ? wr->sg_list->length : 0);
}

static struct explain_mr my_mr(const struct ibv_mr *mr)
{
	return (struct explain_mr){ .pd = mr->pd,
				    .addr = (uintptr_t)mr->addr,
				    .length = mr->length,
				    .lkey = mr->lkey,
				    .rkey = mr->rkey,
				    .access = IBV_ACCESS_LOCAL_WRITE };
}

static struct explain_mr peers_mr(const struct cm_con_data_t *told)
{
	return (struct explain_mr){ .addr = told->addr,
				    .length = told->size,
				    .rkey = told->rkey,
				    .access = -1 };
}

/*
 * 把自己知道的都交给解释器：当初请求了什么、它的内存在哪个 MR 里、对端说过它有哪些 MR。
 * 解释器据此排除“lkey 不对”“rkey 不对”这一类原因，再去看对端。出错的 CQE 里只有
 * wr_id、status、qp_num、vendor_err 可信，别读 opcode：是 send 还是 receive，看 wr_id。
 */
int completion_failed(struct ibv_qp *qp, const struct ibv_wc *wc,
		      uint64_t wr_id, int wait_ms, const struct posted *posted,
		      size_t n, const struct ibv_mr *mr,
		      const struct cm_con_data_t *told)
{
	const struct posted *found = find_posted(posted, n, wr_id);
	struct posted p = found ? *found : (struct posted){ 0 };
	/* READ 可能落在别的 MR 里，这里不知道是哪一个：关于内存就什么都不说。*/
	const bool in_mr = mr && p.sge.lkey == mr->lkey;
	const struct explain_mr peers =
		told ? peers_mr(told) : (struct explain_mr){ 0 };
	const struct explain_mr mine =
		in_mr ? my_mr(mr) : (struct explain_mr){ 0 };
	const struct explain_request request = {
		.send = found && !p.is_receive ? &p.send : NULL,
		.recv = found && p.is_receive ? &p.recv : NULL,
		.polled = qp->send_cq,
		.local = in_mr ? &mine : NULL,
		.n_local = in_mr,
		.remote = peers.rkey ? &peers : NULL,
		.n_remote = peers.rkey ? 1 : 0,
	};
	struct explain_words words;
	struct explanation why;
	char next[EXPLAIN_NEXT_SIZE], text[64] = "request";

	p.send.sg_list = p.recv.sg_list = &p.sge;
	if (found)
		posted_text(text, sizeof(text), &p);
	why = wc ? explain_completion(qp, wc, &request)
		 : explain_stall(qp, &request, wait_ms);
	explain_in_words(&words, &why, false);
	if (wc)
		return fail(-EIO, explain_next(next, &words),
			    "the %s on QP %u completed with %s (%d)%s%s", text,
			    wc->qp_num, ibv_wc_status_str(wc->status),
			    wc->status, words.cause[0] ? ": " : "",
			    words.cause);
	return fail(-ETIMEDOUT, explain_next(next, &words),
		    "no completion on QP %u within %d ms%s%s", qp->qp_num,
		    wait_ms, words.cause[0] ? ": " : "", words.cause);
}
