#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 when something is wrong with the other side: the bootstrap peer lies or
# is none of ours, the other process is late, stopped or gone. This side ends in
# time, with 1 and one error that says why, and takes down what it has built. And
# the plugin with strangers: a user of it, and hostile peers of its own sockets.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

# hostile server|client <TABLE: that side of ours meets a peer: its script; what ours says
hostile() {
	local i items says rows
	mapfile -t rows
	for i in "${!rows[@]}"; do
		IFS=';' read -r items _ <<<"${rows[i]}"
		read -ra items <<<"$items"
		at_most_four
		"meets_$1" "$i" &
	done
	wait
	for i in "${!rows[@]}"; do
		IFS=';' read -r _ says <<<"${rows[i]}"
		judge "$i" "$says"
	done
}
meets_server() {
	server_side "$1" -q -t 1
	start "$1.peer" "$N/peer" connect 127.0.0.1 "$port" "${items[@]}"
	reap "$1" "$1.peer"
}
meets_client() {
	start "$1.peer" "$N/peer" listen "$port" "${items[@]}"
	await listening "$port"
	client_side "$1" -q -t 1
	reap "$1.peer"
}

test_hostile_clients() {
	hostile server <<-'END'
		deal cut=24 close;reading the peer's plan
		deal,version=2;version 2; expected 0x504c414e version 1
		deal,size=0x10000000000;plan cannot be: mode 0, 1 messages of 1099511627776 bytes
		deal,iters=0;plan cannot be: mode 0, 0 messages
		deal,mode=3;plan cannot be: mode 3
		deal,text=1,size=4096;plan cannot be: mode 0, 1 messages of 4096 bytes
		deal close;waiting for the peer to reach READY|peer's sync|accept
		deal,mode=2 handles,count=2 fill=256;one channel there and one back, not 1 and 2
		deal,mode=2 handles fill=127 close;reading the peer's handles
		deal;accept\(\): nothing came
		deal handles;the peer is at sync point
		fill=4096;waiting for a client: nothing came
	END
}

# One that is gone already is noticed at the first write, too.
test_hostile_servers() {
	hostile client <<-'END'
		close;reading the peer's handle header|sending my handles: the peer closed
		reset;reading the peer's handle header|connecting to 127.0.0.1
		fill=4096;handle header begins with magic 0x41414141
		handles,version=2;version 2; expected 0x54435058 version 1
		handles,count=65 fill=8320;announces 65 handles
		handles,length=129 fill=129;announces 1 handles of 129 bytes; it must be 1 ... 64 of 128
		handles,api=5 fill=128;made by listen of API v5, this side connects through v8
		handles fill=127;reading the peer's handles: nothing came
		handles,count=64 fill=8191 close;reading the peer's handles|sending my handles: the peer closed
		handles fill=128;connect\(dev 0\) of plugin
		;reading the peer's handle header: nothing came
	END
}

# Who does not answer the handles with a plan does not end the server: not one by
# one, not when they stay, not when there are more than it has room for (16).
test_strangers() {
	local i words=(close reset 'text=GET / HTTP/1.1__Host: localhost____' fill=4096
		'deal,magic=0x5443505802')
	next_port
	server_side met.server -q -c 64 -t 60
	stay 1 8 "$N/peer"
	for i in "${!words[@]}"; do
		run "stranger$i" "$N/peer" connect 127.0.0.1 "$port" "${words[i]}"
	done
	stay 9 20 "$N/peer"
	client_side met.client -q
	reap met.server
	reap "${!pids[@]}" 2>/dev/null
	assertEquals "$(err_of met.server)" 0 "$(rc_of met.server)"
	assertEquals "$(err_of met.client)" 0 "$(rc_of met.client)"
	assert_in "$(err_of met.server)" '^warning: .*begins with "GET "; still waiting'
	assert_not_in "$(err_of met.server)" '^error'
}

