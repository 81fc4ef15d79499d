// SPDX-License-Identifier: MIT
/*
 * tag_property.c —— 同一串随机的收发，我们的 matcher 与真正的 UCX 结果相同吗？
 *
 *	tag_property SEQUENCES SEED
 *
 * 一个进程、一个 worker、一个指向自己的 endpoint（UCX_TLS=self，除非环境里另有选择）。
 * 每一步都在两个世界里各做一次：发一条、post 一个 receive、cancel、probe、取走；每一步
 * 之后两边每个 receive 的状态、tag、长度、buffer 里的每一个字节都必须相同。一串做完，
 * 剩下的 receive 全部 cancel，剩下的消息按顺序取出来，也要相同。
 *
 * 0 都相同，1 有不同（说出这一串的 seed），2 UCX 起不来。
 */
#include "tag/match.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define LONGEST_SEQUENCE 32
#define MOST_OPS	 (2 * LONGEST_SEQUENCE)
#define BUFFER		 512
#define LONGEST		 400
#define UNTOUCHED	 0xee
#define RNDV_THRESH	 "150"
#define MOST_POLLS	 100000

/* One receive, as one of the two worlds has it. */
struct slot {
	bool done;
	int status; /* 0, -EMSGSIZE, -ECANCELED */
	uint64_t tag, length;
	uint8_t buffer[BUFFER];
	struct tag_recv recv; /* ours */
	void *request;	      /* UCX's */
};

struct sent {
	struct tag_message message;
	uint8_t data[BUFFER];
	void *request;
};

struct test {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	struct tag_match match;
	struct slot ours[MOST_OPS], theirs[MOST_OPS];
	struct sent sent[MOST_OPS];
	size_t n_recvs, n_sends;
	uint64_t seed, random;
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

	return edges[roll(t, sizeof(edges) / sizeof(edges[0]))];
}

/* ---- our world ------------------------------------------------------------ */

