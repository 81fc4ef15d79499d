#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 04: the bytes are big-endian and where the contract says, and a bad
# peer is refused in time.

. "$(dirname "$0")/../../labs/tests/lib.sh"

# The hex digits of field $1 in the dump, without blanks.
field() { sed -n "s/^ *[0-9]*  $1  *\([0-9a-f ]*\)$/\1/p" <<<"$dump" | tr -d ' '; }

oneTimeSetUp() { dump=$(lab run "$B/04-tcp-sync" rxe0); }

test_bytes_on_the_wire_are_big_endian() {
	local qpn
	qpn=$(sed -n 's/.*connected to QP 0x\([0-9a-f]*\)$/\1/p' <<<"$dump")
	assertEquals "00$qpn" "$(field qp_num)"
	assertEquals 0000 "$(field lid)"
	assertEquals 00000000000000000000ffff0a630001 "$(field gid)"
	assertEquals 05 "$(field active_mtu)" # IBV_MTU_4096
	assertEquals 00001000 "$(field size)"
	assert_in "$(field psn)" '^00[0-9a-f]{6}$'
	assertEquals 002b "$(field length)" # 43 bytes
}

test_both_sides_reach_rts() {
	assert_in "$dump" 'my QP 0x[0-9a-f]{6} is in RTS'
}

test_a_bad_peer_is_refused_and_leaves_nothing() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in byte-order version half silent; do
			timeout 20 "$1"/04-tcp-sync --break $name 2>&1 >/dev/null
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assertEquals 4 "$(grep -c ' rc=1$' <<<"$out")"
	assert_in "$out" 'qp_num is not 2 ... 0xffffff'
	assert_in "$out" 'version 2 length 43; mine is 0x52434d45 version 1'
	assert_in "$out" "the peer's cm_con_data_t: the peer closed"
	assert_in "$out" "the peer's hello: nothing came before the deadline"
	assert_in "$out" '^left 0$'
}

. shunit2
