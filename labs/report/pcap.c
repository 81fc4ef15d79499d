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

static bool is_sent(const struct event *e, const struct qp *qp)
{
	return is_of(e, qp) && e->class == CLASS_POST_SEND && !e->refused;
}

static struct flow flow_of(const struct report *r, const struct qp *qp)
{
	uint32_t mtu = (uint32_t)number_in(qp->believes, "path_mtu"), bytes;
	struct flow flow = {
		.qp = qp,
		.mtu = mtu,
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

struct flow *flows_of(const struct report *r)
{
	struct flow *flows = calloc(r->qp_count + 1, sizeof(*flows));

	for (size_t i = 0; flows && i < r->qp_count; i++)
		flows[i] = flow_of(r, &r->qps[i]);
	return flows;
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

/* BTH 之后，AETH 与 RETH 在哪里：只看有没有 */
static void parse_extended(const uint8_t *bth, size_t left, struct packet *p)
{
	unsigned int op = p->opcode & 31;

	if (op == 12 && left >= 12 + 16)
		p->bytes = (uint32_t)bth[24] << 24 | bth[25] << 16 |
			   bth[26] << 8 | bth[27];
	else if (op >= 13 && op <= 18 && op != 14 && left >= 16)
		p->syndrome = bth[12];
}

bool packet_parse(const uint8_t *data, size_t size, struct packet *p)
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
	*p = (struct packet){ 0 };
	p->ecn = (ip == 40 ? data[15] >> 4 : data[15]) & 3;
	p->id = ip == 40 ? 0 : (unsigned int)data[18] << 8 | data[19];
	p->opcode = bth[0];
	p->qpn = (unsigned int)bth[5] << 16 | bth[6] << 8 | bth[7];
	p->psn = (unsigned int)bth[9] << 16 | bth[10] << 8 | bth[11];
	p->bytes = (uint32_t)(size - (14 + ip + 8 + 12));
	parse_extended(bth, size - (14 + ip + 8), p);
	inet_ntop(AF_INET6, from, p->from, sizeof(p->from));
	inet_ntop(AF_INET6, to, p->to, sizeof(p->to));
	return true;
}

bool packet_is_answer(const struct packet *p)
{
	return (p->opcode & 31) >= 13 && (p->opcode & 31) <= 18;
}

const struct event *packet_post(const struct report *r,
				const struct flow *flows,
				const struct packet *p)
{
	const struct event *post;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = flows[i].qp;
		const char *dgid = text_in(qp->believes, "dgid");
		uint64_t to = packet_is_answer(p)
				      ? qp->qpn
				      : number_in(qp->believes, "dest_qpn");

		if (p->qpn != to || !strcmp(qp->type, "UD") ||
		    (*dgid &&
		     strcmp(dgid, packet_is_answer(p) ? p->from : p->to)))
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
	n = snprintf(out, size, "%s%s %s (%+.3f ms)", what,
		     r->side[e->side].name, text, (double)(e->t - since) / 1e6);
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

static size_t comment_of(const struct report *r, const struct packet *p,
			 const struct event *post, char *out, size_t size)
{
	size_t n = add(r, out, size, packet_is_answer(p) ? "answers " : "",
		       post, post->t);

	if (post->complete != NOWHERE)
		n += add(r, out + n, size - n, "\n", &r->events[post->complete],
			 post->t);
	if (!packet_is_answer(p) && post->arrival != NOWHERE)
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

int capture_open(struct capture *c, const char *path)
{
	c->file = fopen(path, "r");
	if (!c->file)
		return fail(-1, NULL, "cannot read %s: %s", path,
			    strerror(errno));
	if (fread(c->head, sizeof(c->head), 1, c->file) != 1 ||
	    (c->head[0] != 0xa1b2c3d4 && c->head[0] != 0xa1b23c4d) ||
	    c->head[5] != 1) {
		fclose(c->file);
		return fail(-1, "make one with labs/lab capture -w FILE",
			    "%s is no .pcap of Ethernet in this machine's byte "
			    "order",
			    path);
	}
	c->scale = c->head[0] == 0xa1b23c4d ? 1000000000u : 1000000u;
	return 0;
}

bool capture_next(struct capture *c)
{
	return fread(c->packet, sizeof(c->packet), 1, c->file) == 1 &&
	       c->packet[2] <= PACKET_MOST &&
	       fread(c->data, 1, c->packet[2], c->file) == c->packet[2];
}

static void annotate(const struct report *r, const struct flow *flows,
		     struct capture *in, FILE *out)
{
	char comment[3 * DESCRIBED_SIZE + 64];
	const struct event *post;
	struct packet p;
	size_t n;

	while (capture_next(in)) {
		post = packet_parse(in->data, in->packet[2], &p)
			       ? packet_post(r, flows, &p)
			       : NULL;
		n = post ? comment_of(r, &p, post, comment, sizeof(comment))
			 : 0;
		put_packet(out, in->packet, in->data, comment, (uint32_t)n,
			   in->scale);
	}
}

int report_annotate(const struct report *r, const char *from, const char *to)
{
	static struct capture in;
	FILE *out;

	if (capture_open(&in, from))
		return -1;
	out = fopen(to, "w");
	if (out) {
		put_head(out, in.head, in.scale == 1000000000u);
		annotate(r, flows_of(r), &in, out);
	}
	fclose(in.file);
	if (!out || fclose(out))
		return fail(-1, "choose another file", "cannot write %s: %s",
			    to, strerror(errno));
	return 0;
}
