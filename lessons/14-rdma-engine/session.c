// SPDX-License-Identifier: MIT
/*
 * session.c —— 一个 session 的一生，从 client 这边看
 *
 *	StartRead     engine 去读；答的时候字节已在它的 memfd 里
 *	MapBuffer     memfd 的 fd 随一条消息过来（SCM_RIGHTS），映射它
 *	CompleteRead  用完了；两边对一对长度与 CRC
 */
#include "engine/session.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "walk.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* 答的是 Error 也算答了：印出来，由调用者看。*/
static int ask(struct walk *w, const struct engine_message *request,
	       enum engine_type wanted, struct engine_message *answer)
{
	int rc;

	show_message("->", request);
	rc = engine_ask(&w->c, request, wanted, answer, WAIT_MS);
	if (!rc || rc == -EREMOTEIO)
		show_message("<-", answer);
	return rc;
}

static int say_hello(struct walk *w)
{
	const struct engine_message ping = {
		.type = ENGINE_PING,
		.ping = { .timestamp_ns = engine_unix_ns(),
			  .client_id = engine_text_of("lesson 14") },
	};
	struct engine_message answer;

	report_step("rdma_engine, behind a Unix socket: is it there?");
	return ask(w, &ping, ENGINE_PONG, &answer);
}

static int start_read(struct walk *w, struct engine_start_read_response *r,
		      char id[ENGINE_ID_SIZE])
{
	const struct engine_message request = start_read_of(TEXT_NEEDLE);
	struct engine_message answer;
	int rc;

	report_step("StartRead: when the answer comes, the bytes are there");
	rc = ask(w, &request, ENGINE_START_READ_RESPONSE, &answer);
	if (rc)
		return rc;
	*r = answer.started;
	/* 文字指着接收缓冲区，下一次 ask 就没了：id 要自己留一份。*/
	if (engine_keep_id(id, r))
		return -EPROTO;
	return r->transfer_size == strlen(TEXT) ? 0 : bad("a wrong size");
}

/*
 * local_addr 在 engine 的地址空间里。别直接解引用它（SIGSEGV）：让内核去读，它只会说
 * EFAULT。write(2) 从这个地址取数据，写进一个 pipe。万一这个进程碰巧在那里也映射了
 * 什么，读到的也是别的东西。
 */
static int use_the_address(const struct engine_start_read_response *r)
{
	char bytes[sizeof(TEXT)] = "";
	int fds[2];
	ssize_t n;

	report_step("read at local_addr, as the original would have it");
	if (pipe(fds))
		return bad(strerror(errno));
	n = write(fds[1], (const void *)(uintptr_t)r->local_addr, strlen(TEXT));
	report_fact("write(2) from there: %s",
		    n < 0 ? strerror(errno) : "something else is mapped here");
	if (n > 0)
		n = read(fds[0], bytes, (size_t)n);
	close(fds[0]);
	close(fds[1]);
	return strcmp(bytes, TEXT) ? 0 : bad("the needle is there");
}

static int map_buffer(struct walk *w, const char *id,
		      struct engine_mapping *mapping)
{
	const struct engine_message request = {
		.type = ENGINE_MAP_BUFFER,
		.map_buffer = { .session_id = engine_text_of(id) },
	};
	struct engine_message answer;
	int rc;

	report_step("MapBuffer: the memory itself, as a file descriptor");
	w->c.stream.takes_fds = true;
	rc = ask(w, &request, ENGINE_MAP_BUFFER_RESPONSE, &answer);
	w->c.stream.takes_fds = false;
	if (!rc)
		rc = engine_map_received(&w->c, answer.mapped.size, mapping);
	if (rc)
		return rc;
	report_fact("a descriptor came along; mapped, it reads \"%.*s\"",
		    (int)mapping->size, mapping->data);
	/* 别的 client 也许正等着这块内存里的字节：谁也不许改。*/
	if (!mprotect((void *)(uintptr_t)mapping->data, mapping->size,
		      PROT_READ | PROT_WRITE))
		return bad("the mapping can be made writable");
	report_fact("mprotect(PROT_WRITE): %s", strerror(errno));
	return memcmp(mapping->data, TEXT, strlen(TEXT)) ? bad("other bytes")
							 : 0;
}

