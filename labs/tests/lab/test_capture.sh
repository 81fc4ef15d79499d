#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/lab capture: the packets that a command caused.
. "$(dirname "$0")/../lib.sh"

# One run for most of them.
oneTimeSetUp() {
	W=$(mktemp -d "$ROOT/build/t.XXXXXX")
	export W B
	rc=0
	lab capture -w "$W/wire.pcap" --frame 1 bash -c '
		"$B/rdma_server" -q --json rxe0 >"$W/server" &
		"$B/rdma_client" -q --json 10.99.0.1 rxe1 >"$W/client"
		wait $!' >"$W/hello" 2>"$W/err" || rc=$?
}

oneTimeTearDown() { rm -rf "$W"; }

# number TEXT: which packet that is, without number and time
number() { awk -v text="$1" '/RC/ { n = $1; $1 = $2 = ""; if ($0 == text) print n }' "$W/hello"; }

# rxe tells the program that a message is there before it sends the ACK: the answer may
# overtake that.
test_four_packets_of_hello() {
	local server client to_server to_client hello its_ack answer last
	assertEquals "$(<"$W/err")" 0 "$rc"
	server=$(jq -r .local.psn "$W/server")
	client=$(jq -r .local.psn "$W/client")
	to_server=$(printf '0x%06x 0x%06x' "$(jq .local.qpn "$W/server")" "$client")
	to_client=$(printf '0x%06x 0x%06x' "$(jq .local.qpn "$W/client")" "$server")
	hello=$(number "  10.99.0.2 > 10.99.0.1 $to_server RC SEND_ONLY, 24 bytes, wants an ACK")
	its_ack=$(number "  10.99.0.1 > 10.99.0.2 ${to_client% *} ${to_server#* } RC ACK")
	answer=$(number "  10.99.0.1 > 10.99.0.2 $to_client RC SEND_ONLY, 24 bytes, wants an ACK")
	last=$(number "  10.99.0.2 > 10.99.0.1 ${to_server% *} ${to_client#* } RC ACK")
	assertEquals "$(<"$W/hello")" '1 2 3 4' "$(printf '%s\n' "$hello" "$its_ack" "$answer" "$last" | sort | xargs)"
	assertEquals 'what comes first' 1 "$hello"
	assertTrue "the answer is packet $answer, its ACK packet $last" "((answer < last))"
	assertEquals 'all that is RC' 4 "$(grep -c ' RC ' "$W/hello")"
	assertEquals 'time to live' 64 "$(tshark -r "$W/wire.pcap" -T fields -e ip.ttl infiniband.bth 2>/dev/null | sort -u)"
}

test_one_frame_byte_by_byte() {
	local at
	# header, offset: each byte is somewhere, once
	for at in Ethernet:0 IPv4:14 UDP:34 BTH:42 payload:54 ICRC:78; do
		assert_in "$(<"$W/hello")" "^ *${at#*:}  ([0-9a-f]{2} )+.* ${at%:*} " "$at"
	done
	assert_in "$(<"$W/hello")" '36  12 b7 +Destination Port: 4791'
	assert_in "$(<"$W/hello")" '54  48 65 6c 6c 6f .*payload +24 bytes'
	assertEquals "bytes" 82 "$(awk '/^byte/ { on = 1; next }
		on { n++; at = $1 } END { print at + 4 }' "$W/hello")"
}

# Each packet of both sides has its post and its completion beside it.
test_annotate() {
	local rc=0
	lab capture -w "$T/wire.pcapng" --annotate bash -c '
		"$B/rdma_server" -q rxe0 & "$B/rdma_client" -q 10.99.0.1 rxe1; wait $!' >"$T/out" 2>&1 || rc=$?
	assertEquals "$(<"$T/out")" 0 "$rc"
	tshark -r "$T/wire.pcapng" -Y infiniband.bth -T fields -e frame.comment >"$T/comments" 2>/dev/null
	assertEquals 4 "$(grep -cE '^(answers )?[AB] post_send QP [0-9]+ wr_id .*SUCCESS SEND' "$T/comments")"
	assertEquals 'answers' 2 "$(grep -c '^answers ' "$T/comments")"
	assertEquals 'and what arrived' 2 "$(grep -c 'completion QP .* SUCCESS RECV' "$T/comments")"
}

test_refusals_have_names() {
	local rc=0
	lab capture labs/faults/run rnr rkey-wrong >"$T/out" 2>&1 || rc=$?
	assertEquals "$(<"$T/out")" 0 "$rc"
	assert_in "$(<"$T/out")" ' RC RNR NAK: retry after 0.64 ms'
	assert_in "$(<"$T/out")" ' RC WRITE_ONLY, 64 bytes at 0x[0-9a-f]+, rkey 0x[0-9a-f]+, wants an ACK'
	assert_in "$(<"$T/out")" ' RC NAK: remote access error'
}

test_exit_code_and_nothing_seen() {
	lab capture bash -c 'echo out; cat; exit 7' <<<in >"$T/out" 2>"$T/err"
	assertEquals 7 $?
	assertEquals $'out\nin' "$(head -n 2 "$T/out")"
	assert_in "$(<"$T/out")" '^no packets: '
	assertEquals "" "$(compgen -G "$B/lab/wire.*" || compgen -G "$ROOT/build/lab/wire.*")"
}

test_usage() {
	local args
	for args in '' '-w' '--frame x true' '--nonsense true'; do
		# shellcheck disable=SC2086
		lab capture $args >/dev/null 2>"$T/err"
		assertEquals "capture $args" 2 $?
		assert_in "$(<"$T/err")" '^lab: next: ' "capture $args"
	done
	labs/tools/packets Makefile >"$T/out" 2>"$T/err"
	assertEquals 1 $?
	assertEquals '' "$(<"$T/out")"
	assert_in "$(<"$T/err")" '^packets: Makefile cannot be read, or is no capture file$'
}

. shunit2
