// SPDX-License-Identifier: MIT
/*
 * breaks.c —— 单边操作的错误，一个一函数
 *
 * 每一个都从“INIT 已做、还没连上”开始；拒绝的都是 B 的设备，B 的程序一无所知。
 */
#include "one_sided.h"

#include "base/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 100

static int write_to_board(struct walk *w)
{
	int rc = write_text(w, HELLO, sizeof(HELLO), w->a.remote.addr,
			    w->a.remote.rkey);

	return rc ? rc : not_refused("the WRITE");
}

/* ---- 两道闸 ----------------------------------------------------------------- */

// region break-gates
static int wrong_rkey(void *walk)
{
	struct walk *w = walk;
	int rc = connect_to_board(w);

	return rc ? rc
		  : write_text(w, HELLO, sizeof(HELLO), w->a.remote.addr,
			       w->a.remote.rkey ^ 0x00ff00);
}

static int mr_no_write(void *walk)
{
	struct walk *w = walk;
	struct ibv_mr *mr;
	int rc = expose_memory(&w->b, w->board->text, sizeof(w->board->text),
			       IBV_ACCESS_REMOTE_READ, &mr);

	if (rc)
		return rc;
	rc = connect_ends(w, mr, RNR_EVER, READS_USUAL);
	if (!rc)
		rc = write_to_board(w);
	ibv_dereg_mr(mr);
	return rc;
}

static int qp_no_write(void *walk)
{
	struct walk *w = walk;
	int rc = allow_remote(&w->b, IBV_ACCESS_REMOTE_READ);

	if (!rc)
		rc = connect_to_board(w);
	return rc ? rc : write_to_board(w);
}

static int past_end(void *walk)
{
	struct walk *w = walk;
	int rc = connect_to_board(w);

	return rc ? rc
		  : write_text(w, HELLO, sizeof(HELLO),
			       w->a.remote.addr + w->a.remote.size -
				       sizeof(HELLO) + 1,
			       w->a.remote.rkey);
}

static int deregistered(void *walk)
{
	struct walk *w = walk;
	int rc = connect_to_board(w);

	if (!rc)
		rc = check_destroyed("ibv_dereg_mr", ibv_dereg_mr(w->mr));
	w->mr = NULL;
	return rc ? rc : write_to_board(w);
}
// endregion break-gates

/* ---- 原子操作，READ 的个数 -------------------------------------------------- */

// region break-atomics
static int unaligned(void *walk)
{
	struct walk *w = walk;
	int rc = connect_to_board(w);

	if (!rc)
		rc = post_fetch_add(&w->a, 0, at(w, &w->board->counter) + 4,
				    w->a.remote.rkey, 1);
	if (!rc)
		rc = await(&w->a, WR_ID_ADD(0));
	return rc ? rc : not_refused("an unaligned atomic");
}

static int no_reads(void *walk)
{
	struct walk *w = walk;
	int rc = connect_ends(w, w->mr, RNR_EVER, 0);

	if (!rc)
		rc = post_fetch_add(&w->a, 0, at(w, &w->board->counter),
				    w->a.remote.rkey, 1);
	return rc ? rc : poll_completion(&w->a, WR_ID_ADD(0), NULL, SHORT_MS);
}

static int too_many_reads(void *walk)
{
	struct walk *w = walk;
	int most = w->a.device_attr.max_qp_init_rd_atom;

	return connect_ends(w, w->mr, RNR_EVER, (uint8_t)(most + 1));
}
// endregion break-atomics

/* ---- 谁知道数据到了 --------------------------------------------------------- */

// region break-notice
static int no_notice(void *walk)
{
	struct walk *w = walk;
	int rc = connect_to_board(w);

	if (!rc)
		rc = post_receive(&w->b, 0);
	if (!rc)
		rc = write_text(w, HELLO, sizeof(HELLO), w->a.remote.addr,
				w->a.remote.rkey);
	if (rc)
		return rc;
	report_fact("B's text: \"%s\"", w->board->text);
	return poll_completion(&w->b, WR_ID_RECV(0), NULL, SHORT_MS);
}

static int no_receive(void *walk)
{
	struct walk *w = walk;
	int rc = connect_ends(w, w->mr, 1, READS_USUAL);

	if (!rc)
		rc = post_write_imm(&w->a, 0, 4, w->a.remote.addr,
				    w->a.remote.rkey, 2026, IBV_SEND_SIGNALED);
	return rc ? rc : await(&w->a, WR_ID_WRITE(0));
}

