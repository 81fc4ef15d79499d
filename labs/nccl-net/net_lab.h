/* SPDX-License-Identifier: MIT */
/*
 * net_lab.h - what the files of the lab's NCCL net plugin share.
 *
 * The plugin moves host memory over plain TCP. It is built for any user of the
 * ABI in common/tcpx/nccl_net.h, stands on libc alone and exports nothing but the
 * four tables ncclNetPlugin_v5 ... ncclNetPlugin_v8.
 *
 *	plugin.c	the tables, one wrapper per version where they differ
 *	connect.c	the handle, listen, connect, accept
 *	transfer.c	isend, irecv, test; the sender's progress
 *	receive.c	the receiver's progress: credits, frames
 *	comm.c		a connection: made, told from others, closed; what is done
 *			of the frames on its sockets
 *	device.c	network interfaces as devices; the user's logger
 *
 * Each stands on those below it, and on no other.
 *
 * Every function returns an enum nccl_result, logs a failure once, and sets its
 * outputs only on success (a NULL comm or request with 0: call again).
 *
 * Threads: different comms may be used by different threads at the same time, a
 * comm and its requests by one thread at a time. init comes before all else.
 *
 * Environment:
 *	NCCL_SOCKET_IFNAME	which interfaces, read by the first init
 *	NCCL_LAB_NSOCKS		data sockets of a comm, 1 ... 8, default 2; read
 *				by connect, the other side follows
 *
 * On the wire, all integers big-endian. A connection is a control socket and
 * 1 ... 8 data sockets, each of them opened by the sender:
 *
 *	every socket	sender -> receiver	one struct lab_hello
 *	control		receiver -> sender	credits (struct lab_credit)
 *	data		sender -> receiver	frames (struct lab_frame, payload)
 */
#ifndef LABS_NCCL_NET_NET_LAB_H
#define LABS_NCCL_NET_NET_LAB_H

#include "tcpx/nccl_net.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAB_VERSION	 1 /* of the wire and of the handle */
#define LAB_MAX_DEVICES	 32
#define LAB_MAX_REQUESTS 16 /* outstanding per comm */
#define LAB_MAX_STREAMS	 8  /* data sockets per comm */
#define LAB_MAX_COMMS	 65536
#define LAB_STASH	 4096 /* bytes read ahead on a data socket */

#define LAB_HELLO_MAGIC	 0x4c414248u /* "LABH" */
#define LAB_CREDIT_MAGIC 0x4c414243u /* "LABC" */
#define LAB_FRAME_MAGIC	 0x4c414246u /* "LABF" */

/* The user's logger, given to init; NULL: silence. Lines have no newline. */
extern nccl_logger_t lab_logger;

#ifdef __FILE_NAME__
#define LAB_FILE __FILE_NAME__
#else
#define LAB_FILE __FILE__
#endif

#define LAB_LOG(level, flags, ...)                                           \
	(lab_logger                                                          \
		 ? lab_logger(level, flags, LAB_FILE, __LINE__, __VA_ARGS__) \
		 : (void)0)
#define LAB_WARN(...) LAB_LOG(NCCL_LOG_WARN, NCCL_INIT | NCCL_NET, __VA_ARGS__)
/* The same, and what to return: @rc. */
#define LAB_REFUSE(rc, ...) (LAB_WARN(__VA_ARGS__), (rc))
#define LAB_INFO(...)	    LAB_LOG(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __VA_ARGS__)

/*
 * Break the comm for good: the first cause is logged and kept, and is what the
 * later calls return. fmt is a literal.
 */
#define LAB_FAIL(comm, rc, fmt, ...)                                   \
	((comm)->error ? (comm)->error                                 \
		       : (LAB_WARN("comm with %s: " fmt, (comm)->peer, \
				   ##__VA_ARGS__),                     \
			  (comm)->error = (rc)))

/* ---- the wire ------------------------------------------------------------ */

/* First on every socket, before anything else. */
struct lab_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t index;	 /* 0: the control socket, 1 ...: data sockets */
	uint8_t count;	 /* sockets of this connection, 2 ... 9 */
	uint64_t cookie; /* the listener's, from its handle */
	uint64_t id;	 /* of the connection, random, chosen by connect */
};

