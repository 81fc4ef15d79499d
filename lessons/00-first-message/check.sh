#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lesson 00: the bytes arrive, each call is looked at, all that was made is taken
# down, and the file is as short and as plain as the page says.

. "$(dirname "$0")/../../labs/tests/lib.sh"

first=$B/00-first-message
source=lessons/00-first-message/first.c

oneTimeSetUp() { helper "$B/spy.so" -O2 -fPIC -shared labs/tests/spy.c labs/tests/spy_verbs.c; }

# spied LIE FAIL [ARG…]: it runs in the lab behind the spy; sets $out, $err, $rc
spied() {
	rc=0
	: >"$T/log"
	out=$(lab run timeout 60 env LD_PRELOAD="$ROOT/$B/spy.so" SPY_LOG="$T/log" \
		SPY_LIE="$1" SPY_FAIL="$2" "$first" "${@:3}" 2>"$T/err") || rc=$?
	err=$(grep -v '^lab: ' "$T/err")
}

test_the_bytes_of_a_send_arrive_in_a_recv() {
	spied '' ''
	assertEquals "$err" 0 "$rc"
	assert_in "$out" 'Hello from QP A!"$'
	assert_in "$(<"$T/log")" 'wc .*status=0 opcode=128 bytes=17$'
	assertEquals 'the receive is posted first' 'post_recv post_send' \
		"$(grep -o '^post_[a-z]*' "$T/log" | xargs)"
	# Other bytes on the way: it shows what has arrived, not what it sent.
	spied no_nul ''
	assertEquals "$err" 0 "$rc"
	assert_in "$out" '"x{17}"$'
}

test_all_that_it_made_is_taken_down() {
	local what
	spied '' '' rxe1
	assertEquals "$err" 0 "$rc"
	for what in pd mr cq qp device; do
		assertEquals "$what" "$(grep -c "^make $what" "$T/log")" \
			"$(grep -c "^unmake $what" "$T/log")"
	done
	assertEquals 2 "$(grep -c '^make qp' "$T/log")"
	assert_in "$(in_lab 'before=$(held); "$1" >/dev/null
		echo "left $(($(held) - before))"' "$first")" '^left 0$'
}

# The one in slot 1 is called RoCE v1, and what was there seems to be in slot 5 (which
# the kernel finds empty).
test_the_gid_is_chosen_by_its_type() {
	spied gid_order ''
	assert_in "$(<"$T/log")" 'state=2 .*sgid_index=5 '
	spied gid_v1 ''
	assertEquals "$err" 1 "$rc"
	assert_in "$err" '^error: no RoCE v2 GID on port 1: '
}

# shellcheck disable=SC2016 # for the shell in the lab
test_each_call_that_fails_is_named() {
	local call calls=(ibv_open_device:1 ibv_alloc_pd:1 ibv_reg_mr:1 ibv_create_cq:1
		ibv_create_qp:{1,2} ibv_modify_qp:{1,2,3,4,5,6} ibv_post_recv:1
		ibv_post_send:1 ibv_destroy_qp:{1,2} ibv_destroy_cq:1
		ibv_dereg_mr:1 ibv_dealloc_pd:1)
	in_lab 'for call in "${@:4}"; do
			LD_PRELOAD=$1 SPY_FAIL=$call:12 timeout 60 "$2" >/dev/null 2>"$3/$call"
			echo "exit code $?" >>"$3/$call"
		done' "$ROOT/$B/spy.so" "$first" "$T" "${calls[@]}"
	for call in "${calls[@]}"; do
		err=$(<"$T/$call")
		assert_in "$err" '^exit code 1$' "$call:"
		assert_in "$err" "^error: ${call%:*}\\(.*\\): Cannot allocate memory$"
		assert_in "$err" '^ next: labs/lab run '
	done
}

test_a_completion_that_is_bad_or_does_not_come() {
	spied status ''
	assertEquals "$err" 1 "$rc"
	assert_in "$err" '^error: .*: Input/output error$'
	spied lost ''
	assertEquals "$err" 1 "$rc"
	assert_in "$err" '^error: ibv_poll_cq\(\): Timer expired$'
}

test_no_device_a_wrong_name_and_wrong_use() {
	spied no_device ''
	assertEquals "$err" 77 "$rc"
	assert_in "$err" '^error: ibv_get_device_list\(\): No such device$'
	assert_in "$err" '^ next: labs/lab run '
	spied '' '' mlx5_99
	assertEquals "$err" 1 "$rc"
	assert_in "$err" '^error: mlx5_99: '
	spied '' '' rxe0 1
	assertEquals "$err" 2 "$rc"
	assert_in "$err" '^usage: .* \[device\]$'
}

test_one_file_of_200_lines_that_needs_nothing_of_ours() {
	assertTrue "$(wc -l <$source) lines" "(($(wc -l <$source) <= 200))"
	assertEquals 'headers of this tree' "first.o: $source" \
		"$("${CC:-cc}" -Icommon -MM "$source")"
	assertEquals 'functions that others could see' main \
		"$(nm "$first" | awk '$2 == "T" && $3 !~ /^_/ { print $3 }')"
}

# As the page says it, for others' machines without our flags.
test_it_compiles_by_the_line_of_the_page() {
	local line cc
	line=$(sed -n 's/^\$ cc \(.*first\.c .*\) -o .*/\1/p' lessons/00-first-message/README.md)
	assertNotNull "$line"
	for cc in "${CC:-cc}" gcc clang; do
		[[ $(type -P "$cc") ]] || continue
		# shellcheck disable=SC2086 # words
		"$cc" -Wall -Wextra -Werror $line -o "$T/first" || fail "$cc"
	done
}

. shunit2
