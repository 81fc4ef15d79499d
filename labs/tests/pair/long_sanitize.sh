#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server and rdma_client under AddressSanitizer and UBSan, where they succeed and
# where a verb fails: the scenes of test_failing_verbs.sh, in less than a minute.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

test_failing_verbs() {
	local rc=0
	must_build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/rdma_{server,client}
	# A sanitizer's finding ends the program with 99.
	BUILD=build/asan JOBS=1 \
		ASAN_OPTIONS=exitcode=99:detect_leaks=1:verify_asan_link_order=0 \
		UBSAN_OPTIONS=exitcode=99:print_stacktrace=1 \
		labs/tests/run labs/tests/pair/test_failing_verbs.sh >"$T/said" || rc=$?
	assertEquals "$(<"$T/said")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/said")" '^[1-9][0-9]* passed, 0 failed, 0 skipped$'
}

. shunit2
