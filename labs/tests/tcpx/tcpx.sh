# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# tcpx.sh - what the suites of test_connection share. They run on this host, over
# loopback: an NCCL net plugin over TCP needs no RDMA device.
#
#	talk NAME [SERVER ARGS…] : [CLIENT ARGS…]   a pair, on a port of its own
#	talks NAME … : …                            the same in the background
#
# $shim, or $server_shim and $client_shim, go to net_shim.so as NET_SHIM.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

TIME_LIMIT=60 # seconds, of any program here

# The flags of the project's own programs, and the sanitizers' where $B has them.
net_flags() {
	flags=(-std=gnu11 -O2 -Wshadow -Wconversion -Wno-sign-conversion)
	# A library that was built with sanitizers needs them in the program too.
	! nm "$B/libnccl-net-lab.so" 2>/dev/null | grep -q '__asan_init' ||
		flags+=("-fsanitize=address,undefined" -fno-sanitize-recover=all)
}

# What the peer of a failing one says while it moves messages, and before: the
# bootstrap connection or the plugin's own, whichever it looks at first.
# shellcheck disable=SC2034 # for the suites
LOST='peer failed before sync point|the peer closed|'
LOST+='(isend|irecv|test)\(\) of plugin .* remote error'

# build_net: the shim (all versions, and each alone), its misuser and the peer,
# into $N
build_net() {
	local flags v jobs=() job rc=0
	local shim_c=(labs/tests/tcpx/net_shim.c labs/tests/tcpx/net_shim_tables.c)
	N=$ROOT/$B/tests-net
	net_flags
	helper "$N/net_shim.so" "${flags[@]}" -fPIC -fvisibility=hidden -shared \
		"${shim_c[@]}" &
	jobs+=("$!")
	for v in 5 6 7 8; do
		helper "$N/net_shim_v$v.so" "${flags[@]}" -O0 -fPIC \
			-fvisibility=hidden -shared -DONLY="$v" "${shim_c[@]}" &
		jobs+=("$!")
	done
	helper "$N/net_misuse" "${flags[@]}" labs/tests/tcpx/net_misuse.c &
	jobs+=("$!")
	build_peer "$N" &
	jobs+=("$!")
	for job in "${jobs[@]}"; do
		wait "$job" || rc=1
	done
	export NET_SHIM_REAL=$ROOT/$B/libnccl-net-lab.so
	ulimit -c 0
	first_port=$((20000 + RANDOM % 8000))
	return "$rc"
}

# The one in guest.sh reads all of /proc/net/tcp, where our closed connections
# are kept for a minute.
listening() { [[ -n $(ss -Htln "sport = :$1") ]]; }

# next_port: sets $port, which nobody listens on. Below the ephemeral ones.
next_port() {
	first_port=$((first_port + 1))
	while listening "$first_port"; do
		first_port=$((first_port + 1))
	done
	port=$first_port
}

# side NAME ARGS…: start a test_connection on $port
side() {
	start "$1" timeout -k 5 "$TIME_LIMIT" "$B/test_connection" -p "$port" \
		"${@:2}"
}

# server_side NAME ARGS…: and wait until it listens
server_side() {
	NET_SHIM=${server_shim-${shim-}} side "$@" server
	await listening_or_ended "$port" "$pid"
}

# client_side NAME ARGS…
client_side() {
	NET_SHIM=${client_shim-${shim-}} side "$@" client 127.0.0.1
	reap "$1"
}

talk_here() { both server_side client_side "$@"; }

talk() {
	next_port
	talk_here "$@"
}

# talks …: at most four at a time; then "wait".
talks() {
	while (($(jobs -pr | wc -l) >= 4)); do
		wait -n || :
	done
	next_port
	talk_here "$@" &
}

# with_shim: use it in this test. without_shim: the teaching plugin itself.
with_shim() { export UCCL_TCPX_PLUGIN_PATH=$N/net_shim.so; }
without_shim() { unset UCCL_TCPX_PLUGIN_PATH; }

# assert_fails NAME PATTERN: exit code 1, one error that matches, and otherwise
# nothing but a next step, strangers that were met, and what the plugin itself logs.
assert_fails() {
	local text
	text=$(err_of "$1")
	assertEquals "exit code of $1 ($text)" 1 "$(rc_of "$1")"
	assertEquals "errors of $1 in: $text" 1 "$(grep -c '^error: ' <<<"$text")"
	assert_in "$(grep '^error: ' <<<"$text")" "$2" "$1:"
	assertEquals "other lines of $1" "" \
		"$(grep -v '^error: \|^ next: \|^warning: .* still waiting\|^\[ncclNet\] \|^\[TCPX\] ' <<<"$text")"
}

# took SECONDS CMD…: it must not take longer
took() {
	local limit=$1 began=$EPOCHREALTIME
	shift
	"$@"
	assertTrue "$* took longer than $limit s" \
		"awk 'BEGIN{exit !($EPOCHREALTIME - $began <= $limit)}'"
}

# assert_json NAME FILTER VALUE: on both sides
assert_json() {
	local side
	for side in server client; do
		assertEquals "$2 of $1.$side" "$3" "$(json "$1.$side" "$2")"
	done
}

# assert_hostile_peers: net_hostile, and none of its cases fails. -rdynamic: what it
# defines of libc is the plugin's, too.
assert_hostile_peers() {
	local flags
	net_flags
	helper "$N/net_hostile" "${flags[@]}" -rdynamic labs/tests/tcpx/net_hostile*.c -ldl
	assertEquals 'net_hostile was compiled' 0 $?
	run hostile timeout 200 "$N/net_hostile" "$B/libnccl-net-lab.so"
	assertEquals "$(grep -v '^ok' "$T/hostile.out") $(err_of hostile)" 0 "$(rc_of hostile)"
	assert_in "$(<"$T/hostile.out")" '^118 cases, 0 failed$'
}

# build_driver, then drive NAME ARG…: net_driver, in the background
build_driver() {
	local flags
	net_flags
	helper "$N/net_driver" "${flags[@]}" labs/tests/tcpx/net_driver.c -ldl -lpthread
	assertEquals 'net_driver was compiled' 0 $?
}
drive() { start "$1" timeout 120 "$N/net_driver" "${@:2}"; }
