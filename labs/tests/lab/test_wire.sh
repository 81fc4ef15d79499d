#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The frames between host and guest: a guest that lies is no danger to the host; and
# what the guest keeps of clients that are gone, which is nothing.
. "$(dirname "$0")/../lib.sh"

watched=(-O1 "-fsanitize=address,undefined" -fno-sanitize-recover=all)

oneTimeSetUp() {
	helper "$B/unit_wire" labs/tests/lab/unit_wire.c
	helper "$B/unit_session" -U_GNU_SOURCE "${watched[@]}" -Wl,--wrap={malloc,calloc,realloc,free} labs/tests/lab/unit_session.c "$SOURCES/labs/vm/session.c"
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

. shunit2
