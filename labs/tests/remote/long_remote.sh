#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The three programs on remote memory for a minute each with eight clients, some of
# which are killed all the while; and under ASan, UBSan and valgrind.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() {
	build_helpers
	export spy=$B/spy.so
}

# In the lab. minute CLIENT ARGS…: eight of it, one after the other in each of eight
# places, for 60 s; and a ninth place whose clients are killed, each at another moment.
MINUTE='
place() { # NUMBER CLIENT ARGS…
	local i=0 n=$1
	shift
	while ((SECONDS < until)); do
		client run "c$n.$((++i))" "$@" || return
	done
}
minute() {
	local n i=0 placed=() until=$((SECONDS + ${seconds:-60}))
	for n in {1..8}; do
		place "$n" "$@" &
		placed+=("$!")
	done
	while ((SECONDS < until)); do
		client start "k$((++i))" "$@"
		nap "0.$((i * 37 % 90 + 10))"
		kill9 "k$i"
	done
	wait "${placed[@]}"
}
# Ten that spin on two CPUs: an ACK may well be late.
export SPY_LIE=patient LD_PRELOAD=$spy
'

# served NAME…: these servers ended well. Who is killed in the handshake is reported.
served() {
	local name
	for name; do
		assertEquals "$(err_of "$name")" 0 "$(rc_of "$name")"
		assertEquals "$name reports" '' \
			"$(grep '^error: ' "$T/$name.err" | grep -v 'the peer closed the connection$')"
	done
}

# all_right SERVER: it and every client of a place ended well; $names are these
all_right() {
	local file
	served "$1"
	names=()
	for file in "$T"/c[0-9]*.rc; do
		names+=("$(basename "$file" .rc)")
	done
	assert_done "${names[@]}"
	killed=$(compgen -G "$T/k[0-9]*.rc" | wc -l)
	assertTrue "few clients: ${#names[@]}, killed $killed" "((${#names[@]} >= 8 && killed >= 8))"
}

test_a_minute_of_the_store() {
	on_rxe "$MINUTE"'
		lend memory -q -b 16384
		minute kv_client -e -t 60 -n 400 -K 4
		client run count kv_client -c
		end memory
	' || return 0
	assert_done count
	all_right memory
	local torn=$(($(sum .torn "${names[@]}") + $(sum .overtaken "${names[@]}")))
	echo "gets $(sum .gets "${names[@]}"), puts $(sum .puts "${names[@]}"), torn $(sum .torn "${names[@]}"), overtaken $(sum .overtaken "${names[@]}"), killed $killed"
	assertTrue "no READ met a WRITE in a minute" "[[ $torn -gt 0 ]]"
	assertTrue "puts that are not there" \
		"(( $(json count .puts) >= $(sum .puts "${names[@]}") ))"
}

test_a_minute_of_the_lock() {
	on_rxe "$MINUTE"'
		lend memory -q
		minute lock_client -e -t 60 -n 200
		client run last lock_client -n 1
		client run look lock_client -n 0
		end memory
	' || return 0
	assert_done last look
	all_right memory
	local rounds
	rounds=$(sum .rounds last "${names[@]}")
	echo "rounds $rounds, entries $(json look .entries), waits $(sum .waits "${names[@]}"), completed $(sum .repairs last "${names[@]}"), killed $killed"
	assertTrue "rounds that are not there" "(( $(json look .entries) >= rounds && $(json look .counter) >= $(json look .entries) ))"
}

test_a_minute_of_the_ring() {
	on_rxe "$MINUTE"'
		ring ring -q
		minute ring_client -t 60 -n 3000
		end ring
	' || return 0
	all_right ring
	echo "messages $(sum .messages "${names[@]}"), killed $killed"
}

# One WRITE of 1 GiB: when a part of it has left, this side or that is killed, or takes
# its memory back. And one of 16 MiB that nobody disturbs, to its last byte.
test_cut_in_the_middle_of_a_large_write() {
	helper "$B/large_write" labs/tests/remote/large_write.c "$B/librdma_common.a" -libverbs -lisal
	on_rxe '
		sent() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts; }
		sent_more() { (($(sent) >= before + 2000)); }
		none() { [[ ! $(rdma resource show qp type RC) ]]; }
		large() { # BYTES HOW LENDER HOW WRITER
			await none
			before=$(sent)
			port=18600 serve "$3" "$B/large_write" "$2" "$1" rxe0
			start "$5" "$B/large_write" "$4" "$1" rxe1 10.99.0.1
		}
		large $((1 << 30)) keep bereft keep dies
		await sent_more
		kill9 dies
		reap bereft
		large $((1 << 30)) keep gone keep widow
		await sent_more
		kill9 gone
		reap widow
		large $((1 << 30)) drop taker keep cheated
		reap taker cheated
		large $((1 << 30)) keep patient drop hasty
		reap patient hasty
		large $((1 << 24)) keep server keep client
		reap client server
		await none
		rdma resource show mr >"$T/left"
	' || return 0
	assert_done bereft taker patient client server
	assert_error widow 1 'rxe0 has no QP'
	assert_error cheated 1 'remote access error \(10\)'
	# Newer kernels say 5 of what is wrong on this side (explain/rxe_facts.h).
	assert_error hasty 1 'completed with .* \([245]\)'
	assertEquals "what is left" '' "$(<"$T/left")"
}

# What the checkers see: each program, to its end, killed, refused, and wrongly used.
WALK='
	lend memory -q -t 60 -n 2
	client run lock lock_client -t 60 -n 3
	client run put kv_client -t 60 -k key -p value
	client run get kv_client -t 60 -k key
	client run none kv_client -t 60 -k none
	client run many kv_client -t 60 -n 20
	client run count kv_client -t 60 -c
	# With the slot that receives, 64 of 64 bytes: a page to its end, and what would
	# write beyond it is seen.
	client run read memory_bench -t 60 -n 100 -d 63
	client run write memory_bench -t 60 -W -n 100 -d 63
	client run add memory_bench -t 60 -A -n 100 -d 63
	client start dies lock_client -t 60 -n 1000000
	await qps 1
	kill9 dies
	await qps 0
	end memory
	ring ring -q -t 60 -r 8
	client run some ring_client -t 60 -n 100
	client run big ring_client -t 60 -n 1 -s 4000
	client start cut ring_client -t 60 -n 1000000
	await qps 1
	kill9 cut
	await qps 0
	end ring
'

walked() { # PATTERN
	served memory ring
	assert_done lock put get many count read write add some
	assert_error none 1 'there is no key'
	assert_error big 1 'does not fit'
	assert_not_in "$(cat "$T"/*.err)" "$1"
}

test_sanitizers() {
	local rc=0
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 \
		build/asan/{memory_server,lock_client,kv_client,memory_bench,ring_server,ring_client} >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	local -x B=build/asan
	on_rxe '
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1 UBSAN_OPTIONS=exitcode=99
	'"$WALK" || return 0
	walked 'AddressSanitizer|LeakSanitizer|runtime error'
}

test_valgrind() {
	mkdir "$T/bin"
	local program
	for program in memory_server lock_client kv_client memory_bench ring_server ring_client; do
		printf '#!/bin/sh\nexec valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect --error-exitcode=99 %s "$@"\n' \
			"$ROOT/$B/$program" >"$T/bin/$program"
		chmod +x "$T/bin/$program"
	done
	local -x B=$T/bin
	on_rxe "$WALK" || return 0
	walked '^==[0-9]+=='
}

. shunit2
