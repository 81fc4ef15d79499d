/* SPDX-License-Identifier: MIT */
/*
 * ud_notes.h - ud_discover: its datagrams, and its two QPs, one UD and one RC, on one
 * CQ. All functions return 0 or -errno, reported.
 */
#ifndef CLIENT_UD_NOTES_H
#define CLIENT_UD_NOTES_H

#include "rdma_common.h"

#define GROUP	    "239.82.77.10"
#define REPEAT_MS   200
#define PATIENCE_MS 5000 /* for one RC connection */
#define NOTE_SENDS  16	 /* notes on their way */
#define NOTE_RECVS  64

enum kind {
	WHO,
	HERE,
	CONNECT,
	ACCEPT
};

/* A datagram; on the wire big-endian. */
struct note {
	uint32_t magic, kind;
	struct cm_con_data_t
		data; /* the UD QP's, or of CONNECT, ACCEPT the RC QP's */
	char name[64];
} __attribute__((packed));

struct notes {
	struct rdma_resources ud, rc; /* rc: but for its QP, all is ud's */
	struct ibv_ah *ah[NOTE_SENDS];
	struct note last; /* received, in host byte order */
	int socket;	  /* a member of the IP group */
};

/* A UD QP with all its receives posted; its group. Undone by notes_close(). */
int notes_open(struct notes *n, const struct rdma_config *config);
int notes_join(struct notes *n);
int notes_close(struct notes *n);

/*
 * Send a note about @about to @gid and @qpn, or to where @wc came from. It may get
 * lost: send it again if there is no answer.
 */
int notes_send(struct notes *n, const uint8_t gid[16], uint32_t qpn,
	       enum kind kind, const struct rdma_resources *about);
int notes_answer(struct notes *n, const struct ibv_wc *wc, enum kind kind,
		 const struct rdma_resources *about);

/*
 * The next completion of either QP. What is the UD QP's is dealt with: 1, and @wc, if it
 * is a note, which is in last then; 0 if not. 2: it is the RC QP's, good or bad. Or
 * -ETIMEDOUT, -EINTR (not reported).
 */
int notes_next(struct notes *n, struct ibv_wc *wc, int64_t deadline);

/* The RC QP, with a receive posted; to RTS; a text that is sent by it, or came. */
int rc_open(struct notes *n);
int rc_connect(struct notes *n, const struct cm_con_data_t *peer);
int rc_say(struct notes *n, const char *text);
const char *rc_heard(const struct notes *n, const struct ibv_wc *wc, char *text,
		     size_t size);
void rc_close(struct notes *n);

#endif
