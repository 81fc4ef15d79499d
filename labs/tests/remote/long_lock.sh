#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# memory_server and lock_client: a counter and a lock that eight clients share, and
# who is killed or stopped in it.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() {
	build_helpers
	export spy=$B/spy.so
}

test_eight_clients() {
	on_rxe '
		lend memory -q
		for i in {1..8}; do client start "c$i" lock_client -e -t 60 -n 60; done
		reap c{1..8}
		client run look lock_client -n 0
		end memory
	' || return 0
	assert_done memory look c{1..8}
	assertEquals "the counter" 480 "$(json look .counter)"
	assertEquals "the record" 480 "$(json look .entries)"
	assertEquals "nothing to complete" 0 "$(sum .repairs c{1..8})"
	assertTrue "nobody met anybody" "(( $(sum .waits c{1..8}) > 0 ))"
}

# Its requests: add, read, swap, read, write, write, swap; so up to the next round.
test_killed_at_any_request() {
	local n
	on_rxe '
		lend memory
		for n in {1..8}; do
			stop_at "$n" "dies$n" lock_client -n 2
			await halted "dies$n"
			kill9 "dies$n"
			client run "after$n" lock_client -n 3
		done
		end memory
	' || return 0
	assert_done memory after{1..8}
	assertEquals "killed in between two words" 1 "$(sum .repairs after{1..8})"
	assertEquals "completed by the next one" 1 "$(json after6 .repairs)"
	# Stopped before the nth request, so these are done: the add of all but the first
	# (the last one stopped in its second round), the record of those past both WRITEs.
	assertEquals "the counter" $((24 + 7)) "$(json after8 .counter)"
	assertEquals "the record" $((24 + 3)) "$(json after8 .entries)"
	assertEquals "locks that were freed" 4 \
		"$(grep -c 'a lock that it had is free again' <<<"$(out_of memory)")"
}

# In the middle of their work, all clients of this room.
test_stopped_by_a_signal() {
	local name
	on_rxe '
		interrupt() { # NAME
			stop_at 5 "$1" "$1" -t 20 -n 1000000
			await halted "$1"
			kill -INT "${pids[$1]}"
			kill -CONT "${pids[$1]}"
			reap "$1"
		}
		lend memory -q -b 8192
		for name in {lock,kv}_client memory_bench; do interrupt "$name"; done
		end memory
		ring ring -q
		interrupt ring_client
		end ring
	' || return 0
	assert_done memory ring
	for name in {lock,kv,ring}_client memory_bench; do assert_error "$name" 1 'stopped by a signal'; done
}

# The server stands before ibv_destroy_qp: whoever looks then must find the lock taken.
test_a_lock_is_freed_after_its_qp() {
	on_rxe '
		lend_and_stop() {
			local -x SPY_STOP=ibv_destroy_qp:1 LD_PRELOAD=${asan:+$asan:}$spy
			lend "$@"
		}
		lend_and_stop memory
		stop_at 5 dies lock_client -n 2
		await halted dies
		stop_at 1 looks lock_client -n 1 -t 5
		await halted looks
		kill9 dies
		await halted memory
		kill -CONT "${pids[looks]}"
		reap looks
		kill -CONT "${pids[memory]}"
		client run after lock_client -n 1
		end memory
	' || return 0
	assert_error looks 1 'client 1 has kept the lock of cell 0'
	assert_done after
}

# Stopped with the lock: sent away, and what it does when it wakes up does nothing. Who is
# stopped without one may stay.
test_stopped_with_the_lock() {
	on_rxe '
		lend memory -l 1
		stop_at 1 idle lock_client -n 1
		await halted idle
		stop_at 5 stopped lock_client -n 2
		await halted stopped
		client run impatient lock_client -n 1 -t 1
		client run patient lock_client -n 5 -t 60
		kill -CONT "${pids[stopped]}"
		kill -CONT "${pids[idle]}"
		reap stopped idle
		client run look lock_client -n 0
		end memory
	' || return 0
	assert_done idle patient look
	assertEquals 0 "$(rc_of memory)"
	assert_in "$(err_of memory)" 'client 2 .* has kept a lock for [0-9]+ ms and is sent away'
	assert_in "$(rc_of impatient)" '^[01]$'
	[[ $(rc_of impatient) == 0 ]] ||
		assert_error impatient 1 'client 2 has kept the lock of cell 0 for 1000 ms'
	assert_error stopped 1 'WRITE|SWAP|CMP_SWP|retry|RETRY'
	assertEquals "only the others'" $((1 + 5 + 1 - $(rc_of impatient))) "$(json look .entries)"
}

