// SPDX-License-Identifier: MIT
/*
 * verbs_probe.c —— 别的程序都不做的调用，每样一次，各有各的数：SRQ 的 limit 与它的事件、
 * 扩展接口的每个 opcode、memory window、溢出的 CQ、设备上没有的调用
 *
 *	verbs_probe            全部
 *	verbs_probe peers      只是十二个没有对端的 QP，数自己打开的与映射的
 *	verbs_probe flat       只是每种对象一个、又一个，数内存
 *	verbs_probe port       只等 port 的两个事件，SRQ 里有一个 receive
 *	verbs_probe no_ah      一个没有 AH 的 datagram：librxe 在里面崩溃
 *	verbs_probe no_cq      一个没有 CQ 的 QP：libibverbs 在里面崩溃
 *
 * 一个 QP 连着自己，receive 在 SRQ 里。印出每样的结果：有没有记录器在，都该一样。
 */
#include "rdma_common.h"

#include "../open_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY	   4096
#define DEADLINE_S 20

static struct rdma_resources res;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char memory[MEMORY] __attribute__((aligned(4096)));

static void must(const void *made, const char *what)
{
	if (made)
		return;
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t qpn)
{
	struct rdma_resources of_qp = res;

	of_qp.qp = qp;
	if (modify_qp_to_init(&of_qp))
		exit(1);
	of_qp.remote = cm_con_data_of(&of_qp);
	of_qp.remote.qp_num = qpn;
	if (modify_qp_to_rtr(&of_qp) || modify_qp_to_rts(&of_qp))
		exit(1);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, struct ibv_srq *of)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = of,
		.pd = res.pd,
		.cap = { 64, of ? 0 : 64, 1, 1, 0 },
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags =
			IBV_QP_EX_WITH_RDMA_WRITE |
			IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
			IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
			IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(res.context, &init);
	struct ibv_qp_attr wide = { .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_ATOMIC |
					    IBV_ACCESS_MW_BIND };

	must(qp, "ibv_create_qp_ex");
	connect_to(qp, qp->qp_num);
	if (ibv_modify_qp(qp, &wide, IBV_QP_ACCESS_FLAGS))
		must(NULL, "ibv_modify_qp(access)");
	return qp;
}

static void receive(uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)memory + 2048, 64, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;

	if (ibv_post_srq_recv(srq, &wr, &bad))
		must(NULL, "ibv_post_srq_recv");
}

/* 下一个 completion：它的 opcode、status、长度。*/
static void reap(const char *what)
{
	time_t end = time(NULL) + DEADLINE_S;
	struct ibv_wc wc;

	while (!ibv_poll_cq(res.cq, 1, &wc))
		if (time(NULL) > end)
			must(NULL, what);
	printf("%s: opcode %d, status %d\n", what, wc.opcode, wc.status);
}

/* 地址与 rkey 各不相同：写成别的，就看得出。*/
static void every_opcode(struct ibv_qp *qp, struct ibv_mw *mw)
{
	static const char *const names[] = { "write", "read",	   "add",
					     "swap",  "bind",	   "send",
					     "imm",   "write imm", "inv" };
	struct ibv_mw_bind_info info = { mr, (uintptr_t)memory, 256,
					 IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	uint64_t at = (uintptr_t)memory;

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint32_t bytes = i == 2 || i == 3 ? 8 : 16 + i;
		uint64_t there = at + 64 * i;

		ibv_wr_start(ex);
		ex->wr_id = 100 + i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		switch (i) {
		case 0:
			ibv_wr_rdma_write(ex, mr->rkey, there);
			break;
		case 1:
			ibv_wr_rdma_read(ex, mr->rkey, there);
			break;
		case 2:
			ibv_wr_atomic_fetch_add(ex, mr->rkey, there, 1);
			break;
		case 3:
			ibv_wr_atomic_cmp_swp(ex, mr->rkey, there, 0, 1);
			break;
		case 4:
			ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
			break;
		case 5:
			ibv_wr_send(ex);
			break;
		case 6:
			ibv_wr_send_imm(ex, htobe32(7));
			break;
		case 7:
			ibv_wr_rdma_write_imm(ex, mr->rkey, there, htobe32(8));
			break;
		default:
			ibv_wr_send_inv(ex, mw->rkey);
		}
		if (i != 4)
			ibv_wr_set_sge(ex, mr->lkey, at + 1024, bytes);
		if (ibv_wr_complete(ex))
			must(NULL, names[i]);
		if (i == 4)
			mw->rkey = ibv_inc_rkey(mw->rkey);
		reap(names[i]);
		if (i > 4)
			reap("received");
	}
	ibv_wr_start(ex);
	ex->wr_id = 200;
	ibv_wr_local_inv(ex, 0x7700);
	printf("local inv: %d\n", ibv_wr_complete(ex));
	reap("no such rkey");
}

