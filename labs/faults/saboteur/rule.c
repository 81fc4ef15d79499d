// SPDX-License-Identifier: MIT
/*
 * rule.c —— 一条规则：哪个调用、第几次、改什么
 *
 * 所有可改的参数都在一张表里：名字、在参数结构里的偏移、大小。于是“改一个字段”只有
 * 一份代码，加一个字段只是加一行。
 */
#include "rule.h"

#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bit {
	const char *name;
	uint64_t value;
};

struct field {
	const char *name;
	size_t offset, size;
	const struct bit *bits;
};

// clang-format off
#define BIT(prefix, name) { #name, prefix##name }
// clang-format on

static const struct bit mask_bits[] = {
	BIT(IBV_QP_, STATE),
	BIT(IBV_QP_, ACCESS_FLAGS),
	BIT(IBV_QP_, PKEY_INDEX),
	BIT(IBV_QP_, PORT),
	BIT(IBV_QP_, QKEY),
	BIT(IBV_QP_, AV),
	BIT(IBV_QP_, PATH_MTU),
	BIT(IBV_QP_, TIMEOUT),
	BIT(IBV_QP_, RETRY_CNT),
	BIT(IBV_QP_, RNR_RETRY),
	BIT(IBV_QP_, RQ_PSN),
	BIT(IBV_QP_, SQ_PSN),
	BIT(IBV_QP_, MAX_QP_RD_ATOMIC),
	BIT(IBV_QP_, MAX_DEST_RD_ATOMIC),
	BIT(IBV_QP_, MIN_RNR_TIMER),
	BIT(IBV_QP_, DEST_QPN),
	BIT(IBV_QP_, CAP),
	{ 0 },
};
static const struct bit access_bits[] = {
	BIT(IBV_ACCESS_, LOCAL_WRITE),
	BIT(IBV_ACCESS_, REMOTE_WRITE),
	BIT(IBV_ACCESS_, REMOTE_READ),
	BIT(IBV_ACCESS_, REMOTE_ATOMIC),
	BIT(IBV_ACCESS_, ON_DEMAND),
	BIT(IBV_ACCESS_, MW_BIND),
	{ 0 },
};
static const struct bit send_bits[] = {
	BIT(IBV_SEND_, FENCE),
	BIT(IBV_SEND_, SIGNALED),
	BIT(IBV_SEND_, INLINE),
	BIT(IBV_SEND_, SOLICITED),
	{ 0 },
};

// clang-format off
#define FIELD(name, type, member, bits) \
	{ name, offsetof(struct type, member), \
	  sizeof(((struct type *)NULL)->member), bits }
