#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_server --many: clients of each kind at once, and who of them harms nobody else.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/pair/many.sh
. "$ROOT/labs/tests/pair/many.sh"

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
	many_kinds || return 0
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
