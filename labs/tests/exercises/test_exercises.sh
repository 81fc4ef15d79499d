#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/exercise: what a learner types, and a class that is judged in the VM.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_a_starter_is_never_overwritten() {
	exercise start 3
	assertEquals "$out" 0 "$rc"
	echo '/* mine */' >>"$T/mine/03-qp-states/qp_state.c"
	exercise start 03
	assertEquals 1 "$rc"
	assert_in "$out" 'is there already'
	assert_in "$(tail -n 1 "$T/mine/03-qp-states/qp_state.c")" 'mine'
	exercise reset 03-qp-states
	assertEquals "$out" 0 "$rc"
	assertEquals 'the copy' 1 "$(grep -l '/\* mine \*/' "$T"/mine/03-qp-states/qp_state.*.c | wc -l)"
	assertEquals 'the new one' 0 "$(grep -c '/\* mine \*/' "$T/mine/03-qp-states/qp_state.c")"
}

# The contract and the comments stay, the code goes.
test_starters_have_holes_and_compile() {
	local folder stage name
	for folder in labs/exercises/[0-9]*/; do
		exercise start "$(basename "$folder")"
		stage=$(exercise_file "$folder")
		stage=$T/mine/$(basename "$folder")/$stage
		"${CC:-cc}" -D_GNU_SOURCE -Icommon -I"$(dirname "$(exercise_source "$folder")")" -std=gnu11 -Wall -Wextra -Werror -Wno-unused \
			-Wno-unused-parameter -c -o "$T/o" "$stage"
		assertEquals "$stage" 0 $?
		# shellcheck disable=SC2016 # for that bash
		for name in $(bash -c '. "$1/exercise.sh" && sed "s/: .*//" <<<"$strip"' - "$folder"); do
			[[ $name == DESTROY ]] || assertEquals "holes for $name" 1 "$(grep -c "TODO: $name()" "$stage")"
		done
		assertEquals 'marks of the pages' 0 "$(grep -c region "$stage")"
	done
}

test_wrong_usage() {
	local args
	for args in '' 'start' 'check 99' 'start x' 'nonsense' 'hint 3 99' 'hint 3 1 2' 'grade 3' 'grade 3 /nowhere' 'report --xml' \
		'start 3 4' 'solution 3 --no' 'list 3'; do
		# shellcheck disable=SC2086 # words
		exercise $args
		assertEquals "exit code of: $args ($out)" 2 "$rc"
		[[ ! $args ]] || assert_in "$out" '^exercise: next: labs/exercise' "$args:"
	done
	exercise check 4
	assertEquals 1 "$rc"
	assert_in "$out" 'next: labs/exercise start 04'
	mkdir -p "$T/anna"
	exercise grade --csv "$T/nowhere/marks.csv" 4 "$T/anna"
	assertEquals "$out" 1 "$rc"
	assertEquals 'before anybody is judged' "exercise: $T/nowhere/marks.csv cannot be written" "$(head -n 1 <<<"$out")"
}

test_hints_and_the_solution() {
	exercise hint 4
	assert_in "$out" '^## 1\.'
	exercise hint 4
	assert_in "$out" '^## 2\.'
	exercise start 3
	exercise solution 3
	assertEquals 'unanswered' 1 "$rc"
	exercise solution 3 --yes
	assertEquals 0 "$rc"
	assert_in "$out" '^\+.*IBV_QPS_RTR'
}

# Each hint and page section that a test names is there, in both languages.
test_help_that_is_named_exists() {
	local folder slug n section chinese
	for folder in labs/exercises/[0-9]*/; do
		slug=$(basename "$folder")
		while read -r n section; do
			for chinese in '' -zh; do
				assertEquals "hint $n of $slug$chinese" 1 "$(grep -c "^## $n\. " "${folder}hints$chinese.md")"
			done
			assertEquals "section \"$section\" of $slug" 1 "$(grep -cxF "## $section" "lessons/$slug/README.md")"
		done < <(sed -n "s/^\tsee \([0-9]*\) '\(.*\)'/\1 \2/p" "$folder/exercise.sh" | sort -u)
		assertEquals "points of $slug" 95 "$(awk '$1 == "worth" { all += $2 } END { print all }' "$folder/exercise.sh")"
	done
}