/* 先写 flag，后写数据：B 在两者之间被唤醒，取走的是旧数据。*/
static int flag_first(void *walk)
{
	static const uint64_t flag = 1;
	struct walk *w = walk;
	volatile uint64_t *seen = &w->board->flag;
	char taken[sizeof(HELLO)];
	int rc = connect_to_board(w);

	strcpy(w->board->text, "old");
	if (!rc)
		rc = write_text(w, (const char *)&flag, sizeof(flag),
				at(w, &w->board->flag), w->a.remote.rkey);
	if (!rc && *seen)
		memcpy(taken, w->board->text, sizeof(taken));
	if (!rc)
		rc = write_text(w, HELLO, sizeof(HELLO), at(w, w->board->text),
				w->a.remote.rkey);
	if (rc)
		return rc;
	return fail(-EBADMSG,
		    "use one WRITE for both, with the flag as its last byte, "
		    "or WRITE with immediate",
		    "B saw the flag and took \"%s\", not \"%s\"", taken,
		    w->board->text);
}

/*
 * READ page、WRITE 它的末尾，连成一个链表，一次 post：中间没有间隔，也没有
 * FENCE。
 */
static int read_and_write_end(struct walk *w, char *page_end, char *copy_end)
{
	struct ibv_sge slot = { (uintptr_t)send_slot(&w->a, 0), SLOT_BYTES,
				w->a.mr->lkey };
	struct ibv_sge end = { slot.addr + SLOT_BYTES - PART_BYTES, PART_BYTES,
			       slot.lkey };
	struct ibv_send_wr write = {
		.wr_id = WR_ID_WRITE(0),
		.sg_list = &end,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)copy_end, w->mr->rkey },
	};
	struct ibv_send_wr read = {
		.wr_id = WR_ID_READ(0),
		.next = &write,
		.sg_list = &slot,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)w->board->page, w->mr->rkey },
	};
	int rc;

	memset(page_end, 'p', PART_BYTES);
	memset(copy_end, 0, PART_BYTES);
	memset(send_slot(&w->a, 0), 0, SLOT_BYTES);
	rc = post_request(&w->a, &read);
	if (!rc)
		rc = await(&w->a, WR_ID_READ(0));
	return rc ? rc : await(&w->a, WR_ID_WRITE(0));
}

/*
 * READ 末尾的数据还在路上，WRITE 就取走了那里原来的内容。rxe 有时在一次 post 里
 * 就完成了 READ，错误不会出现，所以多试几次。
 */
static int no_fence(void *walk)
{
	struct walk *w = walk;
	char *page_end = w->board->page + SLOT_BYTES - PART_BYTES;
	char *copy_end = w->board->copy + SLOT_BYTES - PART_BYTES;
	int rc = connect_to_board(w);

	for (int i = 0; i < TRIES && !rc; i++) {
		rc = read_and_write_end(w, page_end, copy_end);
		if (!rc && memcmp(copy_end, page_end, PART_BYTES))
			return fail(-EBADMSG,
				    "post the WRITE with IBV_SEND_FENCE",
				    "both are done, and the page's end was "
				    "written before it was read");
	}
	return rc ? rc : not_refused("a WRITE that overtakes its READ");
}
// endregion break-notice

const struct lesson_break breaks[] = {
	{ "wrong-rkey", "WRITE with a key that is nobody's", wrong_rkey },
	{ "mr-no-write", "WRITE to an MR without REMOTE_WRITE", mr_no_write },
	{ "qp-no-write", "the MR allows it, B's QP does not", qp_no_write },
	{ "past-end", "one byte more than the MR has", past_end },
	{ "deregistered", "WRITE to what is registered no more", deregistered },
	{ "unaligned", "an atomic on an address that is no multiple of 8",
	  unaligned },
	{ "no-reads", "an atomic, and max_rd_atomic is 0", no_reads },
	{ "many-reads", "max_rd_atomic above the device's own limit",
	  too_many_reads },
	{ "lost-updates", "add by READ and WRITE, eight at once",
	  lost_updates },
	{ "no-notice", "wait at B for a WRITE without immediate", no_notice },
	{ "no-receive", "immediate, and B has posted no receive", no_receive },
	{ "flag-first", "the flag is written before the data", flag_first },
	{ "no-fence", "WRITE on what a READ is still bringing", no_fence },
	{ "old-window", "WRITE with a window's key after it was invalidated",
	  old_window },
	{ "past-window", "WRITE within the MR, past the window", past_window },
	{ "mr-key", "the key of the MR that lies below the window", mr_key },
	{ "guess", "try all keys, one after another", guess },
	{ 0 },
};
