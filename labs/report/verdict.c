// SPDX-License-Identifier: MIT
/*
 * verdict.c —— 一次判断：读自己看着的与对端的记录，照报告的规则排好次序，说出第一个原因
 *
 * 每次都在一个子进程里，把记录从头读一遍：与以后的 `qptrace report` 是同一段代码、同一份记录，说
 * 的也就一样。说过什么，记在与子进程共用的一页里。
 */
#include "live.h"
#include "rules.h"

#include "explain/explain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JUDGE_S	   60 /* 一次判断至多多久 */
#define STALE_S	   60 /* 结束了这么久的，不再是谁的对端 */
#define MOST_PEERS 32
#define MOST_SAID  1024

struct said {
	uint64_t first; /* 说过的第一个原因，是哪个进程的 */
	int pid;
	size_t n;
	uint64_t ids[MOST_SAID];
};

static bool is_alive(int pid)
{
	return kill(pid, 0) == 0 || errno == EPERM;
}

/* ---- 同一台机器上别的记录 ---------------------------------------------------- */

/* 各人一个目录，别人进不去：里面每份正在写的记录是一个符号链接。"": 没有。*/
static const char *registry(void)
{
	static char path[128];
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (path[0])
		return path;
	if (runtime && strlen(runtime) < 100 && !access(runtime, W_OK))
		snprintf(path, sizeof(path), "%s/qptrace", runtime);
	else
		snprintf(path, sizeof(path), "/tmp/qptrace-%u",
			 (unsigned int)geteuid());
	mkdir(path, 0700);
	if (lstat(path, &st) || !S_ISDIR(st.st_mode) ||
	    st.st_uid != geteuid() || (st.st_mode & 077))
		path[0] = '\0';
	return path;
}

/* 一个进程可以有几份（exec 之后）：名字里有时间。*/
void verdict_register(const struct view *view)
{
	const char *dir = registry();
	struct timespec t;
	char name[256];

	clock_gettime(CLOCK_MONOTONIC, &t);
	snprintf(name, sizeof(name), "%s/%d-%lx%05lx", dir, view->pid,
		 (unsigned long)t.tv_sec, (unsigned long)t.tv_nsec / 1000);
	if (*dir && symlink(view->path, name))
		return;
}

static bool has_bit(const _Atomic uint64_t *bits, int64_t qpn)
{
	return qpn > 0 &&
	       (atomic_load(&bits[qpn % QPN_BITS / 64]) >> (qpn % 64) & 1);
}

static bool sends_to(const struct report *r, const struct qp *qp,
		     const _Atomic uint64_t *qpns)
{
	if (strcmp(qp->type, "UD"))
		return has_bit(qpns, qp_believes(qp, "dest_qpn"));
	EACH(i, &qp->own)
		if (has_bit(qpns, r->events[i].remote_qpn))
			return true;
	return false;
}

/* 有 QP 的对端不在这里。*/
static bool is_incomplete(const struct report *r)
{
	for (size_t i = 0; i < r->qp_count; i++)
		if (!r->qps[i].peer)
			return true;
	return false;
}

/* @path 里也许有 @r 的哪个 QP 的对端：它连的是我的号，或者我连的是它的号。*/
static bool may_be_peer(const struct report *r, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct recording_header head = { 0 };
	bool found = false;

	if (fd >= 0 && read(fd, &head, sizeof(head)) != (ssize_t)sizeof(head))
		head = (struct recording_header){ 0 };
	for (size_t i = 0; i < r->qp_count && !found; i++)
		found = has_bit(head.dest_qpns, (int64_t)r->qps[i].qpn) ||
			sends_to(r, &r->qps[i], head.qpns);
	if (fd >= 0)
		close(fd);
	return found;
}

