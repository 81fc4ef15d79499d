#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# needle_server: many engines at once, bad peers that stop nobody, verbs that fail. And
# of both programs what the system refuses them, and test_needle.sh under sanitizers.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/needle/needle.sh
. "$ROOT/labs/tests/needle/needle.sh"

oneTimeSetUp() { build_helpers && build_reader "$B" -O2; }

test_many_engines_at_once() {
	local i expected
	many_needles
	expected=$(listed)
	on_rxe '
		node node -q -n 8
		for i in {1..8}; do how=start engine "e$i" -H; done
		for i in {1..8}; do await in_file needles "$T/e$i.out"; done
		await qps 8
		engine ninth
		for i in 1 2 3; do kill -KILL "${pids[e$i]}"; done
		reap e1 e2 e3 2>/dev/null
		await qps 5
		engine tenth
		for i in 4 5 6; do kill -TERM "${pids[e$i]}"; done
		reap e4 e5 e6
		await qps 2
		# It ends while two are connected; they see it.
		end node
		reap e7 e8
		# Killed while it is read from, and started again.
		node killed -q
		how=start engine cut -E
		await qps 1
		kill9 killed
		reap cut
		node again -q
		engine last
		end again
	' || return 0
	for i in 4 5 6 7 8; do
		assert_done "e$i"
		assertEquals "$expected" "$(out_of "e$i")"
	done
	assert_error node 0 '^error: engine 9 is turned away: 8 are connected'
	assert_error ninth 1 'the peer failed before sync point READY: EUSERS'
	assert_error cut 1 'READ of|no completion|closed the connection|nothing came'
	assert_done tenth again last
}

# More silent peers than there may be engines, and they stay: the next engine is
# served, for the first of them has to go.
test_silent_peers_lock_nobody_out() {
	many_needles
	on_rxe '
		node node -q -n 2 -t 3600
		for i in {1..70}; do
			exec {silent}<>/dev/tcp/127.0.0.1/18515
		done
		how=start engine held1 -H
		how=start engine held2 -H
		await in_file needles "$T/held1.out"
		await in_file needles "$T/held2.out"
		engine third
		kill "${pids[held1]}" "${pids[held2]}"
		reap held1 held2
		await qps 0
		engine last
		end node
		# None of them can go: who comes then is not kept waiting.
		SPY_LIE=stuck LD_PRELOAD=$B/spy.so node stuck -q -n 1 -t 3600
		for i in {1..65}; do
			exec {silent}<>/dev/tcp/127.0.0.1/18515
		done
		engine away
		kill9 stuck
	' || return 0
	assert_error away 1 'closed the connection'
	assert_in "$(err_of stuck)" '^error: engine 66 is turned away: 64 are shaking hands'
	assert_done held1 held2 last
	assertEquals 0 "$(rc_of node)"
	assert_error third 1 'the peer failed before sync point READY: EUSERS'
}

# Silent, slow, lying and talkative peers: the others are served all the while.
test_bad_peers() {
	many_needles
	on_rxe '
		peer() { start "$1" "$B/peer" connect 127.0.0.1 18515 "${@:2}"; }
		node node -q -t 3600
		peer silent
		peer half hello cut=5
		peer slow hello con sync cut=60 trickle=20 # and never the last three
		await qps 1
		peer text "text=GET / HTTP/1.1"
		peer many fill=100000
		peer version hello,version=2
		peer qpn hello con,qpn=0
		peer address hello con,gid=10:99::1 sync
		peer gone hello con close
		peer reset hello con reset
		peer status hello con sync,status=22
		peer talks hello con sync text=more
		reap text many version qpn address gone reset status talks
		engine beside
		end node
		reap silent half slow
		node short -q -t 1
		peer cut hello cut=5
		await in_file "^error: " "$T/short.err"
		end short
		reap cut
	' || return 0
	assertEquals "$(err_of node)" 0:0 "$(rc_of node):$(rc_of short)"
	assert_done beside silent half
	assert_in "$(err_of short)" 'hello: nothing came'
	for what in 'GET' 'magic 0x41414141' 'version 2' 'qp_num is not' 'ibv_modify_qp' \
		'closed the connection' 'the peer failed before sync point READY' \
		'sends where it has nothing to say'; do
		assert_in "$(err_of node)" "$what"
	done
}

test_failing_verbs() {
	local call
	local -x calls='ibv_create_cq:1:12 ibv_create_qp:1:12 ibv_modify_qp:3:22 pthread_create:1:11'
	small_store
	printf here | needle put 8 1 1 >"$T/out"
	on_rxe '
		export LD_PRELOAD=$B/spy.so
		for call in ibv_reg_mr:1:12 ibv_reg_mr:2:14; do
			SPY_FAIL=$call run "$call" "$B/needle_server" -S "$S" rxe0
		done
		for call in $calls; do
			SPY_FAIL=$call node "$call" -q
			LD_PRELOAD= engine "$call.engine"
			LD_PRELOAD= engine "$call.second"
			end "$call"
		done
	' || return 0
	assert_error ibv_reg_mr:1:12 1 'ibv_reg_mr\(volume 7, offset 32, [0-9]+ bytes, REMOTE_READ\).*ENOMEM'
	assert_error ibv_reg_mr:2:14 1 'ibv_reg_mr\(volume 8.*EFAULT'
	for call in $calls; do
		assert_error "$call" 0 "${call%%:*}"
		assert_error "$call.engine" 1 'closed the connection|the peer failed before'
		assert_done "$call.second"
	done
}

# Whatever they ask the system for is refused once: an error, and nothing is kept or half
# done. The server's last word is that the port is taken.
test_refusals() {
	local words
	new_store
	needle make -n 20 -V 17 -m 1 -M 100 >"$T/out"
	for words in list 'list -j' verify 'get 1 1' 'put 98 1 1 --file labs/tests/lib.sh'; do
		# shellcheck disable=SC2086 # words
		KEPT_POLL=1 refusals "${words%% *}" "$B/needle" ${words%% *} -S "$S" ${words#"${words%% *}"}
		assert_done "${words%% *}"
	done >"$T/refusals"
	# And what jansson asks for on its way to a list
	KEPT_WHOSE=libjansson refusals list "$B/needle" list -S "$S" -j >>"$T/refusals"
	assert_refusals 140 'put fstat|list (open|read)' <"$T/refusals"
	assertTrue 'the store is as it was' "needle verify >$T/out"
	on_rxe '
		node other -q
		refusals server "$B/needle_server" -q -S "$S" rxe0
		end other
	' || return 0
	assert_done other
	assert_error server 1 'EADDRINUSE'
	assert_refusals 40 'none none' <"$T/lab.out"
}

test_sanitizers() {
	local said rc=0
	must_build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/needle build/asan/needle_server
	# spy.so is before ASan.
	said=$(BUILD=build/asan SANITIZE=1 TEST_RESULTS=/dev/null \
		ASAN_OPTIONS=exitcode=99:verify_asan_link_order=0 UBSAN_OPTIONS=exitcode=99 \
		bash labs/tests/needle/test_needle.sh 2>&1) || rc=$?
	assertEquals "$said" 0 "$rc"
}

. shunit2
