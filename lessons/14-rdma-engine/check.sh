#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 14: a frame and the stream that cuts it, READs from a node that is
# stopped, a session to its end, what broke the original; each mistake brings its
# error, and nothing is left: no object, no process, no file.

. "$(dirname "$0")/../../labs/tests/lib.sh"

# In the lab. walk ARG…: the program, its exit code and what it leaves behind.
# shellcheck disable=SC2016
WALK='
left() {
	local names
	names=$(compgen -G "/tmp/rdma-engine-*"; pgrep -x needle_server
		pgrep -x rdma_engine)
	echo "left $(($(held) - before)) ${names//$'"'\n'"'/ }"
}
walk() {
	local rc=0
	before=$(held)
	timeout 60 "$B/14-rdma-engine" "$@" 2>&1 || rc=$?
	echo "rc=$rc $(left)"
}
B=$1
'

# One walk serves two tests.
oneTimeSetUp() { walked=$(in_lab "$WALK walk rxe0" "$B"); }

test_from_the_disk_to_the_client() {
	local out=$walked
	# The frame: every byte is accounted for, and both forms say the same.
	assert_in "$out" '^ +0  79 00 00 00 +length of the rest, little-endian$'
	assert_in "$out" '^ +5  a4 74 79 70 65 +"type"$'
	assert_in "$out" '^ +55  ce 5e ed 00 09 +1592590345$'
	assert_in "$out" '^ +124  c0 +nil$'
	assert_in "$out" '29 bytes as arrays, and it decodes to the same:$'
	assertEquals 'no no no 1 2' "$(grep -oP 'bytes arrive: \K\w+' <<<"$out" | xargs)"
	# The long needle does not hold up the short ones, and the node is stopped.
	assertEquals '2 2 2 2 2 3 1 2 2 2' "$(grep -oP 'completion +\d+: needle \K\d' \
		<<<"$out" | xargs)"
	assert_in "$out" '10 work requests, wr_id 0x7265616400000000 to 0x7265616400000009; 3 needles, each CRC-32C right$'
	# The session: only the engine can use its address, only read the memory.
	assert_in "$out" 'transfer_size 27, expected_crc 0x'
	assert_in "$out" 'write\(2\) from there: Bad address$'
	assert_in "$out" 'mapped, it reads "Hello from the storage node"$'
	assert_in "$out" 'mprotect\(PROT_WRITE\): Permission denied$'
	assert_in "$out" 'success true, server_crc 0x[0-9a-f]+, message "Session completed'
	assertEquals "both sides' CRC" 1 "$(sed '/what broke/,$d' <<<"$out" |
		grep -oP '(expected|client|server)_crc \K0x[0-9a-f]+' | sort -u | wc -l)"
	assert_in "$out" '^rc=0 left 0 $'
}

# What the engine answers to what broke the original, in their order.
test_what_broke_the_original() {
	local out
	out=$(sed -n '/what broke the original/,$s/^        //p' <<<"$walked" |
		sed -E 's/^(Error \([a-z]*\)|success [a-z]*).*/\1/')
	assertEquals "$(
		cat <<-'END'
			Pong
			Error (ipc)
			Pong
			Error (ipc)
			Error (ipc)
			Error (request)
			a session that expires in the year 2262
			27 bytes were read
			4 bytes were read, their CRC-32C is that of "from"
			Error (security)
			Error (session)
			success false
			success false
			Error (session)
			exit code 0, the socket's file is gone
		END
	)" "$out"
}

test_mistakes_bring_their_errors() {
	local out
	out=$(in_lab "$WALK"'
		for name in forget-prefix net-order any-wr-id wrong-rkey write \
			map-shared dead-node kill-node; do
			echo "== $name"
			walk --break $name
		done' "$B")
	assertEquals "$out" 8 "$(grep -c '^rc=1 left 0 $' <<<"$out")"
	assert_in "$out" 'the next message has 2759983104 bytes$'
	assert_in "$out" 'Message too large: 2030043136 bytes'
	assertEquals 'zeros there' "$(grep -oP 'last 64 bytes of needle 2: \K.*' \
		<<<"$out" | xargs)"
	assertEquals "two wr_ids" 2 "$(grep -oP 'a completion comes: .* wr_id \K.*' \
		<<<"$out" | sort -u | wc -l)"
	assert_in "$out" 'READ of 4096 bytes .* remote access error \(10\)'
	assertEquals 'Connection Input/output Connection' "$(grep -oP \
		'READ of needle \d: \K\S+' <<<"$out" | xargs)"
	assert_in "$out" 'the WRITE of 11 bytes at 0x[0-9a-f]+ on .* remote access error \(10\)'
	assert_in "$out" 'PROT_READ, MAP_PRIVATE: registered$'
	if rxe_does maps-read-only-files; then
		assert_in "$out" 'this kernel registers it'
	else
		assert_in "$out" 'ibv_reg_mr\(.*MAP_SHARED.*EFAULT \(14\)'
	fi
	assert_in "$out" '^    the TCP connection: closed by the node$'
	assert_in "$out" '^    the QP: RTS$'
	assert_in "$out" 'completed with transport retry counter exceeded \(12\)'
	assert_in "$out" 'refused StartRead: Network timeout after [0-9]+ms \(network\)'
	assertEquals "before and after" 2 \
		"$(grep -c 'StartRead: 27 bytes are there$' <<<"$out")"
}

test_wrong_usage() {
	timeout 10 "$B/14-rdma-engine" --break nonsense 2>/dev/null
	assertEquals 2 $?
	timeout 10 "$B/14-rdma-engine" rxe0 256 2>/dev/null
	assertEquals 2 $?
	timeout 10 "$B/14-rdma-engine" --help >/dev/null
	assertEquals 0 $?
}

. shunit2
