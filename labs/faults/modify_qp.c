// SPDX-License-Identifier: MIT
/*
 * modify_qp.c —— 状态机上的错误：ibv_modify_qp 当场拒绝，或者收下了错的值
 *
 * 每个故障都是“一步正确的调用，改坏一处”：改了哪里，一眼可见。
 */
#include "faults.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <unistd.h>

#define NOBODY 65534

/* ---- RESET → INIT --------------------------------------------------------- */

static void init_port_zero(struct rig *rig)
{
	struct step s = step_init(&rig->a);

	s.attr.port_num = 0;
	try_step(rig, &rig->a, &s);
}

static void init_missing_bit(struct rig *rig)
{
	struct step s = step_init(&rig->a);

	s.mask &= ~IBV_QP_ACCESS_FLAGS;
	try_step(rig, &rig->a, &s);
}

static void init_again(struct rig *rig)
{
	struct step s = step_init(&rig->a);

	try_step(rig, &rig->a, &s);
}

/* 共享的 Q_Key（最高位为 1）只有特权进程能用。root 试不出来，先变成普通用户。*/
static void ud_controlled_qkey(struct rig *rig)
{
	struct step s;

	/* 内核不许“换了身份的进程”用旧身份打开的设备，所以先换再打开。*/
	if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)) {
		snprintf(rig->saw, sizeof(rig->saw), "cannot become nobody");
		return;
	}
	rig_prepare(rig, READY_OPEN);
	make_qps(rig, IBV_QPT_UD, false);
	s = step_init(&rig->a);
	s.attr.qkey = 0x80010000;
	try_step(rig, &rig->a, &s);
}

/* ---- INIT → RTR ----------------------------------------------------------- */

static void rtr_no_grh(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.ah_attr.is_global = 0;
	try_step(rig, &rig->a, &s);
}

static void rtr_gid_families(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	inet_pton(AF_INET6, "fe80::99:ff:fe00:2", s.attr.ah_attr.grh.dgid.raw);
	try_step(rig, &rig->a, &s);
}

static void rtr_gid_all_zero(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.ah_attr.grh.dgid = (union ibv_gid){ 0 };
	try_step(rig, &rig->a, &s);
}

static void rtr_av_port_zero(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.ah_attr.port_num = 0;
	try_step(rig, &rig->a, &s);
}

static void rtr_missing_bit(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask &= ~IBV_QP_MIN_RNR_TIMER;
	try_step(rig, &rig->a, &s);
}

static void rtr_forbidden_bit(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
	try_step(rig, &rig->a, &s);
}

static void rtr_alt_path(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask |= IBV_QP_ALT_PATH;
	s.attr.alt_ah_attr = s.attr.ah_attr;
	s.attr.alt_port_num = s.attr.port_num;
	try_step(rig, &rig->a, &s);
}

static void rtr_gid_slot_empty(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.ah_attr.grh.sgid_index = 7;
	try_step(rig, &rig->a, &s);
}

static void rtr_from_reset(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	try_step(rig, &rig->a, &s);
}

/* 1500 只剩低 8 位：220，大于 5。*/
static void rtr_mtu_in_bytes(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.path_mtu = 1500;
	try_step(rig, &rig->a, &s);
}

/* 1024 的低 8 位是 0：rxe 收下，mlx5 拒绝。*/
static void rtr_mtu_in_bytes_taken(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.path_mtu = 1024;
	try_step(rig, &rig->a, &s);
}

static void rate_limit(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask |= IBV_QP_RATE_LIMIT;
	try_step(rig, &rig->a, &s);
}

/* 拒绝，还是返回 0 而什么都不做，看内核：后者更难查。*/
static void state_bit_forgotten(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask &= ~IBV_QP_STATE;
	try_step(rig, &rig->a, &s);
}

static void mask_empty(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask = 0;
	try_step(rig, &rig->a, &s);
}

static void dest_rd_atomic_zero(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.attr.max_dest_rd_atomic = 0;
	try_step(rig, &rig->a, &s);
}

/* ---- RTR → RTS ------------------------------------------------------------ */

/* 前一步失败了，没有人看返回值；抱怨的是下一步。*/
static void rts_after_failed_rtr(struct rig *rig)
{
	struct step rtr = step_rtr(&rig->a), rts = step_rts(&rig->a);

	rtr.attr.ah_attr.is_global = 0;
	try_step(rig, &rig->a, &rtr);
	try_step(rig, &rig->a, &rts);
}

