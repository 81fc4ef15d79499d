// SPDX-License-Identifier: MIT
/*
 * 第 8 课：单边操作
 *
 * A 发起，B 只是把一块内存（board）亮出来，然后什么也不做。两端在同一个进程里，所以随时
 * 可以看一眼 B 的内存与 CQ：这正是要看的——什么到了，谁知道。没点名设备而机器上有两个，
 * A 与 B 就各用一个：包才走得出来，labs/lab capture 才看得见。
 */
#include "one_sided.h"

#include "base/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES 8192 /* 两个包 */

/* 单边操作在 B 的 CQ 里不留任何东西：取一次，应当是空的。*/
static int nothing_at_b(struct walk *w)
{
	struct ibv_wc wc;
	int n = try_completion(&w->b, &wc);

	if (n)
		return n < 0 ? n : not_refused("a completion of B's");
	report_fact("B: no completion; its program took no part");
	return 0;
}

// region write
static int write_hello(struct walk *w)
{
	int rc;

	report_step("A WRITEs %zu bytes to B's text", sizeof(HELLO));
	rc = write_text(w, HELLO, sizeof(HELLO), at(w, w->board->text),
			w->a.remote.rkey);
	if (rc)
		return rc;
	report_fact("A: WRITE completed");
	report_fact("B's text: \"%s\"", w->board->text);
	return nothing_at_b(w);
}
// endregion write

// region read
static int read_hello(struct walk *w)
{
	int rc;

	report_step("A READs them back");
	memset(send_slot(&w->a, 0), 0, sizeof(HELLO));
	rc = read_back(w, sizeof(HELLO), at(w, w->board->text),
		       w->a.remote.rkey);
	if (rc)
		return rc;
	report_fact("A: READ completed, \"%s\"", send_slot(&w->a, 0));
	return nothing_at_b(w);
}
// endregion read

// region write-send
/*
 * 数据用 WRITE，消息用 SEND，中间不等待。B 只看自己的 receive：它完成时，前面
 * 的 WRITE 已经在内存里。A 也只需要一个 completion：WRITE 不带 SIGNALED；SEND
 * 成功，说明 WRITE 也成功。
 */
