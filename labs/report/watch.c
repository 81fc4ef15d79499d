// SPDX-License-Identifier: MIT
/*
 * watch.c —— 旁边看着的人：程序跑着，就用报告的那些规则说出第一个原因
 *
 * 它是另一个进程，不是程序里的线程：判断要读整份记录、要内存、要问内核，那些都不该发生在别人的
 * 进程里；它死了，程序不知道。它睡着，不占程序的 CPU：记录出现以前等目录里多出一个文件，以后睡在
 * 第一份记录头上的一个字上，出了事、有人按了 Ctrl-\、程序要结束了，记录器才叫它。只有要数着秒说
 * 它停住了（--stall），才一秒看几眼，程序动没动过。
 */
#include "live.h"

#include "../recorder/ring.h"
#include "base/array.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND 1000000u
#define SECOND	    1000000000u
#define MOST_VIEWS  1024

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void add(struct watcher *w, const char *path)
{
	struct watched *more, new = { 0 };

	if (is_watched(w, path) || w->n == MOST_VIEWS ||
	    !view_open(&new.view, path))
		return;
	new.fd = (int)syscall(SYS_pidfd_open, new.view.pid, 0);
	new.used = w->stall_ns ? calloc(MOST_VIEW_BLOCKS, sizeof(*new.used))
			       : NULL;
	more = array_room(w->all, w->n, sizeof(*more));
	if (!more || (w->stall_ns && !new.used))
		return;
	w->all = more;
	w->all[w->n++] = new;
	verdict_register(&new.view);
}

/* FILE 与 FILE.PID：一条命令里可以有几个用 verbs 的进程。FILE 先：睡在它头上。*/
static void scan(struct watcher *w)
{
	const char *base = strrchr(w->path, '/') + 1;
	size_t dir_len = (size_t)(base - w->path), len = strlen(base);
	const struct dirent *entry;
	char path[4096];
	DIR *dir;

	add(w, w->path);
	snprintf(path, sizeof(path), "%.*s.", (int)dir_len, w->path);
	dir = w->n ? opendir(path) : NULL;
	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strncmp(name, base, len) || name[len] != '.' ||
		    !strchr("0123456789", name[len + 1]))
			continue;
		snprintf(path, sizeof(path), "%.*s%s", (int)dir_len, w->path,
			 name);
		add(w, path);
	}
	if (dir)
		closedir(dir);
}

/* ---- 动没动过 -------------------------------------------------------------- */

/* 记录上的时刻，换成 ns：第一个事件与此刻各有两种钟的读数。*/
static uint64_t ns_of(const struct watched *it, uint64_t stamp)
{
	const struct block *block = view_block(&it->view, 0);
	const struct event_head *first = (const void *)(block + 1);
	uint64_t now = ring_stamp(), ns = now_ns();

	if (stamp >= now || first->at >= now || first->ns >= ns ||
	    atomic_load(&block->kind) != BLOCK_CONTROL)
		return ns;
	return ns -
	       (uint64_t)((double)(ns - first->ns) * (double)(now - stamp) /
			  (double)(now - first->at));
}

/* 这一块里新的、最后一次 post 或 completion 的时刻；0：没有。*/
static uint64_t last_work(const struct block *block, uint64_t from, uint64_t to)
{
	const struct record *records = (const struct record *)(block + 1);

	if (to > BLOCK_RECORDS)
		return 0;
	if (from > to)
		from = 0;
	for (; from < to; to--)
		if (records[to - 1].kind <= RECORD_COMPLETION)
			return records[to - 1].stamp;
	return 0;
}

static uint64_t last_event_at(const struct block *block, uint64_t from,
			      uint64_t to)
{
	const char *bytes = (const char *)(block + 1);
	const struct event_head *head = NULL;

	while (from < to && to <= BLOCK_SIZE - sizeof(*block)) {
		head = (const void *)(bytes + from);
		if (head->size < sizeof(*head) || head->size > to - from)
			break;
		from += head->size;
	}
	return head ? head->ns : 0;
}

