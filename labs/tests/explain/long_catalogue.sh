#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The catalogue of faults again: with nobody to name the causes, and under the
# sanitizers.
#
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/explain/catalogue.sh
. "$ROOT/labs/tests/explain/catalogue.sh"

# The same symptoms, and nobody to name the cause: the catalogue can fail.
test_without_the_explainer_every_fault_fails() {
	local seen
	need_lab || return 0
	faults
	seen=$(grep -E '^ +saw: ' "$T/out")
	faults --without-explanation
	assertEquals "$(cat "$T/err")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/out")" '^([0-9]+) of \1 failed without'
	assert_not_in "$(cat "$T/out")" '^ +(ok|said:|next:|seen:)'
	assertEquals 'what the programs saw' "$seen" \
		"$(grep -E '^ +saw: ' "$T/out")"
}

# A bad pointer or a leak in the explainer itself.
test_faults_under_the_sanitizers() {
	local rc=0 all
	need_lab || return 0
	mapfile -t all < <(from 'labs/faults/*.c' && from 'common/explain/*.c')
	sanitized "$T/faults" '' "${all[@]}" \
		common/base/{verbs_names,failure,report,deadline}.c common/device.c
	"$T/faults" --list | awk -F'\t' '$2 == "shared" { print $1 }' |
		xargs labs/lab run --timeout 120 "$T/faults" >"$T/out" 2>&1 || rc=$?
	assertEquals "$(grep -B9 FAIL "$T/out")$(grep -A20 -E 'Sanitizer|runtime error' "$T/out")" \
		0 "$rc"
	assertTrue 'they were made' "((\$(grep -c '^ *ok ' <'$T/out') >= LEAST))"
}

. shunit2