// clang-format on
#define OF_QP(member) FIELD(#member, modify_args, attr.member, NULL)
#define OF_AV(member) FIELD(#member, modify_args, attr.ah_attr.member, NULL)
#define OF_GRH(member) \
	FIELD(#member, modify_args, attr.ah_attr.grh.member, NULL)
#define OF_CAP(member)	FIELD(#member, ibv_qp_init_attr, cap.member, NULL)
#define OF_INIT(member) FIELD(#member, ibv_qp_init_attr, member, NULL)
#define OF_AH(member)	FIELD(#member, ibv_ah_attr, member, NULL)
#define OF_WR(member)	FIELD(#member, send_args, wr.member, NULL)
#define OF_CM(member)	FIELD(#member, rdma_conn_param, member, NULL)

static const struct field modify_fields[] = {
	OF_QP(qp_state),
	OF_QP(pkey_index),
	OF_QP(port_num),
	FIELD("qp_access_flags", modify_args, attr.qp_access_flags,
	      access_bits),
	OF_QP(qkey),
	OF_QP(path_mtu),
	OF_QP(dest_qp_num),
	OF_QP(rq_psn),
	OF_QP(sq_psn),
	OF_QP(max_rd_atomic),
	OF_QP(max_dest_rd_atomic),
	OF_QP(min_rnr_timer),
	OF_QP(timeout),
	OF_QP(retry_cnt),
	OF_QP(rnr_retry),
	OF_AV(is_global),
	OF_AV(dlid),
	OF_AV(sl),
	FIELD("av_port", modify_args, attr.ah_attr.port_num, NULL),
	OF_GRH(sgid_index),
	OF_GRH(hop_limit),
	OF_GRH(traffic_class),
	FIELD("dgid_low", modify_args,
	      attr.ah_attr.grh.dgid.global.interface_id, NULL),
	FIELD("dgid15", modify_args, attr.ah_attr.grh.dgid.raw[15], NULL),
	FIELD("dgid12", modify_args, attr.ah_attr.grh.dgid.raw[12], NULL),
	FIELD("dgid0", modify_args, attr.ah_attr.grh.dgid.raw[0], NULL),
	FIELD("mask", modify_args, mask, mask_bits),
	{ 0 },
};
static const struct field qp_fields[] = {
	OF_CAP(max_send_wr),
	OF_CAP(max_recv_wr),
	OF_CAP(max_send_sge),
	OF_CAP(max_recv_sge),
	OF_CAP(max_inline_data),
	OF_INIT(qp_type),
	OF_INIT(sq_sig_all),
	OF_INIT(send_cq),
	OF_INIT(recv_cq),
	OF_INIT(srq),
	{ 0 },
};
static const struct field cq_fields[] = {
	FIELD("cqe", cq_args, cqe, NULL),
	FIELD("comp_vector", cq_args, comp_vector, NULL),
	FIELD("channel", cq_args, channel, NULL),
	{ 0 },
};
static const struct field srq_fields[] = {
	FIELD("max_wr", ibv_srq_attr, max_wr, NULL),
	FIELD("max_sge", ibv_srq_attr, max_sge, NULL),
	{ 0 },
};
static const struct field ah_fields[] = {
	OF_AH(is_global),
	OF_AH(port_num),
	OF_AH(dlid),
	FIELD("sgid_index", ibv_ah_attr, grh.sgid_index, NULL),
	FIELD("hop_limit", ibv_ah_attr, grh.hop_limit, NULL),
	FIELD("dgid15", ibv_ah_attr, grh.dgid.raw[15], NULL),
	FIELD("dgid12", ibv_ah_attr, grh.dgid.raw[12], NULL),
	{ 0 },
};
static const struct field mr_fields[] = {
	FIELD("addr", mr_args, addr, NULL),
	FIELD("length", mr_args, length, NULL),
	FIELD("access", mr_args, access, access_bits),
	{ 0 },
};
static const struct field send_fields[] = {
	OF_WR(wr_id),
	OF_WR(num_sge),
	OF_WR(opcode),
	FIELD("send_flags", send_args, wr.send_flags, send_bits),
	OF_WR(imm_data),
	FIELD("rkey", send_args, wr.wr.rdma.rkey, NULL),
	FIELD("remote_addr", send_args, wr.wr.rdma.remote_addr, NULL),
	FIELD("atomic.rkey", send_args, wr.wr.atomic.rkey, NULL),
	FIELD("atomic.remote_addr", send_args, wr.wr.atomic.remote_addr, NULL),
	FIELD("ud.ah", send_args, wr.wr.ud.ah, NULL),
	FIELD("ud.remote_qpn", send_args, wr.wr.ud.remote_qpn, NULL),
	FIELD("ud.remote_qkey", send_args, wr.wr.ud.remote_qkey, NULL),
	FIELD("sge.addr", send_args, sge.addr, NULL),
	FIELD("sge.length", send_args, sge.length, NULL),
	FIELD("sge.lkey", send_args, sge.lkey, NULL),
	{ 0 },
};
static const struct field recv_fields[] = {
	FIELD("wr_id", recv_args, wr.wr_id, NULL),
	FIELD("num_sge", recv_args, wr.num_sge, NULL),
	FIELD("sge.addr", recv_args, sge.addr, NULL),
	FIELD("sge.length", recv_args, sge.length, NULL),
	FIELD("sge.lkey", recv_args, sge.lkey, NULL),
	{ 0 },
};
static const struct field arm_fields[] = {
	FIELD("solicited", arm_args, solicited, NULL),
	{ 0 },
};
static const struct field ack_fields[] = {
	FIELD("events", ack_args, events, NULL),
	{ 0 },
};
static const struct field resolve_fields[] = {
	FIELD("port", resolve_args, port, NULL),
	FIELD("timeout", resolve_args, timeout, NULL),
	{ 0 },
};
static const struct field connect_fields[] = {
	OF_CM(private_data_len),
	OF_CM(responder_resources),
	OF_CM(initiator_depth),
	OF_CM(retry_count),
	OF_CM(rnr_retry_count),
	OF_CM(qp_num),
	{ 0 },
};
static const struct field no_fields[] = { { 0 } };

/* 哪些词对哪个调用有意义：s skip，t twice，e early，l lose；kill 与 sleep 总可以。*/
static const struct {
	const char *name;
	const char *words;
	const struct field *fields;
} calls[CALLS] = {
	[CALL_MODIFY_QP] = { "modify_qp", "st", modify_fields },
	[CALL_CREATE_QP] = { "create_qp", "", qp_fields },
	[CALL_CREATE_CQ] = { "create_cq", "", cq_fields },
	[CALL_CREATE_SRQ] = { "create_srq", "", srq_fields },
	[CALL_CREATE_AH] = { "create_ah", "", ah_fields },
	[CALL_REG_MR] = { "reg_mr", "e", mr_fields },
	[CALL_DEREG_MR] = { "dereg_mr", "s", no_fields },
	[CALL_DESTROY_QP] = { "destroy_qp", "s", no_fields },
	[CALL_DESTROY_CQ] = { "destroy_cq", "s", no_fields },
	[CALL_POST_SEND] = { "post_send", "st", send_fields },
	[CALL_POST_RECV] = { "post_recv", "st", recv_fields },
	[CALL_POST_SRQ_RECV] = { "post_srq_recv", "st", recv_fields },
	[CALL_POLL] = { "poll", "st", no_fields },
	[CALL_ARM] = { "arm", "st", arm_fields },
	[CALL_ACK] = { "ack", "st", ack_fields },
	[CALL_RESOLVE_ADDR] = { "resolve_addr", "", resolve_fields },
	[CALL_RESOLVE_ROUTE] = { "resolve_route", "", no_fields },
	[CALL_LISTEN] = { "listen", "s", no_fields },
	[CALL_CONNECT] = { "connect", "st", connect_fields },
	[CALL_ACCEPT] = { "accept", "st", connect_fields },
	[CALL_ACK_CM] = { "ack_cm", "s", no_fields },
	[CALL_DISCONNECT] = { "disconnect", "s", no_fields },
	[CALL_TCP] = { "tcp", "sl", no_fields },
};

static const char *const states[] = { "RESET", "INIT", "RTR", "RTS",
				      "SQD",   "SQE",  "ERR" };

/* 前几个与 enum deed 一一对应。*/
enum word {
	CHANGE,
	WORD_SKIP,
	WORD_TWICE,
	WORD_EARLY,
	WORD_LOSE,
	KILL,
	SLEEP
};

struct rule {
	enum call call;
	int state; /* modify_qp: to this one; -1: any */
	unsigned long from;
	bool and_later;
	enum word word;
	const struct field *field;
	char op;
	uint64_t value;
};

/* ---- 读 ------------------------------------------------------------------- */

static struct rule mine;

static bool same(const char *text, size_t len, const char *name)
{
	return strlen(name) == len && !strncmp(text, name, len);
}

static bool read_number(const char *text, const char *end, uint64_t *value)
{
	char *stop;

	if (text == end || *text == '-')
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 0);
	return stop == end && !errno;
}

