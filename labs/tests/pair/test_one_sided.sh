#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 8: every right of MR and QP with every operation, and the places and keys
# next to the right ones. Bytes and the QP's state decide.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

oneTimeSetUp() {
	local lib=$B/librdma_common.a flags=()
	# A library that was built with sanitizers needs them here too.
	! nm -A "$lib" 2>/dev/null | grep -q __asan_init ||
		flags=("-fsanitize=address,undefined")
	helper "$B/unit_one_sided" -O2 "${flags[@]}" \
		labs/tests/pair/unit_one_sided.c "$lib" -libverbs -ljansson
}

test_every_right_with_every_operation() {
	in_lab 'run unit "$B/unit_one_sided" rxe0' || return 0
	assertEquals 'one_sided: 0 failures' "$(out_of unit)"
	assertEquals "$(err_of unit)" 0 "$(rc_of unit)"
}

. shunit2
