#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What all suites look with: an assertion that cannot fail would hide what it is for.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh

test_lines_are_matched() {
	local long
	printf -v long '%s\n' {1..2000} 'the end'
	assertTrue 'a line' "matches $'one\ntwo' '^two$'"
	assertFalse 'not over lines' "matches $'one\ntwo' 'one.two'"
	assertTrue 'one of two lines' "matches two $'one\ntwo'"
	assertTrue 'of a long text' "matches '$long' '^the end$'"
	assertFalse 'of a long text' "matches '$long' '^end$'"
	assertFalse 'what is no pattern matches nothing' 'matches "a(b" "a(b"'
	assertFalse 'empty' "matches '' ."
	assertTrue 'what only grep reads' 'matches "x{a" "{a"'
}

# an assertion in a shell of its own, which may fail
fails() { [[ $( ("$@") 2>&1) == *ASSERT:* ]]; }

test_assertions_fail() {
	assertTrue 'assert_in' 'fails assert_in text other'
	assertTrue 'no pattern' 'fails assert_in text "te(xt"'
	assertTrue 'assert_not_in' 'fails assert_not_in text ex'
	printf 'error: a\nnoise\n' >"$T/x.err"
	echo 1 >"$T/x.rc"
	assertTrue 'assert_error' 'fails assert_error x 1 a'
	printf 'error: a\n next: b\n' >"$T/x.err"
	assertFalse 'assert_error' 'fails assert_error x 1 a'
	assertTrue 'its code' 'fails assert_error x 2 a'
}

test_files_are_read_whole() {
	printf 'a\0b\n\nc' >"$T/x.out"
	assertEquals $'ab\n\nc' "$(out_of x)"
	assertEquals none "$(rc_of x)"
}

test_a_line_that_does_not_end_is_one() {
	echo 'call|why' >"$T/x.failed"
	echo 1 >"$T/x.rc"
	printf 'warning: a\nerror: b' >"$T/x.err"
	assertEquals 'x|3|call|why|1|1|error: b' "$(refusal 3 x)"
}

. shunit2
