// SPDX-License-Identifier: MIT
/*
 * pcap.c —— 抓到的包，每个注上属于哪一次 post、哪一个 completion：Wireshark 里包的旁边就是调用
 *
 * RC 与 UC 的 PSN 从 sq_psn 起，一个包一个号，READ 的回应也占号：第几次 post 用了哪些号是算得出来的。
 * 请求的包写着对端的 QPN，回应的写着自己的；rxe0 与 rxe1 上可以有同号的 QP，所以也看 IP。UD 的包
 * 发给谁都用同一串号，不注。
 */
#include "parts.h"

#include "base/report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PSN_MASK 0xffffffu
#define MOST	 65536u /* 一个包的字节 */

/* 一个 QP 发出的：第 i 次 post 从 start + first[i] 起。*/
struct flow {
	const struct qp *qp;
	uint32_t start, all;
	uint32_t *first;
	size_t *posts;
	size_t count;
};

struct packet {
	unsigned int opcode, qpn, psn;
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
};

static bool is_sent(const struct event *e, const struct qp *qp)
{
	return is_of(e, qp) && e->class == CLASS_POST_SEND && !e->refused;
}

static struct flow flow_of(const struct report *r, const struct qp *qp)
{
	uint32_t mtu = (uint32_t)number_in(qp->believes, "path_mtu"), bytes;
	struct flow flow = {
		.qp = qp,
		.start = (uint32_t)number_in(qp->believes, "sq_psn"),
	};
	size_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += is_sent(&r->events[i], qp);
	flow.first = calloc(n + 1, sizeof(*flow.first));
	flow.posts = calloc(n + 1, sizeof(*flow.posts));
	for (size_t i = 0; flow.first && flow.posts && i < r->count; i++) {
		if (!is_sent(&r->events[i], qp))
			continue;
		bytes = (uint32_t)event_number(r, &r->events[i], "len");
		flow.first[flow.count] = flow.all;
		flow.posts[flow.count++] = i;
		flow.all += mtu && bytes > mtu ? (bytes + mtu - 1) / mtu : 1;
	}
	return flow;
}

static const struct event *post_at(const struct report *r,
				   const struct flow *flow, uint32_t psn)
{
	uint32_t offset = (psn - flow->start) & PSN_MASK;
	size_t low = 0, high = flow->count;

	if (offset >= flow->all)
		return NULL;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (flow->first[middle] <= offset)
			low = middle;
		else
			high = middle;
	}
	return &r->events[flow->posts[low]];
}

/* Ethernet、IP、UDP、BTH；不是 RoCE v2 的：false。*/
static bool parse(const uint8_t *data, size_t size, struct packet *p)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint8_t from[16], to[16];
	const uint8_t *bth;
	size_t ip = 20;

	if (size < 14 + 20 + 8 + 12)
		return false;
	if (data[12] == 0x08 && data[13] == 0 && data[23] == 17) {
		memcpy(from, mapped, 12);
		memcpy(to, mapped, 12);
		memcpy(from + 12, data + 26, 4);
		memcpy(to + 12, data + 30, 4);
		ip = (data[14] & 15u) * 4;
	} else if (data[12] == 0x86 && data[13] == 0xdd && data[20] == 17) {
		memcpy(from, data + 22, 16);
		memcpy(to, data + 38, 16);
		ip = 40;
	} else {
		return false;
	}
	if (14 + ip + 8 + 12 > size || data[14 + ip + 2] != 4791 >> 8 ||
	    data[14 + ip + 3] != (4791 & 0xff))
		return false;
	bth = data + 14 + ip + 8;
	p->opcode = bth[0];
	p->qpn = (unsigned int)bth[5] << 16 | bth[6] << 8 | bth[7];
	p->psn = (unsigned int)bth[9] << 16 | bth[10] << 8 | bth[11];
	inet_ntop(AF_INET6, from, p->from, sizeof(p->from));
	inet_ntop(AF_INET6, to, p->to, sizeof(p->to));
	return true;
}

/* READ 的回应、ACK、原子操作的回应 */
static bool is_answer(const struct packet *p)
{
	return (p->opcode & 31) >= 13 && (p->opcode & 31) <= 18;
}

static const struct event *
find(const struct report *r, const struct flow *flows, const struct packet *p)
{
	const struct event *post;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = flows[i].qp;
		const char *dgid = text_in(qp->believes, "dgid");
		uint64_t to = is_answer(p)
				      ? qp->qpn
				      : number_in(qp->believes, "dest_qpn");

		if (p->qpn != to || !strcmp(qp->type, "UD") ||
		    (*dgid && strcmp(dgid, is_answer(p) ? p->from : p->to)))
			continue;
		post = post_at(r, &flows[i], p->psn);
		if (post)
			return post;
	}
	return NULL;
}