/* A receive has been posted: these buffers wait. n of the slots are sent. */
struct lab_credit {
	uint32_t magic;
	uint32_t seq; /* of the irecv, counted from 0 */
	uint32_t n;
	struct {
		uint32_t size; /* bytes, at most INT_MAX */
		uint32_t tag;
	} slot[NCCL_NET_PLUGIN_MAX_RECVS];
};

#define CREDIT_HEAD offsetof(struct lab_credit, slot)
#define CREDIT_SLOT sizeof(((struct lab_credit *)0)->slot[0])

/* A piece of a message; length bytes of payload follow. */
struct lab_frame {
	uint32_t magic;
	uint32_t seq;	 /* of the irecv that it goes to */
	uint32_t slot;	 /* which buffer of that irecv */
	uint32_t total;	 /* bytes of the whole message */
	uint32_t offset; /* of this piece in the message */
	uint32_t length; /* 0 only if total is 0 */
};

/* ---- comms --------------------------------------------------------------- */

enum lab_kind { /* no small numbers: a wrong pointer should not match */
	LAB_LISTEN = 0x4c4c4142,
	LAB_SEND = 0x534c4142,
	LAB_RECV = 0x524c4142,
};

/* One buffer of a request, and how far it is. moved <= claimed <= total. */
struct lab_part {
	char *data;
	uint32_t room;	  /* receive: bytes posted */
	uint32_t total;	  /* bytes of the message */
	uint32_t claimed; /* bytes that belong to some frame */
	uint32_t moved;	  /* bytes in the kernel (send), in data (receive) */
	int tag;
	bool begun; /* receive: there has been a frame, total is known */
};

/* Lives in its comm; request n is in place n % LAB_MAX_REQUESTS. */
struct lab_request {
	struct lab_comm *comm; /* NULL: this place is free */
	uint32_t seq;	/* receive: its number; send: the irecv it goes to */
	uint32_t slot;	/* send: which buffer of that irecv */
	unsigned int n; /* parts, 1 for a send */
	unsigned int unfinished; /* parts that are not complete yet */
	struct lab_part part[NCCL_NET_PLUGIN_MAX_RECVS];
};

/* A data socket and the frame that is under way on it. */
struct lab_stream {
	int fd;
	struct lab_request *req; /* NULL: between two frames */
	struct lab_part *part;
	char *at; /* payload still to move: where, and how much */
	size_t left;
	struct lab_frame head; /* send: the header, in wire order */
	size_t head_left;      /* send: bytes of it still to go */
	bool hot;	       /* receive: the last look found something */
	bool eof;	       /* receive: the peer has closed */
	size_t peeked;	   /* receive: bytes parsed, but still in the kernel */
	unsigned int idle; /* receive: looks that found nothing new */
	size_t stashed;	   /* receive: bytes in stash */
	char stash[LAB_STASH];
};

/* Send: an irecv of the peer, as its credit told. */
struct lab_group {
	unsigned int n;
	unsigned int taken; /* bit i: slot i has its message */
	struct {
		uint32_t size;
		int tag;
	} slot[NCCL_NET_PLUGIN_MAX_RECVS];
};

struct lab_comm {
	uint32_t kind; /* LAB_SEND or LAB_RECV */
	int error;     /* 0, or the enum nccl_result that ended it */
	int control;   /* socket: credits */
	unsigned int nstreams;
	unsigned int nmrs;		/* registrations not taken back */
	uint32_t next;			/* number of the next request */
	uint32_t waiting;		/* requests with unfinished parts */
	char peer[INET_ADDRSTRLEN + 8]; /* "address:port", for the log */
	struct lab_request requests[LAB_MAX_REQUESTS];
	struct {
		uint32_t unsent;      /* first request with unclaimed bytes */
		unsigned int busy;    /* streams with a frame under way */
		uint32_t first_group; /* first with a free slot */
		uint32_t next_group;  /* the credit to come */
		struct lab_group groups[LAB_MAX_REQUESTS];
		size_t got; /* bytes in in[] */
		char in[LAB_MAX_REQUESTS * sizeof(struct lab_credit)];
	} tx;
	struct {
		unsigned int rounds; /* of progress */
		unsigned int eofs;   /* streams that have ended */
		size_t pending;	     /* credit bytes the socket has not taken */
		char out[LAB_MAX_REQUESTS * sizeof(struct lab_credit)];
	} rx;
	struct lab_stream streams[LAB_MAX_STREAMS];
};

/* What regMr hands out. Host memory over TCP needs none of it. */
struct lab_mr {
	uint64_t magic; /* LAB_MR_MAGIC */
	struct lab_comm *comm;
	void *data;
	size_t size;
};

