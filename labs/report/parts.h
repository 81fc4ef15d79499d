/* SPDX-License-Identifier: MIT */
/*
 * parts.h - what the files of this room share: the events of some recordings on one
 * time line, their QPs, and which send caused what.
 *
 * The sides are called A, B and on. Everything lives until the program ends. Of an
 * event only what links it to others is kept; the rest stays in the file, and is
 * read again for what is shown.
 */
#ifndef LABS_REPORT_PARTS_H
#define LABS_REPORT_PARTS_H

#include "explain/explain.h"
#include "recording.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_SIDES  UINT16_MAX
#define WIRE_SIDES 2

enum event_class {
	CLASS_CONTROL, /* calls, events, start and exit */
	CLASS_POST_SEND,
	CLASS_POST_RECV, /* SRQs' too */
	CLASS_COMPLETION,
	CLASS_QUIET,   /* arm, cq_event */
	CLASS_FAILURE, /* anything that has a cause to tell */
};

#define NOWHERE UINT32_MAX

/* There are millions of them: mind the order of its members. */
struct event {
	int64_t t;		      /* ns since the first event of all */
	const char *ev, *op, *status; /* its members; "": not said */
	struct place place;	      /* where it stands in the file */
	uint32_t line;		      /* which one it is, counted from 1 */
	uint32_t qp;		      /* id within its process, 0: none */
	uint32_t n, of;		      /* its members; 0: not said */
	uint32_t remote_qpn;	      /* the same */
	uint32_t cause;	   /* a completion: index of its post, or NOWHERE */
	uint32_t arrival;  /* a send: index of the peer's completion */
	uint32_t complete; /* a post: index of its completion */
	uint32_t owner;	   /* a record: id of the QP, SRQ or CQ called */
	uint32_t qpn, cq;  /* of its QP; a completion: of which CQ */
	uint16_t side;
	uint8_t class;	     /* enum event_class */
	uint8_t owner_kind;  /* enum object_kind */
	uint8_t refused : 1; /* a post that the driver did not take */
	uint8_t gone : 1; /* its QP was reset or destroyed before it completed */
	uint8_t late : 1; /* its owner was destroyed before */
	uint8_t kept : 1; /* is part of the report, not left out */
};

/* Some of all events, by time: their indexes. */
struct list {
	uint32_t *at;
	size_t count;
};

