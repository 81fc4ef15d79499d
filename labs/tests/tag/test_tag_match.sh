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

# build_property MATCHER OUTPUT: the comparison with UCX, around that matcher
build_property() {
	compile "$2" -Icommon/tag labs/tests/tag/tag_property.c "$1" common/base/arguments.c \
		common/base/report.c -lucp -lucs 2>"$T/cc.err"
}

# property OUTPUT-NAME ARG…: $said and $rc
property() {
	rc=0
	said=$(timeout 100 "$@" 2>&1) || rc=$?
}

test_the_matcher_does_what_ucx_does() {
	local seed=${TAG_SEED:-$RANDOM}
	build_property common/tag/match.c "$T/property" ||
		fail "$(cat "$T/cc.err")"
	# rendezvous from 150 bytes, then everything eager, then over shared memory
	property "$T/property" --sequences 20000 --seed "$seed"
	echo "$said"
	assertEquals "$said" 0 "$rc"
	assert_in "$said" "^the same: seed $seed, 20000 sequences over self"
	UCX_RNDV_THRESH=inf property "$T/property" --sequences 5000 \
		--seed "$seed"
	assertEquals "$said" 0 "$rc"
	UCX_TLS=posix property "$T/property" --sequences 5000 --seed "$seed"
	echo "$said"
	assertEquals "$said" 0 "$rc"
	assert_in "$said" '5000 sequences over posix'
}

test_the_comparison_says_what_is_wrong_with_its_arguments() {
	build_property common/tag/match.c "$T/property"
	for wrong in --sequences=0 --sequences=x --seed=-1 --ops=1 --ops=99 more \
		--nonsense; do
		property "$T/property" "$wrong"
		assertEquals "$wrong: $said" 2 "$rc"
	done
	UCX_TLS=nothing property "$T/property"
	assertEquals "$said" 77 "$rc"
}

# planted NAME FUNCTION SED: a fault in one function of the matcher must be seen.
planted() {
	sed "/^[a-z].*$2(/,/^}/ $3" common/tag/match.c >"$T/$1.c"
	assertFalse "$1 changes nothing" "cmp -s common/tag/match.c $T/$1.c"
	build_property "$T/$1.c" "$T/$1" || fail "$1: $(cat "$T/cc.err")"
	property "$T/$1" --sequences 10000
	assertEquals "$1: $said" 1 "$rc"
	assert_in "$said" 'different: .* repeat it with --seed [0-9]+' "$1"
}

test_faults_in_the_matcher_are_found() {
	planted newest_receive_first tag_match_arrive \
		's/FOREACH(recv, &match->posted,/FOREACH_REVERSE(recv, \&match->posted, tag_recvs,/'
	planted newest_message_first tag_match_probe \
		's/FOREACH(message, &match->unexpected,/FOREACH_REVERSE(message, \&match->unexpected, tag_messages,/'
	planted mask_ignored tag_fits 's/ & mask/ | (mask \& 0)/'
	planted mask_on_one_side_only tag_fits \
		's/((sent ^ tag) & mask)/((sent \& mask) ^ tag)/'
	planted unexpected_not_searched tag_match_post \
		's/tag_match_probe(.*/NULL;/'
	planted cancel_leaves_it tag_match_cancel 's/TAILQ_REMOVE.*//'
	planted one_byte_short tag_match_outcome 's/<=/</'
	planted probe_takes tag_match_take 's/TAILQ_REMOVE.*//'
}

test_the_channel_on_rxe() {
	compile "$T/unit" labs/tests/tag/unit_tag_channel.c \
		"$B/librdma_common.a" -libverbs -ljansson || return
	in_lab '
		# Not send_rnr_err: there rxe also counts a READ response that the
		# network would not take, and asks nobody to wait for it.
		rnr() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/rcvd_rnr_err; }
		rnr >"$T/rnr.before"
		SPY_LIE=patient LD_PRELOAD=$B/spy.so run unit timeout 120 "$T/unit" rxe0 rxe1
		rnr >"$T/rnr.after"
	' || return 0
	assertEquals "$(out_of unit) $(err_of unit)" 0 "$(rc_of unit)"
	assert_in "$(out_of unit)" '^16 tests, 0 failures$'
	assertEquals 'messages that cannot be' "$(grep -c '\.expected = -EPROTO }\|16, -EPROTO }' labs/tests/tag/unit_tag_channel.c)" \
		"$(err_of unit | grep -c "^error: the peer's message of [0-9]* bytes cannot be: ")"
	assert_in "$(err_of unit)" 'message of 16 bytes cannot be: protocol 9, length 0, id 0'
	assertEquals 'the oldest messages, and no more of them' 1 \
		"$(err_of unit | grep -c '; 30 unexpected: .*, \.\.\.$')"
	# Limits and credits were used, not only there.
	assert_in "$(out_of unit)" '^random: .* [1-9][0-9]* left in the ring'
	assert_in "$(out_of unit)" \
		'^many .* [1-9][0-9]* waited for credit, [1-9][0-9]* left in the ring'
	assertEquals "a receive queue was empty (RNR)" "$(cat "$T/rnr.before")" \
		"$(cat "$T/rnr.after")"
}

