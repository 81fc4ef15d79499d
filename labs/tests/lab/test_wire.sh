#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The frames between host and guest: a guest that lies is no danger to the host; and
# what the guest keeps of clients that are gone, which is nothing.
. "$(dirname "$0")/../lib.sh"

oneTimeSetUp() {
	helper "$B/unit_wire" labs/tests/lab/unit_wire.c
	helper "$B/unit_session" -U_GNU_SOURCE -Wl,--wrap={malloc,calloc,realloc,free} labs/tests/lab/unit_session.c "$SOURCES/labs/vm/session.c"
}

test_frames() {
	assertEquals 'wire: 0 failures' "$(on_host "$B/unit_wire")"
}

test_sessions() {
	assertEquals 'session: 0 failures' "$(on_host "$B/unit_session")"
}

. shunit2
