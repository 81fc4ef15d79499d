// SPDX-License-Identifier: MIT
/*
 * 第 13 课：tag matching——消息与 receive 怎样配对
 *
 * 一个进程里两端：A 发、B 收，走的是真正的 RC 连接（与第 5 课一样）。每做一步，就把 B 的
 * 两个队列打印出来：posted（receive 在等消息）与 unexpected（消息在等 receive）。为了看得
 * 清楚，eager 的上限调得很小：超过 EAGER_MAX 字节就走 rendezvous。
 *
 * --break 种下的错误大多不会让任何一个 verb 失败：tag 与 mask 是程序自己的约定，配错了，
 * 数据就静悄悄地进了别人的 buffer，或者永远等下去。
 */
#include "../lesson.h"
#include "base/deadline.h"
#include "base/pattern.h"
#include "base/report.h"
#include "tag/channel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EAGER_MAX 256
#define BIG	  65536
#define HEAP_MAX  8
#define SHORT_MS  1000
/* tag 的用法是程序定的：这里高字节是“种类”，低字节是“第几个流”。*/
#define TAG_OF(kind, stream) ((uint64_t)(kind) << 8 | (stream))
#define MASK_STREAM	     UINT64_C(0x00ff)

struct end {
	struct rdma_resources res;
	struct tag_channel channel;
};

/* request 与 buffer 在完成之前归 channel 所有：放在不会先于它消失的地方。*/
struct pair {
	const struct lesson *lesson;
	struct end a, b;
	struct tag_request sent, received, second;
	char text[32], other[32];
	char big[BIG], room[BIG];
};

static const char *mask_text(char *out, size_t size, uint64_t mask)
{
	if (mask == TAG_EXACT)
		return "exactly";
	if (mask == TAG_ANY)
		return "any";
	snprintf(out, size, "mask 0x%jx", mask);
	return out;
}

/* 两个队列，都从最老的开始。任何时刻，两边没有一对是配得上的。*/
static void show_queues(const struct tag_channel *ch)
{
	const struct tag_recv *r;
	const struct tag_message *m;
	char posted[256] = "", unexpected[256] = "", mask[32];
	size_t n = 0;

	TAILQ_FOREACH(r, &ch->match.posted, node)
		n += (size_t)snprintf(posted + n, sizeof(posted) - n,
				      " [0x%jx %s]", r->tag,
				      mask_text(mask, sizeof(mask), r->mask));
	n = 0;
	TAILQ_FOREACH(m, &ch->match.unexpected, node)
		n += (size_t)snprintf(
			unexpected + n, sizeof(unexpected) - n,
			" [0x%jx %s %ju]", m->tag,
			tag_entry(m, struct tag_unexpected, message)->rendezvous
				? "RTS for"
				: "eager",
			m->length);
	report_fact("  posted:    %s", posted[0] ? posted : " -");
	report_fact("  unexpected:%s", unexpected[0] ? unexpected : " -");
}

/* max_rd_atomic 为 0：QP 可以照常收发，唯独 READ 一个也发不出去。*/
static int to_rts_without_reads(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rts_attributes(res);

	attr.max_rd_atomic = 0;
	return modify_qp(res, &attr, RTS_MASK); /* 内核接受了，只是给个警告 */
}

static int open_end(const struct lesson *lesson, struct end *end)
{
	const struct tag_limits limits = { .eager_max = EAGER_MAX,
					   .max_unexpected = HEAP_MAX };
	struct rdma_config config = lesson->config;
	int rc;

	tag_channel_config(&config, &limits);
	rc = init_rdma_resources(&end->res, &config);
	if (!rc)
		rc = modify_qp_to_init(&end->res);
	return rc ? rc : tag_channel_open(&end->channel, &end->res, &limits);
}

/* 一个进程里不必走 TCP：“交换”就是互相赋值。*/
static int connect_ends(struct pair *p,
			int (*b_to_rts)(struct rdma_resources *b))
{
	struct tag_plan of_a = tag_channel_plan(&p->a.channel);
	struct tag_plan of_b = tag_channel_plan(&p->b.channel);
	int rc;

	p->a.res.remote = cm_con_data_of(&p->b.res);
	p->b.res.remote = cm_con_data_of(&p->a.res);
	rc = modify_qp_to_rtr(&p->a.res);
	if (!rc)
		rc = modify_qp_to_rtr(&p->b.res);
	if (!rc)
		rc = modify_qp_to_rts(&p->a.res);
	if (!rc)
		rc = b_to_rts(&p->b.res);
	if (!rc)
		rc = tag_channel_meet(&p->a.channel, &of_b);
	return rc ? rc : tag_channel_meet(&p->b.channel, &of_a);
}

