// SPDX-License-Identifier: MIT
/*
 * plugin.c —— 四张函数表：NCCL 与插件之间的二进制接口
 *
 * NCCL dlopen 插件后，从新到旧找 ncclNetPlugin_v8、v7……符号，找到哪张用哪张。表是
 * 数据，不是函数；成员的次序就是接口。多一个参数、少一个成员，编译器都看不见，运行
 * 时才会跳进错误的函数，所以每个版本各有一份完整的表，绝不“差不多就共用”。
 *
 * 各版本真正的差别很少：v7 起 connect/accept 多一个 device handle，v8 起 regMr 的
 * size 是 size_t，properties 逐版加字段。相同的部分直接指向同一个 lab_ 函数。
 *
 * 每个 listen/connect/accept 的 wrapper 都把自己的版本号带进去：句柄里写着它是谁造
 * 的。混用版本的句柄在这里会得到一句明白话，而不是一个莫名的 Connection refused。
 */
#include "net_lab.h"

#include <stdlib.h>

#define LAB_EXPORT __attribute__((visibility("default")))

static int init(nccl_logger_t log)
{
	lab_logger = log;
	LAB_INFO("NET/Lab: teaching plugin over TCP, wire version %d, host "
		 "memory only",
		 LAB_VERSION);
	return lab_devices_find();
}

static int properties_v8(int dev, ncclNetProperties_v8_t *props)
{
	struct lab_device *d = lab_device_get(dev);

	if (!d || !props)
		return NCCL_INVALID_ARGUMENT;
	*props = (ncclNetProperties_v8_t){
		.name = d->name,
		.pciPath = d->pci[0] ? d->pci : NULL,
		.guid = d->index,
		/*
		 * 只有 HOST：NCCL 会先把 GPU 的数据拷到主机内存再交给我们。支持
		 * GPUDirect 的插件在这里再加上 NCCL_PTR_CUDA 或 DMABUF。
		 */
		.ptrSupport = NCCL_PTR_HOST,
		.speed = d->speed,
		.maxComms = LAB_MAX_COMMS,
		.maxRecvs = NCCL_NET_PLUGIN_MAX_RECVS,
		.netDeviceType = NCCL_NET_DEVICE_HOST,
	};
	return NCCL_SUCCESS;
}

/* 旧版本的结构体更短：绝不能整块拷贝，那会写出调用者的缓冲区。*/
#define FIELDS_OF_V5(p)                                               \
	.name = p.name, .pciPath = p.pciPath, .guid = p.guid,         \
	.ptrSupport = p.ptrSupport, .speed = p.speed, .port = p.port, \
	.latency = p.latency, .maxComms = p.maxComms, .maxRecvs = p.maxRecvs

static int properties_v7(int dev, ncclNetProperties_v7_t *props)
{
	ncclNetProperties_v8_t p;
	int rc = props ? properties_v8(dev, &p) : NCCL_INVALID_ARGUMENT;

	if (rc)
		return rc;
	*props = (ncclNetProperties_v7_t){
		FIELDS_OF_V5(p),
		.netDeviceType = p.netDeviceType,
		.netDeviceVersion = p.netDeviceVersion,
	};
	return NCCL_SUCCESS;
}

static int properties_v5(int dev, ncclNetProperties_v5_t *props)
{
	ncclNetProperties_v8_t p;
	int rc = props ? properties_v8(dev, &p) : NCCL_INVALID_ARGUMENT;

	if (rc)
		return rc;
	*props = (ncclNetProperties_v5_t){ FIELDS_OF_V5(p) };
	return NCCL_SUCCESS;
}

/* send 与 recv comm 都能注册内存。*/
static struct lab_comm *any_comm(void *comm)
{
	struct lab_comm *c = comm;

	if (c && (c->kind == LAB_SEND || c->kind == LAB_RECV))
		return c;
	LAB_WARN("regMr or deregMr: %p is no send or receive comm", comm);
	return NULL;
}

/*
 * 用 RDMA 时，这里是 ibv_reg_mr：钉住内存页，得到 lkey。TCP 由内核拷贝，不需要钉住
 * 任何东西，但仍然给出一个非 NULL 的 mhandle，好让“没注册就发送”这类错误有迹可循。
 */
static int reg_mr_v8(void *comm, void *data, size_t size, int type,
		     void **mhandle)
{
	struct lab_comm *c = any_comm(comm);
	struct lab_mr *mr;

	if (!c || !mhandle)
		return NCCL_INVALID_ARGUMENT;
	/* 返回 3 而不是 4，与 TCPX 一致：type 0 在那里也是 rc=3。*/
	if (type != NCCL_PTR_HOST)
		return LAB_REFUSE(
			NCCL_INTERNAL_ERROR,
			"unknown mem type %d: this plugin registers host "
			"memory only (NCCL_PTR_HOST, %d)",
			type, NCCL_PTR_HOST);
	mr = malloc(sizeof(*mr));
	if (!mr)
		return LAB_REFUSE(NCCL_SYSTEM_ERROR, "regMr: no memory");
	*mr = (struct lab_mr){ LAB_MR_MAGIC, c, data, size };
	c->nmrs++;
	*mhandle = mr;
	return NCCL_SUCCESS;
}

