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
	{ "forget-prefix", "drop half a length when 100 ms are over" },
	{ "net-order", "send the length in network byte order" },
	{ "any-wr-id", "take the first completion for one's own" },
	{ "wrong-rkey", "READ with a key that is nobody's" },
	{ "write", "WRITE to a node that allows READ only" },
	{ "map-shared", "register a file mapped MAP_SHARED, read-only" },
	{ "dead-node", "READ from a node that was killed" },
	{ "kill-node", "kill the storage node, and start it again" },
	{ NULL, NULL },
};

static bool breaks_one_of(const struct walk *w, const char *const *names)
{
	for (; *names; names++)
		if (lesson_breaks(w->lesson, *names))
			return true;
	return false;
}

static int play(struct walk *w)
{
	static const char *const by_hand[] = { "any-wr-id", "wrong-rkey",
					       "write",	    "map-shared",
					       "dead-node", NULL };
	int rc;

	if (lesson_breaks(w->lesson, "forget-prefix"))
		return split_the_stream(w);
	rc = w->lesson->break_name ? 0 : take_frame_apart(w);
	if (!rc && !w->lesson->break_name)
		rc = split_the_stream(w);
	if (!rc)
		rc = walk_open(w);
	if (!rc)
		rc = be_an_engine(w);
	if (rc || breaks_one_of(w, by_hand))
		return rc;
	if (lesson_breaks(w->lesson, "net-order"))
		return length_in_network_order(w);
	if (lesson_breaks(w->lesson, "kill-node"))
		return kill_the_node(w);
	rc = play_a_session(w);
	return rc ? rc : ask_what_broke_it(w);
}

int main(int argc, char *argv[])
{
	struct lesson lesson;
	struct walk w = { .lesson = &lesson, .c.stream.fd = -1 };
	int rc = lesson_parse(&lesson, breaks, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = play(&w);
	undo = walk_close(&w);
	return rc || undo ? 1 : 0;
}
