#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What lesson 01 says must agree with what the kernel's sysfs says.

. "$(dirname "$0")/../../labs/tests/lib.sh"

test_lists_the_devices_that_the_kernel_has() {
	local out
	out=$(in_lab '"$1"/01-device-open; echo "rc=$?"
		echo "kernel:" $(ls /sys/class/infiniband)' "$B")
	assert_in "$out" '^rc=0$'
	assert_in "$out" '^kernel: rxe0 rxe1$'
	assert_in "$out" 'list the RDMA devices: 2 found'
	assert_in "$out" '^ +rxe0: 1 port'
	assert_in "$out" '^ +rxe1: 1 port'
}

test_chosen_gid_is_the_ipv4_roce_v2_one_of_sysfs() {
	local out
	out=$(in_lab '
		p=/sys/class/infiniband/rxe1/ports/1
		index=$("$1"/01-device-open rxe1 |
			sed -n "s/.*chosen: rxe1 port 1, GID index \([0-9]*\).*/\1/p")
		cat $p/gids/$index $p/gid_attrs/types/$index' "$B")
	assertEquals "0000:0000:0000:0000:0000:ffff:0a63:0002
RoCE v2" "$out"
}

test_obeys_a_gid_index_that_is_given() {
	assert_in "$(lab run "$B/01-device-open" rxe0 0)" \
		'chosen: rxe0 port 1, GID index 0 = fe80::'
}

test_mistakes_bring_their_errors_and_leave_nothing() {
	local out
	out=$(in_lab '
		before=$(held)
		for name in device gid; do
			"$1"/01-device-open --break $name 2>&1 >/dev/null
			echo "$name rc=$?"
		done
		echo "left $(($(held) - before))"' "$B")
	assert_in "$out" '^error: no RDMA device is named "mlx5_99"$'
	assert_in "$out" '^device rc=1$'
	assert_in "$out" '^error: GID index 7 of rxe0 port 1 is empty$'
	assert_in "$out" '^gid rc=1$'
	assert_in "$out" '^left 0$'
}

test_wrong_usage_is_refused() {
	local arg rc
	for arg in '--break nothing' 'rxe0 256' 'rxe0 x' 'rxe0 1 2' '--what'; do
		# shellcheck disable=SC2086
		on_host "$B/01-device-open" $arg >/dev/null 2>&1
		rc=$?
		assertEquals "$arg" 2 $rc
	done
}

. shunit2
