#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/bench tells the truth: a round in which a program failed is no figure, and a
# verdict is given by the rule that --help states.
. "$(dirname "$0")/../lib.sh"

BENCH=$ROOT/labs/bench

# judged: the rows of the lines on standard input, by "against", as FILTER has them
judged() { "$BENCH" --judge title json | jq -c ".rows[] | $1"; }

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
		6 1,6
		8 1,8
		9 2,8
		12 3,10
		17 5,13
	END
}

# Each row: the verdict | our figures, where the other program's is 1
test_verdicts() {
	local want ours
	while IFS='|' read -r want ours; do
		# shellcheck disable=SC2086 # numbers
		assertEquals "$ours" "\"$want\"" "$(printf 'row %s 1\n' $ours | judged .verdict)"
	done <<-'END'
		met|1.0 1.01 1.02
		not met|1.03 1.05 1.021
		too noisy to say|1.0 1.01 1.03
		too few rounds|0.5 0.5
		met|0.9 0.9 0.9 0.9 0.9 0.9 0.9 0.9 7
		not met|7 7 7 7 7 7 7 7 0.5
	END
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

# Nothing is measured then; no round has "failed".
test_wrong_words_and_a_tree_that_is_not_built() {
	local code said words
	mkdir "$T/labs"
	cp "$BENCH" "$T/labs/"
	while IFS='|' read -r code said words; do
		# shellcheck disable=SC2086 # words
		"$T/labs/bench" $words >"$T/out" 2>&1
		assertEquals "$words" "$code" $?
		assert_in "$(<"$T/out")" "^bench: $said"
	done <<-'END'
		1|build/rdma_engine is not there to be measured|
		2|--against is followed by a commit|--against
		2|growth is for --json only|growth events
	END
}

. shunit2
