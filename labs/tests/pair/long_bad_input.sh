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
	local program
	for program in rdma_server rdma_client; do
		local to=()
		[[ $program == rdma_server ]] || to=(127.0.0.1)
		for port in 0 65536 70000 12x -1x "" " 1" +5 0x10 99999999999999999999; do
			usage_error 'port is not 1 \.\.\. 65535' \
				"$program" -- "${to[@]}" rxe0 "$port"
		done
		for index in 256 x "" 1.5; do
			usage_error 'gid_index is not 0 \.\.\. 255' \
				"$program" "${to[@]}" rxe0 18515 "$index"
		done
		for size in 0 2147483648 1073741825 4k "" -5 1e3; do
			usage_error "--size is not" "$program" "${to[@]}" --size "$size"
		done
		for n in 0 100000001 x ""; do
			usage_error "--iters is not" "$program" "${to[@]}" -n "$n"
		done
		for n in 0 4097 x; do
			usage_error "--window is not" "$program" "${to[@]}" --window="$n"
		done
		for n in 0 86401 x 1.5; do
			usage_error "--timeout is not" "$program" "${to[@]}" -t "$n"
		done
		usage_error "too many arguments" \
			"$program" "${to[@]}" rxe0 18515 1 more
		usage_error "message" "$program" "${to[@]}" -s 4 -m hello
		usage_error "message" "$program" "${to[@]}" -s 5 -m hello
		usage_error "message" "$program" "${to[@]}" -n 5 -m hello
		usage_error "message" "$program" "${to[@]}" --bw -m hello
	done
	usage_error "server is missing" rdma_client
	usage_error "server is missing" rdma_client ""
	usage_error "server is missing" rdma_client --json
}

# What is swapped, or left out, is named.
test_arguments_in_the_wrong_place() {
	local address
	for address in 10.99.0.1 fe80::1 ::; do
		usage_error "an IP address stands where device_name belongs: $address" \
			rdma_client rxe9 "$address"
		usage_error "an IP address stands where device_name belongs: $address" \
			rdma_server "$address"
		usage_error "an IP address stands where device_name belongs: $address" \
			01-device-open "$address"
	done
	usage_error "a number stands where device_name belongs: 18515" rdma_server 18515
	usage_error "a number stands where device_name belongs: 18515" \
		rdma_client 10.99.0.1 18515
	usage_error "a number stands where device_name belongs: 1" 03-qp-states 1
	in_lab '
		run client "$B/rdma_client" rxe1 10.99.0.1
		run tags "$B/tag_lat" client rxe1 10.99.0.1
	' || return 0
	assert_error client 2 'a device stands where the server belongs: rxe1'
	assert_error tags 2 'a device stands where the server belongs: rxe1'
}

test_unknown_options() {
	local program
	for program in rdma_server rdma_client; do
		usage_error "unknown|unrecognized|invalid|option" "$program" --nonsense
		usage_error "unknown|unrecognized|invalid|option" "$program" -x
		usage_error "option" "$program" -1
		usage_error "argument|option" "$program" --size
		usage_error "argument|option" "$program" -m
		usage_error "argument|option" "$program" --json=yes
	done
}

test_no_device() {
	export SPY_LIE=no_device LD_PRELOAD=$ROOT/$B/spy.so
	here server "$B/rdma_server"
	here client "$B/rdma_client" 127.0.0.1
	here named "$B/rdma_server" rxe0
	unset SPY_LIE LD_PRELOAD
	assert_error server 1 'no RDMA device on this machine'
	assert_in "$(err_of server)" '^ next: '
	assert_error client 1 'no RDMA device on this machine'
	assert_error named 1 'no RDMA device'
}

test_no_device_in_truth() {
	if compgen -G '/sys/class/infiniband/*' >/dev/null; then
		skip "this host has an RDMA device"
		return 0
	fi
	here server "$B/rdma_server" -t 1
	assert_error server 1 'no RDMA device on this machine'
	here json "$B/rdma_client" --json -t 1 127.0.0.1
	assert_error json 1 'no RDMA device on this machine'
	assertEquals "" "$(out_of json)"
}