/* Each of them in turn; @i: its index. */
#define EACH(i, list)                                                  \
	for (size_t k_##i = 0, i;                                      \
	     k_##i < (list)->count && ((i) = (list)->at[k_##i], true); \
	     k_##i++)

/* Each side that @s talks to. */
#define EACH_OTHER(o, r, s)                                              \
	for (int k_##o = 0, o; k_##o < (int)(r)->side[s].other_count &&  \
			       ((o) = (r)->side[s].others[k_##o], true); \
	     k_##o++)

struct qp {
	int side;
	uint64_t id, qpn;
	const char *type, *dev;
	json_t *first;	  /* the line that told of it */
	json_t *believes; /* "dest_qpn", "rq_psn", "sgid", ... last set */
	size_t sends, receives, completions, bad; /* counts */
	struct qp *peer;
	struct list own; /* its events */
};

struct side {
	const char *path;
	struct recording rec;
	json_t *start; /* its first event, or NULL */
	int64_t shift; /* added to its monotonic times, ns */
	int64_t first, last;
	size_t events, lost; /* read; what is missing of the file */
	size_t gone;	     /* records that others took the place of */
	bool ended;	     /* it told of its end: it returned or exited, */
	int code;	     /* with this exit code; -1: not known */
	bool signalled;	     /* or that a signal ends it */
	bool runs;	     /* it is known to run still, */
	bool stands;	     /* and has stopped for long */
	bool shown;	     /* in the text and on the page */
	char name[32];	     /* "A" */
	struct list own;     /* its events */
	int *others;	     /* whom it talks to: their indexes */
	size_t other_count;
	uint32_t *qps; /* by id: index of the QP, and 1 */
	size_t qps_end;
};

/* A memory region of one side, and from when to when it was there. */
struct region {
	int side;
	uint64_t id; /* within its process */
	int64_t born, died;
	struct explain_mr mr;
};

/* ---- what is wrong ---- */

enum cause_kind {
	CAUSE_FAILURE,	 /* a call, a completion or an event said so */
	CAUSE_STALL,	 /* somebody waits for ever; for what */
	CAUSE_HINT,	 /* somebody waited; what it may have waited for */
	CAUSE_WARNING,	 /* was taken, and may hurt later */
	CAUSE_AFTERMATH, /* follows from another failure that is known */
	CAUSE_KINDS,
};

/* What was said about one QP (or none) of one side with one id. */
struct cause {
	enum cause_kind kind;
	int side;
	uint64_t qp;	 /* id within its process, 0: none */
	char id[64];	 /* of the explainer, or the name of the errno */
	char told[64];	 /* the same, as it was told: before it was judged */
	json_t *line;	 /* that told it first */
	size_t event;	 /* index of that */
	size_t times;	 /* how often it was told */
	size_t proof[3]; /* what it is about, by time: a post, its completion */
	size_t proofs;
	bool proven; /* of several, this one is it */
	bool over;   /* a wait that came to its end, and so did all sides */
};

struct causes {
	struct cause *items;
	size_t count;
};

struct watcher;

struct report {
	int sides;
	struct side *side;
	struct event *events; /* by time */
	size_t count;
	int64_t zero; /* CLOCK_MONOTONIC of the first side at t 0, ns */
	struct qp *qps;
	size_t qp_count;
	struct region *regions;
	size_t region_count;
	struct causes causes; /* ranked: the first is to be mended first */
	size_t left_out;
	json_t *words; /* what ev, op and status of all events point to */
	bool chinese;  /* the reader wants it */
	/* Who watches them while they are written (live.h): sides are called by their pids. */
	const struct watcher *by;
};

/* ---- words.c ---- */

/*
 * @text, one WORD of causes.def, in the reader's language: itself, or written
 * to @out.
 */
#define WORD_SIZE 4096
const char *report_word(const struct report *r, char out[WORD_SIZE],
			const char *text);

/* The same with what @line says in words. */
void report_speak(const struct report *r, json_t *line);

/* ---- load.c ---- */

/* 0, or -1 (reported) */
int report_load(struct report *r, char **paths, int count);

/* ---- lines.c ---- */

/* The event as a line of "qptrace dump", to be given back. */
json_t *event_line(const struct report *r, const struct event *event);

/* All of them, to stdout; with the causes @in_words. 0, or -1 */
int report_dump(const struct report *r, bool in_words);

/* Words for a record: "post_send"; "RDMA_READ" or ""; "SUCCESS". */
const char *record_name(const struct record *record);
const char *record_op(const struct record *record);
const char *record_status(const struct record *record);

/* Members of a line. Defaults: 0, "". */
uint64_t number_in(const json_t *line, const char *key);
const char *text_in(const json_t *line, const char *key);

/* The same of the event's line: the number; does it say @text? */
uint64_t event_number(const struct report *r, const struct event *event,
		      const char *key);
bool event_says(const struct report *r, const struct event *event,
		const char *key, const char *text);

/* ---- model.c ---- */

/* QPs, peers, which send caused what. 0, or -1 (reported) */
int report_build(struct report *r);

/* With the causes: mark what is shown: @all, or not more than fits a page. */
void report_choose(struct report *r, bool all);

/* A post, a completion, or what is about a CQ: many, and much alike. */
bool is_data(const struct event *event);

/* A completion that went well; a receive that has completed. */
bool went_well(const struct event *event);
bool is_arrival(const struct event *event);

/* A send that takes a receive of the peer's; the same, and it did not fail. */
bool takes_receive(const struct event *e);
bool delivers(const struct report *r, const struct event *post);

/* It has not ended well. */
bool came_to_nothing(const struct report *r, const struct event *post);

/* One row of what both sides of a connection believe. */
struct belief {
	char what[96];
	char a[64], b[64]; /* as text; "": not said */
	bool differs;
};
#define MAX_BELIEFS 16
/* Of @a and its peer. Returns how many. */
size_t report_beliefs(const struct report *r, const struct qp *a,
		      struct belief rows[MAX_BELIEFS]);

/* ---- peers.c: QPs that are meant for each other, sides that talk, whose events ---- */

/* The QP of a side with this id, or NULL. @event is of @qp. */
struct qp *qp_of(const struct report *r, int side, uint64_t id);
bool is_of(const struct event *event, const struct qp *qp);

void report_pair(struct report *r);
void report_acquaint(struct report *r);
int report_lists(struct report *r); /* 0, or -1 (reported) */

/* What it was told, as a number; -1: nothing. */
int64_t qp_believes(const struct qp *qp, const char *key);

/* The GID @key of what it believes; false: none. */
bool gid_in(const struct qp *qp, const char *key, union ibv_gid *gid);

/* ---- world.c: for the explainer, what it would ask the program ---- */

/* A member that is a number, or the text of one ("0x1f"). */
uint64_t value_in(const json_t *line, const char *key);

/* Reads all memory regions of both sides. */
void world_regions(struct report *r);

/* A work request as it was posted. */
struct recalled {
	bool is_send;
	uint64_t sges;	    /* of several, the MRs are not known */
	struct ibv_sge sge; /* the first; the bytes of all */
	struct ibv_send_wr send;
	struct ibv_recv_wr recv;
};
void world_recall(const struct report *r, const struct event *post,
		  struct recalled *out);

/* What the explainer is told of a request; @own and @others are to be freed. */
struct asked {
	struct ibv_qp like;
	struct explain_side mine, theirs;
	struct explain_mr *own, *others;
	struct recalled wr, met; /* the request; the peer's receive */
	struct ibv_mr bound;	 /* of a window */
	struct explain_request rq;
	char names[2][80];
};
void world_request(const struct report *r, const struct qp *qp,
		   const struct event *post, int64_t t, struct asked *out);

/* "A's QP 17 (rxe0)" */
const char *world_name(const struct report *r, char *out, size_t size,
		       const struct qp *qp);

/*
 * Why @post (NULL: any) of @qp ended with @status at @t, by what both recordings
 * tell. Nothing (no cause) if they do not prove it.
 */
struct explanation world_explain(const struct report *r, const struct qp *qp,
				 const struct event *post, int64_t t,
				 enum ibv_wc_status status);

/* ---- causes.c ---- */

/* What all recordings prove together, and what follows from what (blame.c). */
void report_blame(const struct report *r, struct causes *all);

/* @id names no single cause. */
bool cause_is_vague(const char *id);

/*
 * Fills r->causes: by kind, and those of one kind by time; so the first is what is to be
 * mended first, as far as the recordings tell. Text, page and JSON show this list.
 */
void report_judge(struct report *r);

/* The rank, from 1, of the cause that @event told of; 0: it told of none. */
size_t cause_rank(const struct report *r, const struct event *event);

/* Somebody is to blame; not only perhaps, or later, or because of another. */
bool cause_is_sure(const struct cause *cause);

/*
 * ---- json.c ----
 *
 * To stdout, one object, which a script may rely on; members are only ever added
 * unless "schema" grows:
 *
 *	schema	  1
 *	sides	  [{side: "A", path, program, command, host, pid, events,
 *		    cut: parts of it are missing,
 *		    posts: work requests it posted, arrived: sends of them
 *		    whose receive is in the other recording}]
 *	causes	  [{rank: 1 ..., id, kind: "failure", "stall", "hint",
 *		    "warning" or "aftermath", certainty: "cause" or "hint",
 *		    side: "A", qpn, call, error: "EINVAL" or
 *		    "REM_ACCESS_ERR", cause, next, seen: [], times,
 *		    events: [{side, line, t, ev, text}]}]
 *	differs	  [{a: QPN, b: QPN, a_side, b_side, what, a_says, b_says}]
 *
 * A cause has the first seven, times and events always, the others where they are
 * known. An id in lower case is a cause that the explainer names, one of those in
 * common/explain/causes.def; in capitals it is the errno or the status, of which no
 * cause was proven. Of events the first told it; the others are its proof: line
 * counts from 1 in that side's file, t is in ns since the first event of all. Texts
 * are in the reader's language.
 */
int report_as_json(const struct report *r);

/* Its member "causes". */
json_t *report_causes_as_json(const struct report *r);

/* ---- text.c, html.c ---- */

/*
 * One line of words: "ibv_modify_qp QP 17 INIT -> RTR ...". Returns what it is made
 * of, the event's line in the reader's language: to be given back.
 */
#define DESCRIBED_SIZE 600
json_t *event_describe(const struct report *r, const struct event *event,
		       char out[DESCRIBED_SIZE]);

/* To stdout, the causes first; unless @all, a long time line comes without its middle. */
void report_as_text(const struct report *r, bool all);
int report_as_html(const struct report *r, const char *template_path,
		   const char *path);

/* ---- pcap.c: the capture @from as @to, a pcapng with the calls of each packet ---- */
int report_annotate(const struct report *r, const char *from, const char *to);

/* A .pcap of Ethernet; its packets, one after another. */
#define PACKET_MOST 65536u /* bytes of one */
struct capture {
	FILE *file;
	uint32_t head[6], packet[4]; /* as in the file: seconds, parts, sizes */
	uint64_t scale;		     /* parts of a second */
	uint8_t data[PACKET_MOST];
};
int capture_open(struct capture *c, const char *path); /* 0, or -1, reported */
bool capture_next(struct capture *c);

/* What a RoCE v2 packet says. */
#define PSN_MASK 0xffffffu
struct packet {
	unsigned int opcode, qpn, psn;
	unsigned int syndrome; /* of an answer that has an AETH */
	unsigned int ecn, id;  /* of the IP header */
	uint32_t bytes;	       /* behind the BTH; a READ request: asked for */
	char from[46], to[46]; /* as GIDs */
};

/* False: it is none. An answer: an ACK, or what READs and atomics bring. */
bool packet_parse(const uint8_t *data, size_t size, struct packet *p);
bool packet_is_answer(const struct packet *p);

/* What a QP has sent: post i, posts[i] of the events, began with start + first[i]. */
struct flow {
	const struct qp *qp;
	uint32_t start, all, mtu;
	uint32_t *first;
	size_t *posts;
	size_t count;
};
struct flow *flows_of(const struct report *r); /* one for each QP */

/* The post that @p is a part of, or answers; NULL: none of these. */
const struct event *packet_post(const struct report *r,
				const struct flow *flows,
				const struct packet *p);

/*
 * ---- wire.c: what A called, the packets of the capture @path, and what B called,
 * on one time line, to stdout. The clocks of both sides are set by the packets.
 * 0; or -1, reported: none of the packets is of these recordings.
 */
int report_wire(const struct report *r, const char *path);

/* ---- perfetto.c: a trace of all work requests for ui.perfetto.dev ---- */
int report_as_perfetto(const struct report *r, const char *path);

#endif
