# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# tcpx.sh - what the suites of test_connection share. They run on this host, over
# loopback: an NCCL net plugin over TCP needs no RDMA device.
#
#	talk NAME [SERVER ARGS…] : [CLIENT ARGS…]   a pair, on a port of its own
#	talks NAME … : …                            the same in the background
#	pairs                                       a table of them, see below
#
# $server_shim and $client_shim go to net_shim.so as NET_SHIM.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

TIME_LIMIT=60 # seconds, of any program here

# What the peer of a failing one says while it moves messages, and before: the
# bootstrap connection or the plugin's own, whichever it looks at first.
# shellcheck disable=SC2034 # for the suites
{
	LOST='peer failed before sync point|the peer closed|(isend|irecv|test)\(\) of plugin .* remote error'
	READY="$LOST|connect\(dev 0\) of plugin .* returned 2"
	ABSENT='waiting for a client|no server listened'
}

# build_net: the shim, one that has only v6, and the strangers, into $N
build_net() {
	local flags shim=(labs/tests/tcpx/net_shim.c labs/tests/tcpx/net_shim_tables.c)
	N=$ROOT/$B/tests-net
	# The flags of the project's own programs; the sanitizers', too, where $B has them.
	flags=(-std=gnu11 -O2 -Wshadow -Wconversion -Wno-sign-conversion)
	! nm "$B/libnccl-net-lab.so" 2>/dev/null | grep -q '__asan_init' ||
		flags+=("-fsanitize=address,undefined" -fno-sanitize-recover=all)
	helper "$N/net_shim.so" "${flags[@]}" -fPIC -fvisibility=hidden -shared "${shim[@]}" &&
		helper "$N/net_shim_v6.so" "${flags[@]}" -fPIC -fvisibility=hidden -shared -DONLY_V6 "${shim[@]}" &&
		helper "$N/net_hostile" "${flags[@]}" labs/tests/tcpx/net_hostile.c -ldl &&
		helper "$N/net_driver" "${flags[@]}" labs/tests/tcpx/net_driver.c -ldl &&
		build_peer "$N" || return
	export NET_SHIM_REAL=$ROOT/$B/libnccl-net-lab.so
	ulimit -c 0
	port=$((20000 + RANDOM % 8000))
}

# The one in guest.sh reads all of /proc/net/tcp, where our closed connections
# are kept for a minute.
listening() { [[ -n $(ss -Htln "sport = :$1") ]]; }

# next_port: sets $port, which nobody listens on. Below the ephemeral ones.
next_port() {
	port=$((port + 1))
	while listening "$port"; do port=$((port + 1)); done
}

# side NAME ARGS…: start a test_connection on $port
side() { start "$1" timeout -k 5 "$TIME_LIMIT" "$B/test_connection" -p "$port" "${@:2}"; }

# server_side NAME ARGS…: and wait until it listens
server_side() {
	NET_SHIM=${server_shim-} side "$@" server
	await listening_or_ended "$port" "$pid"
}

# client_side NAME ARGS…
client_side() {
	NET_SHIM=${client_shim-} side "$@" client 127.0.0.1
	reap "$1"
}

talk() {
	next_port
	both server_side client_side "$@"
}

# at_most_four: of what runs in the background; then "wait" for all.
at_most_four() {
	while (($(jobs -pr | wc -l) >= 4)); do wait -n || :; done
	next_port
}

talks() {
	at_most_four
	both server_side client_side "$@" &
}

# judge NAME SAYS: "any": whatever; "ok": 0, and silent; "warning: …": 0, and this warning; "139 …": this
# exit code and this error; else 1 and this error, and otherwise nothing but a next step,
# strangers that were met, and what the plugin itself logs.
judge() {
	local text code=1 says=$2 kind=error
	[[ $says != any && $says != none ]] || return 0
	text=$(err_of "$1")
	case $says in
	ok) code=0 kind=none ;;
	warning:*) code=0 kind=warning ;;
	139\ *) code=139 says=${2#* } ;;
	esac
	assertEquals "exit code of $1 ($text)" "$code" "$(rc_of "$1")"
	assertEquals "errors of $1 in: $text" "$([[ $kind != error ]] || echo 1)" \
		"$(grep -c '^error: ' <<<"$text" | grep -v '^0$')"
	[[ $kind == none ]] || assert_in "$(grep "^$kind: " <<<"$text")" "$says" "$1:"
	assertEquals "other lines of $1" "" \
		"$(grep -v "^$kind: \|^ next: \|^warning: .* still waiting\|^\[ncclNet\] \|^\[TCPX\] " <<<"$text")"
}

# pairs ARGS <TABLE: through the shim, a row each: NAME; the server's NET_SHIM; the client's;
# what judge expects of the server; of the client, or "none": none comes; SERVER ARGS : CLIENT
# ARGS, if not ARGS
pairs() {
	local name server_shim client_shim server client args rows row
	local -x UCCL_TCPX_PLUGIN_PATH=$N/net_shim.so
	mapfile -t rows
	for row in "${rows[@]}"; do
		IFS=';' read -r name server_shim client_shim server client args <<<"$row"
		read -ra args <<<"${args:-$1}"
		if [[ $client == none ]]; then
			at_most_four
			NET_SHIM=$server_shim run "$name.server" timeout "$TIME_LIMIT" "$B/test_connection" -p "$port" "${args[@]}" server &
		else
			talks "$name" "${args[@]}"
		fi
	done
	wait
	for row in "${rows[@]}"; do
		IFS=';' read -r name _ _ server client _ <<<"$row"
		judge "$name.server" "$server"
		judge "$name.client" "$client"
	done
}

# assert_json NAME FILTER VALUE: on both sides
assert_json() {
	local side
	for side in server client; do
		assertEquals "$2 of $1.$side" "$3" "$(json "$1.$side" "$2")"
	done
}
