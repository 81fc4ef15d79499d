// SPDX-License-Identifier: MIT
/*
 * status.c —— 每一个 wc_status：规范怎么说，rxe 实际怎么做，看哪一边
 *
 * 规范与实现并不总一致：同一个错误，硬件报 4（LOC_PROT），rxe 6.1 报 2，rxe 6.12
 * 只报 5（flush），真正的原因不见了。所以每一行把三者分开写。causes 里的次序按
 * 常见程度排列。
 */
#include "parts.h"

#include <stdio.h>

#define ROW(s) .status = IBV_WC_##s, .name = #s

static const char not_on_roce[] = "never: it belongs to RD, which RoCE lacks";

static const struct explain_status rows[] = {
	{ ROW(SUCCESS), .meaning = "the request was carried out",
	  .rxe = "as specified; but a SEND whose PSN lies far behind the "
		 "expected one may be acknowledged and thrown away",
	  .causes = "nothing is wrong",
	  .next = "check wr_id and, for a receive, byte_len", .side = "mine" },
	{ ROW(LOC_LEN_ERR),
	  .meaning = "the message is longer than the receive, or than the port "
		     "allows",
	  .rxe = "never: the receiver gets 2, the sender 11",
	  .causes = "the message is longer than the receive buffer",
	  .next = "post larger receives, or send less", .side = "mine" },
	{ ROW(LOC_QP_OP_ERR),
	  .meaning = "the request itself is inconsistent with the QP",
	  .rxe = "6.1: a bad lkey, a receive that is too small or not "
		 "writable, "
		 "an opcode that the QP type lacks, a network device that went "
		 "down; 6.12: for a receive only, a send is merely flushed (5)",
	  .causes = "this side's work request is wrong: on rxe a bad lkey, or "
		    "a receive buffer smaller than the message",
	  .next = "compare lkey, address and length of the SGE with the MR; "
		  "for a receive also its length with the message",
	  .side = "mine" },
	{ ROW(LOC_EEC_OP_ERR),
	  .meaning = "the same for the end-to-end context of RD",
	  .rxe = not_on_roce, .causes = "a driver's error",
	  .next = "look at dmesg", .side = "mine" },
	{ ROW(LOC_PROT_ERR), .meaning = "an SGE is not covered by a valid MR",
	  .rxe = "6.1: address or length outside the MR, a READ into a "
		 "read-only "
		 "MR or with a bad lkey; 6.12: a SEND is merely flushed (5)",
	  .causes = "this side's buffer is not covered by the lkey",
	  .next = "compare address and length of the SGE with the MR; was it "
		  "deregistered, or the buffer moved (realloc)?",
	  .side = "mine" },
	{ ROW(WR_FLUSH_ERR),
	  .meaning = "the QP went to ERR before this request's turn came",
	  .rxe = "6.1: but receives posted in ERR are never flushed; also when "
		 "a copy of a READ comes after its MR is gone; 6.12: also "
		 "instead of 2, 4 and 6, so the cause is hidden",
	  .causes = "the QP is in ERR and this request was only flushed",
	  .next = "look for the first bad completion before this one, in both "
		  "CQs; rxe of Linux 6.12 hides local causes (lkey, address, "
		  "length) behind a flush",
	  .side = "mine" },
	{ ROW(MW_BIND_ERR), .meaning = "a memory window could not be bound",
	  .rxe = "6.1: the MR lacks MW_BIND; 6.12: flushed (5)",
	  .causes = "the MR was registered without IBV_ACCESS_MW_BIND, or the "
		    "window's range or rights exceed the MR's",
	  .next = "add IBV_ACCESS_MW_BIND at ibv_reg_mr", .side = "mine" },
	{ ROW(BAD_RESP_ERR), .meaning = "a response came that fits no request",
	  .rxe = "never",
	  .causes = "the peer's QP was reset and connected anew while requests "
		    "were outstanding",
	  .next = "reset both QPs together, with new PSNs",
	  .side = "the peer's" },
	{ ROW(LOC_ACCESS_ERR),
	  .meaning = "a WRITE with immediate met a protected buffer here",
	  .rxe = "never", .causes = "the MR lacks LOCAL_WRITE",
	  .next = "add IBV_ACCESS_LOCAL_WRITE", .side = "mine" },
	{ ROW(REM_INV_REQ_ERR), .meaning = "the peer found the request invalid",
	  .rxe = "the peer's QP lacks the access flag, max_dest_rd_atomic is "
		 "0, or the path MTUs differ; a message that is too long is 11",
	  .causes = "the peer refused the request: its QP's access flags, "
		    "max_dest_rd_atomic 0, path MTUs that differ, or "
		    "(hardware) a message longer than its receive",
	  .next = "look at the peer's qp_access_flags, max_dest_rd_atomic and "
		  "path_mtu",
	  .side = "the peer's" },
	{ ROW(REM_ACCESS_ERR),
	  .meaning = "the peer's memory may not be accessed like this",
	  .rxe = "as specified; the peer's QP goes to ERR without any "
		 "completion or event",
	  .causes = "the peer's rkey does not allow this access: wrong or old "
		    "rkey, address or length outside the MR, or the MR lacks "
		    "the REMOTE flag",
	  .next = "compare rkey, remote address, length and the access flags "
		  "with the peer's MR, as hex on both sides (byte order!)",
	  .side = "both" },
	{ ROW(REM_OP_ERR),
	  .meaning = "the peer failed while it carried the request out",
	  .rxe = "the peer's receive is too small, or its lkey is bad or not "
		 "writable; the peer's completion says 2",
	  .causes = "the peer could not carry it out: its own receive request "
		    "is bad (on rxe also: too small)",
	  .next = "look at the peer's completions, then at the length and the "
		  "lkey of its receive",
	  .side = "the peer's" },
	{ ROW(RETRY_EXC_ERR), .meaning = "no ACK came after all retries",
	  .rxe = "after (retry_cnt + 1) x 4.096 us x 2^timeout; never with "
		 "retry_cnt 7 or timeout 0; also when no receive is "
		 "posted and rnr_retry is 7",
	  .causes = "no ACK came back: the peer's QP is gone or in another "
		    "state, QPN, PSN or GID do not match, UDP port 4791 is "
		    "blocked, or (rxe) no receive was posted",
	  .next = "compare QPN, PSN and GID as both sides printed them; see "
		  "the peer's state with `rdma resource show qp`; if all that "
		  "matches, look for UDP 4791 with tcpdump on both sides",
	  .side = "both" },
	{ ROW(RNR_RETRY_EXC_ERR),
	  .meaning = "the peer was not ready to receive, after all retries",
	  .rxe = "as specified; the peer stays in RTS",
	  .causes = "the peer had no receive posted",
	  .next = "post receives before telling the peer that you are ready; "
		  "rnr_retry 7 waits without end",
	  .side = "the peer's" },
	{ ROW(LOC_RDD_VIOL_ERR), .meaning = "a violation of an RD domain",
	  .rxe = not_on_roce, .causes = "a driver's error",
	  .next = "look at dmesg", .side = "mine" },
	{ ROW(REM_INV_RD_REQ_ERR), .meaning = "the peer refused an RD request",
	  .rxe = not_on_roce, .causes = "a driver's error",
	  .next = "look at dmesg", .side = "the peer's" },
	{ ROW(REM_ABORT_ERR),
	  .meaning = "the peer aborted the request (RD, or XRC)",
	  .rxe = "never", .causes = "the peer's QP or SRQ is in an error state",
	  .next = "look at the peer", .side = "the peer's" },
	{ ROW(INV_EECN_ERR),
	  .meaning = "an invalid end-to-end context number of RD",
	  .rxe = not_on_roce, .causes = "a driver's error",
	  .next = "look at dmesg", .side = "mine" },
	{ ROW(INV_EEC_STATE_ERR),
	  .meaning = "an end-to-end context of RD in the wrong state",
	  .rxe = not_on_roce, .causes = "a driver's error",
	  .next = "look at dmesg", .side = "mine" },
	{ ROW(FATAL_ERR), .meaning = "an error that the QP cannot get over",
	  .rxe = "only if a READ response answers a request that was no READ",
	  .causes = "the device or its driver failed",
	  .next = "look at dmesg and the asynchronous events", .side = "mine" },
	{ ROW(RESP_TIMEOUT_ERR), .meaning = "a response did not come in time",
	  .rxe = "never",
	  .causes = "the peer takes too long for an RD or vendor's request",
	  .next = "look at the peer", .side = "the peer's" },
	{ ROW(GENERAL_ERR), .meaning = "any other error", .rxe = "never",
	  .causes = "the vendor knows",
	  .next = "look up wc.vendor_err with the vendor, look at dmesg",
	  .side = "mine" },
	{ ROW(TM_ERR), .meaning = "tag matching failed",
	  .rxe = "never: rxe has no tag matching",
	  .causes = "the tag matching list is inconsistent",
	  .next = "look at the vendor's documentation", .side = "mine" },
	{ ROW(TM_RNDV_INCOMPLETE),
	  .meaning =
		  "a rendezvous of tag matching was not finished by hardware",
	  .rxe = "never: rxe has no tag matching",
	  .causes = "software must finish it",
	  .next = "read the rest of the message with an RDMA READ",
	  .side = "mine" },
};

const struct explain_status *explain_status_row(enum ibv_wc_status status)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].status == status)
			return &rows[i];
	return NULL;
}

struct explanation explain_wc_status(enum ibv_wc_status status)
{
	const struct explain_status *row = explain_status_row(status);
	struct explanation why;

	/* 关掉解释也要有话可说：调用者把它接在冒号后面。*/
	if (!explain_is_on() || !row) {
		why = no_idea();
		snprintf(why.cause, sizeof(why.cause), "%s",
			 ibv_wc_status_str(status));
		return why;
	}
	why = because(row->name, row->next, "%s", row->causes);
	also_seen(&why, "by the specification: %s; look at %s side",
		  row->meaning,
		  row->side[0] == 'm'	? "this"
		  : row->side[0] == 'b' ? "either"
					: "the peer's");
	also_seen(&why, "rxe: %s", row->rxe);
	return why;
}
