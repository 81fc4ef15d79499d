// SPDX-License-Identifier: MIT
/*
 * modify_qp.c —— 状态机上的错误：ibv_modify_qp 当场拒绝，或者收下了错的值
 *
 * 多数故障是“一步正确的调用，改坏一处”：改了哪里，一眼可见。
 */
#include "faults.h"

#include <arpa/inet.h>
#include <stdio.h>

/* ---- RESET → INIT --------------------------------------------------------- */

WRONG_STEP(init_port_zero, step_init, s.attr.port_num = 0)
WRONG_STEP(init_missing_bit, step_init, s.mask &= ~IBV_QP_ACCESS_FLAGS)
WRONG_STEP(init_again, step_init, (void)0)

/* 共享的 Q_Key（最高位为 1）只有特权进程能用。root 试不出来，先变成普通用户。*/
static void ud_controlled_qkey(struct rig *rig)
{
	struct step s;

	/* 内核不许“换了身份的进程”用旧身份打开的设备，所以先换再打开。*/
	if (!become_nobody()) {
		snprintf(rig->saw, sizeof(rig->saw), "cannot become nobody");
		return;
	}
	rig_prepare(rig, READY_OPEN);
	make_qps(rig, IBV_QPT_UD, false);
	s = step_init(&rig->a);
	s.attr.qkey = 0x80010000;
	try_step(rig, s);
}

/* ---- INIT → RTR ----------------------------------------------------------- */

WRONG_STEP(rtr_no_grh, step_rtr, s.attr.ah_attr.is_global = 0)
WRONG_STEP(rtr_gid_families, step_rtr,
	   inet_pton(AF_INET6, "fe80::99:ff:fe00:2",
		     s.attr.ah_attr.grh.dgid.raw))
WRONG_STEP(rtr_gid_all_zero, step_rtr,
	   s.attr.ah_attr.grh.dgid = (union ibv_gid){ 0 })
WRONG_STEP(rtr_av_port_zero, step_rtr, s.attr.ah_attr.port_num = 0)
WRONG_STEP(rtr_missing_bit, step_rtr, s.mask &= ~IBV_QP_MIN_RNR_TIMER)
WRONG_STEP(rtr_forbidden_bit, step_rtr,
	   s.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT)
WRONG_STEP(rtr_alt_path, step_rtr, s.mask |= IBV_QP_ALT_PATH;
	   s.attr.alt_ah_attr = s.attr.ah_attr;
	   s.attr.alt_port_num = s.attr.port_num)
WRONG_STEP(rtr_gid_slot_empty, step_rtr, s.attr.ah_attr.grh.sgid_index = 7)
WRONG_STEP(rtr_from_reset, step_rtr, (void)0)
/* 1500 只剩低 8 位：220，大于 5。*/
WRONG_STEP(rtr_mtu_in_bytes, step_rtr, s.attr.path_mtu = 1500)
/* 1024 的低 8 位是 0：rxe 收下，mlx5 拒绝。*/
WRONG_STEP(rtr_mtu_in_bytes_taken, step_rtr, s.attr.path_mtu = 1024)
WRONG_STEP(rate_limit, step_rtr, s.mask |= IBV_QP_RATE_LIMIT)
/* 拒绝，还是返回 0 而什么都不做，看内核：后者更难查。*/
WRONG_STEP(state_bit_forgotten, step_rtr, s.mask &= ~IBV_QP_STATE)
WRONG_STEP(mask_empty, step_rtr, s.mask = 0)
WRONG_STEP(dest_rd_atomic_zero, step_rtr, s.attr.max_dest_rd_atomic = 0)

/* ---- RTR → RTS ------------------------------------------------------------ */

/* 前一步失败了，没有人看返回值；抱怨的是下一步。*/
static void rts_after_failed_rtr(struct rig *rig)
{
	struct step rtr = step_rtr(&rig->a);

	rtr.attr.ah_attr.is_global = 0;
	try_step(rig, rtr);
	try_step(rig, step_rts(&rig->a));
}

WRONG_STEP(rts_missing_bits, step_rts,
	   s.mask &= ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RNR_RETRY))
WRONG_STEP(rtr_twice, step_rtr, (void)0)
WRONG_STEP(rts_rd_atomic_large, step_rts, s.attr.max_rd_atomic = 129)
WRONG_STEP(rts_timeout_large, step_rts, s.attr.timeout = 32)
WRONG_STEP(rts_retry_seven, step_rts, s.attr.retry_cnt = 7)
/* 内核相信 cur_qp_state：RESET 的 QP 一步成了 RTS，却从没有过地址。*/
WRONG_STEP(cur_state_skips, step_rts, s.mask |= IBV_QP_CUR_STATE;
	   s.attr.cur_qp_state = IBV_QPS_RTR)
WRONG_STEP(cur_state_not_allowed, step_rtr, s.mask |= IBV_QP_CUR_STATE;
	   s.attr.cur_qp_state = IBV_QPS_INIT)

/* ---- ERR 与回来 ----------------------------------------------------------- */

FAULT(reset_to_err, try_step(rig, step_state(IBV_QPS_ERR)))

