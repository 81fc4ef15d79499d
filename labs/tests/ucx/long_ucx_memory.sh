#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo under AddressSanitizer and UBSan: good runs, hostile
# peers on both sides, a peer that is killed, a stop in the middle.
#
# shellcheck disable=SC2317 # each() calls
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/ucx/ucx.sh
. "$ROOT/labs/tests/ucx/ucx.sh"

test_good_runs() {
	local program size
	for program in ucx_echo sock_echo; do
		serve $program server -c 7
		for size in 0 12 8192 5000000; do
			begin_ask $program "$size" -q -s "$size" -n 3
		done
		begin_ask $program text
		begin_ask $program ping -q -b -n 50 -s 70000
		begin_ask $program ping7 -q -b -n 5 -s 7
		reap 0 12 8192 5000000 text ping ping7 server
		assert_done 0 12 8192 5000000 text ping ping7 server
		assert_clean
	done
}

test_units_and_debug_lines() {
	run units "$N/unit_ucx"
	assertEquals "$(out_of units)" 0 "$(rc_of units)"
	UCXPY_LOG_LEVEL=DEBUG serve ucx_echo server -c 1
	UCXPY_LOG_LEVEL=DEBUG ask ucx_echo debug -q
	reap server
	assert_clean
}

test_bad_clients() {
	serve ucx_echo server -i 1 -t 1
	alone() { bad "$1"; }
	each "$BAD_CLIENTS" alone
	# And all at once.
	local jobs=()
	together() {
		bad "$1" &
		jobs+=("$!")
	}
	each "$BAD_CLIENTS" together
	ask ucx_echo good -q -s 100000 -n 20
	wait "${jobs[@]}"
	stop server
	assert_done good
	assertEquals "$(err_of server)" 0 "$(rc_of server)"
	assert_clean
}

test_bad_servers() {
	bad_servers
	assert_clean
}

test_stops() {
	local program
	for program in ucx_echo sock_echo; do
		serve $program server
		begin_ask $program one -q -s 3000000 -n 100000000
		begin_ask $program two -q -b -n 100000000
		begin_ask $program killed -q -s 3000000 -n 100000000
		nap 1
		kill -KILL "${pids[killed]}"
		kill -INT "${pids[one]}"
		nap 0.2
		stop server INT
		reap one two
		reap killed 2>/dev/null
		assertEquals "exit code of server" 0 "$(rc_of server)"
		assertEquals "exit codes" 1,1 "$(rc_of one),$(rc_of two)"
		assert_clean
	done
}

test_failures_at_the_start() {
	serve ucx_echo server
	run busy "$B/ucx_echo" server -q -p "$port"
	stop server
	UCX_TLS=no_such_tl run none "$B/ucx_echo" server -q
	ask ucx_echo nobody -q -t 1
	assertEquals 1,1,1 "$(rc_of busy),$(rc_of none),$(rc_of nobody)"
	assert_clean
}

oneTimeSetUp() {
	make -s -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/ucx_echo \
		build/asan/sock_echo build/asan/librdma_common.a || return 1
	export B=build/asan
	# A sanitizer's report ends the program with 99.
	export ASAN_OPTIONS=exitcode=99:detect_leaks=1
	export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
	build_ucx
}

. shunit2
