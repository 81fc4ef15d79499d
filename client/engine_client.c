// SPDX-License-Identifier: MIT
/*
 * engine_client.c —— 给 engine 的一个 client：它在吗、它会什么、替我读一个 needle
 *
 * 读的一圈有三步：StartRead（engine 把字节读到它的内存里，告诉我 CRC），MapBuffer（把
 * 那块内存的 fd 交给我，我只读地映射它），CompleteRead（用完了，两边对一对 CRC）。字节
 * 从存储节点的内存到我眼前，没有经过任何一次拷贝。
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"
#include "engine/auth.h"
#include "engine/session.h"
#include "engine_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_MS 200

struct reading {
	const struct engine_client_options *opt;
	struct engine_connection c;
	char id[ENGINE_ID_SIZE];
	uint64_t size;
	uint32_t crc;
	bool shown; /* 终端上有一行进度，还没有换行 */
};

static int connect_to_engine(const struct engine_client_options *opt,
			     struct engine_connection *c)
{
	return engine_connect(c, opt->socket, deadline_in_ms(opt->wait_ms));
}

/* ---- ping --------------------------------------------------------------- */

static int ping_once(const struct engine_client_options *opt,
		     struct engine_connection *c)
{
	const struct engine_message request = {
		.type = ENGINE_PING,
		.ping = { .timestamp_ns = engine_unix_ns(),
			  .client_id = engine_text_of("engine_client") },
	};
	int64_t began = now_ns();
	struct engine_message m;
	int rc = engine_call(c, &request, ENGINE_PONG, &m, opt->wait_ms);

	if (rc)
		return rc;
	if (opt->json)
		return print_json_line(json_pack(
			"{s:f, s:f}", "round_trip_us",
			(double)(now_ns() - began) / 1e3, "to_engine_us",
			(double)m.pong.server_rtt_ns / 1e3));
	report_result("Pong after %.1f us, %.1f us of them to the engine",
		      (double)(now_ns() - began) / 1e3,
		      (double)m.pong.server_rtt_ns / 1e3);
	return 0;
}

static int do_ping(const struct engine_client_options *opt)
{
	struct engine_connection c = { 0 };
	uint64_t n = opt->iters ? opt->iters : 1;
	int rc = connect_to_engine(opt, &c);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n && !rc; i++)
		rc = ping_once(opt, &c);
	engine_disconnect(&c);
	return rc;
}

/* ---- caps --------------------------------------------------------------- */

static int ask_caps(const struct engine_client_options *opt,
		    struct engine_connection *c, struct engine_message *m)
{
	const struct engine_message request = {
		.type = ENGINE_GET_CAPABILITIES,
		.get_capabilities = { engine_text_of("engine_client") },
	};

	return engine_call(c, &request, ENGINE_GET_CAPABILITIES_RESPONSE, m,
			   opt->wait_ms);
}

static bool is_in(const struct engine_texts *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (engine_text_is(list->text[i], name))
			return true;
	return false;
}

static void show_text(const char *what, struct engine_text text)
{
	char safe[128];

	report_result("%-16s %s", what,
		      printable_text(safe, sizeof(safe), text.data, text.size));
}

static void show_caps(const struct engine_get_capabilities_response *caps)
{
	show_text("device", caps->device_name);
	report_result("%-16s 0x%x", "vendor", caps->vendor_id);
	show_text("GID", caps->port_gid);
	report_result("%-16s %u", "LID", caps->port_lid);
	report_result("%-16s %ju bytes", "largest read",
		      caps->max_transfer_size);
	report_result("%-16s %ju of %ju", "sessions", caps->active_sessions,
		      caps->max_sessions);
	for (size_t i = 0; i < caps->supported_auth.count; i++)
		show_text("authentication", caps->supported_auth.text[i]);
	show_text("version", caps->version);
	report_result("%-16s %s", "real RDMA", caps->real_rdma ? "yes" : "no");
	for (size_t i = 0; i < caps->extensions.count; i++)
		show_text("extension", caps->extensions.text[i]);
}

