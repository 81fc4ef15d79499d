#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server --many under sanitizers, with one greedy client, and where receives get lost.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# In the lab. qps N: rxe0 has N QPs in RTS
MANY='
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
'

# A class of 512 for a minute, 30 of whom are killed at random: all that anybody gets is
# right, and the server's memory is what it was. In counted time: on a busy machine, ACKs
# would be late for their timers.
test_512() {
	local memory
	in_lab --counted "$MANY"'
		kept() { awk "/^Vm(RSS|Pin|Lck):/ { n += \$2 } END { print n }" "/proc/${pids[many]}/status" >>"$T/memory"; }
		server many -j --many 512 -s 64 -t 600 rxe0
		# Who is connected sleeps until all are.
		for n in {32..512..32}; do
			for ((i = n - 31; i <= n; i++)); do
				start "c$i" "$B/rdma_client" -q -e -s 64 -n 10000000 -t 600 127.0.0.1 rxe1
			done
			await qps "$n"
			for ((i = n - 31; i <= n; i++)); do kill -STOP "${pids[c$i]}"; done
		done
		for i in {1..512}; do kill -CONT "${pids[c$i]}"; done
		kept
		for i in $(shuf -i 1-512 -n 30); do
			kill -KILL "${pids[c$i]}"
			nap 2
		done
		await qps 482
		kept
		for i in {1..512}; do kill "${pids[c$i]}"; done 2>/dev/null
		reap c{1..512} 2>/dev/null
		await qps 0
		kept
		client last -q -e -n 5 -s 64 127.0.0.1 rxe1
		kill "${pids[many]}"
		reap many
	' || return 0
	mapfile -t memory <"$T/memory"
	assertEquals "$(err_of last)$(err_of many)" '0 0' "$(rc_of last) $(rc_of many)"
	assertEquals 30 "$(cat "$T"/c*.rc | grep -cx 137)"
	assertEquals '{"served":1,"failed":512}' "$(json many '{served, failed}' | jq -c .)"
	assertEquals '' "$(grep -hE 'arrived wrong|not what it planned|does not go on|deadline|retry' "$T"/*.err)"
	assertTrue "$(out_of many)" "(($(json many .messages) > 5000))"
	assertTrue "kB: ${memory[*]}" "((memory[1] <= memory[0] + 512 && memory[2] <= memory[0]))"
}

test_with_sanitizers() {
	build_sanitized rdma_server rdma_client sabotage libsaboteur.so
	under_sanitizers labs/tests/pair/test_many.sh test_all_kinds test_full_and_stop
}

# Eight play ping-pong while one sends all that it may. In counted time they take no
# longer for it; without the credits they wait for the SRQ, three times as long and more.
test_greedy() {
	in_lab --counted '
		play() { # NAME GREEDY SERVER-ARG…
			server "$1.server" -q --many 32 "${@:3}" rxe0
			if (($2)); then
				start greedy "$B/rdma_client" -q -e -b -w 4096 -s 64 -n 10000000 127.0.0.1 rxe1
				nap 1
			fi
			for i in {1..8}; do
				start "$1$i" "$B/rdma_client" -j -e -n 300 -s 64 127.0.0.1 rxe1
			done
			reap "$1"{1..8}
			! (($2)) || kill9 greedy
			kill "${pids[$1.server]}"
			reap "$1.server"
		}
		play none 0
		play with 1
		play without 1 --credits 0
	' || return 0
	total() { cat "$T/$1"[1-8].out | jq -s 'map(.seconds) | add * 1000 | floor'; }
	assertTrue "$(total none) ms, with credits $(total with)" "(($(total with) < $(total none) * 3 / 2))"
	assertTrue "$(total none) ms, without credits $(total without)" "(($(total without) > $(total none) * 2))"
}

# A receive that a killed client's long message has begun is lost on rxe. While nobody is
# there, all are replaced.
test_lost_receives() {
	in_lab "$MANY"'
		server many -j -s 1000000 --many 2 --slots 4 rxe0
		for i in {1..8}; do
			start dies "$B/rdma_client" -e -s 1000000 -b -n 100000 127.0.0.1 rxe1
			await qps 1
			nap 0.1
			kill9 dies
			await qps 0
		done
		client alone -q -e -s 1000000 -n 5 127.0.0.1 rxe1
		kill "${pids[many]}"
		reap many
	' || return 0
	assertEquals "$(err_of alone)$(err_of many)" '0 0 1' "$(rc_of alone) $(rc_of many) $(json many .served)"
}

. shunit2
