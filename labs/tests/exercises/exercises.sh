# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# exercises.sh - what the suites of the exercises share.

export LAB=vm

# shellcheck disable=SC2034,SC2153 # for judge.sh
root=$ROOT
# shellcheck source=labs/exercises/judge.sh
. "$ROOT/labs/exercises/judge.sh"
# shellcheck source=labs/tests/suites.sh
. "$ROOT/labs/tests/suites.sh"

# table: a part of the table that proves the grader: shown in any case, and what a
# failing suite shows
table() { tee -a "${TEST_TABLE:-/dev/null}"; }

# begin_class NN: sets $folder, $stage and $course, the course's own file; folders of
# learners go to $T/class
begin_class() {
	folder=$(compgen -G "$ROOT/labs/exercises/$1-*")
	stage=$(exercise_file "$folder")
	course=$(exercise_source "$folder")
	nn=$1
	mkdir -p "$T/class" "$T/wrong"
	expected=()
}

# reference NAME; starter NAME: their folders
reference() { mkdir "$T/class/$1" && cp "$course" "$T/class/$1"; }

starter() {
	EXERCISE_DIR=$T/class labs/exercise start "${folder##*/}" >/dev/null
	mv "$T/class/${folder##*/}" "$T/class/$1"
}

# tried NAME: about half of the cases are, drawn anew for each commit; CASES=all tries all
tried() {
	local drawn
	[[ ${CASES:-} == all ]] || { draw "$commit" "$1" && ((drawn)); }
}

# plant RULES [NAME…]: a folder in $T/wrong for each solution that is NAME, or tried; its
# line, "NAME TEST CAUSE", or "NAME all" of one that is right, to $expected
plant() {
	local line name='' rules=$1 commit
	commit=$(git rev-parse HEAD 2>/dev/null)
	shift
	while IFS= read -r line; do
		case $line in
		'#'*) ;;
		$'\t'*) [[ ! $name ]] || printf '%s\n' "${line#$'\t'}" >>"$T/wrong/$name.sed" ;;
		*)
			name=${line%% *}
			if (($#)); then [[ " $* " == *" $name "* ]]; else tried "$name"; fi || { name='' && continue; }
			expected+=("$line")
			;;
		esac
	done <"$rules"
	for line in "${expected[@]}"; do
		name=${line%% *}
		mkdir -p "$T/wrong/$name"
		sed -f "$T/wrong/$name.sed" "$course" >"$T/wrong/$name/$stage"
		! cmp -s "$course" "$T/wrong/$name/$stage" || fail "$name changes nothing"
	done
}

# grade_class NN: all folders of $T/class; the table is shown, the marks in $T/marks.csv
grade_class() {
	labs/exercise grade -j "${JOBS_OF_CLASS:-2}" --csv "$T/marks.csv" "$1" "$T"/class/*/ >"$T/table" 2>&1 ||
		fail "grade: $(grep -E 'not judged|^exercise: ' "$T/table")"
	cat "$T/table"
}

# points NAME
points() { sed -n "s/^$1 *\([0-9]*\)\/.*/\1/p" "$T/table"; }

# judge_wrong: all that were planted, by the test that each has to fail
judge_wrong() {
	local cases=() line name test rest
	for line in "${expected[@]}"; do
		read -r name test rest <<<"$line"
		cases+=("$name:$test")
	done
	(
		set +eu
		need_programs && judge_many "$folder" "$T/wrong" "${cases[@]}"
	) || fail 'judge_many'
}

# assert_right "NAME all": every test is content
assert_right() {
	local name=${1%% *}
	assertEquals "$name" '' "$(awk -F'\t' '$1 != "ok" { print $4 ": " $6 " | " $8 }' "$T/wrong/$name.results")"
	assertEquals "$name: points" 100 "$(awk -F'\t' '{ n += $2 } END { print n }' "$T/wrong/$name.results")"
	printf '%-3s %-22s right, 100 points\n' "$nn" "$name" | table
}

# assert_caught "NAME TEST CAUSE": that test fails
# for that reason, and names a hint
assert_caught() {
	local name test cause status got of title observed expected said hint section
	read -r name test cause <<<"$1"
	IFS=$'\t' read -r status got of test title observed expected said hint section <"$T/wrong/$name.results"
	assertEquals "$name: test $test" fail "$status"
	assert_in "$said" "$cause" "$name ($observed):"
	assertNotEquals "$name: a hint" - "$hint"
	printf '%-3s %-22s %-20s hint %-2s %.90s\n' "$nn" "$name" "$test" "$hint" "$said" | table
}

# prove NN: the grader is right. The starter gets nothing, the course's own stage all;
# mistakes lose points for the right reason, right solutions in another hand lose none.
prove() {
	local line name
	begin_class "$1"
	reference reference
	starter starter
	plant "labs/tests/exercises/wrong/$1.rules"
	plant "labs/tests/exercises/right/$1.rules"
	for name in labs/tests/exercises/right/"$1"-*/; do
		[[ ! -d $name ]] || cp -r "$name" "$T/class/right-$(basename "$name")"
	done
	grade_class "$1"
	sed -n "s|^.* [0-9]*/[0-9]* .*|$1  &|p" "$T/table" | table
	assertTrue "the starter has $(points starter)" "(($(points starter) <= 20))"
	for name in "$T"/class/{reference,right-*}/; do
		[[ ! -d $name ]] ||
			assertEquals "$name: $(grep -m 1 "${name%/}\".*\"fail\"" "$T/marks.csv")" 100 "$(points "$(basename "$name")")"
	done
	judge_wrong
	for line in "${expected[@]}"; do
		if [[ $line == *' all' ]]; then assert_right "$line"; else assert_caught "$line"; fi
	done
}
