#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tag matching: the matcher against UCX on the same random sequences, the channel
# on rxe (every byte, every kind of bad end), and tag_lat between two processes.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tag/tag.sh
. "$ROOT/labs/tests/tag/tag.sh"

# Rendezvous from 150 bytes, then everything eager, then over shared memory.
test_the_matcher_does_what_ucx_does() {
	local seed=${TAG_SEED:-$RANDOM} setting said rc
	helper "$B/tag_property" -O1 -Wshadow labs/tests/tag/tag_property.c "$SOURCES/common/tag/match.c" -lucp -lucs
	for setting in UCX_TLS=self UCX_RNDV_THRESH=inf UCX_TLS=posix; do
		rc=0
		said=$(timeout 100 env "$setting" "$B/tag_property" 10000 "$seed" 2>&1) || rc=$?
		assertEquals "$setting: $said" 0 "$rc"
		assert_in "$said" "^the same: seed $seed, 10000 sequences over (self|posix)$"
	done
}

test_the_channel_on_rxe() {
	compile_unit "$T/unit" || return
	in_lab '
		# Not send_rnr_err: there rxe also counts a READ response that the
		# network would not take, and asks nobody to wait for it.
		rnr() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/rcvd_rnr_err; }
		rnr >"$T/rnr.before"
		SPY_LIE=patient LD_PRELOAD=$B/spy.so run unit timeout 120 "$T/unit" rxe0 rxe1
		rnr >"$T/rnr.after"
	' || return 0
	assertEquals "$(out_of unit) $(err_of unit)" 0 "$(rc_of unit)"
	assert_in "$(out_of unit)" '^9 tests, 0 failures$'
	assertEquals 'lies that are told' 10 "$(err_of unit |
		grep -c "^error: the peer's message of [0-9]* bytes cannot be: protocol [0-9]*, length [0-9]*, id [0-9]*$")"
	assertEquals 'a receive queue was empty (RNR)' "$(<"$T/rnr.before")" "$(<"$T/rnr.after")"
}

test_two_processes() {
	local size all one_in
	in_lab '
		eval "$LATENCY"
		LD_PRELOAD=$B/spy.so latency s8 -q : -j -n 200 -s 8
		LD_PRELOAD=$B/spy.so latency s8193 -q : -j -n 3 -s 8193
		SPY_LIE=patient LD_PRELOAD=$B/spy.so latency s1048577 -q : -j -n 1 -s 1048577
		latency s0 -q -e 1 : -n 3 -e 1 -s 0
	' || return 0
	all=$(cat "$T"/s8.*.log | grep -c '^post_send ')
	one_in=$((all / $(cat "$T"/s8.*.log | grep -c '^post_send .*flags=10 '))) # SIGNALED | INLINE
	assertTrue "one in $one_in of $all" "((all > 400 && one_in > 14 && one_in < 17))"
	# Each side: what is fetched, only to be written here; what is sent, only to be read
	# from there.
	assertEquals '6 access=1 6 access=4' "$(cat "$T"/s8193.*.log |
		grep '^make mr .* length=8193 ' | grep -o 'access=[0-9]*$' | sort | uniq -c | xargs)"
	for size in 8 8193 1048577; do
		assert_pair "s$size"
		assertEquals "[$size,\"pingpong\",true]" \
			"$(json "s$size.client" '[.size, .mode, .half_round_trip_us.median > 0] | tojson')"
		assert_agree "s$size.client" .mb_per_s '2 * .iters * .size / .seconds / 1e6'
	done
	assert_in "$(out_of s0.client)" '^3 round trips of 0 bytes: half'
}

# One way: fewer than the window and more, eager and not; each is checked on arrival.
test_a_window_of_messages() {
	local w
	in_lab '
		eval "$LATENCY"
		latency w1 -q -w 1 : -q -w 1 -n 50 -s 8193
		latency w65 -j -w 65 : -j -w 65 -n 300 -s 64
		latency w300 -q -w 300 : -w 300 -n 7 -s 8192
		latency w99 -q -w 99 : -q -w 99 -n 200 -s 8193
		latency none -q : -q -w 8
	' || return 0
	for w in w1 w65 w300 w99; do
		assert_pair "$w"
	done
	assertEquals '["bandwidth",300,64,null]' \
		"$(json w65.client '[.mode, .iters, .size, .half_round_trip_us] | tojson')"
	assertEquals '["bandwidth",300,64]' "$(json w65.server '[.mode, .iters, .size] | tojson')"
	assert_agree w65.client .mb_per_s '.iters * .size / .seconds / 1e6'
	assert_in "$(out_of w300.client)" '^7 messages of 8192 bytes: [0-9.]+ MB/s$'
	assert_error none.server 1 "the peer's window is 8, mine is 0 \\(0: round trips\\)"
}

