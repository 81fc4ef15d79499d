#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 03: rdma(8), an outside observer, must see the same walk.

. "$(dirname "$0")/../../labs/tests/lib.sh"

oneTimeSetUp() { walk=$(lab run "$B/03-qp-states" rxe0); }

test_rdma_resource_sees_every_state_in_order() {
	assertEquals "RESET INIT RTR RTS SQD ERR RESET" "$(
		sed -n 's/^link rxe0.* state \([A-Z]*\) .*/\1/p' <<<"$walk" |
			xargs
	)"
}

test_ibv_query_qp_agrees_with_rdma_resource() {
	assertEquals "RESET INIT RTR RTS SQD ERR RESET" "$(
		sed -n 's/.*library cache .*, kernel \([A-Z]*\)$/\1/p' \
			<<<"$walk" | xargs
	)"
}

test_psn_and_qpn_are_what_was_asked_for() {
	local facts kernel
	facts=$(sed -n 's/.*dest QPN \([0-9]*\), rq_psn \([0-9]*\), sq_psn \([0-9]*\), path_mtu \([0-9]*\)/\1 \2 \3 \4/p' \
		<<<"$walk" | tail -1)
	kernel=$(sed -n 's/.* rqpn \([0-9]*\) .*state RTS rq-psn \([0-9]*\) sq-psn \([0-9]*\) .*/\1 \2 \3/p' \
		<<<"$walk")
	assertNotNull "$kernel"
	assertEquals "$kernel 4096" "$facts"
	# Connected to itself: what it expects is what it will send.
	read -r _ rq sq <<<"$kernel"
	assertEquals "$rq" "$sq"
}

test_mistakes_bring_their_errors_and_leave_nothing() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in skip-rtr no-grh one-bit empty-gid no-neighbour \
			err-to-init; do
			"$1"/03-qp-states --break $name 2>&1 >/dev/null
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 6 "$(grep -c ' rc=1$' <<<"$out")"
	assert_in "$out" 'EINVAL.*is in INIT, and no transition leads from INIT to RTS'
	assert_in "$out" 'EINVAL.*no GRH \(is_global is 0\)'
	assert_in "$out" 'EINVAL.*INIT -> RTR also requires MIN_RNR_TIMER$'
	assert_in "$out" 'ENODATA.*slot 7 of the GID table is empty'
	assert_in "$out" 'ETIMEDOUT.*did not answer ARP|ETIMEDOUT.*nobody'
	assert_in "$out" 'EINVAL.*is in ERR, and no transition leads from ERR to INIT'
	assert_in "$out" '^left 0$'
}

. shunit2
