#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The gate's part of test-long: the main programs under AddressSanitizer and UBSan, where
# they succeed and where something fails, in three minutes.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

oneTimeSetUp() {
	build_sanitized rdma_server rdma_client rdma_engine engine_client needle_server \
		needle test_connection 11-rdma-cm libnccl-net-lab.so libnccl-net-mixed.so tag_lat
}

test_failing_verbs() {
	local tests suite=labs/tests/pair/test_failing_verbs.sh
	mapfile -t tests < <(grep -o '^test_[a-z_0-9]*' "$suite")
	under_sanitizers "$suite" "${tests[@]}"
}
test_cm() { under_sanitizers lessons/11-rdma-cm/check.sh test_pairs test_bad_input; }
test_engine() { under_sanitizers labs/tests/engine/test_engine.sh test_reads test_sessions; }
test_plugin() { under_sanitizers labs/tests/tcpx/test_tcpx.sh test_text_run test_contract; }
test_tags() { under_sanitizers labs/tests/tag/long_tag_match.sh test_with_sanitizers; }

. shunit2
