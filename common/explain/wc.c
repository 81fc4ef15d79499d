// SPDX-License-Identifier: MIT
/*
 * wc.c —— 一个失败的 completion，或一个一直不来的 completion，是为什么
 *
 * 单看 status 只能列出几种可能（causes.def 里与它同名的那一行）。调用者知道得越多，就越能断定：
 *   - WR 与自己的 MR：lkey 对不对、SGE 在不在 MR 里，自己就能核对；
 *   - 对端告诉过的 MR（addr、rkey、长度）：RDMA WRITE/READ 越没越界；
 *   - 两端各自拿到的属性：QPN、PSN、GID、MTU 交叉比较；
 *   - 对端的 QP 若就在本机内核里，它现在的状态（peer.c）。
 * 每条检查要么证明了一个原因，要么不作声。都不作声时才退回到“几种可能”。
 */
#include "case.h"
#include "qp_table.h"

#include <net/if.h>
#include <poll.h>
#include <string.h>

#define MOST_CHECKS 9 /* per status */
#define RETRY_MAX   7
#define MAX_24_BITS 0xffffffu
#define HALF_PSN    0x800000u
#define MAC	    "%02x:%02x:%02x:%02x:%02x:%02x"
#define RXE_WINDOW  256u /* RXE_MAX_UNACKED_PSNS 是 128 */

static const struct explain_request no_request;

static struct case_of look_at(struct ibv_qp *qp, enum ibv_wc_status status,
			      const struct explain_request *rq)
{
	struct case_of c = { .qp = qp,
			     .status = status,
			     .rq = rq ? rq : &no_request };
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN |
			 IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_TIMEOUT |
			 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_QKEY | IBV_QP_PORT |
			 IBV_QP_PATH_MTU;
	const bool ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_init_attr init = { 0 };

	c.known = peek_at_qp(qp, &c.now, mask, &init);
	c.rxe = device_is_rxe(qp->context);
	if (!c.known)
		return c;
	c.device = net_device_of_gid(qp->context, c.now.port_num,
				     ud ? 0 : c.now.ah_attr.grh.sgid_index);
	if (!ud && !gid_is_zero(&c.now.ah_attr.grh.dgid))
		c.peer = find_local_peer(&c.now.ah_attr.grh.dgid,
					 c.now.dest_qp_num);
	return c;
}

/* rxe：网卡 down 之后发送，报的是 2，其余的 WR 是 5。*/
static struct explanation check_my_netdev(const struct case_of *c)
{
	if (!c->device.index || (c->device.up && c->device.carrier))
		return no_idea();
	return because("netdev-down", "%s\t%s", c->device.name,
		       c->device.up ? "has no carrier" : "is down");
}

/*
 * 换了地址或 MAC，内核收走原来的 GID；槽位还被 QP 占着，同一地址的新 GID 只能进别的槽位。
 * 此后 rxe 发不出这个 QP 的包：6.1 报 2，或者一直不报；6.12 起报 5。
 */
static struct explanation check_my_gid(const struct case_of *c)
{
	union ibv_gid gid;

	if (!c->known || !c->now.ah_attr.is_global ||
	    ibv_query_gid(c->qp->context, c->now.port_num,
			  c->now.ah_attr.grh.sgid_index, &gid) ||
	    !gid_is_zero(&gid))
		return no_idea();
	return because("gid-gone", "%u", c->now.ah_attr.grh.sgid_index);
}

/* ---- 两端不合 ------------------------------------------------------------- */

static struct explanation check_pair(const struct case_of *c)
{
	struct explanation all[EXPLAIN_MOST], why = no_idea();
	size_t n = explain_pair(c->rq->mine, c->rq->peer, all, EXPLAIN_MOST);

	for (size_t i = 0; i < n; i++)
		if (!why.id)
			why = all[i];
		else
			also_cause(&why, &all[i]);
	return why;
}

static struct explanation check_mtu(const struct case_of *c)
{
	struct explanation all[EXPLAIN_MOST];
	size_t n = explain_pair(c->rq->mine, c->rq->peer, all, EXPLAIN_MOST);