# What they say to people, all clients of this room.
test_results_in_words() {
	on_rxe '
		says() { run "$1" "$B/$1" -q "${@:2}" 10.99.0.1 rxe1; }
		lend memory -q
		says lock_client -n 3
		says memory_bench -n 5 -s 8
		says kv_client -n 4 -K 1 -w 100
		run count "$B/kv_client" -q -c 10.99.0.1 rxe1
		end memory
		ring ring -q
		says ring_client -n 6
		end ring
	' || return 0
	assert_done memory ring lock_client memory_bench kv_client count ring_client
	assertEquals '3 rounds: the counter was at 3, the record at 3; waited for 0 locks, completed 0 records' \
		"$(out_of lock_client)"
	assert_in "$(out_of memory_bench)" '^5 reads of 8 bytes, 1 at once by each of 1 QPs: [0-9]+ per second, [0-9.]+ MB/s; median [0-9.]+ us$'
	assertEquals '4 puts, 0 gets, all values right; 0 READs were torn and 0 overtaken, and done again' \
		"$(out_of kv_client)"
	assertEquals '1 keys, put 4 times' "$(out_of count)"
	assert_in "$(out_of ring_client)" '^6 messages, all taken: [0-9]+ per second$'
}

# A lock that does not hold, an add that is lost: of that they are the judges.
test_what_the_clients_judge_by() {
	on_rxe '
		lend memory -q
		misled open post_send:6:sge.addr+16 lock_client -n 2
		end memory
		lend memory -q
		misled stolen post_send:3:atomic.remote_addr+2048 lock_client -n 1
		end memory
		lend memory -q
		misled back post_send:1:atomic.remote_addr+32 lock_client -n 2
		misled added post_send:9:atomic.remote_addr+8 memory_bench -A -n 9
		end memory
	' || return 0
	assert_error open 1 'the lock did not hold: 1 entries, 0 exits'
	assert_error back 1 'the counter went from 1 to 0'
	assert_error stolen 1 'the lock of cell 0 was mine'
	assert_error added 1 '8 were added, not 9'
}

test_errors() {
	on_rxe '
		lend memory -q -n 1
		stop_at 2 first lock_client -n 1
		await halted first
		client run second lock_client -n 1
		kill9 first
		client run third lock_client -n 1
		for rule in rkey^1 rkey^256 remote_addr+2147483648; do
			run "bad$rule" "$B/sabotage" -o "$T/said" "post_send:3:atomic.${rule/atomic.}" \
				"$B/lock_client" -j 10.99.0.1 rxe1
		done
		run odd "$B/sabotage" -o "$T/said" post_send:1:atomic.remote_addr+4 \
			"$B/lock_client" -j 10.99.0.1 rxe1
		await qps 0
		client run fourth lock_client -n 1
		start lost "$B/lock_client" -j -n 4000000000 10.99.0.1 rxe1
		await qps 1
		kill9 memory
		reap lost
		server other -q -t 60 rxe0
		run stranger "$B/lock_client" -t 3 10.99.0.1 rxe1
		reap other
		run nobody "$B/lock_client" -t 1 10.99.0.1 rxe1
	' || return 0
	assert_done third fourth
	assert_error second 1 'the peer failed before sync point READY: EUSERS'
	assert_error 'badrkey^1' 1 'remote access error \(10\)'
	assert_error 'badrkey^256' 1 'remote access error \(10\)'
	assert_error 'badremote_addr+2147483648' 1 'remote access error \(10\)'
	assert_error odd 1 'EINVAL'
	assert_error lost 1 'retry|no acknowledge|answer'
	assert_error stranger 1 'plan of the memory|lends no memory'
	assert_error nobody 1 'no server listened there'
}

