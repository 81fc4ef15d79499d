#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Eight processes in a ring (ranks.c), each recorded: with a mistake in one of them, the
# report of the folder names that one first, wherever the others have failed; with none,
# nobody is accused, then or while they run.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

rules=(modify_qp:INIT:port_num=2 modify_qp:RTR:dest_qp_num+1 modify_qp:RTR:rq_psn+1
	modify_qp:RTR:path_mtu=1024 modify_qp:RTR:is_global=0 modify_qp:RTR:mask-AV
	modify_qp:RTR:skip modify_qp:RTS:kill create_qp:max_send_wr=0x7fffffff reg_mr:early
	reg_mr:access-LOCAL_WRITE post_recv:3:sge.length=4 post_recv:2:sge.lkey^0x40
	post_send:9:sge.lkey^0x40 post_send:9:opcode=99 post_send:9:skip post_send:30:kill
	post_send:30:sleep=60 poll:40+:skip tcp:lose)

# ring DIR: eight ranks, the one of number $culprit with $rule, until all have ended
ring() {
	local rank sabotage
	for rank in 7 6 5 4 3 2 1 0; do
		sabotage=()
		[[ $rank != "$culprit" ]] || sabotage=("$B/sabotage" "$rule")
		timeout 90 labs/qptrace -o "$1/$rank.qpt" --stall "$stall" -- \
			"${sabotage[@]}" "$B/ranks" "$rank" 8 "$port" "$patience" >"$1/$rank.out" 2>"$1/$rank.err" &
	done
	wait
}

in_the_lab() {
	local port=21000 rule culprit stall patience i
	for ((i = 0; i < ${#rules[@]} + 10; i++, port += 8)); do
		rule=${rules[i]:-} culprit=$((i % 8)) stall=2 patience=8000
		[[ $rule ]] || culprit=none stall=30 patience=60000
		mkdir -p "$B/ring/$i"
		ring "$B/ring/$i"
	done
}

oneTimeSetUp() {
	must_build "$B/sabotage" "$B/libsaboteur.so" "$B/libqptrace.so" "$B/qptrace-report"
	helper "$B/ranks" -O2 labs/tests/recorder/ranks.c "$B/librdma_common.a" -libverbs
	built_in
	rm -rf "$B/ring" && mkdir -p "$B/ring"
	T=$B/ring in_lab "$(declare -p rules)
		$(declare -f ring in_the_lab); in_the_lab"
}

test_the_culprit_is_first() {
	need_lab || return 0
	local i first rank missed=()
	for i in "${!rules[@]}"; do
		first=$(causes '"\(.side) \(.id): \(.cause)"' "$B/ring/$i" | head -n 1)
		rank=$(tr 0-7 A-H <<<$((i % 8)))
		[[ $first == "$rank "* || $first == *"($rank, "* ]] || missed+=("${rules[i]} in $rank: $first")
	done
	assertTrue "$(printf '%s\n' "${missed[@]}")" '((${#missed[@]} <= 1))'
}

test_who_did_nothing_wrong() {
	need_lab || return 0
	local i
	for ((i = ${#rules[@]}; i < ${#rules[@]} + 10; i++)); do
		assertEquals "run $i" '' "$(grep -h 'cause:\|failed:' "$B/ring/$i"/*.err)"
		assertEquals "run $i" '' "$(causes 'select(.kind == "failure" or .kind == "stall") | .id' "$B/ring/$i")"
	done
}

# shellcheck disable=SC1091
. shunit2
