#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The whole catalogue of mistakes: each is made, and its cause named first, by a report
# under the sanitizers; and with nobody to name it.
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
		-e ' # saw: [^#]+ # said: [^#]+ # next: [^#]+ .*# ok [A-Za-z0-9_-]+$' \
		-e ' # ok none: this kernel does it$')"
	# On stderr while the program runs, too, with next step and evidence.
	assert_in "$(<build/catalogue/mr-memlock/err)" '^qptrace: ibv_reg_mr\(.*\) failed: ENOMEM \(12\): .* exceed RLIMIT_MEMLOCK'
	assert_in "$(<build/catalogue/mr-memlock/err)" '^qptrace:  seen: [0-9]+ bytes are pinned; CAP_IPC_LOCK: not held'
}

# The same symptoms, and nobody to name the cause: the catalogue can fail.
test_without_explanation_every_mistake_fails() {
	local rc=0
	need_lab || return 0
	labs/faults/run --without-explanation >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "$(grep -B3 'FAIL the' "$T/out")$(cat "$T/err")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/out")" '^([0-9]+) of \1 failed without'
	assert_not_in "$(grep -v 'ok none: this kernel does it' "$T/out")" '^ +(ok|said:|next:|seen:)'
}

. shunit2
