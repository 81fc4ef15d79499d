#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server and rdma_client do what they promise: over the veth between rxe0
# and rxe1, with every option, every size, in every state they pass through.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# assert_crossed NAME: what one side calls local, the other calls remote.
assert_crossed() {
	assertEquals "$1: local of the client" \
		"$(json "$1.server" .remote)" "$(json "$1.client" .local)"
	assertEquals "$1: local of the server" \
		"$(json "$1.client" .remote)" "$(json "$1.server" .local)"
}

# The first run is watched from outside: packets on veth0, counters.
test_one_message_each_way_over_the_wire() {
	local mine first
	in_lab '
		captured() { (($(stat -c %s "$T/wire") > 600)); }
		sent() { cat /sys/class/net/veth0/statistics/tx_packets; }
		echo "$(sent)" >"$T/sent"
		# To stdout: dumpcap gives up the right to open a file of another user.
		dumpcap -q -i veth0 -f "udp port 4791" -w - >"$T/wire" 2>"$T/dumpcap" &
		dumper=$!
		await in_file "^File: " "$T/dumpcap"
		pair a --json rxe0 : --json 127.0.0.1 rxe1
		await captured
		kill -INT "$dumper"
		wait "$dumper"
		pair b --json rxe0 : --json 127.0.0.1 rxe1
		echo "$(sent)" >>"$T/sent"
	' || return 0
	assert_pair a
	assert_pair b
	assert_crossed a
	assertEquals rxe0 "$(json a.server .device)"
	assertEquals rxe1 "$(json a.client .device)"
	assertEquals ::ffff:10.99.0.1 "$(json a.server .local.gid)"
	assertEquals ::ffff:10.99.0.2 "$(json a.client .local.gid)"
	assertEquals "Hello from RDMA server!" "$(json a.client .received_text)"
	assertEquals "Hello from RDMA client!" "$(json a.server .received_text)"
	assertEquals 24 "$(json a.client .sent_bytes)"
	assertEquals 24 "$(json a.server .received_bytes)"
	for mine in server client; do
		assertEquals 4096 "$(json "a.$mine" .path_mtu)"
		assertTrue "[[ $(json "a.$mine" .local.psn) -lt 16777216 ]]"
		assertNotEquals "the PSN is random" \
			"$(json "a.$mine" .local.psn)" "$(json "b.$mine" .local.psn)"
	done
	# From rxe0: a SEND and an ACK, two runs.
	assertTrue "packets on veth0: $(xargs <"$T/sent")" \
		"[[ $(($(tail -n 1 "$T/sent") - $(head -n 1 "$T/sent"))) -ge 4 ]]"

	# The server's message and the ACK of the client's, as they left rxe0.
	tshark -r "$T/wire" -Y infiniband.bth -T fields -e ip.src -e udp.dstport \
		-e infiniband.bth.opcode -e infiniband.bth.destqp \
		-e infiniband.bth.psn -e ip.ttl -e infiniband.payload \
		>"$T/packets" 2>/dev/null
	first=$(awk '$1 == "10.99.0.2" && $3 == 4' "$T/packets" | head -n 1)
	assert_in "$first" "^10.99.0.2.4791.4.$(printf '0x%06x' "$(json a.server .local.qpn)").$(json a.client .local.psn)\b" \
		"the client's SEND"
	first=$(awk '$1 == "10.99.0.1" && $3 == 4' "$T/packets" | head -n 1)
	assert_in "$first" "^10.99.0.1.4791.4.$(printf '0x%06x' "$(json a.client .local.qpn)").$(json a.server .local.psn)\b" \
		"the server's SEND"
	assertEquals "time to live" 64 "$(awk '{ print $6 }' <<<"$first")"
}