static int write_then_send(struct walk *w)
{
	struct ibv_wc wc;
	int rc;

	report_step("A WRITEs, and SENDs behind it; B waits for the SEND");
	rc = post_receive(&w->b, 0);
	memcpy(send_slot(&w->a, 0), "data", 5);
	memcpy(send_slot(&w->a, 1), "there", 6);
	if (!rc)
		rc = post_write(&w->a, 0, 5, at(w, w->board->text),
				w->a.remote.rkey, 0);
	if (!rc)
		rc = post_send(&w->a, 1, 6, true);
	if (!rc)
		rc = poll_completion(&w->b, WR_ID_RECV(0), &wc,
				     POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	report_fact("B: RECV, \"%s\"; B's text: \"%s\"", recv_slot(&w->b, 0),
		    w->board->text);
	return await(&w->a, WR_ID_SEND(1));
}
// endregion write-send

// region write-imm
static int write_with_imm(struct walk *w)
{
	struct ibv_wc wc;
	int rc;

	report_step("A WRITEs with immediate %u; B has posted a receive", 2026);
	memset(recv_slot(&w->b, 0), 0, sizeof(HELLO));
	rc = post_receive(&w->b, 0);
	memcpy(send_slot(&w->a, 0), "imm", 4);
	if (!rc)
		rc = post_write_imm(&w->a, 0, 4, at(w, w->board->text),
				    w->a.remote.rkey, 2026, IBV_SEND_SIGNALED);
	if (!rc)
		rc = await(&w->a, WR_ID_WRITE(0));
	if (!rc)
		rc = poll_completion(&w->b, WR_ID_RECV(0), &wc,
				     POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	report_fact("B: RECV_RDMA_WITH_IMM, immediate %u, byte_len %u",
		    received_imm(&wc), wc.byte_len);
	report_fact("B's text: \"%s\"; its receive's buffer: \"%s\"",
		    w->board->text, recv_slot(&w->b, 0));
	return 0;
}
// endregion write-imm

// region fence
/* 把 B 的 page 经 A 的一个 slot 复制到 B 的 copy，不等待：次序由 FENCE 保证。*/
static int copy_by_fence(struct walk *w)
{
	struct ibv_sge into = { .addr = (uintptr_t)send_slot(&w->a, 0),
				.length = COPY_BYTES,
				.lkey = w->a.mr->lkey };
	int rc;

	report_step("A READs B's page and WRITEs it to B's copy, fenced");
	memset(w->board->page, 'p', COPY_BYTES);
	rc = post_read(&w->a, 0, &into, at(w, w->board->page),
		       w->a.remote.rkey);
	if (!rc)
		rc = post_write(&w->a, 0, COPY_BYTES, at(w, w->board->copy),
				w->a.remote.rkey,
				IBV_SEND_FENCE | IBV_SEND_SIGNALED);
	if (!rc)
		rc = await(&w->a, WR_ID_READ(0));
	if (!rc)
		rc = await(&w->a, WR_ID_WRITE(0));
	if (rc)
		return rc;
	if (memcmp(w->board->copy, w->board->page, COPY_BYTES))
		return fail(-EBADMSG, NULL, "the copy differs from the page");
	report_fact("the copy is the page, all %u bytes of it", COPY_BYTES);
	return 0;
}
// endregion fence

/* ---- 从头到尾 --------------------------------------------------------------- */

// region board
static int make_board(struct walk *w)
{
	const int rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;
	int rc = modify_qp_to_init(&w->a);

	if (!rc)
		rc = modify_qp_to_init(&w->b);
	if (!rc)
		rc = expose_memory(&w->b, w->board, sizeof(*w->board), rights,
				   &w->mr);
	return rc ? rc : allow_remote(&w->b, (unsigned int)rights);
}
// endregion board

static void show_board(const struct walk *w)
{
	report_step("A on %s, B on %s; B exposes %zu bytes and says where",
		    ibv_get_device_name(w->a.context->device),
		    ibv_get_device_name(w->b.context->device),
		    sizeof(*w->board));
	report_fact("address 0x%jx, rkey 0x%x", (uintmax_t)w->a.remote.addr,
		    w->a.remote.rkey);
}

static int run(struct walk *w)
{
	int rc = make_board(w);

	if (!rc && w->lesson->broken)
		return lesson_plant(w->lesson, w);
	if (!rc)
		rc = connect_to_board(w);
	if (rc)
		return rc;
	show_board(w);
	rc = write_hello(w);
	if (!rc)
		rc = read_hello(w);
	if (!rc)
		rc = write_then_send(w);
	if (!rc)
		rc = write_with_imm(w);
	if (!rc)
		rc = copy_by_fence(w);
	if (!rc)
		rc = atomics(w);
	if (!rc)
		rc = eight_clients(w);
	if (!rc)
		rc = windows(w);
	return rc ? rc : keys(w);
}

static int open_both(struct walk *w, struct rdma_config config)
{
	char name[64];
	int rc;

	config.msg_size = SLOT_BYTES;
	config.send_slots = config.recv_slots = 2;
	rc = init_rdma_resources(&w->a, &config);
	if (rc)
		return rc;
	if (!config.device_name) {
		lesson_other_device(w->a.context, name, sizeof(name));
		config.device_name = name;
	}
	return init_rdma_resources(&w->b, &config);
}

static int close_both(struct walk *w)
{
	int rc = 0, undo;

	if (w->mr)
		rc = check_destroyed("ibv_dereg_mr", ibv_dereg_mr(w->mr));
	undo = destroy_rdma_resources(&w->b);
	rc = rc ? rc : undo;
	undo = destroy_rdma_resources(&w->a);
	free(w->board);
	return rc ? rc : undo;
}

int main(int argc, char *argv[])
{
	struct lesson lesson;
	struct walk w = { .lesson = &lesson };
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	w.board = calloc(1, sizeof(*w.board));
	rc = w.board ? open_both(&w, lesson.config)
		     : no_memory_for_buffer(sizeof(*w.board));
	if (!rc)
		rc = run(&w);
	rc |= close_both(&w);
	return rc ? 1 : 0;
}
