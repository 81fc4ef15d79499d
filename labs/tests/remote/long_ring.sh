#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ring_server and ring_client: messages by WRITE with credits, no receive posted; the
# record itself, cut at every byte; who is killed, and who is not right.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() {
	build_helpers
	helper "$B/unit_ring" labs/tests/remote/unit_ring.c \
		"$SOURCES"/common/{remote/ring,base/crc32c}.c -lisal
	sed 's/qp_num << 40/qp_num << 41/' "$SOURCES/client/ring_client.c" >"$B/ring_other.c"
	helper "$B/ring_other" -O2 "$B/ring_other.c" "$SOURCES/common/remote/ring.c" \
		"$B/librdma_common.a" -libverbs -ljansson -lisal
	sed 's/ring_credit_of(ring->taken)/ring_credit_of(ring->taken + 1000)/' \
		"$SOURCES/server/ring_server.c" >"$B/ring_generous.c"
	helper "$B/ring_generous" -O2 -I"$SOURCES/server" "$B/ring_generous.c" \
		"$SOURCES"/{server/peers,common/remote/ring}.c \
		"$B/librdma_common.a" -libverbs -ljansson -lisal -lpthread
	export spy=$B/spy.so
}

test_a_message_counts_when_it_is_whole() {
	assertEquals 'ring: 0 failures' "$(on_host "$B/unit_ring")"
}

test_eight_clients_and_no_receive() {
	on_rxe '
		SPY_LOG=$T/spied LD_PRELOAD=$spy ring ring -r 64
		for i in {1..8}; do client start "c$i" ring_client -t 60 -n 1500; done
		reap c{1..8}
		await qps 0
		client run one ring_client -t 60 -n 1500 -s 240
		client run none ring_client -t 60 -n 1500 -s 0
		end ring
		ring narrow -q -r 2 -s 8
		SPY_LOG=$T/narrow.log LD_PRELOAD=$spy client run narrow.client ring_client -t 60 -n 300
		end narrow
	' || return 0
	assert_done ring c{1..8} one none narrow narrow.client
	assert_agree one .messages_per_s '.messages / .seconds'
	assertEquals "who took all" 10 "$(grep -c ': took 1500 messages' <<<"$(out_of ring)")"
	assertEquals "receives" 0 "$(grep -c '^post_recv' "$T/spied")"
	assertTrue "credit came at each message" \
		"(( $(grep -c '^post_send' "$T/spied") < 10 * 1500 ))"
	assertEquals "of every length" "$(seq 16 64 | xargs)" \
		"$(sed -n 's/^post_send.* length=\([0-9]*\).*/\1/p' "$T/narrow.log" | sort -nu | xargs)"
}

# Killed before its nth WRITE; and the server in the middle.
test_killed() {
	on_rxe '
		ring ring
		client start other ring_client -t 60 -n 3000
		for n in 1 2 100 300; do
			stop_at "$n" "dies$n" ring_client -n 1000
			await halted "dies$n"
			kill9 "dies$n"
		done
		reap other
		await qps 0
		client run after ring_client -n 500
		end ring
		ring second -q
		client start lost ring_client -n 4000000000
		await qps 1
		kill9 second
		reap lost
		# Stopped, it gives no credit.
		ring third
		stop_at 2 early ring_client -t 2 -n 100000
		await halted early
		freeze third
		kill -CONT "${pids[early]}"
		reap early
		kill -CONT "${pids[third]}"
		await in_file " took " "$T/third.out" # SIGTERM would be a stop
		end third
	' || return 0
	assert_done ring other after third
	# What was not on its way yet is lost with its sender; no message came that was not sent.
	local took
	took=$(grep -o 'took [0-9]* messages' <<<"$(out_of ring)" | cut -d' ' -f2 | sort -n | xargs)
	assertEquals "each is told: $took" '6 3000 500' "$(awk '{ print NF, $6, $5 }' <<<"$took")"
	assertEquals "of 0, 1, 99 and 299 sent: $took" 1 \
		"$(awk '{ print ($1 == 0 && $2 <= 1 && $3 <= 99 && $4 <= 299) }' <<<"$took")"
	assert_error lost 1 'closed the connection|retry'
	assert_error early 1 'no credit for 2000 ms: [0-9]+ sent, [01] taken'
	# Whoever is gone when it is looked at again: what he had sent is taken.
	assertEquals "$(err_of early)" "$(grep -o '[0-9]* sent' <<<"$(err_of early)")" \
		"$(sed -n 's/.*took \([0-9]*\) messages.*/\1 sent/p' <<<"$(out_of third)")"
}

