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
#include "crc32c.h"
#include "deadline.h"
#include "engine_call.h"
#include "needle_pattern.h"
#include "report.h"

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

struct load {
	const char *socket;
	struct needle_pattern pattern;
	uint64_t clients, reads, volumes, needles;
};

/* A process of its own, as clients are; the struct is in shared memory. */
struct client {
	const struct load *load;
	pid_t pid;
	struct engine_connection c;
	unsigned int random;
	uint64_t done, bytes, network;
	int rc;
	char *expected; /* room for the largest needle */
};

static uint64_t pick(struct client *me, uint64_t n)
{
	uint64_t r = (uint64_t)rand_r(&me->random) << 24 ^
		     (uint64_t)rand_r(&me->random);

	return r % n;
}

/* A range of a needle: one in four is all of it. */
static struct engine_start_read random_read(struct client *me)
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

static int check_bytes(struct client *me, const struct engine_start_read *r,
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

static int complete(struct client *me, const char *id, uint64_t size,
		    uint32_t crc)
{
	const struct engine_message m = {
		.type = ENGINE_COMPLETE_READ,
		.complete_read = { .session_id = engine_text_of(id),
				   .success = true,
				   .bytes_transferred = size,
				   .client_crc = { true, crc } },
	};
	struct engine_message answer;
	int rc = engine_call(&me->c, &m, ENGINE_COMPLETE_READ_RESPONSE, &answer,
			     TIMEOUT_MS);

	if (!rc && !answer.completed.success)
		rc = -EREMOTEIO;
	return rc;
}

static int read_once(struct client *me, const struct engine_start_read *r)
{
	const struct engine_message m = { .type = ENGINE_START_READ,
					  .start_read = *r };
	struct engine_mapping mapping;
	struct engine_message answer;
	uint32_t crc;
	char id[64];
	int rc = engine_ask(&me->c, &m, ENGINE_START_READ_RESPONSE, &answer,
			    TIMEOUT_MS);

	if (rc == -EREMOTEIO &&
	    engine_text_is(answer.error.category, "network"))
		return -EAGAIN;
	if (rc == -EREMOTEIO)
		engine_report_refusal(&m, &answer);
	if (rc)
		return rc;
	snprintf(id, sizeof(id), "%.*s", (int)answer.started.session_id.size,
		 answer.started.session_id.data);
	crc = answer.started.expected_crc;
	rc = engine_map(&me->c, id, &mapping, TIMEOUT_MS);
	if (rc)
		return rc;
	rc = check_bytes(me, r, &mapping, crc);
	if (!rc)
		rc = complete(me, id, mapping.size, crc);
	engine_unmap(&mapping);
	return rc;
}

static void run(struct client *me)
{
	me->rc = engine_connect(&me->c, me->load->socket,
				deadline_in_ms(TIMEOUT_MS));
	while (!me->rc && me->done < me->load->reads) {
		struct engine_start_read r = random_read(me);
		int tries = 0;

		do {
			me->rc = read_once(me, &r);
			me->network += me->rc == -EAGAIN;
		} while (me->rc == -EAGAIN && ++tries < TRIES);
		me->done += !me->rc;
	}
	engine_disconnect(&me->c);
}

static int start(struct client *me)
{
	me->pid = fork();
	if (me->pid < 0)
		return -errno;
	if (me->pid)
		return 0;
	me->expected = malloc(me->load->pattern.max);
	run(me);
	free(me->expected);
	_exit(0);
}

static int run_all(const struct load *l)
{
	size_t size = l->clients * sizeof(struct client);
	struct client *all = mmap(NULL, size, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t done = 0, bytes = 0, network = 0;
	int rc = 0;

	if (all == MAP_FAILED)
		return 1;
	for (uint64_t i = 0; i < l->clients && !rc; i++) {
		all[i] = (struct client){ .load = l,
					  .c = { .stream.fd = -1 },
					  .random = (unsigned int)i + 1,
					  .rc = -ECHILD };
		rc = start(&all[i]);
	}
	while (wait(NULL) > 0)
		;
	for (uint64_t i = 0; i < l->clients; i++) {
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
