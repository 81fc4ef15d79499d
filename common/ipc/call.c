// SPDX-License-Identifier: MIT
/*
 * call.c —— client 一侧：连上、发问、等回答、把数据映射进来
 *
 * 与 server 用的是同一个 engine_stream、同一张消息表；不同的只是这里可以等：client 只有
 * 一件事要做。每一次等都有期限。
 */
#include "call.h"

#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUT_MOST (4u << 20)

int engine_connect(struct engine_connection *c, const char *path,
		   int64_t deadline)
{
	int fd = engine_socket_connect(path, deadline);

	if (fd < 0)
		return fd;
	engine_stream_init(&c->stream, fd, OUT_MOST);
	c->answered = false;
	return 0;
}

void engine_disconnect(struct engine_connection *c)
{
	if (c->stream.fd >= 0)
		engine_stream_close(&c->stream);
}

static int talk_failed(int rc, const char *what)
{
	if (rc == -EINTR)
		report_error(NULL, "%s: stopped by a signal", what);
	else if (rc == -ETIMEDOUT)
		report_error("is the engine stopped or its machine busy? "
			     "--timeout SECS waits longer",
			     "%s: nothing came before the deadline", what);
	else if (rc == -ECONNRESET || rc == -EPIPE)
		report_error("see the engine's own messages",
			     "%s: the engine closed the connection", what);
	else if (rc == -EMSGSIZE)
		report_error("is that socket really an engine's?",
			     "%s: it is longer than %u bytes", what,
			     ENGINE_FRAME_MAX);
	else
		report_error(NULL, "%s: %s", what, strerror(-rc));
	return rc;
}

int engine_flush(struct engine_connection *c, int64_t deadline)
{
	int rc = engine_stream_flush(&c->stream);

	while (rc == -EAGAIN) {
		rc = wait_fd(c->stream.fd, POLLOUT, deadline);
		if (!rc)
			rc = engine_stream_flush(&c->stream);
	}
	return rc ? talk_failed(rc, "sending a request to the engine") : 0;
}

int engine_write(struct engine_connection *c,
		 const struct engine_message *request)
{
	int rc = engine_encode(request, &c->stream);

	return rc ? talk_failed(rc, "writing a request to the engine") : 0;
}

int engine_send(struct engine_connection *c,
		const struct engine_message *request, int64_t deadline)
{
	int rc = engine_write(c, request);

	return rc ? rc : engine_flush(c, deadline);
}

/*
 * 等到一整条消息到齐；@data 指向缓冲区里的它。先 poll 再 recv，而不是睡在 recv 里：
 * Unix socket 的对端每取走一条请求，都会把睡在 recv 里的人叫醒一次（那是给等着写的人
 * 的通知），poll 则分得清是不是它要的事件。为此白白多出两次进程切换，不值得。
 */
static int await_frame(struct engine_connection *c, const char **data,
		       uint32_t *size, int64_t deadline)
{
	for (;;) {
		int rc = engine_stream_frame(&c->stream, data, size);
		long n;

		if (rc == 1)
			return 0;
		if (!rc)
			rc = wait_fd(c->stream.fd, POLLIN, deadline);
		if (rc)
			return rc;
		n = engine_stream_fill(&c->stream);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && n != -EAGAIN)
			return (int)n;
	}
}

bool engine_answer_is_there(struct engine_connection *c)
{
	const char *data;
	uint32_t size;

	/* 上一条回答里的文字指着缓冲区，所以到现在才放掉它。*/
	if (c->answered)
		engine_stream_next(&c->stream);
	c->answered = false;
	return engine_stream_frame(&c->stream, &data, &size) == 1;
}

int engine_receive(struct engine_connection *c, struct engine_message *answer,
		   int64_t deadline)
{
	struct engine_fault fault = { "no memory" };
	const char *data;
	uint32_t size;
	int rc;

	engine_answer_is_there(c);
	rc = await_frame(c, &data, &size, deadline);
	if (rc)
		return talk_failed(rc, "waiting for the engine's answer");
	c->answered = true;
	rc = engine_decode(answer, data, size, &fault);
	if (rc)
		report_error("is that socket really an engine's?",
			     "the engine's answer cannot be read: %s",
			     fault.text);
	return rc;
}

int engine_ask(struct engine_connection *c,
	       const struct engine_message *request, enum engine_type wanted,
	       struct engine_message *answer, int timeout_ms)
{
	int rc = engine_send(c, request, deadline_in_ms(timeout_ms));

