#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The frames between host and guest: a guest that lies is no danger to the host.
. "$(dirname "$0")/../lib.sh"

oneTimeSetUp() {
	helper "$B/unit_wire" labs/tests/lab/unit_wire.c
}

test_frames() {
	assertEquals 'wire: 0 failures' "$(on_host "$B/unit_wire")"
}

. shunit2
