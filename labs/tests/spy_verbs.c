// SPDX-License-Identifier: MIT
/*
 * spy_verbs.c —— 间谍（spy.c）所见的 libibverbs
 *
 * 快路径（poll_cq、post_*）不是动态符号，而是 context->ops 里的指针，所以在
 * ibv_open_device 之后换掉；query_port 也是（verbs.h 里的宏直接调它）。
 */
#include "spy.h"

#include "real.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_gid

#define MAX_MRS 64

void __libc_free(void *p);

static struct ibv_context_ops device_ops;
static struct verbs_context device; /* 它的扩展调用，本来的 */
static unsigned long polls, arms, events;

static void *fail_null(int err)
{
	errno = err;
	return NULL;
}

/* ---- 设备 --------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	REAL(ibv_get_device_list);
	int err = must_fail("ibv_get_device_list");

	if (err)
		return fail_null(err);
	note("get list");
	if (!lies("no_device"))
		return real(num_devices);
	if (num_devices)
		*num_devices = 0;
	return calloc(1, sizeof(struct ibv_device *));
}

void ibv_free_device_list(struct ibv_device **list)
{
	REAL(ibv_free_device_list);
	note("free list");
	if (lies("no_device"))
		free(list);
	else
		real(list);
}

/* 每次取一个：SEND 的扣下，等 RECV 的来过两次再给。*/
static int twice(struct ibv_wc *wc, int n)
{
	static struct ibv_wc sent, again; /* wr_id 0：没有 */
	static int seen;

	if (n && wc->opcode == IBV_WC_SEND) {
		sent = *wc;
		return 0;
	}
	if (n) {
		again = *wc;
		seen = lies("early");
		return 1;
	}
	if (again.wr_id && !seen++) {
		*wc = again;
		return 1;
	}
	if (!seen || !sent.wr_id)
		return 0;
	*wc = sent;
	sent.wr_id = 0;
	return 1;
}

static int spy_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	bool none = lies("lost") || (lies("poison") && polls < 3 && !arms);
	int n;

	if (lies("status") && num > 1 && !polls)
		usleep(300 * 1000); /* 两个一起来，坏的是先来的 */
	n = none ? 0 : device_ops.poll_cq(cq, num, wc);
	polls++;

	for (time_t end = time(NULL) + 10;
	     !n && lies("ready") && time(NULL) < end;)
		n = device_ops.poll_cq(cq, num, wc);
	if (lies("twice") || lies("early"))
		n = twice(wc, n);
	if (lies("broken")) {
		errno = ENOTTY;
		return -2;
	}
	if (!n && lies("poison"))
		memset(wc, 0xa5, sizeof(*wc));
	for (int i = 0; i < n; i++) {
		note("wc wr_id=%llx status=%d opcode=%d bytes=%u",
		     (unsigned long long)wc[i].wr_id, wc[i].status,
		     wc[i].opcode, wc[i].byte_len);
		if (lies("wr_id"))
			wc[i].wr_id = 7;
		if (lies("old"))
			wc[i].wr_id ^= 0x80000000; /* 同类、同一格的另一个 */
		if (lies("opcode"))
			wc[i].opcode = wc[i].opcode == IBV_WC_RDMA_READ
					       ? IBV_WC_SEND
					       : IBV_WC_RDMA_READ;
		if (lies("status") && !i) { /* opcode 也就没有意义 */
			wc[i].status = IBV_WC_RETRY_EXC_ERR;
			wc[i].opcode = IBV_WC_BIND_MW;
		}
		if (lies("poison") && wc[i].opcode == IBV_WC_SEND)
			wc[i].byte_len = ~0u; /* 只有收到的才有长度 */
	}
	return n;
}

static int spy_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	int err = must_fail("ibv_post_recv");

	note("post_recv wr_id=%llx addr=%llu length=%u state=%d next=%d",
	     (unsigned long long)wr->wr_id,
	     (unsigned long long)wr->sg_list->addr, wr->sg_list->length,
	     qp->state, wr->next != NULL);
	if (err)
		*bad = wr;
	return err ? err : device_ops.post_recv(qp, wr, bad);
}

