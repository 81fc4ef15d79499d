#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The whole catalogue of faults: under the sanitizers, and with nobody to
# name the causes.
#
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

LEAST=140 # faults in the catalogue

# These faults take links down: never on a real machine.
export LAB=vm

# faults ARG…: all of them; the output in $T/out, sets $rc
faults() {
	rc=0
	labs/faults/run "$@" >"$T/out" 2>"$T/err" || rc=$?
}

# blocks: one line per fault of $T/out, "NAME: MISTAKE # saw: … # said: … # …"
blocks() {
	awk '/^[a-z0-9-]+: / { if (line) print line; line = $0; next }
		/^ / { sub(/^ +/, ""); line = line " # " $0 }
		END { print line }' "$T/out"
}

# A bad pointer or a leak in the explainer itself is seen as well.
test_the_right_cause_is_named_first() {
	local n
	need_lab || return 0
	must_build BUILD=build/asan SANITIZE=1 build/asan/faults
	BUILD=build/asan SANITIZE=1 faults
	assertEquals "$(grep -B9 FAIL "$T/out")$(grep -A20 -E 'Sanitizer|runtime error' "$T/out" "$T/err")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/out")" '^([0-9]+) of \1 causes named first$'
	n=$(tail -n 1 "$T/out" | cut -d' ' -f1)
	assertTrue "$n faults, $LEAST wanted" "((n >= LEAST))"
	# Every one says all it has to say: one cause, one next step.
	assertEquals "$n" "$(blocks | grep -cE \
		-e ' # saw: [^#]+ # said: [^#]+ # next: [^#]+ .*# ok [A-Za-z0-9_-]+$' \
		-e ' # saw: [^#]+: 0 # ok none: this kernel does it$')"
}

# The same symptoms, and nobody to name the cause: the catalogue can fail.
test_without_the_explainer_every_fault_fails() {
	need_lab || return 0
	faults --without-explanation
	assertEquals "$(cat "$T/err")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/out")" '^([0-9]+) of \1 failed without'
	assert_not_in "$(grep -v 'ok none: this kernel does it' "$T/out")" '^ +(ok|said:|next:|seen:)'
}

. shunit2
