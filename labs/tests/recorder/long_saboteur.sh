#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# build/sabotage: it changes the one argument that it was told, which the recorder behind
# it sees as the program's own doing, and nothing else; wrong rules are refused by name.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/libsaboteur.so" "$B/sabotage"
	built_in
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
	functions=(pingpong)
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

test_wrong_rules_are_refused_by_name() {
	local rule said
	while read -r rule said; do
		here wrong "$B/sabotage" "$rule" -- true
		assertEquals "exit code of $rule" 2 "$(rc_of wrong)"
		assert_in "$(err_of wrong)" "$said" "$rule:"
		assertEquals "lines of $rule" 2 "$(grep -c '^sabotage: ' "$T/wrong.err")"
	done <<-'END'
		post_sen:1:skip begins with no call
		post_send has no change
		post_send:0:skip ^sabotage: WHICH is
		modify_qp:RTX:skip ^sabotage: WHICH is
		create_qp:skip "skip" is no change of create_qp
		post_send:path_mtu=1 "path_mtu=1" is no change of post_send
		modify_qp:path_mtu= "path_mtu=" is no change
		modify_qp:path_mtu=1x "path_mtu=1x" is no change
		modify_qp:mask-FROB "mask-FROB" is no change
		post_send:rkey<<64 "rkey<<64" is no change
		post_send:rkey~1 ^sabotage: next: kill, sleep=S, skip, twice, or one of: .* rkey
	END
}

test_usage() {
	here nothing "$B/sabotage"
	here no_command "$B/sabotage" poll:skip
	here list "$B/sabotage" --list
	here missing "$B/sabotage" post_send:kill /no/such/program
	here plain "$B/sabotage" post_send:kill -- sh -c 'echo out; echo err >&2; exit 7'
	assertEquals '2 2 0 127 7' "$(for n in nothing no_command list missing plain; do rc_of $n; done | xargs)"
	assert_in "$(out_of list)" '^modify_qp: .*dest_qp_num.* twice kill sleep=S$'
	assertEquals 'as it was' 'out err' "$(out_of plain) $(err_of plain)"
}

# pingpong NAME RULE: one on $port, with the client sabotaged; RULE - is none
pingpong() {
	local name=$1 way=(timeout 15 ibv_rc_pingpong -e -g 1 -n 4 -r 6 -p "$port")
	serve "$name.server" "${way[@]}" -d rxe0
	local sabotage=("$B/sabotage" -o "$T/$name.log" "$2")
	[[ $2 != - ]] || sabotage=()
	run "$name" timeout 15 labs/qptrace --quiet -o "$recordings/$name.qpt" -- "${sabotage[@]}" \
		"${way[@]:2}" -d rxe1 10.99.0.1
	reap "$name.server"
}

session_pingpongs() {
	port=18951 pingpong plain - &
	port=18952 pingpong far poll:1000000:twice &
	port=18953 pingpong mtu modify_qp:RTR:path_mtu=1 &
	wait
}

# calls NAME: what it asked for, but for what differs from run to run
calls() {
	jq -c 'select(.ev | IN("start", "exit", "port", "completion", "cq_event", "arm", "ack", "explain", "stall", "warning") | not)
		| del(.t, .wall, .pid, .tid, .dur, .qpn, .addr, .lkey, .rkey, .dest_qpn, .rq_psn, .sq_psn, .n,
			.id, .cause, .next, .seen, .call)' "$T/$1.json"
}

test_one_argument_is_changed_and_the_recorder_sees_it() {
	given pingpongs || return 0
	assertEquals 'without a hit nothing changes' "$(calls plain)" "$(calls far)"
	assertEquals '0 0' "$(rc_of plain) $(rc_of far)"
	assertFalse 'nothing was struck' "[[ -s $T/far.log ]]"
	assert_in "$(diff <(calls plain) <(calls mtu) | grep -m 1 '^>')" '"path_mtu":256'
	assertEquals 'sabotage: modify_qp to RTR: path_mtu 0x3 -> 0x1' "$(<"$T/mtu.log")"
}

test_every_rule_of_the_bench_is_one() {
	local rule
	while read -r rule; do
		here rule "$B/sabotage" "$rule" true
		assertEquals "$rule: $(err_of rule)" 0 "$(rc_of rule)"
	done < <(awk -F' *[|] *' '!/^#/ && NF == 5 && $2 !~ /^net:/ { print $2 }' labs/faults/bench/sabotages | sort -u)
}

. shunit2