static int complete(struct walk *w, const char *id,
		    const struct engine_mapping *mapping)
{
	const struct engine_message request = {
		.type = ENGINE_COMPLETE_READ,
		.complete_read = { .session_id = engine_text_of(id),
				   .success = true,
				   .bytes_transferred = mapping->size,
				   .client_crc = { true,
						   crc32c(0, mapping->data,
							  mapping->size) } },
	};
	struct engine_message answer;
	int rc;

	report_step("CompleteRead, with the CRC-32C that the client computed");
	rc = ask(w, &request, ENGINE_COMPLETE_READ_RESPONSE, &answer);
	if (rc)
		return rc;
	if (!answer.completed.success)
		return bad("the engine disagrees");
	report_fact("once more: the session is gone");
	rc = ask(w, &request, ENGINE_COMPLETE_READ_RESPONSE, &answer);
	return rc == -EREMOTEIO ? 0 : bad("it completed twice");
}

int play_a_session(struct walk *w)
{
	struct engine_start_read_response started;
	struct engine_mapping mapping = { 0 };
	char id[ENGINE_ID_SIZE] = "";
	int rc = start_engine(w);

	if (!rc)
		rc = say_hello(w);
	if (!rc)
		rc = start_read(w, &started, id);
	if (!rc)
		rc = use_the_address(&started);
	if (!rc)
		rc = map_buffer(w, id, &mapping);
	if (!rc)
		rc = complete(w, id, &mapping);
	engine_unmap(&mapping);
	return rc;
}

/* ---- --break --------------------------------------------------------------- */

/* 第 4 课里的整数都是 big-endian，于是长度也写成了那样。*/
int net_order(void *walk)
{
	struct walk *w = walk;
	const struct engine_message request = start_read_of(TEXT_NEEDLE);
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	struct engine_stream *s = &w->c.stream;
	struct engine_message answer;
	uint32_t length;
	int rc = open_node(w);

	if (!rc)
		rc = start_engine(w);
	if (rc)
		return rc;
	report_step("break it: net-order");
	rc = engine_encode(&request, s);
	if (rc)
		return bad("no room for a request");
	length = htobe32((uint32_t)engine_stream_pending(s) -
			 ENGINE_PREFIX_SIZE);
	memcpy(s->out.data + s->out.start, &length, sizeof(length));
	report_fact("a message of %zu bytes, its length written as %08x",
		    engine_stream_pending(s) - ENGINE_PREFIX_SIZE,
		    be32toh(length));
	rc = engine_flush(&w->c, deadline);
	if (!rc)
		rc = engine_receive(&w->c, &answer, deadline);
	if (rc)
		return rc;
	show_message("<-", &answer);
	if (answer.type != ENGINE_ERROR)
		return bad("that length was taken");
	return fail(-EREMOTEIO,
		    "write it with htole32(): only MessagePack's own integers "
		    "are big-endian",
		    "the engine read the length as %u", le32toh(length));
}

/* StartRead 与 CompleteRead，不看字节：只问“现在读得到吗”。*/
static int try_to_read(struct walk *w)
{
	const struct engine_message request = start_read_of(TEXT_NEEDLE);
	struct engine_message answer, done = { .type = ENGINE_COMPLETE_READ };
	char id[ENGINE_ID_SIZE] = "";
	int rc = engine_call(&w->c, &request, ENGINE_START_READ_RESPONSE,
			     &answer, WAIT_MS);

	if (rc)
		return rc;
	report_fact("StartRead: %ju bytes are there",
		    answer.started.transfer_size);
	rc = engine_keep_id(id, &answer.started);
	if (rc)
		return rc;
	done.complete_read = (struct engine_complete_read){
		.session_id = engine_text_of(id),
		.success = true,
		.bytes_transferred = answer.started.transfer_size,
	};
	return engine_ask(&w->c, &done, ENGINE_COMPLETE_READ_RESPONSE, &answer,
			  WAIT_MS);
}

int kill_node(void *walk)
{
	struct walk *w = walk;
	int refused;
	int rc = open_node(w);

	if (!rc)
		rc = start_engine(w);
	report_step("break it: kill-node");
	if (!rc)
		rc = try_to_read(w);
	if (rc)
		return rc;
	end_process(&w->node, SIGKILL);
	report_fact("the node is killed");
	rc = await_said(w, "engine", "connecting again", 1);
	if (rc)
		return rc;
	refused = try_to_read(w);
	/* engine 还活着，它的 client 也还连着：缺的只是节点。*/
	rc = await_said(w, "engine", "no server listened", 1);
	if (!rc)
		rc = start_node(w);
	if (!rc)
		report_fact("the node is started again");
	if (!rc)
		rc = await_said(w, "engine", "connected to", 2);
	if (!rc)
		rc = try_to_read(w);
	show_said(w, "engine");
	return rc ? rc : refused;
}
