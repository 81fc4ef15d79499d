#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Memory: the programs under AddressSanitizer and UBSan, and under valgrind, on
# the paths that succeed and on those that fail; and clang compiles everything.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# Without optimizing: that adds no warning of clang's, but half of the time.
test_clang_compiles_everything() {
	local rc=0
	build -j"$(nproc)" BUILD=build/clang CC=clang CFLAGS=-g >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	"$ROOT/build/clang/rdma_server" --help >/dev/null
	assertEquals 0 $?
}

# The programs that are checked; the lessons in their order
lessons() { (cd lessons && printf '%s\n' 0[0-8]-* 13-*); }
programs() { echo rdma_server && echo rdma_client && lessons; }

# The one that runs first, and warms up the others (see many.c): it takes a QP all
# the way and sends.
warm=05-send-recv

# main_of PROGRAM: what its main() is called in $B/many
main_of() { echo "main_${1//[^a-z0-9]/_}"; }

# link_many FLAG…: $B/many, all programs() in one (see many.c), of the objects
# that they consist of. Nothing but main() of each is seen by the others.
link_many() {
	local program name parts=$B/many.parts objects
	rm -rf "$parts" && mkdir -p "$parts" || return 1
	for program in $(programs); do
		name=$(main_of "$program")
		case $program in
		rdma_*) objects=("$B/${program#rdma_}/$program.o") ;;
		*) objects=("$B/lessons/lesson.o" "$B/lessons/$program"/*.o) ;;
		esac
		ld -r -o "$parts/$name.all" "${objects[@]}" &&
			objcopy --redefine-sym "main=$name" -R '.gnu.lto_*' \
				"$parts/$name.all" "$parts/$name.named" &&
			objcopy --keep-global-symbol="$name" \
				"$parts/$name.named" "$parts/$name.o" || return 1
	done
	{
		for program in $(programs); do
			echo "int $(main_of "$program")(int, char **);"
		done
		echo 'extern const struct program {'
		echo '	const char *name; int (*main)(int, char **); } programs[];'
		echo 'const struct program programs[] = {'
		for program in $(programs); do
			echo "	{ \"$program\", $(main_of "$program") },"
		done
		echo '	{ 0, 0 } };'
	} >"$parts/table.c"
	"${CC:-cc}" -g -Wall -Wextra -Werror -D_GNU_SOURCE -fno-lto "$@" \
		-o "$B/many" labs/tests/pair/many.c "$parts/table.c" "$parts"/*.o \
		"$B/librdma_common.a" -libverbs -ljansson
}

# What the sanitizers see: pairs, wrong use, every lesson with every mistake.
sanitized() {
	local program mistake
	echo "=lesson.$warm $warm"
	cat <<-'END'
		&once.server rdma_server -j rxe0
		once.client rdma_client -j 127.0.0.1 rxe1
		wait
		&text.server rdma_server rxe0
		text.client rdma_client -m 你好 127.0.0.1 rxe1
		wait
		&ping.server rdma_server -j -n 100 rxe0
		ping.client rdma_client -j -n 100 127.0.0.1 rxe1
		wait
		&events.server rdma_server -j -e -n 100 -s 1 rxe0
		events.client rdma_client -j -e -n 100 -s 1 127.0.0.1 rxe1
		wait
		&bw.server rdma_server -j -b -n 1100 -s 70000 rxe0
		bw.client rdma_client -j -b -n 1100 -s 70000 -w 5 127.0.0.1 rxe1
		wait
		&plan.server rdma_server -q -n 10 rxe0
		plan.client rdma_client -q -n 20 127.0.0.1 rxe1
		wait
		&long.server rdma_server -q -s 16 -m short rxe0
		long.client rdma_client -q -m longer_than_sixteen 127.0.0.1 rxe1
		wait
		&family.server rdma_server -q rxe0 18515 0
		family.client rdma_client -q 127.0.0.1 rxe1 18515 1
		wait
		nobody rdma_client -q -t 1 127.0.0.1
		device rdma_server -q mlx5_0
		address rdma_client rxe9 fe80::1
		gid rdma_server -q rxe0 18515 7
		size rdma_server -q -s 9437184 rxe0
	END
	for program in $(lessons); do
		[[ $program == "$warm" ]] || echo "lesson.$program $program"
		for mistake in $("$B/$program" --help 2>&1 | awk '/^      [a-z]/ { print $1 }'); do
			echo "mistake.$program.$mistake $program --break $mistake"
		done
	done
}

test_sanitizers() {
	local name side rc=0
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	local -x B=build/asan
	link_many "-fsanitize=address,undefined" || fail 'many was not linked'
	sanitized >"$T/list"
	# A sanitizer's finding ends the program with 99.
	in_lab '
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1:verify_asan_link_order=0
		export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
		run many "$B/many" "$T" "$T/list"
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
	' || return 0
	assertEquals "$(err_of many)" 0 "$(rc_of many)"
	assertEquals "lessons" 10 "$(cat "$T"/lesson.*.rc | grep -cx 0)"
	assertEquals "mistakes" 52 "$(cat "$T"/mistake.*.rc | grep -cx 1)"
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
	assertEquals "address: $(err_of address)" 2 "$(rc_of address)"
	assert_not_in "$(cat "$T"/*.err)" 'AddressSanitizer|LeakSanitizer|runtime error'
}

test_units_with_sanitizers() {
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 \
		build/asan/librdma_common.a >"$T/make" 2>&1
	"${CC:-cc}" -g -D_GNU_SOURCE -Icommon "-fsanitize=address,undefined" \
		-fno-sanitize-recover=all -o "$T/unit" labs/tests/pair/unit_exchange.c \
		build/asan/librdma_common.a -libverbs -ljansson >>"$T/make" 2>&1
	rc=$?
	assertEquals "compiled: $(cat "$T/make")" 0 "$rc"
	assertEquals "0 failures" "$("$T/unit" 2>&1)"
}

# Nothing is suppressed. "Possibly lost" is not counted: those are the lists of
# devices that libibverbs and libnl keep until the end.
test_valgrind() {
	local name
	build all >"$T/make" 2>&1
	link_many || fail 'many was not linked'
	{
		echo "=lesson.$warm $warm"
		echo '&once.server rdma_server -q -t 60 rxe0'
		echo 'once.client rdma_client -q -t 60 127.0.0.1 rxe1'
		echo wait
		lessons | sed "/$warm/d; s/.*/lesson.& &/"
	} >"$T/list"
	in_lab '
		run many valgrind -q --leak-check=full \
			--show-leak-kinds=definite,indirect \
			--errors-for-leak-kinds=definite,indirect \
			--error-exitcode=9 "$B/many" "$T" "$T/list"
	' || return 0
	assertEquals "$(err_of many)" 0 "$(rc_of many)"
	assert_pair once
	for name in $(lessons); do
		assertEquals "$name: $(err_of "lesson.$name")" 0 "$(rc_of "lesson.$name")"
	done
	assertEquals "lessons" 10 "$(cat "$T"/lesson.*.rc | grep -cx 0)"
	assert_not_in "$(cat "$T"/*.err)" '^==[0-9]+=='
}

oneTimeSetUp() { build_helpers; }

. shunit2
