// SPDX-License-Identifier: MIT
/*
 * unit_engine_session.c - timers, sessions, their memory and the token; without
 * RDMA (nothing is registered).
 */
#include "../unit.h"
#include "base/deadline.h"
#include "engine/auth.h"
#include "engine/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST  10000
#define BYTES (16u << 20)

/* Who asks for memory (ld --wrap) is refused, once, at the @refused-th time. */
static int refused;

static bool refuse(void)
{
	return refused && !--refused;
}

#define WRAPPED(type, name, params, args)                    \
	type __real_##name params;                           \
	type __wrap_##name params;                           \
	type __wrap_##name params                            \
	{                                                    \
		return refuse() ? NULL : __real_##name args; \
	}
WRAPPED(void *, calloc, (size_t n, size_t size), (n, size))
WRAPPED(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size))
WRAPPED(void *, tsearch,
	(const void *key, void **root,
	 int (*compare)(const void *, const void *)),
	(key, root, compare))

/* ---- timers ------------------------------------------------------------- */

static int64_t last_fired;
static int fired;

static void on_fire(void *owner)
{
	const struct timer *t = owner;

	CHECK(t->deadline >= last_fired, "%lld after %lld",
	      (long long)t->deadline, (long long)last_fired);
	CHECK(!t->place, "still set");
	last_fired = t->deadline;
	fired++;
}

static void timers_in_order(void)
{
	static struct timer all[1000];
	struct timers timers = { 0 };
	int set = 0;

	CHECK(timers_wait_ms(&timers, 0, 60) == -1, "none");
	srand(1);
	for (int i = 0; i < 20000; i++) {
		struct timer *t = &all[rand() % 1000];

		t->fire = on_fire;
		t->owner = t;
		set += !t->place;
		if (rand() % 3) {
			CHECK(!timer_set(&timers, t, rand() % 1000000), "set");
		} else {
			timer_cancel(&timers, t);
			set--;
		}
		CHECK(timers.count == (size_t)set, "%zu of %d", timers.count,
		      set);
	}
	timers_fire(&timers, 500000);
	CHECK(last_fired <= 500000, "%lld", (long long)last_fired);
	CHECK(timers.heap[0]->deadline > 500000, "too early");
	timers_fire(&timers, INT64_MAX);
	CHECK(fired == set && !timers.count, "%d of %d", fired, set);
	timer_set(&timers, &all[0], INT64_MAX);
	CHECK(timers_wait_ms(&timers, now_ns(), 60000) == 60000, "far");
	timer_set(&timers, &all[0], 5000001);
	CHECK(timers_wait_ms(&timers, 4000000, 60000) == 2, "rounded up");
	CHECK(timers_wait_ms(&timers, 5000001, 60000) == 0, "due");
	timers_free(&timers);
}

/* ---- sessions ----------------------------------------------------------- */

static struct timers timers;
static struct engine_pool pool;
static struct budget budget;
static struct engine_sessions all;
static int expired;

static void on_expired(struct engine_session *session, void *context)
{
	CHECK(context == &expired, "context");
	CHECK(session->id[36] == 0 && session->id[8] == '-', "id");
	expired++;
}

static void init_pool(void)
{
	budget = (struct budget){ .most = BYTES + BYTES / 7 };
	engine_pool_init(&pool, NULL, &budget);
}

/* An owner whose share is @share bytes. */
#define OWNER(bytes)                        \
	{                                   \
		.share = {.most = (bytes) } \
	}

static void open_all(size_t most)
{
	init_pool();
	all = (struct engine_sessions){ .most = most,
					.default_secs = 300,
					.timers = &timers,
					.pool = &pool,
					.expired = on_expired,
					.context = &expired };
	CHECK(!engine_sessions_open(&all), "open");
	expired = 0;
}

static void close_all(void)
{
	CHECK(!all.count && !all.tree && !timers.count, "%zu left", all.count);
	engine_sessions_close(&all);
	engine_pool_trim(&pool);
	CHECK(!budget.used, "%zu bytes in use", budget.used);
	timers_free(&timers);
}

static int find(const char *id, struct engine_session **s)
{
	return engine_session_find(&all, engine_text_of(id), s);
}