test_two_processes() {
	local size all one_in
	in_lab '
		eval "$LATENCY"
		for size in 0 8192 8193; do
			latency "s$size" -q : -j -n 10 -s "$size"
		done
		SPY_LIE=patient LD_PRELOAD=$B/spy.so latency s4194304 -q : -j -n 1 -s 4194304
		latency small -q -e 16 : -n 3 -e 16 -s 17
		latency least -q -e 1 : -q -n 3 -e 1 -s 2
		LD_PRELOAD=$B/spy.so SPY_LOG=$T/rights latency read -q : -q -n 3 -s 8193
		LD_PRELOAD=$B/spy.so SPY_LOG=$T/posts latency signaled -q : -q -n 200 -s 8
	' || return 0
	assert_pair least
	assert_pair read
	assert_pair signaled
	all=$(grep -c '^post_send ' "$T/posts")
	one_in=$((all / $(grep -c '^post_send .*flags=10$' "$T/posts"))) # SIGNALED | INLINE
	assertTrue "one in $one_in of $all" "((all > 400 && one_in > 14 && one_in < 17))"
	# The rings of both; what is fetched, only to be written here; what is sent, only
	# to be read from there.
	assertEquals '      6 access=1
      6 access=4
      2 access=7' "$(grep -o 'access=[0-9]*$' <(grep '^make mr ' "$T/rights") | sort | uniq -c)"
	for size in 0 8192 8193 4194304; do
		assert_pair "s$size"
		assertEquals "$size" "$(json "s$size.client" .size)"
		assertEquals true "$(json "s$size.client" \
			'.half_round_trip_us.median > 0 and .mode == "pingpong"')"
		((size == 0)) || assert_agree "s$size.client" .mb_per_s '2 * .iters * .size / .seconds / 1e6'
	done
	assert_pair small
	assert_in "$(out_of small.client)" '^3 round trips of 17 bytes: half'
}

# One way: fewer messages than the window and more, up to the credits and beyond them,
# eager and not; each is checked on arrival.
test_a_window_of_messages() {
	local w
	in_lab '
		eval "$LATENCY"
		latency w1 -q -w 1 : -j -w 1 -n 100 -s 8193
		latency w64 -q -w 64 : -j -w 64 -n 300 -s 0
		latency w65 -q -w 65 : -j -w 65 -n 300 -s 64
		latency w300 -q -w 300 : -j -w 300 -n 7 -s 8192
		latency w4096 -j -w 4096 -t 60 : -q -w 4096 -t 60 -n 4200 -s 8193
		latency differ -q -w 4 : -q -w 8
		latency none -q : -q -w 8
		latency_server gone.server -q -w 99 rxe0
		start gone.client "$B/tag_lat" client -q -w 99 -n 10000000 127.0.0.1 rxe1
		await in_rts
		nap 0.2
		kill -KILL "${pids[gone.server]}"
		reap gone.server gone.client
		latency_server held.server -q -w 99 -t 60 rxe0
		start held.client "$B/tag_lat" client -q -w 99 -t 1 -n 10000000 127.0.0.1 rxe1
		await in_rts
		nap 0.2
		freeze held.server
		reap held.client
		kill -CONT "${pids[held.server]}"
		reap held.server
	' || return 0
	for w in w1 w64 w65 w300 w4096; do
		assert_pair "$w"
	done
	assertEquals 'true' "$(json w65.client '.mode == "bandwidth" and .iters == 300 and .half_round_trip_us == null')"
	assert_agree w65.client .mb_per_s '.iters * .size / .seconds / 1e6'
	assertEquals 'true' "$(json w4096.server '.mode == "bandwidth" and .iters == 4200 and .size == 8193')"
	assert_in "$(out_of w4096.client)" '^4200 messages of 8193 bytes: [0-9.]+ MB/s$'
	assert_error differ.server 1 "the peer's window is 8, mine is 4"
	assert_error differ.client 1 "the peer's window is 4, mine is 8"
	assert_error none.server 1 "the peer's window is 8, mine is 0 \\(0: round trips\\)"
	assert_error none.client 1 "the peer's window is 0, mine is 8"
	assert_in "$(err_of none.client)" '^ next: give --window the same value on both sides$'
	assert_error gone.client 1 'the peer closed the connection'
	assert_error held.client 1 'was not sent within'
	assertEquals "$(err_of held.server)" 1 "$(rc_of held.server)"
}

