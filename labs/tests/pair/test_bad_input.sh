#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What rdma_server and rdma_client do when something is wrong: with the command
# line, the device, the peer. They end in time, with the right exit code and one
# error that says why, and they leave nothing behind.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

test_wrong_usage() {
	local program to value
	for program in rdma_server rdma_client; do
		to=()
		[[ $program == rdma_server ]] || to=(127.0.0.1)
		for value in 0 65536 12x -1x "" +5 0x10 99999999999999999999; do
			usage_error 'port is not 1 \.\.\. 65535' \
				"$program" -- "${to[@]}" rxe0 "$value"
		done
		for value in 256 x ""; do
			usage_error 'gid_index is not 0 \.\.\. 255' \
				"$program" "${to[@]}" rxe0 18515 "$value"
		done
		for value in size=0 size=1073741825 size=4k iters=0 iters=100000001 \
			window=0 window=4097 timeout=0 timeout=86401 timeout=1.5; do
			usage_error "--${value%=*} is not" "$program" "${to[@]}" "--$value"
		done
		usage_error "too many arguments" \
			"$program" "${to[@]}" rxe0 18515 1 more
		for value in '-s 5' '-n 5' --bw; do
			# shellcheck disable=SC2086 # words
			usage_error "message" "$program" "${to[@]}" $value -m hello
		done
		for value in --nonsense -x -m --json=yes; do
			usage_error "option|argument" "$program" "$value"
		done
	done
	usage_error "server is missing" rdma_client
	usage_error "server is missing" rdma_client ""
}

# What is swapped, or left out, is named.
test_arguments_in_the_wrong_place() {
	local address
	for address in 10.99.0.1 fe80::1 ::; do
		usage_error "an IP address stands where device_name belongs: $address" \
			rdma_client rxe9 "$address"
		usage_error "an IP address stands where device_name belongs: $address" \
			01-device-open "$address"
	done
	usage_error "a number stands where device_name belongs: 18515" rdma_server 18515
	in_lab 'run client "$B/rdma_client" rxe1 10.99.0.1' || return 0
	assert_error client 2 'a device stands where the server belongs: rxe1'
}

test_device_and_gid() {
	local name want
	in_lab '
		run name "$B/rdma_server" mlx5_0
		run gid7 "$B/rdma_server" rxe0 18515 7
		export LD_PRELOAD=$B/spy.so
		SPY_LIE=gid_v1 run auto "$B/rdma_server"
		SPY_LIE=small_port run big "$B/rdma_server" -s 9437184 rxe0
		unset LD_PRELOAD
		start other "$B/peer" listen 18515
		await listening 18515
		run busy "$B/rdma_server" rxe0
		kill "${pids[other]}"
		reap other
	' || return 0
	while read -r name want; do
		assert_error "$name" 1 "$want"
	done <<-'END'
		name no RDMA device is named "mlx5_0"
		gid7 GID index 7 of rxe0 port 1 is empty
		auto no RoCE v2 GID
		big message size 9437184 is not in 1 \.\.\. 8388608
		busy EADDRINUSE
	END
}

# The exchange alone, at every byte boundary and with thousands of wrong bytes.
test_exchange_without_a_device() {
	local lib=$B/librdma_common.a flags=()
	[[ -e $lib ]] || lib=build/librdma_common.a
	# A library that was built with sanitizers needs them here too.
	! nm -A "$lib" 2>/dev/null | grep -q __asan_init ||
		flags=("-fsanitize=address,undefined")
	helper "$B/unit_exchange" -O2 "${flags[@]}" labs/tests/pair/unit_exchange.c "$lib" \
		-libverbs -ljansson
	here unit "$B/unit_exchange"
	assertEquals "$(err_of unit)" 'exchange: 0 failures' "$(out_of unit)"
}

