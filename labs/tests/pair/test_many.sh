#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server --many: clients of each kind at once, and who of them harms nobody else.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# In the lab. qps N: rxe0 has N QPs in RTS
MANY='
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
'

oneTimeSetUp() { build_peer "$B"; }

test_wrong_usage() {
	local value
	for value in many=0 many=1001 many=x slots=1 credits=x; do
		usage_error "--${value%=*} is not" rdma_server "--${value%=*}" "${value#*=}"
	done
	for value in '-n 5' --bw; do
		# shellcheck disable=SC2086 # words
		usage_error '--many leaves' rdma_server --many 2 $value
	done
	usage_error '--slots and --credits go with --many' rdma_server --slots 8
	usage_error 'unrecognized option|--many' rdma_client --many 2 10.99.0.1
}

# More than there is: of the device, of memory, of descriptors.
test_too_much() {
	in_lab '
		run srq "$B/rdma_server" --many 1 --slots 2000000 rxe0
		run cq "$B/rdma_server" --many 1 --slots 40000 rxe0
		run size "$B/rdma_server" --many 1000 -s 9000000 rxe0
		(ulimit -n 100; run fds "$B/rdma_server" --many 5 rxe0)
		(ulimit -Sn 20; server soft -j --many 5 rxe0; client c -q 127.0.0.1 rxe1
			kill "${pids[soft]}"; reap soft)
	' || return 0
	assert_error srq 1 'ibv_create_cq\(rxe0, cqe 2000000\).*32767'
	assert_error cq 1 'ibv_create_cq\(rxe0, cqe 40000\).*32767'
	assert_error size 1 'no memory for a buffer of 36000002048 bytes'
	assert_error fds 1 '5 clients need 106 descriptors; the limit is 100'
	assertEquals "$(err_of soft)" '0 1' "$(rc_of soft) $(json soft .served)"
}

# Twenty that do what they plan, around them all that harms nobody: strangers who stay,
# leave and talk HTTP; an address that nobody answers; a liar; one too big; one that has
# stopped; two that are killed.
test_all_kinds() {
	local name all=(once few ping{1..12} bw{1..6})
	in_lab "$MANY"'
		server many -j --many 40 -s 8192 -t 10 rxe0
		stay 1 4 "$B/peer"
		run get "$B/peer" connect 127.0.0.1 18515 "text=GET / HTTP/1.1" close
		for i in {1..4}; do run "gone$i" "$B/peer" connect 127.0.0.1 18515 hello close; done
		start unreached "$B/peer" connect 127.0.0.1 18515 hello con,gid=::ffff:10.99.0.77
		c() { start "$1" "$B/rdma_client" -q "${@:2}" 127.0.0.1 rxe1; }
		for i in dies1 dies2 stops; do c "$i" -e -n 10000000; done
		await qps 3
		c once -m hello
		c few -n 3 -e -s 1
		for i in {1..12}; do c "ping$i" -e -n 99 -s $((1 << i)) -t 60; done
		for i in {1..6}; do c "bw$i" -e -b -n 100 -w 16 -s $((1200 * i)) -t 60; done
		start lies "$B/sabotage" -o "$T/said" post_send:20:sge.length-8 \
			"$B/rdma_client" -q -n 100 127.0.0.1 rxe1
		c big -s 16384 -n 5
		kill9 dies1
		freeze stops
		kill9 dies2
		reap once few ping{1..12} bw{1..6} lies big unreached
		await in_file "does not go on" "$T/many.err"
		kill9 stops
		kill "${pids[many]}"
		reap many "stays"{1..4}
	' || return 0
	for name in "${all[@]}"; do
		assertEquals "$name: $(err_of "$name")" 0 "$(rc_of "$name")"
	done
	assertEquals "$(err_of many)" 0 "$(rc_of many)"
	assertEquals '{"served":20,"failed":6}' "$(json many '{served, failed}' | jq -c .)"
	assertTrue "$(out_of many)" "(($(json many .turned_away) >= 8))"
	assert_in "$(err_of many)" 'client [0-9]+ .*: message 19 is not what it planned'
	assert_in "$(err_of many)" 'plans mode pingpong, messages of 16384 bytes; a slot has 8192'
	assert_in "$(err_of many)" 'client [0-9]+ .* does not go on'
	assert_in "$(err_of many)" 'ibv_modify_qp\(QP [0-9]+, INIT -> RTR.*ETIMEDOUT'
	assert_error big 1 'the peer plans mode pingpong, 5 messages of 8192 bytes'
}

# One place: the next client is told. The stop: everybody is told, nothing is left.
test_full_and_stop() {
	in_lab "$MANY"'
		server one -j --many 1 rxe0
		start first "$B/rdma_client" -n 1000000 127.0.0.1 rxe1
		await qps 1
		client second 127.0.0.1 rxe1
		kill "${pids[one]}"
		reap one first
	' || return 0
	assert_error second 1 'the peer failed before sync point READY: EUSERS'
	assertEquals 1 "$(rc_of first)"
	assertEquals "$(err_of one)" '0 0 1 1' \
		"$(rc_of one) $(json one '"\(.served) \(.failed) \(.turned_away)"')"
}

. shunit2