static void limits(void)
{
	struct engine_owner owners[10] = { 0 };
	struct engine_session *s, *found;
	char id[ENGINE_ID_SIZE];

	open_all(MOST);
	for (int i = 0; i < MOST; i++) {
		CHECK(!engine_session_begin(&all, &owners[i % 10],
					    (uint64_t)rand(), &s),
		      "session %d", i);
		CHECK(!find(s->id, &found) && found == s, "find %d", i);
	}
	CHECK(engine_session_begin(&all, &owners[0], 1, &s) == -EAGAIN,
	      "one too many");
	strcpy(id, LIST_FIRST(&owners[3].sessions)->id);
	engine_session_end(LIST_FIRST(&owners[3].sessions));
	CHECK(find(id, &found) == -ENOENT, "ended");
	CHECK(!engine_session_begin(&all, &owners[0], 1, &s), "room again");
	engine_owner_end(&owners[3]);
	CHECK(all.count == MOST - 999, "%zu", all.count);
	CHECK(find("", &found) == -ENOENT, "empty");
	CHECK(find("no-such-session", &found) == -ENOENT, "short");
	CHECK(find("00000000-0000-0000-0000-000000000000", &found) == -ENOENT,
	      "null");
	CHECK(find("zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz", &found) == -ENOENT,
	      "no hex");
	for (int i = 0; i < 10; i++)
		engine_owner_end(&owners[i]);
	close_all();
}

static void times(void)
{
	static const uint64_t secs[] = { 0, 1, 30, INT64_MAX, UINT64_MAX };
	struct engine_owner owner = { 0 };
	struct engine_session *s, *found;
	char ids[5][ENGINE_ID_SIZE];

	open_all(10);
	for (int i = 0; i < 5; i++) {
		uint64_t now = engine_unix_ns(), in;
		uint64_t expected = i == 0 ? 300 : secs[i];

		CHECK(!engine_session_begin(&all, &owner, secs[i], &s), "%d",
		      i);
		strcpy(ids[i], s->id);
		in = s->expires_at_ns - now;
		if (i < 3)
			CHECK(in - expected * 1000000000 < 1000000000, "%llu",
			      (unsigned long long)in);
		else
			CHECK(s->expires_at_ns == INT64_MAX, "%llu",
			      (unsigned long long)s->expires_at_ns);
	}
	timers_fire(&timers, now_ns());
	CHECK(!expired, "too early");
	timers_fire(&timers, now_ns() + INT64_C(2000000000));
	CHECK(expired == 1 && find(ids[1], &found) == -ETIME, "1 s");
	CHECK(!find(ids[2], &found), "30 s");
	timers_fire(&timers, now_ns() + INT64_C(301000000000));
	CHECK(expired == 3 && find(ids[0], &found) == -ETIME, "0 is 300 s");
	timers_fire(&timers, INT64_MAX - 1);
	CHECK(expired == 3 && !find(ids[4], &found), "for ever");
	engine_owner_end(&owner);
	close_all();
}

/* ---- memory ------------------------------------------------------------- */

static int get(size_t size, struct engine_buffer **b)
{
	struct engine_buffer *none = NULL;

	return engine_pool_get(&pool, size, &none, b);
}

static void buffers_are_bounded(void)
{
	struct engine_buffer *a, *b;

	init_pool();
	CHECK(get(UINT64_C(1) << 62, &a) == -EDQUOT, "2^62");
	CHECK(get(SIZE_MAX, &a) == -EDQUOT, "2^64 - 1");
	CHECK(get(BYTES + 1, &a) == -EDQUOT, "over");
	CHECK(!get(BYTES - 1, &a), "all of it");
	CHECK(a->size == BYTES, "%zu", a->size);
	CHECK(ENGINE_SPARE(&budget) / 4096 == (budget.most - BYTES) / 4096,
	      "an eighth is spared");
	CHECK(get(1, &b) == -EDQUOT, "one page more");
	engine_buffer_ref(a);
	engine_buffer_put(&pool, a, NULL);
	CHECK(budget.used == BYTES, "a reference is left");
	engine_buffer_put(&pool, a, NULL);
	CHECK(pool.kept == BYTES && budget.used == BYTES, "kept, counted");
	CHECK(!get(BYTES - 1, &b), "a large one again");
	CHECK(b == a && !pool.kept, "used again");
	engine_buffer_put(&pool, b, NULL);
	CHECK(!get(0, &a) && !pool.kept, "0 bytes, and it gives way");
	CHECK(a->size == 4096, "%zu", a->size);
	memset(a->addr, 'x', 4096);
	engine_buffer_put(&pool, a, NULL);
	CHECK(!get(4096, &b), "again");
	CHECK(b == a && !pool.kept, "used again");
	engine_buffer_put(&pool, b, NULL);
	CHECK(pool.kept == 4096 && budget.used == 4096, "kept is counted");
	CHECK(!get(BYTES, &a) && !pool.kept, "and gives way");
	engine_buffer_put(&pool, a, NULL);
	engine_pool_trim(&pool);
}

