#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Is any of our programs slower than it was? In counted time a figure repeats to within
# one in a thousand, whatever else the machine does, as long as kernel, QEMU, compiler
# and libibverbs are the same: labs/bench.baseline has what was measured with which.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

BASELINE=$ROOT/labs/bench.baseline

# beyond PER-CENT BASE FIGURES: those that are more than that away from BASE, by name
beyond() {
	jq -nr --argjson most "$1" --argjson base "$2" --argjson got "$3" '
		$base.us | to_entries[] | ($got.us[.key] // 0) as $now
		| select(($now / .value - 1) * 100 | fabs > $most)
		| "\(.key): \($now) us, not \(.value)"'
}

# with THE-SAME: the line of the baseline that was made with it, if there is one
with() {
	jq -c --argjson got "$1" '
		def what: [.kernel, .qemu, .cc, .verbs];
		select(what == ($got | what))' "$BASELINE"
}

test_no_slower_than_the_baseline() {
	local got base
	got=$(cd "$ROOT" && labs/bench baseline) || { fail 'labs/bench baseline ended with an error'; return; }
	base=$(with "$got" | tail -n 1)
	if [[ ! $base ]]; then
		# Another kernel or compiler: at least it has to repeat.
		echo "no baseline for $got" >&2
		base=$(cd "$ROOT" && labs/bench baseline)
	fi
	assertEquals 3 "$(jq -r '.us | length' <<<"$base")"
	assertEquals 'more than 3 % from labs/bench.baseline' '' "$(beyond 3 "$base" "$got")"
}

. shunit2
