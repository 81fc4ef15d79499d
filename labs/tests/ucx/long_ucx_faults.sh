#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo under ASan and UBSan among peers that lie, stall or vanish; and a
# system that refuses what they ask for.
#
# shellcheck disable=SC2154,SC2317 # guest.sh sets and calls
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/ucx/ucx.sh
. "$ROOT/labs/tests/ucx/ucx.sh"

# sanitized FUNCTION ARG…: a report ends the program with 99
sanitized() {
	local -x B=build/asan ASAN_OPTIONS=exitcode=99:detect_leaks=1
	local -x UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
	"$@"
	assert_clean
}

test_bad_clients() { sanitized meet_bad_clients "$BAD_CLIENTS" '[15,11]' -i 60 -t 60; }

test_silent_clients() { sanitized meet_bad_clients "$SILENT_CLIENTS" '[5,3]' -i 3 -t 4; }

test_bad_servers() { sanitized meet_bad_servers "$BAD_SERVERS"; }

test_ends_in_the_middle() { sanitized ends_in_the_middle; }

test_good_runs() { sanitized good_runs; }
good_runs() {
	local program
	for program in ucx_echo sock_echo; do
		UCXPY_LOG_LEVEL=DEBUG host $program server -c 3
		begin_ask $program many -q -s 5000000 -n 3
		begin_ask $program ping -q -b -n 50 -s 70000
		begin_ask $program text
		reap many ping text server
		assert_done many ping text
		assertEquals "$(err_of server)" 0 "$(rc_of server)"
	done
}

# Whatever a program asks the system for is refused once: an error, and who comes to that
# server then is served or sent away, but it ends when it is told.
test_refusals() {
	local program asked=(-q -t 3 -i 3)
	for program in ucx_echo sock_echo; do
		[[ $program == ucx_echo ]] || local -x KEPT_POLL=1
		refusals_of_server "$program" >>"$T/servers"
		assertEquals "$program: $(err_of "$program")" 0 "$(rc_of "$program")"
		host "$program" server
		refusals "$program" "$B/$program" client 127.0.0.1 -p "$port" -q >>"$T/clients"
		assert_done "$program"
		stop server
	done
	unset KEPT_POLL
	assert_refusals 20 'sock_echo (socket|getpeername|recv)' 'ucx_echo|sock_echo' <"$T/servers"
	assert_refusals 12 'sock_echo (connect|recv)' <"$T/clients"
	# What a ping-pong asks for: that client is over then, and nothing more is said.
	program=ucx_echo asked+=(-b -n 3)
	refusals_of_server pingpong >"$T/pingpong"
	assertEquals "$(<"$T/pingpong")" 1 "$(grep -c '|1|error: .*no memory for a ping-pong$' "$T/pingpong")"
}
# What each of them is asked in the meantime
start_host() { host "$program" "$1" -t 3; }
meet_host() {
	ask "$program" guest "${asked[@]}"
	[[ $(rc_of guest) != 1?? ]] || fail "the guest of $1: $(err_of guest)"
	kill "${pids[$1]}" 2>/dev/null
}

oneTimeSetUp() {
	build_ucx && build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/{ucx_echo,sock_echo}
}

. shunit2
