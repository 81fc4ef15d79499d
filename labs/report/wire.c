// SPDX-License-Identifier: MIT
/*
 * wire.c —— A 的调用、线上的包、B 的调用，放在一条时间线上
 *
 * 三处的钟各走各的，先后由因果定：包不会早于它的 post，completion 不会早于它的 ACK。两头
 * 都有限的取中间，只有一头的取那一头。包算在哪次 post 上，由 PSN 决定（pcap.c）；丢失、
 * 重发、重复、迟到由 PSN 与 IP 头里的编号看出来：重发的是一个新编号，重复的不是。
 */
#include "parts.h"

#include "base/report.h"

#include <stdlib.h>
#include <string.h>

enum mark {
	MARK_NONE,
	MARK_GAP,   /* 它前面的没有来 */
	MARK_AGAIN, /* 重发的 */
	MARK_TWICE, /* 网络送来两份 */
	MARK_LATE,  /* 被别的包超过 */
	MARK_NAK,
	MARK_RNR,
	MARK_KINDS,
};

struct seen {
	int64_t t; /* ns，从第一个包起 */
	struct packet p;
	const struct event *post;
	enum mark mark;
	uint32_t gap;	/* MARK_GAP：缺几个 */
	bool after_nak; /* MARK_AGAIN：不然就是等到了时 */
	int64_t since;	/* MARK_AGAIN：离上一个包多久，ns */
};

/* 一个方向上的请求。*/
struct lane {
	char from[46], to[46];
	unsigned int qpn, id;
	uint32_t next, after; /* 新的那个 PSN；上一个包之后的 PSN */
	int64_t last;
	bool nak;	/* 拒绝了，还没有退回去 */
	bool after_nak; /* 正在重发的这一段，是不是因为 NAK */
	int64_t since;
};

struct wire {
	const struct report *r;
	struct flow *flows;
	struct seen *seen;
	size_t count;
	struct lane *lanes;
	size_t lane_count;
	int64_t shift[WIRE_SIDES]; /* 加到那一边的时刻上 */
	char left[46];		   /* A 的地址 */
};

/* 以 24 位计，@a 在 @b 之后多少。*/
static int32_t ahead(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) / 256;
}

/* ---- 读进来 ------------------------------------------------------------------ */

static int read_packets(struct wire *w, const char *path)
{
	static struct capture c;
	size_t room = 0;
	int64_t t, first = 0;
	struct packet p;

	if (capture_open(&c, path))
		return -1;
	while (capture_next(&c)) {
		if (!packet_parse(c.data, c.packet[2], &p) ||
		    p.opcode >> 5 == 3)
			continue;
		if (w->count == room) {
			room = room ? 2 * room : 1024;
			w->seen = realloc(w->seen, room * sizeof(*w->seen));
			if (!w->seen)
				return fail(-1, NULL, "out of memory");
		}
		t = (int64_t)c.packet[0] * 1000000000 +
		    (int64_t)(c.packet[1] * (1000000000 / c.scale));
		if (!w->count)
			first = t;
		w->seen[w->count++] = (struct seen){
			.t = t - first,
			.p = p,
			.post = packet_post(w->r, w->flows, &p),
		};
	}
	fclose(c.file);
	if (!w->count)
		return fail(-1,
			    "capture where the packets pass: labs/lab "
			    "capture --on A -w FILE CMD",
			    "%s has no RC or UC packets", path);
	return 0;
}

/* ---- 钟 ---------------------------------------------------------------------- */

struct bounds {
	int64_t low, high;
};

static void at_least(struct bounds *b, int64_t shift)
{
	if (shift > b->low)
		b->low = shift;
}

/* @post 是哪个 flow 的第几次。*/
static const struct flow *place_of(const struct wire *w,
				   const struct event *post, size_t *place)
{
	for (size_t i = 0; i < w->r->qp_count; i++) {
		const struct flow *f = &w->flows[i];
		size_t low = 0, high = f->count;

		if (!is_of(post, f->qp))
			continue;
		while (high - low > 1) {
			size_t middle = low + (high - low) / 2;

			if (&w->r->events[f->posts[middle]] <= post)
				low = middle;
			else
				high = middle;
		}
		*place = low;
		return f;
	}
	return NULL;
}

/* 第 @i 次 post 之后的 PSN，从 start 算起。*/
static uint32_t end_of(const struct flow *f, size_t i)
{
	return i + 1 < f->count ? f->first[i + 1] : f->all;
}

/* 一个 flow 已确认到第几次；每次的最后一个包，最近一份是哪一个。*/
struct progress {
	size_t acked;
	const struct seen **last;
};

