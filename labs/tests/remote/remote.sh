# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# remote.sh - what the suites of memory_server, ring_server and their clients share.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted

# SANITIZE: $B was built with sanitizers (long_remote.sh)
build_all() {
	local flags=(-O2)
	[[ ! ${SANITIZE-} ]] ||
		flags+=('-fsanitize=address,undefined' -fno-sanitize-recover=all)
	export spy=$B/spy.so
	build_helpers && helper "$B/unit_ring" "${flags[@]}" labs/tests/remote/unit_ring.c \
		"$SOURCES"/common/{remote/ring,base/crc32c}.c -lisal
}

# In the lab. lend NAME ARGS…, ring NAME ARGS…: a server on rxe0, when it listens;
# client HOW NAME PROGRAM ARGS…: one on rxe1 (HOW: run, start); says NAME PROGRAM ARGS…:
# one that speaks in words; stop_at N NAME PROGRAM ARGS…: one that has stopped before its
# Nth request; misled NAME RULE PROGRAM ARGS…: one with one request changed;
# end NAME…: stop servers; qps N: rxe0 has N QPs in RTS
REMOTE='
lend() { serve "$1" "$B/memory_server" "${@:2}" rxe0; }
ring() { serve "$1" "$B/ring_server" "${@:2}" rxe0; }
client() { "$1" "$2" "$B/$3" -j "${@:4}" 10.99.0.1 rxe1; }
says() { run "$1" "$B/$2" -q "${@:3}" 10.99.0.1 rxe1; }
stop_at() {
	SPY_STOP=ibv_post_send:$1 LD_PRELOAD=$spy client start "${@:2}"
	await halted "$2"
}
misled() {
	run "$1" "$B/sabotage" -o "$T/said" "$2" "$B/$3" -j "${@:4}" 10.99.0.1 rxe1
}
end() {
	local name
	for name; do kill "${pids[$name]}"; done
	reap "$@"
}
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
'

# on_rxe SCRIPT
on_rxe() { in_lab "$REMOTE$1"; }

assert_done() { # NAME…: exit 0 and no error
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" "0:" "$(rc_of "$name"):$(err_of "$name")"
	done
}

# sum FILTER NAME…: of what these printed
sum() {
	local filter=$1 name
	shift
	for name; do json "$name" "$filter"; done | awk '{ n += $1 } END { print n + 0 }'
}
