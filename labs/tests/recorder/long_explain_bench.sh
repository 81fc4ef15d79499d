#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/faults/explain-bench: 60 of its cases, drawn anew for each commit, and the
# correct runs of a few programs.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# Of 679 cases 96.2 % were named first (98.1 % of the seen half, 94.3 % of the unseen one)
# and 1.6 % wrong. A sample as bad as these bounds comes once in a thousand. The goal is
# 95 % and 1 % on both halves: move them with it.
LEAST_FIRST=85
MOST_WRONG=9

test_a_sample() {
	local said first wrong rc=0
	labs/faults/explain-bench --sample 60 >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "exit code: $(tail -n 5 "$T/err")" 0 "$rc"
	said=$(awk '$1 == "all"' "$T/out" | tail -n 1)
	assert_in "$said" '^all '
	first=$(awk '{ print int(100 * $2 / ($2 + $3 + $4 + $5 + $6)) }' <<<"$said")
	wrong=$(awk '{ print int(100 * $6 / ($2 + $3 + $4 + $5 + $6)) }' <<<"$said")
	assertTrue "$first % named first, of $(cat "$T/out")" "[ $first -ge $LEAST_FIRST ]"
	assertTrue "$wrong % wrong, of $(cat "$T/out")" "[ $wrong -le $MOST_WRONG ]"
}

# Once each was silent, vague or wrong.
test_what_was_missed_once() {
	local name names=() rc=0
	for name in read_bw.server.modify_qp:RTR:skip send_bw_ud.during.net:firewall \
		uc_pingpong_events.before.net:firewall uc_pingpong_events.client.arm:solicited=1 \
		send_bw_srq.before.net:firewall read_lat_cm.before.net:firewall \
		rc_pingpong_events.server.tcp:lose send_bw_events.client.post_send:skip \
		send_lat_events.server.create_cq:channel=0 read_lat.before.net:firewall \
		srq_pingpong.server.create_qp:recv_cq=0 ours.client.post_send:3:twice \
		send_bw.client.post_send:3:twice rdma_client.server.post_send:skip \
		uc_pingpong_events.client.post_send:send_flags-SIGNALED \
		rdma_xclient.before.net:firewall ucmatose.before.net:wrong-mac \
		ucmatose.client.post_send:opcode=99 ours_events.server.arm:skip \
		ours_events.before.net:way-back udaddy.client.modify_qp:RTS:sleep=60 \
		send_lat_events.client.poll:1+:skip rdma_client.client.poll:1+:skip \
		ucmatose.client.resolve_addr:port^0x100 rdma_xclient.before.net:way-back \
		ud_pingpong.client.post_send:sge.length=0x7fffff00 \
		'ucx_am_lat.client.reg_mr:length<<24'; do
		names+=(--case "$name")
	done
	labs/faults/explain-bench "${names[@]}" >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "$(tail -n 5 "$T/err")" 0 "$rc"
	assertEquals "$(grep -E '^[a-z_]*\.[a-z]*\..*: (wrong|vague|silent|right) ' "$T/out")" \
		$((${#names[@]} / 2)) "$(grep -cE ': right-first \(expected' "$T/out")"
}

. shunit2
