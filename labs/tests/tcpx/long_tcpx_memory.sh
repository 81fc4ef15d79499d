#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 under AddressSanitizer, UBSan and valgrind: tests of the other suites once more.
# All that runs is instrumented; a report ends a program with 99, which no test expects.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

test_good_runs() { under_sanitizers labs/tests/tcpx/test_tcpx.sh test_measurements test_text_run test_contract test_mixed_versions test_no_plugin_and_no_peer; }
test_faults() { under_sanitizers labs/tests/tcpx/long_tcpx_faults.sh test_failing_calls test_lying_plugins test_plugins_that_are_none; }
test_peers() { under_sanitizers labs/tests/tcpx/long_tcpx_peers.sh test_hostile_clients test_hostile_servers test_killed_and_stopped test_hostile_net_peers test_net_driver; }

# Without sanitizers: valgrind sees what ASan does not, reads of what was never written.
test_valgrind() {
	command -v valgrind >/dev/null || { skip "no valgrind here"; return 0; }
	checked() { # NAME ARGS…
		start "$1" timeout 100 valgrind -q --leak-check=full --error-exitcode=9 \
			--show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
			"$B/test_connection" -q -t 60 -p "$port" "${@:2}"
	}
	next_port
	checked many.server -c 2 server
	await listening_or_ended "$port" "$pid"
	checked many.client -s 70001 -n 20 client 127.0.0.1
	reap many.client many.server
	assert_pair many
}

oneTimeSetUp() {
	build_sanitized test_connection libnccl-net-lab.so libnccl-net-mixed.so
	build_net
}

. shunit2
