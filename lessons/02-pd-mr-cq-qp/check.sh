#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 02: the objects are what was asked for, and gone afterwards.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_objects_are_what_was_asked_for() {
	local out rc
	out=$(lab run "$B/02-pd-mr-cq-qp" rxe0)
	rc=$?
	assertEquals 0 $rc
	assert_in "$out" 'QP  number 0x[0-9a-f]{6}, state RESET'
	assert_in "$out" 'CQ  asked for 2 entries, got [2-9]'
	assert_in "$out" 'receive slot 0 at \+0, send slot 0 at \+4096'
}

test_nothing_is_left() {
	assertEquals 0 "$(in_lab '
		before=$(held)
		"$1"/02-pd-mr-cq-qp >/dev/null
		echo $(($(held) - before))' "$B")"
}

test_mistakes_bring_their_errors_and_leave_nothing() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in access order; do
			"$1"/02-pd-mr-cq-qp --break $name 2>&1 >/dev/null
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assert_in "$out" 'ibv_reg_mr\(8192 bytes, REMOTE_WRITE\) failed: EINVAL'
	assert_in "$out" '^access rc=1$'
	assert_in "$out" 'ibv_dealloc_pd\(\) failed: EBUSY'
	assert_in "$out" '^order rc=1$'
	assert_in "$out" '^left 0$'
}

. shunit2
