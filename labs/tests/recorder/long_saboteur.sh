#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# build/sabotage: it changes the one argument that it was told, which the recorder
# behind it sees as the program's own doing, and nothing else; wrong rules are
# refused by name. And the bench that stands on it: its cases are always the same.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/libsaboteur.so" "$B/sabotage"
	export QPTRACE_BUILD=$ROOT/$B
	[[ $B != /* ]] || QPTRACE_BUILD=$B
	helper "$B/mr_probe" -O2 labs/tests/recorder/mr_probe.c -libverbs
	helper "$B/newer_verbs.so" -O2 -fPIC -shared labs/tests/recorder/newer_verbs.c
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

# ---- on the host

# refused PATTERN RULE
refused() {
	here wrong "$B/sabotage" "$2" -- true
	assertEquals "exit code of $2" 2 "$(rc_of wrong)"
	assert_in "$(err_of wrong)" "$1" "$2:"
	assertEquals "lines of $2" 2 "$(grep -c '^sabotage: ' "$T/wrong.err")"
}

test_wrong_rules_are_refused_by_name() {
	refused 'begins with no call' frobnicate:1:skip
	refused 'begins with no call' post_sen:1:skip
	refused 'has no change' post_send
	refused '^sabotage: WHICH is' post_send:0:skip
	refused '^sabotage: WHICH is' post_send:x:skip
	refused '^sabotage: WHICH is' modify_qp:RTX:skip
	refused '"skip" is no change of create_qp' create_qp:skip
	refused '"path_mtu=1" is no change of post_send' post_send:path_mtu=1
	refused '"path_mtu" is no change' modify_qp:path_mtu
	refused '"path_mtu=" is no change' modify_qp:path_mtu=
	refused '"path_mtu=1x" is no change' modify_qp:path_mtu=1x
	refused '"path_mtu=-1" is no change' modify_qp:path_mtu=-1
	refused '"mask-FROB" is no change' modify_qp:mask-FROB
	refused '"rkey<1" is no change' post_send:rkey'<1'
	refused '"rkey<<64" is no change' post_send:rkey'<<64'
	refused '"rkey~1" is no change' post_send:rkey~1
	assert_in "$(err_of wrong)" '^sabotage: next: kill, sleep=S, skip, twice, or one of: .* rkey '
}

test_usage() {
	here nothing "$B/sabotage"
	assertEquals 2 "$(rc_of nothing)"
	here no_command "$B/sabotage" poll:skip
	assertEquals 2 "$(rc_of no_command)"
	here list "$B/sabotage" --list
	assertEquals 0 "$(rc_of list)"
	assert_in "$(out_of list)" '^modify_qp: .*dest_qp_num.* twice kill sleep=S$'
}

test_a_program_without_verbs_is_as_it_was() {
	here plain "$B/sabotage" post_send:kill -- sh -c 'echo out; echo err >&2; exit 7'
	assertEquals '7 out err' "$(rc_of plain) $(out_of plain) $(err_of plain)"
	here missing "$B/sabotage" post_send:kill /no/such/program
	assertEquals 127 "$(rc_of missing)"
}

# ---- in the lab

# pingpong NAME PORT RULE OPTION…: one, with the client sabotaged; RULE - is none
pingpong() {
	local name=$1 port=$2 rule=$3 way=(timeout "$limit" ibv_rc_pingpong -g 1 -n 4 -r 6 -p "$2" "${@:4}")
	serve "$name.server" "${way[@]}" -d rxe0
	set -- labs/qptrace --quiet -o "$T/$name.json" --
	[[ $rule == - ]] || set -- "$@" "$B/sabotage" -o "$T/$name.log" "$rule"
	run "$name" "${way[@]:0:2}" "$@" "${way[@]:2}" -d rxe1 10.99.0.1
	reap "$name.server"
}

# Of these, one side waits until it is ended: all at once, and asleep.
hanging() {
	local port=18950 limit=15 name rule
	while read -r name rule; do
		port=$((port + 1))
		pingpong "$name" "$port" "$rule" -e &
	done <<-'END'
		swapped modify_qp:RTR:dest_qp_num~
		third post_send:3:sge.lkey^1
		forgotten post_recv:2:skip
		early reg_mr:early
		killed post_send:2:kill
		lost tcp:lose
	END
	# Awake, as those that they are compared with.
	limit=10 pingpong flags 18970 reg_mr:access-LOCAL_WRITE
	limit=10 pingpong mask 18971 modify_qp:RTS:mask-TIMEOUT
	wait
}

session() {
	local port=18900 limit=60 name rule
	hanging
	while read -r name rule; do
		port=$((port + 1))
		pingpong "$name" "$port" "$rule"
	done <<-'END'
		plain -
		far poll:1000000:twice
		mtu modify_qp:RTR:path_mtu=1
		cap create_qp:max_recv_wr+5
		cqe create_cq:cqe<<1
		double post_recv:2:twice
	END
}

given_session() {
	if [[ ! -d $kept/session ]]; then
		in_lab "$(declare -f pingpong hanging session); session" || return 1
		cp -r "$T" "$kept/session"
	fi
	cp -r "$kept/session/." "$T"
}

# calls NAME: what it asked for, but for numbers that differ from run to run
calls() {
	jq -c 'select(.ev | IN("start", "exit", "port", "completion", "explain", "stall", "warning") | not)
		| del(.t, .wall, .pid, .tid, .dur, .qpn, .addr, .lkey, .rkey, .dest_qpn, .rq_psn, .sq_psn, .n,
			.id, .cause, .next, .seen, .call)' "$T/$1.json"
}

# changed NAME: the calls that differ from those of the run without a rule
changed() { diff <(calls plain) <(calls "$1") | grep '^>' | head -n "${2:-1}"; }

test_without_a_hit_nothing_changes() {
	given_session || return 0
	assertEquals 'as without' "$(calls plain)" "$(calls far)"
	assertEquals '0 0' "$(rc_of plain) $(rc_of far)"
	assertFalse 'nothing was struck' "[ -s '$T/far.log' ]"
}

# assert_one NAME PATTERN LOG: exactly one call differs, in this, and it was said
assert_one() {
	assertEquals "calls of $1 that differ" 1 "$(diff <(calls plain) <(calls "$1") | grep -c '^>')"
	assert_in "$(changed "$1")" "$2" "$1:"
	assert_in "$(cat "$T/$1.log")" "^sabotage: $3\$" "$1:"
	assertEquals "lines of the log of $1" 1 "$(wc -l <"$T/$1.log")"
}

test_one_argument_is_changed_and_the_recorder_sees_it() {
	given_session || return 0
	assert_one mtu '"path_mtu":256' 'modify_qp to RTR: path_mtu 0x3 -> 0x1'
	assert_one cap '"recv_wr_asked":11' 'create_qp: max_recv_wr 0x6 -> 0xb'
	assert_one cqe '"cqe_asked":14' 'create_cq: cqe 0x7 -> 0xe'
	assert_one flags '"access":"0"' 'reg_mr: access 0x1 -> 0x0'
	assertEquals 'only these bits' \
		"$(calls plain | grep RTS | grep -o '"mask":"[^"]*"' | sed 's/TIMEOUT|//')" \
		"$(calls mask | grep RTS | grep -o '"mask":"[^"]*"')"
}

test_numbers_are_swapped() {
	given_session || return 0
	local told swapped
	told=$(sed 's/.*0x\([0-9a-f]*\) -> .*/\1/' "$T/swapped.log")
	swapped=$(jq 'select(.to == "RTR").dest_qpn' "$T/swapped.json")
	assertEquals "$swapped" "$((((0x$told & 0xff) << 24) | ((0x$told & 0xff00) << 8)))"
}

test_only_the_third_send_is_changed() {
	given_session || return 0
	local keys
	mapfile -t keys < <(jq -r 'select(.ev == "post_send").lkey' "$T/third.json")
	assertEquals 'the first two are right' "${keys[0]}" "${keys[1]}"
	assertEquals 'the third is not' "$((keys[0] ^ 1))" "$((keys[2]))"
	assertEquals 'sends' 3 "${#keys[@]}"
}

before_rtr() { jq -r 'if .to == "RTR" then "end" else .ev end' "$T/$1.json" | sed '/^end$/q' | grep -c post_recv; }

test_calls_are_forgotten_and_doubled() {
	given_session || return 0
	assertEquals 'receives before RTR: plain, forgotten, doubled' '6 5 7' \
		"$(before_rtr plain) $(before_rtr forgotten) $(before_rtr double)"
}

test_early_dereg_kill_and_lost_byte() {
	given_session || return 0
	assertEquals 'reg_mr and dereg_mr are neighbours' 'reg_mr dereg_mr' \
		"$(jq -r .ev "$T/early.json" | grep -A 1 '^reg_mr' | tr '\n' ' ' | sed 's/ $//')"
	assertEquals 137 "$(rc_of killed)"
	assert_in "$(cat "$T/killed.log")" '^sabotage: post_send: killed$'
	assertNotEquals 'the exchange failed' 0 "$(rc_of lost.server)"
}

# registers NAME RULE: mr_probe under the recorder, sabotaged by RULE. Of an older
# libibverbs, which lacks the calls, newer_verbs.so does what they do.
registers() {
	local newer=()
	"$B/mr_probe" has || newer=("LD_PRELOAD=$B/newer_verbs.so")
	run "$1" env "${newer[@]}" labs/qptrace -o "$T/$1.json" -- \
		"$B/sabotage" -o "$T/$1.log" "$2" "$B/mr_probe"
}

# rdma-core has more ways to register memory than it had, and its own ping-pongs go
# the newest of them.
test_the_newer_calls_that_register_memory() {
	local n
	in_lab "$(declare -f registers); registers first reg_mr:1:length-1; registers second reg_mr:2:access-REMOTE_READ" || return 0
	for n in first second; do
		assertEquals "$(err_of $n)" 4 "$(rc_of $n)"
		assertEquals "of $n" $'ex: registered\nbuf: registered\nunchanged: registered\nrefused: EINVAL\nfd: refused' "$(out_of $n)"
		assert_in "$(err_of $n)" '^qptrace: ibv_reg_mr\(.* failed: EINVAL \(22\): .*REMOTE_WRITE'
	done
	assertEquals '4095 LOCAL_WRITE, 8192 LOCAL_WRITE|REMOTE_READ, 4096 REMOTE_WRITE' \
		"$(jq -r 'select(.ev == "reg_mr" and .dmabuf == null) | "\(.len) \(.access)"' "$T/first.json" | paste -sd, | sed 's/,/, /g')"
	assertEquals '4096 LOCAL_WRITE, 8192 LOCAL_WRITE, 4096 REMOTE_WRITE' \
		"$(jq -r 'select(.ev == "reg_mr" and .dmabuf == null) | "\(.len) \(.access)"' "$T/second.json" | paste -sd, | sed 's/,/, /g')"
	assert_in "$(jq -r 'select(.dmabuf == -1) | "\(.len) \(.iova) \(.kind) \(.cause)"' "$T/first.json")" \
		'^4096 0x1000 .*fd -1 asks whether DMA-BUFs can be registered'
	assertEquals 'sabotage: reg_mr: access 0x5 -> 0x1' "$(cat "$T/second.log")"
}

# ---- the bench

test_the_cases_are_always_the_same() {
	local bench=labs/faults/explain-bench
	$bench --list >"$T/once"
	$bench --list >"$T/again"
	cmp "$T/once" "$T/again"
	assertEquals 'differ' 0 $?
	assertTrue 'at least 600 cases' "[ $(wc -l <"$T/once") -ge 600 ]"
	assertEquals 'names twice' '' "$(cut -d' ' -f1 "$T/once" | sort | uniq -d)"
	assertEquals 'halves' 'seen unseen ' "$(awk '{print $3}' "$T/once" | sort -u | tr '\n' ' ')"
}

test_every_rule_of_the_bench_is_one() {
	local rule rc
	while read -r rule; do
		rc=0
		"$B/sabotage" "$rule" true >"$T/out" 2>&1 || rc=$?
		assertEquals "$rule: $(cat "$T/out")" 0 "$rc"
	done < <(awk -F' *[|] *' '!/^#/ && NF == 5 && $2 !~ /^net:/ { print $2 }' labs/faults/bench/sabotages | sort -u)
}

# verdict EXPECTED CLIENT-RC SERVER-RC [KIND:ID]…: what judge.awk says of it
verdict() {
	local cause
	printf 'x\tclass\tprogram\tclient\trule\t%s\tseen\n' "$1" >"$T/cases"
	{
		printf 'x\t1\t%s\t%s\n' "$2" "$3"
		for cause in "${@:4}"; do printf 'x\t>\t%s\t%s\n' "${cause%%:*}" "${cause#*:}"; done
	} >"$T/said"
	awk -f labs/faults/bench/judge.awk "$T/cases" "$T/said" | cut -f1
}

test_the_judge() {
	assertEquals right-first "$(verdict a,b 1 0 failure:b failure:c)"
	assertEquals right "$(verdict a 1 0 failure:c failure:a)"
	assertEquals right "$(verdict a 1 0 warning:a)"
	assertEquals right-first "$(verdict a 1 0 warning:b failure:a)"
	assertEquals silent "$(verdict a 1 0)"
	assertEquals silent "$(verdict a 'hangs 143' 0 warning:b)"
	assertEquals vague "$(verdict a 1 0 failure:RETRY_EXC_ERR)"
	assertEquals vague "$(verdict a 1 0 failure:)"
	assertEquals wrong "$(verdict a 1 0 failure:c)"
	assertEquals unchanged "$(verdict a 0 0)"
	assertEquals unchanged "$(verdict a 0 0 failure:a)"
	assertEquals accused "$(verdict a 0 0 failure:c)"
	assertEquals unchanged "$(verdict - 0 0 hint:c)"
	assertEquals vague "$(verdict a 1 0 hint:c)"
	assertEquals right-first "$(verdict a 1 0 hint:a aftermath:c)"
	assertEquals accused "$(verdict - 'hangs 143' 0 failure:c)"
}

# shellcheck disable=SC1091
. shunit2
