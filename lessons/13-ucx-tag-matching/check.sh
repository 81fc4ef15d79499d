#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 13: messages and receives find each other in the order of the rules, a
# large message is READ and not sent, each mistake shows what it does, and
# nothing is left.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_both_queues_and_a_rendezvous() {
	local out
	out=$(in_lab '
		sends() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends; }
		before=$(held) sent=$(sends)
		timeout 30 "$1"/13-ucx-tag-matching rxe0 2>&1
		echo "rc=$? left $(($(held) - before)) sends $(($(sends) - sent))"' "$B")
	# The oldest receive, though another fits as well.
	assert_in "$out" '^ +posted: +\[0x0 any\] \[0x101 exactly\]$'
	assert_in "$out" 'the first receive got "hello", tag 0x101$'
	assert_in "$out" 'the second receive got "world", tag 0x101$'
	# Out of the middle, by mask, then whatever is left.
	assert_in "$out" 'unexpected: \[0x201 eager 4\] \[0x202 eager 4\] \[0x203 eager 6\]$'
	assertEquals 'two three one' "$(sed -n 's/^ *it got "\(.*\)", tag.*/\1/p' \
		<<<"$out" | xargs)"
	assert_in "$out" 'unexpected: \[0x301 RTS for 65536\]$'
	assert_in "$out" "A's send is not done; READs so far: 0$"
	assert_in "$out" 'B has 65536 bytes, the right ones; READs so far: 1$'
	assert_in "$out" 'B probes kind 4: there is one, tag 0x401, 15 bytes$'
	assert_in "$out" 'B cancels it: status ECANCELED$'
	# Six eager messages, one RTS and one FIN: the 64 KiB were not sent.
	assert_in "$out" '^rc=0 left 0 sends 8$'
}

test_mistakes_show_what_they_do() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in wide-mask wrong-tag too-small no-receive early-reuse \
			no-rd-atomic; do
			echo "== $name"
			timeout 30 "$1"/13-ucx-tag-matching --break $name 2>&1
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 6 "$(grep -c ' rc=1$' <<<"$out")"
	assert_in "$out" 'it got "kind 1, stream 5", tag 0x105$'
	assert_in "$out" 'no message fits tag 0x501, .* 1 unexpected: tag 0x502'
	assert_in "$out" "B's buffer: \"untouched\"\$"
	assert_in "$out" 'of 16 bytes does not fit 10: truncated, and gone$'
	assert_in "$out" 'B keeps 8 on the heap and 64 in its ring$'
	assert_in "$out" 'was not sent within 1000 ms: .*no credit'
	assert_in "$out" "B received 65536 bytes 'x', not what was sent\$"
	assert_in "$out" 'were read within 1000 ms: max_rd_atomic is 0'
	assert_in "$out" '^left 0$'
}

. shunit2