static void given_buffers(void)
{
	struct engine_buffer *b, *c;
	char *map;
	int fd;

	init_pool();
	CHECK(!get(10000, &b), "get");
	memset(b->addr, 'x', b->size);
	fd = engine_buffer_give(b, 10000);
	CHECK(fd == b->fd && engine_buffer_give(b, 10000) == fd, "give");
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
			      MAP_FAILED &&
		      errno == EPERM,
	      "mapped for writing");
	CHECK(write(fd, "y", 1) < 0 && errno == EPERM, "written to");
	CHECK(ftruncate(fd, 0) < 0 && errno == EPERM, "cut off");
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && errno == EPERM,
	      "sealed again");
	map = mmap(NULL, b->size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED && map[9999] == 'x', "read");
	CHECK(map[10000] == 0 && map[b->size - 1] == 0, "old data behind it");
	((char *)b->addr)[0] = 'z';
	CHECK(map[0] == 'z', "the same pages");
	CHECK(mprotect(map, 4096, PROT_READ | PROT_WRITE), "made writable");
	munmap(map, b->size);
	engine_buffer_put(&pool, b, NULL);
	CHECK(!pool.kept, "a given one is not kept");
	CHECK(!get(10000, &c), "get");
	CHECK(((char *)c->addr)[0] == 0, "fresh");
	engine_buffer_put(&pool, c, NULL);
	engine_pool_trim(&pool);
}

/* What a client was given may serve its next read, and nobody else's. */
static void own_buffers(void)
{
	struct engine_owner owner = OWNER(BYTES), other = OWNER(BYTES);
	struct engine_session *s;
	struct engine_buffer *b;

	open_all(10);
	for (int i = 0; i < 3; i++) {
		CHECK(!engine_session_begin(&all, &owner, 1, &s), "begin");
		CHECK(!engine_session_take_buffer(s, 60000 - 20000 * i),
		      "take");
		CHECK(!i || s->buffer == b, "not used again");
		b = s->buffer;
		memset(b->addr, 'x', b->size);
		CHECK(engine_buffer_give(b, 10) >= 0, "give");
		CHECK(((char *)b->addr)[9] == 'x' && !((char *)b->addr)[10],
		      "old data behind it");
		engine_session_end(s);
		CHECK(owner.buffer == b && !pool.kept && !owner.share.used &&
			      budget.used == b->size,
		      "kept");
	}
	CHECK(!engine_session_begin(&all, &other, 1, &s), "begin");
	CHECK(!engine_session_take_buffer(s, 100), "take");
	CHECK(s->buffer != b, "somebody else's");
	CHECK(!engine_session_begin(&all, &owner, 1, &s), "begin");
	CHECK(!engine_session_take_buffer(s, 100000), "take");
	CHECK(s->buffer != b && owner.buffer == b, "too small");
	engine_owner_end(&other);
	CHECK(!engine_session_begin(&all, &other, 1, &s), "begin");
	CHECK(!engine_session_take_buffer(s, BYTES - 131072 - 8192), "take");
	CHECK(!owner.buffer, "the idle one gives way");
	engine_owner_end(&other);
	engine_owner_end(&owner);
	close_all();
}

