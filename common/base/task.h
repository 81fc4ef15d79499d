/* SPDX-License-Identifier: MIT */
/*
 * task.h - straight-line code for each of many peers, in one thread.
 *
 * A task is a function with a stack of its own. It runs until it waits; then the
 * loop that started it goes on, and later runs it again where it stopped. What
 * UCX-Py writes as "await" is task_wait() here. Nothing is preempted, so nothing
 * is locked. makecontext(3), swapcontext(3).
 */
#ifndef BASE_TASK_H
#define BASE_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

struct task;

/* What a task does; it ends when this returns. */
typedef void task_function(struct task *self, void *arg);

/* All tasks of one loop. Zero it before use; empty it before it goes. */
struct task_list {
	struct task *first;
	unsigned int count; /* tasks that have not ended */
	ucontext_t loop;    /* where tasks_run() waits for a task */
};

/*
 * Make a task that begins at the next tasks_run(). @arg is the caller's and must
 * live as long as the task. -ENOMEM (reported).
 */
int task_start(struct task_list *list, task_function *run, void *arg);

/*
 * Let others run until task_wake(@self) or @deadline. Only @self may call it. A
 * wake-up that came earlier counts. Returns 0 or -ETIMEDOUT.
 */
int task_wait(struct task *self, int64_t deadline);

/* Let @task go on at the next tasks_run(). From anywhere in the same thread. */
void task_wake(struct task *task);

/* Wake all tasks: each has to look at what has changed. */
void tasks_wake(struct task_list *list);

/* Let each task that was woken go on, once. Returns whether there was one. */
bool tasks_run(struct task_list *list);

/* Let those go on whose deadline has passed: they were not woken in time. */
void tasks_expire(struct task_list *list);

/* The first deadline of all that wait, INT64_MAX if there is none. */
int64_t tasks_deadline(const struct task_list *list);

#endif