/* 两端都在这个线程里，所以等任何一件事，都要替两端各走一步。*/
static int step_both(struct pair *p, int64_t deadline)
{
	int rc = tag_progress(&p->a.channel);

	if (rc >= 0)
		rc = tag_progress(&p->b.channel);
	if (rc < 0)
		return rc;
	if (stop_requested())
		return -EINTR;
	if (!deadline_passed(deadline))
		return 0;
	return fail(-ETIMEDOUT, NULL, "nothing came of it within %d ms",
		    POLL_TIMEOUT_MS);
}

static int await_request(struct pair *p, const struct tag_request *request)
{
	int64_t deadline = deadline_in_ms(POLL_TIMEOUT_MS);
	int rc = 0;

	while (!rc && request->status == -EINPROGRESS)
		rc = step_both(p, deadline);
	return rc ? rc : request->status;
}

static int await_arrivals(struct pair *p, uint64_t wanted)
{
	const struct tag_counts *n = &p->b.channel.counts;
	int64_t deadline = deadline_in_ms(POLL_TIMEOUT_MS);
	int rc = 0;

	while (!rc && n->eager_received + n->rendezvous_received < wanted)
		rc = step_both(p, deadline);
	return rc;
}

/* A 发一句话，并等它到达 B（进了哪个队列，由 B 决定）。*/
static int say(struct pair *p, const char *text, uint64_t tag)
{
	const struct tag_counts *n = &p->b.channel.counts;
	uint64_t arrived = n->eager_received + n->rendezvous_received;
	int rc = tag_send(&p->a.channel, &p->sent, text, strlen(text) + 1, tag);

	report_fact("A sends \"%s\" with tag 0x%jx", text, tag);
	return rc ? rc : await_arrivals(p, arrived + 1);
}

static int listen_for(struct pair *p, struct tag_request *request, char *text,
		      size_t size, uint64_t tag, uint64_t mask)
{
	char how[32];
	int rc = tag_recv(&p->b.channel, request, text, size, tag, mask);

	report_fact("B receives tag 0x%jx, %s", tag,
		    mask_text(how, sizeof(how), mask));
	return rc;
}

static void show_received(const char *which, const struct tag_request *request,
			  const char *text)
{
	if (request->status == -EINPROGRESS)
		report_fact("%s still waits", which);
	else
		report_fact("%s got \"%s\", tag 0x%jx", which, text,
			    request->tag);
}

/* receive 在先：消息一到就配上，直接从环里拷进 buffer。*/
static int receive_first(struct pair *p)
{
	int rc;

	report_step("receives first: a message takes the OLDEST that fits");
	rc = listen_for(p, &p->received, p->text, sizeof(p->text), 0, TAG_ANY);
	if (!rc)
		rc = listen_for(p, &p->second, p->other, sizeof(p->other),
				TAG_OF(1, 1), TAG_EXACT);
	show_queues(&p->b.channel);
	if (!rc)
		rc = say(p, "hello", TAG_OF(1, 1));
	if (rc)
		return rc;
	/* 第二个 receive 更“合适”，但第一个更老：次序优先于合适。*/
	show_received("the first receive", &p->received, p->text);
	show_received("the second receive", &p->second, p->other);
	show_queues(&p->b.channel);
	rc = say(p, "world", TAG_OF(1, 1));
	if (!rc)
		show_received("the second receive", &p->second, p->other);
	return rc;
}

/* 消息在先：进 unexpected 队列，等 receive 按 tag 来取，不必按到达的次序。*/
static int message_first(struct pair *p)
{
	static const struct {
		uint64_t tag, mask;
	} wanted[] = { { TAG_OF(2, 2), TAG_EXACT },
		       { TAG_OF(0, 3), MASK_STREAM },
		       { 0, TAG_ANY } };
	int rc;

	report_step("messages first: a receive takes the OLDEST that fits");
	rc = say(p, "one", TAG_OF(2, 1));
	if (!rc)
		rc = say(p, "two", TAG_OF(2, 2));
	if (!rc)
		rc = say(p, "three", TAG_OF(2, 3));
	show_queues(&p->b.channel);
	for (size_t i = 0; i < 3 && !rc; i++) {
		rc = listen_for(p, &p->received, p->text, sizeof(p->text),
				wanted[i].tag, wanted[i].mask);
		if (!rc)
			rc = await_request(p, &p->received);
		if (!rc)
			show_received("it", &p->received, p->text);
	}
	show_queues(&p->b.channel);
	return rc;
}

