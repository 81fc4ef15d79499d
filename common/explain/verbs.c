// SPDX-License-Identifier: MIT
/*
 * verbs.c —— 建与拆：设备列表、open、reg_mr、create_cq、create_qp、destroy
 *
 * 这些调用的错误大多能由参数本身证明：把内核会查的条件照样查一遍，第一个不成立的
 * 就是原因。短的那一组只拿到 errno，只好把可能的原因都说出来；能给参数的地方请用
 * 长的那一组（…_call）。
 */
#include "parts.h"
#include "qp_table.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* linux/capability.h：可以无限制地钉住内存。*/
#define CAP_IPC_LOCK 14
/* 设备属性里没有这一项，provider 自己知道。*/
#define RXE_MAX_INLINE	  512
#define NEEDS_LOCAL_WRITE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- 设备 --------------------------------------------------------------- */

static int count_paths(const char *pattern)
{
	glob_t found = { 0 };
	int count = glob(pattern, 0, NULL, &found) ? 0 : (int)found.gl_pathc;

	globfree(&found);
	return count;
}

/* 从内核到用户态，一层一层：第一个缺的就是原因。*/
static const struct {
	const char *id, *cause, *next;
} device_rows[] = {
	{ "no-rdma-modules",
	  "this kernel has no RDMA subsystem loaded (no /sys/class/infiniband)",
	  "modprobe ib_core rdma_rxe ib_uverbs; if there is no such module, "
	  "run inside the lab: labs/lab run COMMAND" },
	{ "no-rdma-device",
	  "the RDMA subsystem is loaded, but there is no RDMA device",
	  "make one with labs/rxe.sh setup, or rdma link add rxe0 type rxe "
	  "netdev DEVICE" },
	{ "no-uverbs",
	  "there is an RDMA device, but the module ib_uverbs, which programs "
	  "need, is not loaded",
	  "modprobe ib_uverbs" },
	{ "no-device-node",
	  "there is an RDMA device, but no /dev/infiniband/uverbsN: this is a "
	  "container that was not given it, or udev did not make it",
	  "pass --device /dev/infiniband to the container" },
	{ "no-provider",
	  "device and /dev/infiniband/uverbsN are there, so libibverbs has no "
	  "driver (provider) for the device, or a wrong one",
	  "install ibverbs-providers of the same version as libibverbs; "
	  "\"no userspace device-specific driver\" says the same" },
};

/*
 * 打不开 sysfs，列表就是空的，看上去与没有设备一样。新开的描述符总取最小的号：上限之前的
 * 这一个若已经用掉，剩下的就不够列一次设备。
 */
static bool descriptors_are_used_up(void)
{
	const rlim_t least = 4;
	struct rlimit limit;

	return !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur >= least &&
	       fcntl((int)(limit.rlim_cur - least), F_GETFD) >= 0;
}

struct explanation explain_device_list(int err)
{
	KEEP_ERRNO;
	const bool absent = access("/sys/class/infiniband", F_OK);
	const int devices = count_paths("/sys/class/infiniband/*");
	const int verbs = count_paths("/sys/class/infiniband_verbs/uverbs*");
	const int nodes = count_paths("/dev/infiniband/uverbs*");
	const size_t row = absent     ? 0
			   : !devices ? 1
			   : !verbs   ? 2
			   : !nodes   ? 3
				      : 4;
	struct explanation why;

	if (err == ENOMEM)
		return because("no-memory", "free memory",
			       "there is no memory for the list of devices");
	if (descriptors_are_used_up())
		return because("no-descriptors",
			       "raise the limit of open files: ulimit -n",
			       "too few file descriptors are left to look for "
			       "devices");
	why = because(device_rows[row].id, device_rows[row].next, "%s",
		      device_rows[row].cause);
	if (absent)
		also_seen(&why, "/sys/class/infiniband: absent");
	else
		also_seen(&why,
			  "/sys/class/infiniband: %d devices, "
			  "infiniband_verbs: %d, /dev/infiniband: %d nodes",
			  devices, verbs, nodes);
	return why;
}

