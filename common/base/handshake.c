// SPDX-License-Identifier: MIT
/*
 * handshake.c —— 第 4 阶段的三种消息：hello、cm_con_data_t、sync，哪些内容是不可能的
 *
 * 对端不可信：它可能说的是 HTTP，也可能是旧版本的自己。凡是不可能的，都连同双方的值一
 * 起说出来，两个终端放在一起看，就知道谁该换。
 */
#include "handshake.h"

#include "report.h"
#include "sock.h"
#include "verbs_names.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static const char *sync_step_name(uint32_t step)
{
	switch (step) {
	case SYNC_READY:
		return "READY";
	case SYNC_DONE:
		return "DONE";
	}
	return "unknown";
}

int check_sync(const struct sync_msg *peers, enum sync_step step)
{
	uint32_t peer_step = be32toh(peers->step);
	int peer_status = (int)be32toh(peers->status);

	if (be32toh(peers->magic) != SYNC_MAGIC || peer_step != step)
		return fail(-EPROTO, "run the same build on both sides",
			    "the peer is at sync point %s (%u), this side at "
			    "%s (%u)",
			    sync_step_name(peer_step), peer_step,
			    sync_step_name(step), step);
	if (peer_status) {
		const char *name = strerrorname_np(peer_status);

		return fail(-EREMOTEIO, "see the peer's own messages",
			    "the peer failed before sync point %s: %s (%d)",
			    sync_step_name(step), name ? name : "unknown error",
			    peer_status);
	}
	return 0;
}

int sock_check_peer(int sock, enum sync_step step)
{
	struct sync_msg peers;
	ssize_t n = recv(sock, &peers, sizeof(peers), MSG_DONTWAIT | MSG_PEEK);

	/* 只偷看（MSG_PEEK）：“我已到达”这条消息要留给随后的同步去读。*/
	if (n == sizeof(peers))
		return check_sync(&peers, step);
	if (n == 0)
		return wait_failed(-ECONNRESET,
				   "waiting for the peer to reach %s",
				   sync_step_name(step));
	if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		return wait_failed(-errno, "waiting for the peer to reach %s",
				   sync_step_name(step));
	return 0;
}

/* 数据格式对了，内容也可能是假的：超出 24 位的 QPN、全零的 GID…… */
int check_cm_con_data(const struct cm_con_data_t *data)
{
	static const uint8_t zero[16];
	const char *wrong = NULL;

	if (data->qp_num < 2 || data->qp_num > 0xffffff)
		wrong = "qp_num is not 2 ... 0xffffff";
	else if (data->psn > 0xffffff)
		wrong = "psn is over 24 bits";
	else if (!mtu_bytes((enum ibv_mtu)data->active_mtu))
		wrong = "active_mtu is not 1 ... 5";
	else if (!memcmp(data->gid, zero, sizeof(zero)))
		wrong = "the GID is all zero";
	if (!wrong)
		return 0;
	return fail(-EPROTO, "run the same build on both sides",
		    "the peer's cm_con_data_t cannot be: %s (qp_num 0x%x, psn "
		    "0x%x, active_mtu %u)",
		    wrong, data->qp_num, data->psn, data->active_mtu);
}

int check_hello(const struct hello *h)
{
	uint32_t magic = be32toh(h->magic);
	uint16_t version = be16toh(h->version);
	uint16_t length = be16toh(h->length);
	char text[64];

	if (magic == HELLO_MAGIC && version == HELLO_VERSION &&
	    length == sizeof(struct cm_con_data_t))
		return 0;
	return fail(-EPROTO,
		    magic == HELLO_MAGIC ? "run the same build on both sides"
					 : "is that port really our server's?",
		    "the peer's hello is magic 0x%08x (\"%s\") version %u "
		    "length %u; mine is 0x%08x version %u length %zu",
		    magic, printable_text(text, sizeof(text), h, 4), version,
		    length, HELLO_MAGIC, HELLO_VERSION,
		    sizeof(struct cm_con_data_t));
}

void show_both_sides(struct cm_con_data_t mine, struct cm_con_data_t peers)
{
	char my_gid[GID_TEXT_SIZE], peer_gid[GID_TEXT_SIZE];

	report_fact("%-10s  %-22s  %s", "", "mine", "the peer's");
	report_fact("%-10s  0x%06x                0x%06x", "QPN", mine.qp_num,
		    peers.qp_num);
	report_fact("%-10s  0x%06x                0x%06x", "PSN", mine.psn,
		    peers.psn);
	report_fact("%-10s  %-22s  %s", "GID", gid_text(my_gid, mine.gid),
		    gid_text(peer_gid, peers.gid));
	report_fact("%-10s  %-22u  %u", "LID", mine.lid, peers.lid);
	report_fact("%-10s  %-22u  %u (path MTU: %u)", "active MTU",
		    mtu_bytes((enum ibv_mtu)mine.active_mtu),
		    mtu_bytes((enum ibv_mtu)peers.active_mtu),
		    mtu_bytes((enum ibv_mtu)(mine.active_mtu < peers.active_mtu
						     ? mine.active_mtu
						     : peers.active_mtu)));
}

/* ---- 第 11 阶段：private data ------------------------------------------------- */

struct sync_msg sync_msg_of(enum sync_step step, int status)
{
	return (struct sync_msg){
		.magic = htobe32(SYNC_MAGIC),
		.step = htobe32(step),
		.status = htobe32((uint32_t)-status),
	};
}

/*
 * QPN、PSN、GID、MTU 由 CM 自己带，这里是 cm_con_data_t 里剩下的。收到的总是整个字段，后面
 * 补零，所以要靠自己的 hello 认出对端。
 */
struct private_data private_data_of(struct cm_con_data_t mine,
				    const char extra[CM_EXTRA_SIZE])
{
	struct private_data data = {
		.hello = { htobe32(HELLO_MAGIC), htobe16(HELLO_VERSION),
			   htobe16(sizeof(mine)) },
		.addr = htobe64(mine.addr),
		.rkey = htobe32(mine.rkey),
		.size = htobe32(mine.size),
	};

	_Static_assert(sizeof(data) <= 56, "fits into a REQ");
	memcpy(data.extra, extra, CM_EXTRA_SIZE);
	return data;
}

int take_private_data(const void *data, struct cm_con_data_t *peers,
		      char extra[CM_EXTRA_SIZE])
{
	const struct private_data *got = data;
	int rc = check_hello(&got->hello);

	if (rc)
		return rc;
	peers->addr = be64toh(got->addr);
	peers->rkey = be32toh(got->rkey);
	peers->size = be32toh(got->size);
	memcpy(extra, got->extra, CM_EXTRA_SIZE);
	return 0;
}