/* A client has a share, and a session costs something, too. */
static void shares(void)
{
	struct engine_owner owner = OWNER(100000), other = OWNER(BYTES);
	struct engine_session *s;

	open_all(100000);
	CHECK(!engine_session_begin(&all, &owner, 1, &s), "begin");
	CHECK(engine_session_take_buffer(s, 100001) == -EDQUOT, "over");
	CHECK(!pool.kept, "and nothing was made for it");
	CHECK(engine_session_take_buffer(s, 100000) == -EDQUOT, "rounded");
	CHECK(!s->buffer && !owner.share.used, "it has none");
	CHECK(!engine_session_take_buffer(s, 65536), "take");
	CHECK(!engine_session_begin(&all, &owner, 1, &s), "begin");
	CHECK(engine_session_take_buffer(s, 40000) == -EDQUOT, "together");
	CHECK(!engine_session_take_buffer(s, 32768), "the rest");
	engine_session_put_buffer(s);
	engine_session_put_buffer(s);
	CHECK(owner.share.used == 65536, "%zu", owner.share.used);
	engine_owner_end(&owner);
	CHECK(!owner.share.used, "%zu", owner.share.used);
	engine_pool_trim(&pool);
	while (!engine_session_begin(&all, &other, 1, &s))
		;
	CHECK(all.count == BYTES / ENGINE_SESSION_BYTES, "%zu", all.count);
	engine_owner_end(&other);
	close_all();
}

/* Whatever it is that there is no memory for: nothing is begun, and nothing kept. */
static void no_memory(void)
{
	struct engine_owner owner = OWNER(BYTES);
	struct engine_session *s;
	int n, rc = -ENOMEM;

	open_all(10);
	for (n = 1; n < 10 && rc; n++) {
		refused = n;
		rc = engine_session_begin(&all, &owner, 1, &s);
		CHECK(!rc || rc == -ENOMEM, "%d: %d", n, rc);
		CHECK(!rc || (!timers.count && !all.tree && !budget.used),
		      "%d: %zu timers, %zu bytes", n, timers.count,
		      budget.used);
	}
	CHECK(n == 5 && !rc, "a session, a timer and a place in the tree");
	refused = 1;
	CHECK(engine_session_take_buffer(s, 4096) == -ENOMEM, "take");
	CHECK(budget.used == ENGINE_SESSION_BYTES, "%zu bytes", budget.used);
	refused = 0;
	engine_owner_end(&owner);
	close_all();
}

/* ---- the token ---------------------------------------------------------- */

static void put_token(const char *path, const char *token, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(write(fd, token, size) == (ssize_t)size, "write");
	close(fd);
}

static void token(const char *dir)
{
	struct engine_auth auth = { 0 };
	char path[512], big[ENGINE_TOKEN_MOST + 2];

	CHECK(engine_auth_check(&auth, engine_text_of(NULL)), "none needed");
	CHECK(engine_auth_check(&auth, engine_text_of("any")), "none needed");
	snprintf(path, sizeof(path), "%s/token", dir);
	CHECK(engine_auth_load(&auth, path) == -ENOENT, "no file");
	put_token(path, "\n", 1);
	CHECK(engine_auth_load(&auth, path) == -EINVAL, "empty");
	memset(big, 't', sizeof(big));
	put_token(path, big, ENGINE_TOKEN_MOST + 1);
	CHECK(engine_auth_load(&auth, path) == -EINVAL, "too long");
	CHECK(!auth.needed, "not loaded");
	put_token(path, big, ENGINE_TOKEN_MOST);
	CHECK(!engine_auth_load(&auth, path), "longest");
	put_token(path, "secret\n", 7);
	CHECK(!engine_auth_load(&auth, path) && auth.needed, "load");
	CHECK(engine_auth_check(&auth, engine_text_of("secret")), "right");
	CHECK(!engine_auth_check(&auth, engine_text_of("secret\n")), "newline");
	CHECK(!engine_auth_check(&auth, engine_text_of("secreT")), "wrong");
	CHECK(!engine_auth_check(&auth, engine_text_of("")), "empty");
	CHECK(!engine_auth_check(&auth, engine_text_of(NULL)), "absent");
	unlink(path);
}

int main(int argc, char *argv[])
{
	if (argc != 2)
		return 2;
	fclose(stderr); /* the failures above are reported there */
	timers_in_order();
	limits();
	times();
	buffers_are_bounded();
	given_buffers();
	own_buffers();
	shares();
	no_memory();
	token(argv[1]);
	return unit_result("engine_session");
}
