// SPDX-License-Identifier: MIT
/*
 * original.c —— 当年弄垮原版、骗过原版的请求，一条一条地问这一个 engine
 *
 * 每条都在同一条连接上：前一条若弄坏了什么，后一条就会露馅。原版怎样回答，见
 * original.md；这里印的都是真的回答。
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "engine/session.h"
#include "walk.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAID_SIZE 192
#define LATE_MS	  1200 /* after a time-out of 1 s */

/* 一个问题。@said：真的回答，一行。返回 0：engine 没有上当。*/
struct trial {
	const char *what;
	int (*run)(struct walk *w, char said[SAID_SIZE]);
};

static void describe(char said[SAID_SIZE], const struct engine_message *m)
{
	switch (m->type) {
	case ENGINE_ERROR:
		snprintf(said, SAID_SIZE, "Error (%.*s): %.*s",
			 (int)m->error.category.size, m->error.category.data,
			 (int)m->error.message.size, m->error.message.data);
		break;
	case ENGINE_START_READ_RESPONSE:
		snprintf(said, SAID_SIZE, "%ju bytes were read",
			 m->started.transfer_size);
		break;
	case ENGINE_COMPLETE_READ_RESPONSE:
		snprintf(said, SAID_SIZE, "success %s: %.*s",
			 m->completed.success ? "true" : "false",
			 (int)m->completed.message.size,
			 m->completed.message.data);
		break;
	default:
		snprintf(said, SAID_SIZE, "%s", engine_type_name(m->type));
	}
}

/* ---- StartRead -------------------------------------------------------------- */

static int start(struct walk *w, const struct engine_message *request,
		 struct engine_message *answer, char said[SAID_SIZE])
{
	int rc = engine_ask(&w->c, request, ENGINE_START_READ_RESPONSE, answer,
			    WAIT_MS);

	if (!rc || rc == -EREMOTEIO)
		describe(said, answer);
	return rc;
}

/* 用完一个 session；@said 为 NULL：只是收拾。*/
static int finish(struct walk *w, const char *id,
		  const struct engine_complete_read *how, char *said)
{
	struct engine_message answer;
	struct engine_message m = { .type = ENGINE_COMPLETE_READ,
				    .complete_read = *how };
	int rc;

	m.complete_read.session_id = engine_text_of(id);
	rc = engine_ask(&w->c, &m, ENGINE_COMPLETE_READ_RESPONSE, &answer,
			WAIT_MS);
	if (said && (!rc || rc == -EREMOTEIO))
		describe(said, &answer);
	return rc ? rc : answer.completed.success ? 0 : -EREMOTEIO;
}

static int begin(struct walk *w, uint64_t secs, char id[ENGINE_ID_SIZE],
		 struct engine_message *answer)
{
	struct engine_message request = start_read_of(TEXT_NEEDLE);
	char said[SAID_SIZE];
	int rc;

	request.start_read.timeout_secs = secs;
	rc = start(w, &request, answer, said);
	return rc ? rc : engine_keep_id(id, &answer->started);
}

static const struct engine_complete_read good = { .success = true,
						  .bytes_transferred =
							  sizeof(TEXT) - 1 };

static int whole_needle(struct walk *w, char said[SAID_SIZE])
{
	struct engine_message answer;
	char id[ENGINE_ID_SIZE];
	int rc = begin(w, 30, id, &answer);

	if (rc)
		return rc;
	describe(said, &answer);
	if (answer.started.transfer_size != strlen(TEXT) ||
	    answer.started.expected_crc != crc32c(0, TEXT, strlen(TEXT)))
		return -EBADMSG;
	return finish(w, id, &good, NULL);
}

static int refused(int rc)
{
	return rc == -EREMOTEIO ? 0 : rc ? rc : -EBADMSG;
}

/* 改坏一处的 StartRead，engine 应当拒绝。*/
#define WRONG_START(function, change)                                       \
	static int function(struct walk *w, char said[SAID_SIZE])           \
	{                                                                   \
		struct engine_message request = start_read_of(TEXT_NEEDLE); \
		struct engine_message answer;                               \
                                                                            \
		change;                                                     \
		return refused(start(w, &request, &answer, said));          \
	}
WRONG_START(huge_size, request.start_read.size = UINT64_C(1) << 62)
WRONG_START(wrong_cookie, request.start_read.cookie++)