WRONG_STEP(err_to_init, step_init, do_step(&rig->a, step_state(IBV_QPS_ERR)))

#define INVALID(name, mistake, cause, ready, run) \
	ROW(name, mistake, "ibv_modify_qp: EINVAL", cause, ready, run)

const struct fault modify_faults[] = {
	INVALID("init-port-zero", "port_num is left 0, as memset gave it",
		"port", RESET, init_port_zero),
	INVALID("init-missing-bit",
		"IBV_QP_ACCESS_FLAGS is not in the mask of INIT",
		"bits-missing", RESET, init_missing_bit),
	INVALID("init-on-connected-qp",
		"a QP in RTS is brought to INIT again to reconnect, without "
		"RESET",
		"no-way", CONNECTED, init_again),
	ROW("ud-controlled-qkey", "a Q_Key with bit 31, by an ordinary user",
	    "ibv_modify_qp: EPERM", "qkey-controlled", NOT, ud_controlled_qkey),
	INVALID("rtr-no-grh",
		"ah_attr.is_global is 0, as in code written for InfiniBand",
		"no-grh", INIT, rtr_no_grh),
	INVALID("rtr-gid-families-differ",
		"one side uses its IPv4 GID, the other its link-local one",
		"gid-families-differ", INIT, rtr_gid_families),
	INVALID("rtr-gid-all-zero", "the peer's GID is used before it has come",
		"gid-zero", INIT, rtr_gid_all_zero),
	INVALID("rtr-av-port-zero", "ah_attr.port_num is forgotten", "av-port",
		INIT, rtr_av_port_zero),
	INVALID("rtr-missing-bit",
		"IBV_QP_MIN_RNR_TIMER is not in the mask of RTR",
		"bits-missing", INIT, rtr_missing_bit),
	INVALID("rtr-forbidden-bit",
		"RTS's TIMEOUT and RETRY_CNT are given in RTR",
		"bits-forbidden", INIT, rtr_forbidden_bit),
	INVALID("rtr-alt-path", "an alternate path, as on InfiniBand",
		"alt-path", INIT, rtr_alt_path),
	ROW("rtr-gid-slot-empty", "sgid_index is a number out of habit",
	    "ibv_modify_qp: ENODATA", "gid-slot-empty", INIT,
	    rtr_gid_slot_empty),
	ROW("rtr-from-reset", "INIT is skipped", "ibv_modify_qp: EINVAL",
	    "no-way", RESET, rtr_from_reset),
	INVALID("rtr-mtu-in-bytes", "path_mtu is 1500, not a value of the enum",
		"path-mtu-not-enum", INIT, rtr_mtu_in_bytes),
	ROW("rtr-mtu-in-bytes-taken", "path_mtu is 1024; rxe makes 0 of it",
	    "ibv_modify_qp: 0", "path-mtu-not-enum", INIT,
	    rtr_mtu_in_bytes_taken),
	ROW("rate-limit", "IBV_QP_RATE_LIMIT on a device without it",
	    "ibv_modify_qp: EOPNOTSUPP", "bits-unsupported", INIT, rate_limit),
	INVALID("state-bit-forgotten", "IBV_QP_STATE is not in the mask",
		"state-bit-forgotten", INIT, state_bit_forgotten),
	ROW("mask-empty", "the mask is 0", "ibv_modify_qp: 0", "mask-empty",
	    INIT, mask_empty),
	ROW("dest-rd-atomic-zero", "max_dest_rd_atomic 0 in RTR",
	    "ibv_modify_qp: 0", "dest-rd-atomic-zero", INIT,
	    dest_rd_atomic_zero),
	INVALID("rts-after-failed-rtr", "nobody looks at what RTR returned",
		"no-way", INIT, rts_after_failed_rtr),
	INVALID("rts-missing-bits",
		"RNR_RETRY and MAX_QP_RD_ATOMIC are forgotten", "bits-missing",
		RTR, rts_missing_bits),
	INVALID("rtr-twice", "RTR is asked for a second time", "no-way", RTR,
		rtr_twice),
	INVALID("rts-rd-atomic-large",
		"max_rd_atomic is above the device's limit",
		"rd-atomic-too-large", RTR, rts_rd_atomic_large),
	INVALID("rts-timeout-large", "timeout 32: it is an exponent of 5 bits",
		"timeout-too-large", RTR, rts_timeout_large),
	ROW("rts-retry-seven", "retry_cnt 7, which on rxe never gives up",
	    "ibv_modify_qp: 0", "retry-forever", RTR, rts_retry_seven),
	ROW("cur-state-skips-rtr", "IBV_QP_CUR_STATE says RTR of a QP in RESET",
	    "ibv_modify_qp: 0", "cur-state-lies", RESET, cur_state_skips),
	INVALID("cur-state-not-allowed", "IBV_QP_CUR_STATE says INIT",
		"cur-state-not-allowed", INIT, cur_state_not_allowed),
	INVALID("reset-to-err", "a new QP is moved to ERR", "no-way", RESET,
		reset_to_err),
	INVALID("err-to-init", "a QP in ERR is brought to INIT to reconnect",
		"no-way", CONNECTED, err_to_init),
	{ 0 },
};
