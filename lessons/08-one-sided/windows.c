// SPDX-License-Identifier: MIT
/*
 * windows.c —— memory window：给一小段内存一把自己的、随时可以收回的钥匙
 *
 * 底下的 MR 只有 MW_BIND，对端拿它的 rkey 什么也做不了；权限在 window 上。bind 与
 * invalidate 只是 SQ 里的一个请求，不进内核、不碰页表，比重新注册快得多。
 */
#include "one_sided.h"

#include "base/report.h"

#include <errno.h>
#include <stdlib.h>

struct part {
	struct walk *w;
	char *memory;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static int close_part(struct part *p)
{
	int rc = 0, undo;

	if (p->mw)
		rc = check_destroyed("ibv_dealloc_mw", ibv_dealloc_mw(p->mw));
	undo = p->mr ? check_destroyed("ibv_dereg_mr", ibv_dereg_mr(p->mr)) : 0;
	free(p->memory);
	return rc ? rc : undo;
}

// region bind
/* 让 A 经这个 window 写 memory 的前 PART_BYTES 个字节，仅此而已。*/
static int bind(struct part *p)
{
	const struct ibv_mw_bind_info info = {
		.mr = p->mr,
		.addr = (uintptr_t)p->memory,
		.length = PART_BYTES,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct rdma_resources *b = &p->w->b;
	int rc = post_bind_window(b, 0, p->mw, &info);

	return rc ? rc : await(b, WR_ID_BIND(0));
}

static int open_part(struct part *p)
{
	struct rdma_resources *b = &p->w->b;
	int rc;

	p->memory = calloc(2, PART_BYTES);
	if (!p->memory)
		return no_memory_for_buffer(2 * PART_BYTES);
	rc = expose_memory(b, p->memory, 2 * (size_t)PART_BYTES,
			   IBV_ACCESS_MW_BIND, &p->mr);
	if (!rc)
		rc = alloc_window(b, &p->mw);
	return rc ? rc : bind(p);
}

static int invalidate(struct part *p)
{
	struct rdma_resources *b = &p->w->b;
	int rc = post_invalidate(b, 0, p->mw->rkey);

	return rc ? rc : await(b, WR_ID_INVALIDATE(0));
}
// endregion bind

// region send-invalidate
/* A 用完了，把 key 随一条 SEND 还回去；B 的 completion 说还的是哪一把。*/
static int hand_back(struct part *p)
{
	struct rdma_resources *a = &p->w->a, *b = &p->w->b;
	struct ibv_wc wc;
	int rc = post_receive(b, 0);

	if (!rc)
		rc = post_send_invalidate(a, 0, sizeof(HELLO), p->mw->rkey);
	if (!rc)
		rc = await(a, WR_ID_SEND(0));
	if (!rc)
		rc = poll_completion(b, WR_ID_RECV(0), &wc, POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	if (invalidated_rkey(&wc) != p->mw->rkey)
		return fail(-EPROTO, NULL,
			    "B was not told which key was invalidated");
	report_fact("SEND with invalidate: B's completion says that rkey 0x%x "
		    "is invalid now",
		    invalidated_rkey(&wc));
	return 0;
}
// endregion send-invalidate

static int open_and_close(struct part *p)
{
	int rc;

	report_fact("MR rkey 0x%x without REMOTE_..., window rkey 0x%x for %d "
		    "bytes of it",
		    p->mr->rkey, p->mw->rkey, PART_BYTES);
	rc = write_text(p->w, HELLO, sizeof(HELLO), (uintptr_t)p->memory,
			p->mw->rkey);
	if (rc)
		return rc;
	report_fact("A WRITEs through it: \"%s\"", p->memory);
	rc = invalidate(p);
	if (!rc)
		rc = bind(p);
	if (rc)
		return rc;
	report_fact("invalidated and bound again: its rkey is 0x%x",
		    p->mw->rkey);
	return hand_back(p);
}

static int with_part(struct walk *w, int (*play)(struct part *p))
{
	struct part p = { .w = w };
	int rc = open_part(&p), undo;

	/* A 有了别的 key：解释器不能再说“只有 board 那一把”。*/
	w->a.more_rkeys = true;
	if (!rc)
		rc = play(&p);
	undo = close_part(&p);
	return rc ? rc : undo;
}

int windows(struct walk *w)
{
	report_step("B binds a memory window, and takes it back");
	return with_part(w, open_and_close);
}

/* ---- 犯错 ------------------------------------------------------------------- */

// region break-windows
static int write_after_invalidate(struct part *p)
{
	int rc = invalidate(p);

	return rc ? rc
		  : write_text(p->w, HELLO, sizeof(HELLO), (uintptr_t)p->memory,
			       p->mw->rkey);
}

static int write_past_the_window(struct part *p)
{
	return write_text(p->w, HELLO, sizeof(HELLO),
			  (uintptr_t)p->memory + PART_BYTES - 1, p->mw->rkey);
}

/* 绕过 window，直接用它所在的 MR 的 rkey。*/
static int write_by_its_mr(struct part *p)
{
	return write_text(p->w, HELLO, sizeof(HELLO), (uintptr_t)p->memory,
			  p->mr->rkey);
}
// endregion break-windows

static int broken_part(struct walk *w, int (*play)(struct part *p))
{
	int rc = connect_to_board(w);

	return rc ? rc : with_part(w, play);
}

int old_window(void *walk)
{
	int rc = broken_part(walk, write_after_invalidate);

	return rc ? rc : not_refused("a key that was invalidated");
}

int past_window(void *walk)
{
	int rc = broken_part(walk, write_past_the_window);

	return rc ? rc
		  : fail(-EACCES,
			 "rxe looks at the bounds of the MR only: expose no "
			 "more than may be touched",
			 "the WRITE went past the window, and was not refused");
}

int mr_key(void *walk)
{
	int rc = broken_part(walk, write_by_its_mr);

	return rc ? rc : not_refused("the key of an MR without rights");
}
