// SPDX-License-Identifier: MIT
/*
 * laps.c —— 逐圈计时：ping-pong 每一个来回用了多久
 */
#include "laps.h"

#include "deadline.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

// region ticks
/*
 * 读一次“滴答数”。为什么不用 clock_gettime？TSC 不可靠的机器（虚拟机尤甚）会退回
 * hpet/acpi_pm 时钟源，读一次要陷入内核、耗时数微秒，比要测的东西还贵。CPU 的周期
 * 计数器几个纳秒就能读到；滴答与纳秒的换算，用测量首尾各读一次两种钟来求。
 */
static uint64_t ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return (uint64_t)now_ns();
#endif
}
// endregion ticks

int laps_init(struct laps *laps, uint64_t n)
{
	*laps = (struct laps){ 0 };
	laps->stamps = malloc((n + 1) * sizeof(*laps->stamps));
	if (!laps->stamps)
		return fail(-ENOMEM, "choose fewer --iters",
			    "no memory for %ju results", n);
	/* 预先摸一遍：否则每写满一页就有一次缺页，全算进了延迟。*/
	memset(laps->stamps, 0, (n + 1) * sizeof(*laps->stamps));
	return 0;
}

void laps_free(struct laps *laps)
{
	free(laps->stamps);
}

void laps_start(struct laps *laps)
{
	laps->done = 0;
	laps->start_ns = now_ns();
	laps->stamps[0] = ticks();
}

void laps_next(struct laps *laps)
{
	laps->stamps[++laps->done] = ticks();
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct lap_summary laps_halved(struct laps *laps)
{
	uint64_t *stamps = laps->stamps, n = laps->done;
	/* 一个滴答是多少微秒：测量首尾各读一次两种钟，相除即得。*/
	double usec = (double)(now_ns() - laps->start_ns) / 1e3 /
		      (double)(ticks() - stamps[0]);

	for (uint64_t i = 0; i < n; i++)
		stamps[i] = stamps[i + 1] - stamps[i];
	qsort(stamps, n, sizeof(*stamps), ascending);
	/* 一来一回除以二：单程延迟，与 ib_send_lat 的口径相同。*/
	return (struct lap_summary){
		.min = (double)stamps[0] * usec / 2,
		.median = (double)stamps[n / 2] * usec / 2,
		.p99 = (double)stamps[n - 1 - n / 100] * usec / 2,
		.max = (double)stamps[n - 1] * usec / 2,
	};
}

void report_round_trips(uint64_t n, uint64_t size,
			const struct lap_summary *half_us)
{
	report_result("%ju round trips of %ju bytes: half round trip min %.2f "
		      "median %.2f p99 %.2f max %.2f us",
		      n, size, half_us->min, half_us->median, half_us->p99,
		      half_us->max);
}

json_t *lap_summary_as_json(const struct lap_summary *s)
{
	return json_pack("{s:f, s:f, s:f, s:f}", "min", s->min, "median",
			 s->median, "p99", s->p99, "max", s->max);
}
