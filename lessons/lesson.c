// SPDX-License-Identifier: MIT
/*
 * lesson.c —— 各课程序共用的命令行
 *
 * 每一课都能用 --break 种下一个真实的错误，并在真实的 rxe0 上看到它的后果：
 * 见过一次 EINVAL 是怎么来的，比读十遍文档更管用。
 */
#include "lesson.h"

#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static void print_help(const char *program, const struct lesson_break *breaks,
		       const char *positional)
{
	printf("usage: %s [--break NAME]%s\n\n"
	       "  --break NAME   plant one mistake and see its error:\n",
	       program, positional);
	for (; breaks->name; breaks++)
		printf("      %-12s %s\n", breaks->name, breaks->what);
	printf("  --help         print this and exit\n");
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage("see --help", what, value);
}

static bool is_known(const struct lesson_break *breaks, const char *name)
{
	for (; breaks->name; breaks++)
		if (!strcmp(breaks->name, name))
			return true;
	return false;
}

static int parse_options(struct lesson *lesson,
			 const struct lesson_break *breaks, int argc,
			 char *argv[], const char *positional)
{
	static const struct option longs[] = {
		{ "break", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*lesson = (struct lesson){
		.config = { .gid_index = GID_INDEX_AUTO,
			    .msg_size = DEFAULT_MSG_SIZE },
	};
	opterr = 0; /* 出错时由我们来说：原因与下一步 */
	while ((c = getopt_long(argc, argv, "b:h", longs, NULL)) != -1) {
		if (c == 'h') {
			print_help(argv[0], breaks, positional);
			return 0;
		}
		if (c != 'b')
			return wrong_usage("see --help",
					   "unknown option or no argument",
					   argv[optind - 1]);
		if (!is_known(breaks, optarg))
			return bad_usage("no such --break", optarg);
		lesson->break_name = optarg;
	}
	return -1;
}

int lesson_parse(struct lesson *lesson, const struct lesson_break *breaks,
		 int argc, char *argv[])
{
	const char *what;
	uint64_t index;
	int rc = parse_options(lesson, breaks, argc, argv,
			       " [device_name] [gid_index]");

	if (rc >= 0)
		return rc;
	if (argc - optind > 2)
		return bad_usage("too many arguments", argv[optind + 2]);
	if (optind < argc) {
		what = not_a_device(argv[optind]);
		if (what)
			return bad_usage(what, argv[optind]);
		lesson->config.device_name = argv[optind++];
	}
	if (optind < argc) {
		if (!parse_number(argv[optind], 0, 255, &index))
			return wrong_usage("see --help",
					   "gid_index is not 0 ... 255",
					   argv[optind]);
		lesson->config.gid_index = (int)index;
	}
	return -1;
}

int lesson_parse_break(struct lesson *lesson, const struct lesson_break *breaks,
		       int argc, char *argv[])
{
	int rc = parse_options(lesson, breaks, argc, argv, "");

	if (rc < 0 && optind < argc)
		return bad_usage("too many arguments", argv[optind]);
	return rc;
}

bool lesson_breaks(const struct lesson *lesson, const char *name)
{
	return lesson->break_name && !strcmp(lesson->break_name, name);
}

int wait_for_drained_sq(struct ibv_qp *qp, int ms)
{
	const int64_t deadline = deadline_in_ms(ms);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	int rc = 0;

	/*
	 * 进 SQD 分两步：状态立刻就是 SQD，已经开始的 send 却还要做完，内核的后台任务
	 * 才把 sq_draining 清零。此前的 SQD→RTS 一律 EINVAL。也可以等事件
	 * IBV_EVENT_SQ_DRAINED（进 SQD 时要给 EN_SQD_ASYNC_NOTIFY）；问状态不必先读事件。
	 */
	while (!err && !rc && attr.sq_draining) {
		if (deadline_passed(deadline)) {
			report_error("a send that waits for the peer keeps it "
				     "so; ERR is the other way out",
				     "the send queue of QP %u has not drained "
				     "within %d ms",
				     qp->qp_num, ms);
			return -ETIMEDOUT;
		}
		rc = deadline_sleep_ms(1, deadline);
		if (!rc)
			err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	}
	return err ? call_failed(err, "ibv_query_qp(QP %u)", qp->qp_num) : rc;
}
