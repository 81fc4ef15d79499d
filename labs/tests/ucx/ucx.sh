# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154,SC2317
#
# ucx.sh - what the suites of ucx_echo and sock_echo share. They run on this
# host's loopback, over UCX's TCP, but for what is said to be in the lab.
#
#	host PROGRAM NAME [ARGS…]       a server on a port of its own, in the back
#	ask PROGRAM NAME [ARGS…]        a client of it, to its end
#	stop NAME [SIGNAL]              the server, to its end
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

export UCX_TLS=tcp UCX_NET_DEVICES=lo
unset UCX_LOG_LEVEL UCXPY_LOG_LEVEL

# build_ucx: the hostile peers and the stranger, into $N
build_ucx() {
	N=$B
	ulimit -c 0
	first_port=$((15000 + RANDOM % 4000))
	build_peer "$N" &&
		helper "$N/ucx_py_peer" -O1 labs/tests/ucx/ucx_driver.c -lucp -lucs -lcrypto &&
		helper "$N/ucx_peer" -O1 labs/tests/ucx/ucx_peer.c "$N/librdma_common.a" \
			-lucp -lucs -lcrypto -libverbs -ljansson
}

# ASan says this of each program that uses swapcontext; it is no finding.
NO_FINDING='WARNING: ASan doesn.t fully support makecontext'
err_of() { grep -vs "$NO_FINDING" "$T/$1.err"; }

# next_port: sets $port, which nobody listens on. Below the ephemeral ones.
next_port() {
	((++first_port))
	while listening "$first_port"; do ((++first_port)); done
	port=$first_port
}

host() {
	next_port
	serve "$2" "$B/$1" server -q -j -p "$port" "${@:3}"
}

# begin_ask: in the background; reap it
begin_ask() { start "$2" "$B/$1" client 127.0.0.1 -p "$port" "${@:3}"; }
ask() {
	begin_ask "$@"
	reap "$2"
}
# ask_forever PROGRAM NAME…: each is in the middle of its echoes then
ask_forever() {
	local name
	for name in "${@:2}"; do
		begin_ask "$1" "$name" -n 100000000
		await in_file 'send and receive$' "$T/$name.out"
	done
}

stop() {
	kill "-${2:-TERM}" "${pids[$1]}"
	reap "$1"
} 2>/dev/null

# assert_done NAME…: it ended with 0 and said nothing on stderr
assert_done() {
	local name
	for name; do
		assertEquals "exit code of $name ($(err_of "$name"))" 0 "$(rc_of "$name")"
		assertEquals "stderr of $name" '' "$(err_of "$name")"
	done
}

# Hostile clients, and what the server says of each.
BAD_CLIENTS='
wrong-checksum	error: .*wrong checksum in the peer info
die-before-info	error: .*waiting for its peer info: the peer is gone|sending my peer info: the peer is gone
huge-length	error: .*object of 9223372036854775808 bytes, the limit is
short-length	error: .*a message of 4 bytes came instead of 8
long-length	error: .*waiting for an object: a longer message came
short-object	error: .*a message of 99 bytes came instead of 100
long-object	error: .*bytes of an object: a longer message came
die-after-length	error: .*bytes of an object: the peer is gone
die-after-info	warning: .*gone without a control message, after 0
no-close	warning: .*gone without a control message, after 2
low-close-count	error: .*says close after 1 messages; 2 have come
bad-opcode	error: .*control message of 16 bytes, opcode 7
flood	error: .*bytes of an object: a longer message came'
# Those that say nothing
SILENT_CLIENTS='
short-info	error: .*waiting for its peer info: nothing came
high-close-count	error: .*waiting for an object: nothing came
idle	error: .*waiting for an object: nothing came'
# Hostile servers, and what the client says.
BAD_SERVERS='
wrong-checksum	wrong checksum in the peer info
short-info	waiting for its peer info: nothing came
die-before-info	is gone|ucp_ep_create|nothing came
echo	does not play ping-pong
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

# meet_bad_clients TABLE COUNTS SERVER-OPTION…: of each hostile client the server says one
# thing, which fits, and lets it go; a good one talks all the time. COUNTS are [all, failed].
meet_bad_clients() {
	local table=$1 counts=$2
	UCX_LOG_LEVEL=warn UCX_LOG_FILE=$T/ucx.log host ucx_echo server "${@:3}"
	ask_forever ucx_echo good
	each "$table" meet_bad_client
	stop good INT
	assert_error good 1 'stopped by a signal'
	ask ucx_echo after -q
	assert_done after
	stop server
	assertEquals 'exit code of the server' 0 "$(rc_of server)"
	assertEquals "$counts" "$(jq -c '[.clients, .failed]' "$T/server.out")"
	# What nobody has received, and requests that were not freed
	assert_not_in "$(cat "$T/ucx.log")" 'was not matched|was not returned to mpool'
}
meet_bad_client() {
	local before
	before=$(wc -l <"$T/server.err")
	run "bad.$1" timeout -k 1 15 "$N/ucx_peer" client 127.0.0.1 "$port" "$1" 2>/dev/null
	said() { tail -n "+$((before + 1))" "$T/server.err"; }
	says() { said | grep -qE -- "$1"; }
	await says "$2"
	assertEquals "$1: $(said)" 1 "$(said | grep -c '^error: \|^warning: ')"
	[[ $(rc_of "bad.$1") == 137 ]] || assertEquals "$1 was let go" 0 "$(rc_of "bad.$1")"
}

# meet_bad_servers TABLE: all at once, as most of them only wait; what a client says of each
meet_bad_servers() {
	local visits=()
	visit() {
		start "host.$1" timeout -k 1 20 "$N/ucx_peer" server "$port" "$1"
		await listening_or_ended "$port" "$pid"
		ask ucx_echo "guest.$1" -q -i "$2" -t "$2" ${3:+"$3"}
		stop "host.$1"
	}
	begin_visit() {
		local patience=20 bench=''
		[[ $2 != *'nothing came'* ]] || patience=2
		[[ $2 != *ping-pong* ]] || bench=-b
		next_port
		visit "$1" "$patience" "$bench" &
		visits+=("$!")
	}
	told() { assert_error "guest.$1" 1 "$2"; }
	each "$1" begin_visit
	wait "${visits[@]}"
	each "$1" told
}

# One side is told to stop, or killed, in the middle of it.
ends_in_the_middle() {
	local program signal
	for program in ucx_echo sock_echo; do
		for signal in INT TERM KILL; do
			host $program server
			ask_forever $program one two
			stop server $signal
			reap one two
			[[ $signal == KILL ]] || assert_done server
			assert_error one 1 'closed|gone|[Rr]eset|ENDPOINT_TIMEOUT'
			assert_error two 1 'closed|gone|[Rr]eset|ENDPOINT_TIMEOUT'
		done
		host $program server -c 1
		ask_forever $program client
		stop client INT
		reap server
		assert_error client 1 'stopped by a signal'
	done
}