static int rendezvous(struct pair *p)
{
	const struct tag_counts *n = &p->b.channel.counts;
	int rc;

	report_step("over %d bytes: RTS, RDMA READ, FIN", EAGER_MAX);
	pattern_fill(p->big, BIG, 1);
	rc = tag_send(&p->a.channel, &p->sent, p->big, BIG, TAG_OF(3, 1));
	report_fact("A sends %d bytes with tag 0x%jx", BIG, TAG_OF(3, 1));
	if (!rc)
		rc = await_arrivals(p, n->eager_received + 1);
	/* 到的只是 28 字节的 RTS：数据还在 A 那里，A 的 buffer 不能动。*/
	show_queues(&p->b.channel);
	report_fact("A's send %s; READs so far: %ju",
		    p->sent.status ? "is not done" : "is done", n->reads);
	if (!rc)
		rc = tag_recv(&p->b.channel, &p->received, p->room, BIG,
			      TAG_OF(3, 1), TAG_EXACT);
	report_fact("B receives tag 0x%jx, exactly", TAG_OF(3, 1));
	if (!rc)
		rc = await_request(p, &p->received);
	if (!rc)
		rc = await_request(p, &p->sent);
	if (rc)
		return rc;
	report_fact("B has %ju bytes, %s; READs so far: %ju",
		    p->received.length,
		    memcmp(p->big, p->room, BIG) ? "WRONG" : "the right ones",
		    n->reads);
	report_fact("A's send is done: the FIN has come");
	return memcmp(p->big, p->room, BIG) ? -EBADMSG : 0;
}

static int probe_and_cancel(struct pair *p)
{
	struct tag_message message;
	int rc;

	report_step("probe: look without taking; cancel: stop waiting");
	rc = say(p, "how long am I?", TAG_OF(4, 1));
	if (rc)
		return rc;
	rc = tag_probe(&p->b.channel, TAG_OF(4, 0), ~MASK_STREAM, &message);
	if (rc < 0)
		return rc;
	report_fact("B probes kind 4: %s, tag 0x%jx, %ju bytes",
		    rc ? "there is one" : "nothing", message.tag,
		    message.length);
	rc = listen_for(p, &p->received, p->text, sizeof(p->text), TAG_OF(4, 1),
			TAG_EXACT);
	if (!rc)
		rc = await_request(p, &p->received);
	if (!rc)
		rc = listen_for(p, &p->received, p->text, sizeof(p->text),
				TAG_OF(4, 2), TAG_EXACT);
	if (rc)
		return rc;
	show_queues(&p->b.channel);
	if (tag_cancel(&p->b.channel, &p->received))
		report_fact("B cancels it: status %s",
			    strerrorname_np(-p->received.status));
	show_queues(&p->b.channel);
	return 0;
}

/* B 想要“种类 2 的第 5 个流”，mask 却只看低字节：种类 1 的消息也配得上。*/
static int wide_mask(void *pair)
{
	struct pair *p = pair;
	int rc = say(p, "kind 1, stream 5", TAG_OF(1, 5));

	if (!rc)
		rc = say(p, "kind 2, stream 5", TAG_OF(2, 5));
	show_queues(&p->b.channel);
	if (!rc)
		rc = listen_for(p, &p->received, p->text, sizeof(p->text),
				TAG_OF(2, 5), MASK_STREAM);
	if (!rc)
		rc = await_request(p, &p->received);
	if (rc)
		return rc;
	show_received("it", &p->received, p->text);
	show_queues(&p->b.channel);
	return fail(-EBADMSG,
		    "use TAG_EXACT, or a mask that covers all that matters",
		    "the receive for tag 0x%jx got tag 0x%jx: mask 0x%jx "
		    "sees no difference",
		    TAG_OF(2, 5), p->received.tag, MASK_STREAM);
}

static int wrong_tag(void *pair)
{
	struct pair *p = pair;
	int rc = listen_for(p, &p->received, p->text, sizeof(p->text),
			    TAG_OF(5, 1), TAG_EXACT);

	if (!rc)
		rc = say(p, "for stream 2", TAG_OF(5, 2));
	show_queues(&p->b.channel);
	/* 没有什么失败，只是永远配不上：唯有期限与两个队列能说明问题。*/
	return rc ? rc : tag_wait(&p->b.channel, &p->received, SHORT_MS);
}

static int too_small(void *pair)
{
	struct pair *p = pair;
	char *text = strcpy(p->text, "untouched");
	int rc = say(p, "fifteen letters", TAG_OF(6, 1));

	if (!rc)
		rc = listen_for(p, &p->received, text, 10, TAG_OF(6, 1),
				TAG_EXACT);
	if (!rc)
		rc = await_request(p, &p->received);
	if (rc != -EMSGSIZE)
		return rc ? rc : -EBADMSG;
	report_fact("B's buffer: \"%s\"", text);
	show_queues(&p->b.channel); /* 消息用掉了，不会再来 */
	report_error("probe for the length first, or agree on a maximum",
		     "the message of %ju bytes does not fit 10: truncated, "
		     "and gone",
		     p->received.length);
	return rc;
}

