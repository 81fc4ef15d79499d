#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# needle_server on rxe: engines (needle_reader) READ every needle one-sided and
# find the right bytes; bad peers stop nobody; nothing is left behind.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

PATTERN=9,1,12000 # seed, min, max of the store that is made once

# In the lab. node NAME ARGS…: a storage node on rxe0, when it listens; engine
# NAME ARGS…: read it from rxe1; qps N: rxe0 has N QPs in RTS.
IN_LAB='
node() {
	local name=$1
	shift
	start "$name" "$B/needle_server" -S "$S" "$@" rxe0 "${port:-18515}"
	await listening_or_ended "${port:-18515}" "$pid"
}
engine() {
	local name=$1
	shift
	"${how:-run}" "$name" "${reader:-$B/needle_reader}" -d rxe1 "$@" 10.99.0.1 "${port:-18515}"
}
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
'

# on_rxe SCRIPT
on_rxe() { in_lab "$IN_LAB$1"; }

oneTimeSetUp() {
	build_helpers && build_reader "$B" -O2 || return 1
	S=$(mktemp -d "$ROOT/build/store.XXXXXX")
	export S PATTERN
	"$B/needle" make -S "$S" -n 60 -V 3 -m 1 -M 12000 -s 9 >/dev/null
}

oneTimeTearDown() { rm -rf "${S:-}"; }

build_reader() { # BUILD FLAGS…
	helper "$1/needle_reader" "${@:2}" labs/tests/needle/needle_reader.c \
		"$1/librdma_common.a" -libverbs -ljansson -lisal
}

total() { "$B/needle" list -S "$S" -j | jq -r '.needles | "\(length) needles, \(map(.size) | add) bytes"'; }

assert_done() { # NAME…: exit 0 and no error
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" "0:" "$(rc_of "$name"):$(err_of "$name")"
	done
}

test_every_needle_is_read() {
	local name
	on_rxe '
		ibv_devinfo -d rxe0 -v | awk "\$1 == \"max_qp_rd_atom:\" { print \$2 }" >"$T/limit"
		SPY_LOG=$T/node.log LD_PRELOAD=$B/spy.so node node -q
		engine first -p "$PATTERN"
		engine small -p "$PATTERN" -c 1000 -w 3
		engine deep -p "$PATTERN" -c 4096 -w 128
		engine one -p "$PATTERN" -c 65536 -w 1
		kill "${pids[node]}"
		reap node
		# Many small memory regions: no needle may lie in two of them.
		node split -M 12100
		rdma resource show mr | grep -c needle_server >"$T/mrs"
		engine split.engine -p "$PATTERN"
		kill -INT "${pids[split]}"
		reap split
	' || return 0
	assert_done node split
	# An engine may have as many READs under way as the device can answer.
	assert_in "$(grep '^modify_qp state=2 ' "$T/node.log")" \
		" max_dest_rd_atomic=$(cat "$T/limit") "
	for name in first small deep one split.engine; do
		assert_done "$name"
		assertEquals "$(total)" "$(out_of "$name")"
	done
	assertTrue "$(cat "$T/mrs") regions" "(( $(cat "$T/mrs") > 20 ))"
	assertEquals "as many as it says" "in $(cat "$T/mrs") MRs" \
		"$(out_of split | grep -o 'in [0-9]* MRs')"
}

# Superseded, empty, and put while the node runs; and nothing at all.
test_what_the_catalogue_holds() {
	local -x S=$T/other
	mkdir "$S" "$T/empty"
	printf old | "$B/needle" put -S "$S" 5 1 1 >/dev/null
	printf newer | "$B/needle" put -S "$S" 5 1 2 >/dev/null
	"$B/needle" put -S "$S" 6 1 3 </dev/null >/dev/null
	on_rxe '
		node node -q
		engine before
		printf later | "$B/needle" put -S "$S" 5 2 7 >/dev/null
		engine during
		kill "${pids[node]}"
		reap node
		node again -q
		engine after
		kill "${pids[again]}"
		reap again
		S=$T/empty node empty -q
		engine nothing
		kill "${pids[empty]}"
		reap empty
	' || return 0
	assert_done node again empty before during after nothing
	assertEquals "2 needles, 5 bytes" "$(out_of before)"
	assertEquals "what it held at its start" "2 needles, 5 bytes" "$(out_of during)"
	assertEquals "3 needles, 10 bytes" "$(out_of after)"
	assertEquals "0 needles, 0 bytes" "$(out_of nothing)"
}