	while (!rc) {
		rc = engine_receive(c, answer, deadline_in_ms(timeout_ms));
		if (rc || answer->type != ENGINE_READ_PROGRESS)
			break;
		if (c->progress)
			c->progress(&answer->progress, c->context);
	}
	if (rc || answer->type == wanted)
		return rc;
	if (answer->type == ENGINE_ERROR)
		return -EREMOTEIO;
	return fail(-EPROTO, "is it an engine of the same protocol?",
		    "the engine answered %s with %s",
		    engine_type_name(request->type),
		    answer->type == ENGINE_UNKNOWN
			    ? "something unknown"
			    : engine_type_name(answer->type));
}

/* 值得再试的，和必须先改请求的，给人的下一步不同。*/
static const char *next_step(const struct engine_error *error)
{
	if (engine_text_is(error->category, "security"))
		return "check the cookie and the token";
	if (engine_text_is(error->category, "network"))
		return "is the storage node running? see the engine's messages";
	return error->recoverable ? "it may succeed if tried again"
				  : "change the request";
}

void engine_report_refusal(const struct engine_message *request,
			   const struct engine_message *answer)
{
	char message[512], category[64];

	report_error(next_step(&answer->error),
		     "the engine refused %s: %s (%s)",
		     engine_type_name(request->type),
		     printable_text(message, sizeof(message),
				    answer->error.message.data,
				    answer->error.message.size),
		     printable_text(category, sizeof(category),
				    answer->error.category.data,
				    answer->error.category.size));
}

int engine_call(struct engine_connection *c,
		const struct engine_message *request, enum engine_type wanted,
		struct engine_message *answer, int timeout_ms)
{
	int rc = engine_ask(c, request, wanted, answer, timeout_ms);

	if (rc == -EREMOTEIO)
		engine_report_refusal(request, answer);
	return rc;
}

int engine_keep_id(char id[ENGINE_ID_SIZE],
		   const struct engine_start_read_response *started)
{
	if (started->session_id.size != ENGINE_ID_SIZE - 1)
		return fail(-EPROTO, "is it an engine of the same protocol?",
			    "the engine's session id has %zu bytes",
			    started->session_id.size);
	memcpy(id, started->session_id.data, started->session_id.size);
	id[started->session_id.size] = '\0';
	return 0;
}

/*
 * 映射比文件长，或者文件后来被截短，碰到末尾之外的页就是 SIGBUS：大小要够，而且得是
 * 封死了、不能再缩的。
 */
static bool holds(int fd, uint64_t size)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & F_SEAL_SHRINK) && !fstat(fd, &st) &&
	       (uint64_t)st.st_size >= size;
}

int engine_map_received(struct engine_connection *c, uint64_t size,
			struct engine_mapping *mapping)
{
	int fd = engine_stream_take_fd(&c->stream);
	void *at = NULL;
	int rc = 0;

	if (fd < 0)
		return fail(-EPROTO, NULL,
			    "MapBufferResponse came without a file descriptor");
	if (!holds(fd, size))
		rc = fail(-EPROTO, "is it an engine of the same protocol?",
			  "MapBufferResponse did not bring a sealed memfd of "
			  "%ju bytes",
			  size);
	/* 长度为 0 的映射不存在（EINVAL），空的 needle 也不需要它。*/
	else if (size)
		at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		rc = call_failed(errno, "mmap(memfd, %ju bytes)", size);
	if (!rc)
		*mapping = (struct engine_mapping){ at, size };
	close(fd); /* 映射自己持有那个文件，不再需要 fd */
	return rc;
}

int engine_map(struct engine_connection *c, const char *id,
	       struct engine_mapping *mapping, int timeout_ms)
{
	const struct engine_message request = {
		.type = ENGINE_MAP_BUFFER,
		.map_buffer = { .session_id = engine_text_of(id) },
	};
	struct engine_message answer;
	int rc;

	c->stream.takes_fds = true; /* 平时不要：recvmsg 比 recv 贵 */
	rc = engine_call(c, &request, ENGINE_MAP_BUFFER_RESPONSE, &answer,
			 timeout_ms);
	c->stream.takes_fds = false;
	return rc ? rc : engine_map_received(c, answer.mapped.size, mapping);
}

void engine_unmap(struct engine_mapping *mapping)
{
	if (mapping->data)
		munmap((void *)(uintptr_t)mapping->data, mapping->size);
	*mapping = (struct engine_mapping){ 0 };
}