static int reg_mr_v5(void *comm, void *data, int size, int type, void **mhandle)
{
	if (size < 0)
		return LAB_REFUSE(NCCL_INVALID_ARGUMENT,
				  "regMr: size %d is negative", size);
	return reg_mr_v8(comm, data, (size_t)size, type, mhandle);
}

static int reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
			 uint64_t offset, int fd, void **mhandle)
{
	(void)comm, (void)data, (void)size, (void)offset, (void)mhandle;
	return LAB_REFUSE(
		NCCL_INTERNAL_ERROR,
		"regMrDmaBuf(type %d, fd %d): this plugin has no DMA-BUF "
		"support, and ptrSupport says so",
		type, fd);
}

static int dereg_mr(void *comm, void *mhandle)
{
	struct lab_comm *c = any_comm(comm);
	struct lab_mr *mr = mhandle;

	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (!mr || mr->magic != LAB_MR_MAGIC || mr->comm != c)
		return LAB_REFUSE(
			NCCL_INVALID_ARGUMENT,
			"deregMr: %p was not registered with this comm",
			mhandle);
	c->nmrs--;
	mr->magic = 0;
	free(mr);
	return NCCL_SUCCESS;
}

/* 下面两个是给“GPU kernel 自己解包”的插件（TCPX）的：我们的设备是 HOST。*/
static int get_device_mr(void *comm, void *mhandle, void **dptr_mhandle)
{
	(void)comm, (void)mhandle, (void)dptr_mhandle;
	return LAB_REFUSE(NCCL_INTERNAL_ERROR,
			  "getDeviceMr: this plugin has no device memory");
}

static int irecv_consumed(void *comm, int n, void *request)
{
	(void)request; /* test 已经释放了它，不能再解引用 */
	if (!lab_comm_of(comm, LAB_RECV, "irecvConsumed"))
		return NCCL_INVALID_ARGUMENT;
	if (n < 1 || n > NCCL_NET_PLUGIN_MAX_RECVS)
		return LAB_REFUSE(NCCL_INVALID_ARGUMENT,
				  "irecvConsumed: n is %d, not 1 ... %d", n,
				  NCCL_NET_PLUGIN_MAX_RECVS);
	return NCCL_SUCCESS;
}

/* devHandle 是插件交给 GPU kernel 的描述；NULL 表示“CPU 来搬，没有可交的”。*/
static void give_none(ncclNetDeviceHandle_t **dev_handle)
{
	if (dev_handle)
		*dev_handle = NULL;
}

#define NO_HANDLE
#define DEV_HANDLE , ncclNetDeviceHandle_t **dev_handle

#define WRAPPERS(api, HANDLE, before)                                        \
	static int listen_v##api(int dev, void *handle, void **comm)         \
	{                                                                    \
		return lab_listen(api, dev, handle, comm);                   \
	}                                                                    \
	static int connect_v##api(int dev, void *handle, void **comm HANDLE) \
	{                                                                    \
		before;                                                      \
		return lab_connect(api, dev, handle, comm);                  \
	}                                                                    \
	static int accept_v##api(void *listen_comm, void **comm HANDLE)      \
	{                                                                    \
		before;                                                      \
		return lab_accept(api, listen_comm, comm);                   \
	}
WRAPPERS(5, NO_HANDLE, (void)0)
WRAPPERS(6, NO_HANDLE, (void)0)
WRAPPERS(7, DEV_HANDLE, give_none(dev_handle))
WRAPPERS(8, DEV_HANDLE, give_none(dev_handle))

/* 各版本都有、写法也一样的成员。*/
#define COMMON(api)                                                       \
	.name = "Lab", .init = init, .devices = lab_devices,              \
	.listen = listen_v##api, .connect = connect_v##api,               \
	.accept = accept_v##api, .deregMr = dereg_mr, .isend = lab_isend, \
	.irecv = lab_irecv, .iflush = lab_iflush, .test = lab_test,       \
	.closeSend = lab_close_send, .closeRecv = lab_close_recv,         \
	.closeListen = lab_close_listen

LAB_EXPORT const ncclNet_v5_t ncclNetPlugin_v5 = {
	COMMON(5),
	.getProperties = properties_v5,
	.regMr = reg_mr_v5,
};

LAB_EXPORT const ncclNet_v6_t ncclNetPlugin_v6 = {
	COMMON(6),
	.getProperties = properties_v5,
	.regMr = reg_mr_v5,
	.regMrDmaBuf = reg_mr_dmabuf,
};

LAB_EXPORT const ncclNet_v7_t ncclNetPlugin_v7 = {
	COMMON(7),
	.getProperties = properties_v7,
	.regMr = reg_mr_v5,
	.regMrDmaBuf = reg_mr_dmabuf,
	.getDeviceMr = get_device_mr,
	.irecvConsumed = irecv_consumed,
};

LAB_EXPORT const ncclNet_v8_t ncclNetPlugin_v8 = {
	COMMON(8),
	.getProperties = properties_v8,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf,
	.getDeviceMr = get_device_mr,
	.irecvConsumed = irecv_consumed,
};
