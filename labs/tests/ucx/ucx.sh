# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
#
# ucx.sh - what the suites of ucx_echo and sock_echo share. They run on this
# host's loopback, over UCX's TCP, but for what is said to be in the lab.
#
#	serve PROGRAM NAME [ARGS…]      a server on a port of its own, in the back
#	ask PROGRAM NAME [ARGS…]        a client of it, to its end
#	stop NAME [SIGNAL]              the server, to its end
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

export UCX_TLS=tcp UCX_NET_DEVICES=lo
unset UCX_LOG_LEVEL UCXPY_LOG_LEVEL

# build_ucx: the hostile peer, the independent driver and the units, into $N
build_ucx() {
	local flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wshadow
		-Wconversion -Wno-sign-conversion -D_GNU_SOURCE -Icommon)
	local ucx=(-lucp -lucs -lcrypto) jobs=() job rc=0
	N=$ROOT/$B/tests-ucx
	mkdir -p "$N"
	# common/ built with sanitizers needs them in the program too.
	! nm "$B/librdma_common.a" 2>/dev/null | grep -q '__asan_init' ||
		flags+=("-fsanitize=address,undefined" -fno-sanitize-recover=all)
	"${CC:-cc}" "${flags[@]}" -o "$N/ucx_driver" labs/tests/ucx/ucx_driver.c \
		"${ucx[@]}" &
	jobs+=("$!")
	build_peer "$N" &
	jobs+=("$!")
	"${CC:-cc}" "${flags[@]}" -o "$N/unit_ucx" labs/tests/ucx/unit_ucx.c \
		"$B/librdma_common.a" -lcrypto &
	jobs+=("$!")
	"${CC:-cc}" "${flags[@]}" -o "$N/ucx_peer" labs/tests/ucx/ucx_peer.c \
		"$B/librdma_common.a" "${ucx[@]}" -libverbs -ljansson &
	jobs+=("$!")
	for job in "${jobs[@]}"; do
		wait "$job" || rc=1
	done
	ulimit -c 0
	first_port=$((15000 + RANDOM % 4000))
	return "$rc"
}

# ASan says this of each program that uses swapcontext; it is no finding.
NO_FINDING='WARNING: ASan doesn.t fully support makecontext'
err_of() { grep -vs "$NO_FINDING" "$T/$1.err"; }

listening() { [[ -n $(ss -Htln "sport = :$1") ]]; }

# next_port: sets $port, which nobody listens on. Below the ephemeral ones.
next_port() {
	((++first_port))
	while listening "$first_port"; do ((++first_port)); done
	port=$first_port
}

serve() {
	next_port
	start "$2" "$B/$1" server -q -j -p "$port" "${@:3}"
	await listening_or_ended "$port" "$pid"
}

# begin_ask: in the background; reap it
begin_ask() {
	start "$2" "$B/$1" client 127.0.0.1 -p "$port" "${@:3}"
}
ask() {
	begin_ask "$@"
	reap "$2"
}

stop() {
	kill "-${2:-TERM}" "${pids[$1]}"
	reap "$1"
}

# assert_done NAME…: it ended with 0 and said nothing on stderr
assert_done() {
	local name
	for name; do
		assertEquals "exit code of $name ($(err_of "$name"))" 0 \
			"$(rc_of "$name")"
		assertEquals "stderr of $name" "" "$(err_of "$name")"
	done
}

# says_next NAME, says NAME PATTERN: NAME's stderr from says_next on
says_next() { said_before=$(stat -c %s "$T/$1.err"); }
said() { tail -c "+$((said_before + 1))" "$T/$1.err"; }
says() { said "$1" | grep -qE -- "$2"; }

# bad WHAT: a hostile client of the server on $port; NAME is bad.WHAT
bad() {
	run "bad.$1" timeout -k 1 15 "$N/ucx_peer" client 127.0.0.1 "$port" "$1" \
		2>/dev/null
}