/* 登记过的、不是自己看着的，也许是对端的：至多 @most 个，写到 @paths。*/
static size_t neighbours(const struct report *r, const struct watcher *w,
			 char **paths, size_t most)
{
	const char *dir = registry();
	DIR *all = *dir ? opendir(dir) : NULL;
	const struct dirent *entry;
	size_t n = 0;

	while (all && n < most && (entry = readdir(all))) {
		char target[4096], name[512];
		struct stat st;
		ssize_t len;

		snprintf(name, sizeof(name), "%s/%s", dir, entry->d_name);
		len = readlink(name, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = '\0';
		if (lstat(target, &st) || !S_ISREG(st.st_mode) ||
		    (!is_alive(atoi(entry->d_name)) &&
		     st.st_mtime + STALE_S < time(NULL)))
			unlink(name);
		else if (!is_watched(w, target) && may_be_peer(r, target))
			paths[n++] = strdup(target);
	}
	if (all)
		closedir(all);
	return n;
}

/* ---- 读 -------------------------------------------------------------------- */

/* 返回：有没有谁没有留下话就没了。*/
static bool know_who_runs(struct report *r)
{
	bool gone = false;

	for (int s = 0; s < r->sides; s++) {
		struct side *side = &r->side[s];

		side->runs = !side->ended && !side->signalled &&
			     is_alive(side->rec.header.pid);
		gone = gone ||
		       (!side->ended && !side->signalled && !side->runs);
		for (size_t k = side->own.count; k-- > 0;) {
			const struct event *e = &r->events[side->own.at[k]];

			side->stands = !strcmp(e->ev, "thread") ||
				       !strcmp(e->ev, "stall");
			if (side->stands || e->class == CLASS_POST_SEND ||
			    e->class == CLASS_POST_RECV ||
			    e->class == CLASS_COMPLETION ||
			    !strcmp(e->ev, "modify_qp"))
				break;
		}
	}
	return gone;
}

static int load(struct report *r, const struct watcher *w, char **paths,
		size_t n)
{
	/* 读它的记录时还在、问起来已经没了的，话也许是在这之间留下的：再读一遍。*/
	for (int i = 0; i < 2; i++) {
		*r = (struct report){ .by = w, .chinese = w->chinese };
		if (report_load(r, paths, (int)n) || report_build(r))
			return -1;
		if (!know_who_runs(r))
			break;
	}
	return 0;
}

/* 只留下与最后那个说着话的，直接或间接。返回还有几个。*/
static size_t related(const struct report *r, char **paths, size_t n)
{
	bool *keep = calloc((size_t)r->sides + 1, sizeof(*keep)), more = true;
	size_t kept = 0;

	if (keep)
		keep[r->sides - 1] = true;
	while (keep && more) {
		more = false;
		for (int s = 0; s < r->sides; s++)
			EACH_OTHER(o, r, s)
				if (keep[s] && !keep[o])
					keep[o] = more = true;
	}
	for (size_t i = 0; i < n; i++)
		for (int s = 0; keep && s < r->sides; s++)
			if (keep[s] && !strcmp(r->side[s].path, paths[i])) {
				paths[kept++] = paths[i];
				break;
			}
	free(keep);
	return kept;
}

/*
 * 自己看着的那些，@it 最后（账 book.h 留着的是它的），前面是对端的。返回一共几个，@r 里是它们。
 * 0：读不了。
 */
static size_t load_all(struct report *r, const struct watcher *w,
		       const struct watched *it, char **paths)
{
	char *others[MOST_PEERS];
	size_t n = 0, more;

	for (size_t i = 0; i < w->n; i++)
		if (&w->all[i] != it)
			paths[n++] = w->all[i].view.path;
	paths[n++] = (char *)it->view.path;
	if (load(r, w, paths, n))
		return 0;
	more = is_incomplete(r) ? neighbours(r, w, others, MOST_PEERS) : 0;
	if (more) {
		memmove(paths + more, paths, n * sizeof(*paths));
		memcpy(paths, others, more * sizeof(*paths));
		n += more;
		if (load(r, w, paths, n))
			return 0;
	}
	more = related(r, paths, n);
	return more == n || !load(r, w, paths, more) ? more : 0;
}

/* ---- 说 -------------------------------------------------------------------- */

/* 收下时警告过，而还没有一个调用失败。没有 ack 的，等不到。*/
static bool is_only_warned(const struct report *r, const struct cause *cause)
{
	for (size_t i = 0; i < r->causes.count; i++)
		if (*text_in(r->causes.items[i].line, "call"))
			return false;
	return !strcmp(text_in(cause->line, "ev"), "warning") &&
	       !strstr(cause->id, "-acked");
}

/* 在睡的、还没有来取的、还没有连完的，还活着，也许马上就好：现在还不能说是它。*/
static bool may_wake(const struct report *r, const struct cause *cause)
{
	static const char *const ids[] = { "peer-asleep", "nobody-polls",
					   "qp-too-early", "event-unread",
					   "wrong-cq" };

	return r->side[cause->side].runs &&
	       (IS_ONE_OF(cause->id, ids) || is_only_warned(r, cause));
}

static void out_lines(FILE *out, const char *label, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		fprintf(out, "qptrace: %s%.*s\n", label, (int)len, text);
		text += len + (text[len] == '\n');
	}
}