/* 有节点、却没有一个能读写。*/
static bool nodes_are_closed(char *path, size_t size)
{
	glob_t nodes = { 0 };
	size_t closed = 0;
	bool all;

	glob("/dev/infiniband/uverbs*", 0, NULL, &nodes);
	while (closed < nodes.gl_pathc &&
	       access(nodes.gl_pathv[closed], R_OK | W_OK))
		closed++;
	all = closed && closed == nodes.gl_pathc;
	if (all)
		snprintf(path, size, "%s", nodes.gl_pathv[0]);
	globfree(&nodes);
	return all;
}

static struct explanation not_permitted(const char *node)
{
	struct explanation why = because(
		"node-not-permitted",
		"run as root, or give the node mode 0666 by a udev rule",
		"this user may not open %s", node);

	also_seen(&why, "user %u, group %u", (unsigned int)geteuid(),
		  (unsigned int)getegid());
	return why;
}

struct explanation explain_open_device(int err)
{
	KEEP_ERRNO;
	char node[64] = "/dev/infiniband/uverbsN";

	switch (err) {
	case EACCES:
	case EPERM:
		return not_permitted(node);
	case ENOENT:
	case ENODEV:
	case ENXIO:
		/*
		 * libibverbs 打不开节点时会再去别处找，最后报的是 ENOENT：权限不够
		 * 看起来像“没有这个文件”。
		 */
		if (nodes_are_closed(node, sizeof(node)))
			return not_permitted(node);
		return because("node-missing",
			       "load ib_uverbs; in a container pass "
			       "--device /dev/infiniband",
			       "the device is listed in sysfs but has no "
			       "usable /dev/infiniband/uverbsN node");
	}
	return no_idea();
}

/* ---- reg_mr ------------------------------------------------------------- */

/* /proc/self/status 的一行；@base 是数字的进制。读不到：false。*/
static bool read_status(unsigned long long *value, const char *key, int base)
{
	FILE *file = fopen("/proc/self/status", "re");
	bool found = false;
	char line[256];

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		found = !strncmp(line, key, strlen(key));
		*value = strtoull(line + strlen(key), NULL, base);
	}
	fclose(file);
	return found;
}

static struct explanation over_memlock(size_t length)
{
	struct explanation why;
	unsigned long long pinned, may;
	struct rlimit limit;
	bool free_of_it;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) ||
	    !read_status(&pinned, "VmPin:", 10) ||
	    !read_status(&may, "CapEff:", 16))
		return no_idea();
	pinned *= 1024;
	free_of_it = may >> CAP_IPC_LOCK & 1;
	if (!free_of_it && limit.rlim_cur != RLIM_INFINITY &&
	    pinned + length > limit.rlim_cur)
		why = because("memlock",
			      "raise it: ulimit -l unlimited, LimitMEMLOCK= "
			      "(systemd), --ulimit memlock=-1 (docker); ssh "
			      "and mpirun keep their own",
			      "%zu bytes on top of the %llu pinned already "
			      "exceed RLIMIT_MEMLOCK, which is %llu",
			      length, pinned,
			      (unsigned long long)limit.rlim_cur);
	else
		why = because("no-memory",
			      "compare the size with `free`, and with max_mr "
			      "of ibv_devinfo -v",
			      "RLIMIT_MEMLOCK allows it, so the memory or the "
			      "device's MRs are used up");
	also_seen(&why, "pinned %llu bytes, CAP_IPC_LOCK %s", pinned,
		  free_of_it ? "held: no limit" : "not held");
	return why;
}

struct mapping {
	bool known; /* what is mapped could be read */
	bool whole; /* all of the range is mapped */
	bool writable;
	bool shared;	/* where it is not writable: MAP_SHARED */
	uintptr_t hole; /* the first address that is not */
	char line[160]; /* of /proc/self/maps, the first that is wrong */
};

/* 从 /proc/self/maps 里一段段拼起来，看有没有洞、有没有只读的。*/
static struct mapping mapping_of(uintptr_t from, size_t length)
{
	struct mapping m = { .writable = true, .hole = from };
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t start, end;
	char line[512], rights[8];

