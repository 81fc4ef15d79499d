// SPDX-License-Identifier: MIT
/*
 * ud_notes.c —— ud_discover 的两个 QP：UD 的收发 note，RC 的说话，共用一个 CQ
 */
#include "ud_notes.h"

#include "base/deadline.h"
#include "base/report.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QKEY	0x11111111 /* 最高位是 0：不必是 root */
#define MAGIC	0x46494e44 /* "FIND" */
#define RC_RECV NOTE_RECVS /* RC QP 的 slot：最后一个 */
#define RC_SEND NOTE_SENDS

/* ---- datagram ---------------------------------------------------------------- */

static int send_note(struct notes *n, struct ibv_ah *ah, uint32_t qpn,
		     enum kind kind, const struct rdma_resources *about)
{
	struct note note = { htobe32(MAGIC), htobe32(kind),
			     cm_con_data_to_wire(cm_con_data_of(about)), "" };
	uint32_t slot = 0;

	while (slot < NOTE_SENDS && n->ah[slot])
		slot++;
	/* 没有空 slot 就不发：本来就可能丢，问的人会再问。*/
	if (slot == NOTE_SENDS)
		return check_destroyed("ibv_destroy_ah", ibv_destroy_ah(ah));
	gethostname(note.name, sizeof(note.name) - 1);
	memcpy(send_slot(&n->ud, slot), &note, sizeof(note));
	n->ah[slot] = ah;
	return post_datagram(&n->ud, slot, sizeof(note), ah, qpn, QKEY);
}

int notes_send(struct notes *n, const uint8_t gid[16], uint32_t qpn,
	       enum kind kind, const struct rdma_resources *about)
{
	struct ibv_ah *ah;
	int rc = create_ah(&n->ud, gid, &ah);

	return rc ? rc : send_note(n, ah, qpn, kind, about);
}

// region notes-answer
int notes_answer(struct notes *n, const struct ibv_wc *wc, enum kind kind,
		 const struct rdma_resources *about)
{
	struct ibv_ah *ah;
	int rc = answer_datagram(&n->ud, wc, &ah);

	return rc ? rc : send_note(n, ah, wc->src_qp, kind, about);
}
// endregion notes-answer

/* 谁都能往这里发，所以长度与每个字段都要检查。*/
static bool take_note(struct notes *n, const struct ibv_wc *wc)
{
	struct note *last = &n->last;
	uint32_t length;
	const char *data = datagram_of(&n->ud, wc, &length);

	if (!data || length != sizeof(*last))
		return false;
	memcpy(last, data, sizeof(*last));
	last->data = cm_con_data_to_wire(last->data);
	last->kind = be32toh(last->kind);
	last->name[sizeof(last->name) - 1] = '\0';
	return last->magic == htobe32(MAGIC) && !check_cm_con_data(&last->data);
}

/* ---- 一个 CQ ----------------------------------------------------------------- */

static int take_datagram(struct notes *n, struct ibv_wc *wc)
{
	uint32_t slot = WR_ID_SLOT(wc->wr_id);

	if (wc->status != IBV_WC_SUCCESS)
		return fail(-EIO, NULL, "the UD QP failed: %s",
			    wc_status_name(wc->status));
	if (wc->wr_id == WR_ID_RECV(slot))
		return take_note(n, wc) ? 1 : post_receive(&n->ud, slot);
	/* SEND 完成了，AH 才可以拆。*/
	ibv_destroy_ah(n->ah[slot]);
	n->ah[slot] = NULL;
	return 0;
}

int notes_next(struct notes *n, struct ibv_wc *wc, int64_t deadline)
{
	struct rdma_resources *ud = &n->ud;
	int rc = 0, got = 0;

	while (!rc && (got = ibv_poll_cq(ud->cq, 1, wc)) == 0) {
		if (!ud->armed) {
			rc = arm_cq(ud);
			continue;
		}
		rc = wait_fd(ud->channel->fd, POLLIN, deadline);
		if (!rc)
			rc = take_cq_event(ud);
	}
	if (rc)
		return rc;
	if (got < 0)
		return call_failed(EIO, "ibv_poll_cq() = %d", got);
	if (wc->qp_num == ud->qp->qp_num)
		return take_datagram(n, wc);
	/* 已经拆掉的 RC QP，它的 CQE 可能还在 CQ 里。*/
	return n->rc.qp && wc->qp_num == n->rc.qp->qp_num ? 2 : 0;
}

/* ---- RC ---------------------------------------------------------------------- */

