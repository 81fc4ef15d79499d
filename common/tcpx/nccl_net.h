/* SPDX-License-Identifier: MIT */
/*
 * nccl_net.h - the binary interface between NCCL (or any other user of a net
 * plugin) and a net plugin, versions 5 to 8.
 *
 * A plugin is a shared library with one or more data symbols ncclNetPlugin_v5
 * ... ncclNetPlugin_v8, each a table of function pointers. The order of the
 * members is the interface. Source: NCCL's ext-net documentation and
 * nccl_net.h of 2.12 (v5), 2.13 (v6), 2.19 (v7) and 2.20 (v8).
 *
 *	v5 -> v6  regMrDmaBuf between regMr and deregMr
 *	v6 -> v7  connect and accept gain a device handle; getDeviceMr and
 *		  irecvConsumed at the end; device type and version at the end
 *		  of the properties
 *	v7 -> v8  regMr's size is a size_t; regIsGlobal after ptrSupport
 *
 * What a caller must keep (each breaks some real plugin):
 *	- connect and accept do not block: 0 with a NULL comm means "call again",
 *	  with the same handle buffer (a plugin may keep its state in it). After
 *	  success they must not be called again with that buffer.
 *	- connect and accept of v7 and v8 are given storage for a device handle.
 *	- isend and irecv may give 0 and a NULL request: "no slot, try again".
 *	- test is called for the oldest outstanding request of a comm only, and
 *	  never again after it said done. *sizes may be left unwritten.
 *	- a NULL mhandle with 0 is a success.
 *	- irecvConsumed follows test where the device is no NCCL_NET_DEVICE_HOST.
 *	- nothing is closed before the peer has confirmed at its own level.
 */
#ifndef TCPX_NCCL_NET_H
#define TCPX_NCCL_NET_H

#include <stddef.h>
#include <stdint.h>

#define NCCL_NET_HANDLE_MAXSIZE	  128 /* bytes that listen may fill */
#define NCCL_NET_DEV_HANDLE_SIZE  512 /* bytes, aligned to 16, zeroed */
#define NCCL_NET_PLUGIN_MAX_RECVS 8   /* buffers of one irecv, at most */
#define NCCL_NET_OLDEST		  5
#define NCCL_NET_NEWEST		  8

/* What a pointer points to (regMr's type, ptrSupport's bits). */
#define NCCL_PTR_HOST	0x1
#define NCCL_PTR_CUDA	0x2
#define NCCL_PTR_DMABUF 0x4

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
};

enum nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};

/* Subsystems, bits of the logger's flags. */
#define NCCL_INIT 0x1
#define NCCL_NET  0x10

typedef void (*nccl_logger_t)(int level, unsigned long flags, const char *file,
			      int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#define NCCL_NET_DEVICE_HOST   0 /* the CPU copies */
#define NCCL_NET_DEVICE_UNPACK 1 /* a GPU kernel unpacks: GPUDirect-TCPX */

/* The same in v7 and v8. */
typedef struct {
	int netDeviceType;
	int netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
} ncclNetDeviceHandle_t;

/*
 * The properties and the tables. What the versions have in common is written once;
 * the order of the members is the interface. name and pciPath belong to the plugin,
 * or to the caller.
 */
#define NCCL_NET_PLACE                                       \
	char *name;                                          \
	char *pciPath; /* in /sys, NULL: not a PCI device */ \
	uint64_t guid;                                       \
	int ptrSupport;
#define NCCL_NET_ABILITY                    \
	int speed; /* Mbit/s */             \
	int port;                           \
	float latency; /* us, 0: unknown */ \
	int maxComms;                       \
	int maxRecvs; /* buffers of one irecv */
#define NCCL_NET_DEVICE_TYPE \
	int netDeviceType;   \
	int netDeviceVersion;

/* v5 and v6. */
typedef struct {
	NCCL_NET_PLACE
	NCCL_NET_ABILITY
} ncclNetProperties_v5_t;

typedef struct {
	NCCL_NET_PLACE
	NCCL_NET_ABILITY
	NCCL_NET_DEVICE_TYPE
} ncclNetProperties_v7_t;

typedef struct {
	NCCL_NET_PLACE
	int regIsGlobal;
	NCCL_NET_ABILITY
	NCCL_NET_DEVICE_TYPE
} ncclNetProperties_v8_t;

#define NCCL_NET_FIRST(properties)                        \
	const char *name;                                 \
	int (*init)(nccl_logger_t log);                   \
	int (*devices)(int *n);                           \
	int (*getProperties)(int dev, properties *props); \
	int (*listen)(int dev, void *handle, void **listenComm);
#define NCCL_NET_CONNECT                                        \
	int (*connect)(int dev, void *handle, void **sendComm); \
	int (*accept)(void *listenComm, void **recvComm);
#define NCCL_NET_CONNECT_DEVICE                                \
	int (*connect)(int dev, void *handle, void **sendComm, \
		       ncclNetDeviceHandle_t **devHandle);     \
	int (*accept)(void *listenComm, void **recvComm,       \
		      ncclNetDeviceHandle_t **devHandle);
#define NCCL_NET_REG(size_type)                                        \
	int (*regMr)(void *comm, void *data, size_type size, int type, \
		     void **mhandle);
#define NCCL_NET_REG_DMABUF                                               \
	int (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, \
			   uint64_t offset, int fd, void **mhandle);
#define NCCL_NET_TRANSFER                                             \
	int (*deregMr)(void *comm, void *mhandle);                    \
	int (*isend)(void *sendComm, void *data, int size, int tag,   \
		     void *mhandle, void **request);                  \
	int (*irecv)(void *recvComm, int n, void **data, int *sizes,  \
		     int *tags, void **mhandles, void **request);     \
	int (*iflush)(void *recvComm, int n, void **data, int *sizes, \
		      void **mhandles, void **request);               \
	int (*test)(void *request, int *done, int *sizes);            \
	int (*closeSend)(void *sendComm);                             \
	int (*closeRecv)(void *recvComm);                             \
	int (*closeListen)(void *listenComm);
#define NCCL_NET_DEVICE                                                     \
	int (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle); \
	int (*irecvConsumed)(void *recvComm, int n, void *request);

typedef struct {
	NCCL_NET_FIRST(ncclNetProperties_v5_t)
	NCCL_NET_CONNECT
	NCCL_NET_REG(int)
	NCCL_NET_TRANSFER
} ncclNet_v5_t;

typedef struct {
	NCCL_NET_FIRST(ncclNetProperties_v5_t)
	NCCL_NET_CONNECT
	NCCL_NET_REG(int)
	NCCL_NET_REG_DMABUF
	NCCL_NET_TRANSFER
} ncclNet_v6_t;

typedef struct {
	NCCL_NET_FIRST(ncclNetProperties_v7_t)
	NCCL_NET_CONNECT_DEVICE
	NCCL_NET_REG(int)
	NCCL_NET_REG_DMABUF
	NCCL_NET_TRANSFER
	NCCL_NET_DEVICE
} ncclNet_v7_t;

typedef struct {
	NCCL_NET_FIRST(ncclNetProperties_v8_t)
	NCCL_NET_CONNECT_DEVICE
	NCCL_NET_REG(size_t)
	NCCL_NET_REG_DMABUF
	NCCL_NET_TRANSFER
	NCCL_NET_DEVICE
} ncclNet_v8_t;

#endif