/* “Hello from …” 的第 6 到 9 个字节是 "from"：CRC 一对，就知道读的是不是它们。*/
static int with_offset(struct walk *w, char said[SAID_SIZE])
{
	struct engine_message request = start_read_of(TEXT_NEEDLE);
	const struct engine_complete_read four = { .success = true,
						   .bytes_transferred = 4 };
	struct engine_message answer;
	char id[ENGINE_ID_SIZE];
	int rc;

	request.start_read.offset = 6;
	request.start_read.size = 4;
	rc = start(w, &request, &answer, said);
	if (!rc)
		rc = engine_keep_id(id, &answer.started);
	if (rc)
		return rc;
	if (answer.started.expected_crc != crc32c(0, "from", 4))
		return -EBADMSG;
	strcat(said, ", their CRC-32C is that of \"from\"");
	return finish(w, id, &four, NULL);
}

static int for_ever(struct walk *w, char said[SAID_SIZE])
{
	struct engine_message answer;
	char id[ENGINE_ID_SIZE];
	int rc = begin(w, UINT64_MAX, id, &answer);

	if (rc)
		return rc;
	if (answer.started.expires_at_ns != INT64_MAX)
		return -EBADMSG;
	snprintf(said, SAID_SIZE, "a session that expires in the year 2262");
	return finish(w, id, &good, NULL);
}

static int one_too_many(struct walk *w, char said[SAID_SIZE])
{
	const struct engine_message third = start_read_of(TEXT_NEEDLE);
	char a[ENGINE_ID_SIZE], b[ENGINE_ID_SIZE];
	struct engine_message answer;
	int rc = begin(w, 30, a, &answer);

	if (!rc)
		rc = begin(w, 30, b, &answer);
	if (!rc)
		rc = refused(start(w, &third, &answer, said));
	if (!rc)
		rc = finish(w, a, &good, NULL);
	return rc ? rc : finish(w, b, &good, NULL);
}

/* ---- CompleteRead ----------------------------------------------------------- */

static int complete_with(struct walk *w, const struct engine_complete_read *how,
			 char said[SAID_SIZE])
{
	struct engine_message answer;
	char id[ENGINE_ID_SIZE];
	int rc = begin(w, 30, id, &answer);

	return rc ? rc : refused(finish(w, id, how, said));
}

static int not_a_success(struct walk *w, char said[SAID_SIZE])
{
	return complete_with(w, &(struct engine_complete_read){ 0 }, said);
}

static int other_crc(struct walk *w, char said[SAID_SIZE])
{
	struct engine_complete_read how = good;

	/* 原版到处用的那个常数 */
	how.client_crc = (struct engine_opt_u32){ true, 0x12345678 };
	return complete_with(w, &how, said);
}

static int too_late(struct walk *w, char said[SAID_SIZE])
{
	struct engine_message answer;
	char id[ENGINE_ID_SIZE];
	char *cut;
	int rc = begin(w, 1, id, &answer);

	if (!rc)
		rc = deadline_sleep_ms(LATE_MS, INT64_MAX);
	if (rc)
		return rc;
	rc = refused(finish(w, id, &good, said));
	/* 每次运行 id 都不同：印出来就没法比了。*/
	cut = strchr(said, '\'');
	if (cut)
		snprintf(cut, SAID_SIZE - (size_t)(cut - said),
			 "'...' has expired");
	return rc;
}

/* ---- 一个一个字节地写 --------------------------------------------------------- */

static int write_raw(struct walk *w, const void *data, size_t size)
{
	return sock_write_exact(w->c.stream.fd, data, size,
				deadline_in_ms(WAIT_MS), "frame");
}

static int answer_to(struct walk *w, const void *data, size_t size,
		     enum engine_type wanted, char said[SAID_SIZE])
{
	struct engine_message answer;
	int rc = write_raw(w, data, size);

	if (!rc)
		rc = engine_receive(&w->c, &answer, deadline_in_ms(WAIT_MS));
	if (rc)
		return rc;
	describe(said, &answer);
	return answer.type == wanted ? 0 : -EBADMSG;
}

/* 一个 Ping 的 frame，@client_id 有 @padding 个字节；free() 它。*/
static char *ping_frame(size_t padding, size_t *size)
{
	struct engine_message ping = { .type = ENGINE_PING,
				       .ping = { .timestamp_ns = 1 } };
	char *text = calloc(1, padding + 1), *frame = NULL;
	struct engine_stream s;

	engine_stream_init(&s, -1, 2 * ENGINE_FRAME_MAX);
	if (text)
		memset(text, 'x', padding);
	ping.ping.client_id = (struct engine_text){ text, padding };
	if (text && !engine_encode(&ping, &s)) {
		*size = engine_stream_pending(&s);
		frame = malloc(*size);
		if (frame)
			memcpy(frame, s.out.data + s.out.start, *size);
	}
	engine_stream_close(&s);
	free(text);
	return frame;
}

