#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 06: the walk reaches its end over real sockets, each mistake brings its
# error, and test_connection moves the text between two processes.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_the_walk_delivers_the_text() {
	local out
	out=$(timeout 30 "$B/06-tcpx-handle-exchange" 2>&1)
	assertEquals "$out" 0 $?
	assert_in "$out" 'accept: rc=0 recv_comm=\(nil\)'
	assert_in "$out" 'isend: rc=0 request=\(nil\)'
	assert_in "$out" "size is 24: \"Hello from TCPX client!\""
}

test_mistakes_bring_their_errors() {
	local out name
	for name in one-accept mem-type parse-handle too-big mix-api; do
		timeout 30 "$B/06-tcpx-handle-exchange" --break $name \
			>"$T/$name" 2>&1
		assertEquals "$name" 1 $?
	done
	assert_in "$(cat "$T/one-accept")" '^error: recv_comm is null$'
	assert_in "$(cat "$T/mem-type")" 'unknown mem type 0'
	assert_in "$(cat "$T/mem-type")" 'regMr .*returned 3: internal error'
	assert_in "$(cat "$T/parse-handle")" "that is nobody's address"
	assert_in "$(cat "$T/too-big")" 'takes 2048 bytes'
	assert_in "$(cat "$T/mix-api")" 'connect to .*:0 failed: Connection refused'
	assert_in "$(cat "$T/mix-api")" 'the peer failed before sync point READY'
}

test_wrong_usage() {
	timeout 10 "$B/06-tcpx-handle-exchange" rxe0 2>/dev/null
	assertEquals 2 $?
}

test_two_nodes_of_the_lab() {
	local out
	out=$(in_lab '
		timeout 60 "$1"/test_connection server >"$2/server" 2>&1 &
		timeout 60 "$1"/test_connection client 10.99.0.1 >"$2/client" 2>&1
		echo "client $?"
		wait $!
		echo "server $?"' "$B" "$T")
	assertEquals "client 0
server 0" "$out"
	assert_in "$(cat "$T/server")" "^Data: 'Hello from TCPX client!'$"
	assert_in "$(cat "$T/server")" '✓ SUCCESS: Received 24 bytes$'
	assert_in "$(cat "$T/client")" '✓ SUCCESS: Sent 24 bytes$'
}

. shunit2
