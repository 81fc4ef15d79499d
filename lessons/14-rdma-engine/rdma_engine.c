// SPDX-License-Identifier: MIT
/*
 * 第 14 课：Unix socket 后面的 RDMA engine
 *
 * 一个 needle 的旅程：存储节点的磁盘 → 节点的 MR → RDMA READ → engine 的 memfd → client
 * 的映射。先看一条消息的每一个字节（frames.c），再亲手当一回 engine（reads.c），然后才请
 * 出真正的 rdma_engine，作为它的 client 走完一个 session（session.c），最后把当年弄垮
 * 原版的请求一条一条地问它（original.c）。
 *
 * 三个角色是三个进程，因为这一课的要点都在进程的边界上：字节流、地址、fd、谁的 CPU。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "walk.h"

#include <errno.h>

static const struct lesson_break breaks[] = {
	{ "forget-prefix", "drop half a length when 100 ms are over",
	  forget_prefix },
	{ "net-order", "send the length in network byte order", net_order },
	{ "any-wr-id", "take the first completion for one's own", any_wr_id },
	{ "wrong-rkey", "READ with a key that is nobody's", wrong_rkey },
	{ "write", "WRITE to a node that allows READ only", write_to_node },
	{ "map-shared", "register a file mapped MAP_SHARED, read-only",
	  map_shared },
	{ "dead-node", "READ from a node that was killed", dead_node },
	{ "kill-node", "kill the storage node, and start it again", kill_node },
	{ 0 },
};

static int play(struct walk *w)
{
	int rc = take_frame_apart();

	if (!rc)
		rc = split_the_stream();
	if (!rc)
		rc = be_an_engine(w);
	if (!rc)
		rc = play_a_session(w);
	return rc ? rc : ask_what_broke_it(w);
}

int main(int argc, char *argv[])
{
	struct lesson lesson;
	struct walk w = { .lesson = &lesson, .c.stream.fd = -1 };
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = lesson.broken ? lesson.broken->plant(&w) : play(&w);
	rc |= walk_close(&w);
	return rc ? 1 : 0;
}
