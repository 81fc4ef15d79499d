// SPDX-License-Identifier: MIT
/*
 * error_message.c —— 失败的说法：code、category 与“值不值得再试”
 *
 * 这些名字不是我们起的。原版把 Rust 的 enum 用 Debug 打印出来当 code，于是 code 里带着
 * 花括号和字段；已有的 client 认得它们，我们照样给。
 */
#include "error_message.h"

#include "base/report.h"

#include <stdarg.h>
#include <stdio.h>

static const struct kind {
	const char *name;
	const char *field;
	const char *message;
	const char *category;
	bool recoverable;
} kinds[] = {
	[ENGINE_INVALID_REQUEST] = { "InvalidRequest", "reason",
				     "Invalid request", "request", false },
	[ENGINE_SERIALIZATION_ERROR] = { "SerializationError", "reason",
					 "Serialization error", "ipc", true },
	[ENGINE_IPC_ERROR] = { "IpcError", "reason", "IPC communication error",
			       "ipc", true },
	[ENGINE_PERMISSION_DENIED] = { "PermissionDenied", "operation",
				       "Permission denied", "security", false },
	[ENGINE_RESOURCE_EXHAUSTED] = { "ResourceExhausted", "resource",
					"System resource exhausted", "capacity",
					true },
	[ENGINE_MEMORY_REG_FAILED] = { "MemoryRegFailed", "reason",
				       "Memory registration failed", "resource",
				       false },
	[ENGINE_IO_ERROR] = { "Io", "reason", "I/O error", "io", true },
	[ENGINE_INTERNAL] = { "Internal", "reason", "Internal error",
			      "internal", false },
};

struct engine_failure engine_failure_of(enum engine_failure_kind kind,
					const char *fmt, ...)
{
	const struct kind *k = &kinds[kind];
	struct engine_failure f = { .category = k->category,
				    .recoverable = k->recoverable };
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(f.code, sizeof(f.code), "%s { %s: \"%s\" }", k->name, k->field,
		 text);
	snprintf(f.message, sizeof(f.message), "%s: %s", k->message, text);
	return f;
}

/* client 给的文字要再发回去、印出来：先去掉控制字符，再截短。*/
#define SAFE_SIZE 100
static const char *safe(char out[SAFE_SIZE], struct engine_text text)
{
	return printable_text(out, SAFE_SIZE, text.data ? text.data : "",
			      text.size);
}

struct engine_failure engine_unsupported(struct engine_text name)
{
	struct engine_failure f = { .code = "UNSUPPORTED_MESSAGE",
				    .category = "request",
				    .recoverable = true };
	char text[SAFE_SIZE];

	snprintf(f.message, sizeof(f.message), "Unsupported message type: %s",
		 safe(text, name));
	return f;
}

static struct engine_failure no_session(struct engine_text id, const char *name,
					const char *why)
{
	struct engine_failure f = { .category = "session",
				    .recoverable = true };
	char text[SAFE_SIZE];

	safe(text, id);
	snprintf(f.code, sizeof(f.code), "%s { session_id: \"%s\" }", name,
		 text);
	snprintf(f.message, sizeof(f.message), "Session '%s' %s", text, why);
	return f;
}

struct engine_failure engine_session_unknown(struct engine_text id)
{
	return no_session(id, "SessionNotFound", "not found");
}

struct engine_failure engine_session_expired(struct engine_text id)
{
	return no_session(id, "SessionExpired", "has expired");
}

struct engine_failure engine_too_many_sessions(size_t most)
{
	struct engine_failure f = { .category = "session",
				    .recoverable = true };

	snprintf(f.code, sizeof(f.code),
		 "TooManySessions { max_sessions: %zu }", most);
	snprintf(f.message, sizeof(f.message),
		 "Maximum number of sessions (%zu) exceeded", most);
	return f;
}

struct engine_failure engine_buffer_too_small(uint64_t requested,
					      uint64_t available)
{
	struct engine_failure f = { .category = "capacity",
				    .recoverable = true };

	snprintf(f.code, sizeof(f.code),
		 "InsufficientBuffer { requested: %ju, available: %ju }",
		 requested, available);
	snprintf(f.message, sizeof(f.message),
		 "Insufficient buffer space: requested %ju, available %ju",
		 requested, available);
	return f;
}

struct engine_failure engine_network_timeout(int64_t ms)
{
	struct engine_failure f = { .category = "network",
				    .recoverable = true };

	snprintf(f.code, sizeof(f.code), "NetworkTimeout { timeout_ms: %jd }",
		 ms);
	snprintf(f.message, sizeof(f.message), "Network timeout after %jdms",
		 ms);
	return f;
}

struct engine_failure engine_read_failed(int status)
{
	struct engine_failure f = { .category = "rdma", .recoverable = true };

	snprintf(f.code, sizeof(f.code),
		 "OperationFailed { operation: \"RDMA read\", status: %d }",
		 status);
	snprintf(f.message, sizeof(f.message),
		 "RDMA operation failed: RDMA read, status: %d", status);
	return f;
}

struct engine_message
engine_failure_message(const struct engine_failure *failure)
{
	return (struct engine_message){
		.type = ENGINE_ERROR,
		.error = { .code = engine_text_of(failure->code),
			   .message = engine_text_of(failure->message),
			   .category = engine_text_of(failure->category),
			   .recoverable = failure->recoverable },
	};
}
