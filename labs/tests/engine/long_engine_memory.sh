#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_engine, needle_server and engine_client under AddressSanitizer and UBSan:
# good runs, bad input, kills of every side, stops in the middle; one plain session
# under valgrind; and whatever they ask the system for, refused.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/engine/engine.sh
. "$ROOT/labs/tests/engine/engine.sh"

oneTimeSetUp() {
	build_engine_tests || return 1
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/rdma_engine \
		build/asan/engine_client build/asan/needle_server || return 1
	make_store
}

oneTimeTearDown() { rm -rf "${S:-}"; }

# on_sanitized SCRIPT: a sanitizer's report ends a program with 99.
on_sanitized() {
	local -x B=build/asan
	local -x ASAN_OPTIONS=exitcode=99:detect_leaks=1
	local -x UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
	on_engine "$1"
}

# assert_rc_0 NAME…: whatever it said
assert_rc_0() {
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" 0 "$(rc_of "$name")"
	done
}

test_good_runs() {
	printf 'secret\n' >"$T/token"
	chmod 600 "$T/token"
	on_sanitized '
		node node
		engine engine -a "$T/token"
		client ping ping
		client caps caps
		client read read 9 1 7 -a "$T/token" -o "$T/copy" -j -p
		client range read 9 1 7 -O 7 -S 3 -a "$T/token"
		client bench "bench read" 9 1 7 -n 40 -f 40 -m -a "$T/token"
		client pings "bench ping" -n 20
		client cookie read 9 1 8 -a "$T/token"
		client token read 9 1 7
		stop engine
		engine load -c 8 --chunk 1000 --depth 4
		run_load reads 6 20
		stop load node
	' || return 0
	assert_done engine load node ping caps range bench pings reads
	assert_rc_0 read
	assert_error cookie 1 'wrong cookie'
	assert_error token 1 'an auth_token is needed'
	assertEquals "hello, needle" "$(cat "$T/copy")"
	assert_clean
}

test_bad_input() {
	on_sanitized '
		node node
		engine engine -w 1 -n 20
		how=start client beside "bench read" 9 1 7 -n 100 -f 2
		p="start=9,1,7"
		peer ends ping answer $p answer map=1 answer bytes complete=1,1,13 answer \
			complete=1,1,13 answer $p,0,0,1 answer length=0 answer \
			length=5 hex=ddffffffff answer $p,14 answer start=9,1,8 answer \
			start=9,2,7 answer map=3 answer \
			$p,4611686018427387904,4611686018427387904 answer \
			$p,0,0,9223372036854775807 answer $p,0,0,18446744073709551615 answer
		peer million length=1048576 fill=1048576 answer ping answer
		peer over length=1048577 fill=1048577 answer eof
		how=start peer most length=4294967295 fill=300000 answer eof
		how=start peer half ping answer length=100 hex=0102 eof
		how=start peer deaf repeat=100000 ping
		for i in 004 006 012; do
			peer "$i" "cuts=labs/tests/engine/engine_frames/$i-req.bin" \
				"hangups=labs/tests/engine/engine_frames/$i-req.bin" ping answer
		done
		peer many sessions=40,9,1,7
		reap beside most half deaf
		stop engine node
	' || return 0
	assert_done engine node beside ends million over most half 004 006 012 many
	assert_in "$(err_of deaf)" 'send: (Broken pipe|Connection reset)' cut
	assert_clean
}

# Each side is killed while the others are in the middle of something.
test_kills() {
	with_large 20000000
	on_sanitized '
		export S=$T/store
		node node1
		engine engine -r 20 -m 100 --chunk 4096 --depth 4
		for i in 1 2; do
			how=start peer "killed$i" start=5,1,1 answer
			await has_sessions 1
			kill9 "killed$i"
		done
		how=start run_load load 4 50
		how=start client long read 5 1 1 -o "$T/out"
		nap 0.3
		kill9 node1
		how=start client waits read 9 1 7
		nap 0.3
		node node2
		times=2 await connected_or_ended engine "${pids[engine]}"
		reap load waits long
		# Stopped while a READ is under way and a session is open.
		how=start peer open start=9,1,7 answer silence=60000
		await in_file Start "$T/open.out"
		how=start peer under.way start=5,1,1 answer
		await has_sessions 2
		stop engine node2
		reap open under.way
		# Killed, and its socket taken over.
		start_engine dead
		kill9 dead
		start_engine heir
		await in_file serve "$T/heir.out"
		run second "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		# Stopped in the middle of connecting, with a request that waits.
		how=start peer never ping answer start=9,1,7 answer
		await in_file Pong "$T/never.out"
		stop heir
		reap never
	' || return 0
	assert_done load long waits node2
	assert_rc_0 engine heir
	assertEquals 200 "$(json load .reads)"
	assertEquals 20000000 "$(stat -c %s "$T/out")"
	assert_error second 1 'another engine listens there'
	assert_in "$(err_of never)" 'the engine has closed'
	assert_clean
}

