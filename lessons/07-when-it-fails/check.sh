#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 07: a QP fails, answers with flushes, comes back and delivers; each
# mistake brings the cause that its name promises, and nothing is left.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_a_qp_fails_and_comes_back() {
	local out status='local QP operation error \(2\)'
	! rxe_does hides-local-errors || status='Work Request Flushed Error \(5\)'
	out=$(in_lab '
		before=$(held)
		timeout 30 "$1"/07-when-it-fails rxe0 2>&1
		echo "rc=$? left $(($(held) - before))"' "$B")
	assert_in "$out" "error: .* completed with $status"
	assert_in "$out" 'the library remembers RTS, the kernel has ERR$'
	assert_in "$out" 'came back: Work Request Flushed Error \(5\)$'
	assert_in "$out" 'SQD -> RTS: timeout 16, retry_cnt 5$'
	assertEquals "delivered" 2 "$(grep -c 'B received "back again"' <<<"$out")"
	assert_in "$out" '^rc=0 left 0$'
}

test_mistakes_bring_their_causes() {
	local out forgotten='^error: .*EINVAL \(22\): the mask \(.*\) lacks IBV_QP_STATE'
	! rxe_does takes-masks-without-state ||
		forgotten='^warning: the mask \(EN_SQD_ASYNC_NOTIFY\) lacks IBV_QP_STATE'
	out=$(in_lab '
		before=$(held)
		for name in err-to-init reset-to-err assumed-state no-state-bit \
			cur-state wrong-psn; do
			echo "== $name"
			timeout 30 "$1"/07-when-it-fails --break $name 2>&1
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 6 "$(grep -c ' rc=1$' <<<"$out")"
	assert_in "$out" 'ERR -> INIT, .* EINVAL \(22\): .*no transition leads from ERR to INIT'
	assert_in "$out" 'RESET -> ERR, .* EINVAL \(22\): .*no transition leads from RESET to ERR'
	assert_in "$out" 'RTS -> RTR, .* EINVAL \(22\): .*no transition leads from RTS to RTR'
	assert_in "$out" "$forgotten"
	assert_in "$out" '^warning: cur_qp_state says RTS, but the QP is in ERR'
	# B has nothing, A was told otherwise.
	assert_in "$out" "^    A's send completed with success$"
	assert_in "$out" 'no completion on QP [0-9]+ within 1000 ms'
	assert_in "$out" '^left 0$'
}

. shunit2
