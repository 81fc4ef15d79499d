// SPDX-License-Identifier: MIT
/*
 * task.c —— 协程：一个线程里，为许多对端各写一段“直线”代码
 *
 * 一个 server 同时服务上百个 client，有三种写法：每个 client 一个线程（要加锁，
 * 而 UCX worker 默认只许一个线程用）；一个状态机（create_endpoint 的三步会被拆散到
 * 好几个 callback 里，再也读不成一个函数）；或者协程：每个 client 一个自己的栈，等待
 * 时让出 CPU，等到了再从原地继续。UCX-Py 的 async/await 就是最后一种，这里用
 * POSIX 的 makecontext/swapcontext 做同样的事。
 *
 * 切换只发生在 task_wait() 里，所以两次等待之间的代码不会被打断，不需要任何锁。
 */
#include "task.h"

#include "deadline.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* UCX 的建连代码一层层下去要几十 KiB；没有碰过的页不占内存。*/
#define STACK_SIZE (256u << 10)

struct task {
	struct task *next;
	struct task_list *list;
	ucontext_t context; /* 停在哪里 */
	task_function *run;
	void *arg;
	char *stack;	  /* 最低的一页不可访问 */
	int64_t deadline; /* 等到什么时候，ns */
	bool woken;
	bool expired;
	bool ended;
};

/* 栈向低地址生长：最低的一页设为不可访问，越界当场 SIGSEGV，而不是悄悄写坏别人。*/
static char *new_stack(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *stack = mmap(NULL, STACK_SIZE + page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return NULL;
	mprotect(stack, page, PROT_NONE);
	return stack;
}

static void free_task(struct task *task)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	munmap(task->stack, STACK_SIZE + page);
	free(task);
}

/* makecontext 只肯传 int：指针要拆成两半，到这里再拼起来。*/
static void enter(unsigned int high, unsigned int low)
{
	struct task *task =
		(struct task *)(((uintptr_t)high << 16 << 16) | low);

	task->woken = false; /* 叫它开始的那一次 */
	task->run(task, task->arg);
	task->ended = true; /* 返回后，uc_link 会回到 tasks_run() */
}

int task_start(struct task_list *list, task_function *run, void *arg)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct task *task = calloc(1, sizeof(*task));

	if (task)
		task->stack = new_stack();
	if (!task || !task->stack) {
		report_error("serve fewer clients at once",
			     "no memory for one more client (%u are there)",
			     list->count);
		free(task);
		return -ENOMEM;
	}
	task->list = list;
	task->run = run;
	task->arg = arg;
	task->deadline = INT64_MAX;
	task->woken = true;
	getcontext(&task->context);
	task->context.uc_stack.ss_sp = task->stack + page;
	task->context.uc_stack.ss_size = STACK_SIZE;
	task->context.uc_link = &list->loop;
	makecontext(&task->context, (void (*)(void))enter, 2,
		    (unsigned int)((uintptr_t)task >> 16 >> 16),
		    (unsigned int)(uintptr_t)task);
	task->next = list->first;
	list->first = task;
	list->count++;
	return 0;
}

int task_wait(struct task *self, int64_t deadline)
{
	bool expired;

	self->deadline = deadline;
	/* 没人叫醒，也没到期，就把 CPU 还给循环；回来时正好在这一行之后。*/
	while (!self->woken && !self->expired)
		swapcontext(&self->context, &self->list->loop);
	expired = !self->woken;
	self->woken = false;
	self->expired = false;
	self->deadline = INT64_MAX;
	return expired ? -ETIMEDOUT : 0;
}

void task_wake(struct task *task)
{
	task->woken = true;
}

void tasks_wake(struct task_list *list)
{
	for (struct task *task = list->first; task; task = task->next)
		task->woken = true;
}

bool tasks_run(struct task_list *list)
{
	struct task **at = &list->first;
	bool ran = false;

	while (*at) {
		struct task *task = *at;

		if (task->woken || task->expired) {
			ran = true;
			swapcontext(&list->loop, &task->context);
		}
		/* 它运行时可能有新的 task 插到表头，所以从 *at 起重新找它。*/
		while (*at != task)
			at = &(*at)->next;
		if (task->ended) {
			*at = task->next;
			list->count--;
			free_task(task);
		} else {
			at = &task->next;
		}
	}
	return ran;
}

void tasks_expire(struct task_list *list)
{
	int64_t now = now_ns();

	for (struct task *task = list->first; task; task = task->next)
		task->expired = task->deadline <= now;
}

int64_t tasks_deadline(const struct task_list *list)
{
	int64_t first = INT64_MAX;

	for (const struct task *task = list->first; task; task = task->next)
		if (task->deadline < first)
			first = task->deadline;
	return first;
}
