/* SPDX-License-Identifier: MIT */
/*
 * net_shim.h - what the two files of the shim share: net_shim.c watches and
 * misbehaves, net_shim_tables.c is the binary interface, the shim's own tables
 * and the real plugin's.
 */
#ifndef TESTS_NET_SHIM_H
#define TESTS_NET_SHIM_H

#include "tcpx/nccl_net.h"

#include <stdbool.h>
#include <stddef.h>

/* The plugin behind the shim; all versions of the shim call its v8. */
extern const ncclNet_v8_t *real;

/* The caller has broken the contract: say so and abort(). */
void violation(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* What follows WORD= in NET_SHIM, "" after a bare word, NULL without it. */
const char *asked(const char *word);

/* What this call has to return, if NET_SHIM has it fail, or 0. */
int failure(const char *call);

/* Abort if a comm is still open. */
void check_all_closed(void);

/* @dh is looked at in v7 and v8, the newer ones. */
int shim_connect(bool newer, int dev, void *handle, void **comm,
		 ncclNetDeviceHandle_t **dh);
int shim_accept(bool newer, void *listen_comm, void **comm,
		ncclNetDeviceHandle_t **dh);
int shim_listen(int dev, void *handle, void **comm);
int shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
int shim_dereg_mr(void *comm, void *mhandle);
int shim_isend(void *comm, void *data, int size, int tag, void *mhandle,
	       void **request);
int shim_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	       void **mhandles, void **request);
int shim_test(void *request, int *done, int *sizes);
int shim_close_send(void *comm);
int shim_close_recv(void *comm);
int shim_close_listen(void *comm);
int shim_consumed(void *comm, int n, void *request);

#endif