static size_t add(const struct report *r, char *out, size_t size,
		  const char *what, const struct event *e, int64_t since)
{
	char text[DESCRIBED_SIZE];
	int n;

	json_decref(event_describe(r, e, text));
	n = snprintf(out, size, "%s%c %s (%+.3f ms)", what, "AB"[e->side], text,
		     (double)(e->t - since) / 1e6);
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

static size_t comment_of(const struct report *r, const struct packet *p,
			 const struct event *post, char *out, size_t size)
{
	size_t n = add(r, out, size, is_answer(p) ? "answers " : "", post,
		       post->t);

	if (post->complete != NOWHERE)
		n += add(r, out + n, size - n, "\n", &r->events[post->complete],
			 post->t);
	if (!is_answer(p) && post->arrival != NOWHERE)
		n += add(r, out + n, size - n, "\n", &r->events[post->arrival],
			 post->t);
	return n;
}

static void put_32(FILE *out, uint32_t value)
{
	fwrite(&value, sizeof(value), 1, out);
}

static void put_padded(FILE *out, const void *data, uint32_t size)
{
	fwrite(data, 1, size, out);
	fwrite("\0\0\0", 1, -size & 3, out);
}

/* pcapng 的块：类型、长度、内容、长度。@head：pcap 的，时刻与两个长度。*/
static void put_packet(FILE *out, const uint32_t head[4], const uint8_t *data,
		       const char *comment, uint32_t length, uint64_t scale)
{
	uint64_t t = head[0] * scale + head[1];
	uint32_t size = 32 + ((head[2] + 3) & ~3u);

	if (length)
		size += 8 + ((length + 3) & ~3u);
	put_32(out, 6);
	put_32(out, size);
	put_32(out, 0);
	put_32(out, (uint32_t)(t >> 32));
	put_32(out, (uint32_t)t);
	put_32(out, head[2]);
	put_32(out, head[3]);
	put_padded(out, data, head[2]);
	if (length) {
		put_32(out, 1 | length << 16); /* opt_comment */
		put_padded(out, comment, length);
		put_32(out, 0);
	}
	put_32(out, size);
}

static void put_head(FILE *out, const uint32_t pcap[6], bool ns)
{
	const uint32_t section[7] = { 0x0a0d0d0a, 28,	      0x1a2b3c4d, 1,
				      UINT32_MAX, UINT32_MAX, 28 };
	const uint32_t interface[8] = {
		1, 32, pcap[5], pcap[4], 9 | 1u << 16, ns ? 9 : 6, 0, 32
	};

	fwrite(section, sizeof(section), 1, out);
	fwrite(interface, sizeof(interface), 1, out);
}

static void annotate(const struct report *r, const struct flow *flows, FILE *in,
		     FILE *out, uint64_t scale)
{
	static uint8_t data[MOST];
	char comment[3 * DESCRIBED_SIZE + 64];
	const struct event *post;
	uint32_t head[4];
	struct packet p;
	size_t n;

	while (fread(head, sizeof(head), 1, in) == 1 && head[2] <= MOST &&
	       fread(data, 1, head[2], in) == head[2]) {
		post = parse(data, head[2], &p) ? find(r, flows, &p) : NULL;
		n = post ? comment_of(r, &p, post, comment, sizeof(comment))
			 : 0;
		put_packet(out, head, data, comment, (uint32_t)n, scale);
	}
}

int report_annotate(const struct report *r, const char *from, const char *to)
{
	struct flow *flows = calloc(r->qp_count + 1, sizeof(*flows));
	FILE *in = fopen(from, "r"), *out = NULL;
	uint32_t pcap[6];
	bool ns;

	if (!in || !flows)
		return fail(-1, NULL, "cannot read %s: %s", from,
			    strerror(errno));
	if (fread(pcap, sizeof(pcap), 1, in) != 1 ||
	    (pcap[0] != 0xa1b2c3d4 && pcap[0] != 0xa1b23c4d) || pcap[5] != 1)
		return fail(-1, "make one with labs/lab capture -w FILE",
			    "%s is no .pcap of Ethernet in this machine's byte "
			    "order",
			    from);
	ns = pcap[0] == 0xa1b23c4d;
	out = fopen(to, "w");
	if (out) {
		for (size_t i = 0; i < r->qp_count; i++)
			flows[i] = flow_of(r, &r->qps[i]);
		put_head(out, pcap, ns);
		annotate(r, flows, in, out, ns ? 1000000000u : 1000000u);
	}
	fclose(in);
	if (!out || fclose(out))
		return fail(-1, "choose another file", "cannot write %s: %s",
			    to, strerror(errno));
	return 0;
}
