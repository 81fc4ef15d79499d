#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The channel of tag matching and tag_lat under ASan, UBSan and valgrind; and whatever
# they ask the system for, refused.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tag/tag.sh
. "$ROOT/labs/tests/tag/tag.sh"

test_with_sanitizers() {
	local rc=0 name
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/tag_lat \
		>"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	local -x B=build/asan
	compile "$T/unit" labs/tests/tag/unit_tag_channel.c \
		"-fsanitize=address,undefined" -fno-sanitize-recover=all \
		"$B/librdma_common.a" -libverbs -ljansson || return
	in_lab '
		eval "$LATENCY"
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1
		export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
		run unit timeout 120 "$T/unit" rxe0 rxe1 truncation random many \
			order flush cancel bad-memory close-early close-one lies false-credits
		latency small -q : -q -n 20
		latency big -q : -q -n 3 -s 100000
		latency window -q -w 4 : -q -w 4 -n 20
		latency_server killed.server -q rxe0
		start killed.client "$B/tag_lat" client -q -s 9000 -n 10000000 \
			127.0.0.1 rxe1
		await in_rts
		kill -KILL "${pids[killed.server]}"
		reap killed.server killed.client
	' || return 0
	assertEquals "$(out_of unit) $(err_of unit)" 0 "$(rc_of unit)"
	for name in small big window; do
		assertEquals "$name: $(err_of $name.client)" 0 "$(rc_of $name.client)"
		assertEquals "$name: $(err_of $name.server)" 0 "$(rc_of $name.server)"
	done
	assertEquals 1 "$(rc_of killed.client)"
	assert_clean AddressSanitizer
}

test_with_valgrind() {
	compile "$T/unit" labs/tests/tag/unit_tag_channel.c \
		"$B/librdma_common.a" -libverbs -ljansson || return
	in_lab '
		run unit timeout 120 valgrind -q --leak-check=full \
			--show-leak-kinds=definite,indirect \
			--errors-for-leak-kinds=definite,indirect \
			--error-exitcode=9 "$T/unit" rxe0 rxe1 cancel
	' || return 0
	assertEquals "$(err_of unit)" 0 "$(rc_of unit)"
	assert_not_in "$(err_of unit)" '^==[0-9]+=='
}

# One side's request in turn: it ends with one error, and so does the other.
test_refusals() {
	in_lab '
		eval "$LATENCY"
		start_host() { latency_server "$1" -q -t 2 rxe0; }
		refusals_of_both "$B/tag_lat" client -q -t 2 -n 3 127.0.0.1 rxe1
	' || return 0
	assertEquals "$(err_of client)$(err_of server)" '0 0' "$(rc_of client) $(rc_of server)"
	assertEquals 'the other side, too' '' "$(grep -v ' 1 1$\| 0 0$' "$T/ends")"
	assert_refusals 34 'client connect|server (socket|epoll_wait)' <"$T/lab.out"
}

oneTimeSetUp() { build_helpers; }

. shunit2
