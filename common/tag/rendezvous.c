// SPDX-License-Identifier: MIT
/*
 * rendezvous.c —— 第 13 课（四）：大消息，RTS → RDMA READ → FIN
 *
 * 大消息若也走 eager，就要在环里占很大的格子，还要多拷一次；没人要的时候更糟，整条都
 * 得存着。rendezvous 反过来：发送方只报一声“我这里有 N 字节，地址与 rkey 如下”（RTS），
 * 数据留在原处；等接收方有 receive 配上了，由它用 RDMA READ 直接取进用户的 buffer，一次
 * 拷贝也没有；取完回一个 FIN，发送方的 buffer 才算自由。代价是多一个来回和两次注册：在
 * 实验机的 rxe 上，单程多出约 0.12 ms，与长度无关，直到 64 KiB 都是 eager 更快（rxe 反正
 * 要用 CPU 拷贝，多拷一次不显眼）。所以 eager_max 取 8 KiB 不是为了快，是为了环小：格子
 * 有多大，96 格就要占多少内存，还要一直钉着。物理网卡上 READ 不费 CPU，交点会低得多。
 *
 *	sender                             receiver
 *	reg_mr(buf)
 *	SEND  RTS {tag, length, addr, rkey} ──>   match，reg_mr(buf)
 *	      <── RDMA READ（一段一段地取）
 *	          <── SEND FIN {id}           dereg_mr(buf)
 *	dereg_mr(buf)，到下一个 FIN
 *
 * 为什么每条消息都注册、用完就注销，而不是缓存 MR？缓存要知道用户何时 free/munmap 了那段
 * 内存：地址还在、物理页换了，网卡就会读写别人的页。UCX 为此拦截整个进程的 malloc 与
 * mmap（ucm），那是另一门课。注册的开销与长度成正比，而大消息的传输也与长度成正比，占比
 * 有限；况且 rkey 只管这一条消息，最多到下一条取完为止。
 */
#include "base/report.h"
#include "explain/explain.h"
#include "parts.h"

#include <endian.h>
#include <errno.h>

/*
 * 一次 READ 多少、同时几个在途？一个在路上、下一个已在门口，管道就不会空；再多没有好处，
 * 反而危险：请求只有一个包，回来的却是一大片，而请求方内核的 backlog 只收得下 1000 个
 * （net.core.netdev_max_backlog），多出来的被丢掉，要等 67 ms 的重传定时器。4 × 256 KiB
 * 是 256 个 4 KiB 的包。
 */
#define READ_CHUNK  (256u << 10)
#define READ_WINDOW 4

static int register_buffer(struct tag_channel *ch, struct tag_request *request,
			   int access)
{
	struct ibv_pd *pd = ch->res->pd;
	int err;

	request->mr = ibv_reg_mr(pd, request->buf, request->length, access);
	if (request->mr)
		return 0;
	err = errno;
	return verb_failed(err,
			   explain_reg_mr_call(pd, request->buf,
					       request->length, access, err),
			   "ibv_reg_mr(%ju bytes for a rendezvous)",
			   request->length);
}

// region rts
/* 编号低位是下标、高位每次加一：迟到或伪造的 FIN 对不上号。*/
static bool choose_id(struct tag_channel *ch, struct tag_request *request)
{
	for (uint16_t i = 0; i < TAG_RENDEZVOUS; i++) {
		if (ch->rendezvous[i])
			continue;
		request->id = (uint16_t)(ch->next_id++ * TAG_RENDEZVOUS + i);
		ch->rendezvous[i] = request;
		return true;
	}
	return false;
}

static void forget_id(struct tag_channel *ch, const struct tag_request *request)
{
	ch->rendezvous[request->id % TAG_RENDEZVOUS] = NULL;
}

int tag_rendezvous_send(struct tag_channel *ch, struct tag_request *request)
{
	struct tag_rts *rts = (void *)send_slot(ch->res, tag_slot(ch));
	int rc;

	/*
	 * 为什么限制在途的个数？每个 RTS 都会换来一个 FIN，而 FIN 不花 credit；环里
	 * 专为 FIN 留了 TAG_RENDEZVOUS 格，多一个就可能撞上 RNR。
	 */
	if (!choose_id(ch, request))
		return 1;
	/* 只许远端读：本地只是把它交出去，不需要 LOCAL_WRITE。*/
	rc = register_buffer(ch, request, IBV_ACCESS_REMOTE_READ);
	if (rc) { /* 这一条发不了，连接还是好的 */
		forget_id(ch, request);
		request->status = rc;
		return 0;
	}
	rts->addr = htole64((uintptr_t)request->buf);
	rts->rkey = htole32(request->mr->rkey);
	ch->sent++;
	ch->counts.rendezvous_sent++;
	return tag_post(ch, sizeof(*rts), request->tag, request->length,
			request->id, TAG_RTS);
}
// endregion rts

