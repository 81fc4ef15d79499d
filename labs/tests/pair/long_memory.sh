#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Memory, where long_sanitize.sh does not look: the other suites and the lessons with
# each of their mistakes under AddressSanitizer and UBSan; all that succeeds under
# valgrind; whatever the system refuses; and clang compiles everything.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# A sanitizer's finding ends the program with 99.
sanitize=(BUILD=build/asan
	ASAN_OPTIONS=exitcode=99:detect_leaks=1:verify_asan_link_order=0
	UBSAN_OPTIONS=exitcode=99:print_stacktrace=1)

lessons() { (cd lessons && printf '%s\n' 0[0-8]-* 13-*); }

# Without optimizing: that adds no warning of clang's, but half of the time.
test_clang_compiles_everything() {
	local said
	said=$(build -j"$(nproc)" BUILD=build/clang CC=clang CFLAGS=-g 2>&1)
	assertEquals "$said" 0 "$?"
	build/clang/rdma_server --help >/dev/null
	assertEquals 0 $?
}

test_suites_with_sanitizers() {
	local rc=0
	must_build -j"$(nproc)" SANITIZE=1 "${sanitize[0]}"
	env JOBS=1 "${sanitize[@]}" labs/tests/run \
		labs/tests/pair/test_{server_client,bad_input,one_sided}.sh >"$T/said" || rc=$?
	assertEquals "$(<"$T/said")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/said")" '^[1-9][0-9]* passed, 0 failed, 0 skipped$'
}

# A mistake ends with 1, as it is meant to.
test_lessons_with_sanitizers() {
	local program mistake
	must_build -j"$(nproc)" SANITIZE=1 "${sanitize[0]}"
	for program in $(lessons); do
		echo "$program $program"
		for mistake in $("build/asan/$program" --help 2>&1 | awk '/^      [a-z]/ { print $1 }'); do
			echo "$program.$mistake $program --break $mistake"
		done
	done >"$T/list"
	in_lab "export ${sanitize[*]:1}"'
		while read -r name program args; do
			run "$name" "build/asan/$program" $args
		done <"$T/list"
	' || return 0
	assertEquals "lessons" "$(lessons)" "$(cd "$T" && grep -lx 0 [01]*.rc | sed 's/\.rc$//')"
	assertEquals "mistakes" "$(grep -c -e --break "$T/list")" "$(cat "$T"/[01]*.*.rc | grep -cx 1)"
	assertTrue "$(wc -l <"$T/list") programs" "(($(wc -l <"$T/list") >= 60))"
	assert_clean
}

# Nothing is suppressed. "Possibly lost" is not counted: those are the lists of
# devices that libibverbs and libnl keep until the end. Without lesson 04, which has but
# five seconds for what the pair below does.
test_valgrind() {
	local name checked
	must_build all
	checked=$(lessons | grep -v '^04')
	xargs -n 2 >"$T/lessons" <<<"$checked"
	in_lab '
		ours() { false; } # valgrind has an allocator of its own
		checked=(valgrind -q --leak-check=full
			--show-leak-kinds=definite,indirect
			--errors-for-leak-kinds=definite,indirect
			--error-exitcode=9)
		serve once.server "${checked[@]}" "$B/rdma_server" -q -t 60 rxe0
		run once.client "${checked[@]}" "$B/rdma_client" -q -t 60 127.0.0.1 rxe1
		reap once.server
		start cm.server "${checked[@]}" "$B/rdma_server" --cm -q -t 60
		run cm.client "${checked[@]}" "$B/rdma_client" --cm -q -t 60 10.99.0.1
		reap cm.server
		serve many "${checked[@]}" "$B/rdma_server" -j --many 32 -t 60 rxe0
		for i in {1..32}; do start "m$i" "$B/rdma_client" -q -e -n 20 -t 60 127.0.0.1 rxe1; done
		reap m{1..32}
		kill "${pids[many]}"
		reap many
		while read -ra names; do
			for name in "${names[@]}"; do
				start "$name" "${checked[@]}" "$B/$name"
			done
			reap "${names[@]}"
		done <"$T/lessons"
	' || return 0
	assert_pair once
	assert_pair cm
	assertEquals 32 "$(json many .served)"
	for name in many m{1..32} $checked; do
		assertEquals "$name: $(err_of "$name")" 0 "$(rc_of "$name")"
	done
	assert_not_in "$(cat "$T"/*.err)" '^==[0-9]+=='
}

# Whatever a side asks the system for is refused once: it ends with one error, and so does
# the other.
test_refusals() {
	in_lab '
		start_host() { server "$1" -q -e -t 2 -n 3 rxe0; }
		refusals_of_both "$B/rdma_client" -q -e -t 2 -n 3 127.0.0.1 rxe1
	' || return 0
	assertEquals "$(err_of client)$(err_of server)" '0 0' "$(rc_of client) $(rc_of server)"
	assertEquals 'the other side, too' '' "$(grep -v ' 1 1$\| 0 0$' "$T/ends")"
	assert_refusals 30 'client connect|server (socket|epoll_wait)' <"$T/lab.out"
}

. shunit2
