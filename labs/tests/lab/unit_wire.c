// SPDX-License-Identifier: MIT
/*
 * unit_wire.c —— host 与 guest 之间的 frame：怎样切开送来，都是同样的 frame；太长的
 * 一个也不当真，后面的照样认得
 */
#include "../../vm/wire.h"
#include "../unit.h"

#include <errno.h>

#define PAYLOAD 700
#define FRAMES	5

static struct wire_buf sent;
static struct wire_in in;

/* 每个字节都出现，END 与 ESC 也在内。*/
static void fill(unsigned char *payload, int nth)
{
	for (int i = 0; i < PAYLOAD; i++)
		payload[i] = (unsigned char)(i * 3 + nth);
}

static int frames_in_pieces_of(size_t piece)
{
	unsigned char want[PAYLOAD];
	int whole = 0;

	for (size_t at = 0; at < wire_len(&sent);) {
		size_t n = wire_len(&sent) - at;

		at += wire_take(&in, wire_head(&sent) + at,
				n < piece ? n : piece);
		if (!in.whole)
			continue;
		fill(want, whole);
		CHECK(wire_type(&in) == 'a' + whole, "pieces of %zu", piece);
		CHECK(wire_payload_len(&in) == PAYLOAD &&
			      !memcmp(wire_payload(&in), want, PAYLOAD),
		      "frame %d in pieces of %zu: %zu bytes", whole, piece,
		      wire_payload_len(&in));
		whole++;
	}
	return whole;
}

int main(void)
{
	static const size_t pieces[] = { 1, 2, 3, 7, 256, PAYLOAD, 1 << 20 };
	unsigned char payload[PAYLOAD], *large = calloc(1, 2 * WIRE_MAX);

	for (int i = 0; i < FRAMES; i++) {
		fill(payload, i);
		wire_put(&sent, (char)('a' + i), payload, sizeof(payload));
	}
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		CHECK(frames_in_pieces_of(pieces[i]) == FRAMES,
		      "in pieces of %zu", pieces[i]);

	/* 太长的夹在中间；一次送来的，末尾就在同一块里。*/
	sent.start = sent.end = 0;
	fill(payload, 0);
	wire_put(&sent, 'a', payload, sizeof(payload));
	wire_put(&sent, 'x', large, WIRE_MAX + 1);
	wire_put(&sent, 'y', large, 2 * WIRE_MAX);
	fill(payload, 1);
	wire_put(&sent, 'b', payload, sizeof(payload));
	for (size_t piece = 4096; piece <= 16 * WIRE_MAX; piece *= 4)
		CHECK(frames_in_pieces_of(piece) == 2, "in pieces of %zu",
		      piece);
	free(large);
	free(sent.data);
	free(in.frame.data);
	return unit_result("wire");
}