/* @ack 是第一个确认它们的：completion 在它之后，对端的 RECV 在它所答的那一份之后。*/
static void acknowledge(const struct wire *w, const struct flow *f,
			struct progress *p, const struct seen *ack,
			struct bounds *b)
{
	uint32_t until = ((ack->p.psn - f->start) & PSN_MASK) + 1;

	for (; p->acked < f->count && end_of(f, p->acked) <= until;
	     p->acked++) {
		const struct event *e = &w->r->events[f->posts[p->acked]];
		const struct seen *last = p->last[p->acked];
		const struct event *then;

		if (e->complete != NOWHERE) {
			then = &w->r->events[e->complete];
			if (went_well(then))
				at_least(&b[then->side], ack->t - then->t);
		}
		if (e->arrival != NOWHERE && last) {
			then = &w->r->events[e->arrival];
			at_least(&b[then->side], last->t - then->t);
		}
	}
}

static void bind_clocks(const struct wire *w, struct progress *p,
			struct bounds *b)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct seen *k = &w->seen[i];
		const struct flow *f;
		size_t n;

		f = k->post ? place_of(w, k->post, &n) : NULL;
		if (!f)
			continue;
		if (packet_is_answer(&k->p)) {
			if (!k->mark)
				acknowledge(w, f, &p[f - w->flows], k, b);
			continue;
		}
		if (k->t - k->post->t < b[k->post->side].high)
			b[k->post->side].high = k->t - k->post->t;
		if (((k->p.psn + 1 - f->start) & PSN_MASK) == end_of(f, n))
			p[f - w->flows].last[n] = k;
	}
}

static int set_clocks(struct wire *w)
{
	struct progress *p = calloc(w->r->qp_count + 1, sizeof(*p));
	struct bounds b[WIRE_SIDES];
	bool whole = p;

	for (int s = 0; s < WIRE_SIDES; s++)
		b[s] = (struct bounds){ INT64_MIN, INT64_MAX };
	for (size_t i = 0; whole && i < w->r->qp_count; i++) {
		p[i].last = calloc(w->flows[i].count + 1, sizeof(*p->last));
		whole = p[i].last;
	}
	if (!whole)
		return fail(-1, NULL, "out of memory");
	bind_clocks(w, p, b);
	for (int s = 0; s < WIRE_SIDES; s++)
		w->shift[s] =
			b[s].low == INT64_MIN && b[s].high == INT64_MAX ? 0
			: b[s].low == INT64_MIN	 ? b[s].high
			: b[s].high == INT64_MAX ? b[s].low
						 : b[s].low / 2 + b[s].high / 2;
	return 0;
}

/* ---- 丢失与重发 -------------------------------------------------------------- */

static struct lane *lane_of(struct wire *w, const struct packet *p)
{
	struct lane *best = NULL;

	for (size_t i = 0; i < w->lane_count; i++) {
		struct lane *l = &w->lanes[i];

		if (packet_is_answer(p)) {
			/* 回应里没有请求写的 QPN：找 PSN 最近的 */
			if (!strcmp(l->from, p->to) &&
			    !strcmp(l->to, p->from) &&
			    (!best || abs(ahead(l->next, p->psn)) <
					      abs(ahead(best->next, p->psn))))
				best = l;
		} else if (l->qpn == p->qpn && !strcmp(l->from, p->from) &&
			   !strcmp(l->to, p->to)) {
			return l;
		}
	}
	if (best || packet_is_answer(p))
		return best;
	w->lanes = realloc(w->lanes, (w->lane_count + 1) * sizeof(*w->lanes));
	if (!w->lanes)
		abort();
	best = &w->lanes[w->lane_count++];
	*best = (struct lane){
		.qpn = p->qpn, .next = p->psn, .after = p->psn, .id = p->id - 1
	};
	memcpy(best->from, p->from, sizeof(best->from));
	memcpy(best->to, p->to, sizeof(best->to));
	return best;
}

/* READ 的请求占回应的那么多号。*/
static uint32_t span_of(const struct wire *w, const struct seen *k)
{
	uint32_t mtu = 1024;

	if ((k->p.opcode & 31) != 12)
		return 1;
	for (size_t i = 0; k->post && i < w->r->qp_count; i++)
		if (is_of(k->post, w->flows[i].qp) && w->flows[i].mtu)
			mtu = w->flows[i].mtu;
	return k->p.bytes > mtu ? (k->p.bytes + mtu - 1) / mtu : 1;
}

/* QP 的 timeout，ns；不知道就算 14。*/
static int64_t timer_of(const struct wire *w, const struct seen *k)
{
	uint64_t timeout = 14;
	size_t n;
	const struct flow *f = k->post ? place_of(w, k->post, &n) : NULL;

	if (f)
		timeout = number_in(f->qp->believes, "timeout");
	return timeout && timeout < 32 ? INT64_C(4096) << timeout : INT64_MAX;
}

