// SPDX-License-Identifier: MIT
/* unit_task.c —— task 轮到谁，等到期限，提前的叫醒也算数 */
#include "base/deadline.h"
#include "base/task.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int bad;

static void want(const char *what, int right)
{
	printf("%s %s\n", right ? "ok" : "WRONG", what);
	bad |= !right;
}

struct trace {
	struct task_list *list;
	char text[64];
	struct task *waits;
};

static void later(struct task *self, void *arg)
{
	struct trace *t = arg;

	strcat(t->text, "c");
	t->waits = self;
	strcat(t->text, task_wait(self, INT64_MAX) ? "x" : "d");
}

static void first(struct task *self, void *arg)
{
	struct trace *t = arg;

	strcat(t->text, "a");
	task_start(t->list, later, t);
	strcat(t->text,
	       task_wait(self, deadline_in_ms(20)) == -ETIMEDOUT ? "b" : "x");
	task_wake(t->waits);
	task_wake(self); /* 等待之前就被叫醒：不能丢 */
	strcat(t->text, task_wait(self, INT64_MAX) ? "x" : "e");
}

int main(void)
{
	struct task_list list = { 0 };
	struct trace t = { .list = &list };

	want("a start", !task_start(&list, first, &t));
	while (tasks_run(&list))
		;
	want("both wait", list.count == 2 && !strcmp(t.text, "ac"));
	want("a deadline", tasks_deadline(&list) < INT64_MAX);
	deadline_sleep_ms(30, INT64_MAX);
	tasks_expire(&list);
	while (tasks_run(&list))
		;
	want(t.text, list.count == 0 && (!strcmp(t.text, "acbed") ||
					 !strcmp(t.text, "acbde")));
	return bad;
}
