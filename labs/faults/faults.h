/* SPDX-License-Identifier: MIT */
/*
 * faults.h - the plain program that the catalogue's mistakes are made in.
 *
 * Two processes, A on the first RDMA device and B on the second: A posts requests,
 * B answers for its memory or receives. A scene is such a run. Most are right as
 * they are, and build/sabotage spoils one field of one call (labs/faults/catalogue);
 * a scene that is wrong of itself says so by a function for a stage of one end.
 */
#ifndef LABS_FAULTS_FAULTS_H
#define LABS_FAULTS_FAULTS_H

#include "explain/explain.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE	     4096
#define BUFFER_BYTES 65536
#define WAIT_MS	     1300 /* longer than all retries of the usual plan */
#define GRH_BYTES    40
#define QKEY	     0x1234
#define ALL_RIGHTS                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* What an end does at such a point besides the usual. */
enum stage {
	MEMORY, /* instead of aligned_alloc() */
	MADE,	/* all objects are there, the peer knows nothing yet */
	INITED, /* in INIT, receives are posted, the peer is known */
	UP,	/* in RTS, as the peer is, or so it says */
	FILLED, /* A: its request is ready to be posted */
	POSTED, /* A: it is posted, B: its turn to wait */
	STAGES
};

struct end;

struct scene {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t bytes; /* of a message */
	int count;	/* of messages */
	enum stage stage;
	void (*a)(struct end *end), (*b)(struct end *end); /* NULL: nothing */
	bool explains; /* what ends its wait, since no recorder can know */
};

/* What the ends tell each other. */
struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, psn, rkey;
};

struct end {
	char name; /* 'A', 'B' */
	const struct scene *scene;
	int socket;	      /* to the other process */
	bool careless;	      /* ignores the next error */
	const char *steps[2]; /* of connect_by_cm(), A's and B's; NULL: right */
	const char *hook;     /* a command that A runs ... */
	enum stage hooked;    /* ... there */
	uint32_t first_psn;
	uint32_t headroom; /* of a receive, for the GRH */
	uint8_t gid_index, timeout, retry_cnt, rnr_retry;
	struct ibv_context *context;
	struct ibv_pd *pd;
	char *buf;
	struct ibv_mr *mr;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mw *mw;
	struct explain_mr memory;     /* mr, as it was registered */
	struct explain_request known; /* of what it waits for */
	struct hello mine, peer;
	struct ibv_sge sge; /* of A's request, or of B's receive */
	struct ibv_send_wr wr;
	struct ibv_recv_wr recv;
};

/* ---- ends.c. What fails is said, as "A: CALL: ERRNO (n)", and ends the process. */

void say(const struct end *end, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The peer hears that this end is over; A waits until B is, too. */
_Noreturn void leave(const struct end *end, int code);

/* @call has returned this; of need(): NULL, and errno says why. */
void check(const struct end *end, const char *call, int err);
void need(const struct end *end, const char *call, const void *made);

void open_device(struct end *end);
void make_qp(struct end *end);
struct ibv_mr *make_mr(struct end *end, struct ibv_pd *pd, size_t length,
		       int access);

/* Print the cause as labs/faults/run does. */
void tell(const struct explanation *why);

/* One step, with the attributes that its transition needs. */
void modify(struct end *end, enum ibv_qp_state to);
void climb(struct end *end); /* from INIT to RTS */

void post_recv(struct end *end);
void post_send(struct end *end, struct ibv_send_wr *wr);
/* The next completion within WAIT_MS, which has to be a good one. */
struct ibv_wc await(struct end *end, struct ibv_cq *cq);

/* Tell the peer, and hear of it; meet() is the same without a word. */
void exchange(struct end *end);
void meet(struct end *end);

/* All of it, from ibv_get_device_list to ibv_close_device. */
void play(struct end *end);

/* refused.c: at MADE; read_from_the_start: at FILLED, of B. */
void ask_for_device_memory(struct end *end);
void ask_for_timestamps(struct end *end);
void forget_pd(struct end *end);
void arm_beyond_srq(struct end *end);
void be_interrupted(struct end *end);
void be_too_early(struct end *end);
void start_plain(struct end *end);
void write_unasked(struct end *end);
void start_twice(struct end *end);
void read_from_the_start(struct end *end);

/* cm.c: instead of the rest, at MEMORY: what its steps say. */
void connect_by_cm(struct end *end);

extern const struct scene scenes[]; /* scenes.c; the last has no name */

#endif