	if (!file)
		return m;
	while (fgets(line, sizeof(line), file) && m.hole < from + length) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &start, &end,
			   rights) != 3 ||
		    end <= m.hole)
			continue;
		if (start > m.hole)
			break;
		if (rights[1] != 'w' && m.writable) {
			m.writable = false;
			m.shared = rights[3] == 's';
			snprintf(m.line, sizeof(m.line), "%.*s",
				 (int)strcspn(line, "\n"), line);
		}
		m.hole = end;
	}
	fclose(file);
	m.known = true;
	m.whole = m.hole >= from + length;
	return m;
}

static struct explanation bad_mapping(const void *addr, size_t length,
				      int access)
{
	struct mapping m = mapping_of((uintptr_t)addr, length);
	struct explanation why = no_idea();

	if (!m.known)
		return why;
	if (!m.whole)
		return because("mr-not-mapped",
			       "register what malloc or mmap gave, with the "
			       "length that was asked for, and before it is "
			       "freed",
			       "nothing is mapped at 0x%jx, which is in the "
			       "range %p + %zu",
			       (uintmax_t)m.hole, addr, length);
	if (m.writable)
		return because("mr-cannot-pin",
			       "register ordinary memory; for a device's "
			       "memory (GPU, DAX) use ibv_reg_dmabuf_mr",
			       "the range is mapped and writable, so its pages "
			       "are of a kind that cannot be pinned (device "
			       "memory, DAX)");
	/* MAP_SHARED 的，只读的 MR 也不行：6.2 之前的内核总是按“要写”来 pin。*/
	if (access & IBV_ACCESS_LOCAL_WRITE)
		why = because("mr-read-only",
			      "map it with PROT_WRITE, copy it (a string "
			      "literal), or leave LOCAL_WRITE and REMOTE_* out",
			      "the memory is mapped read-only, and LOCAL_WRITE "
			      "was asked for");
	else if (m.shared)
		why = because("mr-shared-read-only",
			      "map it with MAP_PRIVATE: its pages are copied "
			      "when they are pinned",
			      "the memory is mapped read-only and MAP_SHARED, "
			      "and this kernel pins pages as if to write them");
	also_seen(&why, "%s", m.line);
	return why;
}

static struct explanation wrong_access(struct ibv_pd *pd, int access)
{
	struct ibv_device_attr_ex attr;

