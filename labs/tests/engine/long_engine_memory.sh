#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_engine, needle_server and engine_client: tests of the other two suites under
# AddressSanitizer and UBSan, whose reports fail them; a thousand clients; and
# whatever they ask the system for, refused.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/engine/engine.sh
. "$ROOT/labs/tests/engine/engine.sh"

test_sanitizers() {
	need_lab || return 0
	build_sanitized rdma_engine engine_client needle_server needle
	under_sanitizers labs/tests/engine/test_engine.sh test_recorded_requests test_reads test_sessions test_token \
		test_client_of_an_engine_that_lies test_many_readers_of_a_node_that_comes_back test_no_node
	under_sanitizers labs/tests/engine/long_engine_faults.sh test_bytes_that_are_no_messages test_silent_and_dripping_clients \
		test_client_killed_in_the_middle test_nodes_that_die_in_the_middle test_node_that_lies \
		test_device_that_lies
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
		start_host() { engine "$1"; }
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
