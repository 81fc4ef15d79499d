#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server and rdma_client do what they promise: over the veth between rxe0
# and rxe1, with every option, in every state they pass through. (Their packets are
# in ../lab/test_capture.sh.)
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

# assert_said <LINES, each: NAME FILTER WANTED, of the result that NAME printed
assert_said() {
	local name filter want
	while read -r name filter want; do
		assertEquals "$name: $filter" "$want" "$(json "$name" "$filter")"
	done
}

test_one_message_each_way() {
	in_lab 'pair a --json rxe0 : --json 127.0.0.1 rxe1' || return 0
	assert_pair a
	assert_crossed a
	assert_said <<-'END'
		a.server .device rxe0
		a.client .device rxe1
		a.server .local.gid ::ffff:10.99.0.1
		a.client .local.gid ::ffff:10.99.0.2
		a.client .received_text Hello from RDMA server!
		a.server .received_text Hello from RDMA client!
		a.client .sent_bytes 24
		a.server .received_bytes 24
		a.server .path_mtu 4096
		a.client .path_mtu 4096
	END
}

test_defaults() {
	in_lab '
		pair a : 127.0.0.1
		port=2000 pair port rxe0 2000 : 127.0.0.1 rxe1 2000
		port=2002 pair gid0 -j rxe0 2002 0 : -j 127.0.0.1 rxe1 2002 0
		pair six -q : -q ::1
		# A machine without /etc/hosts knows no localhost.
		name=localhost
		getent hosts "$name" >/dev/null || name=127.1
		pair name -q -t 60 : -q -t 60 "$name" rxe1
	' || return 0
	local name
	for name in a port gid0 six name; do
		assert_pair "$name"
	done
	assert_in "$(out_of a.server)" '^\[Step 1\]'
	assert_in "$(out_of a.client)" '^received 24 bytes: "Hello from RDMA server!"$'
	assertEquals 0 "$(json gid0.client .gid_index)"
	assert_in "$(json gid0.client .local.gid)" '^fe80::'
	assert_crossed gid0
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
	local name
	for name in long short after; do
		assert_pair "$name"
	done
	assert_said <<-'END'
		long.client .received_text long one
		long.client .size 100
		short.client .received_text short one
		after.client .received_text options last
	END
	assertEquals 'received 10 bytes: "the other"' "$(out_of long.server)"
	assertEquals '0 0' "$(rc_of help.server) $(rc_of help.client)"
	assert_in "$(out_of help.client)" '^usage: rdma_client .*<server_ip>'
}

test_client_may_come_first() {
	in_lab '
		start early.client "$B/rdma_client" -j 127.0.0.1 rxe1
		# It has tried and failed at least once: it has no socket, and sleeps.
		nap 1
		kill -0 "$pid" && echo waits >"$T/waits"
		server early.server -j rxe0
		reap early.client early.server
	' || return 0
	assertEquals waits "$(cat "$T/waits")"
	assert_pair early
	assert_crossed early
}

test_a_lower_mtu_and_a_port_that_is_down() {
	in_lab --fresh '
		ip link set veth1 mtu 1500
		lowered() { ibv_devinfo -d rxe1 | grep -q "active_mtu:.*1024"; }
		await lowered
		pair a -j -s 65536 -n 5 rxe0 : -j -s 65536 -n 5 127.0.0.1 rxe1
		ip link set veth0 down
		down() { ibv_devinfo -d rxe0 | grep -q PORT_DOWN; }
		await down
		run named "$B/rdma_server" rxe0
		run any "$B/rdma_server"
	' || return 0
	assert_pair a
	assert_crossed a
	assert_said <<-'END'
		a.server .path_mtu 1024
		a.client .path_mtu 1024
		a.server .local.active_mtu 4096
		a.client .local.active_mtu 1024
	END
	assert_error named 1 'rxe0 has no active port \(port 1 is .*down\)'
	# The veth takes its peer down with it: no device is left to choose.
	assert_error any 1 'has no active port'
}

# qp DEVICE FILTER: of that device's QPs as the kernel had them
qp() { jq -r ".[] | select(.ifname == \"$1\" and .type == \"RC\") | $2" "$3"; }