test_device_and_gid() {
	in_lab '
		run name "$B/rdma_server" mlx5_0
		run nobody "$B/rdma_client" 127.0.0.1 ""
		run gid7 "$B/rdma_server" rxe0 18515 7
		run gid255 "$B/rdma_client" 127.0.0.1 rxe0 18515 255
		LD_PRELOAD=$B/spy.so SPY_LIE=gid_v1 run v1 "$B/rdma_server" rxe0 18515 1
		LD_PRELOAD=$B/spy.so SPY_LIE=gid_v1 run auto "$B/rdma_server"
		LD_PRELOAD=$B/spy.so SPY_LIE=small_port run big "$B/rdma_server" -s 9437184 rxe0
		LD_PRELOAD=$B/spy.so SPY_LIE=small_port run huge "$B/rdma_client" -s 1073741824 127.0.0.1 rxe0
		start other "$B/peer" listen 18515
		await listening 18515
		run busy "$B/rdma_server" rxe0
		kill "${pids[other]}"
		reap other
	' || return 0
	assert_error name 1 'no RDMA device is named "mlx5_0"'
	assert_error nobody 1 'no RDMA device is named ""'
	assert_error gid7 1 'GID index 7 of rxe0 port 1 is empty'
	assert_error gid255 1 'GID index 255 of rxe0 port 1 is empty'
	assert_error v1 1 'GID index 1 of rxe0 port 1 is not RoCE v2'
	assert_error auto 1 'no RoCE v2 GID'
	assert_error big 1 'message size 9437184 is not in 1 \.\.\. 8388608'
	assert_error huge 1 'message size 1073741824 is not in 1 \.\.\. 8388608'
	assert_error busy 1 'EADDRINUSE'
	for name in name gid7 v1 auto big busy; do
		assert_in "$(err_of "$name")" '^ next: ' "$name"
	done
}

test_port_down() {
	in_lab --fresh '
		ip link set veth0 down
		down() { ibv_devinfo -d rxe0 | grep -q PORT_DOWN; }
		await down
		run named "$B/rdma_server" rxe0
		run any "$B/rdma_server"
	' || return 0
	assert_error named 1 'rxe0 has no active port \(port 1 is .*down\)'
	# The veth takes its peer down with it: no device is left to choose.
	assert_error any 1 'has no active port'
}

test_nobody_there() {
	in_lab '
		t0=$EPOCHREALTIME
		run gone "$B/rdma_client" -t 1 127.0.0.1 rxe0 &
		run silent "$B/rdma_client" -t 1 10.99.0.77 rxe0 &
		run nameless "$B/rdma_client" -t 1 no.such.name.invalid rxe0 &
		run lonely "$B/rdma_server" -t 1 rxe0 2020 &
		wait
		echo "$t0 $EPOCHREALTIME" >"$T/clock"
	' || return 0
	assert_error gone 1 'connect\(127.0.0.1, TCP port 18515\).*ECONNREFUSED'
	assert_error silent 1 'connect\(10.99.0.77, TCP port 18515\)'
	assert_error nameless 1 'getaddrinfo\("no.such.name.invalid"\)'
	assert_error lonely 1 'waiting for a client'
	assertTrue "$(cat "$T/clock")" \
		"awk '{ exit !(\$2 - \$1 >= 1 && \$2 - \$1 < 8) }' <'$T/clock'"
}

# The exchange alone, at every byte boundary and with thousands of wrong bytes.
test_exchange_without_a_device() {
	local lib=$B/librdma_common.a flags=()
	[[ -e $lib ]] || lib=build/librdma_common.a
	# A library that was built with sanitizers needs them here too.
	! nm -A "$lib" 2>/dev/null | grep -q __asan_init ||
		flags=("-fsanitize=address,undefined")
	"${CC:-cc}" -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -Icommon \
		"${flags[@]}" -o "$T/unit" labs/tests/pair/unit_exchange.c "$lib" \
		-libverbs -ljansson
	assertEquals "compiled" 0 $?
	here unit "$T/unit"
	assertEquals "$(out_of unit)" 0 "$(rc_of unit)"
	assertEquals "0 failures" "$(out_of unit)"
}