static void event(const char *what)
{
	struct pollfd fd = { res.context->async_fd, POLLIN, 0 };
	struct ibv_async_event got;
	int ready;

	do
		ready = poll(&fd, 1, DEADLINE_S * 1000);
	while (ready < 0 && errno == EINTR); /* SIGQUIT */
	if (ready != 1 || ibv_get_async_event(res.context, &got))
		must(NULL, what);
	printf("%s: event %d\n", what, got.event_type);
	ibv_ack_async_event(&got);
}

/* 4 格的 CQ，没有人取：满了以后再来一个，就是 CQ_ERR。*/
static void overflow(void)
{
	struct ibv_cq *cq = ibv_create_cq(res.context, 3, NULL, NULL, 0);
	struct ibv_qp *qp;
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	must(cq, "ibv_create_cq");
	qp = make_qp(cq, NULL);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	for (int i = 0; i < 9; i++)
		if (ibv_post_send(qp, &wr, &bad))
			must(NULL, "ibv_post_send");
	event("overflow");
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
}

/* RESET 丢下已经 post 的：后来那个 receive 收到的，不是前面那个的。*/
static void again(void)
{
	struct ibv_qp *qp = make_qp(res.cq, NULL);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 300,
				    .sg_list = &sge,
				    .num_sge = 1 },
			   *bad_recv;
	struct ibv_send_wr send = { .wr_id = 301,
				    .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_send_wr add = send;

	ibv_post_recv(qp, &recv, &bad_recv);
	if (ibv_modify_qp(qp, &reset, IBV_QP_STATE))
		must(NULL, "ibv_modify_qp(RESET)");
	connect_to(qp, qp->qp_num);
	ibv_post_recv(qp, &recv, &bad_recv);
	ibv_post_send(qp, &send, &bad);
	reap("again");
	reap("again");
	add.wr_id = 302;
	add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	add.wr.atomic.remote_addr = (uintptr_t)memory + 0x240;
	add.wr.atomic.rkey = mr->rkey;
	ibv_post_send(qp, &add, &bad);
	reap("no right"); /* INIT 又没有 REMOTE_ATOMIC 了 */
	ibv_destroy_qp(qp);
}

static void wrong_read(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_READ,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey + 1;
	ibv_post_send(qp, &wr, &bad);
}

static void reap_extended(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	time_t end = time(NULL) + DEADLINE_S;

	while (ibv_start_poll(cq, &attr))
		if (time(NULL) > end)
			must(NULL, "ibv_start_poll");
	printf("without QPN: wr_id %ju, status %d\n", (uintmax_t)cq->wr_id,
	       cq->status);
	ibv_end_poll(cq);
}

/*
 * CQ 不说 QPN：wr_id 在谁那里，就是谁的。四个 QP 失败的次序既不是造它们的次序，也不是反过
 * 来的；别的 CQ 上另有四个，wr_id 各与其中一个相同：失败过一次，又有一个在等。
 */