static bool read_which(struct rule *r, const char *text, const char *end)
{
	uint64_t n;

	for (int i = 0; r->call == CALL_MODIFY_QP && i < 7; i++)
		if (same(text, (size_t)(end - text), states[i])) {
			r->state = i;
			return true;
		}
	r->and_later = end > text && end[-1] == '+';
	if (!read_number(text, end - r->and_later, &n) || !n)
		return false;
	r->from = n;
	return true;
}

static bool read_word(struct rule *r, const char *text)
{
	static const char *const words[] = { "skip", "twice", "early", "lose" };
	const char *end = text + strlen(text);

	for (size_t i = 0; i < 4; i++)
		if (!strcmp(text, words[i]) &&
		    strchr(calls[r->call].words, words[i][0])) {
			r->word = (enum word)(WORD_SKIP + i);
			return true;
		}
	if (!strcmp(text, "kill"))
		r->word = KILL;
	else if (!strncmp(text, "sleep=", 6) &&
		 read_number(text + 6, end, &r->value))
		r->word = SLEEP;
	return r->word == KILL || r->word == SLEEP;
}

/* +NAME、-NAME 是置位与清位；清位用 '&'。*/
static bool read_bit(struct rule *r, char sign, const char *name)
{
	for (const struct bit *b = r->field->bits; b && b->name; b++)
		if (!strcmp(b->name, name)) {
			r->op = sign == '+' ? '|' : '&';
			r->value = b->value;
			return true;
		}
	return false;
}