test_ends_that_are_not_good() {
	in_lab '
		eval "$LATENCY"
		latency eager -q -e 100 : -q -e 200
		latency_server killed.server -q rxe0
		start killed.client "$B/tag_lat" client -q -n 10000000 127.0.0.1 rxe1
		await in_rts
		kill -KILL "${pids[killed.server]}"
		reap killed.server killed.client
		latency_server int.server -q rxe0
		SPY_LIE=ready LD_PRELOAD=$B/spy.so start int.client "$B/tag_lat" client -q -n 10000000 127.0.0.1 rxe1
		await in_rts
		nap 0.2
		kill -INT "${pids[int.client]}"
		reap int.server int.client
		latency_server stopped.server -q -t 60 rxe0
		start stopped.client "$B/tag_lat" client -q -t 1 -n 10000000 127.0.0.1 rxe1
		await in_rts
		nap 0.2
		freeze stopped.server
		reap stopped.client
		kill -CONT "${pids[stopped.server]}"
		reap stopped.server
		SPY_LIE=rkey LD_PRELOAD=$B/spy.so latency_server rkey.server -q rxe0
		start rkey.client "$B/tag_lat" client -q -s 8193 127.0.0.1 rxe1
		reap rkey.server rkey.client
		for bad in short=text=short plan=fill=30 hello=text=GET; do
			name=liar.${bad%%=*}
			latency_server "$name" -q -t 5 rxe0
			items=(hello con sync "${bad#*=}")
			[[ $bad != hello=* ]] || items=("${bad#*=}" fill=99)
			start other "$B/peer" connect 127.0.0.1 18515 "${items[@]}"
			reap "$name" other
		done
	' || return 0
	assert_error eager.server 1 \
		'eager up to 200 bytes; mine is .* 100 bytes$'
	assert_error eager.client 1 \
		'eager up to 100 bytes; mine is .* 200 bytes$'
	assertEquals 137 "$(rc_of killed.server)"
	assert_error killed.client 1 'the peer closed the connection'
	assert_error int.client 1 'stopped by a signal'
	assertEquals "$(err_of int.server)" 1 "$(rc_of int.server)"
	assert_error stopped.client 1 'no message fits tag 0x2'
	assertEquals "$(err_of stopped.server)" 1 "$(rc_of stopped.server)"
	# Of which MR it was, the other side had told in its RTS: that is not known to who
	# explains, so nobody says that there is no such rkey.
	assert_error rkey.server 1 'the READ of 8193 bytes at 0x[0-9a-f]+ on QP [0-9]+ completed with remote access error'
	assert_not_in "$(err_of rkey.server)" 'is of none of'
	assertEquals "$(err_of rkey.client)" 1 "$(rc_of rkey.client)"
	assert_error liar.short 1 "reading the peer's channel plan"
	assert_error liar.plan 1 "the peer's channel is magic 0x41414141"
	assertEquals "$(err_of liar.hello)" 1 "$(rc_of liar.hello)"
	assert_in "$(err_of liar.hello)" '^warning: .* is no client: it begins with "GET'
	assert_in "$(err_of liar.hello)" '^error: waiting for a client: nothing came before the deadline$'
}

test_verbs_that_fail() {
	local name
	in_lab '
		eval "$LATENCY"
		for name in create_qp:1 post_recv:1; do
			SPY_FAIL=ibv_$name:12 spied run "$name" "$B/tag_lat" server -q rxe0
		done
		# The first READ; the first message; and 64 are consumed, but for the plan each
		# with a READ, a FIN and an answer: credits are written before they are old.
		for name in post_send:1 post_send:187; do
			SPY_FAIL=ibv_$name:12 spied latency_server "$name" -q rxe0
			run guest "$B/tag_lat" client -q -n 70 -s 8193 127.0.0.1 rxe1
			reap "$name"
		done
		latency_server host -q rxe0
		SPY_FAIL=ibv_post_send:1:12 spied run first "$B/tag_lat" client -q 127.0.0.1 rxe1
		reap host
	' || return 0
	for name in create_qp:1 post_recv:1; do
		assert_error "$name" 1 "ibv_${name%:*}"
	done
	assert_error post_send:1 1 'READ'
	assert_error post_send:187 1 'WRITE'
	assert_error first 1 'ibv_post_send\(QP [0-9]+, slot 0, 32 bytes'
}

test_wrong_usage() {
	local words
	while read -ra words; do
		rc=0
		said=$("$B/tag_lat" "${words[@]}" 2>&1) || rc=$?
		assertEquals "tag_lat ${words[*]}: $said" 2 "$rc"
		assert_in "$said" '^error: .*' "${words[*]}"
		assert_in "$said" '^ next: usage: tag_lat' "${words[*]}"
	done <<-'END'

		neither
		client
		server rxe0 18515 1 more
		server rxe0 99999
		server rxe0 18515 256
		client 127.0.0.1 rxe0 0
		server -n 0
		server -s 1073741825
		server -s x
		server -e 0
		server -e 1048577
		server -w 0
		client -w 4097 127.0.0.1
		server -w many
		server -t 0
		server --nonsense
		server -n
	END
	"$B/tag_lat" --help >/dev/null
	assertEquals 0 $?
}

oneTimeSetUp() { build_helpers; }

. shunit2
