# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# exercises.sh - what the suites of the exercises share.

export LAB=vm

# shellcheck disable=SC2034,SC2153 # for judge.sh
root=$ROOT
# shellcheck source=labs/exercises/judge.sh
. "$ROOT/labs/exercises/judge.sh"

# exercise ARG…: sets $out and $rc
# shellcheck disable=SC2034 # for the suites
exercise() {
	rc=0
	out=$(EXERCISE_DIR=$T/mine LC_MESSAGES='' LANG=${language:-C.UTF-8} LC_ALL='' labs/exercise "$@" 2>&1 </dev/null) || rc=$?
}

# begin_class NN: sets $folder, $stage and $course, the course's own file; folders of
# learners go to $T/class
# shellcheck disable=SC2034 # for the suites
begin_class() {
	folder=$(compgen -G "$ROOT/labs/exercises/$1-*")
	stage=$(exercise_file "$folder")
	course=$(exercise_source "$folder")
	mkdir -p "$T/class"
}

# reference NAME: a folder with the course's own
reference() { mkdir "$T/class/$1" && cp "$course" "$T/class/$1"; }

# grade_class NN: all folders of $T/class; the table is shown, the marks in $T/marks.csv
grade_class() {
	labs/exercise grade -j 2 --csv "$T/marks.csv" "$1" "$T"/class/*/ >"$T/table" 2>&1 ||
		fail "grade: $(grep -E 'not judged|^exercise: ' "$T/table")"
	cat "$T/table"
}

# points NAME
points() { sed -n "s/^$1 *\([0-9]*\)\/.*/\1/p" "$T/table"; }
