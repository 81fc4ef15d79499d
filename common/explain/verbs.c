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
static const char *const device_rows[] = {
	"no-rdma-modules", "no-rdma-device", "no-uverbs",
	"no-device-node",  "no-provider",
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
		return no_idea();
	if (descriptors_are_used_up())
		return because("no-descriptors");
	why = because(device_rows[row]);
	also_seen(&why, "sysfs", "%d\t%d\t%d", devices, verbs, nodes);
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
	struct explanation why = because("node-not-permitted", "%s", node);

	also_seen(&why, "user", "%u\t%u", (unsigned int)geteuid(),
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
		return because("node-missing");
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
		why = because("memlock", "%zu\t%llu\t%llu", length, pinned,
			      (unsigned long long)limit.rlim_cur);
	else
		why = because("no-memory");
	also_seen(&why, "pinned", "%llu\t%s", pinned,
		  free_of_it ? "held, so no limit applies" : "not held");
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
		return because("mr-not-mapped", "0x%jx\t%p\t%zu",
			       (uintmax_t)m.hole, addr, length);
	if (m.writable)
		return because("mr-cannot-pin");
	/* MAP_SHARED 的，只读的 MR 也不行：6.2 之前的内核总是按“要写”来 pin。*/
	if (access & IBV_ACCESS_LOCAL_WRITE)
		why = because("mr-read-only");
	else if (m.shared)
		why = because("mr-shared-read-only");
	also_seen(&why, "mapping", "%s", m.line);
	return why;
}

static struct explanation wrong_access(struct ibv_pd *pd, int access)
{
	struct ibv_device_attr_ex attr;

	if (!(access & IBV_ACCESS_ON_DEMAND) ||
	    ibv_query_device_ex(pd->context, NULL, &attr) ||
	    (attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		return no_idea();
	return because("odp-unsupported", "%s", device_of(pd->context));
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
	return because("mr-length-impossible", "%zu\t%p", length, addr);
}

static struct explanation bad_mr_arguments(struct ibv_pd *pd, const void *addr,
					   size_t length, int access)
{
	uintptr_t from = (uintptr_t)addr;
	struct ibv_device_attr attr;
	struct explanation why;

	if (length == 0)
		return because("mr-length-zero");
	if (from + length < from)
		return because("mr-length-wraps", "%p\t%zu", addr, length);
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return because("mr-needs-local-write", "%s",
			       access & IBV_ACCESS_REMOTE_WRITE
				       ? "REMOTE_WRITE"
				       : "REMOTE_ATOMIC");
	why = wrong_access(pd, access);
	if (why.id)
		return why;
	if (!ibv_query_device(pd->context, &attr) && length > attr.max_mr_size)
		return because("mr-too-large", "%zu\t%ju", length,
			       (uintmax_t)attr.max_mr_size);
	why = impossible_length(addr, length);
	if (why.id)
		return why;
	return because("driver-refused", "access 0x%x", access);
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
		return why.id ? why : over_memlock(length);
	case EFAULT:
		return bad_mapping(addr, length, access);
	case EINVAL:
		return bad_mr_arguments(pd, addr, length, access);
	case EOPNOTSUPP:
		if (access & IBV_ACCESS_ON_DEMAND)
			return wrong_access(pd, access);
		return because("driver-refused", "access 0x%x", access);
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
		return because(EXPLAIN_PROBE, "%d\t%s\t%s", fd,
			       device_of(pd->context), cannot ? "no" : "yes");
	if (cannot)
		return because("dmabuf-unsupported", "%s",
			       device_of(pd->context));
	return because("dmabuf-fd", "%d", fd);
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
		return because("cq-empty", "%d", cqe);
	if (!ibv_query_device(context, &attr) && cqe > attr.max_cqe)
		return because("cq-too-large", "%d\t%d", cqe, attr.max_cqe);
	if (comp_vector < 0 || comp_vector >= context->num_comp_vectors)
		return because("cq-vector", "%d\t%d", comp_vector,
			       context->num_comp_vectors - 1);
	return because("driver-refused", "cqe %d", cqe);
}

struct explanation explain_port(struct ibv_context *context, uint8_t port)
{
	struct net_device device = net_device_of_gid(context, port, 0);

	if (device.index && !device.up)
		return because("netdev-down", "%s\tis down", device.name);
	return because("no-carrier", "%s",
		       device.index ? device.name : device_of(context));
}

struct explanation explain_unacked(uint64_t got, uint64_t acked)
{
	if (acked > got)
		return because("events-acked-twice", "%ju\t%ju", got, acked);
	return because("events-not-acked", "%ju\t%ju", got, acked);
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
		return because("srq-too-large", "%u\t%u\t%d\t%d", max_wr,
			       max_sge, device.max_srq_wr, device.max_srq_sge);
	return because("srq-empty", "%u\t%u", max_wr, max_sge);
}

struct explanation explain_modify_srq(struct ibv_srq *srq,
				      const struct ibv_srq_attr *attr, int mask,
				      int err)
{
	struct ibv_srq_attr now;

	if (err != EINVAL || !(mask & IBV_SRQ_LIMIT) ||
	    ibv_query_srq(srq, &now) || attr->srq_limit <= now.max_wr)
		return no_idea();
	return because("srq-limit", "%u\t%u", attr->srq_limit, now.max_wr);
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
		uint32_t limit;
	} rows[] = {
		{ "max_send_wr", init->cap.max_send_wr, wrs },
		{ "max_recv_wr", init->srq ? 0 : init->cap.max_recv_wr, wrs },
		{ "max_send_sge", init->cap.max_send_sge, sges },
		{ "max_recv_sge", init->srq ? 0 : init->cap.max_recv_sge,
		  sges },
		{ "max_inline_data", init->cap.max_inline_data,
		  asked && device_is_rxe(pd->context) ? RXE_MAX_INLINE
						      : UINT32_MAX },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].wanted > rows[i].limit)
			return because("qp-caps", "%s\t%u\t%s\t%u",
				       rows[i].name, rows[i].wanted,
				       device_of(pd->context), rows[i].limit);
	/* 物理网卡的 inline 上限不在设备属性里：只能二分着试。*/
	if (init->cap.max_inline_data)
		return because("qp-caps-hidden", "%u",
			       init->cap.max_inline_data);
	return because("driver-refused", "%s QP, %u + %u WRs, %u + %u SGEs",
		       qp_type_name(init->qp_type), init->cap.max_send_wr,
		       init->cap.max_recv_wr, init->cap.max_send_sge,
		       init->cap.max_recv_sge);
}

struct explanation explain_create_qp_call(struct ibv_pd *pd,
					  const struct ibv_qp_init_attr *init,
					  int err)
{
	KEEP_ERRNO;
	const char *type = qp_type_name(init->qp_type);
	const char *device = device_of(pd->context);

	if (!explain_is_on())
		return no_idea();
	if (err == EOPNOTSUPP)
		return because("qp-type", "%s\t%s\t%d", device, type,
			       (int)init->qp_type);
	if (err == EPERM)
		return because("qp-type-permission", "%s", type);
	if (err == ENOMEM)
		return because("qp-memory");
	if (err != EINVAL)
		return no_idea();
	if (!strcmp(type, "UNKNOWN"))
		return because("qp-type", "%s\t%s\t%d", device, type,
			       (int)init->qp_type);
	if (!init->send_cq || !init->recv_cq)
		return because("qp-without-cq", "%s",
			       init->send_cq ? "recv_cq" : "send_cq");
	return bad_caps(pd, init);
}

#define KNOWN_QP_MASK 0x7fu /* IBV_QP_INIT_ATTR_PD ... SEND_OPS_FLAGS */

struct explanation explain_extended_qp(uint32_t comp_mask, uint64_t ops,
				       enum ibv_qp_type type, int err)
{
	if (err != EINVAL && err != EOPNOTSUPP)
		return no_idea();
	if (comp_mask & ~KNOWN_QP_MASK)
		return because("comp-mask", "0x%x\t0x%x", comp_mask,
			       comp_mask & ~KNOWN_QP_MASK);
	if (err == EINVAL && !(comp_mask & IBV_QP_INIT_ATTR_PD) &&
	    type != IBV_QPT_XRC_RECV)
		return because("qp-without-pd");
	if (err == EOPNOTSUPP && (comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return because("send-ops", "0x%jx\t%s", (uintmax_t)ops,
			       qp_type_name(type));
	return no_idea();
}

/* ---- 拆 ----------------------------------------------------------------- */

struct explanation explain_destroy(int err)
{
	if (err == EBUSY)
		return because("still-used");
	return no_idea();
}

/* ---- 异步事件 ------------------------------------------------------------ */

static const struct {
	enum ibv_event_type type;
	const char *id;
} event_rows[] = {
	{ IBV_EVENT_CQ_ERR, "cq-overrun" },
	{ IBV_EVENT_QP_FATAL, "qp-fatal" },
	{ IBV_EVENT_QP_REQ_ERR, "qp-request" },
	{ IBV_EVENT_QP_ACCESS_ERR, "qp-access" },
	{ IBV_EVENT_PORT_ERR, "port-down" },
	{ IBV_EVENT_GID_CHANGE, "gid-changed" },
	{ IBV_EVENT_SQ_DRAINED, "sq-drained" },
	{ IBV_EVENT_DEVICE_FATAL, "device-fatal" },
};

struct explanation explain_async_event(enum ibv_event_type type)
{
	for (size_t i = 0; i < sizeof(event_rows) / sizeof(event_rows[0]); i++)
		if (event_rows[i].type == type)
			return because(event_rows[i].id);
	return no_idea();
}
