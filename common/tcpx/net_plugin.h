/* SPDX-License-Identifier: MIT */
/*
 * net_plugin.h - load an NCCL net plugin and take one version of its table.
 *
 * Functions that return int return 0 or a negative errno and have reported the
 * failure when it is not 0.
 *
 * Environment: UCCL_TCPX_PLUGIN_PATH names the plugin, UCCL_TCPX_DEBUG=1 shows
 * each call with its rc and pointers on stderr, and all that the plugin logs.
 */
#ifndef TCPX_NET_PLUGIN_H
#define TCPX_NET_PLUGIN_H

#include "nccl_net.h"

#include <stdbool.h>
#include <stddef.h>

#define TCPX_NEWEST 0 /* the newest API version that the plugin exports */

/* A plugin's table with the differences of the versions taken out. */
struct tcpx_calls {
	int (*init)(nccl_logger_t log);
	int (*devices)(int *n);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*dereg_mr)(void *comm, void *mhandle);
	int (*isend)(void *comm, void *data, int size, int tag, void *mhandle,
		     void **request);
	int (*irecv)(void *comm, int n, void **data, int *sizes, int *tags,
		     void **mhandles, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*irecv_consumed)(void *comm, int n, void *request); /* or NULL */
};

/* A loaded plugin, at one API version. Zero it before use. */
struct tcpx_net {
	void *lib;	  /* dlopen(3) */
	char path[4096];  /* of the library */
	const char *name; /* what the plugin calls itself */
	int api;	  /* NCCL_NET_OLDEST ... NCCL_NET_NEWEST */
	const void *table;
	struct tcpx_calls calls;
	bool debug;
};

struct tcpx_properties {
	const char *name; /* the plugin's */
	int speed;	  /* Mbit/s */
	int max_recvs;
	bool device_offload; /* not NCCL_NET_DEVICE_HOST */
};

/*
 * The path of library @name beside this program, wherever the current folder
 * is. @size bytes at @path. Returns @path.
 */
const char *plugin_beside_program(char *path, size_t size, const char *name);

/*
 * Load the plugin at @path (NULL: UCCL_TCPX_PLUGIN_PATH, else
 * libnccl-net-lab.so beside this program), take API version @api (or
 * TCPX_NEWEST), initialize it. -ENOENT: no plugin there; -EPROTONOSUPPORT: not
 * this version. Undone by tcpx_unload_plugin().
 */
int tcpx_load_plugin(struct tcpx_net *net, const char *path, int api);
void tcpx_unload_plugin(struct tcpx_net *net);

/* How many devices there are, at least 1; -ENODEV if there are none. */
int tcpx_get_device_count(struct tcpx_net *net);

int tcpx_get_properties(struct tcpx_net *net, int dev,
			struct tcpx_properties *props);

/*
 * Call a function of the plugin's: its rc. Should a signal end this program
 * meanwhile, the last thing that it says is which @call of which plugin it was in.
 */
#define IN_PLUGIN(net, call, expr) (plugin_enter(net, call), plugin_leave(expr))
void plugin_enter(const struct tcpx_net *net, const char *call);
int plugin_leave(int rc);

/*
 * Report that @fmt, a call of the plugin's, returned @rc (not 0). Returns -EIO,
 * or -EREMOTEIO where the plugin blames the peer.
 */
int plugin_failed(const struct tcpx_net *net, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A line on stderr if UCCL_TCPX_DEBUG asks for it. */
void plugin_debug(const struct tcpx_net *net, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
