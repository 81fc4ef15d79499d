// SPDX-License-Identifier: MIT
/*
 * tag_property.c —— 同一串随机的收发，我们的 matcher 与真正的 UCX 结果相同吗？
 *
 *	tag_property [--sequences N] [--seed S] [--ops N]
 *
 * 一个进程、一个 worker、一个指向自己的 endpoint（UCX_TLS=self，除非环境里另有选择）。
 * 每一步都在两个世界里各做一次：发一条、post 一个 receive、cancel、probe、取走；每一步
 * 之后两边每个 receive 的状态、tag、长度、buffer 里的每一个字节都必须相同。一串做完，
 * 剩下的 receive 全部 cancel，剩下的消息按顺序取出来，也要相同。
 *
 * 最后一行：比较了多少串、多少次配对。0 都相同，1 有不同（说出 seed 与第几步），2 用法
 * 不对，77 UCX 起不来。
 */
#include "base/arguments.h"
#include "tag/match.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define MOST_OPS    64
#define BUFFER	    512
#define LONGEST	    400
#define UNTOUCHED   0xee
#define RNDV_THRESH "150"
#define MOST_POLLS  100000

enum op {
	OP_SEND,
	OP_RECV,
	OP_CANCEL,
	OP_PROBE,
	OP_TAKE
};

/* One receive, as one of the two worlds has it. */
struct slot {
	bool used, done;
	int status; /* 0, -EMSGSIZE, -ECANCELED */
	uint64_t tag, length;
	uint8_t buffer[BUFFER];
	struct tag_recv recv; /* ours */
	void *request;	      /* UCX's */
};

struct kept {
	struct tag_message message;
	uint8_t data[BUFFER];
};

struct sent {
	uint8_t data[BUFFER];
	void *request;
};

struct counts {
	uint64_t sequences, sends, receives, matches, late, truncated;
	uint64_t cancelled, probes, taken;
};

struct test {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	struct tag_match match;
	struct slot ours[MOST_OPS], theirs[MOST_OPS];
	struct kept kept[MOST_OPS];
	struct sent sent[MOST_OPS];
	size_t n_recvs, n_sends;
	uint64_t seed, random;
	size_t n_ops;
	struct counts counts;
};

/* ---- the dice ------------------------------------------------------------- */

static uint64_t roll(struct test *t, uint64_t sides)
{
	/* splitmix64: the same seed gives the same sequence anywhere. */
	uint64_t z = t->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % sides;
}

static uint64_t any_tag(struct test *t)
{
	static const uint64_t tags[] = { 0,    1,
					 2,    3,
					 0x10, 0x100000001,
					 0x2f, UINT64_C(0x8000000000000001) };

	return tags[roll(t, sizeof(tags) / sizeof(tags[0]))];
}

static uint64_t any_mask(struct test *t)
{
	static const uint64_t masks[] = {
		TAG_EXACT, TAG_EXACT,
		TAG_EXACT, TAG_ANY,
		0xff,	   1,
		0xf,	   UINT64_C(0xffffffff00000000),
		2,	   UINT64_C(0x8000000000000000)
	};

	return masks[roll(t, sizeof(masks) / sizeof(masks[0]))];
}

static uint64_t any_length(struct test *t)
{
	static const uint64_t edges[] = { 0, 1, 12, 149, 150, 151, LONGEST };

	return roll(t, 2) ? edges[roll(t, sizeof(edges) / sizeof(edges[0]))]
			  : roll(t, LONGEST);
}

static uint64_t any_room(struct test *t)
{
	return roll(t, 4) ? BUFFER : roll(t, LONGEST);
}

/* ---- our world ------------------------------------------------------------ */

static void our_deliver(struct slot *slot, struct kept *kept)
{
	slot->done = true;
	slot->status = tag_match_outcome(&slot->recv, kept->message.length);
	slot->tag = kept->message.tag;
	slot->length = kept->message.length;
	if (!slot->status)
		memcpy(slot->buffer, kept->data, slot->length);
}

static struct kept *kept_of(struct tag_message *message)
{
	return tag_entry(message, struct kept, message);
}

static int our_send(struct test *t, size_t i, uint64_t tag, uint64_t length)
{
	struct kept *kept = &t->kept[i];
	struct tag_recv *recv = tag_match_arrive(&t->match, tag);

	kept->message = (struct tag_message){ .tag = tag,
					      .length = length,
					      .held = length };
	memcpy(kept->data, t->sent[i].data, length);
	if (recv)
		our_deliver(tag_entry(recv, struct slot, recv), kept);
	return recv ? 0 : tag_match_keep(&t->match, &kept->message);
}