int rc_open(struct notes *n)
{
	int rc;

	n->rc = n->ud;
	n->rc.qp = NULL;
	n->rc.posted = NULL;
	rc = create_qp(&n->rc, 0);
	if (!rc)
		rc = modify_qp_to_init(&n->rc);
	return rc ? rc : post_receive(&n->rc, RC_RECV);
}

int rc_connect(struct notes *n, const struct cm_con_data_t *peer)
{
	int rc;

	n->rc.remote = *peer;
	rc = modify_qp_to_rtr(&n->rc);
	return rc ? rc : modify_qp_to_rts(&n->rc);
}

int rc_say(struct notes *n, const char *text)
{
	char *to = send_slot(&n->rc, RC_SEND);

	strncpy(to, text, n->rc.msg_size - 1);
	return post_send(&n->rc, RC_SEND, (uint32_t)strlen(to) + 1, true);
}

const char *rc_heard(const struct notes *n, const struct ibv_wc *wc, char *text,
		     size_t size)
{
	return printable_text(text, size, recv_slot(&n->rc, RC_RECV),
			      wc->byte_len);
}

void rc_close(struct notes *n)
{
	if (n->rc.qp)
		check_destroyed("ibv_destroy_qp", ibv_destroy_qp(n->rc.qp));
	free(n->rc.posted);
	n->rc = (struct rdma_resources){ .remote = n->rc.remote };
}

/* ---- 开、关 ------------------------------------------------------------------ */

int notes_open(struct notes *n, const struct rdma_config *config)
{
	struct rdma_resources *ud = &n->ud;
	int rc = open_device(ud, config);

	ud->msg_size = GRH_BYTES + sizeof(struct note);
	ud->recv_slots = NOTE_RECVS + 1;
	ud->send_slots = NOTE_SENDS + 1;
	if (!rc)
		rc = create_pd(ud);
	if (!rc)
		rc = create_cq(ud, true);
	if (!rc)
		rc = create_slots(ud);
	if (!rc)
		rc = create_datagram_qp(ud, QKEY);
	for (uint32_t slot = 0; slot < NOTE_RECVS && !rc; slot++)
		rc = post_receive(ud, slot);
	return rc;
}

static union ibv_gid group_gid(void)
{
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff } };

	inet_pton(AF_INET, GROUP, group.raw + 12);
	return group;
}

// region join
/*
 * attach 让设备把这个组的包交给 QP。可是 RoCE v2 的多播就是 IP 多播：没有谁在 IP 那一层
 * 加入，交换机（IGMP snooping）、网卡的 MAC 过滤、主机的 IP 层都会把包丢掉，两边一声
 * 不吭。rxe 只加入一个 IPv6 的 MAC，对 IPv4 组是错的；所以再用一个普通的 UDP socket
 * 加入一次。它什么也不收：包仍然由 QP 收。
 */
int notes_join(struct notes *n)
{
	const union ibv_gid group = group_gid();
	struct ip_mreq both;
	int err = ibv_attach_mcast(n->ud.qp, &group, 0);

	if (err)
		return call_failed(err, "ibv_attach_mcast(" GROUP ")");
	/* GID ::ffff:a.b.c.d 的末四个字节就是接口的地址。*/
	memcpy(&both.imr_multiaddr, group.raw + 12, 4);
	memcpy(&both.imr_interface, n->ud.gid.raw + 12, 4);
	n->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (n->socket < 0 || setsockopt(n->socket, IPPROTO_IP,
					IP_ADD_MEMBERSHIP, &both, sizeof(both)))
		return call_failed(errno, "IP_ADD_MEMBERSHIP(" GROUP ")");
	return 0;
}
// endregion join

int notes_close(struct notes *n)
{
	const union ibv_gid group = group_gid();
	int rc = 0;

	rc_close(n);
	/* 还在组里的 QP 拆不掉（EBUSY）；有 SEND 在途的 AH 也不能先拆。*/
	if (n->socket >= 0)
		ibv_detach_mcast(n->ud.qp, &group, 0);
	sock_close(&n->socket);
	if (n->ud.qp)
		rc = check_destroyed("ibv_destroy_qp",
				     ibv_destroy_qp(n->ud.qp));
	n->ud.qp = NULL;
	for (uint32_t slot = 0; slot < NOTE_SENDS; slot++)
		if (n->ah[slot])
			ibv_destroy_ah(n->ah[slot]);
	return destroy_rdma_resources(&n->ud) || rc ? -EIO : 0;
}
