// SPDX-License-Identifier: MIT
/*
 * fuzz_engine_proto.c - any bytes at all for the engine's decoder.
 *
 * An input is a frame; its first four bytes, the length, are not looked at. What
 * the decoder takes for a message must survive being written and read again:
 * the second writing gives the same bytes as the first.
 */
#include "ipc/proto.h"

#include <stdlib.h>
#include <string.h>

#define OUT_MOST (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_frame(struct engine_stream *s, const struct engine_message *m)
{
	engine_stream_init(s, -1, OUT_MOST);
	/* Only what takes no more room than was read: names may be longer. */
	if (engine_encode(m, s))
		engine_stream_discard(s);
}

static void there_and_back(const struct engine_message *m)
{
	struct engine_stream first, second;
	struct engine_message back;
	struct engine_fault fault;

	write_frame(&first, m);
	if (!engine_stream_pending(&first)) {
		engine_stream_close(&first);
		return;
	}
	if (engine_decode(&back, first.out.data + ENGINE_PREFIX_SIZE,
			  first.out.end - ENGINE_PREFIX_SIZE, &fault) ||
	    back.type != m->type)
		abort();
	write_frame(&second, &back);
	if (first.out.end != second.out.end ||
	    memcmp(first.out.data, second.out.data, first.out.end))
		abort();
	engine_stream_close(&first);
	engine_stream_close(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct engine_message m;
	struct engine_fault fault = { "" };
	int rc;

	if (size < ENGINE_PREFIX_SIZE)
		return 0;
	rc = engine_decode(&m, (const char *)data + ENGINE_PREFIX_SIZE,
			   size - ENGINE_PREFIX_SIZE, &fault);
	if (rc) {
		if (!fault.text[0])
			abort(); /* refused without a reason */
		return 0;
	}
	json_decref(engine_message_as_json(&m));
	if (m.type != ENGINE_UNKNOWN)
		there_and_back(&m);
	return 0;
}
