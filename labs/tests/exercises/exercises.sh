# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# exercises.sh - what the suites of the exercises share.

export LAB=vm

# begin_class NN: sets $folder and $stage; folders of learners go to $T/class
begin_class() {
	folder=$(compgen -G "labs/exercises/$1-*")
	stage=$(sed -n 's/^stage_file=//p' "$folder/exercise.sh")
	mkdir -p "$T/class"
	expected=()
}

# reference NAME; starter NAME: their folders
reference() { mkdir "$T/class/$1" && cp "common/$stage" "$T/class/$1"; }

starter() {
	EXERCISE_DIR=$T/class labs/exercise start "${folder##*/}" >/dev/null
	mv "$T/class/${folder##*/}" "$T/class/$1"
}

# plant RULES [NAME…]: a folder for each wrong solution; "NAME TEST CAUSE" to $expected
plant() {
	local line name='' rules=$1
	shift
	while IFS= read -r line; do
		case $line in
		'#'*) ;;
		$'\t'*) [[ ! $name ]] || printf '%s\n' "${line#$'\t'}" >>"$T/class/$name.sed" ;;
		*)
			name=${line%% *}
			[[ $# == 0 || " $* " == *" $name "* ]] || { name='' && continue; }
			expected+=("$line")
			;;
		esac
	done <"$rules"
	for line in "${expected[@]}"; do
		name=${line%% *}
		mkdir "$T/class/$name"
		sed -f "$T/class/$name.sed" "common/$stage" >"$T/class/$name/$stage"
		! cmp -s "common/$stage" "$T/class/$name/$stage" || fail "$name changes nothing"
		rm "$T/class/$name.sed"
	done
}

# grade_class NN: all folders of $T/class; the table is shown, the marks in $T/marks.csv
grade_class() {
	labs/exercise grade -j "${JOBS_OF_CLASS:-2}" --csv "$T/marks.csv" "$1" "$T"/class/*/ >"$T/table" 2>&1 ||
		fail "grade: $(tail -n 3 "$T/table")"
	cat "$T/table"
}

# points NAME
points() { sed -n "s/^$1 *\([0-9]*\)\/.*/\1/p" "$T/table"; }

# assert_caught "NAME TEST CAUSE": points were lost in that test, for that reason
assert_caught() {
	local name test cause line
	read -r name test cause <<<"$1"
	assertNotEquals "$name has all points" 100 "$(points "$name")"
	line=$(grep -F "/class/$name\"," "$T/marks.csv" | grep -F "\"$test\",\"fail\"")
	assertNotNull "$name: test $test did not fail, but: $(grep "^$name " "$T/table")" "$line"
	[[ ! $line ]] || assert_in "${line##*\"fail\",}" "$cause" "$name:"
}
