#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Two hosts and their wire: labs/lab up --two, run --on, net, kill. One pair for all.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm
on_a() { lab run --on A "$@"; }
on_b() { lab run --on B "$@"; }
net() { lab net --on "$@" >/dev/null; }

oneTimeSetUp() {
	two_hosts_apart
	refused=$(on_b true 2>&1)
	refused_rc=$?
	two_hosts_up
}

oneTimeTearDown() { two_hosts_down; }

need_two() { need_two_hosts && lab net --on A clean >/dev/null && lab net --on B clean >/dev/null; }

# hello: from B to A, over RDMA; sets $server and $client to their exit codes,
# and $T/server, $T/client
hello() {
	server=0 client=0
	on_a "$B/rdma_server" rxe0 >"$T/server" 2>&1 &
	on_b "$B/rdma_client" 10.98.0.1 rxe0 >"$T/client" 2>&1 || client=$?
	wait $! || server=$?
}

test_demo_on_two_hosts() {
	need_two || return 0
	labs/demo --two >"$T/out" 2>&1
	assertEquals 'demo --two' 0 $?
	assert_in "$(<"$T/out")" '^server \| received 24 bytes: "Hello from RDMA client!"'
	assert_in "$(<"$T/out")" '^client \|     GID  +::ffff:10.98.0.2 +::ffff:10.98.0.1'
	assertEquals 'A B' "$(on_a hostname) $(on_b hostname)"
}

test_net_is_shown_and_undone() {
	need_two || return 0
	net B loss 0.5% && net B delay 1ms && net B mtu 600 && net B block-roce in
	assertEquals $'clean\ndelay 1ms loss 0.5%, mtu 600, block-roce in' "$(lab status | sed -n 's/^net: *//p')"
	assert_in "$(on_b ibv_devinfo)" 'active_mtu:\s+512 '
	net B down
	assertEquals '1: DOWN' "$(on_b cat /sys/class/infiniband/rxe0/ports/1/state)"
	assertEquals 'B: clean' "$(lab net --on B clean)"
	hello
	assertEquals '0 0' "$server $client"
}

# All in one run, for each costs half a second.
test_net_refuses() {
	need_two || return 0
	net B loss 1% && net B block-roce out
	on_b bash -c 'while read -r want words; do
			rc=0
			said=$(labs/vm/host.sh net $words 2>&1) || rc=$?
			[[ $rc == "$want" && $said == *"lab: next: "* ]] || echo "net $words: $rc, $said"
		done' >"$T/out" <<-'END'
		2
		2 loss
		2 loss 2
		2 loss 101%
		2 loss -1%
		2 loss 2% delay 5ms
		2 delay 5
		2 rate fast
		2 mtu 67
		2 mtu 9999
		2 block-roce up
		2 lose 2%
		2 clean all
		1 loss 2%
		1 reorder 10%
		1 block-roce
		1 up
	END
	assertEquals '' "$(<"$T/out")"
	assertEquals 'nothing changed' 'B: loss 1%, block-roce out' "$(lab net --on B show)"
}

test_wire_of_another_run() {
	need_two || return 0
	lab run --on A labs/qptrace -o "$T/other" build/02-pd-mr-cq-qp >/dev/null
	lessons/09-two-hosts/try --wire "$T" -n 2 -t 18 >/dev/null
	labs/wire "$T/wire.pcap" >"$T/out"
	assertEquals 'no recording' 0 $?
	assert_in "$(<"$T/out")" '^2 data packets and 2 answers: 0 lost'
	labs/wire "$T/wire.pcap" "$T/other" >"$T/out" 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(<"$T/err")" 'it is of another link, or of another run'
	labs/wire Makefile "$T/other" 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(<"$T/err")" 'Makefile is no .pcap'
}

test_one_dies_and_comes_back() {
	need_two || return 0
	on_b "$B/rdma_client" -q --bw -n 1000000 10.98.0.1 rxe0 >"$T/client" 2>&1 &
	client=$!
	on_a "$B/rdma_server" -q --bw -n 1000000 rxe0 >"$T/server" 2>&1 &
	server=$!
	until on_b rdma resource show qp 2>/dev/null | grep -q 'type RC state RTS'; do :; done
	lab kill --on A 2>/dev/null
	assertEquals 'kill' 0 $?
	wait "$server"
	assertEquals 'the VM went away' 125 $?
	wait "$client"
	assertEquals 'the client' 1 $?
	assert_in "$(<"$T/client")" 'transport retry counter exceeded \(12\)'
	assert_in "$(lab status)" '^A: +gone$'
	on_a true 2>"$T/err"
	assertEquals 'A is not up' 1 $?
	lab up --two 2>"$T/err"
	assertEquals 'up --two, once more' 0 $?
	assert_in "$(<"$T/err")" '^lab: VM B is running already'
	hello
	assertEquals '0 0' "$server $client"
}

test_refusals() {
	need_two || return 0
	assertEquals "$refused" 1 "$refused_rc"
	assert_in "$refused" '^lab: host B is not up'
	lab run --on A --fresh true 2>/dev/null
	assertEquals '--fresh' 2 $?
	lab up --two --three 2>/dev/null
	assertEquals '--three' 2 $?
	lab net --on C loss 2% 2>/dev/null
	assertEquals 'host C' 2 $?
	XDG_RUNTIME_DIR=$T LAB_MEMORY=9999999 lab up --two 2>"$T/err"
	assertEquals 77 $?
	assert_in "$(<"$T/err")" '^lab: two VMs of 9999999 MiB do not fit'
}

. shunit2