	while (n--)
		if (explained_as(&all[n], "mtu-differs"))
			return all[n];
	return no_idea();
}

static struct explanation check_my_qpn(const struct case_of *c)
{
	return c->known ? explain_swapped_qpn(c->now.dest_qp_num) : no_idea();
}

static struct explanation bad_peer_state(const struct case_of *c,
					 enum ibv_qp_state state)
{
	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT)
		return because("peer-not-ready", "%s\t%s", request_peer_name(c),
			       qp_state_name(state));
	if (state == IBV_QPS_ERR)
		return because("peer-in-error", "%s", request_peer_name(c));
	return no_idea();
}

static struct explanation check_peer_state(const struct case_of *c)
{
	struct explanation why = no_idea();

	if (c->rq->peer_state_known)
		return bad_peer_state(c, c->rq->peer_state);
	if (c->peer.found)
		why = bad_peer_state(c, c->peer.state);
	if (why.id)
		return why;
	if (c->peer.sees_all && !c->peer.found)
		return because("peer-qp-absent", "%s\t%u\t0x%x", c->peer.device,
			       c->peer.qp_num, c->peer.qp_num);
	if (c->peer.found && c->peer.dest_qp_num != c->qp->qp_num)
		return because("peer-expects-another", "%s\t%u\t%u\t%u",
			       c->peer.device, c->peer.qp_num,
			       c->peer.dest_qp_num, c->qp->qp_num);
	return why;
}

/* 连接之后有人改小了网卡的 MTU：小消息照通，大消息一个包也出不去；有的内核只报 flush
 * （RXE_HIDES_LOCAL_ERRORS）。*/
static struct explanation check_my_mtu(const struct case_of *c)
{
	struct ibv_port_attr port;
	unsigned int mtu = mtu_bytes(c->now.path_mtu);

	if (!c->known || ibv_query_port(c->qp->context, c->now.port_num, &port))
		return no_idea();
	if (mtu <= mtu_bytes(port.active_mtu))
		return no_idea();
	return because("path-mtu-above-active", "%u\t%u", mtu,
		       mtu_bytes(port.active_mtu));
}

/* 对端在本机时，可以核对：我这边记的 MAC 是不是它网卡的 MAC。*/
static struct explanation compare_mac(const union ibv_gid *to, int index,
				      const char *name, const char *device)
{
	uint8_t mine[6], real[6];

	if (!device_mac(device, real) ||
	    net_neighbour(to, index, mine) != NET_NEIGHBOUR_KNOWN ||
	    !memcmp(mine, real, sizeof(mine)))
		return no_idea();
	return because("wrong-mac", "%s\t" MAC "\t%s\t" MAC, name, mine[0],
		       mine[1], mine[2], mine[3], mine[4], mine[5], device,
		       real[0], real[1], real[2], real[3], real[4], real[5]);
}

static struct explanation check_mac(const struct case_of *c)
{
	return compare_mac(&c->now.ah_attr.grh.dgid, c->device.index,
			   c->device.name, c->peer.device);
}

struct explanation explain_neighbour(const union ibv_gid *to)
{
	KEEP_ERRNO;
	struct net_route route = net_route_to(to, 0);
	char name[IF_NAMESIZE], device[IBV_SYSFS_NAME_MAX];

	device_with_gid(device, sizeof(device), to);
	if (!if_indextoname((unsigned)route.device, name))
		return no_idea();
	return compare_mac(to, route.device, name, device);
}

/*
 * 只看对端现在等哪个 PSN。rxe 至多有 128 个未确认的 PSN，差得比这还远，就不会是
 * 路上丢包，而是两端的起点不同。
 */
static struct explanation check_peer_psn(const struct case_of *c)
{
	uint32_t ahead = (c->peer.rq_psn - c->now.sq_psn) & MAX_24_BITS;

	if (!c->known || !c->rxe || !c->peer.found || c->rq->peer ||
	    ahead <= RXE_WINDOW || ahead >= MAX_24_BITS - RXE_WINDOW)
		return no_idea();
	return because("psn-differs", "this QP\t%u\tthe peer\t%u\t%s",
		       c->now.sq_psn, c->peer.rq_psn,
		       ahead >= HALF_PSN ? "later ones after a gap"
					 : "old ones");
}

