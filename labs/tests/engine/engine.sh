# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# engine.sh - what the suites of rdma_engine share: a storage node on rxe0, an
# engine on rxe1 that reads from it, and clients of the engine, all in the lab.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# Requests that a real client sent to the original engine, in their order.
FRAMES=labs/tests/fuzz/corpus/engine_proto
export FRAMES

oneTimeSetUp() {
	build_engine_tests || return 1
	make_store
}

oneTimeTearDown() { rm -rf "${S:-}"; }

# build_engine_tests: engine_peer, and what all suites use; a sanitizer's library must
# be loaded before the spy
build_engine_tests() {
	local asan msgpack
	read -ra msgpack <<<"$(make -s print-MSGPACK)" # its name differs by release
	asan=$(ldd "$B/rdma_engine" 2>/dev/null | sed -n 's/.*=> \(.*libasan[^ ]*\) .*/\1/p')
	SPY=${asan:+$asan:}$B/spy.so
	export SPY
	build_helpers &&
		helper "$B/engine_peer" -O2 labs/tests/engine/engine_peer.c "${msgpack[@]}" -ljansson
}

# make_store: $S. Needle 100 of volume 1 is there for the recorded requests, in volume 8
# is one with a damaged byte.
make_store() {
	S=$(mktemp -d "$ROOT/build/store.XXXXXX")
	"$B/needle" make -S "$S" -n 20 -V 4 -m 1 -M 4096 -s 5 >/dev/null
	head -c 8192 /dev/urandom >"$S/recorded"
	"$B/needle" put -S "$S" 1 100 305419896 --file "$S/recorded" >/dev/null
	printf 'hello, needle' | "$B/needle" put -S "$S" 9 1 7 >/dev/null
	"$B/needle" put -S "$S" 9 2 7 </dev/null >/dev/null
	printf 'a secret' | "$B/needle" put -S "$S" 9 3 7 >/dev/null
	printf 'hello, needle' | "$B/needle" put -S "$S" 8 1 7 >/dev/null
	# The last one: 32 bytes of the volume, 32 of the record, 12.
	printf X | dd of="$S/volume-8.needles" bs=1 seek=76 conv=notrunc status=none
	export S
}

# with_large BYTES: $T/store, which is $S and a needle 1 of volume 5, $T/large
with_large() {
	cp -r "$S" "$T/store"
	head -c "$1" /dev/urandom >"$T/large"
	"$B/needle" put -S "$T/store" 5 1 1 --file "$T/large" >/dev/null
}

# In the lab; with SPY_LOG=, SPY_LIE=, SPY_FAIL= or SPY_STOP= before it, a program runs
# under the spy:
# node NAME [ARGS…]         a storage node, when it listens
# engine NAME [ARGS…]       an engine on $sock, when it has the catalogue
# start_engine NAME [ARGS…] one that has its socket
# stops N…                  SPY_STOP: it stops (SIGSTOP) before those READs
# peer NAME ITEM…           labs/tests/engine/engine_peer.c
# client NAME VERB…         engine_client; how=start: in the background
# shellcheck disable=SC2016 # for the shell in the lab
ENGINE_IN_LAB='
sock=/tmp/engine.sock
under_spy() { [[ ! ${SPY_LOG-}${SPY_LIE-}${SPY_FAIL-}${SPY_STOP-} ]] || LD_PRELOAD=$SPY; }
node() {
	local -x LD_PRELOAD=
	under_spy
	serve "$1" "$B/needle_server" -S "$S" "${@:2}" rxe0
}
connected() { [[ $(grep -c "^connected to" "$T/$1.out") -ge ${times:-1} ]]; }
connected_or_ended() { connected "$1" || ended "${pids[$1]}"; }
there() { [[ -S $sock ]] || ended "$1"; }
start_engine() {
	local -x LD_PRELOAD=
	under_spy
	start "$1" "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1 "${@:2}"
	await there "$pid"
}
engine() {
	start_engine "$@"
	await connected_or_ended "$1"
}
stops() {
	local list
	printf -v list ",ibv_post_send:%s" "$@"
	echo "${list#,}"
}
peer() { "${how:-run}" "$1" "$B/engine_peer" "$sock" "${@:2}"; }
client() {
	local name=$1 verb=$2
	local -x LD_PRELOAD=
	under_spy
	shift 2
	# shellcheck disable=SC2086 # "bench read" is two words
	"${how:-run}" "$name" "$B/engine_client" $verb -s "$sock" "$@"
}
# resume: an engine that has stopped
resume() { kill -CONT "${pids[engine]}"; }
# stop NAME…: with SIGTERM, in this order
stop() {
	local name
	for name; do
		kill "${pids[$name]}"
		reap "$name"
	done
}
# has_sessions N
has_sessions() { [[ $("$B/engine_client" caps -j -s "$sock" | jq .active_sessions) == "$1" ]]; }
# held NAME: how many descriptors and memory regions the engine has
held() {
	ls "/proc/${pids[$1]}/fd" | wc -l
	rdma resource show mr | grep -c "rdma_engine" || true
}
# all_back: it has what it had, when that was written down
all_back() { [[ $(held engine) == $(cat "$T/held.before") ]]; }
'

# on_engine SCRIPT
on_engine() { in_lab "$ENGINE_IN_LAB$1" && assert_clean; }

# assert_done NAME…: exit 0 and nothing on stderr
assert_done() {
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" "0:" "$(rc_of "$name"):$(err_of "$name")"
	done
}

# assert_rc_0 NAME…: whatever it said
assert_rc_0() {
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" 0 "$(rc_of "$name")"
	done
}

# An answer as a short line: what matters in it.
# shellcheck disable=SC2016 # for jq
SHORT='(fromjson? // .) | if type != "object" then . else .data as $d | {
	Pong: "Pong \($d.client_timestamp_ns)",
	StartReadResponse: "Start \($d.transfer_size)",
	MapBufferResponse: "Map \($d.size)",
	CompleteReadResponse: "Complete \($d.success) \($d.message)",
	Error: "Error \($d.category) \($d.recoverable) \($d.message) [\($d.code)]"
}[.type] // .type end'

# assert_told NAME PATTERN…: these lines, and no others, came to peer NAME
assert_told() {
	local name=$1 lines pattern i=0
	shift
	mapfile -t lines < <(jq -Rr "$SHORT" "$T/$name.out")
	assertEquals "$name: $(printf '\n%s' "${lines[@]}")" "$#" "${#lines[@]}"
	for pattern; do
		assert_in "${lines[i++]-}" "^$pattern" "$name, answer $i:"
	done
}

# assert_same A B: these files
assert_same() {
	cmp "$1" "$2"
	assertEquals "$1 and $2" 0 $?
}
