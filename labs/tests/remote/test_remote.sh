#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# memory_server with kv_client, lock_client and memory_bench in its memory; ring_server
# and ring_client: what each does, and what it refuses.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() { build_all; }

test_kv() {
	on_rxe '
		client run nobody kv_client -t 1 -c
		lend memory -q -c 4 -b 449 # rounded up to 512
		client run missing kv_client -k none
		for key in one two three; do client run "put.$key" kv_client -k "$key" -p "value $key"; done
		client run again kv_client -k two -p 第二
		client run empty kv_client -k one -p ""
		misled rkey post_send:2:rkey^1 kv_client -k two
		misled address post_send:2:remote_addr+2147483648 kv_client -k two
		for key in one two three; do says "get.$key" kv_client -k "$key"; done
		client run full kv_client -k four -p x
		client run absent kv_client -k four
		client run long kv_client -k one -p "$(printf %0300d 0)"
		says count kv_client -c
		run busy "$B/memory_server" rxe0
		end memory
		lend many -q -b 8192
		for i in {1..4}; do client start "c$i" kv_client -e -t 60 -n 30 -K 3; done
		reap c{1..4}
		client run total kv_client -c
		end many
	' || return 0
	assert_done memory put.{one,two,three} again empty get.{one,two,three} count many c{1..4} total
	assertEquals ':第二:value three' "$(out_of get.one):$(out_of get.two):$(out_of get.three)"
	assertEquals '3 keys, put 5 times' "$(out_of count)"
	assertEquals "no put is lost" "3 $(sum .puts c{1..4})" "$(json total '"\(.keys) \(.puts)"')"
	assert_error nobody 1 'no server listened there'
	assert_error missing 1 'there is no key "none"'
	assert_error absent 1 'there is no key "four"'
	assert_error full 1 'no cell is free for key "four": 3 were looked at'
	assert_error long 1 'the value has 300 bytes, a cell holds 180'
	assert_error rkey 1 'remote access error \(10\)'
	assert_error address 1 'remote access error \(10\)'
	assert_error busy 1 'EADDRINUSE'
}

# The reader has the word of version 1 and is held. Torn: version 2 is put, and of version
# 3, which goes where 1 was, only a part arrives. Overtaken: all of version 3 is there.
test_kv_reads_that_meet_a_write() {
	on_rxe '
		lend memory -q -b 8192
		client run first kv_client -n 1 -K 1 -w 100
		stop_at 2 torn kv_client -n 1 -K 1 -w 0
		client run second kv_client -n 1 -K 1 -w 100
		SPY_STOP=ibv_post_send:6 LD_PRELOAD=$spy start third "$B/sabotage" -o "$T/said" \
			post_send:5:sge.length-2000 "$B/kv_client" -j -n 1 -K 1 -w 100 10.99.0.1 rxe1
		stopped() { rdma resource show qp link rxe1 | grep -o "pid [0-9]*" | while read -r _ p; do
			[[ $(<"/proc/$p/stat") == *") T "* ]] && echo "$p"; done; }
		two() { (($(stopped | wc -l) == 2)); }
		await two
		kill -CONT "${pids[torn]}"
		reap torn
		kill -KILL $(stopped)
		reap third 2>/dev/null
		stop_at 2 overtaken kv_client -n 1 -K 1 -w 0
		client run fourth kv_client -n 2 -K 1 -w 100
		kill -CONT "${pids[overtaken]}"
		reap overtaken
		client run count kv_client -c
		end memory
	' || return 0
	assert_done memory first torn second overtaken fourth count
	assertEquals "torn once, and read again" '1 0 1' "$(json torn '"\(.torn) \(.overtaken) \(.gets)"')"
	assertEquals "overtaken" '0 1 1' "$(json overtaken '"\(.torn) \(.overtaken) \(.gets)"')"
	assertEquals "what was half written is not there" 4 "$(json count .puts)"
}

test_lock() {
	on_rxe '
		lend memory
		stop_at 6 holds lock_client -n 2
		stop_at 3 c1 lock_client -e -t 60 -n 60
		for i in {2..4}; do client start "c$i" lock_client -e -t 60 -n 60; done
		kill -CONT "${pids[holds]}" "${pids[c1]}"
		reap holds c{1..4}
		stop_at 6 dies lock_client -n 2
		kill9 dies
		says next lock_client -n 3
		client run look lock_client -n 0
		client start lost lock_client -n 4000000000
		await qps 1
		kill9 memory
		reap lost
		lend one -q -n 1
		stop_at 2 first lock_client -n 1
		client run second lock_client -n 1
		kill9 first
		end one
	' || return 0
	assert_done holds c{1..4} next look
	assertTrue "nobody met anybody" "(( $(sum .waits c{1..4}) > 0 ))"
	assertEquals "nothing to complete" 0 "$(sum .repairs c{1..4})"
	assertEquals '3 rounds: the counter was at 246, the record at 246; waited for 0 locks, completed 1 records' \
		"$(out_of next)"
	assertEquals '246 246' "$(json look '"\(.counter) \(.entries)"')"
	assert_in "$(out_of memory)" 'client 6 .*: a lock that it had is free again'
	assert_error lost 1 'retry|no acknowledge|answer'
	assert_error second 1 'the peer failed before sync point READY: EUSERS'
	assert_error one 0 'client 2 is turned away: 1 are connected'
}