test_defaults() {
	in_lab '
		pair a : 127.0.0.1
		port=2000 pair port rxe0 2000 : 127.0.0.1 rxe1 2000
		port=2001 pair gid1 rxe0 2001 1 : 127.0.0.1 rxe1 2001 1
		port=2002 pair gid0 -j rxe0 2002 0 : -j 127.0.0.1 rxe1 2002 0
		pair six -q : -q ::1
		# A machine without /etc/hosts knows no localhost.
		name=localhost
		getent hosts "$name" >/dev/null || name=127.1
		pair name -q -t 60 : -q -t 60 "$name" rxe1
	' || return 0
	assert_pair a
	assert_in "$(out_of a.server)" '^\[Step 1\]'
	assert_in "$(out_of a.client)" '^received 24 bytes: "Hello from RDMA server!"$'
	assert_pair port
	assert_pair gid1
	assert_pair gid0
	assertEquals 0 "$(json gid0.client .gid_index)"
	assert_in "$(json gid0.client .local.gid)" '^fe80::'
	assert_in "$(json gid0.client .remote.gid)" '^fe80::'
	assert_crossed gid0
	assert_pair six
	assert_pair name
	assertEquals "quiet" 1 "$(out_of six.client | wc -l)"
}

test_options_long_and_short() {
	in_lab '
		pair long --size 100 --timeout 20 --message "long one" --events \
			--quiet rxe0 : --size 100 --timeout 20 --events --json \
			--message "the other" 127.0.0.1 rxe1
		pair short -s100 -t20 -m"short one" -e -q rxe0 \
			: -s 100 -t 20 -e -j -m "the other" 127.0.0.1 rxe1
		pair after rxe0 -q -m "options last" : 127.0.0.1 rxe1 -j
		run help.server "$B/rdma_server" --help
		run help.client "$B/rdma_client" -h
	' || return 0
	assert_pair long
	assertEquals "long one" "$(json long.client .received_text)"
	assertEquals 'received 10 bytes: "the other"' "$(out_of long.server)"
	assertEquals 100 "$(json long.client .size)"
	assert_pair short
	assertEquals "short one" "$(json short.client .received_text)"
	assertEquals 'received 10 bytes: "the other"' "$(out_of short.server)"
	assert_pair after
	assertEquals "options last" "$(json after.client .received_text)"
	assertEquals 0 "$(rc_of help.server)"
	assertEquals 0 "$(rc_of help.client)"
	assert_in "$(out_of help.client)" '^usage: rdma_client .*<server_ip>'
}

test_client_may_come_first() {
	in_lab '
		start early.client "$B/rdma_client" -j 127.0.0.1 rxe1
		client=$pid
		# It has tried and failed at least once: it has no socket, and sleeps.
		nap 1
		kill -0 "$client" && echo waits >"$T/waits"
		server early.server -j rxe0
		reap early.client early.server
	' || return 0
	assertEquals waits "$(cat "$T/waits")"
	assert_pair early
	assert_crossed early
}

test_path_mtu_is_the_lower_of_both() {
	in_lab --fresh '
		ip link set veth1 mtu 1500
		lowered() { ibv_devinfo -d rxe1 | grep -q "active_mtu:.*1024"; }
		await lowered
		pair a -j -s 65536 -n 5 rxe0 : -j -s 65536 -n 5 127.0.0.1 rxe1
		pair b -j -s 65536 -n 5 rxe1 : -j -s 65536 -n 5 127.0.0.1 rxe0
	' || return 0
	local name
	for name in a b; do
		assert_pair "$name"
		assert_crossed "$name"
		assertEquals 1024 "$(json "$name.server" .path_mtu)"
		assertEquals 1024 "$(json "$name.client" .path_mtu)"
		assertEquals "1024 4096" "$(jq -r .local.active_mtu \
			"$T/$name".{server,client}.out | sort -n | xargs)"
	done
}

# qp DEVICE FILTER: of that device's QPs as the kernel had them
qp() { jq -r ".[] | select(.ifname == \"$1\" and .type == \"RC\") | $2" "$3"; }

# assert_psn FIRST NOW: NOW is at most some thousands behind FIRST, in 24 bits.
assert_psn() {
	assertTrue "PSN $2 began at $1" "[[ $((($2 - $1) & 0xffffff)) -le 5000 ]]"
}