static int ping(struct walk *w, size_t padding, int cut_ms,
		char said[SAID_SIZE])
{
	size_t size = 0;
	char *frame = ping_frame(padding, &size);
	size_t first = cut_ms ? 2 : 0;
	int rc = frame ? write_raw(w, frame, first) : -ENOMEM;

	if (!rc && cut_ms)
		rc = deadline_sleep_ms(cut_ms, INT64_MAX);
	if (!rc)
		rc = answer_to(w, frame + first, size - first, ENGINE_PONG,
			       said);
	free(frame);
	return rc;
}

/* 坏的只是这一条消息：连接还在，下一个 Ping 照样有人答。*/
static int wrong_frame(struct walk *w, const char *frame, size_t size,
		       char said[SAID_SIZE])
{
	char pong[SAID_SIZE];
	int rc = answer_to(w, frame, size, ENGINE_ERROR, said);

	return rc ? rc : ping(w, 1, 0, pong);
}

static int split_prefix(struct walk *w, char said[SAID_SIZE])
{
	return ping(w, 1, PAUSE_MS, said);
}

static int not_messagepack(struct walk *w, char said[SAID_SIZE])
{
	return wrong_frame(w, "\1\0\0\0\xc1", 5, said);
}

static int length_zero(struct walk *w, char said[SAID_SIZE])
{
	return wrong_frame(w, "\0\0\0", ENGINE_PREFIX_SIZE, said);
}

static int one_mebibyte(struct walk *w, char said[SAID_SIZE])
{
	const size_t guess = 1u << 17; /* 长度字段已是 4 个字节 */
	size_t size = 0;
	char *frame = ping_frame(guess, &size);

	free(frame);
	return frame ? ping(w,
			    guess + ENGINE_FRAME_MAX + ENGINE_PREFIX_SIZE -
				    size,
			    0, said)
		     : -ENOMEM;
}

/* 多一个字节：答一个 Error，然后这条连接就结束了；别的 client 不受影响。*/
static int one_byte_more(struct walk *w, char said[SAID_SIZE])
{
	const uint32_t length = htole32(ENGINE_FRAME_MAX + 1);
	char byte;
	int rc = answer_to(w, &length, sizeof(length), ENGINE_ERROR, said);

	if (rc)
		return rc;
	shutdown(w->c.stream.fd, SHUT_WR);
	rc = wait_fd(w->c.stream.fd, POLLIN, deadline_in_ms(WAIT_MS));
	if (!rc && recv(w->c.stream.fd, &byte, 1, MSG_DONTWAIT))
		rc = -EBADMSG;
	engine_disconnect(&w->c);
	return rc ? rc
		  : engine_connect(&w->c, w->socket, deadline_in_ms(WAIT_MS));
}

static int terminated(struct walk *w, char said[SAID_SIZE])
{
	int rc;

	engine_disconnect(&w->c);
	rc = end_process(&w->engine, SIGTERM);
	snprintf(said, SAID_SIZE, "exit code %d, the socket's file is %s", -rc,
		 access(w->socket, F_OK) ? "gone" : "still there");
	return rc || !access(w->socket, F_OK) ? -EBADMSG : 0;
}

static const struct trial trials[] = {
	{ "a length in two pieces, 150 ms apart", split_prefix },
	{ "length 0", length_zero },
	{ "1 MiB exactly", one_mebibyte },
	{ "1 MiB + 1", one_byte_more },
	{ "no MessagePack", not_messagepack },
	{ "size 2^62", huge_size },
	{ "timeout_secs 2^64 - 1", for_ever },
	{ "size 0", whole_needle },
	{ "offset 6, size 4", with_offset },
	{ "the wrong cookie", wrong_cookie },
	{ "a third session, and two may be", one_too_many },
	{ "CompleteRead: success false", not_a_success },
	{ "CompleteRead: client_crc 0x12345678", other_crc },
	{ "CompleteRead after the time-out", too_late },
	{ "SIGTERM", terminated },
};

int ask_what_broke_it(struct walk *w)
{
	int rc = 0;

	report_step("what broke the original");
	for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]) && !rc; i++) {
		char said[SAID_SIZE] = "no answer";

		rc = trials[i].run(w, said);
		report_fact("%s", trials[i].what);
		report_fact("    %s", said);
	}
	if (rc == -EBADMSG || rc == -EREMOTEIO)
		report_error(NULL, "that is not the answer that was to come");
	return rc;
}
