// SPDX-License-Identifier: MIT
/*
 * timers.c —— 许多个 deadline，最近的在最前面
 *
 * 原版每 30 秒扫一遍所有 session，于是一个 1 秒的 timeout 可能活到第 31 秒；扫得勤了，
 * 又是白白地把一千个 session 看一千遍。heap 让“最近的是谁”随时可答，epoll 就睡到那
 * 一刻为止。
 */
#include "timers.h"

#include "array.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_MS 1000000

void timers_free(struct timers *timers)
{
	free(timers->heap);
	*timers = (struct timers){ 0 };
}

static bool sooner(const struct timers *t, size_t a, size_t b)
{
	return t->heap[a]->deadline < t->heap[b]->deadline;
}

static void put(struct timers *t, size_t at, struct timer *timer)
{
	t->heap[at] = timer;
	timer->place = at + 1;
}

static void swap(struct timers *t, size_t a, size_t b)
{
	struct timer *timer = t->heap[a];

	put(t, a, t->heap[b]);
	put(t, b, timer);
}

/* heap[i] 的孩子是 heap[2i+1] 与 heap[2i+2]，父亲不晚于孩子。*/
static void sift_up(struct timers *t, size_t at)
{
	while (at && sooner(t, at, (at - 1) / 2)) {
		swap(t, at, (at - 1) / 2);
		at = (at - 1) / 2;
	}
}

static void sift_down(struct timers *t, size_t at)
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= t->count)
			return;
		if (child + 1 < t->count && sooner(t, child + 1, child))
			child++;
		if (!sooner(t, child, at))
			return;
		swap(t, child, at);
		at = child;
	}
}

int timer_set(struct timers *timers, struct timer *timer, int64_t deadline)
{
	if (!timer->place) {
		struct timer **heap =
			array_room(timers->heap, timers->count, sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		timers->heap = heap;
		put(timers, timers->count++, timer);
	}
	timer->deadline = deadline;
	sift_up(timers, timer->place - 1);
	sift_down(timers, timer->place - 1);
	return 0;
}

void timer_cancel(struct timers *timers, struct timer *timer)
{
	size_t at = timer->place - 1;

	if (!timer->place)
		return;
	timer->place = 0;
	if (at == --timers->count)
		return;
	/* 末尾的那个补到空位上；它可能比空位的父亲早，也可能比孩子晚。*/
	put(timers, at, timers->heap[timers->count]);
	sift_up(timers, at);
	sift_down(timers, timers->heap[at]->place - 1);
}

int timers_wait_ms(const struct timers *timers, int64_t now, int most)
{
	int64_t left;

	if (!timers->count)
		return -1;
	left = timers->heap[0]->deadline;
	if (left <= now)
		return 0;
	/* 先比较再相减：deadline 可能是 INT64_MAX，now 总是正的。*/
	left = (left - now) / NS_PER_MS;
	return left < most ? (int)left + 1 : most;
}

void timers_fire(struct timers *timers, int64_t now)
{
	while (timers->count && timers->heap[0]->deadline <= now) {
		struct timer *timer = timers->heap[0];

		timer_cancel(timers, timer);
		timer->fire(timer->owner);
	}
}
