#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 11: what the page shows, and rdma_server and rdma_client --cm: with good input, bad
# input, strangers, and a peer that is killed.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../../labs/tests/lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# What the scenes wait for when they start a server: listening PORT
listens='listening() { rdma resource show cm_id | grep -q "LISTEN .*:::$1 "; }
'

test_pairs() {
	local name
	in_lab "$listens"'
		pair a --cm -j rxe0 : --cm -j 10.99.0.1 rxe1
		pair ping --cm -q -e -n 20 : --cm -q -e -n 20 10.99.0.2
		pair bw --cm -q -b -n 200 : --cm -q -b -n 200 10.99.0.1
		six=$(ip -6 addr show dev veth0 | sed -n "s/.*inet6 \(fe80[^/]*\).*/\1/p")
		pair six --cm -q : --cm -q "$six%veth1"
		start late.client "$B/rdma_client" --cm -q 10.99.0.1
		nap 0.7
		server late.server --cm -q
		reap late.client late.server
	' || return 0
	for name in a ping bw six late; do assert_pair "$name"; done
	assertEquals 'what one calls local' "$(json a.server .remote)" "$(json a.client .local)"
	assertEquals 'the other calls remote' "$(json a.client .remote)" "$(json a.server .local)"
	assertEquals 'rxe0 rxe1 1 4096' "$(json a.server .device) $(json a.client '"\(.device) \(.gid_index) \(.path_mtu)"')"
}

# rping has no private data of ours. The server waits for the next.
test_bad_input() {
	in_lab "$listens"'
		server stranger.server --cm -q -t 20
		rping -c -a 10.99.0.1 -p 18515 -C 1 >/dev/null 2>&1
		run stranger.client "$B/rdma_client" --cm -q 10.99.0.1
		reap stranger.server
		server plan.server --cm -q -n 5
		run plan.client "$B/rdma_client" --cm -q 10.99.0.1
		reap plan.server
		server device.server --cm -q -t 30 rxe0
		run used "$B/rdma_server" --cm -q
		run wrong "$B/rdma_client" --cm -q 10.99.0.1 rxe0
		run device.client "$B/rdma_client" --cm -q 10.99.0.2
		reap device.server
		run loopback "$B/rdma_client" --cm -q localhost
		run nobody "$B/rdma_client" --cm -q -t 1 10.99.0.1
		run route "$B/rdma_client" --cm -q 172.16.9.9
		start tcp.server "$B/rdma_server" -q -t 9
		run tcp.client "$B/rdma_client" --cm -q -t 1 10.99.0.1
		kill -INT "${pids[tcp.server]}"
		reap tcp.server
		server dead.server --cm -q -n 1000000
		start dead.client "$B/rdma_client" --cm -q -t 1 -n 1000000 10.99.0.1
		in_rts() { rdma resource show qp | grep -q "type RC state RTS"; }
		await in_rts
		kill -KILL "${pids[dead.server]}"
		reap dead.client dead.server
	' || return 0
	local name want
	assertEquals 'rc 0' '0 0' "$(rc_of stranger.client) $(rc_of stranger.server)"
	while read -r name want; do assert_error "$name" 1 "$want"; done <<-'END'
		plan.server the peer plans mode once
		plan.client the peer failed before sync point READY: EPROTO
		used rdma_bind_addr\(.*EADDRNOTAVAIL.*another program listens
		wrong is reached through rxe1, not through rxe0
		device.server is reached through rxe1, not through rxe0
		device.client the peer failed before sync point READY: ENODEV
		loopback rdma_resolve_route\(127.0.0.1 port 18515\) failed: ENODEV.*no network device that has an RDMA device
		nobody REJECTED \(status 8\): nobody listens
		route rdma_resolve_addr\(172.16.9.9 port 18515\) failed: ENETUNREACH
		tcp.client REJECTED \(status 8\): nobody listens
		dead.client no completion on QP [0-9]+ within 1000 ms: rxe0 has no QP
	END
	usage_error 'leaves the GID to librdmacm' rdma_client --cm 10.99.0.1 rxe1 18515 1
}

test_lesson() {
	local options
	need_lab || return 0
	both() { lessons/11-rdma-cm/both "$@" | tr '\n' ' '; }
	assert_in "$(both :)" 'S . DISCONNECTED +QP in RTS S . rdma_disconnect +QP in ERR.*C . rdma_disconnect +QP in ERR'
	assert_in "$(both : --private-data 57)" 'at most 56 bytes'
	for options in 'server --private-data 256' 'client' ''; do
		# shellcheck disable=SC2086 # words
		on_host "$B/11-rdma-cm" $options >/dev/null 2>&1
		assertEquals "$options" 2 $?
	done
}

. shunit2