static void our_recv(struct test *t, struct slot *slot, uint64_t tag,
		     uint64_t mask, uint64_t room)
{
	struct tag_message *message;

	slot->recv =
		(struct tag_recv){ .tag = tag, .mask = mask, .size = room };
	message = tag_match_post(&t->match, &slot->recv);
	if (!message)
		return;
	our_deliver(slot, kept_of(message));
	t->counts.late++;
}

static void our_cancel(struct test *t, struct slot *slot)
{
	if (!tag_match_cancel(&t->match, &slot->recv))
		return;
	slot->done = true;
	slot->status = -ECANCELED;
	t->counts.cancelled++;
}

/* ---- UCX's world ---------------------------------------------------------- */

static void on_received(void *request, ucs_status_t status,
			const ucp_tag_recv_info_t *info, void *data)
{
	struct slot *slot = data;

	(void)request;
	slot->done = true;
	slot->status = status == UCS_OK			     ? 0
		       : status == UCS_ERR_MESSAGE_TRUNCATED ? -EMSGSIZE
		       : status == UCS_ERR_CANCELED	     ? -ECANCELED
							     : -EIO;
	if (status == UCS_ERR_CANCELED)
		return;
	slot->tag = info->sender_tag;
	slot->length = info->length;
}

static void their_send(struct test *t, size_t i, uint64_t tag, uint64_t length)
{
	const ucp_request_param_t plain = { 0 };

	t->sent[i].request =
		ucp_tag_send_nbx(t->ep, t->sent[i].data, length, tag, &plain);
}

static ucp_request_param_t receive_into(struct slot *slot)
{
	return (ucp_request_param_t){
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.cb.recv = on_received,
		.user_data = slot,
	};
}

static void their_recv(struct test *t, struct slot *slot, uint64_t tag,
		       uint64_t mask, uint64_t room)
{
	const ucp_request_param_t param = receive_into(slot);

	slot->request = ucp_tag_recv_nbx(t->worker, slot->buffer, room, tag,
					 mask, &param);
}

/* ---- the comparison ------------------------------------------------------- */

static bool same(const struct slot *a, const struct slot *b)
{
	if (a->done != b->done)
		return false;
	if (!a->done)
		return true;
	if (a->status != b->status)
		return false;
	/* What a cancelled receive says beyond that is no answer. */
	if (a->status == -ECANCELED)
		return true;
	return a->tag == b->tag && a->length == b->length &&
	       !memcmp(a->buffer, b->buffer, BUFFER);
}

static void tell_slot(const char *whose, const struct slot *s)
{
	if (!s->done)
		printf("  %-6s still waits\n", whose);
	else
		printf("  %-6s status %d, tag 0x%" PRIx64 ", %" PRIu64
		       " bytes, first 0x%02x\n",
		       whose, s->status, s->tag, s->length, s->buffer[0]);
}

static int differ(const struct test *t, size_t op, const char *what)
{
	printf("different: %s after op %zu; repeat it with --seed %" PRIu64
	       " --sequences 1 --ops %zu\n",
	       what, op, t->seed, t->n_ops);
	return -1;
}

/* Let UCX go on until it says the same as we do; a while suffices. */
static int compare_all(struct test *t, size_t op)
{
	char what[64];

	for (int idle = 0; idle < 4; idle++)
		while (ucp_worker_progress(t->worker))
			idle = 0;
	for (size_t i = 0; i < t->n_recvs; i++) {
		for (int n = 0;
		     n < MOST_POLLS && t->theirs[i].done < t->ours[i].done; n++)
			ucp_worker_progress(t->worker);
		if (same(&t->ours[i], &t->theirs[i]))
			continue;
		snprintf(what, sizeof(what), "receive %zu", i);
		tell_slot("ours", &t->ours[i]);
		tell_slot("UCX", &t->theirs[i]);
		return differ(t, op, what);
	}
	return 0;
}

/* ---- one operation in both worlds ----------------------------------------- */

static int do_send(struct test *t)
{
	uint64_t tag = any_tag(t), length = any_length(t);
	size_t i = t->n_sends++;

	for (uint64_t k = 0; k < length; k++)
		t->sent[i].data[k] = (uint8_t)(i + k * 7);
	their_send(t, i, tag, length);
	t->counts.sends++;
	return our_send(t, i, tag, length);
}

static struct slot *clear(struct slot *slot)
{
	*slot = (struct slot){ .used = true };
	memset(slot->buffer, UNTOUCHED, BUFFER);
	return slot;
}

