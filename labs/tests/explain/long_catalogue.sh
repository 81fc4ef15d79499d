#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The whole catalogue of mistakes: each is made, and its cause named first; the report
# that names it is under the sanitizers.
#
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

LEAST=140 # faults in the catalogue

# These faults take links down: never on a real machine.
export LAB=vm

# blocks: one line per fault of $T/out, "NAME: MISTAKE # does: … # saw: … # …"
blocks() {
	awk '/^[a-z0-9-]+: / { if (line) print line; line = $0; next }
		/^ / { sub(/^ +/, ""); line = line " # " $0 }
		END { print line }' "$T/out"
}

test_the_right_cause_is_named_first() {
	local n rc=0
	need_lab || return 0
	must_build "$B/faults"
	must_build BUILD=build/asan SANITIZE=1 build/asan/qptrace-report
	ASAN_OPTIONS=detect_leaks=0 REPORT=build/asan labs/faults/run >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "$(grep -B9 FAIL "$T/out")$(grep -A20 -E 'Sanitizer|runtime error' "$T/err" build/catalogue/*/err)" 0 "$rc"
	n=$(tail -n 1 "$T/out" | cut -d' ' -f3)
	assertTrue "$n faults, $LEAST wanted" "((n >= LEAST))"
	# Every one says all it has to say: one cause, one next step.
	assertEquals "$n" "$(blocks | grep -cE \
		-e ' # saw: [^#]+ # said: [^#]+ # next: [^#]+ .*# (ok [A-Za-z0-9_-]+|miss .*)$' \
		-e ' # ok none: this kernel does it$')"
}

. shunit2