static bool read_change(struct rule *r, const char *text)
{
	const char *end = text + strlen(text);
	size_t len = strcspn(text, "=+-^~<>");
	const struct field *f = calls[r->call].fields;
	const char *how = text + len;

	while (f->name && !same(text, len, f->name))
		f++;
	if (!f->name || !*how)
		return false;
	r->field = f;
	r->op = *how++;
	if (r->op == '~')
		return !*how;
	if ((r->op == '<' || r->op == '>') && *how++ != r->op)
		return false;
	if ((r->op == '+' || r->op == '-') && read_bit(r, r->op, how))
		return true;
	return read_number(how, end, &r->value) &&
	       ((r->op != '<' && r->op != '>') || r->value < 64);
}

static const char *wrong_change(const struct rule *r, const char *text,
				const char **next)
{
	static char wrong[256], right[1024];
	size_t used;

	snprintf(wrong, sizeof(wrong), "\"%s\" is no change of %s", text,
		 calls[r->call].name);
	used = (size_t)snprintf(
		right, sizeof(right), "kill, sleep=S%s%s%s%s, or one of:",
		strchr(calls[r->call].words, 's') ? ", skip" : "",
		strchr(calls[r->call].words, 't') ? ", twice" : "",
		strchr(calls[r->call].words, 'e') ? ", early" : "",
		strchr(calls[r->call].words, 'l') ? ", lose" : "");
	for (const struct field *f = calls[r->call].fields; f->name; f++)
		used += (size_t)snprintf(right + used, sizeof(right) - used,
					 " %s", f->name);
	*next = right;
	return wrong;
}

const struct rule *rule_parse(const char *text, const char **wrong,
			      const char **next)
{
	struct rule r = { .state = -1, .from = 1 };
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	const char *change;

	while (r.call < CALLS && !same(text, len, calls[r.call].name))
		r.call++;
	*wrong = "the rule begins with no call that can be sabotaged";
	*next = "sabotage --list";
	if (r.call == CALLS)
		return NULL;
	*wrong = "the rule has no change";
	*next = "CALL[:WHICH]:CHANGE, for example post_send:3:rkey^1";
	if (!colon)
		return NULL;
	change = strchr(colon + 1, ':');
	*wrong = "WHICH is a number from 1 on, \"3+\", or a state of modify_qp";
	if (change && !read_which(&r, colon + 1, change))
		return NULL;
	change = change ? change + 1 : colon + 1;
	if (!read_word(&r, change) && !read_change(&r, change)) {
		*wrong = wrong_change(&r, change, next);
		return NULL;
	}
	mine = r;
	return &mine;
}

void rule_list(void)
{
	for (int c = 0; c < CALLS; c++) {
		printf("%s:", calls[c].name);
		for (const struct field *f = calls[c].fields; f->name; f++)
			printf(" %s", f->name);
		for (const char *w = calls[c].words; *w; w++)
			printf(" %s", *w == 's'	  ? "skip"
				      : *w == 't' ? "twice"
				      : *w == 'e' ? "early"
						  : "lose");
		puts(" kill sleep=S");
	}
}

/* ---- 动手 ----------------------------------------------------------------- */