static int spy_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad)
{
	static struct ibv_sge none;
	const struct ibv_sge *sge = wr->num_sge ? wr->sg_list : &none;
	int err = must_fail("ibv_post_send");

	note("post_send wr_id=%llx addr=%llu length=%u flags=%u next=%d imm=%u",
	     (unsigned long long)wr->wr_id, (unsigned long long)sge->addr,
	     sge->length, wr->send_flags, wr->next != NULL,
	     wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? ntohl(wr->imm_data)
						      : 0);
	if (lies("late"))
		usleep(300 * 1000);
	if (lies("no_nul"))
		memset((void *)(uintptr_t)sge->addr, 'x', sge->length);
	if (lies("rkey") && wr->opcode == IBV_WR_RDMA_READ)
		wr->wr.rdma.rkey ^= 0xffff00;
	if (err)
		*bad = wr;
	return err ? err : device_ops.post_send(qp, wr, bad);
}

static int spy_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	arms++;
	if (lies("between"))
		usleep(500 * 1000);
	return device_ops.req_notify_cq(cq, solicited_only);
}

static int (*device_query_port)(struct ibv_context *context, uint8_t port,
				struct ibv_port_attr *attr, size_t size);

static int spy_query_port(struct ibv_context *context, uint8_t port,
			  struct ibv_port_attr *attr, size_t size)
{
	int err = must_fail("ibv_query_port");

	if (!err)
		err = device_query_port(context, port, attr, size);
	if (!err && lies("small_port"))
		attr->max_msg_sz = 8 << 20;
	return err;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **context)
{
	REAL(ibv_get_cq_event);

	events++;
	return real(channel, cq, context);
}

static int spy_query_device_ex(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size)
{
	int err = must_fail("ibv_query_device");

	return err ? err : device.query_device_ex(context, input, attr, size);
}

static struct ibv_cq_ex *spy_create_cq_ex(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *init)
{
	int err = must_fail("ibv_create_cq");
	struct ibv_cq_ex *cq =
		err ? fail_null(err) : device.create_cq_ex(context, init);

	if (cq)
		note("make cq cqe=%u", init->cqe);
	return cq;
}

static struct ibv_qp *spy_create_qp_ex(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *init)
{
	int err = must_fail("ibv_create_qp");
	struct ibv_qp *qp =
		err ? fail_null(err) : device.create_qp_ex(context, init);

	if (qp)
		note("make qp qpn=%u", qp->qp_num);
	return qp;
}

struct ibv_context *ibv_open_device(struct ibv_device *name)
{
	REAL(ibv_open_device);
	int err = must_fail("ibv_open_device");
	struct ibv_context *context = err ? fail_null(err) : real(name);
	struct verbs_context *extended;

	if (!context)
		return NULL;
	device_ops = context->ops;
	context->ops.poll_cq = spy_poll_cq;
	context->ops.post_recv = spy_post_recv;
	context->ops.post_send = spy_post_send;
	context->ops.req_notify_cq = spy_req_notify_cq;
	extended = verbs_get_ctx(context);
	device_query_port = extended->query_port;
	device.query_device_ex = extended->query_device_ex;
	device.create_cq_ex = extended->create_cq_ex;
	device.create_qp_ex = extended->create_qp_ex;
	extended->query_port = spy_query_port;
	extended->query_device_ex = spy_query_device_ex;
	extended->create_cq_ex = spy_create_cq_ex;
	extended->create_qp_ex = spy_create_qp_ex;
	note("make device");
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	REAL(ibv_close_device);
	int rc = real(context);

	note("unmake device");
	return rc;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t entry_size)
{
	REAL(_ibv_query_gid_ex);
	bool moved = lies("gid_order") && index == 5;
	int err = must_fail("ibv_query_gid_ex");

	if (!err)
		err = real(context, port, moved ? 1 : index, entry, flags,
			   entry_size);
	if (!err && moved)
		entry->gid_index = 5;
	if (!err && (lies("gid_v1") || (lies("gid_order") && index < 2)))
		entry->gid_type = IBV_GID_TYPE_ROCE_V1;
	return err;
}

