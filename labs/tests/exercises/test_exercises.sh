#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/exercise: what a learner types, and one check in the VM.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

exercise() { # sets $out and $rc
	rc=0
	out=$(EXERCISE_DIR=$T/mine LC_MESSAGES='' LANG=${language:-C.UTF-8} LC_ALL='' labs/exercise "$@" 2>&1 </dev/null) || rc=$?
}

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

# As who has followed lesson 00 finds it, with a program of that name beside labs.
test_the_program_of_lesson_00_is_not_in_the_way() {
	local program
	program=$(sed -n 's/^\$ cc .* -o \(mine.*\)/\1/p' lessons/00-first-message/README.md | head -n 1)
	mkdir -p "$T/tree/labs"
	cp -r common lessons "$T/tree"
	cp -r labs/exercise labs/exercises "$T/tree/labs"
	touch "$T/tree/${program:?}"
	rc=0
	out=$(env -u EXERCISE_DIR "$T/tree/labs/exercise" start 00 2>&1 </dev/null) || rc=$?
	assertEquals "$out" 0 "$rc"
	assertEquals 'where git does not look' 1 "$(compgen -G "$T/tree/mine*/00-*/first.c" | wc -l)"
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
		for name in $(bash -c '. "$1/exercise.sh" && echo "$strip"' - "$folder"); do
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
		done < <(sed -n "s/^\tsee \([0-9]*\) '\(.*\)'/\1 \2/p" "$folder/exercise.sh")
		for n in "$folder"hints{,-zh}.md; do
			assertTrue "$n leads back" "test -e '$folder$(sed -n 's/.*(\(.*\)).*/\1/p;3q' "$n")'"
		done
		assertEquals "points of $slug" 95 "$(awk '$1 == "worth" { all += $2 } END { print all }' "$folder/exercise.sh")"
		assertTrue "tests of $slug" "(($(grep -c '^test_' "$folder/exercise.sh") >= 8))"
	done
}

# failing_vm N CMD…: QEMU ends at once, N times; with MIDDLE=1 in its second scene
failing_vm() {
	local real name
	name=qemu-system-$(uname -m)
	real=$(type -P "$name")
	echo "$1" >"$T/failures"
	mkdir -p "$T/bin"
	cat >"$T/bin/$name" <<-END
		#!/bin/sh
		[ "\$1" = --version ] && exec $real --version
		left=\$(cat $T/failures)
		[ "\$left" = 0 ] && exec $real "\$@"
		echo \$((left - 1)) >$T/failures
		if [ "\$MIDDLE" ]; then
			for box; do
				case \$box in local,id=work,path=*) box=\${box##*path=} && break ;; esac
			done
			$real "\$@" &
			until [ "\$(ls "\${box%%,*}/seen" | wc -l)" -gt 1 ]; do sleep 0.1; done
			kill -KILL \$!
		fi
		echo out of luck >&2
		exit 1
	END
	chmod 755 "$T/bin/$name"
	LAB_AGAIN=1 PATH=$T/bin:$PATH "${@:2}"
}

# A VM that fails is no fault of the learner's: tried once more, and never points lost.
test_a_vm_that_fails_costs_no_points() {
	local folder=$ROOT/labs/exercises/01-device-open
	mkdir -p "$T/mine/01-device-open" "$T/none"
	cp common/device.c "$T/mine/01-device-open/"
	(set +eu && need_programs && need_vm) || fail 'no VM'
	failing_vm 1 exercise check 1
	assertEquals "$out" 0 "$rc"
	assertTrue 'its points' "[ -s $T/mine/01-device-open/.results ]"
	MIDDLE=1 failing_vm 1 exercise check 1
	assertEquals "$out" '0 0' "$rc $(<"$T/failures")"
	failing_vm 2 exercise check 1
	assertEquals "$out" 77 "$rc"
	assert_in "$out" 'not judged, the VM failed twice: .*; next: '
	assertFalse 'points of before' "[ -e $T/mine/01-device-open/.results ]"
	failing_vm 2 exercise grade --csv "$T/marks.csv" 1 "$T/none" "$T/mine/01-device-open"
	assertEquals "$out" 77 "$rc"
	assert_in "$out" '^01-device-open  *-  *not judged'
	assert_in "$out" '1 of 2 not judged'
	assertEquals 'in the marks' none "$(sed 1d "$T/marks.csv" | cut -d, -f1 | tr -d '"' | xargs basename -a)"
}

# A grader is tried with many mistakes, and not only with those that its makers thought of.
test_mistakes_are_many_and_some_were_seen() {
	local file here all=0 seen
	for file in labs/tests/exercises/wrong/*.rules; do
		here=$(grep -cvE '^(#|	)' "$file")
		assertTrue "$file has $here" "((here >= 8))"
		((all += here))
	done
	assertTrue "all: $all" "((all >= 120))"
	seen=$(grep -hxE -A1 '# seen: [[:alnum:]._-]+/[[:alnum:]._-]+#[0-9]+' labs/tests/exercises/wrong/*.rules |
		grep -cE '^[a-z0-9_-]+ [a-z_]+ ')
	assertTrue "seen in public: $seen" "((seen >= 30))"
	all=$(cat labs/tests/exercises/right/*.rules | grep -c ' all$')
	((all += $(find labs/tests/exercises/right/* -maxdepth 0 -type d | wc -l)))
	assertTrue "right in another hand: $all" "((all >= 20))"
}

test_hints_come_one_by_one() {
	exercise hint 4
	assert_in "$out" '^## 1\.'
	exercise hint 4
	assert_in "$out" '^## 2\.'
	exercise hint 4 5
	assert_in "$out" '^## 5\.'
	language=zh_CN.UTF-8 exercise hint 4 5
	assert_in "$out" '字节流'
}

test_solution_is_a_diff_after_a_question() {
	exercise start 3
	exercise solution 3
	assertEquals 'unanswered' 1 "$rc"
	exercise solution 3 --yes
	assertEquals 0 "$rc"
	assert_in "$out" '^\+.*IBV_QPS_RTR'
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

# A machine's first VM takes minutes: it is not made at a test's expense.
test_without_a_vm_nothing_is_judged() {
	exercise start 3
	rm -f build/exercise/made.vm
	RDMA_LAB_CACHE=/proc/none exercise check 3
	assertNotEquals "$out" 0 "$rc"
	assert_in "$out" '^lab: next'
	assertFalse 'results' "test -e '$T/mine/03-qp-states/.results'"
}

test_a_check_in_the_vm() {
	need_lab || return 0
	begin_class 03
	reference right
	plant labs/tests/exercises/wrong/03.rules no-grh
	grade_class 03
	assertEquals 'the reference' 100 "$(points right)"
	judge_wrong
	assert_caught "${expected[0]}"
}

test_a_folder_without_its_file_is_a_row() {
	need_lab || return 0
	mkdir -p "$T/ida"
	labs/exercise grade --csv "$T/marks.csv" 04 "$T/ida" >"$T/out" 2>&1
	assert_in "$(tail -n 1 "$T/out")" '^ida +0/100 there is no tcp_sync.c$'
	assertEquals 'a line of names, and one of it' 2 "$(wc -l <"$T/marks.csv")"
}

. shunit2