test_states_as_the_kernel_has_them() {
	local mine
	in_lab '
		qps() { rdma -j -d resource show qp; }
		both_rts() {
			qps >"$T/now"
			(($(grep -o "\"RC\",\"state\":\"RTS" "$T/now" | wc -l) == 2))
		}
		server a.server -j -e -n 1000000 rxe0
		qps >"$T/waiting"
		start a.client "$B/rdma_client" -j -e -n 1000000 127.0.0.1 rxe1
		client=$pid
		await both_rts
		cp "$T/now" "$T/connected"
		kill -INT "$client"
		reap a.client a.server
		# And a run that ends well, to have both sides in numbers: the client stops
		# by itself in the middle of it.
		half_way() {
			local -x SPY_STOP=ibv_post_send:500 LD_PRELOAD=$B/spy.so
			start b.client "$B/rdma_client" -j -e -t 60 -n 1000 127.0.0.1 rxe1
		}
		server b.server -j -e -t 60 -n 1000 rxe0
		half_way
		await halted b.client
		await both_rts
		cp "$T/now" "$T/seen"
		kill -CONT "${pids[b.client]}"
		reap b.client b.server
	' || return 0
	assertEquals "while it waits" INIT "$(qp rxe0 .state "$T/waiting")"
	assertEquals "both stopped" "1 1" "$(rc_of a.client) $(rc_of a.server)"
	assertEquals RTS "$(qp rxe0 .state "$T/connected")"
	assertEquals RTS "$(qp rxe1 .state "$T/connected")"
	assertEquals "rxe0 is told rxe1's QPN" "$(qp rxe1 .lqpn "$T/connected")" \
		"$(qp rxe0 .rqpn "$T/connected")"
	assert_pair b
	for mine in "rxe0 server" "rxe1 client"; do
		# shellcheck disable=SC2086 # two words
		set -- $mine
		assertEquals "$(json "b.$2" .local.qpn)" "$(qp "$1" .lqpn "$T/seen")"
		assertEquals "$(json "b.$2" .remote.qpn)" "$(qp "$1" .rqpn "$T/seen")"
		# PSNs count up from what was exchanged.
		assert_psn "$(json "b.$2" .remote.psn)" "$(qp "$1" '."rq-psn"' "$T/seen")"
		assert_psn "$(json "b.$2" .local.psn)" "$(qp "$1" '."sq-psn"' "$T/seen")"
	done
}

test_messages() {
	local long
	in_lab '
		export LC_ALL=C.UTF-8
		pair utf8 -j -m "你好，RDMA ✓" rxe0 : -j -m "naïve" 127.0.0.1 rxe1
		LC_ALL=C pair c -j rxe0 : -j -m "你" 127.0.0.1 rxe1
		printf -v fits "%099d" 7
		pair fits -j -s 100 -m "$fits" rxe0 : -j -s 100 127.0.0.1 rxe1
		pair empty -j -s 1 -m "" rxe0 : -j -s 1 -m "" 127.0.0.1 rxe1
		printf -v long "%04095d" 7
		pair long -j -m "$long" rxe0 : -j 127.0.0.1 rxe1
		# A size of its own on each side; the message fits the smaller one.
		pair sizes -j -s 64 rxe0 : -j -s 65536 127.0.0.1 rxe1
		pair escape -j -m $'"'\\E]0;owned\\a'"' rxe0 : -q 127.0.0.1 rxe1
	' || return 0
	assert_pair utf8
	assertEquals "你好，RDMA ✓" "$(json utf8.client .received_text)"
	assertEquals "naïve" "$(json utf8.server .received_text)"
	assertEquals 18 "$(json utf8.client .received_bytes)"
	assert_pair c
	assertEquals '\xe4\xbd\xa0' "$(json c.server .received_text)"
	assert_pair fits
	assertEquals 100 "$(json fits.client .received_bytes)"
	printf -v long "%099d" 7
	assertEquals "$long" "$(json fits.client .received_text)"
	assert_pair empty
	assertEquals 1 "$(json empty.client .received_bytes)"
	assertEquals "" "$(json empty.client .received_text)"
	assert_pair long
	assertEquals 4096 "$(json long.client .received_bytes)"
	assert_in "$(json long.client .received_text)" '^0+\.\.\.$'
	assert_pair sizes
	assert_pair escape
	assertEquals 'received 11 bytes: "\x1b]0;owned\x07"' "$(out_of escape.client)"
}

