#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 05: the message arrives, the packets are counted by the device, and
# each mistake brings its completion status.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_the_message_arrives_and_the_device_counts_it() {
	local out
	out=$(in_lab '
		count() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/$1; }
		sent=$(count sent_pkts) twice=$(count duplicate_request)
		"$1"/05-send-recv rxe0
		rc=$? twice=$(($(count duplicate_request) - twice))
		echo "rc=$rc packets $(($(count sent_pkts) - sent)), $twice came twice"' "$B")
	assert_in "$out" 'status success, opcode RECV$'
	assert_in "$out" '^ +byte_len 17$'
	assert_in "$out" "B's slot 0: \"Hello from QP A!\""
	assert_in "$out" 'status success, opcode SEND'
	# The SEND and its ACK; on a busy machine both may be sent again.
	assert_in "$out" '^rc=0 packets (2, 0|[3-9], [1-9]) came twice$'
}

test_mistakes_bring_their_errors_and_leave_nothing() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in no-receive too-small bad-lkey too-early; do
			timeout 20 "$1"/05-send-recv --break $name 2>&1 >/dev/null
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 4 "$(grep -c ' rc=1$' <<<"$out")"
	assert_in "$out" 'RNR retry counter exceeded \(13\)'
	assert_in "$out" 'remote operation error \(11\)'
	assert_in "$out" 'local QP operation error \(2\)'
	assert_in "$out" 'ibv_post_send\(.*\) failed: EINVAL'
	assert_in "$out" '^left 0$'
}

. shunit2
