/* SPDX-License-Identifier: MIT */
/*
 * worker.h - the ground that UCX endpoints stand on: context, workers, their event
 * fds, and what UCX's status codes mean.
 *
 * Functions that return int return 0 or a negative errno, and have reported the
 * failure (base/report.h) unless it says otherwise. One thread.
 *
 * UCX's own log is kept silent unless UCX_LOG_LEVEL is set, but for what it
 * warns of while it starts (a transport that is not there, a misspelt UCX_...).
 *
 * Source: ucp/api/ucp.h of UCX 1.13.
 */
#ifndef UCX_WORKER_H
#define UCX_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <ucp/api/ucp.h>

/* Tags that messages may come with: somebody will receive them. */
struct ucx_tags {
	uint64_t msg_tag, ctrl_tag;
	bool added;
	LIST_ENTRY(ucx_tags) next;
};

/* Zero it before use. */
struct ucx_worker {
	ucp_context_h context; /* UCX as configured: transports, devices */
	ucp_worker_h worker;   /* queues; makes all progress */
	int efd;	       /* readable when there is progress to make */
	int wake;	       /* the same, of this one and all others */
	bool busy;	       /* poll all the time, never sleep */
	bool debug;	       /* UCXPY_LOG_LEVEL is DEBUG */
	unsigned int polls;    /* calls of ucx_progress() */
	LIST_HEAD(, ucx_tags) tags;	/* of all endpoints */
	LIST_HEAD(, ucx_worker) others; /* of ucx_open_another() */
	LIST_ENTRY(ucx_worker) next;
	struct ucx_worker *first; /* whose other this is, or NULL */
};

/*
 * Make context and worker with the features that UCX-Py asks for. -ENODEV: no
 * transport that UCX_TLS and UCX_NET_DEVICES name. Undone by ucx_close().
 */
int ucx_open(struct ucx_worker *w, bool busy);
void ucx_close(struct ucx_worker *w);

/*
 * Another worker of @first's context. ucx_progress(@first) makes its progress, too.
 * ucx_close() gives back all that its endpoints have left behind; it comes before
 * that of @first, and not from within ucx_progress().
 */
int ucx_open_another(struct ucx_worker *w, struct ucx_worker *first);

/*
 * Let UCX work: call back for what has happened, and if nothing has, sleep until
 * something does or @deadline passes. 0: look again; -ETIMEDOUT, -EINTR (stop
 * requested): not reported. Another -errno is.
 */
int ucx_progress(struct ucx_worker *w, int64_t deadline);

/*
 * Take messages with these tags, or no longer. Those with tags that nobody has
 * are thrown away when there is nothing else to do: UCX would keep them for ever.
 */
void ucx_add_tags(struct ucx_worker *w, struct ucx_tags *tags);
void ucx_remove_tags(struct ucx_tags *tags);

/*
 * Report that a UCX call failed with @status: "CALL: NAME: cause", and what to do
 * (@next, NULL: what is to be said of this status). @fmt: the call with its
 * arguments. Returns ucx_errno(@status).
 */
int ucx_failed(ucs_status_t status, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The negative errno that is nearest to @status; 0 for UCS_OK. */
int ucx_errno(ucs_status_t status);

/*
 * A line of UCX-Py's log, if UCXPY_LOG_LEVEL is DEBUG:
 * "[seconds] [host:pid] UCXPY  DEBUG text", on stderr.
 */
void ucx_debug(const struct ucx_worker *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