static int do_recv(struct test *t)
{
	uint64_t tag = any_tag(t), mask = any_mask(t), room = any_room(t);
	size_t i = t->n_recvs++;

	their_recv(t, clear(&t->theirs[i]), tag, mask, room);
	our_recv(t, clear(&t->ours[i]), tag, mask, room);
	t->counts.receives++;
	return 0;
}

static int do_cancel(struct test *t)
{
	size_t i;

	if (!t->n_recvs)
		return 0;
	i = roll(t, t->n_recvs);
	if (!t->theirs[i].done)
		ucp_request_cancel(t->worker, t->theirs[i].request);
	our_cancel(t, &t->ours[i]);
	return 0;
}

/* Probe, and with @remove also take the message and receive it. */
static int probe(struct test *t, size_t op, bool remove, uint64_t tag,
		 uint64_t mask)
{
	ucp_tag_recv_info_t info;
	ucp_tag_message_h theirs =
		ucp_tag_probe_nb(t->worker, tag, mask, remove, &info);
	struct tag_message *ours = tag_match_probe(&t->match, tag, mask);
	ucp_request_param_t param;
	size_t i = t->n_recvs;

	t->counts.probes++;
	if (!ours != !theirs || (ours && (ours->tag != info.sender_tag ||
					  ours->length != info.length)))
		return differ(t, op, "a probe");
	if (!ours || !remove)
		return 0;
	t->n_recvs++;
	t->counts.taken++;
	clear(&t->ours[i])->recv.size = BUFFER;
	param = receive_into(clear(&t->theirs[i]));
	t->theirs[i].request = ucp_tag_msg_recv_nbx(
		t->worker, t->theirs[i].buffer, BUFFER, theirs, &param);
	tag_match_take(&t->match, ours);
	our_deliver(&t->ours[i], kept_of(ours));
	return 0;
}

static int do_op(struct test *t, size_t op, enum op kind)
{
	switch (kind) {
	case OP_SEND:
		return do_send(t);
	case OP_RECV:
		return do_recv(t);
	case OP_CANCEL:
		return do_cancel(t);
	case OP_PROBE:
		return probe(t, op, false, any_tag(t), any_mask(t));
	default:
		return probe(t, op, true, any_tag(t), any_mask(t));
	}
}

/* Sends and receives in a mood: many sends first, many receives first, mixed. */
static enum op any_op(struct test *t, uint64_t mood)
{
	uint64_t n = roll(t, 20);

	if (n == 0)
		return OP_CANCEL;
	if (n == 1)
		return OP_PROBE;
	if (n == 2)
		return OP_TAKE;
	return roll(t, 10) < mood ? OP_SEND : OP_RECV;
}

/* ---- one sequence --------------------------------------------------------- */

static int queues_agree(const struct test *t, size_t op)
{
	uint64_t posted = 0, unexpected = 0;
	const struct tag_recv *r;
	const struct tag_message *m;

	TAILQ_FOREACH(r, &t->match.posted, node)
		posted++;
	TAILQ_FOREACH(m, &t->match.unexpected, node)
		unexpected++;
	for (size_t i = 0; i < t->n_recvs; i++)
		posted -= !t->theirs[i].done;
	return posted || unexpected != t->match.n_unexpected
		       ? differ(t, op, "the length of a queue")
		       : 0;
}

/* Nothing may be left for the next sequence, and the rest must agree, too. */
static int wind_up(struct test *t, size_t op)
{
	size_t before;
	int rc = 0;

	for (size_t i = 0; i < t->n_recvs; i++) {
		if (t->theirs[i].done)
			continue;
		ucp_request_cancel(t->worker, t->theirs[i].request);
		our_cancel(t, &t->ours[i]);
	}
	do {
		before = t->n_recvs;
		rc = probe(t, op, true, 0, TAG_ANY);
		if (!rc)
			rc = compare_all(t, op);
	} while (!rc && t->n_recvs > before);
	for (size_t i = 0; i < t->n_recvs; i++) {
		bool matched = t->ours[i].status != -ECANCELED;

		t->counts.matches += matched;
		t->counts.truncated += t->ours[i].status == -EMSGSIZE;
		ucp_request_free(t->theirs[i].request);
	}
	for (size_t i = 0; i < t->n_sends; i++) {
		void *request = t->sent[i].request;

		while (!rc && UCS_PTR_IS_PTR(request) &&
		       ucp_request_check_status(request) == UCS_INPROGRESS)
			ucp_worker_progress(t->worker);
		if (UCS_PTR_IS_PTR(request))
			ucp_request_free(request);
	}
	return rc;
}

