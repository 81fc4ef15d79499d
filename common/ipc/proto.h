/* SPDX-License-Identifier: MIT */
/*
 * proto.h - what rdma_engine and its clients say to each other.
 *
 * A message is one MessagePack value, framed by stream.h: a map
 * {"type": NAME, "data": {fields}}, or the same as arrays, [NAME, [the fields in
 * the order below]]. Both forms are read, in any mixture, with keys in any order,
 * unknown fields (they are skipped), nil for an optional field, and integers of
 * any width. What is written are maps: clients in Go and in Rust read them.
 *
 * A client waits for the answer before it sends its next request, or sends
 * several: they are answered one after the other, in their order.
 *
 * Ours are MapBuffer and what belongs to it, and ReadProgress. An engine that
 * knows them names them in GetCapabilitiesResponse.extensions, which other
 * clients skip; it says nothing of either to a client that did not ask.
 *
 * All integers are in host byte order here. Nothing in these files prints.
 */
#ifndef IPC_PROTO_H
#define IPC_PROTO_H

#include "stream.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_DEPTH_MAX  16   /* nested maps and arrays in a message */
#define ENGINE_VALUES_MAX 4096 /* values in a message, keys among them */
#define ENGINE_TEXTS_MAX  16   /* entries of a list of strings */
#define ENGINE_ID_SIZE	  37   /* bytes of a session id, with a NUL */

/* UTF-8, not ended by a NUL; data NULL: not given. */
struct engine_text {
	const char *data;
	size_t size;
};

struct engine_texts {
	size_t count;
	struct engine_text text[ENGINE_TEXTS_MAX];
};

struct engine_opt_u32 {
	bool given;
	uint32_t value;
};

enum engine_type {
	ENGINE_UNKNOWN, /* well-formed, but of no type below */
	ENGINE_PING,
	ENGINE_PONG,
	ENGINE_GET_CAPABILITIES,
	ENGINE_GET_CAPABILITIES_RESPONSE,
	ENGINE_START_READ,
	ENGINE_START_READ_RESPONSE,
	ENGINE_COMPLETE_READ,
	ENGINE_COMPLETE_READ_RESPONSE,
	ENGINE_ERROR,
	ENGINE_MAP_BUFFER,
	ENGINE_MAP_BUFFER_RESPONSE,
	ENGINE_READ_PROGRESS,
	ENGINE_TYPES
};

/* Times are nanoseconds of the Unix epoch. "opt": may be absent or nil. */
struct engine_ping {
	uint64_t timestamp_ns;
	struct engine_text client_id; /* opt */
};

struct engine_pong {
	uint64_t client_timestamp_ns; /* the request's */
	uint64_t server_timestamp_ns;
	uint64_t server_rtt_ns; /* the difference, 0 if the clocks disagree */
};

struct engine_get_capabilities {
	struct engine_text client_id; /* opt */
};

struct engine_get_capabilities_response {
	struct engine_text device_name;
	uint32_t vendor_id;
	uint64_t max_transfer_size; /* bytes of one StartRead */
	uint64_t max_sessions;
	uint64_t active_sessions;
	struct engine_text port_gid;
	uint16_t port_lid;
	struct engine_texts supported_auth; /* "none" or "token" */
	struct engine_text version;
	bool real_rdma;
	struct engine_texts extensions; /* ours; empty: none are known */
};

struct engine_start_read {
	uint32_t volume_id;
	uint64_t needle_id;
	uint32_t cookie;
	uint64_t offset; /* bytes into the needle */
	uint64_t size;	 /* bytes; 0: all from offset on */
	uint64_t remote_addr;
	uint32_t remote_key; /* with remote_addr 0: the engine looks it up */
	uint64_t timeout_secs;
	struct engine_text auth_token;	   /* opt */
	struct engine_opt_u32 progress_ms; /* ours, opt: send ReadProgress */
};

struct engine_start_read_response {
	struct engine_text session_id; /* a UUID in text */
	uint64_t local_addr;	       /* in the engine's address space */
	uint32_t local_key;	       /* its lkey */
	uint64_t transfer_size;	       /* bytes that were read */
	uint32_t expected_crc;	       /* CRC-32C of these bytes */
	uint64_t expires_at_ns;
};

struct engine_complete_read {
	struct engine_text session_id;
	bool success; /* false: the client could not use the bytes */
	uint64_t bytes_transferred;
	struct engine_opt_u32
		client_crc; /* opt: CRC-32C as the client saw it */
	struct engine_text error_message; /* opt */
};

struct engine_complete_read_response {
	bool success;
	struct engine_opt_u32 server_crc; /* opt */
	struct engine_text message;	  /* opt */
};

struct engine_error {
	struct engine_text code;
	struct engine_text message;
	struct engine_text category;
	bool recoverable; /* the same request may succeed later */
};

/* Ours: give me the session's buffer as a file descriptor to map. */
struct engine_map_buffer {
	struct engine_text session_id;
};

/* Comes with a memfd (SCM_RIGHTS) that can be mapped for reading only. */
struct engine_map_buffer_response {
	struct engine_text session_id;
	uint64_t size; /* bytes of the read; the memfd is whole pages */
};

/* Ours: before the answer to a StartRead that has progress_ms. */
struct engine_read_progress {
	uint64_t done, total; /* bytes */
};

struct engine_message {
	enum engine_type type;
	struct engine_text
		name; /* of the type, as the peer wrote it (decoded) */
	union {
		struct engine_ping ping;
		struct engine_pong pong;
		struct engine_get_capabilities get_capabilities;
		struct engine_get_capabilities_response capabilities;
		struct engine_start_read start_read;
		struct engine_start_read_response started;
		struct engine_complete_read complete_read;
		struct engine_complete_read_response completed;
		struct engine_error error;
		struct engine_map_buffer map_buffer;
		struct engine_map_buffer_response mapped;
		struct engine_read_progress progress;
	};
};

/* Why a message was refused: one line of English. */
struct engine_fault {
	char text[192];
};

/*
 * Decode one message of @size bytes. The texts of @message point into @data.
 * -EBADMSG: it is no message, @fault says why; -ENOMEM. A well-formed message of
 * an unknown type is none of these: 0, and ENGINE_UNKNOWN.
 */
int engine_decode(struct engine_message *message, const char *data, size_t size,
		  struct engine_fault *fault);

/* Write @message, framed, to @stream's buffer. As engine_stream_end(). */
int engine_encode(const struct engine_message *message,
		  struct engine_stream *stream);

/* "StartRead", ...; NULL for ENGINE_UNKNOWN. */
const char *engine_type_name(enum engine_type type);

/* The text @string, which must outlive it; of NULL, "not given". */
struct engine_text engine_text_of(const char *string);

/* True if @text is the string @string. */
bool engine_text_is(struct engine_text text, const char *string);

/*
 * {"type": ..., "data": {...}} with the fields that are given; texts with control
 * characters are JSON as well. NULL: no memory.
 */
json_t *engine_message_as_json(const struct engine_message *message);

#endif
