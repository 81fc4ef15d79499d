/* SPDX-License-Identifier: MIT */
/*
 * recording.h - the file that the recorder leaves behind and qptrace reads.
 *
 * One header, then blocks of one size, in the order in which they were needed. The
 * file is mapped while the program runs (MAP_SHARED): what is written stands in it
 * at once, and outlives the program, however that ends. All numbers are the
 * writer's own: another endianness is refused by the reader.
 *
 * A control block holds events one behind the other, each of its own size: calls
 * that make, change or destroy an object, failures, and what only the process could
 * know then. They are all kept, up to CONTROL_BLOCKS blocks.
 *
 * One control block is the watcher's (qptrace-report --watch), a process of its own: what
 * it found where the program stood still is an event like the others.
 *
 * A block of threads holds what each thread does now.
 *
 * A ring block holds records of one thread, of one size: posts and completions.
 * Of these the newest are kept: when all blocks are in use, the oldest is taken.
 *
 * Readers go by the sizes in the header: what a later version adds at the end of a
 * head or a record is skipped by an older reader.
 */
#ifndef RECORDER_RECORDING_H
#define RECORDER_RECORDING_H

#include <stdatomic.h>
#include <stdint.h>

#define RECORDING_MAGIC	  "QPTRACE\n"
#define RECORDING_VERSION 3u
#define RECORDING_ENDIAN  0x01020304u

#define HEADER_SIZE    4096u
#define BLOCK_SIZE     (64u * 1024)
#define CONTROL_BLOCKS 256u /* 16 MiB */
#define QPN_BITS       8192u

struct recording_header {
	char magic[8];
	uint32_t version;
	uint32_t endian;
	uint32_t header_size; /* the first block begins here */
	uint32_t block_size;
	uint32_t block_head;  /* sizeof(struct block) */
	uint32_t event_head;  /* sizeof(struct event_head) */
	uint32_t record_size; /* sizeof(struct record) */
	int32_t pid;
	_Atomic uint32_t blocks; /* how many there are */
	uint32_t unused;
	_Atomic uint64_t events_lost;  /* over CONTROL_BLOCKS */
	_Atomic uint64_t records_lost; /* in blocks that were taken again */
	/*
	 * For the watcher. The recorder counts what has happened, then @told; @judged is
	 * the @told that the watcher has dealt with, and the recorder may wait for it.
	 */
	_Atomic uint32_t told, judged;
	_Atomic uint32_t failures; /* calls, completions, events */
	_Atomic uint32_t asked;	   /* SIGQUIT */
	_Atomic uint32_t over;	   /* it ends: 1; 2: not well */
	uint32_t watchers_block;   /* its index, and 1 */
	/*
	 * In the first recording of a command alone: the watcher sleeps on @wake, for all
	 * of them (futex); @others counts those that other processes began.
	 */
	_Atomic uint32_t wake, others;
	/* Bits: QPN modulo QPN_BITS of the QPs that were made, and of their peers. */
	_Atomic uint64_t qpns[QPN_BITS / 64], dest_qpns[QPN_BITS / 64];
};

enum block_kind {
	BLOCK_FREE, /* prepared, or being taken */
	BLOCK_CONTROL,
	BLOCK_RING,
	BLOCK_THREADS,
};

struct block {
	_Atomic uint32_t kind; /* enum block_kind */
	int32_t tid;	       /* ring: whose */
	uint64_t number;       /* counts all blocks that were ever taken */
	_Atomic uint64_t used; /* bytes of events, or records; set last */
	uint64_t next;	       /* the writer's own */
	uint64_t unused[4];
};

/* A call that another one ends has not been ended. */
enum slot_open {
	OPEN_WR = 1,   /* ibv_wr_start */
	OPEN_POLL = 2, /* ibv_start_poll */
};