# The peer may READ what was registered, and no more.
test_read_only() {
	local before
	before=$(cat "$S"/* | cksum)
	on_rxe '
		node node -q
		engine write -W
		engine outside -O
		engine after -p "$PATTERN"
		kill "${pids[node]}"
		reap node
	' || return 0
	assert_done node write outside after
	assertEquals "remote access error" "$(out_of write)"
	assertEquals "remote access error" "$(out_of outside)"
	assertEquals "the store" "$before" "$(cat "$S"/* | cksum)"
}

test_many_engines_at_once() {
	local i
	on_rxe '
		node node -q -n 8
		for i in 1 2 3 4 5 6 7 8; do how=start engine "e$i" -H -p "$PATTERN"; done
		for i in 1 2 3 4 5 6 7 8; do await in_file needles "$T/e$i.out"; done
		await qps 8
		engine ninth
		for i in 1 2 3; do kill -KILL "${pids[e$i]}"; done
		reap e1 e2 e3 2>/dev/null
		await qps 5
		engine tenth
		for i in 4 5 6; do kill -TERM "${pids[e$i]}"; done
		reap e4 e5 e6
		await qps 2
		# It ends while two are connected; they see it.
		kill -TERM "${pids[node]}"
		reap node e7 e8
	' || return 0
	for i in 4 5 6 7 8; do
		assert_done "e$i"
		assertEquals "$(total)" "$(out_of "e$i")"
	done
	assertEquals 0 "$(rc_of node)"
	assert_in "$(err_of node)" '^error: engine 9 is turned away: 8 are connected'
	assertEquals "$(err_of node)" 1 "$(grep -c '^error' "$T/node.err")"
	assert_error ninth 1 'the peer failed before sync point READY: EUSERS'
	assert_done tenth
}

# More silent peers than there may be engines, and they stay: the next engine is
# served, for the first of them has to go. One too many is told why.
test_silent_peers_lock_nobody_out() {
	on_rxe '
		node node -q -n 2 -t 3600
		for i in {1..70}; do
			exec {silent}<>/dev/tcp/127.0.0.1/18515
		done
		engine first -p "$PATTERN"
		how=start engine held1 -H -p "$PATTERN"
		how=start engine held2 -H -p "$PATTERN"
		await qps 2
		engine third
		kill "${pids[held1]}" "${pids[held2]}"
		reap held1 held2
		await qps 0
		engine last -p "$PATTERN"
		kill "${pids[node]}"
		reap node
		# None of them can go: who comes then is not kept waiting.
		SPY_LIE=stuck LD_PRELOAD=$B/spy.so node stuck -q -n 1 -t 3600
		for i in {1..65}; do
			exec {silent}<>/dev/tcp/127.0.0.1/18515
		done
		engine away
		kill9 stuck
	' || return 0
	assert_error away 1 'closed the connection'
	assert_in "$(err_of stuck)" '^error: engine 66 is turned away: 64 are shaking hands'
	assert_done first held1 held2 last
	assertEquals 0 "$(rc_of node)"
	assertEquals "$(total)" "$(out_of last)"
	assert_error third 1 'the peer failed before sync point READY: EUSERS'
}

# Silent, slow, lying and talkative peers: the others are served all the while.
test_bad_peers() {
	on_rxe '
		peer() {
			local name=$1
			shift
			start "$name" "$B/peer" connect 127.0.0.1 18515 "$@"
		}
		# These two keep it busy for as long as it runs.
		node patient -q -t 3600
		peer silent
		peer half hello cut=5
		peer slow hello con sync cut=60 trickle=20 # and never the last three
		await qps 1
		engine beside -p "$PATTERN"
		cp "$T/patient.err" "$T/early"
		kill "${pids[slow]}"
		await qps 0
		await in_file "^error: " "$T/patient.err"
		kill "${pids[patient]}"
		reap patient silent half slow
		node node -q -t 5
		peer quiet
		peer cut hello cut=5
		peer text "text=GET / HTTP/1.1"
		peer many fill=100000
		peer version hello,version=2
		peer qpn hello con,qpn=0
		peer address hello con,gid=10:99::1 sync
		peer gone hello con close
		peer reset hello con reset
		peer status hello con sync,status=22
		peer talks hello con sync text=more
		reap text many version qpn address gone reset status talks
		engine after -p "$PATTERN"
		reap quiet cut
		await qps 0
		kill -0 "${pids[node]}" && echo alive >"$T/alive"
		kill "${pids[node]}"
		reap node
	' || return 0
	assertEquals alive "$(cat "$T/alive")"
	assertEquals "$(err_of node)" 0 "$(rc_of node)"
	# The slow one was killed; to hang up on the others, it was asked.
	assertEquals "$(err_of patient)" 0 "$(rc_of patient)"
	assertEquals 'of the slow one' 1 "$(grep -c '^error: ' "$T/patient.err")"
	assert_done silent half
	assert_done beside after
	assertEquals "nobody was waited for" "" "$(cat "$T/early")"
	for what in 'hello: nothing came' 'GET' 'magic 0x41414141' 'version 2' \
		'qp_num is not' 'ibv_modify_qp' 'closed the connection' \
		'the peer failed before sync point READY' \
		'sends where it has nothing to say'; do
		assert_in "$(err_of node)" "$what"
	done
	assert_not_in "$(err_of node)" 'terminate|assert|Segm'
}

test_killed_and_started_again() {
	on_rxe '
		node first -q
		how=start engine cut -r 0
		await qps 1
		nap 0.3
		kill9 first
		reap cut
		node second -q
		engine again -p "$PATTERN"
		how=start engine cut2 -r 0
		await qps 1
		nap 0.3
		kill -TERM "${pids[second]}"
		reap second cut2
	' || return 0
	assert_done second again
	assertEquals "killed" 137 "$(rc_of first)"
	assertEquals "in the middle: $(err_of cut)" 1 "$(rc_of cut)"
	assertEquals "in the middle: $(err_of cut2)" 1 "$(rc_of cut2)"
	assertEquals "$(total)" "$(out_of again)"
}

test_damage() {
	local good=$S
	local -x S=$T/bad
	cp -r "$good" "$S"
	printf '\377' | dd of="$S/volume-2.needles" bs=1 seek=40 conv=notrunc status=none
	cp -r "$good" "$T/data"
	cp -r "$good" "$T/gone"
	: >"$T/gone/volume-3.needles"
	printf '\377\377' | dd of="$T/data/volume-2.needles" bs=1 seek=64 conv=notrunc status=none
	on_rxe '
		run header "$B/needle_server" -S "$S" rxe0
		run gone "$B/needle_server" -S "$T/gone" rxe0
		S=$T/data node data -q
		engine data.engine
		kill "${pids[data]}"
		reap data
	' || return 0
	assert_error header 1 'volume-2.needles: the record header at offset 32 is damaged'
	assert_error gone 1 'volume-3.needles: its header is gone: 0 bytes'
	assert_done data
	assert_error data.engine 1 'CRC-32C 0x[0-9a-f]{8}, not 0x'
}

test_errors() {
	on_rxe '
		run folder "$B/needle_server" -S "$T/nothing" rxe0
		run device "$B/needle_server" -S "$S" mlx5_0
		run gid "$B/needle_server" -S "$S" rxe0 18515 7
		run most "$B/needle_server" -S "$S" -M 8000 rxe0
		start other "$B/peer" listen 18515
		await listening 18515
		run busy "$B/needle_server" -S "$S" rxe0
		kill "${pids[other]}"
		reap other
		export LD_PRELOAD=$B/spy.so
		for call in ibv_alloc_pd:1:12 ibv_reg_mr:1:12 ibv_reg_mr:3:14; do
			SPY_FAIL=$call run "$call" "$B/needle_server" -S "$S" rxe0
		done
		for call in ibv_create_cq:1:12 ibv_create_qp:1:12 ibv_modify_qp:1:22 \
			ibv_modify_qp:2:22 ibv_modify_qp:3:22 pthread_create:1:11; do
			SPY_FAIL=$call node "$call" -q
			LD_PRELOAD= engine "$call.engine"
			LD_PRELOAD= engine "$call.second"
			kill "${pids[$call]}"
			reap "$call"
		done
	' || return 0
	assert_error folder 1 'opendir\(.*nothing\)'
	assert_error device 1 'no RDMA device is named "mlx5_0"'
	assert_error gid 1 'GID index 7 of rxe0 port 1 is empty'
	assert_error most 1 'needle [0-9]+ of volume 1 has [0-9]+ bytes and 32 of header, one MR at most 8000'
	assert_error busy 1 'EADDRINUSE'
	assert_error ibv_alloc_pd:1:12 1 'ibv_alloc_pd\(rxe0\).*ENOMEM'
	assert_error ibv_reg_mr:1:12 1 'ibv_reg_mr\(volume 1, offset 32, [0-9]+ bytes, REMOTE_READ\).*ENOMEM'
	assert_error ibv_reg_mr:3:14 1 'ibv_reg_mr\(volume 3.*EFAULT'
	for call in ibv_create_cq:1:12 ibv_create_qp:1:12 ibv_modify_qp:{1,2,3}:22 pthread_create:1:11; do
		assert_error "$call" 0 "${call%%:*}"
		assert_error "$call.engine" 1 'closed the connection|the peer failed before'
		assert_done "$call.second"
	done
}

# Whatever it asks the system for is refused once, until it finds the port taken.
test_refusals() {
	export many=$T/many
	mkdir "$many"
	"$B/needle" make -S "$many" -n 4 -V 3 -m 1 -M 100 >"$T/made"
	on_rxe '
		node other -q
		refusals hungry "$B/needle_server" -q -S "$many" rxe0
		kill "${pids[other]}"
		reap other
	' || return 0
	assert_done other
	assert_error hungry 1 'EADDRINUSE'
	assert_refusals 40 'none none' <"$T/lab.out"
}

test_wrong_usage() {
	local n
	usage_error '--store is missing' needle_server
	usage_error '--store is missing' needle_server rxe0 18515
	usage_error '--store is missing' needle_server -S ''
	usage_error 'too many arguments: x' needle_server -S y rxe0 1 1 x
	for n in 0 65536 x ''; do usage_error 'port is not 1' needle_server -S y rxe0 "$n"; done
	usage_error 'gid_index is not' needle_server -S y rxe0 1 256
	for n in 0 4097 x; do usage_error '--max-engines is not' needle_server -S y -n "$n"; done
	for n in 0 -1 18446744073709551616; do
		usage_error '--max-mr is not' needle_server -S y --max-mr="$n"
	done
	for n in 0 86401 x; do usage_error '--timeout is not' needle_server -S y -t "$n"; done
	usage_error 'unknown' needle_server -S y --nonsense
	usage_error 'needs an argument' needle_server --store
	assertEquals "--help" 0 "$("$B/needle_server" --help >/dev/null; echo $?)"
}

test_sanitizers() {
	local rc=0 name
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/needle_server >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	build_reader build/asan -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
	assertEquals "compiled" 0 $?
	local peer=$B/peer
	local -x B=build/asan
	export peer
	on_rxe '
		export ASAN_OPTIONS=exitcode=99:detect_leaks=1 UBSAN_OPTIONS=exitcode=99
		node node -q -t 30
		start silent "$peer" connect 127.0.0.1 18515
		run qpn "$peer" connect 127.0.0.1 18515 hello con,qpn=0
		run gone "$peer" connect 127.0.0.1 18515 hello con close
		engine first -p "$PATTERN"
		how=start engine held -H -w 64
		how=start engine killed -r 0
		await in_file needles "$T/held.out"
		kill -KILL "${pids[killed]}"
		engine write -W
		kill "${pids[node]}"
		reap killed 2>/dev/null
		reap node held silent
		S=$T/nothing run folder "$B/needle_server" -S "$S/nothing" rxe0
		run most "$B/needle_server" -S "$S" -M 8000 rxe0
	' || return 0
	for name in first held write; do assert_done "$name"; done
	assertEquals "$(err_of node)" 0 "$(rc_of node)"
	assert_error folder 1 opendir
	assert_error most 1 'one MR at most'
	assert_not_in "$(cat "$T"/*.err)" 'AddressSanitizer|LeakSanitizer|runtime error'
}

. shunit2