static void without_qpn(void)
{
	static const int turns[] = { 1, 3, 0, 2 };
	struct ibv_cq_init_attr_ex init = { .cqe = 16 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(res.context, &init);
	struct ibv_qp *qps[4], *elsewhere[4];

	must(cq, "ibv_create_cq_ex");
	for (int i = 0; i < 4; i++)
		qps[i] = make_qp(ibv_cq_ex_to_cq(cq), NULL);
	for (int i = 0; i < 4; i++) {
		elsewhere[i] = make_qp(res.cq, NULL);
		wrong_read(elsewhere[i], 400 + i);
		reap("elsewhere");
		wrong_read(elsewhere[i], 400 + i);
	}
	for (int i = 0; i < 4; i++) {
		wrong_read(qps[turns[i]], 400 + turns[i]);
		reap_extended(cq);
	}
	for (int i = 0; i < 4; i++) {
		reap("elsewhere");
		ibv_destroy_qp(qps[i]);
		ibv_destroy_qp(elsewhere[i]);
	}
	ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

/* 睡着等的程序。*/
static void sleeper(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(res.context);
	struct ibv_cq *cq, *whose;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	void *context;

	must(channel, "ibv_create_comp_channel");
	cq = ibv_create_cq(res.context, 4, NULL, channel, 0);
	must(cq, "ibv_create_cq");
	printf("resize: %d\n", ibv_resize_cq(cq, 9));
	qp = make_qp(cq, NULL);
	ibv_req_notify_cq(cq, 0);
	wrong_read(qp, 700);
	alarm(DEADLINE_S);
	if (ibv_get_cq_event(channel, &whose, &context))
		must(NULL, "ibv_get_cq_event");
	alarm(0);
	ibv_ack_cq_events(whose, 1);
	printf("woken: %d\n", ibv_poll_cq(cq, 1, &wc));
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	ibv_destroy_comp_channel(channel);
}

/* 没有人收：只看它写了给谁。*/
static void datagram(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UD,
		.send_cq = res.cq,
		.recv_cq = res.cq,
		.pd = res.pd,
		.cap = { 4, 4, 1, 1, 0 },
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(res.context, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = res.ib_port,
				    .qkey = 0x1234 };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = res.ib_port };
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;

	must(qp, "ibv_create_qp_ex(UD)");
	to.grh.dgid = res.gid;
	to.grh.sgid_index = res.gid_index;
	ah = ibv_create_ah(res.pd, &to);
	must(ah, "ibv_create_ah");
	ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_QKEY);
	attr.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = 500;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x4321);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	printf("datagram: %d\n", ibv_wr_complete(ex));
	reap("datagram");
	ibv_destroy_ah(ah);
	ibv_destroy_qp(qp);
}

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int n = 0;

	must(dir, folder);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* 一个又一个找不到对端的 QP：记录器到处去找，每次都要把打开的、映射的还回去。*/
static void look_for_peers(void)
{
	static const struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	int fds = 0, maps = 0;

	for (uint64_t i = 0; i < 12; i++) {
		struct ibv_qp *qp = make_qp(res.cq, NULL);
		struct ibv_qp_attr attr = reset;

		if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
			must(NULL, "ibv_modify_qp(RESET)");
		connect_to(qp, 0x123456);
		wrong_read(qp, i);
		reap("nobody");
		ibv_destroy_qp(qp);
		if (i == 3) {
			fds = entries("/proc/self/fd");
			maps = entries("/proc/self/map_files");
		}
	}
	printf("%d more descriptors, %d more mappings\n",
	       entries("/proc/self/fd") - fds,
	       entries("/proc/self/map_files") - maps);
}