/* 没有人收：先堆满 heap 的份额，再占满整个环，最后 A 的 credit 用完，发不出去。*/
static int no_receive(void *pair)
{
	struct pair *p = pair;
	const struct tag_channel *b = &p->b.channel;
	struct tag_request *send = &p->sent; /* 起初是 0：没有在等的 */
	int64_t deadline = deadline_in_ms(POLL_TIMEOUT_MS);
	uint64_t sent = 0;
	int rc = 0;

	while (!rc && !send->status) {
		rc = tag_send(&p->a.channel, send, "anybody?", 9, TAG_OF(7, 0));
		if (!rc && send->status)
			break;
		sent++;
		while (!rc && b->counts.eager_received < sent)
			rc = step_both(p, deadline);
	}
	if (rc)
		return rc;
	report_fact("A has sent %ju messages; number %ju waits", sent,
		    sent + 1);
	report_fact("B keeps %ju on the heap and %u in its ring",
		    (b->match.n_unexpected - b->n_in_ring), b->n_in_ring);
	return tag_wait(&p->a.channel, send, SHORT_MS);
}

/* rendezvous 的 send 没有完成之前，数据还在原处：改了它，对方读到的就是改过的。*/
static int early_reuse(void *pair)
{
	struct pair *p = pair;
	int rc;

	pattern_fill(p->big, BIG, 1);
	rc = tag_send(&p->a.channel, &p->sent, p->big, BIG, TAG_OF(8, 1));
	if (rc)
		return rc;
	report_fact("A sends %d bytes: the request is %s", BIG,
		    p->sent.status ? "not done" : "done");
	memset(p->big, 'x', BIG);
	report_fact("A fills its buffer with 'x' at once");
	rc = tag_recv(&p->b.channel, &p->received, p->room, BIG, TAG_OF(8, 1),
		      TAG_EXACT);
	if (!rc)
		rc = await_request(p, &p->received);
	if (!rc)
		rc = await_request(p, &p->sent);
	if (rc)
		return rc;
	return fail(-EBADMSG, "change the buffer only when the send is done",
		    "B received %ju bytes '%c', not what was sent",
		    p->received.length, p->room[0]);
}

static int no_rd_atomic(void *pair)
{
	struct pair *p = pair;
	int rc = tag_recv(&p->b.channel, &p->received, p->room, BIG,
			  TAG_OF(9, 1), TAG_EXACT);

	pattern_fill(p->big, BIG, 1);
	if (!rc)
		rc = tag_send(&p->a.channel, &p->sent, p->big, BIG,
			      TAG_OF(9, 1));
	return rc ? rc : tag_wait(&p->b.channel, &p->received, SHORT_MS);
}

static const struct lesson_break breaks[] = {
	{ "wide-mask", "receive with a mask that ignores half of the tag",
	  wide_mask },
	{ "wrong-tag", "wait for a tag that nobody sends", wrong_tag },
	{ "too-small", "receive into a buffer that is too short", too_small },
	{ "no-receive", "send and send, while nobody receives", no_receive },
	{ "early-reuse", "change the buffer of a send that is not done",
	  early_reuse },
	{ "no-rd-atomic", "let READs wait for ever: max_rd_atomic 0",
	  no_rd_atomic },
	{ 0 },
};

static int run(struct pair *p)
{
	int rc = open_end(p->lesson, &p->a);

	if (!rc)
		rc = open_end(p->lesson, &p->b);
	if (rc)
		return rc;
	report_step("two ends in one process: A is QP 0x%06x, B is QP 0x%06x",
		    p->a.res.qp->qp_num, p->b.res.qp->qp_num);
	rc = connect_ends(p, lesson_breaks(p->lesson, "no-rd-atomic")
				     ? to_rts_without_reads
				     : modify_qp_to_rts);
	if (rc)
		return rc;
	report_fact("eager up to %d bytes, %d credits, %d receives posted",
		    EAGER_MAX, TAG_DEPTH, TAG_RING);
	if (p->lesson->broken)
		return lesson_plant(p->lesson, p);
	rc = receive_first(p);
	if (!rc)
		rc = message_first(p);
	if (!rc)
		rc = rendezvous(p);
	return rc ? rc : probe_and_cancel(p);
}

int main(int argc, char *argv[])
{
	static struct pair p; /* 两个大 buffer，不放在栈上 */
	struct lesson lesson;
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	p.lesson = &lesson;
	rc = run(&p);
	/* 先关 channel（QP 进 ERR，request 收尾），再拆 verbs 的对象。*/
	rc |= tag_channel_close(&p.b.channel);
	rc |= tag_channel_close(&p.a.channel);
	rc |= destroy_rdma_resources(&p.b.res);
	rc |= destroy_rdma_resources(&p.a.res);
	return rc ? 1 : 0;
}