test_the_bench_checks_what_it_measures() {
	local n what
	on_rxe '
		lend memory -q -c 2 -b 4096
		client run read memory_bench -n 50 -s 4000
		client run deep memory_bench -n 50 -d 16 -e
		client run write memory_bench -W -n 50 -d 8
		client run add memory_bench -A -n 50 -d 4
		SPY_LOG=$T/turns.log LD_PRELOAD=$spy client run turns memory_bench -n 50 -d 4 -Q 3
		client run "turns write" memory_bench -W -n 2 -Q 9 -e
		client run "turns add" memory_bench -A -n 50 -d 2 -Q 8
		stop_at 36 held memory_bench -n 50 -Q 8
		await halted held
		qps 8 && touch "$T/eight"
		kill -CONT "${pids[held]}"
		reap held
		client run crowd memory_bench -Q 65
		for n in 30 31 32 33; do (ulimit -n $n && client run few$n memory_bench -e -Q 64); done
		misled spoilt post_send:9:skip memory_bench -A -n 9 -d 16 -t 1
		misled short post_send:3:sge.length-8 memory_bench -n 1
		client run big memory_bench -s 4096
		# Who never finds the CQ empty hears a signal, too.
		export SPY_LOG=$T/spy.log
		SPY_LIE=ready LD_PRELOAD=$spy client start stopped memory_bench -n 200000
		await in_file ^wc "$SPY_LOG"
		end stopped memory
	' || return 0
	assert_error memory 0 'client [0-9]+ is turned away: 64 are connected'
	assert_done read deep write add turns "turns write" "turns add" held
	assertEquals 50 "$(json add .iters)"
	for n in read deep write add; do
		assert_agree "$n" .per_s '.iters / .seconds' '.mb_per_s * 1e6 / .size'
	done
	# No more than half of them take longer than the median, so this holds for any.
	assertEquals 'one at a time' true "$(json read '.median_us > 0 and .median_us * .iters < 2e6 * .seconds')"
	assertEquals 3 "$(json turns .qps)"
	for what in pd mr cq qp device; do
		assertEquals "made of $what" 3 "$(grep -c "^make $what" "$T/turns.log")"
		assertEquals "unmade of $what" 3 "$(grep -c "^unmake $what" "$T/turns.log")"
	done
	assertTrue "8 QPs at once" "[ -e $T/eight ]"
	assert_error crowd 1 'EUSERS'
	# Whichever call it is that finds no descriptor left.
	for n in 30 31 32 33; do
		assert_error few$n 1 'EMFILE|too few file descriptors'
		assert_in "$(err_of few$n)" '^ next: .*ulimit -n'
	done
	assert_error spoilt 1 'no completion|9'
	assert_error short 1 'slot 0 has wrong bytes'
	assert_error stopped 1 'stopped by a signal'
	assert_error big 1 '4096 bytes do not fit into a cell of 4096'
}

# Whatever a program asks the system for is refused once: it ends with one error, a server
# of many goes on without the client that it was for.
test_refusals() {
	on_rxe '
		lend other -q
		refusals memory_server "$B/memory_server" -q rxe0
		refusals kv_client "$B/kv_client" -q -k x -p y 10.99.0.1 rxe1
		refusals lock_client "$B/lock_client" -q -n 3 10.99.0.1 rxe1
		refusals memory_bench "$B/memory_bench" -q -n 3 -Q 3 10.99.0.1 rxe1
		end other
		ring other -q
		refusals ring_client "$B/ring_client" -q -n 3 10.99.0.1 rxe1
		end other
		start_host() { serve "$1" "$B/$1_server" -q rxe0; }
		meet_host() {
			client run guest "$guest" -n 3
			kill "${pids[$1]}"
		}
		guest=ring_client refusals_of_server ring
		guest=lock_client refusals_of_server memory
	' || return 0
	assert_done kv_client lock_client memory_bench ring_client ring memory guest
	assertEquals "$(err_of other)" 0 "$(rc_of other)"
	assert_error memory_server 1 EADDRINUSE
	assertEquals 'who was refused' \
		'memory_server kv_client lock_client memory_bench ring_client ring memory' \
		"$(cut -d '|' -f1 "$T/lab.out" | uniq | xargs)"
	assert_refusals 100 '.* connect|(ring|memory) (socket|getpeername|recv)' 'ring|memory' <"$T/lab.out"
}

test_wrong_usage() {
	local n
	usage_error 'the server is missing' lock_client
	usage_error '--rounds is not' lock_client -n x 10.99.0.1
	usage_error 'too many arguments: x' lock_client 10.99.0.1 rxe0 1 1 x
	usage_error '--cells and --cell-bytes make more' memory_server -c 1048576
	for n in 1 1048577 x; do usage_error '--cells is not' memory_server -c "$n"; done
	for n in 255 262145; do usage_error '--cell-bytes is not' memory_server -b "$n"; done
	for n in 0 4097; do usage_error '--max-clients is not' memory_server -n "$n"; done
	usage_error '--lease is not' memory_server -l 0
	usage_error '--depth is not' memory_bench -d 1025 10.99.0.1
	usage_error '--size is not' memory_bench -s 7 10.99.0.1
	for n in memory_server memory_bench lock_client; do
		assertEquals "$n --help" 0 "$("$B/$n" --help >/dev/null; echo $?)"
	done
}

. shunit2