static void to_rtr(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	do_step(&rig->a, &s);
}

static void rts_missing_bits(struct rig *rig)
{
	struct step s = step_rts(&rig->a);

	to_rtr(rig);
	s.mask &= ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RNR_RETRY);
	try_step(rig, &rig->a, &s);
}

static void rtr_twice(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	to_rtr(rig);
	try_step(rig, &rig->a, &s);
}

static void rts_rd_atomic_large(struct rig *rig)
{
	struct step s = step_rts(&rig->a);

	to_rtr(rig);
	s.attr.max_rd_atomic = 129;
	try_step(rig, &rig->a, &s);
}

static void rts_timeout_large(struct rig *rig)
{
	struct step s = step_rts(&rig->a);

	to_rtr(rig);
	s.attr.timeout = 32;
	try_step(rig, &rig->a, &s);
}

static void rts_retry_seven(struct rig *rig)
{
	struct step s = step_rts(&rig->a);

	to_rtr(rig);
	s.attr.retry_cnt = 7;
	try_step(rig, &rig->a, &s);
}

/* 内核相信 cur_qp_state：RESET 的 QP 一步成了 RTS，却从没有过地址。*/
static void cur_state_skips(struct rig *rig)
{
	struct step s = step_rts(&rig->a);

	s.mask |= IBV_QP_CUR_STATE;
	s.attr.cur_qp_state = IBV_QPS_RTR;
	try_step(rig, &rig->a, &s);
}

static void cur_state_not_allowed(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);

	s.mask |= IBV_QP_CUR_STATE;
	s.attr.cur_qp_state = IBV_QPS_INIT;
	try_step(rig, &rig->a, &s);
}

/* ---- ERR 与回来 ----------------------------------------------------------- */

static void reset_to_err(struct rig *rig)
{
	struct step s = step_state(IBV_QPS_ERR);

	try_step(rig, &rig->a, &s);
}

static void err_to_init(struct rig *rig)
{
	struct step err = step_state(IBV_QPS_ERR), init = step_init(&rig->a);

	do_step(&rig->a, &err);
	try_step(rig, &rig->a, &init);
}

