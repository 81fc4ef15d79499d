// SPDX-License-Identifier: MIT
/*
 * engine_load.c - many clients of rdma_engine at once, each reading random ranges
 * of random needles and checking every byte.
 *
 *	engine_load SOCKET CLIENTS READS SEED,MIN,MAX VOLUMES,NEEDLES
 *
 * The store is one that "needle make" filled with these numbers, so that every
 * byte is known. Prints {"reads", "bytes", "network"}: what was read well, and how
 * many requests were refused for the network's sake (they are made again).
 * Exit code: 0 if every read was right in the end, 1 if not.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "ipc/call.h"
#include "needle/pattern.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS   60000
#define CLIENTS_MOST 1024
#define TRIES	     20
#define LANES	     32

struct load {
	const char *socket;
	struct needle_pattern pattern;
	uint64_t clients, reads, volumes, needles;
};

/* One client: a connection of its own, and the read that it is at. */
struct lane {
	struct engine_connection c;
	struct engine_start_read r;
	char id[64];
	uint64_t begun, done;
	uint32_t crc;
	int tries;
	bool started, completing; /* what it waits for next */
};

/*
 * LANES clients share a process: on a machine of two (emulated) CPUs, 64 processes
 * would mostly switch. The struct is in shared memory.
 */
struct worker {
	const struct load *load;
	struct lane lanes[LANES];
	int n_lanes;
	unsigned int random;
	uint64_t done, bytes, network;
	int rc;
	char *expected; /* room for the largest needle */
};

static uint64_t pick(struct worker *me, uint64_t n)
{
	uint64_t r = (uint64_t)rand_r(&me->random) << 24 ^
		     (uint64_t)rand_r(&me->random);

	return r % n;
}

/* A range of a needle: one in four is all of it. */
static struct engine_start_read random_read(struct worker *me)
{
	const struct load *l = me->load;
	uint64_t needle = pick(me, l->needles);
	/* "needle make" deals the needles out to the volumes in turn. */
	struct engine_start_read r = {
		.volume_id = (uint32_t)(1 + needle % l->volumes),
		.needle_id = 1 + needle,
	};
	uint64_t size =
		needle_pattern_size(&l->pattern, r.volume_id, r.needle_id);

	r.cookie = needle_pattern_cookie(&l->pattern, r.volume_id, r.needle_id);
	if (pick(me, 4)) {
		r.offset = pick(me, size);
		r.size = 1 + pick(me, size - r.offset);
	}
	return r;
}

static int wrong(const char *what, const struct engine_start_read *r)
{
	report_error(NULL,
		     "%s: needle %llu of volume %u, offset %llu size %llu",
		     what, (unsigned long long)r->needle_id, r->volume_id,
		     (unsigned long long)r->offset,
		     (unsigned long long)r->size);
	return -EBADMSG;
}

static int check_bytes(struct worker *me, const struct engine_start_read *r,
		       const struct engine_mapping *m, uint32_t crc)
{
	uint64_t size = r->size;

	if (!size)
		size = needle_pattern_size(&me->load->pattern, r->volume_id,
					   r->needle_id) -
		       r->offset;
	if (m->size != size)
		return wrong("wrong length", r);
	needle_pattern_bytes(&me->load->pattern, r->volume_id, r->needle_id,
			     r->offset, me->expected, size);
	if (memcmp(me->expected, m->data, size))
		return wrong("wrong bytes", r);
	if (crc32c(0, m->data, size) != crc)
		return wrong("wrong CRC", r);
	me->bytes += size;
	return 0;
}

/* Into the buffer: it goes out with the next StartRead. */
static int encode_complete(struct lane *l, uint64_t size)
{
	const struct engine_message m = {
		.type = ENGINE_COMPLETE_READ,
		.complete_read = { .session_id = engine_text_of(l->id),
				   .success = true,
				   .bytes_transferred = size,
				   .client_crc = { true, l->crc } },
	};

	l->completing = true;
	return engine_encode(&m, &l->c.stream);
}

static int send_start(struct worker *me, struct lane *l)
{
	struct engine_message m = { .type = ENGINE_START_READ };
	int rc = 0;

	l->started = l->begun < me->load->reads;
	if (l->started) {
		if (!l->tries)
			l->r = random_read(me);
		m.start_read = l->r;
		rc = engine_encode(&m, &l->c.stream);
	}
	return rc ? rc : engine_flush(&l->c, deadline_in_ms(TIMEOUT_MS));
}

static int receive(struct lane *l, struct engine_message *answer)
{
	return engine_receive(&l->c, answer, deadline_in_ms(TIMEOUT_MS));
}

static int take_completed(struct worker *me, struct lane *l)
{
	struct engine_message answer;
	int rc;

	if (!l->completing)
		return 0;
	l->completing = false;
	rc = receive(l, &answer);
	if (rc)
		return rc;
	if (answer.type != ENGINE_COMPLETE_READ_RESPONSE ||
	    !answer.completed.success)
		return wrong("not completed", &l->r);
	l->done++;
	me->done++;
	return 0;
}