# Each row: what the peer says | what the error must say
hostile_peers() {
	cat <<-'END'
		fill=100000|magic 0x41414141
		text=GET / HTTP/1.1|"GET ".*mine is 0x52434d45
		hello,version=2|version 2
		cut=30 hello con close|the peer closed
		hello con sync cut=60 close|the peer closed
		reset|(peer's hello|sending my hello|connecting to .*): the peer closed
		hello con,qpn=1|qp_num is not
		hello con,psn=0x1000000|psn is over 24 bits
		hello con,mtu=6|active_mtu is not
		hello con,gid=::|GID is all zero
		hello con sync,step=99|peer is at sync point unknown \(99\)
		hello con sync,status=22|the peer failed before sync point READY: EINVAL
		hello con sync plan,mode=1,iters=5|peer plans mode pingpong, 5 messages
		hello con,gid=10:99::1 sync|ibv_modify_qp\(QP [0-9]+, INIT -> RTR.*EINVAL
	END
}

# strangers: those of them that do not begin as one of our clients does
strangers() { hostile_peers | grep -E "$@" '^(fill|text|reset)'; }

# words ROW: sets $items, what to tell peer
guest_words='
	words() {
		IFS=" " read -ra items <<<"${1%%|*}"
		[[ $1 != text=* ]] || items=("${1%%|*}")
	}
'

check_hostile_peers() {
	local i=0 row
	while IFS= read -r row; do
		i=$((i + 1))
		assert_error "$i" 1 "${row#*|}"
	done <"$T/peers"
	assertTrue "$i cases" "((i >= 10))"
}

test_hostile_clients() {
	strangers -v >"$T/peers"
	in_lab "$guest_words"'
		i=0
		while IFS= read -r row; do
			i=$((i + 1))
			words "$row"
			server "$i" -q -t 10 rxe0
			run "$i.peer" "$B/peer" connect 127.0.0.1 18515 "${items[@]}"
			reap "$i"
		done <"$T/peers"
	' || return 0
	check_hostile_peers
}

test_hostile_servers() {
	hostile_peers >"$T/peers"
	in_lab "$guest_words"'
		i=0
		while IFS= read -r row; do
			i=$((i + 1))
			words "$row"
			start "$i.peer" "$B/peer" listen 18515 "${items[@]}"
			await listening 18515
			run "$i" "$B/rdma_client" -q -t 10 127.0.0.1 rxe0
			reap "$i.peer"
		done <"$T/peers"
	' || return 0
	check_hostile_peers
}

# They do not keep a client waiting, and do not end a server: not one by one, not
# when they stay, not when there are more than it has room for (16).
test_strangers() {
	strangers -e >"$T/strangers"
	in_lab "$guest_words"'
		server s.server -q -t 60 rxe0
		stay 1 8 "$B/peer"
		i=0
		while IFS= read -r row; do
			words "$row"
			run "stranger$((++i))" "$B/peer" connect 127.0.0.1 18515 "${items[@]}"
		done <"$T/strangers"
		stay 9 20 "$B/peer"
		run s.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap "${!pids[@]}"
	' || return 0
	assertEquals "$(err_of s.server)" 0 "$(rc_of s.server)"
	assertEquals "$(err_of s.client)" 0 "$(rc_of s.client)"
	assert_in "$(err_of s.server)" '^warning: .*127\.0\.0\.1 is no client: it begins with "GET "; still waiting for one$'
	assert_not_in "$(err_of s.server)" '^error'
}

# Each wait has its deadline; all of these wait side by side.
test_silent_peers_and_nobody() {
	local name want
	in_lab '
		port=2001 server silent -q -t 2 rxe0 2001
		start p1 "$B/peer" connect 127.0.0.1 2001
		port=2002 server half -q -t 2 rxe0 2002
		start p2 "$B/peer" connect 127.0.0.1 2002 hello cut=5
		port=2003 server burst -q -e -t 4 rxe0 2003
		start p3 "$B/peer" connect 127.0.0.1 2003 hello con sync plan \
			record="$T/burst.bytes"
		start p4 "$B/peer" listen 2004
		await listening 2004
		start csilent "$B/rdma_client" -q -t 3 127.0.0.1 rxe0 2004
		start gone "$B/rdma_client" -t 1 127.0.0.1 rxe0 2005
		start unreached "$B/rdma_client" -t 1 10.99.0.77 rxe0
		start nameless "$B/rdma_client" -t 1 no.such.name.invalid rxe0
		start lonely "$B/rdma_server" -t 1 rxe0 2006
		reap "${!pids[@]}"
	' || return 0
	while read -r name want; do
		assert_error "$name" 1 "$want"
	done <<-'END'
		silent waiting for a client: nothing came
		half reading the peer's hello: nothing came
		csilent reading the peer's hello: nothing came
		gone connect\(127.0.0.1, TCP port 2005\).*ECONNREFUSED
		unreached connect\(10.99.0.77, TCP port 18515\)
		nameless getaddrinfo\("no.such.name.invalid"\)
		lonely waiting for a client
		burst no completion on QP
	END
	# 8 hello, 43 data, 12 READY, 16 plan, and 12: I failed before DONE.
	assertEquals 91 "$(stat -c %s "$T/burst.bytes")"
	assertEquals "ETIMEDOUT is told to the peer" 0000006e \
		"$(tail -c 4 "$T/burst.bytes" | od -An -tx1 | tr -d ' \n')"
}

# A plan that differs is refused on both sides; so is a message too long.
test_disagreements() {
	local side
	in_lab '
		pair iters -q -n 10 rxe0 : -q -n 20 127.0.0.1 rxe1
		pair long -q -s 16 -m short rxe0 : -q -m "longer than sixteen" 127.0.0.1 rxe1
		pair family -q rxe0 18515 0 : -q 127.0.0.1 rxe1 18515 1
		SPY_FAIL=ibv_modify_qp:2:12 spied server told.server -q rxe0
		run told.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap told.server
	' || return 0
	for side in server client; do
		assert_error "iters.$side" 1 'the peer plans mode'
		assert_error "long.$side" 1 'message has 20 bytes, the receive buffer 16'
		assert_error "family.$side" 1 \
			'ibv_modify_qp\(QP [0-9]+, INIT -> RTR.*EINVAL \(22\):.*IPv4-mapped'
	done
	assert_error told.server 1 'ibv_modify_qp.*ENOMEM'
	assert_error told.client 1 'the peer failed before sync point READY: ENOMEM'
}

# Who is there in the middle of a run: a second client is sent away, and when either
# side is killed, the other notices.
test_second_client_and_killed_peer() {
	local side
	in_lab '
		export SPY_LOG=/tmp/spy.$$ # not in $T: a line for each completion
		for victim in server client; do
			LD_PRELOAD=$B/spy.so server $victim.server -q -t 3 -n 1000000 rxe0
			start $victim.client "$B/rdma_client" -q -t 3 -n 1000000 127.0.0.1 rxe1
			await in_file ^wc "$SPY_LOG"
			run second.$victim "$B/rdma_client" -q -t 1 -n 5 127.0.0.1 rxe1
			kill9 $victim.$victim
			[[ $victim == server ]] || reap client.server
			[[ $victim == client ]] || reap server.client
			rm "$SPY_LOG"
		done
	' || return 0
	for side in server client; do
		assert_error "second.$side" 1 'ECONNREFUSED'
	done
	assert_error server.client 1 'transport retry|no completion|closed'
	assert_error client.server 1 'transport retry|no completion|closed'
}

# SIGINT and SIGTERM in the middle of every wait.
test_stop_signals() {
	local name
	in_lab '
		# SIGINT is ignored until the program says otherwise, and before it is that
		# program, it is a shell.
		catches() {
			in_file "^Name:.*rdma_client$" "/proc/$1/status" &&
				in_file "^SigCgt:.*[2367abef]$" "/proc/$1/status"
		}
		heard() { [[ -s $T/heard ]] && (($(stat -c %s "$T/heard") >= $1)); }
		# stop SIGNAL NAME BYTES OPTION… : ITEM…: while it waits for what the peer
		# does not say, or send
		stop() {
			local signal=$1 name=$2 bytes=$3 options=()
			shift 3
			while [[ $1 != : ]]; do
				options+=("$1")
				shift
			done
			shift
			server "$name" -t 60 -q "${options[@]}" rxe0
			start peer "$B/peer" connect 127.0.0.1 18515 "$@" record="$T/heard"
			await heard "$bytes"
			nap 0.2
			kill -$signal "${pids[$name]}"
			reap "$name" peer
			rm "$T/heard"
		}
		# Who never finds the CQ empty is to hear it, too.
		ping() { # PORT NAME OPTION…
			local port=$1 name=$2 log=/tmp/spy.$$.$2
			shift 2
			server "$name.server" -q -t 4 "$@" -n 1000000 rxe0 "$port"
			SPY_LOG=$log SPY_LIE=ready LD_PRELOAD=$B/spy.so start "$name.client" \
				"$B/rdma_client" -q "$@" -n 1000000 127.0.0.1 rxe1 "$port"
			await in_file "^wc" "$log"
			kill -TERM "$pid"
			reap "$name.client" "$name.server"
			rm "$log"
		}
		ping 2002 ping &
		ping 2003 ping-e -e &
		server wait -t 60 -q rxe0
		kill -TERM "$pid"
		start connect "$B/rdma_client" -t 60 -q 127.0.0.1 rxe0 2001
		await catches "$pid"
		nap 0.2
		kill -INT "$pid"
		reap wait connect
		stop TERM hello 1 : hello
		stop INT message 79 : hello con sync plan
		stop INT message-e 79 -e : hello con sync plan
		wait
	' || return 0
	for name in wait connect hello message{,-e} ping{,-e}.client; do
		assert_error "$name" 1 'stopped by a signal'
	done
	for name in ping.server ping-e.server; do
		assert_error "$name" 1 'no completion|transport retry|closed|peer failed'
	done
}

# The result could not be written: that is a failure too.
test_full_disk() {
	in_lab '
		for how in -j -q; do
			server server $how rxe0
			rc=0
			"$B/rdma_client" $how 127.0.0.1 rxe1 >/dev/full 2>"$T/client$how.err" || rc=$?
			echo "$rc" >"$T/client$how.rc"
			reap server
		done
	' || return 0
	assert_error client-j 1 .
	assert_error client-q 1 .
}

oneTimeSetUp() { build_helpers; }

. shunit2
