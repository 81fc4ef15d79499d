#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What lesson 08 says of UCX's hang over UD: the run that hangs, three changes of
# which each must cure it, and that the script ends all it has started.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# hang NAME ARG…: hang.sh in the lab, its output in $T/NAME.out and .rc
hang() {
	local name=$1
	shift
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 1; }
	export HANG="$*" NAME=$name
	in_lab 'run "$NAME" lessons/08-ucx-tag-matching/hang.sh $HANG
		! pgrep -x ucx_perftest'
}

# counter NAME DEVICE COUNTER
counter() { sed -n "s/^$2:.* $3 \([0-9]*\).*/\1/p" "$T/$1.out"; }

# Messages arrive and are received, both ways, and nothing comes of it.
test_ud_over_ipv4_hangs() {
	hang hung --seconds 4 --trace "$T/hung.json" --log "$T/hung.log" \
		UCX_TLS=ud_verbs UCX_LOG_LEVEL=debug || return 0
	assertEquals "$(out_of hung)" 1 "$(rc_of hung)"
	assert_in "$(out_of hung)" '^server on rxe0: not done after 4 s'
	assert_in "$(out_of hung)" '^client on rxe1: not done after 4 s'
	local d
	for d in rxe0 rxe1; do
		assertTrue "$d received" "(($(counter hung $d rdma_recvs) > 0))"
		assertEquals "$(counter hung $d rcvd_pkts)" "$(counter hung $d rdma_recvs)"
	done
	assertEquals "$(counter hung rxe0 sent_pkts)" "$(counter hung rxe1 rcvd_pkts)"
	assertEquals "$(counter hung rxe1 sent_pkts)" "$(counter hung rxe0 rcvd_pkts)"
	assertEquals 'what the program was given' 'RECV SUCCESS 105' \
		"$(jq -r 'select(.ev == "completion" and .op == "RECV") |
			"\(.op) \(.status) \(.len)"' "$T/hung.json" | sort -u)"
	assert_in "$(cat "$T/hung.log")" 'resending rt_psn 1 .*acked_psn 0'
}

test_over_ipv6_it_runs() {
	hang six --seconds 60 UCX_TLS=ud_verbs UCX_IB_GID_INDEX=0 || return 0
	assertEquals "$(out_of six)" 0 "$(rc_of six)"
}

test_without_the_check_it_runs() {
	hang unchecked --seconds 60 UCX_TLS=ud_verbs \
		UCX_UD_VERBS_ETH_DGID_CHECK=n || return 0
	assertEquals "$(out_of unchecked)" 0 "$(rc_of unchecked)"
	hang aux --seconds 60 UCX_TLS=rc_verbs,ud_verbs:aux \
		UCX_UD_VERBS_ETH_DGID_CHECK=n || return 0
	assertEquals "$(out_of aux)" 0 "$(rc_of aux)"
}

test_with_one_byte_changed_it_runs() {
	"${CC:-cc}" -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -fPIC -shared \
		-o "$B/set_sl.so" labs/tests/set_sl.c || fail 'set_sl.c'
	hang byte --seconds 60 UCX_TLS=ud_verbs "LD_PRELOAD=$B/set_sl.so" || return 0
	assertEquals "$(out_of byte)" 0 "$(rc_of byte)"
	rm -f "$B/set_sl.so"
}

# RC alone cannot exchange its QPNs, and says so.
test_rc_alone_fails_at_once() {
	hang alone UCX_TLS=rc_verbs || return 0
	assertEquals 1 "$(rc_of alone)"
	assert_in "$(out_of alone)" \
		'^client on rxe1: failed \(exit code 255\): no auxiliary transport'
}

test_usage() {
	local args rc
	for args in '--seconds 0' '--seconds x' --seconds '--nonsense' word \
		'UCX_TLS=tcp --trace'; do
		rc=0
		# shellcheck disable=SC2086 # words
		lessons/08-ucx-tag-matching/hang.sh $args >"$T/out" 2>"$T/err" || rc=$?
		assertEquals "$args" 2 "$rc"
		assertEquals "$args" '' "$(cat "$T/out")"
		assert_in "$(cat "$T/err")" 'hang.sh: next: '
	done
	assert_in "$(lessons/08-ucx-tag-matching/hang.sh --help)" '^usage: hang.sh'
}

# shellcheck disable=SC1091
. shunit2
