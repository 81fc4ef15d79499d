/* SPDX-License-Identifier: MIT */
/*
 * rule.h - what the saboteur is told: one change of one call.
 *
 *	CALL[:WHICH]:CHANGE	modify_qp:RTR:path_mtu=1   post_send:3:rkey^1
 *				reg_mr:access-REMOTE_WRITE   poll:2+:skip   tcp:lose
 *
 * WHICH is the number of the call, from 1 on (the default), "3+" for the third and
 * all after it; of modify_qp also a state: the first call that goes there. CHANGE
 * is FIELD and what is done to it (=V +V -V ^V <<V >>V, ~ swaps its bytes; +NAME
 * and -NAME a bit), or one of the words
 *
 *	skip	the call is forgotten: it seems to have worked
 *	twice	it is made a second time
 *	early	(reg_mr) what was registered is deregistered at once
 *	lose	(tcp) the last byte never leaves
 *	kill	the process is killed before it
 *	sleep=S	it sleeps for S seconds before it
 */
#ifndef SABOTEUR_RULE_H
#define SABOTEUR_RULE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call {
	CALL_MODIFY_QP,
	CALL_CREATE_QP,
	CALL_CREATE_CQ,
	CALL_CREATE_SRQ,
	CALL_CREATE_AH,
	CALL_REG_MR,
	CALL_DEREG_MR,
	CALL_DESTROY_QP,
	CALL_DESTROY_CQ,
	CALL_POST_SEND,
	CALL_POST_RECV,
	CALL_POST_SRQ_RECV,
	CALL_POLL,
	CALL_ARM,
	CALL_ACK,
	CALL_RESOLVE_ADDR,
	CALL_RESOLVE_ROUTE,
	CALL_LISTEN,
	CALL_CONNECT,
	CALL_ACCEPT,
	CALL_ACK_CM,
	CALL_DISCONNECT,
	CALL_TCP,
	CALLS,
};

/* What the fields of a call are fields of. Of others: no fields. */
struct modify_args {
	struct ibv_qp_attr attr;
	int mask;
};
struct cq_args {
	int cqe;
	int comp_vector;
	struct ibv_comp_channel *channel;
};
struct mr_args {
	void *addr;
	size_t length;
	unsigned int access;
};
struct send_args {
	struct ibv_send_wr wr; /* the first of the list */
	struct ibv_sge sge;    /* and its first SGE */
};
struct recv_args {
	struct ibv_recv_wr wr;
	struct ibv_sge sge;
};
struct arm_args {
	int solicited;
};
struct ack_args {
	unsigned int events;
};
struct resolve_args {
	uint16_t port; /* as on the wire: ~ swaps it */
	int timeout;
};
struct rdma_conn_param { /* of librdmacm, whose header may not be there */
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth;
	uint8_t flow_control, retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

enum deed {
	DO,
	SKIP,
	TWICE,
	EARLY,
	LOSE
};

struct rule;

/*
 * The rule that @text says. NULL: it is wrong, and *@wrong says what (one
 * sentence), and *@next what would be right.
 */
const struct rule *rule_parse(const char *text, const char **wrong,
			      const char **next);

/* Print all calls and their fields. */
void rule_list(void);

/* The process's rule, from $SABOTAGE; NULL: none. */
const struct rule *rule_mine(void);

/*
 * One more @call is about to be made (modify_qp: to @state). True if it is the one
 * that the rule means.
 */
bool rule_hits(enum call call, enum ibv_qp_state state);

/*
 * Do to @args what the rule says, and say so on stderr or in $SABOTAGE_LOG.
 * Returns what the caller has to do with the call.
 */
enum deed rule_strike(void *args);

/* The rule is about @call, and this is what it says. Counts nothing. */
bool rule_is(enum call call, enum deed deed);

/* rule_hits(), and then rule_strike(). */
enum deed rule_apply(enum call call, void *args);

/* Is the rule's field, of rule_hits()'s call, in @from ... @to - 1 of the args? */
bool rule_is_in(size_t from, size_t to);

#endif