# The client stops by itself in the middle of the run.
test_states_as_the_kernel_has_them() {
	local device side
	in_lab '
		qps() { rdma -j -d resource show qp; }
		both_rts() {
			qps >"$T/seen"
			(($(grep -o "\"RC\",\"state\":\"RTS" "$T/seen" | wc -l) == 2))
		}
		server b.server -j -e -t 60 -n 1000 rxe0
		qps >"$T/waiting"
		SPY_STOP=ibv_post_send:500 LD_PRELOAD=$B/spy.so start b.client \
			"$B/rdma_client" -j -e -t 60 -n 1000 127.0.0.1 rxe1
		await halted b.client
		await both_rts
		kill -CONT "${pids[b.client]}"
		reap b.client b.server
	' || return 0
	assertEquals "while it waits" INIT "$(qp rxe0 .state "$T/waiting")"
	assert_pair b
	while read -r device side; do
		assertEquals RTS "$(qp "$device" .state "$T/seen")"
		assertEquals "$(json "b.$side" .local.qpn)" "$(qp "$device" .lqpn "$T/seen")"
		assertEquals "$(json "b.$side" .remote.qpn)" "$(qp "$device" .rqpn "$T/seen")"
	done <<-'END'
		rxe0 server
		rxe1 client
	END
}

test_messages() {
	local name long
	in_lab '
		export LC_ALL=C.UTF-8
		pair utf8 -j -m "你好，RDMA ✓" rxe0 : -j -m "naïve" 127.0.0.1 rxe1
		printf -v fits "%099d" 7
		pair fits -j -s 100 -m "$fits" rxe0 : -j -s 100 127.0.0.1 rxe1
		pair empty -j -s 1 -m "" rxe0 : -j -s 1 -m "" 127.0.0.1 rxe1
		# A size of its own on each side; the message fits the smaller one.
		pair sizes -j -s 64 rxe0 : -j -s 65536 127.0.0.1 rxe1
	' || return 0
	for name in utf8 fits empty sizes; do
		assert_pair "$name"
	done
	printf -v long "%099d" 7
	assert_said <<-END
		utf8.client .received_text 你好，RDMA ✓
		utf8.server .received_text naïve
		utf8.client .received_bytes 18
		fits.client .received_bytes 100
		fits.client .received_text $long
		empty.client .received_bytes 1
		empty.client .received_text
	END
}

# Each row: NAME MODE SIZE COUNT OPTION…; n is ping-pong, b bandwidth; a window is the
# client's
measured() {
	cat <<-'END'
		n1 pingpong 1 100
		b1 bandwidth 1 100 -b
		n4097 pingpong 4097 50 -e
		b65536 bandwidth 65536 20 -b -e -w 3
		n1048576 pingpong 1048576 2
		b8388608 bandwidth 8388608 2 -b
		w1 bandwidth 64 101 -b -e -w 1
	END
}

test_sizes_and_windows() {
	local name mode size count both
	measured >"$T/measured"
	in_lab '
		while read -r name mode size count options; do
			options="-j -s $size -n $count $options"
			pair "$name" ${options%-w*} rxe0 : $options 127.0.0.1 rxe1
		done <"$T/measured"
		pair mixed -j -e -n 200 rxe0 : -j -n 200 127.0.0.1 rxe1
		pair default -j -b rxe0 : -j --bw 127.0.0.1 rxe1
	' || return 0
	assert_pair mixed
	assert_pair default
	assertEquals 1000 "$(json default.client .iters)"
	while read -r name mode size count _; do
		assert_pair "$name"
		both=1
		[[ $mode == bandwidth ]] || both=2
		assert_said <<-END
			$name.client .mode $mode
			$name.server .size $size
			$name.server .iters $count
		END
		assert_agree "$name.client" .mb_per_s "$both * .iters * .size / .seconds / 1e6"
		[[ $mode == bandwidth ]] || assertEquals "$name: min <= median <= p99 <= max" \
			true "$(json "$name.client" '.half_round_trip_us |
			.min > 0 and .min <= .median and .median <= .p99 and .p99 <= .max')"
	done < <(measured)
}

# With --events it is asleep, not spinning: it uses next to no CPU.
test_a_server_that_waits_sleeps() {
	in_lab '
		server idle -e -j -t 60 rxe0
		start peer "$B/peer" connect 127.0.0.1 18515 hello con sync plan record="$T/heard"
		heard() { [[ -e $T/heard ]] && (($(stat -c %s "$T/heard") >= 79)); }
		ticks() {
			read -ra stat <"/proc/${pids[idle]}/stat"
			echo "$((stat[13] + stat[14]))"
		}
		await heard
		nap 0.5
		before=$(ticks)
		nap 1
		echo "$(($(ticks) - before))" >"$T/ticks"
		kill -INT "${pids[idle]}"
		reap idle peer
	' || return 0
	assertTrue "$(cat "$T/ticks") ticks of CPU" "(($(cat "$T/ticks") < 20))"
}

oneTimeSetUp() { build_helpers; }

. shunit2
