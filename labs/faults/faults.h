/* SPDX-License-Identifier: MIT */
/*
 * faults.h - the catalogue of mistakes: each is made once, for real, and the
 * explainer must name its cause first.
 *
 * A fault gets two ends, A on the first RDMA device and B on the second (on the
 * first again if there is no other), brought as far as it asks for. It makes
 * its mistake, and records what a program sees and what the explainer says, by
 * one of the try_...() and wait_...() functions below. Each fault runs in a
 * process of its own, which the kernel cleans up after.
 */
#ifndef LABS_FAULTS_FAULTS_H
#define LABS_FAULTS_FAULTS_H

#include "explain/explain.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE	     4096
#define BUFFER_BYTES 65536 /* of each end */
#define MOST_MRS     4
#define WAIT_MS	     600 /* longer than all retries of the usual plan */
#define WRITABLE     (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* One end. What is told to ibv_modify_qp is taken from plan. */
struct end {
	const char *name; /* "A", "B" */
	struct ibv_context *context;
	uint8_t port;
	uint8_t gid_index;
	union ibv_gid gid;
	struct ibv_pd *pd;
	char *buf; /* BUFFER_BYTES, page-aligned */
	struct ibv_mr *mr;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_qp_attr plan;  /* change before connecting */
	struct explain_side side; /* what the QP was told so far */
	struct explain_mr mrs[MOST_MRS];
	size_t n_mrs;
};

struct rig {
	struct end a, b;
	/* what A posts, and B's receive: fill with prepare_...(), then change */
	struct ibv_send_wr send;
	struct ibv_sge send_sge;
	struct ibv_recv_wr recv;
	struct ibv_sge recv_sge;
	/* the outcome */
	char saw[256]; /* what the program saw, in its own terms */
	struct explanation why;
};

/* How far the ends are brought before the fault runs. */
enum ready {
	READY_NOT,	 /* no device is touched */
	READY_OPEN,	 /* devices, PDs, buffers, MRs, CQs */
	READY_RESET,	 /* and RC QPs, in RESET; the plans know each other */
	READY_INIT,	 /* both in INIT */
	READY_RTR,	 /* and A in RTR */
	READY_CONNECTED, /* both in RTS */
};

struct fault {
	const char *name;    /* the symptom's slug */
	const char *mistake; /* what a person does wrong */
	const char *saw;     /* extended regex: what the program must see,
				but see elsewhere[] in main.c */
	const char *cause;   /* the explanation's id, or ids: "one|other" */
	enum ready ready;
	void (*run)(struct rig *rig);
	const char *undo; /* it changes the machine: the way back, for sh */
};

/* A row of the tables below, of a fault that leaves the machine as it was. */
// clang-format off
#define ROW(name, mistake, saw, cause, ready, run) \
	{ name, mistake, saw, cause, READY_##ready, run, NULL }
// clang-format on

/*
 * What many faults do: nothing but the mistake; a good step s of A's, which @change
 * spoils; a good request of A's; a SEND for which B has posted a receive; a request
 * after a @change of the plans.
 */
#define FAULT(function, mistake)              \
	static void function(struct rig *rig) \
	{                                     \
		mistake;                      \
	}
#define WRONG_STEP(function, right_step, change)     \
	static void function(struct rig *rig)        \
	{                                            \
		struct step s = right_step(&rig->a); \
                                                     \
		change;                              \
		try_step(rig, s);                    \
	}
#define WRONG_MESSAGE(function, length, change)         \
	static void function(struct rig *rig)           \
	{                                               \
		prepare_send(rig, IBV_WR_SEND, length); \
		post_recv(rig, length);                 \
		change;                                 \
		try_send(rig);                          \
	}
#define WRONG_SEND(function, opcode, length, change) \
	static void function(struct rig *rig)        \
	{                                            \
		prepare_send(rig, opcode, length);   \
		change;                              \
		try_send(rig);                       \
	}
#define WRONG_PLAN(function, opcode, length, change) \
	static void function(struct rig *rig)        \
	{                                            \
		change;                              \
		connect_ends(rig);                   \
		prepare_send(rig, opcode, length);   \
		try_send(rig);                       \
	}

/* The groups, each ended by a fault without a name. */
extern const struct fault modify_faults[], memory_faults[], queue_faults[],
	completion_faults[], one_sided_faults[], stall_faults[],
	network_faults[], exchange_faults[];

/* ---- the ends (rig.c). All end the process with 77 or 2 if they cannot. --- */

void rig_prepare(struct rig *rig, enum ready ready);

/* Make (again) the QP of one end or of both, of @type. */
void make_qp(struct end *end, enum ibv_qp_type type, bool sq_sig_all);
void make_qps(struct rig *rig, enum ibv_qp_type type, bool sq_sig_all);

/* Let each end's plan name the other: QPN, PSN, GID. */
void introduce(struct rig *rig);

/*
 * A further MR at the begin of @end's buffer, which the explainer will know; one of
 * a page, in a PD of its own.
 */
struct ibv_mr *add_mr(struct end *end, size_t length, int access);
struct ibv_mr *add_foreign_mr(struct end *end, int access);

/* One call of ibv_modify_qp, by the plan of an end. */
struct step {
	struct ibv_qp_attr attr;
	int mask;
};
struct step step_init(const struct end *end);
struct step step_rtr(const struct end *end);
struct step step_rts(const struct end *end);
struct step step_state(enum ibv_qp_state state); /* nothing but the state */

/* It must work. */
void do_step(struct end *end, struct step step);

/* By their plans: one end from INIT to RTS, both from RESET to RTS. */
void connect_end(struct end *end);
void connect_ends(struct rig *rig);

/* Be an ordinary user from now on. False: it did not work. */
bool become_nobody(void);

/* ---- making the mistake, and recording what came of it -------------------- */

/* "CALL: EINVAL (22)", or "CALL: 0" */
void saw_error(struct rig *rig, const char *call, int err);

/*
 * ibv_modify_qp of A's QP. If it is refused: why; if it is taken: the first warning
 * of explain_accepted().
 */
void try_step(struct rig *rig, struct step step);

/* A's request in rig->send, from the begin of its buffer to B's. */
void prepare_send(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t length);

/* B's receive in rig->recv, posted; it must work. */
void post_recv(struct rig *rig, uint32_t length);

/* Post rig->send: 0, or it is recorded why not. */
int try_post(struct rig *rig);

/* try_post(), then wait for its completion and record how it ended. */
void try_send(struct rig *rig);

/* The same of a message of @length bytes for which B has posted a receive. */
void send_message(struct rig *rig, uint32_t length);

/*
 * Wait for A's send, or B's receive, for @ms, and record how it ended. Or for
 * @request of @qp, in @cq, by what it tells the explainer: true if it ended well.
 */
void wait_send(struct rig *rig, int ms);
void wait_recv(struct rig *rig, int ms);
bool wait_for(struct rig *rig, struct ibv_qp *qp, struct ibv_cq *cq,
	      const struct explain_request *request, int ms);

/* The next completion of @cq within @ms; false: none came. */
bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms);

/* Run a shell command that must work ("ip link set veth0 down"). */
void shell(const char *command);

#endif
