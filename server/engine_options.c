// SPDX-License-Identifier: MIT
/*
 * engine_options.c —— rdma_engine 的命令行
 *
 * 上限都给了默认值，也都能改：测试要把它们调小，好在一秒之内走到极限。
 */
#include "engine_options.h"

#include "base/arguments.h"
#include "engine/remote_read.h"
#include "engine/session.h"

#include <string.h>

#define USAGE "usage: rdma_engine --socket PATH --peer HOST[:PORT] [options]"
#define HEAD                                                                 \
	USAGE "\n\n"                                                         \
	      "Reads needles from a storage node (needle_server) with RDMA " \
	      "READ, for\n"                                                  \
	      "clients on a Unix socket.\n\n"
#define TAIL                                                                 \
	"\nSIGINT or SIGTERM ends it. Exit code: 0 done, 1 failed, 2 wrong " \
	"usage.\n"
static const char usage[] = USAGE "; see --help";

/* HOST、HOST:PORT、[IPv6]:PORT。没有方括号而有两个以上冒号的，整个是 IPv6 地址。*/
static int parse_peer(struct engine_options *opt, const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t length = strlen(text);
	uint64_t port = DEFAULT_TCP_PORT;

	if (colon && *text != '[' && strchr(text, ':') != colon)
		colon = NULL;
	if (colon && *text == '[' && colon[-1] != ']')
		colon = NULL;
	if (colon) {
		if (!parse_number(colon + 1, 1, 65535, &port))
			return wrong_usage(usage,
					   "--peer's port is not 1 ... 65535",
					   text);
		length = (size_t)(colon - text);
	}
	if (length > 2 && *text == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (!length || length >= sizeof(opt->host))
		return wrong_usage(usage, "--peer is not HOST or HOST:PORT",
				   text);
	memcpy(opt->host, text, length);
	opt->host[length] = '\0';
	opt->port = (uint16_t)port;
	return -1;
}

int engine_options_parse(struct engine_options *opt, int argc, char *argv[])
{
	const char *peer = NULL;
	const struct option_row rows[] = {
		{ 's', "socket", "PATH",
		  "where clients connect; only this user may",
		  TEXT(opt->socket) },
		{ 'p', "peer", "HOST[:PORT]", "the storage node (port: 18515)",
		  TEXT(peer) },
		{ 'd', "device", "NAME",
		  "RDMA device (default: the first usable)",
		  TEXT(opt->device) },
		{ 'g', "gid-index", "N",
		  "GID table slot (default: chosen by type)",
		  NUMBER(opt->gid_index, GID_INDEX_AUTO, 0, UINT8_MAX) },
		{ 'n', "max-sessions", "N", "sessions at once (default: @)",
		  NUMBER(opt->max_sessions, 1000, 1, 1000000) },
		{ 'c', "max-clients", "N", "clients at once (default: @)",
		  NUMBER(opt->max_clients, 1024, 1, 100000) },
		{ 'm', "max-memory", "MIB",
		  "for the bytes read, together (default: @)",
		  MEBIBYTES(opt->max_memory, 1024, 1, 1 << 24) },
		{ 'a', "auth-token-file", "F", "clients must show this token",
		  TEXT(opt->token_file) },
		{ 't', "session-timeout", "SECS",
		  "of sessions that name none (@)",
		  NUMBER(opt->session_secs, ENGINE_TIMEOUT_SECS, 1, 86400) },
		{ 'r', "read-timeout", "SECS",
		  "of a read that makes no progress (@)",
		  NUMBER(opt->read_secs, 10, 1, 3600) },
		{ 'w', "client-timeout", "SECS",
		  "of a client that stands still (@)",
		  NUMBER(opt->client_secs, 30, 1, 3600) },
		{ 0, "depth", "N", "READs posted at once (@)",
		  NUMBER(opt->depth, REMOTE_READ_DEPTH, 1, 8192) },
		{ 0, "chunk", "BYTES", "of one READ at most (@)",
		  NUMBER(opt->chunk, REMOTE_READ_CHUNK, 1, 1 << 30) },
		{ QUIET("print only failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, HEAD, TAIL, 23, NULL, rows };
	int rc;

	*opt = (struct engine_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc >= 0)
		return rc;
	if (argc > 0)
		return wrong_usage(usage, "too many arguments", argv[0]);
	if (!opt->socket)
		return wrong_usage(usage, "--socket is missing", NULL);
	return peer ? parse_peer(opt, peer)
		    : wrong_usage(usage, "--peer is missing", NULL);
}
