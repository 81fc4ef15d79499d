#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/bench tells the truth: a round in which a program failed is no figure, and a
# verdict is given by the rule that --help states.
#
# shellcheck disable=SC2016 # scripts for other shells are quoted
. "$(dirname "$0")/../lib.sh"

BENCH=$ROOT/labs/bench

# judged: the rows of the lines on standard input, by "against", as FILTER has them
judged() { "$BENCH" --judge title json | jq -c ".rows[] | $1"; }

# rounds OURS…: so many good rounds, the other program takes 1
rounds() { printf 'row %s 1\n' "$@"; }

test_failed_rounds_are_counted_and_no_more() {
	local got
	got=$(printf '%s\n' 'row 0.9 1' 'row failed 1' 'row 0.8 1' 'row 0.7 failed' \
		'row 0.7 1' 'none failed failed' | judged '[.against, .rounds, .good, .ratio, .low, .verdict]')
	assertEquals '["none",1,0,null,null,"too few rounds"]
["row",5,3,0.8,0.7,"met"]' "$got"
}

# Out of n tosses of a coin: with six, all of one side are 1.6 %; with nine, one or
# none are 2.0 %; with twelve, two or fewer 1.9 %; with seventeen, four or fewer 2.5 %.
test_interval() {
	local n want got
	while read -r n want; do
		got=$(seq 1 "$n" | sed 's/.*/row & 1/' | judged '[.low, .high] | @csv')
		assertEquals "$n rounds" "\"$want\"" "$got"
	done <<-'END'
		1 1,1
		3 1,3
		5 1,5
		6 1,6
		8 1,8
		9 2,8
		11 2,10
		12 3,10
		17 5,13
	END
}

test_verdicts() {
	local want ours
	while IFS='|' read -r want ours; do
		# shellcheck disable=SC2086 # numbers
		assertEquals "$ours" "\"$want\"" "$(rounds $ours | judged .verdict)"
	done <<-'END'
		met|1.0 1.01 1.02
		not met|1.03 1.05 1.021
		too noisy to say|1.0 1.01 1.03
		too few rounds|0.5 0.5
		met|0.9 0.9 0.9 0.9 0.9 0.9 0.9 0.9 7
		not met|7 7 7 7 7 7 7 7 0.5
		too noisy to say|0.9 0.9 0.9 0.9 1.1 0.9 0.9 1.2
	END
	assertEquals '[1.02,1.1,1.1,1.1,1.11,1.5]' "$(printf '%s 1 1\n' control-only \
		ib_read_bw recorded-mean sockperf-spin unix_pingpong recorded |
		judged '.goal + 0' | sort -n | jq -sc .)"
}

# Our real programs, a sockperf that fails half of the time (of its six runs, the
# first, fourth and fifth: its server is sock_echo's, and it has measured 10 us), and
# an iperf3 whose server does not come up.
test_a_peer_that_fails_half_of_the_time() {
	local rc=0
	mkdir "$T/bin"
	: >"$T/count"
	cat >"$T/bin/sockperf" <<-END
		#!/bin/bash
		while [[ \$1 != -p ]]; do args+=("\$1") && shift; done
		[[ \${args[0]} == ping-pong ]] || exec "$ROOT/build/sock_echo" server -q -p "\$2"
		echo >>"$T/count"
		((\$(wc -l <"$T/count") % 4 > 1)) || exit 1
		echo 'sockperf: ---> percentile 50.000 =   10.000'
	END
	printf '#!/bin/sh\nexit 1\n' >"$T/bin/iperf3"
	chmod +x "$T/bin/"*
	(cd "$ROOT" && PATH=$T/bin:$PATH labs/bench --quick --json plugin) >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals '[["iperf3",3,0],["sockperf",3,1],["sockperf-spin",3,2]]' \
		"$(jq -c '[.rows[] | [.against, .rounds, .good]]' "$T/out")"
	assertEquals '[0,1,2]' "$(jq -c '[.rows[].ratios | length]' "$T/out")"
	assertEquals '[10,10]' "$(jq -c '[.rows[1, 2].theirs]' "$T/out")"
	assertEquals '"too few rounds"' "$(jq -c '[.rows[].verdict] | unique | .[]' "$T/out")"
	assert_in "$(<"$T/err")" 'ended before it listened on TCP port'
	assertEquals "nobody listens any more" "" "$(pgrep -f 'sock_echo server -q -p 185')"
}