test_device_that_lies() {
	on_sanitized '
		node node
		asan_lib=$(ldd "$B/rdma_engine" | sed -n "s/.*=> \(.*libasan[^ ]*\) .*/\1/p")
		spied() {
			local name=$1
			ASAN_OPTIONS+=:verify_asan_link_order=0 \
				LD_PRELOAD=$asan_lib:$N/spy.so engine "$name" -r 2 "${@:2}"
			client "$name.client" read 9 1 7 -t 60
			[[ ${SPY_LIE:-} ]] || client "$name.again" read 9 1 7
			stop "$name"
		}
		for lie in wr_id lost; do SPY_LIE=$lie spied "$lie"; done
		SPY_LIE=lost spied patient -r 60
		for call in ibv_post_send:1:12 ibv_reg_mr:2:12 ibv_modify_qp:3:22; do
			SPY_FAIL=$call spied "$call"
		done
		run device "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d mlx5_0
		run token "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -a "$T/nofile"
		stop node
	' || return 0
	assert_rc_0 node wr_id lost patient ibv_post_send:1:12 ibv_reg_mr:2:12 \
		ibv_modify_qp:3:22
	assert_done ibv_post_send:1:12.again ibv_reg_mr:2:12.again \
		ibv_modify_qp:3:22.again
	assert_in "$(err_of patient)" '^\[link\] no READ has come back for too long; '
	assert_error device 1 'no RDMA device is named'
	assert_clean
}

# Nothing is suppressed, and no descriptor may stay open but those inherited.
test_valgrind() {
	on_engine '
		node node -t 60
		start engine valgrind -q --leak-check=full \
			--show-leak-kinds=definite,indirect \
			--errors-for-leak-kinds=definite,indirect \
			--error-exitcode=9 \
			"$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		await_s=240 await connected_or_ended engine "$pid"
		peer peer ping answer start=9,1,7 answer map=1 answer bytes \
			complete=1,1,13 answer start=9,1,7 answer length=0 answer
		stop engine node
	' || return 0
	assert_done peer
	# On a slow machine the two may need more than one attempt to meet.
	assert_rc_0 engine node
	assert_not_in "$(err_of engine)" '^=='
	assertEquals '68656c6c6f2c206e6565646c65 read-only' "$(sed -n 4p "$T/peer.out")"
}

# After a thousand clients the engine is as large as after five hundred, when all its
# pages have been touched.
test_a_thousand_clients() {
	on_engine '
		node node
		engine engine
		for n in {1..10}; do
			peer "hundred$n" clients=100 start=9,1,7 answer map=1 answer \
				complete=1,1,13 answer end
			await has_sessions 0
			awk "/^VmRSS/ { print \$2 }" "/proc/${pids[engine]}/status" >>"$T/memory"
			held engine | xargs >>"$T/held"
		done
		stop engine node
	' || return 0
	assert_done engine node hundred{1..10}
	assertEquals "completed" 100 "$(grep -c CompleteReadResponse "$T/hundred10.out")"
	assertTrue "KiB after each hundred: $(xargs <"$T/memory")" \
		"(($(sed -n 10p "$T/memory") - $(sed -n 5p "$T/memory") < 128))"
	assertEquals "descriptors and memory regions" 1 "$(sort -u "$T/held" | wc -l)"
}

# Until a client is served, the engine ends with one error, or it goes on without, and so
# may the client.
test_refusals_of_the_engine() {
	on_engine '
		node node
		start_host() {
			start_engine "$1"
			await connected_or_ended "$1" "$pid"
		}
		meet_host() {
			peer asks id=00000000-0000-0000-0000-000000000001 map=1 answer \
				start=9,1,7 answer map=2 answer complete=2,1,13 answer \
				length=20000 fill=20000 answer
			kill "${pids[$1]}"
		}
		refusals_of_server engine >"$T/refusals"
		stop node
	' || return 0
	assert_done asks
	assertEquals "$(err_of node)$(err_of engine)" '0 0' "$(rc_of node) $(rc_of engine)"
	# What a client asks for, the client is told.
	assert_refusals 30 'engine (fstat|connect)' engine < <(sed '/|accept4|/,$d' "$T/refusals")
	assert_refusals 15 'engine .*' engine < <(sed -n '/|accept4|/,$p' "$T/refusals")
}

test_refusals_of_its_clients() {
	on_engine '
		node node
		engine engine
		refusals ping "$B/engine_client" ping -s "$sock" -n 2
		refusals caps "$B/engine_client" caps -s "$sock"
		refusals read "$B/engine_client" read -s "$sock" 9 1 7 -o "$T/out"
		refusals bench "$B/engine_client" bench read -s "$sock" 9 1 7 -n 3 -f 2
		refusals pings "$B/engine_client" bench ping -s "$sock" -n 3
		stop engine node
	' || return 0
	assert_done engine node
	assert_refusals 40 'none none' <"$T/lab.out"
}

. shunit2