# A grader is tried with many mistakes, and not only with those that its makers thought of.
test_mistakes_are_many_and_some_were_seen() {
	local file here all=0 seen
	for file in labs/tests/exercises/wrong/*.rules; do
		here=$(grep -cvE '^(#|	)' "$file")
		assertTrue "$file has $here" "((here >= 8))"
		((all += here))
	done
	assertTrue "all: $all" "((all >= 100))"
	seen=$(grep -hxE -A1 '# seen: [[:alnum:]._-]+/[[:alnum:]._-]+#[0-9]+' labs/tests/exercises/wrong/*.rules |
		grep -cE '^[a-z0-9_-]+ [a-z_]+ ')
	assertTrue "seen in public: $seen" "((seen >= 30))"
}

# Nothing is run in the VM for what does not compile.
test_compile_errors_have_the_learners_own_lines() {
	exercise start 3
	echo 'int broken(void) { return' >>"$T/mine/03-qp-states/qp_state.c"
	exercise check 3
	assertEquals "$out" 1 "$rc"
	assert_in "$out" "qp_state.c:$(wc -l <"$T/mine/03-qp-states/qp_state.c"):[0-9]+: error"
	assert_in "$out" '^0 of 100 points'
	exercise report --json
	assertEquals '0 of 100' "$(jq -r '.[0] | "\(.points) of \(.of)"' <<<"$out")"
	exercise report --junit
	assertEquals 'failures' "$(grep -c '^test_' labs/exercises/03*/exercise.sh)" \
		"$(($(xmllint --xpath 'string(//testsuite/@failures)' - <<<"$out") - 1))"
	language=zh_CN.UTF-8 exercise check 3
	assert_in "$out" '^0 / 100 分'
}

# Nothing is run in the VM for the course's own stage either, however it comes in.
test_what_others_have_written_gets_no_points() {
	local form own=$T/mine/03-qp-states/qp_state.c
	exercise start 3
	for form in '#include <qp_state.c>' "#include \"$ROOT/common/qp_state.c\"" $'#define ANSWER <qp_state.c>\n#include ANSWER' \
		"asm(\".incbin \\\"$ROOT/common/qp_state.c\\\"\");" "asm(\".include \\\"/dev/null\\\"\");" \
		"$(cat common/qp_state.c)" "$(sed 's|/\*.*\*/||; s/^\t*//' common/qp_state.c)"; do
		echo "$form" >"$own"
		exercise check 3
		assertEquals "$out" 1 "$rc"
		assert_in "$out" '^0 of 100 points' "${form:0:60}:"
		assert_in "$out" 'no points for what others have written' "${form:0:60}:"
	done
}

# Right work, a mistake, and a folder without the file.
test_a_class_is_judged_in_the_vm() {
	need_lab || return 0
	begin_class 03
	cp -r labs/tests/exercises/right/03-*/ "$T/class/right"
	mkdir "$T"/class/{ida,no-grh}
	sed 's/.is_global = 1,/.is_global = 0,/' "$course" >"$T/class/no-grh/$stage"
	grade_class 03
	assertEquals 'another hand' 100 "$(points right)"
	assertTrue "the mistake: $(points no-grh)" "(($(points no-grh) < 90))"
	assert_in "$(grep -F '/no-grh",' "$T/marks.csv")" '"rtr_address","fail",.*(is_global|GRH)'
	assert_in "$(<"$T/table")" '^ida +0/100 there is no qp_state.c$'
	assertEquals 'lines of it in the marks' 1 "$(grep -cF '/ida",' "$T/marks.csv")"
}

. shunit2
