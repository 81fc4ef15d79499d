/* SPDX-License-Identifier: MIT */
/*
 * call.h - the client's side of an engine: connect, ask, wait for the
 * answer; map what was read.
 *
 * Every function that returns int returns 0 or a negative errno and has reported
 * the failure, unless it says otherwise. One thread per connection.
 */
#ifndef IPC_CALL_H
#define IPC_CALL_H

#include "proto.h"

/* Zero it before use. */
struct engine_connection {
	struct engine_stream stream;
	bool answered; /* the last answer's texts still stand in stream */
	/* Called for each ReadProgress that comes before an answer. Or NULL. */
	void (*progress)(const struct engine_read_progress *progress,
			 void *context);
	void *context;
};

/* Bytes of a read, mapped for reading only. */
struct engine_mapping {
	const char *data;
	size_t size;
};

/* Connect to the engine at @path before @deadline. */
int engine_connect(struct engine_connection *c, const char *path,
		   int64_t deadline);
void engine_disconnect(struct engine_connection *c);

/*
 * Send @request and wait for @answer, which must be of type @wanted or an Error;
 * its texts are valid until the next call. @timeout_ms: limit of each wait for a
 * message, ReadProgress among them. -EREMOTEIO: the engine answered with an
 * Error, which stands in @answer and is reported; -EPROTO: with something else;
 * -ETIMEDOUT, -ECONNRESET, -EINTR (stop requested).
 */
int engine_call(struct engine_connection *c,
		const struct engine_message *request, enum engine_type wanted,
		struct engine_message *answer, int timeout_ms);

/* As engine_call(), but an Error is not reported. */
int engine_ask(struct engine_connection *c,
	       const struct engine_message *request, enum engine_type wanted,
	       struct engine_message *answer, int timeout_ms);

/* Report the Error in @answer, which refused @request. */
void engine_report_refusal(const struct engine_message *request,
			   const struct engine_message *answer);

/*
 * The session's id out of a StartReadResponse, whose texts last only until the
 * next call. -EPROTO, reported, if it is no UUID in text.
 */
int engine_keep_id(char id[ENGINE_ID_SIZE],
		   const struct engine_start_read_response *started);

/* Map the bytes of session @id (MapBuffer). Undone by engine_unmap(). */
int engine_map(struct engine_connection *c, const char *id,
	       struct engine_mapping *mapping, int timeout_ms);
void engine_unmap(struct engine_mapping *mapping);

/* Map @size bytes of the descriptor that came with a MapBufferResponse. */
int engine_map_received(struct engine_connection *c, uint64_t size,
			struct engine_mapping *mapping);

/*
 * One half of engine_ask() each, for those who wait for many at once.
 * engine_send() is engine_write(), which only puts the request into c->stream, and
 * engine_flush(), which sends what is there; engine_receive() takes any message.
 */
int engine_write(struct engine_connection *c,
		 const struct engine_message *request);
int engine_send(struct engine_connection *c,
		const struct engine_message *request, int64_t deadline);
int engine_flush(struct engine_connection *c, int64_t deadline);
int engine_receive(struct engine_connection *c, struct engine_message *answer,
		   int64_t deadline);

/* Done with the last answer; true if the next one is there already. */
bool engine_answer_is_there(struct engine_connection *c);

#endif
