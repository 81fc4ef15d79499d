# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# remote.sh - what the suites of memory_server, ring_server and their clients share.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted

# In the lab. lend NAME ARGS…: a memory_server on rxe0, when it listens; client HOW
# NAME PROGRAM ARGS…: one on rxe1 (HOW: run, start);
# misled NAME RULE PROGRAM ARGS…: one on rxe1 with one request changed;
# end NAME…: stop servers; qps N: rxe0 has N QPs in RTS; holder CELL…
REMOTE='
lend() { serve "$1" "$B/memory_server" "${@:2}" rxe0; }
ring() { serve "$1" "$B/ring_server" "${@:2}" rxe0; }
client() { "$1" "$2" "$B/$3" -j "${@:4}" 10.99.0.1 rxe1; }
stop_at() {
	local -x SPY_STOP=ibv_post_send:$1 LD_PRELOAD=${asan:+$asan:}$spy
	client start "${@:2}"
}
misled() {
	run "$1" "$B/sabotage" -o "$T/said" "$2" "$B/$3" -j "${@:4}" 10.99.0.1 rxe1
}
halted_or_ended() { ended "${pids[$1]}" || halted "$1"; }
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