test_every_size() {
	local size
	in_lab '
		for size in 1 2 7 8 64 4096 4097 65536 1048576 8388608; do
			n=100
			e=-e
			((size < 65536)) || n=10
			((size < 1048576)) || n=2
			((size != 8 && size != 4096)) || e=-q
			pair "n$size" -j $e -s $size -n $n rxe0 : -j $e -s $size -n $n 127.0.0.1 rxe1
			pair "b$size" -j $e -s $size -n $n -b rxe0 : -j $e -s $size -n $n -b 127.0.0.1 rxe1
		done
	' || return 0
	for size in 1 2 7 8 64 4096 4097 65536 1048576 8388608; do
		assert_pair "n$size"
		assert_pair "b$size"
		assertEquals pingpong "$(json "n$size.client" .mode)"
		assertEquals bandwidth "$(json "b$size.client" .mode)"
		assertEquals "$size" "$(json "b$size.server" .size)"
		assertEquals "n$size: min <= median <= p99 <= max" \
			true "$(json "n$size.client" '.half_round_trip_us |
			.min > 0 and .min <= .median and .median <= .p99 and .p99 <= .max')"
		assert_agree "n$size.client" .mb_per_s '2 * .iters * .size / .seconds / 1e6'
		assert_agree "b$size.client" .mb_per_s '.iters * .size / .seconds / 1e6'
	done
}

test_events_and_windows() {
	local name
	in_lab '
		pair events -j -e -n 200 rxe0 : -j -e -n 200 127.0.0.1 rxe1
		pair mixed -j -e -n 200 rxe0 : -j -n 200 127.0.0.1 rxe1
		pair eventbw -j -e -b -n 200 rxe0 : -j -e -b -n 200 127.0.0.1 rxe1
		for w in 1 2 3 1000; do
			pair "w$w" -j -b -n 301 -e -s 64 rxe0 : -j -b -e -n 301 -s 64 -w $w 127.0.0.1 rxe1
		done
		pair default -j -b rxe0 : -j --bw 127.0.0.1 rxe1
		pair one -j -n 1 rxe0 : -j -n 1 127.0.0.1 rxe1
		pair onebw -j -bn 1 rxe0 : -j -bn 1 127.0.0.1 rxe1
		# Asleep, not spinning: the waiting server uses next to no CPU.
		server idle -e -j -t 20 rxe0
		start idle.peer "$B/peer" connect 127.0.0.1 18515 hello con sync plan \
			record="$T/heard"
		heard() { [[ -e $T/heard ]] && (($(stat -c %s "$T/heard") >= 79)); }
		ticks() {
			read -ra stat <"/proc/${pids[idle]}/stat"
			echo "$((stat[13] + stat[14]))"
		}
		await heard
		nap 0.5
		before=$(ticks)
		nap 2
		echo "$(($(ticks) - before))" >"$T/ticks"
		kill -INT "${pids[idle]}"
		reap idle idle.peer
	' || return 0
	for name in events mixed eventbw w1 w2 w3 w1000 default one onebw; do
		assert_pair "$name"
	done
	assertEquals 1000 "$(json default.client .iters)"
	assertEquals 1 "$(json one.server .iters)"
	assertTrue "$(cat "$T/ticks") ticks of CPU" "[[ $(cat "$T/ticks") -lt 40 ]]"
}

oneTimeSetUp() { build_helpers; }

. shunit2