/* What a thread does now. */
struct thread_slot {
	_Atomic int32_t tid;	 /* 0: free */
	_Atomic uint32_t open;	 /* bits of enum slot_open */
	_Atomic uint64_t polled; /* the CQ that it polled last: its address */
	_Atomic uint64_t polls;	 /* how often it polled and got nothing */
	_Atomic uint64_t sleeps; /* the channel that it sleeps on, or 0 */
	char in[32]; /* the other recorded call that it is in, or "" */
};

#define BLOCK_SLOTS \
	((BLOCK_SIZE - sizeof(struct block)) / sizeof(struct thread_slot))

/* An event; behind the head its members, to @size. */
struct event_head {
	uint32_t size; /* of all, a multiple of 8 */
	int32_t tid;
	uint64_t stamp; /* recording_stamp() when it began */
	uint64_t end;	/* and when it was over */
	uint64_t ns;	/* CLOCK_MONOTONIC when it was written, */
	uint64_t at;	/* the stamp of that, */
	int64_t wall;	/* and CLOCK_REALTIME less that, in ns */
};

/*
 * A member: this, the key (no NUL), the value; not aligned. The first member of an
 * event is "ev", its name.
 */
enum member_type {
	MEMBER_NUMBER = 'n', /* uint64_t */
	MEMBER_SIGNED = 'i', /* int64_t */
	MEMBER_HEX = 'x',    /* uint64_t, to be shown as "0x..." */
	MEMBER_TEXT = 's',   /* bytes without NUL */
	MEMBER_OBJECT = 'o', /* struct member_object; its id is shown */
};

struct member_head {
	uint8_t type; /* enum member_type */
	uint8_t key_size;
	uint16_t size; /* of the value */
};

enum object_kind {
	OBJECT_CONTEXT,
	OBJECT_PD,
	OBJECT_MR,
	OBJECT_CHANNEL,
	OBJECT_CQ,
	OBJECT_SRQ,
	OBJECT_QP,
	OBJECT_AH,
	OBJECT_CM_ID,
	OBJECT_MW,
	OBJECT_KINDS
};

struct member_object {
	uint32_t kind; /* enum object_kind */
	uint32_t id;   /* counts from 1 for each kind; 0: not known */
	uint64_t pointer, context;
};

enum record_kind {
	RECORD_POST_SEND,
	RECORD_POST_RECV,
	RECORD_POST_SRQ_RECV,
	RECORD_POST_FAILED, /* wr_id and n of the WR that was refused */
	RECORD_COMPLETION,
	RECORD_ARM,	 /* req_notify_cq */
	RECORD_CQ_EVENT, /* a thread slept in get_cq_event and got one */
	RECORD_ACK,	 /* ack_cq_events */
};

/* What is not said of a completion: the caller did not ask the CQ for it. */
#define RECORD_NO_LENGTH UINT32_MAX
#define RECORD_NO_QPN	 UINT32_MAX

/* Every member is set, 0 if it has nothing to say. */
struct record {
	uint64_t stamp; /* recording_stamp() */
	uint64_t wr_id;
	uint64_t addr; /* first SGE, or inline data */
	uint64_t remote_addr;
	uint64_t object; /* the QP, SRQ, CQ that was called: its address */
	uint32_t qpn;	 /* completions; posts: lkey of the first SGE */
	uint32_t length; /* bytes, all SGEs together */
	uint32_t rkey;	 /* UD: the peer's Q_Key; completions: vendor_err */
	uint32_t remote; /* UD: the peer's QPN */
	uint16_t flags;	 /* enum ibv_send_flags, enum ibv_wc_flags */
	uint8_t kind;	 /* enum record_kind */
	uint8_t opcode;	 /* enum ibv_wr_opcode, enum ibv_wc_opcode */
	uint8_t status;	 /* enum ibv_wc_status; failed post: errno */
	uint8_t num_sge;
	uint16_t unused;
};

#define BLOCK_RECORDS \
	((BLOCK_SIZE - sizeof(struct block)) / sizeof(struct record))

_Static_assert(sizeof(struct block) == 64 && sizeof(struct record) == 64 &&
		       sizeof(struct thread_slot) == 64,
	       "a record is a cache line");

#endif