/* Refused for the network's sake: tried again in the next round. */
static int refused(struct worker *me, struct lane *l,
		   const struct engine_message *answer)
{
	const struct engine_message m = { .type = ENGINE_START_READ };

	l->started = false;
	if (engine_text_is(answer->error.category, "network") &&
	    ++l->tries < TRIES) {
		me->network++;
		return 0;
	}
	engine_report_refusal(&m, answer);
	return -EREMOTEIO;
}

static int take_started(struct worker *me, struct lane *l)
{
	struct engine_message answer, map;
	int rc;

	if (!l->started)
		return 0;
	rc = receive(l, &answer);
	if (rc)
		return rc;
	if (answer.type == ENGINE_ERROR)
		return refused(me, l, &answer);
	if (answer.type != ENGINE_START_READ_RESPONSE)
		return wrong("not started", &l->r);
	l->begun++;
	l->tries = 0;
	l->crc = answer.started.expected_crc;
	snprintf(l->id, sizeof(l->id), "%.*s",
		 (int)answer.started.session_id.size,
		 answer.started.session_id.data);
	map = (struct engine_message){
		.type = ENGINE_MAP_BUFFER,
		.map_buffer = { engine_text_of(l->id) },
	};
	return engine_send(&l->c, &map, deadline_in_ms(TIMEOUT_MS));
}

static int take_mapped(struct worker *me, struct lane *l)
{
	struct engine_mapping mapping;
	struct engine_message answer;
	int rc;

	if (!l->started)
		return 0;
	l->c.stream.takes_fds = true;
	rc = receive(l, &answer);
	l->c.stream.takes_fds = false;
	if (rc)
		return rc;
	if (answer.type != ENGINE_MAP_BUFFER_RESPONSE)
		return wrong("not mapped", &l->r);
	rc = engine_map_received(&l->c, answer.mapped.size, &mapping);
	if (rc)
		return rc;
	rc = check_bytes(me, &l->r, &mapping, l->crc);
	if (!rc)
		rc = encode_complete(l, mapping.size);
	engine_unmap(&mapping);
	return rc;
}

/* One read of every client; the last one's CompleteRead goes along. */
static int one_round(struct worker *me)
{
	int rc = 0;

	for (int i = 0; i < me->n_lanes && !rc; i++)
		rc = send_start(me, &me->lanes[i]);
	for (int i = 0; i < me->n_lanes && !rc; i++) {
		rc = take_completed(me, &me->lanes[i]);
		if (!rc)
			rc = take_started(me, &me->lanes[i]);
	}
	for (int i = 0; i < me->n_lanes && !rc; i++)
		rc = take_mapped(me, &me->lanes[i]);
	return rc;
}

static void work(struct worker *me)
{
	me->rc = 0;
	for (int i = 0; i < me->n_lanes; i++)
		me->lanes[i].c.stream.fd = -1;
	for (int i = 0; i < me->n_lanes && !me->rc; i++)
		me->rc = engine_connect(&me->lanes[i].c, me->load->socket,
					deadline_in_ms(TIMEOUT_MS));
	while (!me->rc && me->done < me->load->reads * (uint64_t)me->n_lanes)
		me->rc = one_round(me);
	for (int i = 0; i < me->n_lanes; i++)
		engine_disconnect(&me->lanes[i].c);
}

static int start(struct worker *me)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid)
		return 0;
	me->expected = malloc(me->load->pattern.max);
	work(me);
	free(me->expected);
	_exit(0);
}

static int run_all(const struct load *l)
{
	uint64_t workers = (l->clients + LANES - 1) / LANES;
	size_t size = workers * sizeof(struct worker);
	struct worker *all = mmap(NULL, size, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t done = 0, bytes = 0, network = 0;
	int rc = 0;

	if (all == MAP_FAILED)
		return 1;
	for (uint64_t i = 0; i < workers && !rc; i++) {
		uint64_t left = l->clients - i * LANES;

		all[i].load = l;
		all[i].n_lanes = left < LANES ? (int)left : LANES;
		all[i].random = (unsigned int)i + 1;
		all[i].rc = -ECHILD;
		rc = start(&all[i]);
	}
	while (wait(NULL) > 0)
		;
	for (uint64_t i = 0; i < workers; i++) {
		done += all[i].done;
		bytes += all[i].bytes;
		network += all[i].network;
		rc |= all[i].rc;
	}
	munmap(all, size);
	printf("{\"reads\":%llu,\"bytes\":%llu,\"network\":%llu}\n",
	       (unsigned long long)done, (unsigned long long)bytes,
	       (unsigned long long)network);
	return rc ? 1 : 0;
}

int main(int argc, char *argv[])
{
	struct load l = { .socket = argc > 1 ? argv[1] : NULL };
	unsigned long long n[7];

	if (argc != 6 || sscanf(argv[2], "%llu", &n[0]) != 1 ||
	    sscanf(argv[3], "%llu", &n[1]) != 1 ||
	    sscanf(argv[4], "%llu,%llu,%llu", &n[2], &n[3], &n[4]) != 3 ||
	    sscanf(argv[5], "%llu,%llu", &n[5], &n[6]) != 2 || !n[0] ||
	    n[0] > CLIENTS_MOST)
		return 2;
	l.clients = n[0];
	l.reads = n[1];
	l.pattern = (struct needle_pattern){ n[2], n[3], n[4] };
	l.volumes = n[5];
	l.needles = n[6];
	catch_stop_signals();
	return run_all(&l);
}
