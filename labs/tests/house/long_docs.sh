#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The commands of all pages print what the pages show.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

test_pages_of_this_tree_are_true() {
	local out rc=0
	out=$(build all 2>&1) || { fail "make: $out"; return; }
	out=$(lab run true 2>&1) || rc=$?
	if ((rc == 77)); then
		skip "the commands of the pages cannot run here: $out"
		return
	fi
	rc=0
	out=$("$ROOT/labs/docs" check 2>&1) || rc=$?
	assertEquals "$out" 0 "$rc"
}

. shunit2
