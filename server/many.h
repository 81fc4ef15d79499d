/* SPDX-License-Identifier: MIT */
/*
 * many.h - rdma_server --many: up to a thousand rdma_clients at once, of one SRQ, one
 * CQ and one thread.
 */
#ifndef SERVER_MANY_H
#define SERVER_MANY_H

#include "base/event_loop.h"
#include "pair/options.h"
#include "rdma_common.h"

#include <sys/queue.h>

/* In this order; a client that fails goes to LEAVING from wherever it is. */
enum client_state {
	HELLO, /* a stranger, until that is right */
	DATA,
	RESOLVING, /* a thread brings its QP to RTS */
	READY,
	PLAN,
	SERVING,
	LEAVING, /* its QP is in ERR, and is destroyed when it is still */
	DRAINING /* the QP is gone; the client reads why */
};

struct client {
	struct many *many;
	LIST_ENTRY(client) all;
	TAILQ_ENTRY(client) busy; /* has a backlog */
	unsigned int number;	  /* 1, 2, ...: never twice */
	char name[64];		  /* address and port */
	enum client_state state;
	int sock;
	struct event_source tcp;
	struct timer timer; /* of what it has to do next */
	union {
		struct hello hello;
		struct cm_con_data_t data;
		struct sync_msg sync;
		struct plan_msg plan;
	} in; /* what of it has come, @have bytes */
	size_t have;
	struct rdma_resources res; /* its QP; the rest is borrowed */
	bool place;		   /* it has one */
	bool resolving;		   /* the thread has not come back */
	bool last_wqe;		   /* its QP takes no more receives */
	bool done;		   /* it has met us at SYNC_DONE */
	bool told;		   /* nothing more is to be said to it */
	bool drain;		   /* it has to read why it goes */
	int rc;			   /* -errno: why it goes, or the thread's */
	/* many_messages.c */
	struct measure_plan plan;
	uint32_t size;	      /* of its messages */
	uint64_t received;    /* taken from the backlog, and right */
	uint32_t answers;     /* posted, and not completed */
	uint32_t backlog;     /* messages that wait for their turn */
	uint32_t first, last; /* their slots */
	bool put_off;	      /* waits longer after an RNR NAK */
	int64_t heard;	      /* the last completion, ns */
};

/* A slot that is with nobody, and in no queue, is in free[]. */
struct slot {
	struct client *holder;	 /* it lies in its backlog, or answers it */
	TAILQ_ENTRY(slot) order; /* posted to the SRQ, the first one first */
	int64_t overtaken; /* ns: when one behind it had completed; 0: no */
	uint32_t length;
	uint32_t next; /* in the backlog */
};

struct many {
	const struct rdma_options *opt;
	struct event_loop loop;
	struct shared_queues shared;
	struct event_source listen, channel, async, resolved, again;
	int sock;	   /* that listens */
	int wake;	   /* eventfd of again */
	int pipe[2];	   /* clients, from the threads */
	struct timer rest; /* after accept() failed */
	LIST_HEAD(, client) clients;
	TAILQ_HEAD(, client) busy;
	unsigned int number;	/* of the last client */
	unsigned int places;	/* taken */
	unsigned int strangers; /* who have none */
	unsigned int threads;	/* that resolve */
	unsigned int leaving;
	struct slot *slots;
	TAILQ_HEAD(, slot) order;
	uint32_t *free;
	uint32_t free_count;
	uint32_t posted; /* in the SRQ, or in the CQ and not yet seen */
	uint32_t low;	 /* the SRQ's limit */
	bool dry;	 /* it was reached */
	bool rxe;	 /* the device may lose receives */
	bool doubt;	 /* it may have lost one */
	unsigned int qps;
	int rc; /* -errno: nobody can be served any more */
	struct {
		uint64_t messages;
		unsigned int served, failed, turned_away, put_off, limits, lost;
	} count;
};

/* ---- many.c */

/* Serve rdma_clients until the user stops the program. 0, or 1 (reported). */
int serve_many(const struct rdma_options *opt);

/* ---- many_messages.c: received, answered in turn */

/* The plan is known: what comes now is a message. */
void serve_client(struct client *client, const struct plan_msg *plan);

/* A deliver_function. */
void deliver(void *many, void *client, const struct ibv_wc *wc);

/* A turn for each client that has a backlog; and receives for the SRQ. */
void take_turns(struct many *many);

/* ---- many_client.c: what is said to a client, and how it goes */

/* From now on see what it says, in its state; and how long it has. */
void listen_to(struct client *client);
void set_timer(struct client *client, int ms);

/* Bytes to its TCP connection, few enough for an empty buffer; or @step of stage 4. */
void client_send(struct client *client, const void *data, size_t size);
void client_meet(struct client *client, enum sync_step step, int status);

/*
 * It has to go: with @rc, which it is told if there is still something to tell; 0: all
 * is done. It stays until its QP is still: then part() destroys the QP, and the client,
 * if it need not read why.
 */
void client_leave(struct client *client, int rc);
void part(struct client *client);

/* Its QP to ERR, and a moment for what is outstanding. */
void still_client(struct client *client);

/* It is gone: close and free it. */
void forget(struct client *client);

/* Meet it at SYNC_DONE if all is done; it leaves if it is there, too. */
void check_done(struct client *client);

/* ---- many_slots.c: each is free, in the SRQ, or with a client */

/* All of them, free or posted. -errno (reported). Undone by slots_close(). */
int slots_open(struct many *many);
void slots_close(struct many *many);

void free_slot(struct many *many, uint32_t slot);

/* Post what is free, if the SRQ runs low. */
void refill(struct many *many);

/* @completed has come back from the SRQ; find those that never will. */
void overtake(struct many *many, struct slot *completed);
void find_lost(struct many *many);

/* There is no QP: begin again, with an empty SRQ and all slots. */
void renew_slots(struct many *many);

/*
 * Take back what @client holds: the messages that wait; and, when its QP is gone, the
 * answers that have not completed.
 */
void drop_backlog(struct client *client);
void slots_take_back(struct client *client);

#endif