static void out_cause(FILE *out, const struct report *r,
		      const struct cause *cause)
{
	const char *call = text_in(cause->line, "call");
	const char *error = text_in(cause->line, "errname");
	const char *why;

	report_speak(r, cause->line);
	why = text_in(cause->line, "cause");
	fprintf(out, "qptrace: ");
	if (cause->kind == CAUSE_HINT || cause->kind == CAUSE_WARNING ||
	    may_wake(r, cause))
		fputs(IN_WORDS(r, "hint: ", "提示："), out);
	else if (!*call)
		fputs(IN_WORDS(r, "cause: ", "原因："), out);
	fputs(call, out);
	if (*error)
		fprintf(out, IN_WORDS(r, " failed: %s (%d)", " 失败：%s (%d)"),
			error, (int)number_in(cause->line, "err"));
	fprintf(out, "%s%s\n", *call && *why ? IN_WORDS(r, ": ", "：") : "",
		why);
	out_lines(out, IN_WORDS(r, " next: ", "  下一步："),
		  text_in(cause->line, "next"));
	out_lines(out, IN_WORDS(r, " seen: ", "  证据："),
		  text_in(cause->line, "seen"));
}

/* 猜测成了定论，就再说一次。*/
static uint64_t id_of(const struct report *r, const struct cause *cause)
{
	uint64_t hash = 5381 + cause->qp + may_wake(r, cause);

	hash = hash * 33 + (uint64_t)r->side[cause->side].rec.header.pid;
	for (const char *c = cause->id; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	for (const char *c = text_in(cause->line, "ev"); *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	return hash;
}

/* 记下说过它；返回以前说过没有。*/
static bool say_again(struct said *said, uint64_t id)
{
	for (size_t i = 0; i < said->n; i++)
		if (said->ids[i] == id)
			return true;
	if (said->n < MOST_SAID)
		said->ids[said->n++] = id;
	return false;
}

/* 先前说的第一个，现在不再是了：说出来。*/
static void correct(FILE *out, const struct report *r, uint64_t before)
{
	const struct cause *c = r->causes.items, *end = c + r->causes.count;

	while (c < end && id_of(r, c) != before)
		c++;
	fputs("qptrace: ", out);
	if (c == end)
		fputs(IN_WORDS(r, "what was said first was wrong:\n",
			       "先前说的不对：\n"),
		      out);
	else if (c->kind == CAUSE_AFTERMATH)
		fprintf(out,
			IN_WORDS(r,
				 "what was said first, %s, follows from "
				 "this:\n",
				 "先前说的 %s 是它的后果：\n"),
			c->id);
	else
		fprintf(out,
			IN_WORDS(r, "rather than %s, which was said first:\n",
				 "不是先前说的 %s，而是：\n"),
			c->id);
}

/* 说的是 @c；同一伙进程里，先前说过别的，就改口。*/
static void is_first(FILE *out, const struct report *r, struct said *said,
		     const struct cause *c)
{
	uint64_t id = id_of(r, c);

	for (int s = 0; said->first && said->first != id && s < r->sides; s++)
		if (r->side[s].rec.header.pid == said->pid) {
			correct(out, r, said->first);
			break;
		}
	said->first = id;
	said->pid = r->side[c->side].rec.header.pid;
}

/* 结束得好好的，等过什么就不必说了；失败过的调用还是说。*/
static bool is_worth_saying(const struct report *r, const struct cause *cause,
			    enum reason reason)
{
	const struct side *side = &r->side[cause->side];
	const struct side *own = &r->side[r->sides - 1];
	bool well = side->ended && !side->code;

	/* 自己做完了，对方还在做：它也许只是还没有轮到。*/
	if (reason == REASON_OVER && side->runs && own->ended && !own->code)
		return false;
	if (cause->kind == CAUSE_FAILURE)
		return *text_in(cause->line, "call") || !well;
	if (reason == REASON_OVER && well)
		return false;
	return cause->kind == CAUSE_STALL ||
	       (cause->kind == CAUSE_HINT && reason != REASON_FAILED);
}

/* 一个调用失败了：哪怕是别处的后果，也说。*/
static bool failed_now(const struct cause *cause)
{
	return cause->kind == CAUSE_FAILURE ||
	       (cause->kind == CAUSE_AFTERMATH &&
		*text_in(cause->line, "call"));
}

/* 第一个原因；别的调用也真的失败了的，跟在后面。*/
static void say_causes(FILE *out, const struct report *r,
		       const struct watcher *w, enum reason reason)
{
	bool again = reason == REASON_ASKED || reason == REASON_STALL;

	for (size_t i = 0; i < r->causes.count; i++) {
		const struct cause *c = &r->causes.items[i];
		uint64_t id = id_of(r, c);

		if (i ? !failed_now(c) || !is_watched(w, r->side[c->side].path)
		      : !is_worth_saying(r, c, reason))
			continue;
		if (say_again(w->said, id) && (i || !again))
			continue;
		if (!i && cause_is_sure(c) && !may_wake(r, c))
			is_first(out, r, w->said, c);
		out_cause(out, r, c);
	}
}

/* ---- 判断 ------------------------------------------------------------------ */

static int judge(const struct watcher *w, const struct watched *it,
		 enum reason reason, int words)
{
	char **paths = calloc(MOST_PEERS + w->n + 1, sizeof(*paths));
	static struct report r;
	struct timespec t;
	char *text = NULL;
	size_t n, size;
	uint64_t now;
	FILE *out = open_memstream(&text, &size);

	if (!paths || !out)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	n = load_all(&r, w, it, paths);
	if (!n)
		return 1;
	if (reason == REASON_ASKED || reason == REASON_STALL) {
		look_around(out, it, &r, now, w->stall_ns,
			    reason == REASON_ASKED);
		if (load(&r, w, paths, n))
			return 1;
	}
	report_judge(&r);
	say_causes(out, &r, w, reason);
	fclose(out);
	if (!w->quiet || reason == REASON_ASKED)
		(void)!write(words, text, strlen(text));
	return 0;
}

struct said *verdict_begin(void)
{
	void *at = mmap(NULL, sizeof(struct said), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

bool verdict(const struct watcher *w, const struct watched *it,
	     enum reason reason)
{
	pid_t child = fork();
	int status = -1;

	if (!child) {
		/* 读不了的记录，别在程序的 stderr 上抱怨。*/
		int words = dup(STDERR_FILENO);

		signal(SIGBUS, SIG_DFL);
		alarm(JUDGE_S);
		dup2(STDOUT_FILENO, STDERR_FILENO);
		_exit(judge(w, it, reason, words));
	}
	if (child > 0)
		waitpid(child, &status, 0);
	return !status;
}