// region start
void tag_rendezvous_start(struct tag_channel *ch, struct tag_request *request,
			  const struct tag_unexpected *rts)
{
	request->tag = rts->message.tag;
	request->length = rts->message.length;
	request->peer_addr = rts->peer_addr;
	request->peer_rkey = rts->peer_rkey;
	request->id = rts->id;
	request->outcome = tag_match_outcome(&request->recv, request->length);
	if (!request->outcome)
		request->outcome =
			register_buffer(ch, request, IBV_ACCESS_LOCAL_WRITE);
	/* 取不了（buffer 太短、注册不了）也要回 FIN，否则发送方会一直等。*/
	TAILQ_INSERT_TAIL(request->outcome ? &ch->to_finish : &ch->to_read,
			  request, node);
}
// endregion start

static uint32_t chunk_at(const struct tag_channel *ch,
			 const struct tag_request *request, uint64_t offset)
{
	uint64_t left = request->length - offset;
	uint32_t most = ch->res->port_attr.max_msg_sz;

	if (most > READ_CHUNK)
		most = READ_CHUNK;
	return left < most ? (uint32_t)left : most;
}

static int read_more(struct tag_channel *ch, struct tag_request *request)
{
	while (request->asked < request->length && ch->reads < READ_WINDOW &&
	       tag_has_slot(ch)) {
		uint64_t at = request->asked;
		struct ibv_sge into = {
			.addr = (uintptr_t)(request->buf + at),
			.length = chunk_at(ch, request, at),
			.lkey = request->mr->lkey,
		};
		uint32_t slot = tag_slot(ch);
		int rc;

		tag_mark(ch, true);
		request->asked += into.length;
		ch->reads++;
		ch->counts.reads++;
		rc = post_read(ch->res, slot, &into, request->peer_addr + at,
			       request->peer_rkey);
		if (rc)
			return rc;
	}
	return 0;
}

int tag_rendezvous_read_done(struct tag_channel *ch)
{
	/* READ 按 post 的次序完成，而 to_read 也是这个次序：完成的总是头一个的。*/
	struct tag_request *request = TAILQ_FIRST(&ch->to_read);

	ch->reads--;
	request->fetched += chunk_at(ch, request, request->fetched);
	if (request->fetched < request->length)
		return 0;
	TAILQ_REMOVE(&ch->to_read, request, node);
	TAILQ_INSERT_TAIL(&ch->to_finish, request, node);
	return tag_release(&request->mr);
}

static int send_fins(struct tag_channel *ch)
{
	struct tag_request *request;
	int rc = 0;

	while (!rc && tag_has_slot(ch) &&
	       (request = TAILQ_FIRST(&ch->to_finish))) {
		TAILQ_REMOVE(&ch->to_finish, request, node);
		rc = tag_post(ch, sizeof(struct tag_header), request->tag,
			      request->fetched, request->id, TAG_FIN);
		request->status = rc ? rc : request->outcome;
	}
	return rc;
}

int tag_rendezvous_fin(struct tag_channel *ch, const struct tag_header *fin)
{
	uint16_t id = le16toh(fin->id);
	struct tag_request *request = ch->rendezvous[id % TAG_RENDEZVOUS];
	int rc;

	if (!request || request->id != id)
		return -EPROTO;
	forget_id(ch, request);
	/*
	 * FIN 到了，数据也到了，为什么 MR 还要多留一条消息？READ 重传过的话，它的副本可能
	 * 还在路上：几个 CPU 收包，先发的会后到。rxe 照 rkey 重答这个副本；rkey 已经注销，
	 * 它就不声不响地让 QP 进 ERR，一条好好的连接就此断了。真网络不换次序，也就没有这事。
	 */
	rc = tag_release(&ch->kept);
	ch->kept = request->mr;
	request->mr = NULL;
	request->status = rc;
	return rc;
}

int tag_rendezvous_push(struct tag_channel *ch)
{
	struct tag_request *request;
	int rc = send_fins(ch);

	TAILQ_FOREACH(request, &ch->to_read, node)
		rc = rc ? rc : read_more(ch, request);
	return rc;
}