static void look_for_progress(struct watched *it)
{
	size_t blocks = view_blocks(&it->view);
	uint32_t watchers = it->view.header->watchers_block;

	look_sample(&it->view, &it->samples);
	for (size_t i = 0; i < blocks; i++) {
		struct block *block = view_block(&it->view, i);
		uint64_t used = atomic_load(&block->used), t = 0;
		uint32_t kind = atomic_load(&block->kind);

		if (used == it->used[i] || i + 1 == watchers)
			continue;
		if (kind == BLOCK_CONTROL)
			t = last_event_at(block, it->used[i], used);
		if (t > it->call)
			it->call = t;
		t = kind == BLOCK_RING ? last_work(block, it->used[i], used)
				       : 0;
		if (t && ns_of(it, t) > it->activity)
			it->activity = ns_of(it, t);
		it->used[i] = used;
	}
}

static uint64_t last_move(const struct watched *it)
{
	return it->call > it->activity ? it->call : it->activity;
}

/* 停下够久了，而且还没有说过；说过以后换了地方，又停了同样久的，再说一次。*/
static bool is_stalled(struct watched *it, uint64_t stall_ns)
{
	uint64_t now = now_ns(), places, last = last_move(it);

	if (!last)
		return false;
	if (it->activity && it->told_activity != it->activity &&
	    now - it->activity >= stall_ns)
		return true;
	if (now - last < stall_ns)
		return false;
	if (it->told_call != last)
		return true;
	if (now - it->looked_at < stall_ns)
		return false;
	it->looked_at = now;
	places = look_places(&it->view);
	if (!it->places)
		it->places = places;
	if (!places || places == it->places || look_polls(&it->samples)) {
		it->next_places = it->places;
		return false;
	}
	/* 换了地方，而且上一次看时就在那里。*/
	if (places != it->next_places) {
		it->next_places = places;
		return false;
	}
	it->places = places;
	return true;
}

/* 它停在哪里；在跑的（刚醒来看一眼的），再看几次。*/
static uint64_t places_of(const struct watched *it)
{
	const struct timespec nap = { .tv_nsec = 2 * MILLISECOND };
	uint64_t places = look_places(&it->view);

	for (int i = 0; !places && i < 5; i++) {
		nanosleep(&nap, NULL);
		places = look_places(&it->view);
	}
	return places;
}

/* @places：那时停在哪里；判断要一会儿，也许已经走开了。*/
static void told(struct watched *it, uint64_t places)
{
	it->told_activity = it->activity;
	it->told_call = last_move(it);
	it->looked_at = now_ns();
	it->places = it->next_places = places;
}

/* ---- 看 -------------------------------------------------------------------- */

