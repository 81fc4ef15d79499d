#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 when something is wrong with the other side: the bootstrap peer lies or
# is none of ours, the other process is late, stopped or gone. This side ends in
# time, with 1 and one error that says why, and takes down what it has built.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

# ---- the bootstrap peer

# Each row: the peer's script | what the error must say
hostile_clients() {
	cat <<-'END'
		deal cut=24 close|reading the peer's plan
		deal,version=2|version 2; expected 0x504c414e version 1
		deal,version=0|version 0; expected
		deal,size=0x10000000000|plan cannot be: mode 0, 1 messages of 1099511627776 bytes
		deal,size=1073741825|plan cannot be
		deal,size=0xffffffffffffffff|plan cannot be
		deal,iters=0|plan cannot be: mode 0, 0 messages
		deal,iters=100000001|plan cannot be
		deal,mode=3|plan cannot be: mode 3
		deal,text=2|plan cannot be
		deal,text=1,size=4096|plan cannot be: mode 0, 1 messages of 4096 bytes
		deal,mode=2,text=1,size=24|plan cannot be: mode 2
		deal close|waiting for the peer to reach READY|peer's sync|accept
		deal,mode=2 close|reading the peer's handle header
		deal,mode=2 handles,count=2 fill=256|one channel there and one back, not 1 and 2
		deal,mode=2 handles,count=0|announces 0 handles
		deal,mode=2 handles fill=127 close|reading the peer's handles
		deal,mode=2 handles fill=128|accept|nothing came|peer is at sync point
		deal|accept\(\): nothing came
		deal handles|the peer is at sync point
	END
}

hostile_servers() {
	cat <<-'END'
		close|reading the peer's handle header
		reset|reading the peer's handle header|connecting to 127.0.0.1
		fill=4096|handle header begins with magic 0x41414141
		text=HTTP/1.1 400 Bad Request|"HTTP".*expected 0x54435058
		handles cut=11 close|reading the peer's handle header
		handles,magic=0x504c414e|handle header begins with magic 0x504c414e \("PLAN"\)
		handles,version=2|version 2; expected 0x54435058 version 1
		handles,count=0|announces 0 handles of 128 bytes
		handles,count=65 fill=8320|announces 65 handles
		handles,count=65535|announces 65535 handles
		handles,length=127 fill=127|announces 1 handles of 127 bytes; it must be 1 ... 64 of 128
		handles,length=129 fill=129|announces 1 handles of 129 bytes
		handles,length=0xffff|announces 1 handles of 65535 bytes
		handles,api=5 fill=128|made by listen of API v5, this side connects through v8
		handles fill=127 close|reading the peer's handles
		handles fill=127|reading the peer's handles: nothing came
		handles,count=64 fill=8191 close|reading the peer's handles
		handles fill=128|connect\(dev 0\) of plugin
		handles fill=129|connect\(dev 0\) of plugin|peer is at sync point
		handles,count=2 fill=256|connect\(dev 0\) of plugin
		|reading the peer's handle header: nothing came
	END
}

# hostile_row NAME ROW server|client: one of ours against it, on $port
hostile_row() {
	local items
	IFS=' ' read -ra items <<<"${2%%|*}"
	[[ $2 != text=* ]] || items=("${2%%|*}")
	if [[ $3 == client ]]; then
		start "$1.peer" "$N/peer" listen "$port" "${items[@]}"
		await listening "$port"
		client_side "$1" -q -t 1
	else
		server_side "$1" -q -t 1
		start "$1.peer" "$N/peer" connect 127.0.0.1 "$port" "${items[@]}"
		reap "$1"
	fi
	reap "$1.peer"
}

