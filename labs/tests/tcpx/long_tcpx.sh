#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A message of 1 GiB through the plugin: on this host, in the lab, and by the
# driver that knows nothing of the project.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

# memory_for GIB: there is so much; else the test is skipped.
memory_for() {
	(($(awk '/^MemAvailable/{print $2}' /proc/meminfo) >= $1 << 20)) && return
	skip "less than $1 GiB of memory are free"
	return 1
}

# Each side needs a buffer of this size.
test_gibibyte() {
	local v
	memory_for 3 || return 0
	for v in 5 6 7 8; do
		talk "$v" -j -a "v$v" : -j -a "v$v" -s 1073741824
		assert_pair "$v"
		assert_json "$v" '[.net_api, .size] | @csv' "$v,1073741824"
	done
}

# So the VM gets more memory than usual. Once: all versions move it above, and the
# smaller sizes in the lab.
test_gibibyte_in_the_lab() {
	memory_for 5 || return 0
	local -x LAB_MEMORY=4096
	in_lab --fresh '
		start v8.server "$B/test_connection" -j -p 2020 -t 120 -a v8 server
		run v8.client "$B/test_connection" -j -p 2020 -t 120 -a v8 \
			-s 1073741824 client 10.99.0.1
		reap v8.server
	' || return 0
	assert_pair v8
	assert_json v8 '[.net_api, .size] | @csv' "8,1073741824"
}

test_gibibyte_of_a_stranger() {
	memory_for 3 || return 0
	build_driver
	drive gibibyte "$B/libnccl-net-lab.so" 8 size 1073741824
	reap gibibyte
	assertEquals "$(out_of gibibyte) $(err_of gibibyte)" 0 "$(rc_of gibibyte)"
}

oneTimeSetUp() { build_net; }

. shunit2
