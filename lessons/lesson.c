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

#include <stdio.h>
#include <string.h>

static const char next[] = "see --help";

static const struct lesson_break *look_up(const struct lesson_break *breaks,
					  const char *name)
{
	while (breaks->name && strcmp(breaks->name, name))
		breaks++;
	return breaks->name ? breaks : NULL;
}

/* --help 里，每个错误一行。*/
static const char *list_breaks(char *text, size_t size,
			       const struct lesson_break *breaks)
{
	size_t used = 0;

	*text = '\0';
	for (; breaks->name && used < size; breaks++)
		used += (size_t)snprintf(text + used, size - used,
					 "%s      %-12s %s", used ? "\n" : "",
					 breaks->name, breaks->what);
	return text;
}

static int parse_options(struct lesson *lesson,
			 const struct lesson_break *breaks, int *argc,
			 char **argv[], const char *operands)
{
	char head[128], list[2048];
	const char *name = NULL;
	const struct option_row rows[] = {
		{ 'b', "break", "NAME",
		  "plant one mistake and see its error:", TEXT(name) },
		{ .help = list_breaks(list, sizeof(list), breaks) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { next, head, "", 21, NULL, rows };
	int rc;

	*lesson = (struct lesson){ .config.msg_size = DEFAULT_MSG_SIZE,
				   .config.gid_index = GID_INDEX_AUTO };
	snprintf(head, sizeof(head), "usage: %s [--break NAME]%s\n\n",
		 (*argv)[0], operands);
	rc = take_options(&line, argc, argv);
	if (rc >= 0 || !name)
		return rc;
	lesson->broken = look_up(breaks, name);
	return lesson->broken ? rc : wrong_usage(next, "no such --break", name);
}

int lesson_parse(struct lesson *lesson, const struct lesson_break *breaks,
		 int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ .name = "device_name", DEVICE(lesson->config.device_name) },
		{ .name = "gid_index",
		  NUMBER(lesson->config.gid_index, GID_INDEX_AUTO, 0,
			 UINT8_MAX) },
		{ 0 },
	};
	int rc = parse_options(lesson, breaks, &argc, &argv,
			       " [device_name] [gid_index]");

	return rc < 0 ? take_operands(next, rows, argc, argv) : rc;
}

int lesson_parse_break(struct lesson *lesson, const struct lesson_break *breaks,
		       int argc, char *argv[])
{
	const struct option_row none = { 0 };
	int rc = parse_options(lesson, breaks, &argc, &argv, "");

	return rc < 0 ? take_operands(next, &none, argc, argv) : rc;
}

bool lesson_breaks(const struct lesson *lesson, const char *name)
{
	return lesson->broken && !strcmp(lesson->broken->name, name);
}

int lesson_plant(const struct lesson *lesson, void *with)
{
	report_step("break it: %s", lesson->broken->name);
	return lesson->broken->plant(with);
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
		if (deadline_passed(deadline))
			return fail(-ETIMEDOUT,
				    "a send that waits for the peer keeps it "
				    "so; ERR is the other way out",
				    "the send queue of QP %u has not drained "
				    "within %d ms",
				    qp->qp_num, ms);
		rc = deadline_sleep_ms(1, deadline);
		if (!rc)
			err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	}
	return err ? call_failed(err, "ibv_query_qp(QP %u)", qp->qp_num) : rc;
}

void lesson_other_device(const struct ibv_context *mine, char *name,
			 size_t size)
{
	const char *name_of_mine = ibv_get_device_name(mine->device);
	const char *other = name_of_mine;
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name_of_mine))
			other = ibv_get_device_name(list[i]);
	snprintf(name, size, "%s", other);
	if (list)
		ibv_free_device_list(list);
}
