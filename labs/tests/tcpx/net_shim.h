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

/* ---- net_shim.c ---------------------------------------------------------- */

/* The caller has broken the contract: say so and abort(). */
void violation(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* What follows WORD= in NET_SHIM, "" after a bare word, NULL without it. */
const char *asked(const char *word);

/* What this call has to return, if NET_SHIM has it fail, or 0. */
int failure(const char *call);

/* Abort if a comm is still open. */
void check_all_closed(void);

int shim_listen(int v, int dev, void *handle, void **comm);
int shim_connect(int v, int dev, void *handle, void **comm,
		 ncclNetDeviceHandle_t **dh);
int shim_accept(int v, void *listen_comm, void **comm,
		ncclNetDeviceHandle_t **dh);
int shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
int shim_reg_mr_int(void *comm, void *data, int size, int type, void **mhandle);
int shim_dereg_mr(void *comm, void *mhandle);
int shim_isend(void *comm, void *data, int size, int tag, void *mhandle,
	       void **request);
int shim_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	       void **mhandles, void **request);
int shim_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
		void **request);
int shim_test(void *request, int *done, int *sizes);
int shim_close_send(void *comm);
int shim_close_recv(void *comm);
int shim_close_listen(void *comm);
int shim_get_device_mr(void *comm, void *mhandle, void **dptr_mhandle);
int shim_consumed(void *comm, int n, void *request);

/* ---- net_shim_tables.c --------------------------------------------------- */

/* The calls that look the same in v5 to v8. */
struct real_calls {
	int (*init)(nccl_logger_t log);
	int (*devices)(int *n);
	int (*listen)(int dev, void *handle, void **comm);
	int (*dereg_mr)(void *comm, void *mhandle);
	int (*isend)(void *comm, void *data, int size, int tag, void *mhandle,
		     void **request);
	int (*irecv)(void *comm, int n, void **data, int *sizes, int *tags,
		     void **mhandles, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
};

const struct real_calls *real_calls(int v);
int real_connect(int v, int dev, void *handle, void **comm);
int real_accept(int v, void *listen_comm, void **comm);
int real_reg_mr(int v, void *comm, void *data, size_t size, int type,
		void **mhandle);

#endif