# How it ends, and what each side says of it.
BAD_ENDS='
eager.server	eager up to 200 bytes; mine is .* 100 bytes$
eager.client	eager up to 100 bytes; mine is .* 200 bytes$
killed.client	the peer closed the connection
stopped.client	no message fits tag 0x2
held.client	was not sent within
int.client	stopped by a signal
rkey.server	the READ of 8193 bytes at 0x[0-9a-f]+ on QP [0-9]+ completed with remote access error
short.server	reading the peer.s channel plan
plan.server	the peer.s channel is magic 0x41414141
post_recv	ibv_post_recv
post_send.server	READ
reg_mr.client	ibv_reg_mr\(8193 bytes for a rendezvous\)
post_send.client	ibv_post_send\(QP [0-9]+, slot 0, 32 bytes'

test_ends_that_are_not_good() {
	local name pattern
	in_lab '
		eval "$LATENCY"
		endless=(-q -n 10000000)
		latency eager -q -e 100 : -q -e 200
		latency_server killed.server -q -w 99
		latency_start killed.client -w 99 "${endless[@]}" -s 9000
		kill -KILL "${pids[killed.server]}"
		reap killed.server killed.client
		for how in "stopped " "held -w 99"; do
			set -- $how
			latency_server "$1.server" -q -t 60 "${@:2}"
			latency_start "$1.client" -t 1 "${endless[@]}" "${@:2}"
			freeze "$1.server"
			reap "$1.client"
			kill -CONT "${pids[$1.server]}"
			reap "$1.server"
		done
		latency_server int.server -q
		SPY_LIE=ready LD_PRELOAD=$B/spy.so latency_start int.client "${endless[@]}"
		nap 0.2
		kill -INT "${pids[int.client]}"
		reap int.server int.client
		SPY_LIE=rkey LD_PRELOAD=$B/spy.so latency_server rkey.server -q
		latency_run rkey.client -q -s 8193
		reap rkey.server
		for lie in short,text=short plan,fill=30; do
			latency_server "${lie%%,*}.server" -q -t 2
			run other "$B/peer" connect 127.0.0.1 18515 hello con sync "${lie#*,}"
			reap "${lie%%,*}.server"
		done
		latency_server stranger -q -t 1
		run other "$B/peer" connect 127.0.0.1 18515 text=GET fill=99
		reap stranger
		SPY_FAIL=ibv_post_recv:1:12 spied run post_recv "$B/tag_lat" server -q rxe0
		SPY_FAIL=ibv_post_send:1:12 spied latency_server post_send.server -q
		latency_run other -q -s 8193
		reap post_send.server
		for fails in reg_mr:2 post_send:1; do
			latency_server host -q
			SPY_FAIL=ibv_$fails:12 spied latency_run "${fails%:*}.client" -q -s 8193
			reap host
		done
	' || return 0
	while IFS=$'\t' read -r name pattern; do
		[[ ! $name ]] || assert_error "$name" 1 "$pattern"
	done <<<"$BAD_ENDS"
	for name in stopped.server held.server int.server rkey.client stranger; do
		assertEquals "$name: $(err_of "$name")" 1 "$(rc_of "$name")"
	done
	# Of which MR it was, the other side had told in its RTS: that is not known to who
	# explains, so nobody says that there is no such rkey.
	assert_not_in "$(err_of rkey.server)" 'belongs to no MR'
	assert_in "$(err_of stranger)" '^warning: .* is no client: it begins with "GET'
	assert_in "$(err_of stranger)" '^error: waiting for a client: nothing came before the deadline$'
}

test_wrong_usage() {
	local words
	while read -ra words; do
		usage_error . tag_lat "${words[@]}"
	done <<-'END'

		neither
		client
		server -n 0
		client -w 4097 127.0.0.1
		server --nonsense
	END
	here help "$B/tag_lat" --help
	assertEquals 0 "$(rc_of help)"
	assert_in "$(out_of help)" '^usage: tag_lat server'
}

oneTimeSetUp() { build_helpers; }

. shunit2
