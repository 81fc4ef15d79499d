// SPDX-License-Identifier: MIT
/*
 * qp_sweep.c —— 让真内核来判 common/qp_table：逐行、逐位地问它
 *
 *	qp_sweep drive [DEVICE]   用 ibv_modify_qp 走遍 (类型, from, to)：必需的位
 *	                          给全、各缺一位、各多一位，每次都比对 errno 与
 *	                          之后的状态（缺省设备 rxe0）
 *	qp_sweep memory           从 /proc/kcore 读出 ib_core 里的 qp_state_table，
 *	                          与本表逐格比对；rxe 建不出的 XRC 也看得到
 *
 * 不一致时每处一行：类型、from、to、位、期望、实际。退出码：0 一致，1 不一致，2 用
 * 法错，77 这里做不了。
 *
 * 要让“EINVAL”只可能来自状态机的表，其余一切都必须是对的：所以每个属性都填合法的
 * 值，AV 指向自己（路由与邻居必然成立），QP 先去一次 INIT 让 uverbs 记住 port。
 */
#include "explain/qp_table.h"
#include "explain/rxe_facts.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CANNOT	     77
#define DRAIN_MS     2000
#define LAST_BIT     IBV_QP_DEST_QPN /* uverbs 的 modify_qp 认得的最后一位 */
#define UNKNOWN_BIT  (LAST_BIT << 1)
#define MAX_PRINTED  200
#define KERNEL_TYPES 11 /* 内核的 IB_QPT_MAX */

struct sweep {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	enum ibv_qp_type type;
	union ibv_gid gid;
	uint8_t gid_index;
	bool stateless;	      /* 这个内核没有 STATE 也查表 */
	enum ibv_qp_state at; /* 内核里的状态；-1：要重新带过去 */
	unsigned int tried, accepted, differ;
	unsigned int modified; /* 连同“带过去”的，一共几次 */
	unsigned int early;    /* 其中在表之前就被拒的 */
};

/* 一次提问：在 now 状态、声称是 claimed、要去 to。*/
struct question {
	enum ibv_qp_state now, claimed, to;
	int mask;
	const char *how; /* "without", "with", ... */
	int bits;	 /* 与必需的那一套相差的位 */
};

static int complain(const char *what, int err)
{
	fprintf(stderr, "qp_sweep: %s: %s\n", what, strerror(err));
	return -err;
}

static const char *errno_name(int err)
{
	const char *name = err ? strerrorname_np(err) : "OK";

	return name ? name : "unknown errno";
}

static void differs(struct sweep *s, const struct question *q,
		    const char *expected, const char *got)
{
	char bits[512];

	if (++s->differ > MAX_PRINTED)
		return;
	printf("DIFFER %s %s -> %s, %s %s: expected %s, got %s\n",
	       qp_type_name(s->type), qp_state_name(q->claimed),
	       qp_state_name(q->to), q->how,
	       qp_mask_text(bits, sizeof(bits), q->bits), expected, got);
}

/* ---- 一个 QP，和把它带到某个状态 ------------------------------------------ */

/* 每个成员都填上合法的值；哪些生效，只由 mask 决定。*/
static struct ibv_qp_attr right_values(const struct sweep *s,
				       const struct question *q)
{
	struct ibv_ah_attr myself = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = s->gid,
			 .sgid_index = s->gid_index,
			 .hop_limit = 64 },
	};

	return (struct ibv_qp_attr){
		.qp_state = q->to,
		.cur_qp_state = q->claimed,
		.en_sqd_async_notify = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.port_num = 1,
		.qkey = 0x1234,
		.ah_attr = myself,
		.path_mtu = IBV_MTU_1024,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 6,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.alt_ah_attr = myself,
		.alt_port_num = 1,
		.alt_timeout = 14,
		.min_rnr_timer = 12,
		.path_mig_state = IBV_MIG_MIGRATED,
		.cap = { 1, 1, 1, 1, 0 },
		.dest_qp_num = s->qp->qp_num,
	};
}

