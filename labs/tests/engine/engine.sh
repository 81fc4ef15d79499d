# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# engine.sh - what the suites of rdma_engine share: a storage node on rxe0, an
# engine on rxe1 that reads from it, and clients of the engine, all in the lab.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# The store that is made once: "needle make" with these.
PATTERN=5,1,4096 # seed, min, max
NEEDLES=200
VOLUMES=4

read -ra MSGPACK <<<"$(make -s print-MSGPACK)" # its name differs by release
ENGINE_LIBS=("${MSGPACK[@]}" -ljansson -luuid -lcrypto -lisal -libverbs)

# The helpers' folder: it stays when $B becomes a build with sanitizers.
N=$B
export N

# build_engine_tests: engine_peer and engine_load, and what all suites use
build_engine_tests() {
	build_helpers &&
		helper "$N/engine_peer" -O2 labs/tests/engine/engine_peer.c \
			"${MSGPACK[@]}" -ljansson &&
		helper "$N/needle_reader" -O2 labs/tests/needle/needle_reader.c \
			"$N/librdma_common.a" -libverbs -ljansson -lisal &&
		helper "$N/engine_load" -O2 labs/tests/engine/engine_load.c \
			"$N/librdma_common.a" "${ENGINE_LIBS[@]}"
}

# make_store: $S, with needle 100 of volume 1 as the recorded requests ask for it
make_store() {
	S=$(mktemp -d "$ROOT/build/store.XXXXXX")
	"$N/needle" make -S "$S" -n "$NEEDLES" -V "$VOLUMES" -m 1 -M 4096 \
		-s 5 >/dev/null
	head -c 8192 /dev/urandom >"$S/recorded"
	"$N/needle" put -S "$S" 1 100 305419896 --file "$S/recorded" >/dev/null
	printf 'hello, needle' | "$N/needle" put -S "$S" 9 1 7 >/dev/null
	"$N/needle" put -S "$S" 9 2 7 </dev/null >/dev/null
	export S PATTERN NEEDLES VOLUMES
}

# with_large BYTES: $T/store, which is $S and a needle 1 of volume 5, of zeroes
with_large() {
	cp -r "$S" "$T/store"
	head -c "$1" /dev/zero | "$B/needle" put -S "$T/store" 5 1 1 >/dev/null
}

# In the lab:
# node NAME [ARGS…]      a storage node, when it listens
# engine NAME [ARGS…]    an engine on $sock, when it has the catalogue
# engine_that_stops N… -- [ARGS…]    "engine", which stops (SIGSTOP) before those READs
# peer NAME ITEM…        labs/tests/engine/engine_peer.c
# client NAME VERB…      engine_client; how=start: in the background
# run_load NAME CLIENTS READS…    labs/tests/engine/engine_load.c
# shellcheck disable=SC2016 # for the shell in the lab
ENGINE_IN_LAB='
sock=/tmp/engine.sock
node() {
	local name=$1
	shift
	serve "$name" "$B/needle_server" -q -S "$S" "$@" rxe0
}
connected() { [[ $(grep -c "^connected to" "$T/$1.out") -ge ${times:-1} ]]; }
there() { [[ -S $sock ]] || ended "$1"; }
engine() {
	local name=$1
	start_engine "$@"
	await connected_or_ended "$name" "$pid"
}
connected_or_ended() { connected "$1" || ended "$2"; }
engine_that_stops() {
	local -x SPY_STOP= LD_PRELOAD=${asan:+$asan:}$N/spy.so
	while [[ $1 != -- ]]; do
		SPY_STOP+=${SPY_STOP:+,}ibv_post_send:$1
		shift
	done
	engine engine "${@:2}"
}
start_engine() {
	local name=$1
	shift
	start "$name" "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1 "$@"
	await there "$pid"
}
peer() {
	local name=$1
	shift
	"${how:-run}" "$name" "$N/engine_peer" "$sock" "$@"
}
client() {
	local name=$1 verb=$2
	shift 2
	# shellcheck disable=SC2086 # "bench read" is two words
	"${how:-run}" "$name" "$B/engine_client" $verb -s "$sock" "$@"
}
# stop NAME…: with SIGTERM, in this order
stop() {
	local name
	for name; do
		kill "${pids[$name]}"
		reap "$name"
	done
}
# run_load NAME CLIENTS READS
run_load() {
	"${how:-run}" "$1" "$N/engine_load" "$sock" "$2" "$3" "$PATTERN" "$VOLUMES,$NEEDLES"
}
# has_sessions N
has_sessions() { [[ $("$N/engine_client" caps -j -s "$sock" | jq .active_sessions) == "$1" ]]; }
# held NAME: how many descriptors and memory regions the engine has
held() {
	ls "/proc/${pids[$1]}/fd" | wc -l
	rdma resource show mr | grep -c "rdma_engine" || true
}
# it has what it had, when that was written down
all_back() { [[ $(held engine) == $(cat "$T/held.before") ]]; }
'

# on_engine [--fresh] SCRIPT
on_engine() { in_lab "${@:1:$#-1}" "$ENGINE_IN_LAB${!#}"; }

# assert_done NAME…: exit 0 and nothing on stderr
assert_done() {
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" "0:" \
			"$(rc_of "$name"):$(err_of "$name")"
	done
}

# answer NAME N FILTER: of the N-th answer that peer NAME printed
answer() { sed -n "$2p" "$T/$1.out" | jq -r "$3"; }

# assert_answer NAME N TYPE FILTER VALUE
assert_answer() {
	assertEquals "$1: $(sed -n "$2p" "$T/$1.out")" "$3 $5" \
		"$(answer "$1" "$2" "\"\\(.type) \\($4)\"")"
}

# assert_refused NAME N CATEGORY RECOVERABLE PATTERN
assert_refused() {
	assert_answer "$1" "$2" Error '.data | "\(.category) \(.recoverable)"' \
		"$3 $4"
	assert_in "$(answer "$1" "$2" .data.message)" "$5"
}
