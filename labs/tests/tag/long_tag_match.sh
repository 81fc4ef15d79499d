#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The channel of tag matching and tag_lat under ASan and UBSan; and whatever
# they ask the system for, refused.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tag/tag.sh
. "$ROOT/labs/tests/tag/tag.sh"

test_with_sanitizers() {
	local -x B=build/asan
	build -j"$(nproc)" BUILD="$B" SANITIZE=1 "$B/tag_lat" || { fail make && return; }
	compile_unit "$T/unit" "-fsanitize=address,undefined" -fno-sanitize-recover=all || return
	in_lab '
		eval "$LATENCY"
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1
		export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
		run unit timeout 120 "$T/unit" rxe0 rxe1 truncation many order cancel lies false-credits
		latency small -q : -q -n 20
		latency window -q -w 4 : -q -w 4 -n 20 -s 100000
		latency_server killed.server -q
		latency_start killed.client -q -s 9000 -n 10000000
		kill -KILL "${pids[killed.server]}"
		reap killed.server killed.client
	' || return 0
	assertEquals "$(out_of unit) $(err_of unit)" 0 "$(rc_of unit)"
	assert_pair small
	assert_pair window
	assertEquals 1 "$(rc_of killed.client)"
	assert_clean AddressSanitizer
}

# One side's request in turn: it ends with one error, and so does the other.
test_refusals() {
	in_lab '
		eval "$LATENCY"
		start_host() { latency_server "$1" -q -t 2; }
		refusals_of_both "$B/tag_lat" client -q -t 2 -n 3 127.0.0.1 rxe1
	' || return 0
	assertEquals "$(err_of client)$(err_of server)" '0 0' "$(rc_of client) $(rc_of server)"
	assertEquals 'the other side, too' '' "$(grep -v ' 1 1$\| 0 0$' "$T/ends")"
	assert_refusals 34 'client connect|server (socket|epoll_wait)' <"$T/lab.out"
}

oneTimeSetUp() { build_helpers; }

. shunit2