/* 退回去的第一个包说明原因，跟着它的都一样；除非又等到了时。*/
static void mark_again(const struct wire *w, struct lane *l, struct seen *k)
{
	int32_t skipped = ahead(k->p.psn, l->after);
	bool waited = k->t - l->last >= timer_of(w, k) / 4 * 3;

	if (skipped < 0 || l->after == l->next || waited) {
		l->after_nak = l->nak;
		l->since = k->t - l->last;
		l->nak = false;
		skipped = 0;
	}
	k->mark = MARK_AGAIN;
	k->gap = (uint32_t)skipped;
	k->after_nak = l->after_nak;
	k->since = l->since;
}

static void mark_request(const struct wire *w, struct lane *l, struct seen *k)
{
	int32_t far = ahead(k->p.psn, l->next);
	/* IP 的编号：每个发出的包一个，重复的那一份是原来的 */
	int16_t newer = (int16_t)(k->p.id - l->id);

	if (far >= 0) {
		k->mark = far ? MARK_GAP : MARK_NONE;
		k->gap = (uint32_t)far;
	} else if (newer <= 0) {
		k->mark = newer ? MARK_LATE : MARK_TWICE;
		return;
	} else {
		mark_again(w, l, k);
	}
	l->after = (k->p.psn + span_of(w, k)) & PSN_MASK;
	if (far >= 0 || ahead(l->after, l->next) > 0)
		l->next = l->after;
	l->id = k->p.id;
	l->last = k->t;
}

static void mark_all(struct wire *w)
{
	for (size_t i = 0; i < w->count; i++) {
		struct seen *k = &w->seen[i];
		struct lane *l = lane_of(w, &k->p);
		unsigned int kind = k->p.syndrome >> 5 & 3;

		if (!packet_is_answer(&k->p)) {
			mark_request(w, l, k);
			continue;
		}
		k->mark = kind == 3   ? MARK_NAK
			  : kind == 1 ? MARK_RNR
				      : MARK_NONE;
		if (l && k->mark)
			l->nak = true;
	}
}

/* ---- 写出来 ------------------------------------------------------------------ */

static const char *opcode_name(unsigned int opcode)
{
	static const char *const names[] = {
		"SEND_FIRST",	      "SEND_MIDDLE",
		"SEND_LAST",	      "SEND_LAST_WITH_IMM",
		"SEND_ONLY",	      "SEND_ONLY_WITH_IMM",
		"WRITE_FIRST",	      "WRITE_MIDDLE",
		"WRITE_LAST",	      "WRITE_LAST_WITH_IMM",
		"WRITE_ONLY",	      "WRITE_ONLY_WITH_IMM",
		"READ_REQUEST",	      "READ_RESPONSE_FIRST",
		"READ_RESPONSE_MID",  "READ_RESPONSE_LAST",
		"READ_RESPONSE_ONLY", "ACK",
		"ATOMIC_ACK",	      "COMPARE_SWAP",
		"FETCH_ADD",	      "RESYNC",
		"SEND_LAST_WITH_INV", "SEND_ONLY_WITH_INV",
	};

	if (opcode == 0x81)
		return "CNP";
	return (opcode & 31) < sizeof(names) / sizeof(*names)
		       ? names[opcode & 31]
		       : "?";
}

static const char *what(const struct seen *k)
{
	static const char *const naks[] = { "NAK: PSN sequence error",
					    "NAK: invalid request",
					    "NAK: remote access error",
					    "NAK: remote operational error" };

	if (k->mark == MARK_RNR)
		return "RNR NAK";
	if (k->mark == MARK_NAK)
		return (k->p.syndrome & 31) < 4 ? naks[k->p.syndrome & 31]
						: "NAK";
	return opcode_name(k->p.opcode);
}

static void print_mark(const struct seen *k)
{
	switch (k->mark) {
	case MARK_GAP:
		printf("   <- %u lost before it", k->gap);
		break;
	case MARK_AGAIN:
		if (k->after_nak)
			printf("   <- sent again, after a NAK");
		else
			printf("   <- sent again, after %.1f ms",
			       (double)k->since / 1e6);
		if (k->gap)
			printf("; %u lost before it", k->gap);
		break;
	case MARK_TWICE:
		printf("   <- the same packet twice");
		break;
	case MARK_LATE:
		printf("   <- overtaken on its way");
		break;
	case MARK_NAK:
	case MARK_RNR:
		printf("   <- refused");
		break;
	default:
		break;
	}
}

