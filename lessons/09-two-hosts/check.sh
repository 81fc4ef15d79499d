#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 09: what the captures of the page show, and what loss, a firewall and a smaller
# MTU do between two hosts.
. "$(dirname "$0")/../../labs/tests/lib.sh"

here=lessons/09-two-hosts
export LAB=vm

oneTimeSetUp() {
	two_hosts_apart
	two_hosts_up
}

oneTimeTearDown() { two_hosts_down; }

# counter HOST NAME: what $T/out says that it grew by
counter() { sed -n "s/^$1 |  *$2  *+//p" "$T/out"; }

test_captures() {
	local name want
	while read -r name want; do
		labs/wire "$here/captures/$name" >"$T/out"
		assertEquals "$name" 0 $?
		assert_in "$(<"$T/out")" "^$want$" "$name"
		assert_in "$(tail -n 1 "$T/out")" '^tied to a call: ([0-9]+) of \1 data packets' "$name"
	done <<-'END'
		one 1 data packets and 1 answers: 0 lost, 0 sent again, 0 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		long 64 data packets and 1 answers: 0 lost, 0 sent again, 0 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		write 4 data packets and 1 answers: 0 lost, 0 sent again, 0 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		read 5 data packets and 0 answers: 0 lost, 0 sent again, 0 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		loss 11 data packets and 9 answers: 1 lost, 4 sent again, 0 twice, 0 overtaken; 1 NAKs, 0 RNR NAKs
		acks 14 data packets and 14 answers: 0 lost, 12 sent again, 0 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		twice 10 data packets and 10 answers: 0 lost, 0 sent again, 2 twice, 0 overtaken; 0 NAKs, 0 RNR NAKs
		reorder 23 data packets and 17 answers: 0 lost, 8 sent again, 0 twice, 9 overtaken; 2 NAKs, 0 RNR NAKs
	END
	assert_in "$(labs/tools/packets "$here/captures/ecn/wire.pcap.gz" 1)" 'ECN: CE\)'
}

# Every byte is right, and the capture has what A's card has counted, though the clocks of
# the hosts differ by 25 years.
test_loss_is_repaired_and_counted() {
	local tied
	need_two_hosts || return 0
	lab run --on B date -s @1000000000 >/dev/null
	$here/try --net 'B loss 4%' --wire "$T" -n 300 -t 17 >"$T/out"
	assertEquals 0 $?
	assert_in "$(<"$T/out")" '^A \| 300 of 300 messages received, every byte right$'
	labs/wire "$T" >"$T/wire"
	assertEquals 'each NAK is for a gap' "$(counter A out_of_seq_request)" "$(grep -c 'NAK: PSN sequence error' "$T/wire")"
	assertEquals 'what arrived' "$(counter A rcvd_pkts)" "$(sed -n 's/^\([0-9]*\) data packets.*/\1/p' "$T/wire")"
	assertTrue 'B went back' "(($(counter B completer_retry_err) > 0))"
	assertTrue 'B sent more than arrived' "(($(counter B sent_pkts) > $(counter A rcvd_pkts)))"
	assert_in "$(<"$T/wire")" '<- sent again, after a NAK$'
	tied=$(sed -n 's/^tied to a call: \([0-9]*\) of \([0-9]*\) data.*/\1 * 100 >= \2 * 99/p' "$T/wire")
	assertTrue "$tied" "((${tied:-0}))"
	# B's first call is less than a second before the first packet
	assert_in "$(sed -n 2p "$T/wire")" '^ +-?[0-9]{1,3}\.[0-9]+ +B post_send'
}

test_without_acks_all_has_arrived() {
	need_two_hosts || return 0
	$here/try --net 'B block-roce in' -n 8 >"$T/out"
	assertEquals 1 $?
	assert_in "$(<"$T/out")" '^A \| 8 of 8 messages received'
	assert_in "$(<"$T/out")" '^B \| 0 of 8 SENDs'
	assert_in "$(<"$T/out")" '^B \| error: .*transport retry counter exceeded \(12\)'
	assertEquals 'eight packets, seven times' 56 "$(counter B sent_pkts)"
	assertEquals 'all of them arrived' 56 "$(counter A rcvd_pkts)"
}

# 6.1 waits for ever; later kernels fail at once.
test_a_smaller_mtu() {
	need_two_hosts || return 0
	$here/try --mid 'A mtu 600' --every 20 -n 90 -t 17 >"$T/out"
	assertEquals "the receiver's" 0 $?
	assert_in "$(<"$T/out")" '^B \| 90 of 90 SENDs'
	$here/try --mid 'B mtu 600' --every 20 -n 200 --wait 1 -t 17 >"$T/out"
	assertEquals "the sender's" 1 $?
	assert_in "$(<"$T/out")" '^B \| error: (no completion within 1000 ms|.*\(5\)): path_mtu 1024 bytes exceeds'
}

test_wrong_usage() {
	local words
	need_two_hosts || return 0
	timeout 60 $here/try --mid 'A down' --op steal >"$T/out"
	assertEquals 'try' 2 $?
	assert_in "$(<"$T/out")" '^B \| error: .*steal'
	for words in '' 'client --op steal ::1' 'server --size 3' 'client'; do
		# shellcheck disable=SC2086 # words
		on_host "$B/09-two-hosts" $words >/dev/null 2>&1
		assertEquals "$words" 2 $?
	done
}

. shunit2