#define LAB_MR_MAGIC 0x4c41424d45474d52ull

/* ---- device.c ------------------------------------------------------------ */

struct lab_device {
	char name[16];	    /* IFNAMSIZ */
	char pci[PATH_MAX]; /* real path in /sys, or "" */
	unsigned int index; /* the kernel's */
	int speed;	    /* Mbit/s */
	bool loopback;
	struct in_addr addr;
};

/*
 * Find the devices; the second and later calls keep what the first found, for
 * the names have been handed out. None is a success with a warning.
 */
int lab_devices_find(void);

/* How many. */
int lab_devices(int *n);

/* The device, or NULL with a log if there is no such one. */
struct lab_device *lab_device_get(int dev);

/* ---- comm.c -------------------------------------------------------------- */

/*
 * fds[0] is the control socket, the other count - 1 carry data; they belong to
 * the comm if it is made. NULL: no memory, logged.
 */
struct lab_comm *lab_comm_new(enum lab_kind kind, const int *fds,
			      unsigned int count,
			      const struct sockaddr_in *peer);

/* p as a comm of that kind, or NULL with a log that names the call. */
struct lab_comm *lab_comm_of(void *p, enum lab_kind kind, const char *call);

/*
 * NULL is a success. What the kernel still holds is sent after closeSend; but
 * only an answer from the peer's program tells that it has arrived.
 */
int lab_close_send(void *comm);
int lab_close_recv(void *comm);

/* The frame under way on @s is complete. */
void lab_frame_done(struct lab_comm *c, struct lab_stream *s);

/* Take from the kernel what has been parsed by peeking. */
void lab_discard_peeked(struct lab_stream *s);

/* "address:port". */
void lab_addr_text(char *text, size_t size, const struct sockaddr_in *addr);

/* NODELAY, and no ACK of its own for every small message. */
void lab_set_low_latency(int fd);

/* ---- connect.c ----------------------------------------------------------- */

/*
 * Open a listener on the device's address and fill handle
 * (NCCL_NET_HANDLE_MAXSIZE bytes, zeroed first, any alignment). api, 5 ... 8,
 * is the version of the table that was used; the three must agree in it.
 */
int lab_listen(int api, int dev, void *handle, void **listen_comm);

/*
 * Begin or go on connecting; never blocks. 0 and NULL: call again with the same
 * buffer, in which the state is kept. An attempt ends in success or failure,
 * either of which clears that state; there is no way to give one up half-way.
 * NCCL_INVALID_ARGUMENT: not our handle, or of another version.
 * NCCL_SYSTEM_ERROR: the sockets cannot be opened or connected.
 */
int lab_connect(int api, int dev, void *handle, void **send_comm);

/* One comm whose sockets have all come, or 0 and NULL; never blocks. */
int lab_accept(int api, void *listen_comm, void **recv_comm);

/* Drops every socket that has not become a comm. NULL is a success. */
int lab_close_listen(void *comm);

/* ---- receive.c ----------------------------------------------------------- */

/* Tell the sender of a new receive; what the socket does not take goes later. */
int lab_announce(struct lab_comm *c, const struct lab_request *r);

/* Take what has come on the data sockets. */
int lab_pull(struct lab_comm *c);

/* ---- transfer.c ---------------------------------------------------------- */

/*
 * 0 and a NULL request: no receive with that tag has been announced yet, or 16
 * sends are outstanding. The message goes to the oldest announced buffer with
 * that tag; NCCL_INVALID_USAGE if that one is too small.
 */
int lab_isend(void *comm, void *data, int size, int tag, void *mhandle,
	      void **request);

/* n buffers, 1 ... 8, of one request. 0 and NULL: 16 are outstanding. */
int lab_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	      void **mhandles, void **request);

/*
 * Go on with all of the request's comm, then tell about this request. Done
 * frees it. sizes, if not NULL, gets the bytes of each part. Requests of one
 * comm may be tested in any order here; do not count on that elsewhere.
 * A broken comm gives its error, but for requests that were complete before.
 */
int lab_test(void *request, int *done, int *sizes);

/* Host memory has nothing to flush: NULL request, success. */
int lab_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
	       void **request);

/* Not now, rather than never. */
static inline bool lab_would_block(int err)
{
	return err == EAGAIN || err == EWOULDBLOCK || err == EINTR;
}

#endif