static void our_deliver(struct slot *slot, const struct tag_message *message)
{
	slot->done = true;
	slot->status = tag_match_outcome(&slot->recv, message->length);
	slot->tag = message->tag;
	slot->length = message->length;
	if (!slot->status)
		memcpy(slot->buffer,
		       tag_entry(message, struct sent, message)->data,
		       slot->length);
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
	slot->tag = info->sender_tag;
	slot->length = info->length;
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

/* ---- the comparison ------------------------------------------------------- */

static _Noreturn void differ(const struct test *t, const char *what, size_t i)
{
	printf("different: %s %zu; repeat it with 1 %" PRIu64 "\n", what, i,
	       t->seed);
	exit(1);
}

/* What a cancelled receive says beyond that is no answer. */
static bool same(const struct slot *a, const struct slot *b)
{
	if (a->done != b->done || a->status != b->status)
		return false;
	return !a->done || a->status == -ECANCELED ||
	       (a->tag == b->tag && a->length == b->length &&
		!memcmp(a->buffer, b->buffer, BUFFER));
}

/* Let UCX go on until it says the same as we do; a while suffices. */
static void compare_all(struct test *t)
{
	for (int idle = 0; idle < 4; idle++)
		while (ucp_worker_progress(t->worker))
			idle = 0;
	for (size_t i = 0; i < t->n_recvs; i++) {
		for (int n = 0;
		     n < MOST_POLLS && t->theirs[i].done < t->ours[i].done; n++)
			ucp_worker_progress(t->worker);
		if (!same(&t->ours[i], &t->theirs[i]))
			differ(t, "receive", i);
	}
}

/* ---- one operation in both worlds ----------------------------------------- */

static void do_send(struct test *t)
{
	const ucp_request_param_t plain = { 0 };
	uint64_t tag = any_tag(t), length = any_length(t);
	struct sent *sent = &t->sent[t->n_sends++];
	struct tag_recv *recv;

	for (uint64_t k = 0; k < length; k++)
		sent->data[k] = (uint8_t)(t->n_sends + k * 7);
	sent->message = (struct tag_message){ .tag = tag,
					      .length = length,
					      .held = length };
	sent->request =
		ucp_tag_send_nbx(t->ep, sent->data, length, tag, &plain);
	recv = tag_match_arrive(&t->match, tag);
	if (recv)
		our_deliver(tag_entry(recv, struct slot, recv), &sent->message);
	else
		tag_match_keep(&t->match, &sent->message);
}

static struct slot *clear(struct slot *slot)
{
	*slot = (struct slot){ .done = false };
	memset(slot->buffer, UNTOUCHED, BUFFER);
	return slot;
}

static void do_recv(struct test *t)
{
	struct slot *ours = clear(&t->ours[t->n_recvs]);
	struct slot *theirs = clear(&t->theirs[t->n_recvs++]);
	const ucp_request_param_t param = receive_into(theirs);
	struct tag_message *message;

	ours->recv.tag = any_tag(t);
	ours->recv.mask = any_mask(t);
	ours->recv.size = roll(t, 4) ? BUFFER : any_length(t);
	theirs->request =
		ucp_tag_recv_nbx(t->worker, theirs->buffer, ours->recv.size,
				 ours->recv.tag, ours->recv.mask, &param);
	message = tag_match_post(&t->match, &ours->recv);
	if (message)
		our_deliver(ours, message);
}

static void cancel(struct test *t, size_t i)
{
	if (!t->theirs[i].done)
		ucp_request_cancel(t->worker, t->theirs[i].request);
	if (!tag_match_cancel(&t->match, &t->ours[i].recv))
		return;
	t->ours[i].done = true;
	t->ours[i].status = -ECANCELED;
}

/* Probe, and with @remove also take the message and receive it. */
static bool probe(struct test *t, bool remove, uint64_t tag, uint64_t mask)
{
	ucp_tag_recv_info_t info;
	ucp_tag_message_h theirs =
		ucp_tag_probe_nb(t->worker, tag, mask, remove, &info);
	struct tag_message *ours = tag_match_probe(&t->match, tag, mask);
	ucp_request_param_t param;
	size_t i = t->n_recvs;

	if (!ours != !theirs || (ours && (ours->tag != info.sender_tag ||
					  ours->length != info.length)))
		differ(t, "probe before receive", i);
	if (!ours || !remove)
		return false;
	t->n_recvs++;
	clear(&t->ours[i])->recv.size = BUFFER;
	param = receive_into(clear(&t->theirs[i]));
	t->theirs[i].request = ucp_tag_msg_recv_nbx(
		t->worker, t->theirs[i].buffer, BUFFER, theirs, &param);
	tag_match_take(&t->match, ours);
	our_deliver(&t->ours[i], ours);
	return true;
}

/* @mood of ten are sends: many sends first, many receives first, mixed. */
static void do_any(struct test *t, uint64_t mood)
{
	uint64_t n = roll(t, 20);

	if (n == 0 && t->n_recvs)
		cancel(t, roll(t, t->n_recvs));
	else if (n <= 2)
		probe(t, n == 2, any_tag(t), any_mask(t));
	else if (roll(t, 10) < mood)
		do_send(t);
	else
		do_recv(t);
}

/* ---- one sequence --------------------------------------------------------- */

/* Nothing may be left for the next sequence, and the rest must agree, too. */
static void wind_up(struct test *t)
{
	for (size_t i = 0; i < t->n_recvs; i++)
		cancel(t, i);
	while (probe(t, true, 0, TAG_ANY))
		compare_all(t);
	for (size_t i = 0; i < t->n_recvs; i++)
		ucp_request_free(t->theirs[i].request);
	for (size_t i = 0; i < t->n_sends; i++) {
		void *request = t->sent[i].request;

		if (!UCS_PTR_IS_PTR(request))
			continue;
		while (ucp_request_check_status(request) == UCS_INPROGRESS)
			ucp_worker_progress(t->worker);
		ucp_request_free(request);
	}
}

static void one_sequence(struct test *t, uint64_t seed)
{
	static const uint64_t moods[] = { 3, 5, 7 };
	size_t length;

	t->seed = t->random = seed;
	t->n_recvs = 0;
	t->n_sends = 0;
	tag_match_init(&t->match, MOST_OPS, MOST_OPS * BUFFER);
	length = 2 + roll(t, LONGEST_SEQUENCE - 1);
	for (size_t op = 0; op < length; op++) {
		do_any(t, moods[(op * 3 / length + seed) % 3]);
		compare_all(t);
	}
	wind_up(t);
}

/* ---- UCX ------------------------------------------------------------------ */

static void check(ucs_status_t status, const char *call)
{
	if (status == UCS_OK)
		return;
	printf("%s: %s\n", call, ucs_status_string(status));
	exit(2);
}

static void open_ucx(struct test *t)
{
	const ucp_params_t features = { .field_mask = UCP_PARAM_FIELD_FEATURES,
					.features = UCP_FEATURE_TAG };
	const ucp_worker_params_t plain = { 0 };
	ucp_ep_params_t to = { .field_mask =
				       UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_address_t *address;
	size_t length;

	setenv("UCX_TLS", "self", 0);
	setenv("UCX_RNDV_THRESH", RNDV_THRESH, 0);
	check(ucp_init(&features, NULL, &t->context), "ucp_init");
	check(ucp_worker_create(t->context, &plain, &t->worker), "a worker");
	check(ucp_worker_get_address(t->worker, &address, &length), "address");
	to.address = address;
	check(ucp_ep_create(t->worker, &to, &t->ep), "ucp_ep_create");
	ucp_worker_release_address(t->worker, address);
}

int main(int argc, char *argv[])
{
	uint64_t sequences = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	uint64_t seed = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	static struct test t;

	open_ucx(&t);
	for (uint64_t i = 0; i < sequences; i++)
		one_sequence(&t, seed + i);
	printf("the same: seed %" PRIu64 ", %" PRIu64 " sequences over %s\n",
	       seed, sequences, getenv("UCX_TLS"));
	return 0;
}
