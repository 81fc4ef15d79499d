#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/faults/explain-bench: 60 of its cases, drawn anew for each commit, and the
# programs after public reports.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# Of 679 cases 96.2 % were named first (98.1 % of the seen half, 94.3 % of the unseen one)
# and 1.6 % wrong. A sample as bad as these bounds comes once in a thousand. The goal is
# 95 % and 1 % on both halves: move them with it.
LEAST_FIRST=85
MOST_WRONG=9

test_a_sample() {
	local said first wrong rc=0
	labs/faults/explain-bench --sample 60 >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "exit code: $(tail -n 5 "$T/err")" 0 "$rc"
	said=$(awk '$1 == "all"' "$T/out" | tail -n 1)
	assert_in "$said" '^all '
	first=$(awk '{ print int(100 * $2 / ($2 + $3 + $4 + $5 + $6)) }' <<<"$said")
	wrong=$(awk '{ print int(100 * $6 / ($2 + $3 + $4 + $5 + $6)) }' <<<"$said")
	assertTrue "$first % named first, of $(cat "$T/out")" "[ $first -ge $LEAST_FIRST ]"
	assertTrue "$wrong % wrong, of $(cat "$T/out")" "[ $wrong -le $MOST_WRONG ]"
	# What stood on the terminals is what the report says first.
	assert_in "$(cat "$T/out")" ' of its own recording; [01] another:'
}

# The programs after public reports, judged by the first cause in the terminal: 98 % of the
# half that was tuned, 73 % of the other (the goal is 85 %); no correct run is accused.
test_the_reports() {
	local half least rc=0
	labs/faults/explain-bench --reports >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "exit code: $(tail -n 5 "$T/err")" 0 "$rc"
	while read -r half least; do
		assertTrue "$half: $(cat "$T/out")" "(($(awk -v h="$half" '
			$2 == "half" { on = $1 == h }
			on && ($1 == "all" || $1 == "report") { print int(100 * $2 / ($2 + $3 + $4 + $5 + $6)) }
			' "$T/out" | tail -n 1) >= $least))"
	done <<<$'seen 90\nunseen 60'
	assert_in "$(<"$T/out")" '^0 of [0-9]+ correct runs drew an accusation'
}

. shunit2