test_every_second_round_goes_the_other_way() {
	printf '#!/bin/sh\necho "$1" >>"%s"\necho "$2"\n' "$T/order" >"$T/say"
	chmod +x "$T/say"
	assertEquals 'row 5 10 row 5 10' "$("$BENCH" --inside 2 pair row "$T/say" ours 5 vs "$T/say" theirs 10 | xargs)"
	assertEquals 'ours theirs theirs ours' "$(xargs <"$T/order")"
}

test_table() {
	local out
	out=$(printf '%s\n' 'a 5 10' 'a 6 10' 'a 7 10' 'a failed 10' 'b failed 1' 'ib_send_bw 0.02 0.01' | "$BENCH" --judge 'a title')
	assert_in "$out" '^a title$'
	assert_in "$out" '^  a  +6\.00 +10\.00 +0\.600 +\(0\.500 \.\.\. 0\.700; 3 of 4 rounds\)  goal 1\.02: met$'
	assert_in "$out" '^  b  +failed in all 1 rounds$'
	assert_in "$out" '^  ib_send_bw  +50\.00 +100\.00 +2\.000 .*: too few rounds$'
}

# plots ARG…: in a copy, where labs/pictures has one plot; sets $rc, output in $T/out
plots() {
	rc=0
	mkdir -p "$T/tree/labs/tools" "$T/tree/labs/pictures"
	cp "$BENCH" "$T/tree/labs"
	cp "$ROOT/labs/tools/plots" "$T/tree/labs/tools"
	"$T/tree/labs/tools/plots" "$@" >"$T/out" 2>&1 || rc=$?
}

test_plots_with_wrong_words_measure_nothing() {
	local wrong
	for wrong in 'events nonsense' '--rounds 0' '--rounds' '--json'; do
		# shellcheck disable=SC2086 # words
		plots $wrong </dev/null
		assertEquals "$wrong: exit code" 2 "$rc"
		assertEquals "$wrong: cause and next step" 'plots: plots: next:' "$(grep -o '^plots: \(next:\)*' "$T/out" | xargs)"
		assertEquals "$wrong: written" '' "$(ls "$T/tree/labs/pictures")"
	done
}

test_a_plot_is_whole_or_as_it_was() {
	local all=$T/tree/labs/pictures/growth.json wrong
	plots --inside 1 gather grow-x 'this machine' <<<$'ours 1 3\nours 1 5\nours 2 7\ntheirs 1 4'
	assertEquals "$(<"$T/out")" 0 "$rc"
	cp "$T/out" "$T/x"
	assertEquals '{"ours":[[1,4],[2,7]],"theirs":[[1,4]]}' "$(jq -c .curves "$T/x")"
	assertEquals 'true' "$(jq '.rounds == 2 and .plot == "grow-x" and (.kernel | test("^Linux ")) and (.date | test("^20..-..-..$"))' "$T/x")"
	plots keep <"$T/x"
	plots keep <<<'{"plot":"grow-y"}'
	plots keep < <(jq -c '.date = "now"' "$T/x")
	assertEquals "in place of the one before" '["grow-x","now"]["grow-y",null]' "$(jq -c '[.plot, .date]' "$all" | tr -d '\n')"
	cp "$all" "$T/before"
	plots --inside 1 gather grow-x 'this machine' </dev/null
	assertEquals 1 "$rc"
	assert_in "$(<"$T/out")" '^plots: nothing was measured for grow-x'
	plots --inside 1 gather grow-x 'this machine' <<<'ours one 3'
	assertNotEquals 0 "$rc"
	for wrong in '{"plot":"grow-x"' 'nonsense' '{"date":"now"}' '[]'; do
		plots keep <<<"$wrong"
		assertEquals "$wrong" 1 "$rc"
		assert_in "$(<"$T/out")" '^plots: .*growth.json is as it was'
	done
	cmp "$T/before" "$all"
	assertEquals 'the plots that were there' 0 $?
	assertEquals 'and nothing else' growth.json "$(ls "$T/tree/labs/pictures")"
}