check_hostile() { # hostile_clients|hostile_servers server|client
	local i=0 row want
	while IFS= read -r row; do
		while (($(jobs -pr | wc -l) >= 4)); do
			wait -n || :
		done
		i=$((i + 1))
		next_port
		hostile_row "$i" "$row" "$2" &
	done < <("$1")
	wait
	i=0
	while IFS= read -r row; do
		i=$((i + 1))
		want=${row#*|}
		# One that is gone already is noticed at the first write, too.
		[[ $row != *close\|* ]] || want+='|sending my handles: the peer closed'
		assert_fails "$i" "$want"
	done < <("$1")
	assertTrue "many cases" "[[ $i -ge 18 ]]"
}

test_hostile_clients() { took 20 check_hostile hostile_clients server; }
test_hostile_servers() { took 20 check_hostile hostile_servers client; }

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
	assert_in "$(err_of met.server)" '^warning: .*begins with "AAAA"; still waiting'
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

test_nobody_there() {
	next_port
	took 3 client_side alone -q -t 1
	assert_fails alone 'ECONNREFUSED.*no server listened'
	server_side lonely -q -t 1
	took 3 reap lonely
	assert_fails lonely 'waiting for a client'
	next_port
	start other "$N/peer" listen "$port"
	await listening "$port"
	side busy -q server
	took 3 reap busy
	assert_fails busy 'EADDRINUSE'
	kill "${pids[other]}"
	reap other
}

test_disagreements() {
	talks size -q -s 100 : -q -s 101
	talks iters -q -n 3 : -q -n 4
	talks mode -q -b : -q -l
	talks channels -q -t 2 -c 2 : -q -c 3
	talks ping -q -t 2 -c 2 : -q -l
	wait
	assert_fails size.server 'the client plans 1 messages of 101 bytes'
	assert_fails iters.server 'the client plans 4 messages of 24 bytes'
	assert_fails mode.server 'in another mode'
	for name in size iters mode; do
		assert_fails "$name.client" "$NOT_READY"
	done
	assert_fails channels.client 'the server has 2 channels, this client was told 3'
	assert_fails ping.client 'leave out --channels|one channel there and one back'
	# It has not answered with a plan: another may come, with the right ones.
	assert_fails channels.server 'waiting for a client: nothing came'
	assert_fails ping.server 'waiting for a client: nothing came'
}

# The plugin's own sockets: every field of a hello, a frame, a credit and a handle is
# wrong once, in every way that the checks know.
test_hostile_net_peers() { assert_hostile_peers; }

# ---- the other process

# long_pair NAME [OPTION…]: a pair in the middle of its messages, until it is told otherwise;
# the OPTIONs are the client's.
# The victims run without timeout(1), which kill -9 would hit instead of them.
long_pair() {
	next_port
	start "$1.server" "$B/test_connection" -q -p "$port" server
	await listening_or_ended "$port" "$pid"
	start "$1.client" "$B/test_connection" -p "$port" -s 67108864 -n 20000 \
		"${@:2}" client 127.0.0.1
	await in_file 'Testing data transfer' "$T/$1.client.out"
	nap 0.2
}

not_listening() { ! listening "$1"; }

test_second_client() {
	next_port
	server_side first.server -q
	start first.client "$B/test_connection" -q -p "$port" -s 100000 -n 20000 client 127.0.0.1
	await not_listening "$port"
	freeze first.client
	client_side second -q -t 1
	kill -CONT "${pids[first.client]}"
	reap first.client first.server
	assert_fails second 'ECONNREFUSED'
	assert_pair first
}

test_killed() {
	local victim other
	for victim in server client; do
		[[ $victim == server ]] && other=client || other=server
		long_pair "$victim"
		kill -KILL "${pids[$victim.$victim]}"
		took 5 reap "$victim.$other"
		reap "$victim.$victim" 2>/dev/null
		assertEquals 137 "$(rc_of "$victim.$victim")"
		assert_fails "$victim.$other" \
			"$LOST"
	done
}

test_stop_signals() {
	local victim other signal
	for signal in INT TERM; do
		for victim in server client; do
			[[ $victim == server ]] && other=client || other=server
			long_pair "$victim"
			kill -s "$signal" "${pids[$victim.$victim]}"
			took 5 reap "$victim.$victim" "$victim.$other"
			assert_fails "$victim.$victim" 'stopped by a signal'
			assert_fails "$victim.$other" \
				"$LOST"
		done
		next_port
		start waiting "$B/test_connection" -q -p "$port" server
		await listening "$port"
		kill -s "$signal" "$pid"
		took 2 reap waiting
		assert_fails waiting 'stopped by a signal'
		# While it retries: nobody listens.
		next_port
		start retrying "$B/test_connection" -q -p "$port" client 127.0.0.1
		nap 0.3
		kill -s "$signal" "$pid"
		took 2 reap retrying
		assert_fails retrying 'stopped by a signal'
		# In a plugin that is never ready.
		next_port
		server_side accepting.peer -q -t 4
		pids[child]=$(pgrep -P "$pid")
		freeze child
		start accepting "$B/test_connection" -q -p "$port" client 127.0.0.1
		nap 0.3
		kill -s "$signal" "${pids[accepting]}"
		took 2 reap accepting
		kill -CONT "${pids[child]}"
		reap accepting.peer
		assert_fails accepting 'stopped by a signal'
	done
}

# A receiver that always has something to check never waits, and yet it looks.
test_stop_while_busy() {
	local i
	for i in 1 2 3; do
		long_pair busy -s 8388608 -n 100000
		kill -INT "${pids[busy.server]}"
		took 1 reap busy.server
		took 2 reap busy.client
		assert_fails busy.server 'stopped by a signal'
		assert_fails busy.client "$LOST"
	done
}

# A peer that is stopped is no dead one: after the time that was given, it ends.
test_stopped_peer() {
	long_pair stopped -t 3 -s 1000000 -n 100000
	freeze stopped.server
	took 8 reap stopped.client # without -t: 10
	kill -CONT "${pids[stopped.server]}"
	reap stopped.server
	assert_fails stopped.client 'moving messages: nothing came before the deadline'
	assert_fails stopped.server "$LOST"
}

test_full_disk() {
	next_port
	server_side json.server -j
	NET_SHIM='' "$B/test_connection" -j -p "$port" client 127.0.0.1 \
		>/dev/full 2>"$T/json.err"
	echo "$?" >"$T/json.rc"
	reap json.server
	assert_fails json 'could not be written'
	assertEquals 0 "$(rc_of json.server)"
}

oneTimeSetUp() { build_net; }

. shunit2