/* 只要 GID，不问类型。*/
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	REAL(ibv_query_gid);
	int err = must_fail("ibv_query_gid_ex");

	if (!err)
		return real(context, port,
			    lies("gid_order") && index == 5 ? 1 : index, gid);
	errno = err;
	return -1;
}

/* 整张表：说的谎与一个槽一个槽地问时相同。*/
ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t max_entries,
			     uint32_t flags, size_t entry_size)
{
	REAL(_ibv_query_gid_table);
	int err = must_fail("ibv_query_gid_ex");
	ssize_t n =
		err ? -err
		    : real(context, entries, max_entries, flags, entry_size);

	for (ssize_t i = 0; i < n; i++) {
		if (lies("gid_order") && entries[i].gid_index == 1)
			entries[i].gid_index = 5;
		else if (lies("gid_v1") || lies("gid_order"))
			entries[i].gid_type = IBV_GID_TYPE_ROCE_V1;
	}
	return n;
}

/* ---- 建与拆：每个 make 都应当有一个 unmake -------------------------------- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	REAL(ibv_query_device);
	int err = must_fail("ibv_query_device");

	return err ? err : real(context, attr);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	REAL(ibv_alloc_pd);
	int err = must_fail("ibv_alloc_pd");
	struct ibv_pd *pd = err ? fail_null(err) : real(context);

	if (pd)
		note("make pd");
	return pd;
}

/* libibverbs 自己的 ibv_reg_mr 又调用 ibv_reg_mr_iova2：只记外面那一次。*/
static int reg_mr_depth;
static struct ibv_mr *mrs[MAX_MRS];

static void replace_mr(struct ibv_mr *old, struct ibv_mr *new)
{
	for (int i = 0; i < MAX_MRS; i++) {
		if (mrs[i] != old)
			continue;
		mrs[i] = new;
		return;
	}
}

static struct ibv_mr *noted_mr(struct ibv_mr *mr, unsigned int access)
{
	if (!mr || reg_mr_depth)
		return mr;
	note("make mr addr=%llu length=%zu access=%u",
	     (unsigned long long)(uintptr_t)mr->addr, mr->length, access);
	replace_mr(NULL, mr);
	return mr;
}

/* 设备还可能往里写。*/
static void check_not_registered(const char *p, size_t size)
{
	for (int i = 0; i < MAX_MRS; i++) {
		const char *mr = mrs[i] ? mrs[i]->addr : NULL;

		if (mr && mr < p + size && p < mr + mrs[i]->length) {
			note("free registered");
			mrs[i] = NULL; /* 一次就够 */
		}
	}
}

#ifdef SPY_FREE /* 只有练习要；ASan 自己的 free 必须在最前面 */
void free(void *p)
{
	/* dlsym 自己也 free：那时还没有 real。*/
	static void (*real)(void *) = __libc_free;
	static bool looked_up;
	void *found;

	if (!looked_up) {
		looked_up = true;
		found = dlsym(RTLD_NEXT, "free");
		memcpy(&real, &found, sizeof(real));
	}
	if (p)
		check_not_registered(p, malloc_usable_size(p));
	real(p);
}
#endif

