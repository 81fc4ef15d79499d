#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 08: what arrives without the peer's program, what the two gates refuse,
# and what is not what it seems.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../../labs/tests/lib.sh"

test_the_walk_ends_well_on_two_devices_and_on_one() {
	local out
	out=$(in_lab '
		before=$(held)
		"$1"/08-one-sided && "$1"/08-one-sided rxe0
		echo "rc=$? left $(($(held) - before))"' "$B")
	assertEquals 2 "$(grep -c "B's text: \"Hello from QP A!\"$" <<<"$out")"
	assertEquals 2 "$(grep -c 'B: RECV, "there"; B.s text: "data"$' <<<"$out")"
	assertEquals 2 "$(grep -c 'atomic with respect to: IBV_ATOMIC_' <<<"$out")"
	assertEquals 2 "$(grep -c 'RECV_RDMA_WITH_IMM, immediate 2026, byte_len 4$' <<<"$out")"
	assertEquals 2 "$(grep -c 'the copy is the page, all 8192 bytes' <<<"$out")"
	assertEquals 2 "$(grep -c 'it was 100, not swapped; it is 100$' <<<"$out")"
	assertEquals 2 "$(grep -c 'the counter is 800$' <<<"$out")"
	assertEquals 2 "$(grep -c 'completion says that rkey 0x.* is invalid now$' <<<"$out")"
	assert_in "$out" '^rc=0 left 0$'
}

# said NAME PATTERN: what --break NAME said
said() {
	assert_in "$(sed -n "/^-- $1$/,/^rc=/p" <<<"$out")" "$2"
}

test_mistakes_bring_their_errors_and_leave_nothing() {
	local out name
	out=$(in_lab '
		before=$(held)
		for name in $("$1"/08-one-sided --help | sed -n "s/^      \([a-z-]*\) .*/\1/p"); do
			echo "-- $name"
			timeout 60 "$1"/08-one-sided --break $name 2>&1
			echo "rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 17 "$(grep -c '^rc=1$' <<<"$out")"
	assertEquals 17 "$(grep -c '^rc=' <<<"$out")"
	for name in wrong-rkey mr-no-write past-end deregistered old-window mr-key; do
		said "$name" 'remote access error \(10\)'
	done
	said qp-no-write 'remote invalid request error \(9\)'
	said unaligned 'ibv_post_send\(.*\) failed: EINVAL.*not a multiple of 8$'
	said no-reads 'no completion .* max_rd_atomic is 0'
	said many-reads 'failed: EINVAL .* max_qp_init_rd_atom'
	said lost-updates '8 clients added 1, 100 times each, and the counter is 100$'
	said no-notice 'no completion on QP .* within 500 ms'
	said no-receive 'RNR retry counter exceeded \(13\)'
	said flag-first 'took "old", not "Hello from QP A!"$'
	said no-fence "page's end was written before it was read"
	# What keeps a window's bounds says 10; rxe does not.
	said past-window 'past the window, and was not refused|remote access error \(10\)'
	said guess "A has read \"B's, and not for A\""
	assert_in "$out" '^left 0$'
}

. shunit2