const struct fault modify_faults[] = {
	{ "init-port-zero", "port_num is left 0, as memset gave it",
	  "ibv_modify_qp: EINVAL", "port", READY_RESET, init_port_zero, NULL },
	{ "init-missing-bit", "IBV_QP_ACCESS_FLAGS is not in the mask of INIT",
	  "ibv_modify_qp: EINVAL", "bits-missing", READY_RESET,
	  init_missing_bit, NULL },
	{ "init-on-connected-qp",
	  "a QP in RTS is brought to INIT again to reconnect, without RESET",
	  "ibv_modify_qp: EINVAL", "no-way", READY_CONNECTED, init_again,
	  NULL },
	{ "ud-controlled-qkey", "a Q_Key with bit 31, by an ordinary user",
	  "ibv_modify_qp: EPERM", "qkey-controlled", READY_NOT,
	  ud_controlled_qkey, NULL },
	{ "rtr-no-grh",
	  "ah_attr.is_global is 0, as in code written for InfiniBand",
	  "ibv_modify_qp: EINVAL", "no-grh", READY_INIT, rtr_no_grh, NULL },
	{ "rtr-gid-families-differ",
	  "one side uses its IPv4 GID, the other its link-local one",
	  "ibv_modify_qp: EINVAL", "gid-families-differ", READY_INIT,
	  rtr_gid_families, NULL },
	{ "rtr-gid-all-zero", "the peer's GID is used before it has come",
	  "ibv_modify_qp: EINVAL", "gid-zero", READY_INIT, rtr_gid_all_zero,
	  NULL },
	{ "rtr-av-port-zero", "ah_attr.port_num is forgotten",
	  "ibv_modify_qp: EINVAL", "av-port", READY_INIT, rtr_av_port_zero,
	  NULL },
	{ "rtr-missing-bit", "IBV_QP_MIN_RNR_TIMER is not in the mask of RTR",
	  "ibv_modify_qp: EINVAL", "bits-missing", READY_INIT, rtr_missing_bit,
	  NULL },
	{ "rtr-forbidden-bit", "RTS's TIMEOUT and RETRY_CNT are given in RTR",
	  "ibv_modify_qp: EINVAL", "bits-forbidden", READY_INIT,
	  rtr_forbidden_bit, NULL },
	{ "rtr-alt-path", "an alternate path, as on InfiniBand",
	  "ibv_modify_qp: EINVAL", "alt-path", READY_INIT, rtr_alt_path, NULL },
	{ "rtr-gid-slot-empty", "sgid_index is a number out of habit",
	  "ibv_modify_qp: ENODATA", "gid-slot-empty", READY_INIT,
	  rtr_gid_slot_empty, NULL },
	{ "rtr-from-reset", "INIT is skipped", "ibv_modify_qp: EINVAL",
	  "no-way", READY_RESET, rtr_from_reset, NULL },
	{ "rtr-mtu-in-bytes", "path_mtu is 1500, not a value of the enum",
	  "ibv_modify_qp: EINVAL", "path-mtu-not-enum", READY_INIT,
	  rtr_mtu_in_bytes, NULL },
	{ "rtr-mtu-in-bytes-taken", "path_mtu is 1024; rxe makes 0 of it",
	  "ibv_modify_qp: 0", "path-mtu-not-enum", READY_INIT,
	  rtr_mtu_in_bytes_taken, NULL },
	{ "rate-limit", "IBV_QP_RATE_LIMIT on a device without it",
	  "ibv_modify_qp: EOPNOTSUPP", "bits-unsupported", READY_INIT,
	  rate_limit, NULL },
	{ "state-bit-forgotten", "IBV_QP_STATE is not in the mask",
	  "ibv_modify_qp: EINVAL", "state-bit-forgotten", READY_INIT,
	  state_bit_forgotten, NULL },
	{ "mask-empty", "the mask is 0", "ibv_modify_qp: 0", "mask-empty",
	  READY_INIT, mask_empty, NULL },
	{ "dest-rd-atomic-zero", "max_dest_rd_atomic 0 in RTR",
	  "ibv_modify_qp: 0", "dest-rd-atomic-zero", READY_INIT,
	  dest_rd_atomic_zero, NULL },
	{ "rts-after-failed-rtr", "nobody looks at what RTR returned",
	  "ibv_modify_qp: EINVAL", "no-way", READY_INIT, rts_after_failed_rtr,
	  NULL },
	{ "rts-missing-bits", "RNR_RETRY and MAX_QP_RD_ATOMIC are forgotten",
	  "ibv_modify_qp: EINVAL", "bits-missing", READY_INIT, rts_missing_bits,
	  NULL },
	{ "rtr-twice", "RTR is asked for a second time",
	  "ibv_modify_qp: EINVAL", "no-way", READY_INIT, rtr_twice, NULL },
	{ "rts-rd-atomic-large", "max_rd_atomic is above the device's limit",
	  "ibv_modify_qp: EINVAL", "rd-atomic-too-large", READY_INIT,
	  rts_rd_atomic_large, NULL },
	{ "rts-timeout-large", "timeout 32: it is an exponent of 5 bits",
	  "ibv_modify_qp: EINVAL", "timeout-too-large", READY_INIT,
	  rts_timeout_large, NULL },
	{ "rts-retry-seven", "retry_cnt 7, which on rxe never gives up",
	  "ibv_modify_qp: 0", "retry-forever", READY_INIT, rts_retry_seven,
	  NULL },
	{ "cur-state-skips-rtr", "IBV_QP_CUR_STATE says RTR of a QP in RESET",
	  "ibv_modify_qp: 0", "cur-state-lies", READY_RESET, cur_state_skips,
	  NULL },
	{ "cur-state-not-allowed", "IBV_QP_CUR_STATE says INIT",
	  "ibv_modify_qp: EINVAL", "cur-state-not-allowed", READY_INIT,
	  cur_state_not_allowed, NULL },
	{ "reset-to-err", "a new QP is moved to ERR", "ibv_modify_qp: EINVAL",
	  "no-way", READY_RESET, reset_to_err, NULL },
	{ "err-to-init", "a QP in ERR is brought to INIT to reconnect",
	  "ibv_modify_qp: EINVAL", "no-way", READY_CONNECTED, err_to_init,
	  NULL },
	{ 0 },
};