test_errors() {
	on_rxe '
		ring ring -n 1 -s 64
		stop_at 1 first ring_client -n 1
		await halted first
		client run second ring_client -n 1
		kill9 first
		await qps 0
		client run big ring_client -n 1 -s 200
		await qps 0
		for rule in rkey^1 remote_addr+16777216; do
			run "bad$rule" "$B/sabotage" -o "$T/said" "post_send:40:$rule" \
				"$B/ring_client" -j 10.99.0.1 rxe1
			await qps 0
		done
		# Who is not told of what is done reuses no buffer.
		SPY_LIE=lost LD_PRELOAD=$spy client run blind ring_client -t 3 -n 1000
		await qps 0
		# A message that is not the one: taken by its checksum, refused by its content.
		misled skips post_send:7:skip ring_client -t 2 -n 20
		await qps 0
		# As whole as any, but not what this client sends.
		client run stranger ring_other -t 2 -n 20
		await qps 0
		run wrong "$B/lock_client" 10.99.0.1 rxe1
		client run last ring_client -n 100
		end ring
		# More than was sent
		serve generous "$B/ring_generous" -q rxe0
		client run paid ring_client -n 1000
		end generous
		lend memory -q
		client run beside ring_client -t 3
		end memory
		client run nobody ring_client -t 1
	' || return 0
	assert_done last
	assert_error second 1 'the peer failed before sync point READY: EUSERS'
	assert_error big 1 'a message of 200 bytes does not fit into a place of 128'
	assert_error 'badrkey^1' 1 'remote access error \(10\)'
	assert_error badremote_addr+16777216 1 'remote access error \(10\)'
	assert_error blind 1 'no credit for 3000 ms: 256 sent'
	assert_error skips 1 'no credit for 2000 ms: 20 sent, 6 taken'
	assert_error wrong 1 'the server lends no memory|plan of the memory'
	assert_error paid 1 'credit for 1[0-9]{3} messages, after 0; sent are [0-9]{1,3}$'
	assert_error beside 1 'the server has no ring for me'
	assert_error stranger 1 'closed the connection|retry'
	assert_in "$(err_of ring)" 'message 1 of [0-9]+ bytes has the wrong content'
	assert_error nobody 1 'no server listened there'
}

# To be stopped is what it waits for: no failure, whoever has said nothing yet.
test_stopped_beside_a_silent_client() {
	on_rxe '
		threads() { ls "/proc/${pids[ring]}/task" | wc -l; }
		met() { (($(threads) > alone)); }
		ring ring -q
		alone=$(threads)
		start silent "$B/peer" connect 127.0.0.1 18515
		await met
		end ring
		reap silent
	' || return 0
	assert_done ring
}

test_wrong_usage() {
	local n
	usage_error 'the server is missing' ring_client
	usage_error '--messages is not' ring_client -n 0 10.99.0.1
	usage_error '--size is not' ring_client -s 4097 10.99.0.1
	for n in 1 65537; do usage_error '--places is not' ring_server -r "$n"; done
	for n in 7 4097; do usage_error '--size is not' ring_server -s "$n"; done
	usage_error '--places and --size make more' ring_server -r 65536 -s 4096
	usage_error '--max-clients is not' ring_server -n 0
	for n in ring_server ring_client; do
		assertEquals "$n --help" 0 "$("$B/$n" --help >/dev/null; echo $?)"
	done
}

. shunit2