	if (!(access & IBV_ACCESS_ON_DEMAND) ||
	    ibv_query_device_ex(pd->context, NULL, &attr) ||
	    (attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		return no_idea();
	return because("odp-unsupported",
		       "leave IBV_ACCESS_ON_DEMAND out; the pages are pinned "
		       "then",
		       "%s cannot page on demand (ON_DEMAND)",
		       device_of(pd->context));
}

/*
 * 长度大得不可能：内核把页数算进 32 位或用户地址空间之外，是 EINVAL；先去数要 pin 多少页，是
 * ENOMEM。
 */
static struct explanation impossible_length(const void *addr, size_t length)
{
	struct mapping m = mapping_of((uintptr_t)addr, length);

	if (!m.known || m.whole)
		return no_idea();
	return because("mr-length-impossible",
		       "print the length and where it came from",
		       "%zu bytes from %p is more than is mapped there", length,
		       addr);
}

static struct explanation bad_mr_arguments(struct ibv_pd *pd, const void *addr,
					   size_t length, int access)
{
	uintptr_t from = (uintptr_t)addr;
	struct ibv_device_attr attr;
	struct explanation why;

	if (length == 0)
		return because("mr-length-zero", "give the length in bytes",
			       "length is 0");
	if (from + length < from)
		return because("mr-length-wraps",
			       "print the length: a negative number became a "
			       "size_t?",
			       "%p + %zu wraps around the end of the address "
			       "space",
			       addr, length);
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return because(
			"mr-needs-local-write", "add IBV_ACCESS_LOCAL_WRITE",
			"%s without LOCAL_WRITE: what the peer may write, this "
			"side's device must be able to write",
			access & IBV_ACCESS_REMOTE_WRITE ? "REMOTE_WRITE"
							 : "REMOTE_ATOMIC");
	why = wrong_access(pd, access);
	if (why.cause[0])
		return why;
	if (!ibv_query_device(pd->context, &attr) && length > attr.max_mr_size)
		return because("mr-too-large", "register it in parts",
			       "%zu bytes are above the device's max_mr_size "
			       "%ju",
			       length, (uintmax_t)attr.max_mr_size);
	why = impossible_length(addr, length);
	if (why.cause[0])
		return why;
	return because("driver-refused",
		       "try with LOCAL_WRITE alone, then add one flag at a "
		       "time; look at dmesg",
		       "no argument is wrong by the rules of all devices: "
		       "access 0x%x holds a flag that this one does not take",
		       access);
}

struct explanation explain_reg_mr_call(struct ibv_pd *pd, const void *addr,
				       size_t length, int access, int err)
{
	KEEP_ERRNO;
	struct explanation why;

	if (!explain_is_on())
		return no_idea();
	switch (err) {
	case ENOMEM:
		why = impossible_length(addr, length);
		return why.cause[0] ? why : over_memlock(length);
	case EFAULT:
		return bad_mapping(addr, length, access);
	case EINVAL:
		return bad_mr_arguments(pd, addr, length, access);
	case EOPNOTSUPP:
		if (access & IBV_ACCESS_ON_DEMAND)
			return wrong_access(pd, access);
		return because(
			"odp-unsupported", "leave IBV_ACCESS_ON_DEMAND out",
			"the device does not support these access flags");
	}
	return no_idea();
}

/*
 * UCX 与 NCCL 这样打听：fd 给 -1，必定失败，看的是怎么失败。EBADF：内核与驱动都走到
 * 了看 fd 那一步，所以真的 DMA-BUF 收得下；其余的三个是某一层说“我不会”。
 */
struct explanation explain_reg_dmabuf_mr(struct ibv_pd *pd, int fd, int err)
{
	const bool cannot =
		err == EOPNOTSUPP || err == EPROTONOSUPPORT || err == ENOSYS;

	if (!cannot && err != EBADF)
		return no_idea();
	if (fd < 0)
		return because(EXPLAIN_PROBE, "nothing: the answer is enough",
			       "fd %d asks whether DMA-BUFs can be registered, "
			       "and for %s the answer is %s",
			       fd, device_of(pd->context),
			       cannot ? "no" : "yes");
	if (cannot)
		return because("dmabuf-unsupported",
			       "register memory that the CPU can map with "
			       "ibv_reg_mr, and copy",
			       "%s or its driver cannot register DMA-BUFs",
			       device_of(pd->context));
	return because("dmabuf-fd", "keep it open until the MR is registered",
		       "fd %d is not open", fd);
}

/* ---- create_cq、create_qp ------------------------------------------------ */

struct explanation explain_create_cq_call(struct ibv_context *context, int cqe,
					  int comp_vector, int err)
{
	KEEP_ERRNO;
	struct ibv_device_attr attr;

	if (!explain_is_on() || err != EINVAL)
		return no_idea();
	if (cqe <= 0)
		return because("cq-empty",
			       "ask for as many entries as requests can be "
			       "outstanding at once",
			       "cqe is %d", cqe);
	if (!ibv_query_device(context, &attr) && cqe > attr.max_cqe)
		return because("cq-too-large",
			       "ask for at most max_cqe, or use several CQs",
			       "cqe %d is above the device's max_cqe %d", cqe,
			       attr.max_cqe);
	if (comp_vector < 0 || comp_vector >= context->num_comp_vectors)
		return because("cq-vector",
			       "use 0 ... context->num_comp_vectors - 1",
			       "comp_vector %d: this device has %d (0 ... %d)",
			       comp_vector, context->num_comp_vectors,
			       context->num_comp_vectors - 1);
	return because("cq-arguments", "compare with max_cqe of ibv_devinfo -v",
		       "cqe is 0 or above the device's max_cqe, or "
		       "comp_vector is out of range");
}

struct explanation explain_port(struct ibv_context *context, uint8_t port)
{
	struct net_device device = net_device_of_gid(context, port, 0);

	if (device.index && !device.up)
		return because("netdev-down",
			       "set it up: ip link set DEVICE up",
			       "port %u of %s is not active: the network "
			       "device %s behind it is down",
			       port, device_of(context), device.name);
	return because("no-carrier",
		       "plug the cable in, or set the other end up; see `rdma "
		       "link` and `ip link`",
		       "port %u of %s is not active: nobody is at the other "
		       "end of its link",
		       port, device_of(context));
}

struct explanation explain_unacked(uint64_t got, uint64_t acked)
{
	if (acked > got)
		return because(
			"events-acked-twice",
			"call ibv_ack_cq_events once for each event, or "
			"with their number once",
			"ibv_destroy_cq waits until as many events are "
			"acknowledged as were taken: %ju were taken, and "
			"%ju acknowledged",
			got, acked);
	return because("events-not-acked",
		       "call ibv_ack_cq_events for each event that "
		       "ibv_get_cq_event gave, before ibv_destroy_cq",
		       "ibv_destroy_cq waits until all events of the CQ are "
		       "acknowledged: %ju were taken, and %ju acknowledged",
		       got, acked);
}

struct explanation explain_create_srq(struct ibv_context *context,
				      uint32_t max_wr, uint32_t max_sge,
				      int err)
{
	struct ibv_device_attr device;

	if (err != EINVAL || ibv_query_device(context, &device))
		return no_idea();
	if (max_wr > (uint32_t)device.max_srq_wr ||
	    max_sge > (uint32_t)device.max_srq_sge)
		return because("srq-too-large",
			       "ask ibv_query_device for max_srq_wr and "
			       "max_srq_sge",
			       "max_wr %u or max_sge %u is above what the "
			       "device can do: %d and %d",
			       max_wr, max_sge, device.max_srq_wr,
			       device.max_srq_sge);
	return because("srq-empty", "use at least 1",
		       "max_wr %u or max_sge %u is refused", max_wr, max_sge);
}

struct explanation explain_create_qp(int err)
{
	switch (err) {
	case EINVAL:
		return because("qp-caps",
			       "compare ibv_qp_cap with max_qp_wr and max_sge "
			       "of ibv_devinfo -v",
			       "a queue size, an SGE count or max_inline_data "
			       "is above what the device can do");
	case ENOMEM:
		return because("qp-memory",
			       "see `rdma resource` for QPs that somebody left "
			       "behind",
			       "no memory for the queues, or the device is out "
			       "of QPs");
	case EOPNOTSUPP:
	case EPERM:
		return because("qp-type", "use RC, UC or UD",
			       "the device does not offer this QP type to this "
			       "user");
	}
	return no_idea();
}

static struct explanation bad_caps(struct ibv_pd *pd,
				   const struct ibv_qp_init_attr *init)
{
	struct ibv_device_attr device;
	const bool asked = !ibv_query_device(pd->context, &device);
	const uint32_t wrs = asked ? (uint32_t)device.max_qp_wr : UINT32_MAX;
	const uint32_t sges = asked ? (uint32_t)device.max_sge : UINT32_MAX;
	const struct {
		const char *name;
		uint32_t wanted;
		const char *limit_name;
		uint32_t limit;
	} rows[] = {
		{ "max_send_wr", init->cap.max_send_wr, "max_qp_wr", wrs },
		{ "max_recv_wr", init->srq ? 0 : init->cap.max_recv_wr,
		  "max_qp_wr", wrs },
		{ "max_send_sge", init->cap.max_send_sge, "max_sge", sges },
		{ "max_recv_sge", init->srq ? 0 : init->cap.max_recv_sge,
		  "max_sge", sges },
		{ "max_inline_data", init->cap.max_inline_data,
		  "limit for inline data",
		  asked && device_is_rxe(pd->context) ? RXE_MAX_INLINE
						      : UINT32_MAX },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].wanted > rows[i].limit)
			return because("qp-caps",
				       "ask for less, and read the granted "
				       "caps back from init.cap afterwards",
				       "%s %u is above %s's %s of %u",
				       rows[i].name, rows[i].wanted,
				       device_of(pd->context),
				       rows[i].limit_name, rows[i].limit);
	/* 真网卡的 inline 上限不在设备属性里：只能二分着试。*/
	if (init->cap.max_inline_data)
		return because("qp-caps-hidden",
			       "try max_inline_data 0, then halve the others "
			       "until it works; the granted caps are in "
			       "init.cap",
			       "either max_inline_data %u or the sum of queue "
			       "size, SGEs and inline data of one request is "
			       "more than the device can do: both limits are "
			       "not told by ibv_query_device",
			       init->cap.max_inline_data);
	return explain_create_qp(EINVAL);
}

struct explanation explain_create_qp_call(struct ibv_pd *pd,
					  const struct ibv_qp_init_attr *init,
					  int err)
{
	KEEP_ERRNO;
	const char *type = qp_type_name(init->qp_type);

	if (!explain_is_on())
		return no_idea();
	if (err == EOPNOTSUPP)
		return because("qp-type", "use RC, UC or UD",
			       "%s does not offer QPs of type %s (%d)",
			       device_of(pd->context), type,
			       (int)init->qp_type);
	if (err == EPERM)
		return because("qp-type-permission",
			       "use RC, UC or UD, or run with CAP_NET_RAW",
			       "a QP of type %s needs CAP_NET_RAW", type);
	if (err != EINVAL)
		return explain_create_qp(err);
	if (!strcmp(type, "UNKNOWN"))
		return because("qp-type",
			       "set init.qp_type = IBV_QPT_RC (2); 0 means it "
			       "was forgotten",
			       "qp_type %d is no QP type", (int)init->qp_type);
	if (!init->send_cq || !init->recv_cq)
		return because("qp-without-cq",
			       "set init.send_cq and init.recv_cq; one CQ may "
			       "serve both",
			       "the QP was given no %s",
			       init->send_cq ? "recv_cq" : "send_cq");
	return bad_caps(pd, init);
}

/* ---- 拆 ----------------------------------------------------------------- */

struct explanation explain_destroy(int err)
{
	if (err == EBUSY)
		return because("still-used",
			       "destroy in reverse order: QP, CQ, channel, MR, "
			       "PD, device",
			       "another object still uses it");
	return no_idea();
}

/* ---- 异步事件 ------------------------------------------------------------ */

static const struct {
	enum ibv_event_type type;
	const char *id, *cause, *next;
} event_rows[] = {
	{ IBV_EVENT_CQ_ERR, "cq-overrun",
	  "the CQ was full when another completion came: completions are lost",
	  "make the CQ as large as all signaled requests of all its QPs "
	  "together, or poll more often" },
	{ IBV_EVENT_QP_FATAL, "qp-fatal",
	  "the device found an error in the QP that no completion can tell",
	  "look at dmesg; destroy the QP or reset it" },
	{ IBV_EVENT_QP_REQ_ERR, "qp-request",
	  "the peer sent a request that this side's QP does not allow",
	  "compare both sides' access flags, path_mtu and rd_atomic (rxe never "
	  "raises this event)" },
	{ IBV_EVENT_QP_ACCESS_ERR, "qp-access",
	  "the peer touched memory that it may not touch",
	  "compare rkey, address and access flags (rxe never raises this "
	  "event)" },
	{ IBV_EVENT_PORT_ERR, "port-down",
	  "the port, that is its network device, went down",
	  "ip link set DEVICE up; QPs that sent meanwhile are in ERR and stay "
	  "there, although qp->state says RTS" },
	{ IBV_EVENT_GID_CHANGE, "gid-changed",
	  "the GID table changed: addresses came or went",
	  "choose the GID index anew before the next RTR" },
	{ IBV_EVENT_SQ_DRAINED, "sq-drained",
	  "the send queue is empty: what SQD waited for",
	  "go on with SQD -> RTS" },
	{ IBV_EVENT_DEVICE_FATAL, "device-fatal", "the device is gone",
	  "close it and open it again; look at dmesg" },
};

struct explanation explain_async_event(enum ibv_event_type type)
{
	for (size_t i = 0; i < sizeof(event_rows) / sizeof(event_rows[0]); i++)
		if (event_rows[i].type == type)
			return because(event_rows[i].id, event_rows[i].next,
				       "%s", event_rows[i].cause);
	return no_idea();
}