static int do_caps(const struct engine_client_options *opt)
{
	struct engine_connection c = { 0 };
	struct engine_message m;
	json_t *root;
	int rc = connect_to_engine(opt, &c);

	if (rc)
		return rc;
	rc = ask_caps(opt, &c, &m);
	if (!rc && opt->json) {
		root = engine_message_as_json(&m);
		rc = print_json_line(
			json_incref(json_object_get(root, "data")));
		json_decref(root);
	} else if (!rc) {
		show_caps(&m.capabilities);
	}
	engine_disconnect(&c);
	return rc;
}

/* ---- read --------------------------------------------------------------- */

static void show_progress(const struct engine_read_progress *p, void *context)
{
	struct reading *r = context;
	double percent =
		p->total ? 100.0 * (double)p->done / (double)p->total : 100;

	if (r->opt->progress)
		report_remark("progress", "%ju of %ju bytes", p->done,
			      p->total);
	else
		fprintf(stderr, "\r%5.1f %% of %ju bytes", percent, p->total);
	r->shown = !r->opt->progress;
}

static int start_read(struct reading *r,
		      const struct engine_start_read *request)
{
	struct engine_message m = { .type = ENGINE_START_READ,
				    .start_read = *request };
	struct engine_message answer;
	int rc;

	/* 原版的 engine 不认得 progress_ms，跳过它；我们也就收不到进度，仅此而已。*/
	if (r->opt->progress || (!r->opt->quiet && isatty(STDERR_FILENO)))
		m.start_read.progress_ms =
			(struct engine_opt_u32){ true, PROGRESS_MS };
	r->c.progress = show_progress;
	r->c.context = r;
	rc = engine_call(&r->c, &m, ENGINE_START_READ_RESPONSE, &answer,
			 r->opt->wait_ms);
	if (r->shown)
		fputs("\r\033[K", stderr);
	if (rc)
		return rc;
	if (request->size && answer.started.transfer_size != request->size)
		return fail(-EPROTO, "is it an engine of the same protocol?",
			    "%ju bytes were asked for, the engine "
			    "read %ju",
			    request->size, answer.started.transfer_size);
	r->size = answer.started.transfer_size;
	r->crc = answer.started.expected_crc;
	return engine_keep_id(r->id, &answer.started);
}

