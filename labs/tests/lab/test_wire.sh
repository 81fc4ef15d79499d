#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The frames between host and guest: a guest that lies is no danger to the host; and
# what the guest keeps of clients that are gone, which is nothing. All without a VM.
. "$(dirname "$0")/../lib.sh"

watched=(-O1 "-fsanitize=address,undefined" -fno-sanitize-recover=all)

oneTimeSetUp() {
	local name
	helper "$B/unit_wire" labs/tests/lab/unit_wire.c
	helper "$B/unit_session" -U_GNU_SOURCE "${watched[@]}" -Wl,--wrap={malloc,calloc,realloc,free} labs/tests/lab/unit_session.c "$SOURCES/labs/vm/session.c"
	helper "$B/unit_agent" -U_GNU_SOURCE "${watched[@]}" -I"$SOURCES/labs/vm" labs/tests/lab/unit_agent.c
	helper "$B/watched/fake_vm" labs/tests/lab/fake_vm.c
	for name in attach ctl; do
		helper "$B/watched/$name" -U_GNU_SOURCE "${watched[@]}" "$SOURCES/labs/vm/$name.c"
	done
	PATH=$(cd "$B/watched" && pwd):$PATH
	export ASAN_OPTIONS=detect_leaks=0 # at their end they keep their buffers
}

# says RC OUT ERR CMD…: in $T
says() {
	local rc=0
	(cd "$T" && timeout 60 "${@:4}" >out 2>err) || rc=$?
	assertEquals "${*:4}" "$1 $2" "$rc $(<"$T/out")"
	assertEquals "${*:4}" "$3" "$(<"$T/err")"
}

test_frames() {
	assertEquals 'wire: 0 failures' "$(on_host "$B/unit_wire")"
}

# It signals whole sessions: where a namespace of processes may be had, in one.
test_sessions() {
	local apart=(unshare --map-root-user --pid --fork --mount-proc)
	on_host "${apart[@]}" true 2>/dev/null || apart=()
	assertEquals 'session: 0 failures' "$(on_host "${apart[@]}" "$B/unit_session" 2>&1)"
}

test_agent() {
	assertEquals 'agent: 0 failures' "$(on_host "$B/unit_agent" 2>"$T/err")"
	assert_in "$(<"$T/err")" '^agent: fork: '
}

# What was left of another client's session, more digits than any number has, and no
# credit for what comes on stdin.
test_a_session_that_lies() {
	local zeros=00000000000000000000000000000000
	says 0 good '' bash -c 'umask 0; exec "$@"' sh \
		fake_vm s0 W W0123456789abcdef 1stale X7 W% 1good X0 -- attach . true
	assertEquals 'its lock' 600 "$(stat -c %a "$T/s0.lock")"
	says 0 '' '' fake_vm s0 W% "C$zeros" "C${zeros}0" "X$zeros" -- attach . true
	# It has no stderr, and what is said there is thrown away.
	says 0 262144 '' bash -c 'exec "$@" 2>&-' sh \
		fake_vm s0 W% 2words - X0 -- attach . true </dev/zero
}

test_an_agent_that_lies() {
	local late='lab: ping: the VM did not answer in time' files
	files=$(ulimit -Sn)
	says 0 '' '' fake_vm ctl.sock O 'O%|' 'N0123456789abcdef|no|' 'O%|ready|' -- ctl ping . $$ 60
	says 0 '' '' fake_vm ctl.sock 'O%|set up|' -- ctl setup . $$ 60
	ulimit -Sn 32
	says 1 '' "$late" ctl ping nowhere $$ 1
	says 1 '' "$late" fake_vm ctl.sock -- ctl ping . $$ 1
	ulimit -Sn "$files"
	says 1 '' 'lab: tie: the parent is gone' ctl tie 999999 touch x
	assertFalse 'it was started' "[ -e '$T/x' ]"
}

# Its own VM it takes along, and nobody else's process.
test_a_vm_that_cannot_be_reached() {
	local unreachable='lab: cannot reach the VM; try: labs/lab down' other
	mkdir "$T/own" "$T/other"
	says 125 '' "$unreachable" sh -c 'sleep 99 & echo $! >pid; exec attach -o $! own true'
	assertFalse 'it runs on' "kill -0 $(<"$T/pid")"
	sleep 99 &
	other=$!
	says 125 '' "$unreachable" attach -o "$other" other true
	assertTrue 'another was killed' "kill $other"
	assertEquals 'folders' '' "$(find "$T" -mindepth 1 -type d)"
}

. shunit2