# As soon as one has answered, the others are sent away, not when all is over.
test_strangers_are_sent_away() {
	next_port
	server_side kept.server -q -t 20
	stay 1 3 "$N/peer"
	start answers "$N/peer" connect 127.0.0.1 "$port" deal
	reap stays1 stays2 stays3
	assertFalse "the server goes on" "ended ${pids[kept.server]}"
	kill "${pids[answers]}" "${pids[kept.server]}"
	reap answers kept.server 2>/dev/null
}

# One that has not answered with a plan is no client: another may come.
test_disagreements() {
	pairs '' <<-END
		size;;;the client plans 1 messages of 101 bytes;$READY;-q -s 100 : -q -s 101
		iters;;;the client plans 4 messages of 24 bytes;$READY;-q -n 3 : -q -n 4
		mode;;;in another mode;$READY;-q -b : -q -l
		channels;;;$ABSENT;the server has 2 channels, this client was told 3;-q -t 2 -c 2 : -q -c 3
		ping;;;$ABSENT;leave out --channels|one channel there and one back;-q -t 2 -c 2 : -q -l
	END
}

# long_pair NAME [OPTION…]: a pair in the middle of its messages, until it is told
# otherwise; the OPTIONs are the client's. The victims run without timeout(1), which
# kill -9 would hit instead of them.
long_pair() {
	next_port
	start "$1.server" "$B/test_connection" -q -p "$port" server
	await listening_or_ended "$port" "$pid"
	start "$1.client" "$B/test_connection" -p "$port" -s 8388608 -n 10000000 "${@:2}" client 127.0.0.1
	await in_file 'Testing data transfer' "$T/$1.client.out"
}

test_killed_and_stopped() {
	local signal victim other
	for signal in KILL INT TERM; do
		for victim in server client; do
			[[ $victim == server ]] && other=client || other=server
			long_pair "$signal"
			kill -s "$signal" "${pids[$signal.$victim]}"
			reap "$signal.$victim" "$signal.$other" 2>/dev/null
			judge "$signal.$other" "$LOST"
			[[ $signal == KILL ]] || judge "$signal.$victim" 'stopped by a signal'
		done
	done
	# Before there is a pair
	next_port
	start waits "$B/test_connection" -q -p "$port" server
	await listening "$port"
	kill -INT "${pids[waits]}"
	reap waits
	judge waits 'stopped by a signal'
}

# A peer that is stopped is no dead one: after the time that was given, it ends. And while
# one is served, there is no room for a second client.
test_stopped_peer() {
	long_pair stopped -t 1 -s 1000000
	freeze stopped.server
	client_side second -q -t 1
	reap stopped.client
	kill -CONT "${pids[stopped.server]}"
	reap stopped.server
	judge second 'ECONNREFUSED'
	judge stopped.client 'moving messages: nothing came before the deadline'
	judge stopped.server "$LOST"
}

# The plugin's own sockets: every field of a hello, a frame and a credit is wrong once.
test_hostile_net_peers() {
	run hostile timeout 200 "$N/net_hostile" "$NET_SHIM_REAL"
	assertEquals "$(grep -v '^ok' "$T/hostile.out") $(err_of hostile)" 0 "$(rc_of hostile)"
	assert_in "$(out_of hostile)" '^41 cases, 0 failed$'
}

# An independent user of the interface: it has none of this project's headers.
test_net_driver() {
	local name v
	for v in 5 6 7 8; do
		run "lab.$v" timeout 100 "$N/net_driver" "$B/libnccl-net-lab.so" "$v" all
	done
	run mixed timeout 100 "$N/net_driver" "$B/libnccl-net-mixed.so" 7 all
	for v in 1 8; do
		NCCL_LAB_NSOCKS=$v run "sockets.$v" timeout 100 "$N/net_driver" "$B/libnccl-net-lab.so" 8 all
	done
	for name in lab.{5,6,7,8} mixed sockets.{1,8}; do
		assertEquals "$name: $(out_of "$name") $(err_of "$name")" 0 "$(rc_of "$name")"
	done
}

oneTimeSetUp() { build_net; }

. shunit2