# at_rest CLIENT…: what it prints with a server that sleeps
at_rest() {
	local server
	sleep 60 &
	server=$!
	served=${served-} plots --inside 1 at_rest ours "$server" 4 has_step_2 "$@"
	kill "$server"
}

test_memory_is_asked_when_clients_are_there() {
	at_rest sh -c 'echo "[Step 2] served"; exec sleep 99'
	assertEquals "$(<"$T/out")" 0 "$rc"
	assertEquals 'ours 1 ours 2 ours 4' "$(awk '$3 > 0 { print $1, $2 }' "$T/out" | xargs)"
	assertEquals "clients that are left" '' "$(pgrep -fx 'sleep 99')"
	at_rest sh -c 'echo nobody home; exit 1'
	assertEquals 'plots: client 1 of ours was not served: nobody home' "$(<"$T/out")"
	at_rest "$T/no-such-program"
	assert_in "$(<"$T/out")" '^plots: client 1 of ours was not served: .*no-such-program'
	served=2 at_rest sh -c 'echo "[Step 1] there"; exec sleep 99'
	assertEquals 'plots: client 1 of ours was not served: [Step 1] there' "$(<"$T/out")"
	assertEquals "clients that are left" '' "$(pgrep -fx 'sleep 99')"
}

test_growth_is_json() {
	local rc=0
	"$BENCH" growth events >"$T/out" 2>&1 || rc=$?
	assertEquals 2 "$rc"
	assert_in "$(<"$T/out")" '^bench: growth is for --json only'
	rc=0
	"$BENCH" --json growth nonsense >"$T/out" 2>&1 || rc=$?
	assertEquals 2 "$rc"
	assert_in "$(<"$T/out")" "^plots: there is no plot 'nonsense'"
}

test_against_a_commit_that_is_none() {
	local rc=0
	(cd "$ROOT" && labs/bench --against no-such-commit) >"$T/out" 2>&1 || rc=$?
	assertEquals 2 "$rc"
	assert_in "$(<"$T/out")" "^bench: there is no commit 'no-such-commit'"
	assert_in "$(<"$T/out")" '^bench: next: '
	rc=0
	(cd "$ROOT" && labs/bench --against) >"$T/out" 2>&1 || rc=$?
	assertEquals 2 "$rc"
	assert_in "$(<"$T/out")" '^bench: --against is followed by a commit'
}

# Nothing is measured in a tree without programs; no round has "failed".
test_a_tree_that_is_not_built() {
	local rc=0
	mkdir "$T/labs"
	cp "$ROOT/labs/bench" "$T/labs/"
	"$T/labs/bench" >"$T/out" 2>&1 || rc=$?
	assertEquals 1 "$rc"
	assertEquals 'bench: build/rdma_engine is not there to be measured
bench: next: make' "$(<"$T/out")"
}

# What the lab could not do for another reason than that it cannot run here is a failure.
test_a_lab_that_fails_is_no_skip() {
	local how said
	for how in 1 77; do
		said=$(
			lab_rc=$how
			skip() { echo skip; }
			fail() { echo fail; }
			need_lab
			echo "$?"
		)
		assertEquals "lab run ended with $how" "$([[ $how == 77 ]] && echo skip || echo fail) 1" "$(xargs <<<"$said")"
	done
}

. shunit2