/* 程序在结束之前等着。*/
static void answer(const struct watched *it, uint32_t ticket)
{
	_Atomic uint32_t *judged = &it->view.header->judged;

	atomic_store(judged, ticket);
	syscall(SYS_futex, judged, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* 只录不说的，没有什么要判断：除非有人问。*/
static bool why(const struct watcher *w, struct watched *it,
		enum reason *reason)
{
	const struct recording_header *header = it->view.header;
	uint32_t over = atomic_load(&header->over);
	uint32_t failures = atomic_load(&header->failures);

	if (w->stall_ns)
		look_for_progress(it);
	if (over || proc_ended(it->fd)) {
		it->done = true;
		*reason = REASON_OVER;
		return over != 1 && !w->quiet;
	}
	if (atomic_load(&header->asked) != it->asked) {
		it->asked = atomic_load(&header->asked);
		*reason = REASON_ASKED;
		return true;
	}
	if (failures != it->failures && now_ns() >= it->not_before) {
		it->failures = failures;
		*reason = REASON_FAILED;
		return !w->quiet;
	}
	*reason = REASON_STALL;
	return w->stall_ns && now_ns() >= it->again_at &&
	       is_stalled(it, w->stall_ns);
}

static bool is_late(const struct watched *it)
{
	return !it->done &&
	       atomic_load(&it->view.header->failures) != it->failures;
}

/* 9p 上别人打开同一个文件，它会变短，后面的页读不了；问一次它多大，它就又长了。*/
static void ask_size(const struct watched *it)
{
	struct stat st;

	(void)!stat(it->view.path, &st);
}

static void attend(const struct watcher *w, struct watched *it)
{
	uint32_t ticket = atomic_load(&it->view.header->told);
	uint64_t began = now_ns();
	enum reason reason;

	if (why(w, it, &reason)) {
		uint64_t places = w->stall_ns ? places_of(it) : 0;
		bool judged = verdict(w, it, reason);

		it->not_before = now_ns() + 5 * (now_ns() - began);
		if (!judged) { /* 一秒以后再判断一次 */
			ask_size(it);
			it->again_at = it->not_before = now_ns() + SECOND;
			if (reason == REASON_FAILED)
				it->failures--;
		} else if (reason != REASON_FAILED) {
			told(it, places);
		}
	}
	answer(it, ticket);
}

static sigjmp_buf gone;

static void page_is_gone(int sig)
{
	siglongjmp(gone, sig);
}

static void try_to_attend(const struct watcher *w, struct watched *it)
{
	if (sigsetjmp(gone, 1))
		ask_size(it);
	else
		attend(w, it);
}

/* 返回还有几个没有结束。*/
static size_t attend_all(const struct watcher *w)
{
	size_t alive = 0;

	for (size_t i = 0; i < w->n; i++) {
		if (!w->all[i].done)
			try_to_attend(w, &w->all[i]);
		alive += !w->all[i].done;
	}
	return alive;
}

/* 第一份还没有出现：等程序结束，或者目录里多出一个文件。*/
static void wait_for_first(const struct watcher *w, int program, int *news)
{
	struct pollfd fds[] = { { .fd = program, .events = POLLIN },
				{ .fd = *news, .events = POLLIN } };
	char events[4096];

	if (*news < 0) {
		const char *base = strrchr(w->path, '/');
		char dir[4096];

		snprintf(dir, sizeof(dir), "%.*s/", (int)(base - w->path),
			 w->path);
		*news = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		inotify_add_watch(*news, dir, IN_CREATE);
		return;
	}
	/* 文件先有，头后写好。*/
	poll(fds, 2, access(w->path, F_OK) ? 1000 : 5);
	(void)!read(*news, events, sizeof(events));
}

static void wait_for_word(const struct watcher *w, uint32_t seen, size_t alive)
{
	uint64_t ns = SECOND;
	struct timespec t = { 0 };

	if (!alive)
		ns = 100 * MILLISECOND;
	for (size_t i = 0; i < w->n; i++)
		if (is_late(&w->all[i]))
			ns = 100 * MILLISECOND;
	if (alive && w->stall_ns)
		ns = w->stall_ns < 400 * MILLISECOND ? w->stall_ns / 2
						     : 200 * MILLISECOND;
	t.tv_sec = (time_t)(ns / SECOND);
	t.tv_nsec = (long)(ns % SECOND);
	syscall(SYS_futex, &w->all[0].view.header->wake, FUTEX_WAIT, seen, &t,
		NULL, 0);
}

static void stand_apart(void)
{
	static const int ignored[] = { SIGINT, SIGQUIT, SIGHUP, SIGPIPE,
				       SIGTTOU };
	const struct sched_param none = { 0 };
	struct sigaction bus = { .sa_handler = page_is_gone };
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigaction(SIGBUS, &bus, NULL);
	setsid();
	sched_setscheduler(0, SCHED_BATCH, &none);
	if (nothing >= 0) {
		dup2(nothing, STDIN_FILENO);
		dup2(nothing, STDOUT_FILENO);
	}
	close_range(STDERR_FILENO + 1, ~0u, 0);
}

int watch(const char *path, int pid, uint64_t stall_ns, bool quiet,
	  bool chinese)
{
	struct watcher w = { .path = path,
			     .stall_ns = stall_ns,
			     .quiet = quiet,
			     .chinese = chinese,
			     .said = verdict_begin() };
	int program, news = -1;

	stand_apart();
	program = (int)syscall(SYS_pidfd_open, pid, 0);
	if (!w.said || !strchr(path, '/'))
		return 1;
	for (uint32_t others = 0;;) {
		bool ended = proc_ended(program);
		uint32_t seen = 0, now = others;
		size_t alive;

		if (w.n) {
			seen = atomic_load(&w.all[0].view.header->wake);
			now = atomic_load(&w.all[0].view.header->others);
		}
		if (!w.n || now != others || ended)
			scan(&w);
		others = now;
		alive = attend_all(&w);
		if (ended && !alive)
			return 0;
		if (w.n)
			wait_for_word(&w, seen, alive);
		else
			wait_for_first(&w, program, &news);
	}
}