/* sabotage --in：只在它自己变成的那个进程里，或只在那个进程的子进程里。*/
static bool here(void)
{
	const char *where = getenv("SABOTAGE_IN"),
		   *first = getenv("SABOTAGE_PID");
	bool is_first = first && atoi(first) == getpid();

	return !where || is_first == !strcmp(where, "first");
}

const struct rule *rule_mine(void)
{
	static atomic_int known; /* 0 还没读，1 有，-1 没有 */
	const char *text, *wrong, *next;

	if (!atomic_load(&known)) {
		text = getenv("SABOTAGE");
		atomic_store(&known,
			     text && rule_parse(text, &wrong, &next) ? 1 : -1);
	}
	return atomic_load(&known) > 0 ? &mine : NULL;
}

bool rule_hits(enum call call, enum ibv_qp_state state)
{
	static atomic_ulong made;
	const struct rule *r = rule_mine();
	unsigned long n;

	if (!r || r->call != call || !here() ||
	    (r->state >= 0 && (enum ibv_qp_state)r->state != state))
		return false;
	n = atomic_fetch_add(&made, 1) + 1;
	return n == r->from || (r->and_later && n > r->from);
}

bool rule_is_in(size_t from, size_t to)
{
	return mine.word != CHANGE ||
	       (mine.field->offset >= from && mine.field->offset < to);
}

static uint64_t read_field(const void *at, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, at, size); /* little-endian，大端机上见下 */
	return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? value >> (64 - 8 * size)
						      : value;
}

static void write_field(void *at, size_t size, uint64_t value)
{
	if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
		value <<= 64 - 8 * size;
	memcpy(at, &value, size);
}

static uint64_t swapped(uint64_t value, size_t size)
{
	return bswap_64(value) >> (64 - 8 * size);
}

static uint64_t changed(uint64_t old)
{
	switch (mine.op) {
	case '+':
		return old + mine.value;
	case '-':
		return old - mine.value;
	case '^':
		return old ^ mine.value;
	case '|':
		return old | mine.value;
	case '&':
		return old & ~mine.value;
	case '<':
		return old << mine.value;
	case '>':
		return old >> mine.value;
	case '~':
		return swapped(old, mine.field->size);
	default:
		return mine.value;
	}
}

/* 程序的 stdout、stderr 不该因此变样，所以可以写到文件里去。*/
static void say(const char *what)
{
	static atomic_bool said; /* "3+" 的规则也只说一次 */
	const char *path = getenv("SABOTAGE_LOG");
	char text[256];
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
			     0600)
		      : STDERR_FILENO;
	int n = snprintf(text, sizeof(text), "sabotage: %s%s%s: %s\n",
			 calls[mine.call].name, mine.state >= 0 ? " to " : "",
			 mine.state >= 0 ? states[mine.state] : "", what);

	if (fd < 0)
		return;
	if (!atomic_exchange(&said, true) && write(fd, text, (size_t)n) != n)
		abort();
	if (path)
		close(fd);
}

static void change(void *args)
{
	const struct field *f = mine.field;
	void *at = (char *)args + f->offset;
	uint64_t old = read_field(at, f->size);
	char text[160];

	write_field(at, f->size, changed(old));
	snprintf(text, sizeof(text), "%s 0x%llx -> 0x%llx", f->name,
		 (unsigned long long)old,
		 (unsigned long long)read_field(at, f->size));
	say(text);
}

enum deed rule_strike(void *args)
{
	static const char *const said[] = { NULL,    "skipped",	  "twice",
					    "early", "byte lost", "killed",
					    "asleep" };
	int saved_errno = errno;

	if (mine.word == CHANGE)
		change(args);
	else
		say(said[mine.word]);
	if (mine.word == KILL)
		raise(SIGKILL);
	else if (mine.word == SLEEP)
		sleep((unsigned int)mine.value);
	errno = saved_errno;
	return mine.word < KILL ? (enum deed)mine.word : DO;
}

bool rule_is(enum call call, enum deed deed)
{
	const struct rule *r = rule_mine();

	return r && r->call == call && r->word == (enum word)deed;
}

enum deed rule_apply(enum call call, void *args)
{
	return rule_hits(call, IBV_QPS_RESET) ? rule_strike(args) : DO;
}