/* 每种对象一个，QP 与 SRQ 里各有一个 receive；然后全拆掉。*/
static void one_of_each(const struct rdma_config *config)
{
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	struct ibv_sge sge = { (uintptr_t)memory, 0, 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_ah_attr to = { .is_global = 1 };
	struct rdma_resources each;
	struct ibv_srq *shared;
	struct ibv_ah *ah;

	if (init_rdma_resources(&each, config) || modify_qp_to_init(&each) ||
	    ibv_post_recv(each.qp, &wr, &bad))
		exit(1);
	to.port_num = each.ib_port;
	to.grh.dgid = each.gid;
	to.grh.sgid_index = each.gid_index;
	ah = ibv_create_ah(each.pd, &to);
	must(ah, "ibv_create_ah");
	shared = ibv_create_srq(each.pd, &init);
	must(shared, "ibv_create_srq");
	if (ibv_post_srq_recv(shared, &wr, &bad))
		exit(1);
	if (ibv_destroy_srq(shared) || ibv_destroy_ah(ah) ||
	    destroy_rdma_resources(&each))
		exit(1);
}

static void come_and_go(void)
{
	struct rdma_config config = { .device_name = "rxe0",
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = 64,
				      .recv_slots = 1,
				      .send_slots = 1,
				      .events = true };
	long before = 0;

	for (int i = 0; i < 400; i++) {
		if (i == 200)
			before = mapped_pages();
		one_of_each(&config);
	}
	printf("%ld more pages%s\n", mapped_pages() - before,
	       before ? "" : "?");
}

static void no_ah(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .send_cq = res.cq,
					 .recv_cq = res.cq,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(res.pd, &init);
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 600,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND },
			   *bad;

	must(qp, "ibv_create_qp(UD)");
	ibv_post_send(qp, &wr, &bad);
}

static void no_cq(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = res.cq,
					 .cap = { 4, 4, 1, 1, 0 } };

	ibv_create_qp(res.pd, &init);
}

static void port_events(void)
{
	receive(0x77);
	printf("waiting\n");
	fflush(stdout);
	event("first");
	event("second");
}

static void only(const char *what)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = { { "peers", look_for_peers },
		      { "flat", come_and_go },
		      { "port", port_events },
		      { "no_ah", no_ah },
		      { "no_cq", no_cq } };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strcmp(what, parts[i].name) != 0)
			continue;
		parts[i].run();
		return;
	}
	fprintf(stderr, "verbs_probe: there is no part %s\n", what);
	exit(2);
}

int main(int argc, char **argv)
{
	struct rdma_config config = { .device_name = "rxe0",
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = 64,
				      .recv_slots = 1,
				      .send_slots = 8 };
	struct ibv_srq_init_attr_ex init = { .attr = { 16, 1, 0 },
					     .comp_mask =
						     IBV_SRQ_INIT_ATTR_PD };
	struct ibv_srq_attr limit = { .max_wr = 32, .srq_limit = 5 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 123 };
	struct ibv_context *other;
	struct ibv_mw *mw;
	struct ibv_qp *qp;
	int fd;

	if (init_rdma_resources(&res, &config))
		return 1;
	mr = ibv_reg_mr_iova(res.pd, memory, MEMORY, (uintptr_t)memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC |
				     IBV_ACCESS_MW_BIND);
	must(mr, "ibv_reg_mr_iova");
	mw = ibv_alloc_mw(res.pd, IBV_MW_TYPE_2);
	must(mw, "ibv_alloc_mw");
	init.pd = res.pd;
	srq = ibv_create_srq_ex(res.context, &init);
	must(srq, "ibv_create_srq_ex");
	if (argc > 1) {
		only(argv[1]);
		return 0;
	}
	qp = make_qp(res.cq, srq);
	for (uint64_t i = 0; i < 5; i++)
		receive(i);
	printf("limit: %d\n",
	       ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
	every_opcode(qp, mw);
	event("limit");
	again();
	without_qpn();
	datagram();
	overflow();
	printf("no such limit: %d\n",
	       ibv_modify_srq(srq, &limit, 1 << 30) != 0);
	printf("rate: %d\n", ibv_modify_qp_rate_limit(qp, &rate));
	printf("rereg: %d\n", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
					   NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	fd = dup(res.context->cmd_fd);
	other = ibv_import_device(fd);
	printf("import: %d\n", other != NULL);
	if (!other)
		close(fd);
	sleeper();
	ibv_destroy_qp(qp);
	ibv_destroy_srq(srq);
	ibv_dealloc_mw(mw);
	ibv_dereg_mr(mr);
	return destroy_rdma_resources(&res) ? 1 : 0;
}
