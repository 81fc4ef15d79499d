#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Memory: the programs under AddressSanitizer and UBSan, and under valgrind, on
# the paths that succeed and on those that fail; and clang compiles everything.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

test_clang_compiles_everything() {
	local rc=0
	build -j"$(nproc)" BUILD=build/clang CC=clang >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	"$ROOT/build/clang/rdma_server" --help >/dev/null
	assertEquals 0 $?
}

test_sanitizers() {
	local name side rc=0
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	local -x B=build/asan
	# A sanitizer's finding ends the program with 99.
	in_lab '
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1:verify_asan_link_order=0
		export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
		pair once -j rxe0 : -j 127.0.0.1 rxe1
		pair text rxe0 : -m "你好" 127.0.0.1 rxe1
		pair ping -j -n 100 rxe0 : -j -n 100 127.0.0.1 rxe1
		pair events -j -e -n 100 -s 1 rxe0 : -j -e -n 100 -s 1 127.0.0.1 rxe1
		pair bw -j -b -n 1100 -s 70000 rxe0 : -j -b -n 1100 -s 70000 -w 5 127.0.0.1 rxe1
		pair plan -q -n 10 rxe0 : -q -n 20 127.0.0.1 rxe1
		pair long -q -s 16 -m short rxe0 : -q -m "longer than sixteen" 127.0.0.1 rxe1
		pair family -q rxe0 18515 0 : -q 127.0.0.1 rxe1 18515 1
		run nobody "$B/rdma_client" -q -t 1 127.0.0.1
		run device "$B/rdma_server" -q mlx5_0
		run gid "$B/rdma_server" -q rxe0 18515 7
		run size "$B/rdma_server" -q -s 9437184 rxe0
		for peer in fill=4096 "hello con,qpn=0" "hello con,gid=10:99::1 sync"; do
			read -ra items <<<"$peer"
			server peer -q -t 3 rxe0
			run other build/peer connect 127.0.0.1 18515 "${items[@]}"
			reap peer
			cp "$T/peer.rc" "$T/${items[-1]%%[=,]*}.peer.rc"
			cat "$T/peer.err" >>"$T/peers.err"
		done
		server int.server -q -n 1000000 rxe0
		start int.client "$B/rdma_client" -q -t 3 -n 1000000 127.0.0.1 rxe1
		connected() { (($(rdma resource show qp type RC state RTS | wc -l) == 2)); }
		await connected
		kill -INT "${pids[int.server]}"
		reap int.server int.client
		asan_lib=$(ldd "$B/rdma_server" | sed -n "s/.*=> \(.*libasan[^ ]*\) .*/\1/p")
		for call in ibv_alloc_pd ibv_reg_mr ibv_create_cq ibv_create_qp \
			ibv_modify_qp ibv_post_recv; do
			SPY_FAIL=$call:1:12 LD_PRELOAD=$asan_lib:build/spy.so \
				run "$call" "$B/rdma_server" -e -q rxe0
		done
		for program in "$B"/0[1-8]-*; do
			name=${program##*/}
			run "lesson.$name" "$program"
			for mistake in $("$program" --help | awk "/^      [a-z]/ {print \$1}"); do
				run "mistake.$name.$mistake" "$program" --break "$mistake"
			done
		done
	' || return 0
	assertEquals "lessons" 8 "$(cat "$T"/lesson.*.rc | grep -cx 0)"
	assertEquals "mistakes" 35 "$(cat "$T"/mistake.*.rc | grep -cx 1)"
	for name in once text ping events bw; do
		assert_pair "$name"
	done
	for name in plan family int; do
		for side in server client; do
			assertEquals "$name.$side: $(err_of "$name.$side")" 1 \
				"$(rc_of "$name.$side")"
		done
	done
	for name in long.client nobody device gid size fill.peer con.peer sync.peer \
		ibv_alloc_pd ibv_reg_mr ibv_create_cq ibv_create_qp ibv_modify_qp \
		ibv_post_recv; do
		assertEquals "$name" 1 "$(rc_of "$name")"
	done
	assert_not_in "$(cat "$T"/*.err)" 'AddressSanitizer|LeakSanitizer|runtime error'
}

test_units_with_sanitizers() {
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 \
		build/asan/librdma_common.a >"$T/make" 2>&1
	"${CC:-cc}" -g -D_GNU_SOURCE -Icommon "-fsanitize=address,undefined" \
		-fno-sanitize-recover=all -o "$T/unit" labs/tests/unit_exchange.c \
		build/asan/librdma_common.a -libverbs -ljansson >>"$T/make" 2>&1
	assertEquals "compiled: $(cat "$T/make")" 0 $?
	assertEquals "0 failures" "$("$T/unit" 2>&1)"
}

# Nothing is suppressed. "Possibly lost" is not counted: those are the lists of
# devices that libibverbs and libnl keep until the end.
test_valgrind() {
	local program
	in_lab '
		check() {
			local name=$1
			shift
			start "$name" valgrind -q --leak-check=full \
				--show-leak-kinds=definite,indirect \
				--errors-for-leak-kinds=definite,indirect \
				--error-exitcode=9 "$@"
		}
		check once.server "$B/rdma_server" -q -t 60 rxe0
		server_pid=$pid
		await listening_or_ended 18515 "$server_pid"
		check once.client "$B/rdma_client" -q -t 60 127.0.0.1 rxe1
		reap once.server once.client
		for program in "$B"/0[1-8]-*; do
			[[ -x $program ]] || continue
			check "${program##*/}" "$program"
			reap "${program##*/}"
			echo "${program##*/}" >>"$T/programs"
		done
	' || return 0
	assert_pair once
	while read -r program; do
		assertEquals "$program: $(err_of "$program")" 0 "$(rc_of "$program")"
		assert_not_in "$(err_of "$program")" '^==[0-9]+=='
	done < <(cat "$T/programs" 2>/dev/null)
}

oneTimeSetUp() { build_helpers; }

. shunit2
