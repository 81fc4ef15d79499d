#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The libFuzzer targets: each labs/tests/fuzz/fuzz_NAME.c for FUZZ_SECONDS
# (default: 60) from its corpus, labs/tests/fuzz/corpus/NAME, all of them at once.
# What breaks one stays in build/fuzz/fuzz_NAME-crash-…; run the target on it.
. "$(dirname "$0")/../lib.sh"

FUZZ_SECONDS=${FUZZ_SECONDS:-60}

names() {
	local file
	for file in labs/tests/fuzz/fuzz_*.c; do
		[[ ! -e $file ]] || basename "$file" .c
	done
}

# start_fuzzer NAME: in the background. New inputs go to the first folder.
start_fuzzer() {
	mkdir -p "$T/$1"
	timeout -k 5 $((FUZZ_SECONDS + 60)) "$B/fuzz/$1" \
		-max_total_time="$FUZZ_SECONDS" -timeout=10 -close_fd_mask=3 \
		-print_final_stats=1 -artifact_prefix="$B/fuzz/$1-" \
		"$T/$1" "labs/tests/fuzz/corpus/${1#fuzz_}" >"$T/$1.log" 2>&1 &
}

test_fuzzers() {
	local name rc runs pids=()
	for name in $(names); do
		start_fuzzer "$name"
		pids+=($!)
	done
	for name in $(names); do
		rc=0
		wait "${pids[0]}" || rc=$?
		pids=("${pids[@]:1}")
		assertEquals "$name: $(tail -n 40 "$T/$name.log")" 0 "$rc"
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$T/$name.log")
		assertTrue "$name ran only ${runs:-0} inputs" "((${runs:-0} >= 1000))"
	done
}

# A target that begins from nothing finds nothing: no mutation guesses a magic.
test_each_fuzzer_has_a_corpus() {
	local name
	assertNotNull "no targets" "$(names)"
	for name in $(names); do
		assertNotNull "$name has no corpus" \
			"$(ls "labs/tests/fuzz/corpus/${name#fuzz_}" 2>/dev/null)"
	done
}

oneTimeSetUp() {
	command -v clang >/dev/null || {
		fail "clang and its libFuzzer are missing: labs/deps.sh test"
		return 1
	}
	must_build -j"$(nproc)" fuzzers
}

. shunit2