/* READ、WRITE、ATOMIC 不用对端的 receive，等的就不会是它。*/
static bool may_want_receive(const struct ibv_send_wr *send)
{
	return !send || send->opcode == IBV_WR_SEND ||
	       send->opcode == IBV_WR_SEND_WITH_IMM ||
	       send->opcode == IBV_WR_SEND_WITH_INV ||
	       send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static struct explanation no_receive(const struct case_of *c)
{
	return because("no-receive-posted", "%s", request_peer_name(c));
}

/*
 * 对端等的是我已经发过的？重传的那一刻，rxe 把 sq_psn 退回第一个没有确认的，什么都没丢
 * 也会相等；所以只信“超过”，没超过就隔一会儿再看。
 */
static bool peer_lacks_some(const struct case_of *c)
{
	struct case_of seen = *c;

	for (int looks = 0; seen.known && seen.peer.found && looks < 4;
	     looks++) {
		uint32_t ahead =
			(seen.now.sq_psn - seen.peer.rq_psn) & MAX_24_BITS;

		if (ahead && ahead <= MAX_24_BITS / 2)
			return true;
		poll(NULL, 0, 1);
		seen = look_at(c->qp, c->status, c->rq);
	}
	return !seen.known || !seen.peer.found;
}

/* 两端都对得上，对端也在 RTS：那就是路上丢了。*/
static struct explanation check_wire(const struct case_of *c)
{
	struct explanation why;
	long long received = -1, naks;
	const char *mine;

	if (!c->known || (!c->peer.found && !c->rq->peer))
		return no_idea();
	mine = device_of(c->qp->context);
	naks = hw_counter(mine, "rcvd_rnr_err");
	if (c->peer.found)
		received = hw_counter(c->peer.device, "rcvd_pkts");
	if (received == 0)
		why = because("nothing-arrives", "%s", "this QP");
	else if (c->qp->qp_type != IBV_QPT_RC)
		return no_idea(); /* 没有 ACK 可丢 */
	else if (c->peer.found && !peer_lacks_some(c))
		/* 对端等的正是我下一个要发的：它全收到了，丢的是 ACK。*/
		why = because("acks-lost", " (PSN %u)",
			      (c->peer.rq_psn - 1) & MAX_24_BITS);
	/* 计数器是整个设备的，不是这个 QP 的：只是线索，两种可能都说。*/
	else if (naks > 0 && c->now.rnr_retry == RETRY_MAX &&
		 may_want_receive(c->rq->send)) {
		why = no_receive(c);
		also_seen(&why, "rnr-or-loss");
	} else
		why = because("lost-on-the-way");
	if (received >= 0)
		also_seen(&why, "received", "%s\t%lld", c->peer.device,
			  received);
	if (naks >= 0)
		also_seen(&why, "sent", "%s\t%lld\t%lld", mine,
			  hw_counter(mine, "sent_pkts"), naks);
	return why;
}

/* rxe 6.12 起：UD 的 receive 放不下时，自己的 status 是 9。*/
static struct explanation check_datagram_room(const struct case_of *c)
{
	return c->qp->qp_type == IBV_QPT_UD ? request_recv_length(c)
					    : no_idea();
}

/* 每个 status 依次试哪些检查；都不作声就用与 status 同名的那一行。*/
static const struct {
	enum ibv_wc_status status;
	check_fn checks[MOST_CHECKS]; /* the rest NULL */
} completion_checks[] = {
	{ IBV_WC_LOC_LEN_ERR, { request_sges, request_recv_length } },
	{ IBV_WC_LOC_QP_OP_ERR,
	  { request_sges, request_opcode, check_my_netdev, check_my_gid,
	    request_recv_length } },
	{ IBV_WC_LOC_PROT_ERR, { request_inline_read, request_sges } },
	{ IBV_WC_WR_FLUSH_ERR,
	  { request_sges, request_inline_read, request_opcode, request_window,
	    check_my_netdev, check_my_gid, check_my_mtu } },
	{ IBV_WC_MW_BIND_ERR, { request_window } },
	{ IBV_WC_REM_INV_REQ_ERR,
	  { request_peer_access, check_mtu, request_peer_recv,
	    check_datagram_room } },
	{ IBV_WC_REM_ACCESS_ERR, { request_remote, request_peer_access } },
	{ IBV_WC_REM_OP_ERR, { request_peer_recv } },
	{ IBV_WC_RETRY_EXC_ERR,
	  { check_my_netdev, check_my_gid, check_my_qpn, check_pair,
	    check_peer_state, check_peer_psn, check_my_mtu, check_mac,
	    check_wire } },
	{ IBV_WC_RNR_RETRY_EXC_ERR, { no_receive } },
};

static void see_both_ends(struct explanation *why, const struct case_of *c)
{
	if (c->known)
		also_seen(why, "my-end", "%u\t%s\t%u\t%u\t%u\t%u\t%u\t%u",
			  c->qp->qp_num, qp_state_name(c->now.qp_state),
			  c->now.dest_qp_num, c->now.sq_psn, c->now.rq_psn,
			  c->now.timeout, c->now.retry_cnt, c->now.rnr_retry);
	if (c->peer.found)
		also_seen(why, "peer-end", "%u\t%s\t%s\t%u\t%u\t%u",
			  c->peer.qp_num, c->peer.device,
			  qp_state_name(c->peer.state), c->peer.dest_qp_num,
			  c->peer.sq_psn, c->peer.rq_psn);
}

static struct explanation run_checks(const struct case_of *c)
{
	const size_t n =
		sizeof(completion_checks) / sizeof(completion_checks[0]);
	struct explanation why = no_idea();

	for (size_t i = 0; i < n; i++) {
		const check_fn *check = completion_checks[i].checks;

		if (completion_checks[i].status != c->status)
			continue;
		for (int k = 0; k < MOST_CHECKS && check[k] && !why.id; k++)
			why = check[k](c);
	}
	return why;
}

struct explanation explain_wc_status(enum ibv_wc_status status)
{
	struct explanation why;

	if (!explain_row(wc_status_name(status)))
		return no_idea();
	why = because(wc_status_name(status));
	if (status == IBV_WC_WR_FLUSH_ERR)
		also_seen(&why, "WR_FLUSH_ERR rxe");
	return why;
}

struct explanation explain_completion(struct ibv_qp *qp,
				      const struct ibv_wc *wc,
				      const struct explain_request *request)
{
	KEEP_ERRNO;
	struct explanation why;
	struct case_of c;

	if (!explain_is_on())
		return explain_wc_status(wc->status);
	c = look_at(qp, wc->status, request);
	why = run_checks(&c);
	if (!why.id)
		why = explain_wc_status(wc->status);
	see_both_ends(&why, &c);
	return why;
}

struct explanation explain_recorded(const struct ibv_qp *like,
				    enum ibv_wc_status status,
				    const struct explain_request *request)
{
	struct ibv_qp qp = *like;
	const struct case_of c = { .qp = &qp,
				   .status = status,
				   .rq = request ? request : &no_request };

	return run_checks(&c);
}

struct explanation why_no_ack(struct ibv_qp *qp,
			      const struct explain_request *request)
{
	struct case_of c = look_at(qp, IBV_WC_RETRY_EXC_ERR, request);
	struct explanation why = run_checks(&c);

	see_both_ends(&why, &c);
	return why;
}

struct explanation why_no_link(struct ibv_qp *qp,
			       const struct explain_request *request)
{
	struct case_of c = look_at(qp, IBV_WC_RETRY_EXC_ERR, request);
	struct explanation why = check_my_netdev(&c);

	if (!why.id)
		why = check_my_gid(&c);
	if (!why.id && qp->qp_type != IBV_QPT_UD)
		why = check_my_mtu(&c);
	return why;
}

struct explanation why_no_peer(struct ibv_qp *qp,
			       const struct explain_request *request)
{
	struct case_of c = look_at(qp, IBV_WC_RETRY_EXC_ERR, request);
	struct explanation why = check_peer_state(&c);

	see_both_ends(&why, &c);
	return why;
}
