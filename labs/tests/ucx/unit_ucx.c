// SPDX-License-Identifier: MIT
/*
 * unit_ucx.c —— ucx_peer_info 与 task 的已知答案
 *
 * 期望值由 Python 3 算出：hashlib.sha1(repr(args).encode()).hexdigest()[:16]，以及
 * repr(bytes)。
 */
#include "../real.h"

#include "base/deadline.h"
#include "base/task.h"
#include "ucx/peer_info.h"

#include <errno.h>
#include <malloc.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int bad;

static void want(const char *what, int right)
{
	printf("%s %s\n", right ? "ok" : "WRONG", what);
	bad |= !right;
}

static void check_hash(void)
{
	uint64_t hash = 0, most = 0;

	want("hash64bits(1, 2)", !ucx_checksum(1, 2, &hash) &&
					 hash == UINT64_C(0x90cdbfffd8597bef));
	want("the largest tags", !ucx_checksum(UINT64_MAX, 0, &most) &&
					 most == UINT64_C(0xeae60771dfcb3625));
	want("the text of a tag",
	     !ucx_hash64bits("('msg_tag', b'abc', 123)", &hash) &&
		     hash == UINT64_C(0xcbe0922b61184f1e));
}

/* libcrypto 的替身：可以拒绝，正如 FIPS 模式下的 SHA-1。*/
static bool refuses;

int EVP_Digest(const void *data, size_t size, unsigned char *md,
	       unsigned int *md_size, const EVP_MD *type, ENGINE *engine)
{
	REAL(EVP_Digest);

	return refuses ? 0 : real(data, size, md, md_size, type, engine);
}

static void check_refusal(void)
{
	struct ucx_peer_info a, b;
	uint64_t hash;

	refuses = true;
	want("no SHA-1", ucx_checksum(1, 2, &hash) == -EIO);
	want("no tags without it", ucx_generate_tags(&a, &b) == -EIO);
	refuses = false;
}

static void check_repr(void)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *repr;
	} rows[] = {
		{ "", 0, "b''" },
		{ "abc", 3, "b'abc'" },
		{ "\0\x01\x7f\x80\xff", 5, "b'\\x00\\x01\\x7f\\x80\\xff'" },
		{ "\t\n\r\\", 4, "b'\\t\\n\\r\\\\'" },
		{ "it's", 4, "b\"it's\"" },
		{ "\"", 1, "b'\"'" },
		{ "'\"", 2, "b'\\'\"'" },
		{ "\a\v ~", 4, "b'\\x07\\x0b ~'" },
	};
	char out[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		want(rows[i].repr,
		     !strcmp(rows[i].repr,
			     python_bytes_repr(
				     out, (const unsigned char *)rows[i].bytes,
				     rows[i].n)));
}

static void check_tags(void)
{
	struct ucx_peer_info a, b;

	want("two sets of tags",
	     !ucx_generate_tags(&a, &a) && !ucx_generate_tags(&a, &b));
	want("no two are the same", a.msg_tag != b.msg_tag &&
					    a.ctrl_tag != b.ctrl_tag &&
					    a.msg_tag != a.ctrl_tag);
	want("a good checksum", !ucx_check_peer_info(&a, "peer"));
	a.ctrl_tag ^= 1;
	want("a bad one", ucx_check_peer_info(&a, "peer") == -EPROTO);
	want("24 bytes", sizeof(a) == 24);
}

struct trace {
	struct task_list *list;
	char text[64];
	struct task *waits;
};

static void note(struct trace *t, const char *what)
{
	strcat(t->text, what);
}

static void later(struct task *self, void *arg)
{
	struct trace *t = arg;

	note(t, "c");
	t->waits = self;
	note(t, task_wait(self, INT64_MAX) ? "x" : "d");
}

static void first(struct task *self, void *arg)
{
	struct trace *t = arg;

	note(t, "a");
	task_start(t->list, later, t);
	note(t, task_wait(self, deadline_in_ms(20)) == -ETIMEDOUT ? "b" : "x");
	task_wake(t->waits);
	task_wake(self); /* 等待之前就被叫醒：不能丢 */
	note(t, task_wait(self, INT64_MAX) ? "x" : "e");
}

static bool no_stacks;
static char *last_stack;

void *mmap(void *addr, size_t size, int rights, int flags, int fd, off_t from)
{
	if (no_stacks && flags & MAP_STACK) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	addr = (void *)syscall(SYS_mmap, addr, size, rights, flags, fd, from);
	if (flags & MAP_STACK)
		last_stack = addr;
	return addr;
}

/* 越过栈底的人，当场被杀。*/
static void check_guard(void)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		signal(SIGSEGV, SIG_DFL); /* 不要 sanitizer 的 */
		*(volatile char *)last_stack = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	want("a stack has an end",
	     WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void check_tasks(void)
{
	struct task_list list = { 0 };
	struct trace t = { .list = &list };

	want("nothing to run", !tasks_run(&list));
	want("a start", !task_start(&list, first, &t));
	check_guard();
	while (tasks_run(&list))
		;
	want("both wait", list.count == 2 && !strcmp(t.text, "ac"));
	want("a deadline", tasks_deadline(&list) < INT64_MAX);
	tasks_expire(&list);
	want("not yet", !tasks_run(&list));
	deadline_sleep_ms(30, INT64_MAX);
	tasks_expire(&list);
	while (tasks_run(&list))
		;
	want(t.text, list.count == 0 && (!strcmp(t.text, "acbed") ||
					 !strcmp(t.text, "acbde")));
}

/* 没有栈，就没有 task；试一百次，什么也没有留下。*/
static void check_no_stack(void)
{
	struct task_list list = { 0 };
	struct trace t = { .list = &list };
	size_t before = 0, left;
	int refused = 0;

	no_stacks = true;
	for (int i = 0; i < 100; i++) {
		if (i == 20) /* malloc 留着几块没有还，以后再用 */
			before = mallinfo2().uordblks;
		refused += task_start(&list, first, &t) == -ENOMEM;
	}
	left = mallinfo2().uordblks - before;
	want("no task without a stack", refused == 100 && !list.count);
	want("nothing is left", left == 0);
	no_stacks = false;
}

int main(void)
{
	check_no_stack();
	check_hash();
	check_refusal();
	check_repr();
	check_tags();
	check_tasks();
	return bad;
}