static void print_packet(const struct wire *w, size_t i)
{
	const struct seen *k = &w->seen[i];
	bool to_right = !strcmp(k->p.from, w->left);
	json_t *line = k->post ? event_line(w->r, k->post) : NULL;

	printf("%11.3f %5zu %s %-23s 0x%06x", (double)k->t / 1e6, i + 1,
	       to_right ? "-->" : "<--", what(k), k->p.psn);
	if (line)
		printf("  %c wr_id %s", "AB"[k->post->side],
		       text_in(line, "wr_id"));
	json_decref(line);
	if (k->p.ecn == 3)
		printf("  ECN: congestion");
	print_mark(k);
	putchar('\n');
}

static void print_event(const struct wire *w, const struct event *e)
{
	char text[DESCRIBED_SIZE];

	json_decref(event_describe(w->r, e, text));
	printf("%11.3f %s%c %s\n", (double)(e->t + w->shift[e->side]) / 1e6,
	       e->side ? "                                  " : "",
	       "AB"[e->side], text);
}

struct row {
	int64_t t;
	size_t index;
	bool packet;
};

static int by_time(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static bool is_shown(const struct event *e)
{
	return e->class == CLASS_POST_SEND || e->class == CLASS_COMPLETION ||
	       e->class == CLASS_FAILURE;
}

static int print_rows(const struct wire *w)
{
	struct row *rows = calloc(w->count + w->r->count, sizeof(*rows));
	size_t n = 0;

	if (!rows)
		return fail(-1, NULL, "out of memory");
	for (size_t i = 0; i < w->count; i++)
		rows[n++] = (struct row){ w->seen[i].t, i, true };
	for (size_t i = 0; i < w->r->count; i++) {
		const struct event *e = &w->r->events[i];

		if (is_shown(e))
			rows[n++] = (struct row){ e->t + w->shift[e->side], i,
						  false };
	}
	qsort(rows, n, sizeof(*rows), by_time);
	printf("%11s %5s     %-23s %-8s  work request\n", "ms", "#", "packet",
	       "PSN");
	for (size_t i = 0; i < n; i++) {
		if (rows[i].packet)
			print_packet(w, rows[i].index);
		else
			print_event(w, &w->r->events[rows[i].index]);
	}
	free(rows);
	return 0;
}

/* 一包算数据：不是空手的回应。*/
static int print_sums(const struct wire *w)
{
	size_t marks[MARK_KINDS] = { 0 }, lost = 0, data = 0, tied = 0,
	       answers = 0, tied_answers = 0;

	for (size_t i = 0; i < w->count; i++) {
		const struct seen *k = &w->seen[i];
		bool empty = (k->p.opcode & 31) == 17;

		marks[k->mark]++;
		lost += k->gap;
		*(empty ? &answers : &data) += 1;
		*(empty ? &tied_answers : &tied) += k->post != NULL;
	}
	printf("\n%zu data packets and %zu answers: %zu lost, %zu sent again, "
	       "%zu twice, %zu overtaken; %zu NAKs, %zu RNR NAKs\n",
	       data, answers,
	       lost > marks[MARK_LATE] ? lost - marks[MARK_LATE] : 0,
	       marks[MARK_AGAIN], marks[MARK_TWICE], marks[MARK_LATE],
	       marks[MARK_NAK], marks[MARK_RNR]);
	if (!w->r->sides)
		return 0;
	printf("tied to a call: %zu of %zu data packets, %zu of %zu answers\n",
	       tied, data, tied_answers, answers);
	if (tied || tied_answers)
		return 0;
	return fail(-1, "record and capture the same run: labs/wire --help",
		    "no packet of the capture belongs to a QP of these "
		    "recordings: it is of another link, or of another run");
}

/* A 的地址；没有记录：先开口的在右。*/
static void choose_left(struct wire *w)
{
	memcpy(w->left, w->seen[0].p.to, sizeof(w->left));
	for (size_t i = 0; i < w->r->qp_count; i++)
		if (*text_in(w->r->qps[i].believes, "sgid"))
			snprintf(w->left, sizeof(w->left), "%s",
				 text_in(w->r->qps[i].believes,
					 w->r->qps[i].side ? "dgid" : "sgid"));
}

int report_wire(const struct report *r, const char *path)
{
	struct wire w = { .r = r, .flows = flows_of(r) };

	if (!w.flows)
		return fail(-1, NULL, "out of memory");
	if (read_packets(&w, path))
		return -1;
	mark_all(&w);
	if (set_clocks(&w))
		return -1;
	choose_left(&w);
	if (print_rows(&w))
		return -1;
	return print_sums(&w);
}