static int one_sequence(struct test *t, uint64_t seed, size_t longest)
{
	static const uint64_t moods[] = { 3, 5, 7 };
	uint64_t mood;
	size_t op;
	int rc = 0;

	t->seed = t->random = seed;
	t->n_recvs = 0;
	t->n_sends = 0;
	tag_match_init(&t->match, MOST_OPS, MOST_OPS * BUFFER);
	t->n_ops = longest;
	longest = 2 + roll(t, longest - 1);
	for (op = 0; op < longest && !rc; op++) {
		mood = moods[(op * 3 / longest + seed) % 3];
		rc = do_op(t, op, any_op(t, mood));
		if (!rc)
			rc = compare_all(t, op);
		if (!rc)
			rc = queues_agree(t, op);
	}
	t->counts.sequences++;
	return rc ? rc : wind_up(t, op);
}

/* ---- UCX up and down ------------------------------------------------------ */

static ucs_status_t open_ucx(struct test *t)
{
	const ucp_params_t features = { .field_mask = UCP_PARAM_FIELD_FEATURES,
					.features = UCP_FEATURE_TAG };
	const ucp_worker_params_t single = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_ep_params_t to = { .field_mask =
				       UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_address_t *address;
	ucs_status_t status;
	size_t length;

	setenv("UCX_TLS", "self", 0);
	setenv("UCX_RNDV_THRESH", RNDV_THRESH, 0);
	status = ucp_init(&features, NULL, &t->context);
	if (status)
		return status;
	status = ucp_worker_create(t->context, &single, &t->worker);
	if (!status)
		status = ucp_worker_get_address(t->worker, &address, &length);
	if (status)
		return status;
	to.address = address;
	status = ucp_ep_create(t->worker, &to, &t->ep);
	ucp_worker_release_address(t->worker, address);
	return status;
}

static void close_ucx(struct test *t)
{
	const ucp_request_param_t plain = { 0 };
	void *request;

	if (t->ep) {
		request = ucp_ep_close_nbx(t->ep, &plain);
		while (UCS_PTR_IS_PTR(request) &&
		       ucp_request_check_status(request) == UCS_INPROGRESS)
			ucp_worker_progress(t->worker);
		if (UCS_PTR_IS_PTR(request))
			ucp_request_free(request);
	}
	if (t->worker)
		ucp_worker_destroy(t->worker);
	if (t->context)
		ucp_cleanup(t->context);
}

struct wanted {
	uint64_t sequences, seed, ops;
};

static int parse(struct wanted *w, int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "sequences", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ NULL, 0, NULL, 0 },
	};
	bool good = true;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'n')
			good &= parse_number(optarg, 1, UINT32_MAX,
					     &w->sequences);
		else if (c == 's')
			good &= parse_number(optarg, 0, UINT64_MAX, &w->seed);
		else if (c == 'o')
			good &= parse_number(optarg, 2, MOST_OPS / 2, &w->ops);
		else
			good = false;
	}
	return good && optind == argc ? 0 : EXIT_USAGE;
}

int main(int argc, char *argv[])
{
	struct wanted w = { .sequences = 10000, .seed = 1, .ops = 32 };
	struct test *t = calloc(1, sizeof(*t));
	const struct counts *n;
	ucs_status_t status;
	int rc = parse(&w, argc, argv);

	if (rc || !t) {
		fprintf(stderr, "usage: tag_property [--sequences N] [--seed S]"
				" [--ops 2...32]\n");
		free(t);
		return rc ? rc : 1;
	}
	status = open_ucx(t);
	if (status)
		printf("UCX over %s: %s\n", getenv("UCX_TLS"),
		       ucs_status_string(status));
	rc = status ? 77 : 0;
	for (uint64_t i = 0; i < w.sequences && !rc; i++)
		rc = one_sequence(t, w.seed + i, w.ops) ? 1 : 0;
	if (rc != 1)
		close_ucx(t); /* requests in flight would make UCX complain */
	n = &t->counts;
	printf("%s: seed %" PRIu64 ", %" PRIu64 " sequences over %s: %" PRIu64
	       " sends, %" PRIu64 " receives, %" PRIu64 " matches (%" PRIu64
	       " unexpected, %" PRIu64 " taken by probe, %" PRIu64
	       " truncated), %" PRIu64 " cancels, %" PRIu64 " probes\n",
	       rc ? "not the same" : "the same", w.seed, n->sequences,
	       getenv("UCX_TLS"), n->sends, n->receives, n->matches, n->late,
	       n->taken, n->truncated, n->cancelled, n->probes);
	free(t);
	return rc;
}