static int modify(struct sweep *s, const struct question *q)
{
	struct ibv_qp_attr attr = right_values(s, q);

	s->modified++;
	return ibv_modify_qp(s->qp, &attr, q->mask);
}

static int query(struct sweep *s, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	return ibv_query_qp(s->qp, attr, IBV_QP_STATE, &init);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/*
 * rxe 的 SQD 先是“正在排空”：此时除了去 ERR，它一概回 EINVAL，那不是表的意思。
 * 排空由 tasklet 做，没有 WR 时也要等它跑一次。
 */
static int wait_drained(struct sweep *s)
{
	int64_t end = now_ms() + DRAIN_MS;
	struct ibv_qp_attr attr;
	int err;

	do {
		err = query(s, &attr);
		if (err)
			return complain("ibv_query_qp", err);
		if (!attr.sq_draining)
			return 0;
	} while (now_ms() < end);
	return complain("the send queue does not drain", ETIMEDOUT);
}

/* 台阶手写在这里，不取自被测的表：表错了，也要能走到每个状态去指出它错。*/
static int ladder_mask(enum ibv_qp_type type, enum ibv_qp_state to)
{
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		return mask | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (to == IBV_QPS_RTR && type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (to == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	if (to == IBV_QPS_RTS && type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return mask;
}

static int step(struct sweep *s, enum ibv_qp_state to)
{
	struct question q = { .claimed = s->at, .to = to };
	int err;

	q.mask = ladder_mask(s->type, to);
	err = modify(s, &q);
	if (err) {
		fprintf(stderr, "qp_sweep: cannot bring a %s QP to %s\n",
			qp_type_name(s->type), qp_state_name(to));
		return complain("ibv_modify_qp", err);
	}
	s->at = to;
	return to == IBV_QPS_SQD ? wait_drained(s) : 0;
}

static int bring_to(struct sweep *s, enum ibv_qp_state to)
{
	static const enum ibv_qp_state up[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						IBV_QPS_RTS, IBV_QPS_SQD };
	int rc;

	if (s->at == to)
		return 0;
	rc = wait_drained(s); /* 上一问也许到了 SQD：没排空只许去 ERR */
	if (!rc)
		rc = step(s, IBV_QPS_RESET);
	for (size_t i = 0; !rc && s->at != to && i < 4; i++)
		rc = step(s, to == IBV_QPS_ERR && i == 3 ? to : up[i]);
	return rc;
}

/* ---- 提问 --------------------------------------------------------------- */

/* 在表之前就有定论的几种位；都不依赖状态。*/
static int refused_early(const struct sweep *s, int mask)
{
	if (s->type == IBV_QPT_UD && (mask & IBV_QP_ACCESS_FLAGS) &&
	    rxe_fact_holds(RXE_LOOKS_AT_UD_ACCESS_FIRST))
		return EINVAL;
	if (mask & ~((LAST_BIT << 1) - 1))
		return EOPNOTSUPP; /* libibverbs 自己就不往下传 */
	if (mask & IBV_QP_ALT_PATH)
		return EINVAL; /* ib_core：备用路径只有 InfiniBand 才有 */
	return 0;
}

static int ask(struct sweep *s, struct question q)
{
	int early = refused_early(s, q.mask), expected = early, got;
	struct ibv_qp_attr attr;
	enum ibv_qp_state after;
	int rc = bring_to(s, q.now);

	if (rc)
		return rc;
	if (!early && !qp_mask_allowed(s->type, q.now, q.claimed, q.to, q.mask))
		expected = EINVAL;
	got = modify(s, &q);
	s->tried++;
	s->early += early != 0;
	s->accepted += got == 0;
	if (got != expected)
		differs(s, &q, errno_name(expected), errno_name(got));
	/* 被拒的调用必须什么都没改；放行的必须真的到了。*/
	after = !got && (q.mask & IBV_QP_STATE) ? q.to : q.now;
	rc = query(s, &attr);
	if (rc)
		return complain("ibv_query_qp", rc);
	if (attr.qp_state != after)
		differs(s, &q, qp_state_name(after),
			qp_state_name(attr.qp_state));
	if (!got || attr.qp_state != q.now)
		s->at = (enum ibv_qp_state) - 1;
	return 0;
}

static int ask_without(struct sweep *s, struct question q, int bit)
{
	q.mask &= ~bit;
	q.how = "without";
	q.bits = bit;
	return ask(s, q);
}

static int ask_with(struct sweep *s, struct question q, int bits)
{
	q.mask |= bits;
	q.how = "with";
	q.bits = bits;
	return ask(s, q);
}

/* 所有通往 to 的路所要求的位：不合法的 from 配上它们，仍然要被拒。*/
static int wanted_by(enum ibv_qp_type type, enum ibv_qp_state to)
{
	int mask = 0;

	for (int from = 0; from < QP_STATES; from++) {
		const struct qp_transition *row = qp_transition(type, from, to);

		mask |= row ? row->required : 0;
	}
	return mask;
}

/* @q 带着必需的一套；各缺一位、各多一位，最后把可选的一次全加上。*/
static int ask_each_bit(struct sweep *s, const struct question *q, int optional)
{
	int rc = ask(s, *q);

	for (int bit = 1; !rc && bit <= UNKNOWN_BIT; bit <<= 1) {
		if (bit == IBV_QP_STATE && !s->stateless)
			continue;
		/* from 是 SQE 时，CUR_STATE 是说出这件事的唯一办法。*/
		if (bit == IBV_QP_CUR_STATE && q->now != q->claimed)
			continue;
		if (q->mask & bit)
			rc = ask_without(s, *q, bit);
		else
			rc = ask_with(s, *q, bit);
	}
	if (!rc)
		rc = ask_with(s, *q, IBV_QP_RATE_LIMIT);
	optional &= ~(q->mask | IBV_QP_ALT_PATH);
	if (!rc && optional)
		rc = ask_with(s, *q, optional);
	return rc;
}

static int ask_pair(struct sweep *s, enum ibv_qp_state from,
		    enum ibv_qp_state to)
{
	const struct qp_transition *row = qp_transition(s->type, from, to);
	struct question q = { from, from, to, IBV_QP_STATE, "required set", 0 };
	int rc;

	/* rxe 从不进入 SQE；借 CUR_STATE 声称它，让表的这一行也受到检验。*/
	if (from == IBV_QPS_SQE) {
		q.now = IBV_QPS_RTS;
		q.mask |= IBV_QP_CUR_STATE;
		if (row && !(row->optional & IBV_QP_CUR_STATE))
			printf("left out: %s SQE -> %s cannot succeed here: "
			       "rxe never enters SQE, and the row does not "
			       "let CUR_STATE claim it\n",
			       qp_type_name(s->type), qp_state_name(to));
	}
	if (row)
		q.mask |= row->required;
	q.bits = q.mask;
	rc = ask_each_bit(s, &q, row ? row->optional : 0);
	if (!rc && !row)
		rc = ask_with(s, q, wanted_by(s->type, to) | IBV_QP_STATE);
	return rc;
}

/* 说谎：QP 在 RESET，却声称在 RTR，要去 RTS。内核信了，QP 真的到了 RTS。*/
static int ask_lie(struct sweep *s)
{
	struct question q = {
		IBV_QPS_RESET,	       IBV_QPS_RTR,
		IBV_QPS_RTS,	       IBV_QP_STATE | IBV_QP_CUR_STATE,
		"claimed in RESET by", IBV_QP_CUR_STATE
	};

	q.mask |= ladder_mask(s->type, IBV_QPS_RTS);
	return ask(s, q);
}

static int create_qp(struct sweep *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = s->type,
	};

	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		return complain("ibv_create_qp", errno);
	s->at = IBV_QPS_RESET;
	return step(s, IBV_QPS_INIT);
}

static int sweep_type(struct sweep *s, enum ibv_qp_type type)
{
	unsigned int tried = s->tried, accepted = s->accepted;
	unsigned int differ = s->differ;
	int rc, err;

	if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV) {
		printf("left out: %s: rxe makes no such QP\n",
		       qp_type_name(type));
		return 0;
	}
	s->type = type;
	s->qp = NULL;
	rc = create_qp(s);
	for (int from = 0; !rc && from < QP_STATES; from++)
		for (int to = 0; !rc && to < QP_STATES; to++)
			rc = ask_pair(s, from, to);
	if (!rc)
		rc = ask_lie(s);
	err = s->qp ? ibv_destroy_qp(s->qp) : 0;
	if (err)
		return complain("ibv_destroy_qp", err);
	tried = s->tried - tried;
	accepted = s->accepted - accepted;
	printf("%s: %u calls, %u accepted, %u refused, %u differ\n",
	       qp_type_name(type), tried, accepted, tried - accepted,
	       s->differ - differ);
	return rc;
}

/* ---- 设备 --------------------------------------------------------------- */

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (size_t i = 0; list && list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* 任何一个 RoCE v2 的 GID 都行：AV 指向自己。IPv4 的最省心。*/
static int choose_gid(struct sweep *s)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry[16];
	ssize_t n = ibv_query_gid_table(s->context, entry, 16, 0);

	for (ssize_t i = 0; i < n; i++) {
		if (entry[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(entry[i].gid.raw, ipv4, sizeof(ipv4)))
			continue;
		s->gid = entry[i].gid;
		s->gid_index = (uint8_t)entry[i].gid_index;
		return 0;
	}
	fprintf(stderr, "qp_sweep: the device has no IPv4 RoCE v2 GID\n");
	return -ENODATA;
}

/* 缺 IBV_QP_STATE 时，有的 rxe 不查表，返回 0 而什么都没发生。*/
static bool checks_without_state(void)
{
	if (!rxe_fact_holds(RXE_TAKES_MASKS_WITHOUT_STATE))
		return true;
	printf("left out: masks without STATE: the rxe of this kernel does "
	       "not compare them with the table\n");
	return false;
}

static int sweep_device(struct sweep *s)
{
	size_t types;
	const enum ibv_qp_type *type = qp_types(&types);
	int rc = choose_gid(s);

	if (rc)
		return rc;
	s->stateless = checks_without_state();
	s->pd = ibv_alloc_pd(s->context);
	s->cq = s->pd ? ibv_create_cq(s->context, 1, NULL, NULL, 0) : NULL;
	if (!s->cq)
		rc = complain("ibv_alloc_pd, ibv_create_cq", errno);
	for (size_t i = 0; !rc && i < types; i++)
		rc = sweep_type(s, type[i]);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->pd)
		ibv_dealloc_pd(s->pd);
	return rc;
}

static int drive(const char *name)
{
	struct sweep s = { 0 };
	int rc;

	s.context = open_named(name);
	if (!s.context) {
		fprintf(stderr, "qp_sweep: no device %s here\n", name);
		return CANNOT;
	}
	rc = sweep_device(&s);
	ibv_close_device(s.context);
	printf("modify calls in all: %u, of which never reach the table: %u "
	       "(ALT_PATH on RoCE, bits above DEST_QPN)\n",
	       s.modified, s.early);
	printf("tried %u calls: %u accepted, %u refused, %u differ\n", s.tried,
	       s.accepted, s.tried - s.accepted, s.differ);
	return rc || s.differ ? 1 : 0;
}

/* ---- 内核内存里的表 ------------------------------------------------------ */

/* drivers/infiniband/core/verbs.c 里那个匿名结构的样子，类型从 SMI 数起。*/
struct kernel_cell {
	int32_t valid;
	int32_t required[KERNEL_TYPES];
	int32_t optional[KERNEL_TYPES];
};

static uint64_t symbol_address(const char *symbol)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	unsigned long long address = 0, found = 0;
	char line[512], name[256];

	while (file && !found && fgets(line, sizeof(line), file))
		if (strstr(line, symbol) &&
		    sscanf(line, "%llx %*c %255s", &address, name) == 2 &&
		    !strcmp(name, symbol))
			found = address;
	if (file)
		fclose(file);
	return found;
}

/* /proc/kcore 是一个 ELF core：虚拟地址在哪一段，就在文件的哪里。*/
static bool read_kernel(uint64_t address, void *data, size_t size)
{
	int fd = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr header;
	bool done = false;

	if (fd < 0)
		return false;
	if (pread(fd, &header, sizeof(header), 0) != sizeof(header))
		header.e_phnum = 0;
	for (int i = 0; !done && i < header.e_phnum; i++) {
		Elf64_Phdr part;
		off_t at = (off_t)(header.e_phoff + i * sizeof(part));

		if (pread(fd, &part, sizeof(part), at) != sizeof(part))
			break;
		if (part.p_type != PT_LOAD || address < part.p_vaddr ||
		    address - part.p_vaddr + size > part.p_memsz)
			continue;
		at = (off_t)(part.p_offset + (address - part.p_vaddr));
		done = pread(fd, data, size, at) == (ssize_t)size;
	}
	close(fd);
	return done;
}

/* 合法的恰是 22 格、每格非 0 即 1，才相信结构没有变。*/
static bool looks_right(const struct kernel_cell *cell, size_t cells)
{
	size_t valid = 0;

	for (size_t i = 0; i < cells; i++) {
		if (cell[i].valid != 0 && cell[i].valid != 1)
			return false;
		valid += cell[i].valid != 0;
	}
	return valid == QP_TRANSITIONS;
}

static unsigned int compare_cell(enum ibv_qp_type type, enum ibv_qp_state from,
				 enum ibv_qp_state to,
				 const struct kernel_cell *cell)
{
	static const struct qp_transition none;
	const struct qp_transition *row = qp_transition(type, from, to);
	char mine[512], kernels[512];

	if (!row == !cell->valid &&
	    (row ? row : &none)->required == cell->required[type] &&
	    (row ? row : &none)->optional == cell->optional[type])
		return 0;
	printf("DIFFER %s %s -> %s: the table has %s", qp_type_name(type),
	       qp_state_name(from), qp_state_name(to),
	       row ? "required " : "no row");
	if (row)
		printf("%s, optional %s",
		       qp_mask_text(mine, sizeof(mine), row->required),
		       qp_mask_text(kernels, sizeof(kernels), row->optional));
	printf("; the kernel %s required %s, optional %s\n",
	       cell->valid ? "legal," : "illegal,",
	       qp_mask_text(mine, sizeof(mine), cell->required[type]),
	       qp_mask_text(kernels, sizeof(kernels), cell->optional[type]));
	return 1;
}

static int compare_memory(void)
{
	struct kernel_cell table[QP_STATES][QP_STATES];
	uint64_t address = symbol_address("qp_state_table");
	unsigned int cells = 0, differ = 0;
	size_t types;
	const enum ibv_qp_type *type = qp_types(&types);

	if (!address || !read_kernel(address, table, sizeof(table))) {
		fprintf(stderr, "qp_sweep: cannot read qp_state_table: needs "
				"root, ib_core and /proc/kcore\n");
		return CANNOT;
	}
	if (!looks_right(table[0], QP_STATES * QP_STATES)) {
		fprintf(stderr, "qp_sweep: this kernel's qp_state_table has "
				"another layout\n");
		return CANNOT;
	}
	for (size_t i = 0; i < types; i++)
		for (int from = 0; from < QP_STATES; from++)
			for (int to = 0; to < QP_STATES; to++, cells++)
				differ += compare_cell(type[i], from, to,
						       &table[from][to]);
	printf("compared %u cells of %zu types: %u differ\n", cells, types,
	       differ);
	return differ ? 1 : 0;
}

int main(int argc, char *argv[])
{
	if (argc == 2 && !strcmp(argv[1], "memory"))
		return compare_memory();
	if ((argc == 2 || argc == 3) && !strcmp(argv[1], "drive"))
		return drive(argc == 3 ? argv[2] : "rxe0");
	fprintf(stderr, "usage: qp_sweep drive [DEVICE] | memory\n");
	return 2;
}