# Hostile clients, and what the server says of each.
BAD_CLIENTS='
wrong-checksum	error: .*wrong checksum in the peer info
short-info	error: .*waiting for its peer info: nothing came
no-info	error: .*waiting for its peer info: nothing came
die-before-info	error: .*waiting for its peer info: the peer is gone|sending my peer info: the peer is gone
huge-length	error: .*object of 9223372036854775808 bytes, the limit is
most-length	error: .*object of 18446744073709551615 bytes, the limit is
short-length	error: .*a message of 4 bytes came instead of 8
long-length	error: .*waiting for an object: a longer message came
short-object	error: .*a message of 99 bytes came instead of 100
long-object	error: .*bytes of an object: a longer message came
die-after-length	error: .*bytes of an object: the peer is gone
die-after-info	warning: .*gone without a control message, after 0
close-after-length	error: .*bytes of an object: the peer has closed
bad-opcode	error: .*control message of 16 bytes, opcode 7
no-rounds	error: .*waiting for an object: a longer message came
flood	error: .*bytes of an object: a longer message came
idle	error: .*waiting for an object: nothing came'
# Those of the driver, and what the server says.
DRIVER_FAULTS='
wrong-checksum	error: .*wrong checksum
short-info	error: .*nothing came before the deadline
no-info	error: .*nothing came before the deadline
huge-length	error: .*object of 9223372036854775808 bytes
die-after-length	error: .*bytes of an object: the peer is gone
die-after-info	warning: .*gone without a control message
no-close	warning: .*gone without a control message, after 2
wrong-close-count	.
low-close-count	error: .*says close after 1 messages; 2 have come'
# Hostile servers, and what the client says.
BAD_SERVERS='
wrong-checksum	wrong checksum in the peer info
short-info	waiting for its peer info: nothing came
no-info	waiting for its peer info: nothing came
die-before-info	is gone|ucp_ep_create
wrong-byte	the echo differs: byte 11 of 12 is 0x65 instead of 0x64
wrong-size	the echo has 11 bytes instead of 12
silent	waiting for an object: nothing came
die-before-echo	waiting for an object: the peer is gone
close-before-echo	waiting for an object: the peer has closed
huge-length	object of 9223372036854775808 bytes'

# each TABLE FUNCTION: for each row
each() {
	local what pattern
	while IFS=$'\t' read -r what pattern; do
		[[ ! $what ]] || "$2" "$what" "$pattern"
	done <<<"$1"
}

# Those of a list that are noticed by what they do, and by what they do not.
loud() { grep -v 'nothing came' <<<"$1"; }
silent() { grep 'nothing came' <<<"$1"; }

# visit WHAT PATTERN: a client of a hostile server
visit() {
	local patience=20
	[[ $2 != *'nothing came'* ]] || patience=3
	start "host.$1" timeout -k 1 20 "$N/ucx_peer" server "$port" "$1"
	await listening_or_ended "$port" "$pid"
	ask ucx_echo "guest.$1" -q -i "$patience" -t "$patience"
	kill "${pids["host.$1"]}" 2>/dev/null
	reap "host.$1" 2>/dev/null
}

# bad_servers: all of them, at once: most of them only wait
# shellcheck disable=SC2317 # each() calls
bad_servers() {
	local visits=()
	begin_visit() {
		next_port
		visit "$@" &
		visits+=("$!")
	}
	told() { assert_error "guest.$1" 1 "$2"; }
	each "$BAD_SERVERS" begin_visit
	wait "${visits[@]}"
	each "$BAD_SERVERS" told
}

# What UCX says of each request that was not freed, or still waits, when its worker ends
assert_none_left() { assert_not_in "$(cat "$T/ucx.log")" 'was not returned to mpool'; }

# spied CMD…: with ucx_spy.so; SPY_UCX_FAIL and others say what that does
spied() {
	helper "$B/ucx_spy.so" -O1 -fPIC -shared labs/tests/ucx/ucx_spy.c
	LD_PRELOAD=$B/ucx_spy.so "$@"
}

# await_echoes CLIENT…: until each is in the middle of its echoes
await_echoes() {
	local name
	for name; do await in_file 'send and receive$' "$T/$name.out"; done
}