# Each row: the peer's script | exit code | what the error must say
hostile_peers() {
	cat <<-'END'
		fill=4096|1|magic 0x41414141
		fill=100000|1|magic 0x41414141
		text=GET / HTTP/1.1|1|"GET ".*mine is 0x52434d45
		hello,version=2|1|version 2
		hello,length=0xffff|1|length 65535
		hello,length=44|1|length 44
		hello,magic=0x454d4352|1|"EMCR"
		cut=4 hello close|1|the peer closed
		hello close|1|the peer closed
		cut=30 hello con close|1|the peer closed
		hello con close|1|the peer closed
		hello con sync cut=60 close|1|the peer closed
		hello con sync close|1|the peer closed
		reset|1|(peer's hello|sending my hello|connecting to .*): the peer closed
		close|1|(peer's hello|sending my hello|connecting to .*): the peer closed
		hello con,qpn=0|1|qp_num is not
		hello con,qpn=1|1|qp_num is not
		hello con,qpn=0x1000000|1|qp_num is not
		hello con,qpn=0x11000000|1|qp_num is not
		hello con,psn=0x1000000|1|psn is over 24 bits
		hello con,mtu=0|1|active_mtu is not
		hello con,mtu=6|1|active_mtu is not
		hello con,gid=::|1|GID is all zero
		hello con sync,step=2|1|peer is at sync point DONE
		hello con sync,step=99|1|peer is at sync point unknown \(99\)
		hello con sync,status=22|1|the peer failed before sync point READY: EINVAL
		hello con sync,status=0xffffffff|1|the peer failed before sync point READY
		hello con sync plan,mode=1,iters=5|1|peer plans mode pingpong, 5 messages
		hello con,gid=fe80::99:ff:fe00:2 sync|1|ibv_modify_qp\(QP [0-9]+, INIT -> RTR.*EINVAL
		hello con,gid=10:99::1 sync|1|ibv_modify_qp
		trickle=2 text=nothing of ours at all|1|"noth"
	END
}

# strangers: those of them that do not begin as one of our clients does
strangers() { hostile_peers | grep -E "$@" '^(fill|text|hello,magic|reset|close|trickle)'; }

check_hostile_peers() {
	local i=0 row want
	while IFS= read -r row; do
		i=$((i + 1))
		want=${row#*|}
		assert_error "$i" "${want%%|*}" "${want#*|}"
	done <"$T/peers"
	assertTrue "many cases" "[[ $i -ge 24 ]]"
}

test_hostile_clients() {
	strangers -v >"$T/peers"
	in_lab '
		i=0
		while IFS= read -r row; do
			i=$((i + 1))
			IFS=" " read -ra items <<<"${row%%|*}"
			[[ $row != *text=* ]] || items=("${row%%|*}")
			[[ $row != trickle* ]] || items=(trickle=2 "text=nothing of ours")
			server "$i" -q -t 3 rxe0
			run "$i.peer" "$B/peer" connect 127.0.0.1 18515 "${items[@]}"
			reap "$i"
		done <"$T/peers"
	' || return 0
	check_hostile_peers
}

test_hostile_servers() {
	hostile_peers >"$T/peers"
	in_lab '
		i=0
		while IFS= read -r row; do
			i=$((i + 1))
			IFS=" " read -ra items <<<"${row%%|*}"
			[[ $row != *text=* ]] || items=("${row%%|*}")
			[[ $row != trickle* ]] || items=(trickle=2 "text=nothing of ours")
			start "$i.peer" "$B/peer" listen 18515 "${items[@]}"
			await listening 18515
			run "$i" "$B/rdma_client" -q -t 3 127.0.0.1 rxe0
			reap "$i.peer"
		done <"$T/peers"
	' || return 0
	check_hostile_peers
}

# They do not keep a client waiting, and do not end a server: not one by one, not
# when they stay, not when there are more than it has room for (16).
test_strangers() {
	strangers -e >"$T/strangers"
	in_lab '
		server s.server -q -t 60 rxe0
		stay 1 8 "$B/peer"
		i=0
		while IFS= read -r row; do
			IFS=" " read -ra items <<<"${row%%|*}"
			[[ $row != *text=* ]] || items=("${row%%|*}")
			[[ $row != trickle* ]] || items=(trickle=2 "text=nothing of ours")
			run "stranger$((++i))" "$B/peer" connect 127.0.0.1 18515 "${items[@]}"
		done <"$T/strangers"
		stay 9 20 "$B/peer"
		run s.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap "${!pids[@]}"
		server alone -q -t 2 rxe0
		run one "$B/peer" connect 127.0.0.1 18515 "text=GET / HTTP/1.1"
		reap alone
	' || return 0
	assertEquals "$(err_of s.server)" 0 "$(rc_of s.server)"
	assertEquals "$(err_of s.client)" 0 "$(rc_of s.client)"
	assert_in "$(err_of s.server)" '^warning: .*127\.0\.0\.1 is no client: it begins with "GET "; still waiting for one$'
	assert_in "$(err_of s.server)" '^warning: .*127\.0\.0\.1 has left without a word; still waiting'
	assert_not_in "$(err_of s.server)" '^error'
	assertEquals 1 "$(rc_of alone)"
	assertEquals 'error: waiting for a client: nothing came before the deadline' \
		"$(grep '^error' "$T/alone.err")"
}

test_slow_and_silent_peers() {
	in_lab '
		talk="hello con sync plan"
		# Nothing; half; everything at once; byte by byte: then no message.
		port=2001 server silent -q -t 1 rxe0 2001
		start p1 "$B/peer" connect 127.0.0.1 2001
		port=2002 server half -q -t 10 rxe0 2002
		start p2 "$B/peer" connect 127.0.0.1 2002 hello cut=5
		port=2003 server burst -q -t 10 rxe0 2003
		start p3 "$B/peer" connect 127.0.0.1 2003 $talk record="$T/burst.bytes"
		port=2004 server trickle -q -t 10 rxe0 2004
		start p4 "$B/peer" connect 127.0.0.1 2004 $talk trickle=10
		start p5 "$B/peer" listen 2005
		await listening 2005
		start csilent "$B/rdma_client" -q -t 3 127.0.0.1 rxe0 2005
		reap silent half burst trickle csilent p1 p2 p3 p4 p5
	' || return 0
	assert_error silent 1 "waiting for a client: nothing came"
	assert_error half 1 "reading the peer's hello: nothing came"
	assert_error csilent 1 "reading the peer's hello: nothing came"
	# These two got as far as the message, so every byte was understood.
	assert_error burst 1 "no completion on QP"
	assert_error trickle 1 "no completion on QP"
	# 8 hello, 43 data, 12 READY, 16 plan, and 12: I failed before DONE.
	assertEquals 91 "$(stat -c %s "$T/burst.bytes")"
	assertEquals "ETIMEDOUT is told to the peer" 0000006e \
		"$(tail -c 4 "$T/burst.bytes" | od -An -tx1 | tr -d ' \n')"
}

# A plan that differs is refused on both sides; so is a message too long.
test_disagreements() {
	local name side
	in_lab '
		pair iters -q -n 10 rxe0 : -q -n 20 127.0.0.1 rxe1
		pair mode -q -n 10 rxe0 : -q -b -n 10 127.0.0.1 rxe1
		pair once -q rxe0 : -q -n 10 127.0.0.1 rxe1
		pair size -q -n 10 -s 64 rxe0 : -q -n 10 -s 65 127.0.0.1 rxe1
		pair long -q -s 16 -m short rxe0 : -q -m "longer than sixteen" 127.0.0.1 rxe1
		pair reply -q -m "longer than sixteen" rxe0 : -q -s 16 -m short 127.0.0.1 rxe1
		pair family -q rxe0 18515 0 : -q 127.0.0.1 rxe1 18515 1
		export SPY_FAIL=ibv_modify_qp:2:12
		LD_PRELOAD=$B/spy.so server told.server -q rxe0
		run told.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap told.server
		server told2.server -q rxe0
		LD_PRELOAD=$B/spy.so run told2.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap told2.server
	' || return 0
	for name in iters mode once size; do
		for side in server client; do
			assert_error "$name.$side" 1 'the peer plans mode'
		done
	done
	for name in long reply; do
		for side in server client; do
			assert_error "$name.$side" 1 \
				'message has 20 bytes, the receive buffer 16'
		done
	done
	for side in server client; do
		assert_error "family.$side" 1 \
			'ibv_modify_qp\(QP [0-9]+, INIT -> RTR.*EINVAL \(22\):.*IPv4-mapped'
		assert_in "$(err_of "family.$side")" '^ next: .*GID' "$side"
	done
	assert_error told.server 1 'ibv_modify_qp.*ENOMEM'
	assert_error told.client 1 'the peer failed before sync point READY: ENOMEM'
	assert_error told2.client 1 'ibv_modify_qp.*ENOMEM'
	assert_error told2.server 1 'the peer failed before sync point READY: ENOMEM'
}

test_second_client_is_refused() {
	in_lab '
		server a.server -q -n 1000000 rxe0
		start a.client "$B/rdma_client" -q -n 1000000 127.0.0.1 rxe1
		first=$pid
		closed() { ! listening 18515; }
		await closed
		run second "$B/rdma_client" -q -t 1 -n 5 127.0.0.1 rxe1
		kill -0 "$first" && echo alive >"$T/first"
		kill -INT "$first"
		reap a.client a.server
	' || return 0
	assert_error second 1 'ECONNREFUSED'
	assertEquals alive "$(cat "$T/first")"
}

# kill -9, at each step: the other side notices, and the kernel cleans up.
test_peer_killed() {
	in_lab '
		log=/tmp/spy.$$ # not in $T: this is a line for every completion
		spied() { in_file "$1" "$log"; }
		while read -r name pattern; do
			rm -f "$log"
			server "$name.c" -q -t 3 -n 1000000 rxe0
			SPY_LOG=$log LD_PRELOAD=$B/spy.so start victim \
				"$B/rdma_client" -q -n 1000000 127.0.0.1 rxe1
			await spied "$pattern"
			kill -KILL "$pid"
			reap victim "$name.c" 2>/dev/null
			rm -f "$log"
			SPY_LOG=$log LD_PRELOAD=$B/spy.so start victim \
				"$B/rdma_server" -q -n 1000000 rxe0
			start "$name.s" "$B/rdma_client" -q -t 3 -n 1000000 127.0.0.1 rxe1
			victim=${pids[victim]}
			await spied "$pattern"
			kill -KILL "$victim"
			reap victim "$name.s" 2>/dev/null
			rm "$log"
		done <<-END
			exchange ^recv
			rtr modify_qp.state=2
			middle ^wc
		END
	' || return 0
	local name
	for name in exchange rtr middle; do
		assert_error "$name.c" 1 .
		assert_error "$name.s" 1 .
	done
	# In the middle there is no ACK any more (or no ping: then no completion).
	assert_in "$(err_of middle.c)" 'transport retry|no completion|closed'
	assert_in "$(err_of middle.s)" 'transport retry|no completion|closed'
}

# SIGINT and SIGTERM in the middle of every wait.
test_stop_signals() {
	local name
	in_lab '
		log=/tmp/spy.$$ heard=/tmp/heard.$$
		# SIGINT is ignored until the program says otherwise, and before it is that
		# program, it is a shell.
		catches() {
			in_file "^Name:.*rdma_client$" "/proc/$1/status" &&
				in_file "^SigCgt:.*[2367abef]$" "/proc/$1/status"
		}
		for signal in INT TERM; do
			server "wait$signal" -t 60 -q rxe0
			kill -$signal "$pid"
			reap "wait$signal"

			start "connect$signal" "$B/rdma_client" -t 60 -q 127.0.0.1 rxe0
			await catches "$pid"
			nap 0.2
			kill -$signal "$pid"
			reap "connect$signal"

			server "hello$signal" -t 60 -q rxe0
			start peer "$B/peer" connect 127.0.0.1 18515 hello record="$heard"
			await test -s "$heard"
			kill -$signal "${pids[hello$signal]}"
			reap "hello$signal" peer
			rm "$heard"
		done
		whole() { (($(stat -c %s "$heard") >= 79)); }
		for mode in "" -e; do
			server "message$mode" -t 60 -q $mode rxe0
			start peer "$B/peer" connect 127.0.0.1 18515 hello con sync plan \
				record="$heard"
			await test -s "$heard"
			await whole
			nap 0.2
			kill -INT "${pids[message$mode]}"
			reap "message$mode" peer
			rm "$heard"

			# Who never finds the CQ empty is to hear it, too.
			server "ping$mode.server" -q -t 4 $mode -n 1000000 rxe0
			SPY_LOG=$log SPY_LIE=ready LD_PRELOAD=$B/spy.so start "ping$mode.client" \
				"$B/rdma_client" -q $mode -n 1000000 127.0.0.1 rxe1
			await in_file "^wc" "$log"
			kill -TERM "$pid"
			reap "ping$mode.client" "ping$mode.server"
			rm "$log"
		done
		# Stopped and continued: that is no reason to end.
		server go.server -j -n 3000 rxe0
		SPY_LOG=$log LD_PRELOAD=$B/spy.so start go.client \
			"$B/rdma_client" -j -n 3000 127.0.0.1 rxe1
		await in_file "^wc" "$log"
		for i in 1 2 3; do
			freeze go.server go.client
			nap 0.1
			kill -CONT "${pids[go.server]}" "${pids[go.client]}"
			nap 0.05
		done
		reap go.client go.server
	' || return 0
	for name in {wait,connect,hello}{INT,TERM} message{,-e} ping{,-e}.client; do
		assert_error "$name" 1 'stopped by a signal'
	done
	for name in ping.server ping-e.server; do
		assert_error "$name" 1 'no completion|transport retry|closed|peer failed'
	done
	assert_pair go
}

# The result could not be written: that is a failure too.
test_full_disk() {
	in_lab '
		server json.server -q rxe0
		rc=0
		"$B/rdma_client" -j 127.0.0.1 rxe1 >/dev/full 2>"$T/json.err" || rc=$?
		echo "$rc" >"$T/json.rc"
		reap json.server
		server text.server -q rxe0
		rc=0
		"$B/rdma_client" -q 127.0.0.1 rxe1 >/dev/full 2>"$T/text.err" || rc=$?
		echo "$rc" >"$T/text.rc"
		reap text.server
	' || return 0
	assert_error json 1 .
	assert_error text 1 .
}

oneTimeSetUp() { build_helpers; }

. shunit2