test_bench() {
	local name
	on_rxe '
		lend memory -q -c 2 -b 4096
		client run read memory_bench -n 50 -s 4000
		client run deep memory_bench -n 50 -d 16 -e
		client run write memory_bench -W -n 50 -d 8 -Q 3
		client run add memory_bench -A -n 50 -d 4 -Q 3
		says words memory_bench -n 5 -s 8
		misled spoilt post_send:9:atomic.remote_addr+8 memory_bench -A -n 9
		misled short post_send:3:sge.length-8 memory_bench -n 1
		client run big memory_bench -s 4096
		end memory
	' || return 0
	assert_done memory read deep write add words
	for name in read deep write add; do
		assert_agree "$name" .per_s '.iters / .seconds' '.mb_per_s * 1e6 / .size'
	done
	# No more than half of them take longer than the median, so this holds for any.
	assertEquals 'one at a time' true "$(json read '.median_us > 0 and .median_us * .iters < 2e6 * .seconds')"
	assert_in "$(out_of words)" '^5 reads of 8 bytes, 1 at once by each of 1 QPs: [0-9]+ per second, [0-9.]+ MB/s; median [0-9.]+ us$'
	assert_error spoilt 1 '8 were added, not 9'
	assert_error short 1 'slot 0 has wrong bytes'
	assert_error big 1 '4096 bytes do not fit into a cell of 4096'
}

test_ring() {
	on_rxe '
		SPY_LOG=$T/log LD_PRELOAD=$spy ring ring -r 64
		for i in {1..4}; do client start "c$i" ring_client -t 60 -n 1500; done
		reap c{1..4}
		says words ring_client -n 6 -s 0
		stop_at 100 dies ring_client -n 1000
		kill9 dies
		misled rkey post_send:40:rkey^1 ring_client
		end ring
		ring narrow -q -r 2 -s 8 -n 1
		SPY_LOG=$T/narrow.log LD_PRELOAD=$spy client run all ring_client -t 60 -n 300
		await qps 0
		client run big ring_client -s 200
		await qps 0
		stop_at 1 first ring_client
		client run second ring_client
		kill9 first
		end narrow
		lend memory -q
		client run beside ring_client
		end memory
	' || return 0
	assert_done c{1..4} words all memory
	# What the misled one broke may still have waited for its credit.
	assertEquals "$(err_of ring)" 0 "$(rc_of ring)"
	assertEquals "who took all" 4 "$(grep -c ': took 1500 messages' <<<"$(out_of ring)")"
	assert_in "$(out_of words)" '^6 messages, all taken: [0-9]+ per second$'
	assert_agree c1 .messages_per_s '.messages / .seconds'
	assertEquals "receives" 0 "$(grep -c '^post_recv' "$T/log")"
	assertTrue "credit came at each message" "(($(grep -c '^post_send' "$T/log") < 6000))"
	assertEquals "of every length" "$(seq 16 64 | xargs)" \
		"$(sed -n 's/^post_send.* length=\([0-9]*\).*/\1/p' "$T/narrow.log" | sort -nu | xargs)"
	assert_error rkey 1 'remote access error \(10\)'
	assert_error big 1 'a message of 200 bytes does not fit into a place of 64'
	assert_error second 1 'the peer failed before sync point READY: EUSERS'
	assert_error narrow 0 'client 4 is turned away: 1 are connected'
	assert_error beside 1 'the server has no ring for me'
}

test_a_message_counts_when_it_is_whole() {
	assertEquals 'ring: 0 failures' "$(on_host "$B/unit_ring")"
}

test_wrong_usage() {
	local pattern words
	while IFS='|' read -r pattern words; do
		# shellcheck disable=SC2086 # words
		usage_error "$pattern" $words
	done <<-'END'
		--cells and --cell-bytes make more|memory_server -c 1048576
		--cells is not|memory_server -c 1
		--cell-bytes is not|memory_server -b 262145
		--max-clients is not|memory_server -n 4097
		--lease is not|memory_server -l 0
		--places is not|ring_server -r 1
		--size is not|ring_server -s 4097
		--places and --size make more|ring_server -r 65536 -s 4096
		the server is missing|lock_client
		--rounds is not|lock_client -n x 10.99.0.1
		too many arguments: x|lock_client 10.99.0.1 rxe0 1 1 x
		--depth is not|memory_bench -d 1025 10.99.0.1
		--size is not|memory_bench -s 7 10.99.0.1
		--messages is not|ring_client -n 0 10.99.0.1
		one of --key, --rounds, --count|kv_client 10.99.0.1
		one of --key, --rounds, --count|kv_client -k x -c 10.99.0.1
		--key is not|kv_client -k 12345678901234567890123456789012 10.99.0.1
		--puts is not|kv_client -n 1 -w 101 10.99.0.1
	END
	for words in memory_server ring_server {lock,kv,ring}_client memory_bench; do
		assertTrue "$words --help" "$B/$words --help >$T/out"
	done
}

. shunit2