static int write_all(int fd, const char *data, size_t size, const char *name)
{
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno == EINTR && !stop_requested())
			continue;
		if (n < 0)
			return fail(-errno, NULL, "writing to %s: %s", name,
				    strerror(errno));
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int write_out(const struct engine_client_options *opt,
		     const struct engine_mapping *mapping)
{
	int fd, rc;

	if (!opt->output)
		return write_all(STDOUT_FILENO, mapping->data, mapping->size,
				 "standard output");
	fd = open(opt->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return fail(-errno, "choose another --output", "open(%s): %s",
			    opt->output, strerror(errno));
	rc = write_all(fd, mapping->data, mapping->size, opt->output);
	if (close(fd) && !rc)
		rc = fail(-errno, NULL, "closing %s: %s", opt->output,
			  strerror(errno));
	return rc;
}

/* 先对 CRC，再写出去：坏的字节一个也不该落到文件里。*/
static int use_bytes(const struct reading *r,
		     const struct engine_mapping *mapping)
{
	uint32_t crc = crc32c(0, mapping->data, mapping->size);

	if (mapping->size != r->size || crc != r->crc)
		return fail(-EBADMSG, "read it again",
			    "%zu bytes with CRC-32C 0x%08x came, the engine "
			    "said %ju with 0x%08x",
			    mapping->size, crc, r->size, r->crc);
	return write_out(r->opt, mapping);
}

static int complete_read(struct reading *r, int status)
{
	const struct engine_message m = {
		.type = ENGINE_COMPLETE_READ,
		.complete_read = { .session_id = engine_text_of(r->id),
				   .success = !status,
				   .bytes_transferred = status ? 0 : r->size,
				   .client_crc = { !status, r->crc },
				   .error_message = engine_text_of(
					   status ? strerror(-status) : NULL) },
	};
	struct engine_message answer;
	char text[256];
	int rc = engine_call(&r->c, &m, ENGINE_COMPLETE_READ_RESPONSE, &answer,
			     r->opt->wait_ms);

	if (rc || status || answer.completed.success)
		return status ? status : rc;
	return fail(-EREMOTEIO, NULL, "the engine disagrees: %s",
		    printable_text(text, sizeof(text),
				   answer.completed.message.data,
				   answer.completed.message.size));
}

static int report_read(const struct reading *r, int64_t began)
{
	const struct engine_client_options *opt = r->opt;
	double seconds = (double)(now_ns() - began) / 1e9;

	if (opt->json)
		return print_json_line(json_pack(
			"{s:I, s:I, s:I, s:I, s:I, s:f}", "volume",
			(json_int_t)opt->volume, "needle",
			(json_int_t)opt->needle, "offset",
			(json_int_t)opt->offset, "size", (json_int_t)r->size,
			"crc32c", (json_int_t)r->crc, "seconds", seconds));
	if (opt->output)
		report_result("%ju bytes of needle %ju of volume %ju in %.3f "
			      "s, CRC-32C 0x%08x",
			      r->size, opt->needle, opt->volume, seconds,
			      r->crc);
	return 0;
}

static int read_and_use(struct reading *r,
			const struct engine_start_read *request)
{
	struct engine_mapping mapping;
	struct engine_message m;
	int64_t began = now_ns();
	int rc = ask_caps(r->opt, &r->c, &m);

	if (rc)
		return rc;
	if (!is_in(&m.capabilities.extensions, "MapBuffer"))
		return fail(-EOPNOTSUPP, "use rdma_engine of this project",
			    "this engine cannot hand out what it reads: it "
			    "has no MapBuffer");
	rc = start_read(r, request);
	if (!rc)
		rc = engine_map(&r->c, r->id, &mapping, r->opt->wait_ms);
	/* 到此失败的，session 随连接一起结束，不必再说一遍 CompleteRead。*/
	if (rc)
		return rc;
	rc = complete_read(r, use_bytes(r, &mapping));
	engine_unmap(&mapping);
	return rc ? rc : report_read(r, began);
}

static int do_read(const struct engine_client_options *opt,
		   const struct engine_start_read *request)
{
	struct reading r = { .opt = opt };
	int rc = connect_to_engine(opt, &r.c);

	if (rc)
		return rc;
	rc = read_and_use(&r, request);
	engine_disconnect(&r.c);
	return rc;
}

static int do_reads(const struct engine_client_options *opt)
{
	char token[ENGINE_TOKEN_SIZE];
	struct engine_start_read request = {
		.volume_id = (uint32_t)opt->volume,
		.needle_id = opt->needle,
		.cookie = (uint32_t)opt->cookie,
		.offset = opt->offset,
		.size = opt->size,
		.timeout_secs = opt->session_secs,
	};
	int n;

	if (opt->token_file) {
		n = engine_token_read(token, opt->token_file);
		if (n < 0)
			return n;
		request.auth_token = (struct engine_text){ token, (size_t)n };
	}
	return opt->command == ENGINE_DO_READ
		       ? do_read(opt, &request)
		       : engine_bench_read(opt, &request);
}

int main(int argc, char *argv[])
{
	struct engine_client_options opt;
	int rc;

	setlocale(LC_CTYPE, "");
	rc = engine_client_options_parse(&opt, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	if (opt.command == ENGINE_DO_PING)
		rc = do_ping(&opt);
	else if (opt.command == ENGINE_DO_CAPS)
		rc = do_caps(&opt);
	else if (opt.bench_reads)
		rc = do_reads(&opt);
	else
		rc = engine_bench_ping(&opt);
	if (!rc)
		rc = report_flush();
	return rc ? 1 : 0;
}