int munmap(void *p, size_t size)
{
	REAL(munmap);
	check_not_registered(p, size);
	return real(p, size);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	REAL(ibv_reg_mr);
	int err = must_fail("ibv_reg_mr");
	struct ibv_mr *mr;

	reg_mr_depth++;
	mr = err ? fail_null(err) : real(pd, addr, length, access);
	reg_mr_depth--;
	return noted_mr(mr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	REAL(ibv_reg_mr_iova);
	int err = must_fail("ibv_reg_mr");
	struct ibv_mr *mr;

	reg_mr_depth++;
	mr = err ? fail_null(err) : real(pd, addr, length, iova, access);
	reg_mr_depth--;
	return noted_mr(mr, (unsigned int)access);
}

/* access 不是编译期常量（例如 -O0）时，verbs.h 里的宏改走这一个。*/
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	REAL(ibv_reg_mr_iova2);
	int err = reg_mr_depth ? 0 : must_fail("ibv_reg_mr");

	return err ? fail_null(err)
		   : noted_mr(real(pd, addr, length, iova, access), access);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	REAL(ibv_create_comp_channel);
	int err = must_fail("ibv_create_comp_channel");
	struct ibv_comp_channel *channel = err ? fail_null(err) : real(context);

	if (channel)
		note("make channel");
	return channel;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	REAL(ibv_create_cq);
	int err = must_fail("ibv_create_cq");
	struct ibv_cq *cq =
		err ? fail_null(err)
		    : real(context, cqe, cq_context, channel, comp_vector);

	if (cq)
		note("make cq cqe=%d", cqe);
	return cq;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	REAL(ibv_create_qp);
	int err = must_fail("ibv_create_qp");
	struct ibv_qp *qp = err ? fail_null(err) : real(pd, init);

	if (qp)
		note("make qp qpn=%u", qp->qp_num);
	return qp;
}

static void get_stuck(void)
{
	if (lies("stuck"))
		note("stuck");
	while (lies("stuck"))
		pause();
}

/* 拆除“失败”时真的不拆，就像内核回 EBUSY 那样。*/
#define UNMAKE_AFTER(function, type, what, first) \
	int function(type *object)                \
	{                                         \
		REAL(function);                   \
		int err = must_fail(#function);   \
		get_stuck();                      \
		if (!err) {                       \
			first;                    \
			err = real(object);       \
		}                                 \
		if (!err)                         \
			note("unmake %s", what);  \
		return err;                       \
	}
#define UNMAKE(function, type, what) UNMAKE_AFTER(function, type, what, (void)0)

UNMAKE(ibv_dealloc_pd, struct ibv_pd, "pd")
UNMAKE_AFTER(ibv_dereg_mr, struct ibv_mr, "mr", replace_mr(object, NULL))
UNMAKE(ibv_destroy_comp_channel, struct ibv_comp_channel, "channel")
UNMAKE(ibv_destroy_cq, struct ibv_cq, "cq")
UNMAKE(ibv_destroy_qp, struct ibv_qp, "qp")

/* 设备记下的，而不是程序说的。*/
static void note_access(struct ibv_qp *qp)
{
	REAL(ibv_query_qp);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (!real(qp, &attr, IBV_QP_ACCESS_FLAGS, &init))
		note("qp access=%u", attr.qp_access_flags);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	REAL(ibv_modify_qp);
	int err = must_fail("ibv_modify_qp");

	if (lies("patient") && (mask & IBV_QP_TIMEOUT))
		attr->timeout = 18;
	note("modify_qp state=%d mask=%x path_mtu=%d is_global=%d hop_limit=%d "
	     "sgid_index=%d dest=%u rq_psn=%u sq_psn=%u retry_cnt=%d "
	     "max_dest_rd_atomic=%d max_rd_atomic=%d min_rnr_timer=%d "
	     "timeout=%d rnr_retry=%d",
	     attr->qp_state, (unsigned int)mask, attr->path_mtu,
	     attr->ah_attr.is_global, attr->ah_attr.grh.hop_limit,
	     attr->ah_attr.grh.sgid_index, attr->dest_qp_num, attr->rq_psn,
	     attr->sq_psn, attr->retry_cnt, attr->max_dest_rd_atomic,
	     attr->max_rd_atomic, attr->min_rnr_timer, attr->timeout,
	     attr->rnr_retry);
	if (!err)
		err = real(qp, attr, mask);
	if (!err && (mask & IBV_QP_ACCESS_FLAGS))
		note_access(qp);
	return err;
}

__attribute__((destructor)) static void sum_up(void)
{
	note("polls=%lu arms=%lu events=%lu cpu_ms=%ld", polls, arms, events,
	     (long)(clock() / (CLOCKS_PER_SEC / 1000)));
}
