#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 10: one SRQ and one CQ for many QPs, what UD loses, and who is there.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../../labs/tests/lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

test_the_walk_and_the_mistakes() {
	local name all='arm-late unacked own-receive srq-first dry cq-overrun wrong-qkey no-room over-mtu'
	in_lab "all='$all'"'
		for name in $all; do start "$name" "$B/10-many-peers" --break "$name"; done
		run one "$B/10-many-peers" rxe0
		reap $all
		run two "$B/10-many-peers"
	' || return 0
	for name in two one; do
		assertEquals "$(err_of $name)" 0 "$(rc_of $name)"
		assert_in "$(out_of $name)" 'each: 1024 receives, 4096 kB pinned'
		assert_in "$(out_of $name)" '64 QPs: 64 receives, 256 kB pinned'
		assert_in "$(out_of $name)" '^    1 event, 4 completions$'
		assert_in "$(out_of $name)" 'after message 2: SRQ limit reached'
		assert_in "$(out_of $name)" 'byte_len 104, .*64 bytes of data: "who is there\?"'
		assert_in "$(out_of $name)" '^    bytes 20-39: 0x45000074 0x[0-9a-f]{8} 0x..11'
		assertEquals 'the probe is right' "$(grep -c 'LAST_WQE_REACHED: yes' "$T/$name.out")" \
			"$(grep -c '^    last WQE reached$' "$T/$name.out")"
	done
	assert_error arm-late 1 'no event within 500 ms, and the CQ holds 1 completion'
	assert_error unacked 1 'has not returned .* until 1 event was acknowledged'
	assert_error own-receive 1 'ibv_post_recv.*EINVAL.*takes its receives from an SRQ'
	assert_error srq-first 1 'ibv_destroy_srq\(\) failed: EBUSY'
	assert_in "$(out_of dry)" 'client 1, after one receive was posted: success'
	assert_error dry 1 'client 0 has lost its connection'
	assert_in "$(out_of cq-overrun)" '^    7 completions, 13 times CQ_ERR; the QP is in RTS'
	assert_error cq-overrun 1 '13 completions are lost'
	for name in wrong-qkey no-room over-mtu; do
		assertEquals "$name: $(err_of "$name")" 1 "$(rc_of "$name")"
		assert_in "$(out_of $name)" '^    A: SEND of [0-9]+ bytes: SUCCESS$'
	done
}

# By multicast and by QPN; three at once, of whom one dies; and with much loss.
test_discover() {
	local name
	in_lab '
		start server "$B/ud_discover" server -d rxe0 -m "I am here"
		await in_file "wait for WHO" "$T/server.out"
		qpn=$(sed -n "s/.* and QP //p" "$T/server.out")
		ask() { start "$1" "$B/ud_discover" client -q -d rxe1 "${@:2}"; }
		ask multicast
		ask unicast "10.99.0.1/$qpn"
		ask dies -t 30
		nap 0.5
		kill9 dies
		reap multicast unicast
		ask wrong "10.99.0.1/$((qpn + 999))"
		run cut "$B/sabotage" -o "$T/said" post_send:1:sge.length-8 "$B/ud_discover" client -q -d rxe1
		reap wrong
		tc qdisc add dev veth1 root netem loss 100%
		ask lossy -t 3
		nap 1
		tc qdisc del dev veth1 root
		reap lossy
		kill "${pids[server]}"
		reap server
	' || return 0
	for name in multicast unicast lossy cut; do
		assertEquals "$name: $(err_of "$name")" 0 "$(rc_of "$name")"
		assertEquals "$name" 1 "$(grep -c ': GID ::ffff:10.99.0.1, UD QP ' "$T/$name.out")"
		assert_in "$(out_of "$name")" '^RC, QP [0-9]+: "I am here"$'
	done
	assert_error wrong 1 'nobody answered'
	assertEquals "$(err_of server)" 0 "$(rc_of server)"
	for name in '' 'client 10.99.0.1' 'server x' 'peer' 'client -t 0'; do
		# shellcheck disable=SC2086 # words
		here usage "$B/ud_discover" $name
		assertEquals "$name" 2 "$(rc_of usage)"
	done
}

. shunit2
