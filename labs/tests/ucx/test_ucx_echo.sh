#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo: each byte comes back, many clients at once, and a peer that
# knows nothing of this project.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/ucx/ucx.sh
. "$ROOT/labs/tests/ucx/ucx.sh"

SIZES='0 1 12 8192 67108864'

test_units() {
	run units "$N/unit_ucx"
	assertEquals "$(out_of units)" 0 "$(rc_of units)"
	assert_in "$(out_of units)" '^ok hash64bits\(1, 2\)$'
	assert_not_in "$(out_of units)" WRONG
}

test_sizes() {
	local program size
	for program in ucx_echo sock_echo; do
		serve $program server -c 5
		for size in $SIZES; do
			ask $program "$program.$size" -j -s "$size" -n 3
			assert_done "$program.$size"
			assertEquals "[$size,3]" "$(jq -c '[.size, .count]' \
				"$T/$program.$size.out")"
		done
		reap server
		assert_done server
		assertEquals '[5,0,15,201351207]' "$(jq -c \
			'[.clients, .failed, .objects, .bytes]' "$T/server.out")"
	done
	assertEquals tcp/lo "$(json ucx_echo.12 .transport)"
	assertEquals socket "$(json sock_echo.12 .transport)"
}

test_text_run() {
	local program
	for program in ucx_echo sock_echo; do
		serve $program server
		ask $program text
		ask $program mine -q -m 'Grüß Gott'
		ask $program empty -q -m ''
		stop server INT
		assert_done server text mine empty
		assert_in "$(out_of text)" '^echoed 12 bytes: "hello, world"$'
		assert_in "$(out_of text)" '^\[Step 2\] '
		assertEquals 'echoed 11 bytes: "Grüß Gott"' "$(out_of mine)"
		assertEquals 'echoed 0 bytes: ""' "$(out_of empty)"
	done
	assert_in "$(LC_ALL=C out_of text)" '^\[Step 1\] connect'
}

# Length and bytes each way, with the tags that were exchanged; then the close.
test_debug_lines() {
	local lines
	UCXPY_LOG_LEVEL=DEBUG serve ucx_echo server -c 1
	UCXPY_LOG_LEVEL=DEBUG ask ucx_echo debug -q
	reap server
	lines=$(sed -nE 's/^\[[0-9]+\.[0-9]{6}\] \[[^ ]+:[0-9]+\] UCXPY  DEBUG //p' \
		"$T/debug.err")
	assertEquals "$lines" 4 "$(grep -cE '^\[(Send|Recv) #' <<<"$lines")"
	tag() { grep -oE "$1: 0x[0-9a-f]+" <<<"$lines" | head -n 1 | sed 's/.* //'; }
	local p='ep: 0x[0-9a-f]+, tag: '
	assert_in "$lines" "^\[Send #000\] $p$(tag msg-tag-send), nbytes: 8, type: "
	assert_in "$lines" "^\[Send #001\] $p$(tag msg-tag-send), nbytes: 12, type: "
	assert_in "$lines" "^\[Recv #000\] $p$(tag msg-tag-recv), nbytes: 8, type: "
	assert_in "$lines" "^\[Recv #001\] $p$(tag msg-tag-recv), nbytes: 12, type: "
	assert_in "$lines" "^\[Send shutdown\] $p$(tag ctrl-tag-send), close_after_n_recv: 2$"
	assert_in "$(err_of server)" \
		"DEBUG \[Recv #001\] $p$(tag msg-tag-send), nbytes: 12"
	assert_in "$(err_of server)" \
		"DEBUG \[Recv shutdown\] $p$(tag ctrl-tag-send)"
}

test_hundred_clients() {
	local program i names=()
	for program in ucx_echo sock_echo; do
		# The starts of a hundred programs may keep two cores busy for long.
		serve $program server -c 100 -i 100 -t 100
		names=()
		for ((i = 0; i < 100; i++)); do
			begin_ask $program "client.$i" -q -s 1000 -n 20 -i 100 -t 100
			names+=("client.$i")
		done
		reap "${names[@]}" server
		assert_done "${names[@]}" server
		assertEquals '[100,0,2000]' "$(jq -c \
			'[.clients, .failed, .objects]' "$T/server.out")"
	done
}

test_measurements() {
	local program how
	for program in ucx_echo sock_echo; do
		for how in '' -B; do
			# shellcheck disable=SC2086 # one flag or none
			UCX_LOG_LEVEL=warn UCX_LOG_FILE=$T/ucx.log serve $program server -c 3 $how
			# shellcheck disable=SC2086
			ask $program ping -j -b -n 500 $how
			# shellcheck disable=SC2086
			ask $program ping0 -q -b -n 5 -s 0 $how
			# shellcheck disable=SC2086
			ask $program big -q -b -n 5 -s 3000000 $how
			reap server
			assert_done ping ping0 big server
			assertEquals true "$(json ping '.half_round_trip_us |
				.min > 0 and .min <= .median and .median <= .p99
				and .p99 <= .max')"
			assert_none_left
			assertEquals '["ping-pong",8,500]' "$(jq -c \
				'[.mode, .size, .count]' "$T/ping.out")"
		done
	done
	serve ucx_echo server -l 100 -c 1
	ask ucx_echo over -q -b -s 101
	assert_error over 1 'does not play ping-pong with 101 bytes'
	reap server
}

# Not UCX at all.
test_strangers() {
	serve ucx_echo server
	run http timeout 5 "$N/peer" connect 127.0.0.1 "$port" text=GET fill=999 close
	run reset timeout 5 "$N/peer" connect 127.0.0.1 "$port" fill=70000 reset
	start mute timeout 5 "$N/peer" connect 127.0.0.1 "$port" fill=3
	ask ucx_echo after -q
	stop server
	kill "${pids[mute]}" 2>/dev/null
	assert_done after server
}

# What nobody receives is dropped while the server runs, whether it sleeps or not.
test_strays_do_not_stay() {
	local how
	for how in '' -B; do
		rm -f "$T/calls"
		# shellcheck disable=SC2086 # one flag or none
		SPY_UCX_LOG=$T/calls spied serve ucx_echo host $how
		start stray "$N/ucx_peer" client 127.0.0.1 "$port" stray
		await in_file '^ucp_tag_msg_recv_nbx$' "$T/calls" || fail "ucx_echo $how keeps them"
		stop host
		reap stray
		assertEquals "$(err_of host)$(err_of stray)" 0,0 "$(rc_of host),$(rc_of stray)"
	done
}

test_limit() {
	local program
	for program in ucx_echo sock_echo; do
		serve $program server -l 1000
		ask $program fits -q -s 1000
		ask $program over -q -s 1001
		ask $program after -q
		stop server
		assert_done fits after
		assert_error over 1 'gone|closed|Connection reset'
		assert_error server 0 'object of 1001 bytes, the limit is 1000'
	done
}

test_only_an_echo_server() {
	next_port
	start host timeout 20 "$N/ucx_peer" server "$port" echo
	await listening_or_ended "$port" "$pid"
	ask ucx_echo guest -q -b
	reap host
	assert_error guest 1 'does not play ping-pong'
}

# A client, then a server, that follow UCX-Py alone.
test_independent_peer() {
	local size
	serve ucx_echo server -c 5
	for size in $SIZES; do
		run "to.$size" timeout 30 "$N/ucx_driver" client 127.0.0.1 "$port" \
			--size "$size" --count 3 --timeout 5
		assertEquals "to.$size: $(err_of "to.$size")" 0 "$(rc_of "to.$size")"
	done
	reap server
	assert_done server
	next_port
	start driver timeout 60 "$N/ucx_driver" server "$port" --clients 6 --timeout 5
	await listening_or_ended "$port" "$pid"
	for size in $SIZES; do
		ask ucx_echo "from.$size" -q -s "$size" -n 3
		assert_done "from.$size"
	done
	ask ucx_echo text -q
	reap driver
	assertEquals "$(out_of driver) $(err_of driver)" 0 "$(rc_of driver)"
	assert_done text
}

test_no_server() {
	local attempts
	next_port
	ask ucx_echo none -q -t 1
	assert_error none 1 "ucp_ep_create\(127.0.0.1, TCP port $port\): UCS_ERR"
	ask sock_echo sock -q -t 1
	assert_error sock 1 'ECONNREFUSED'
	run name "$B/ucx_echo" client no.such.host.invalid -q -t 1
	assert_error name 1 'getaddrinfo\("no.such.host.invalid"\)'
	# It takes the connection, and says nothing.
	serve ucx_echo silent
	freeze silent
	ask ucx_echo waits -q -t 1
	assert_error waits 1 "ucp_ep_create\(127.0.0.1, TCP port $port\): no answer before the deadline"
	kill -CONT "${pids[silent]}"
	stop silent
	# It has all its clients.
	serve ucx_echo server -c 1
	begin_ask ucx_echo one -n 100000000
	await_echoes one
	ask ucx_echo two -q -t 5
	stop one
	reap server
	assert_error two 1 'UCS_ERR_REJECTED'
	# It comes late.
	next_port
	SPY_UCX_LOG=$T/calls spied begin_ask ucx_echo late -q
	nap 0.5
	start server "$B/ucx_echo" server -q -j -p "$port" -c 1
	reap late server
	assert_done late server
	attempts=$(grep -c '^ucp_ep_create$' "$T/calls")
	assertTrue "$attempts attempts" '((attempts > 1))'
	assertEquals 'each is closed' "$attempts" "$(grep -c '^ucp_ep_close_nbx$' "$T/calls")"
}

test_port_in_use() {
	local program
	local -A closed=([ucx_echo]=' after [1-9][0-9]* messages' [sock_echo]='')
	for program in ucx_echo sock_echo; do
		serve $program server
		run second timeout 10 "$B/$program" server -q -p "$port"
		assert_error second 1 "TCP port $port.*BUSY|TCP port $port.*EADDRINUSE"
		assert_in "$(err_of second)" '^ next: .*ss -ltnp'
		stop server
		# Again at once: no minute of TIME_WAIT.
		start server "$B/$program" server -p "$port"
		await listening_or_ended "$port" "$pid"
		ask $program again -q
		stop server
		assert_done again server
		assert_in "$(out_of server)" ": closed${closed[$program]}$"
	done
}

test_transport_that_is_not_there() {
	local tls='no_such_tl is not available, please use one or more of: .*tcp'
	tls=${tls/no_such_tl/\'no_such_tl\'}
	UCX_TLS=no_such_tl run none "$B/ucx_echo" server -q
	assertEquals 1 "$(rc_of none)"
	assert_in "$(err_of none)" "^warning: UCX: transport $tls"
	assert_in "$(err_of none)" '^error: ucp_init\(UCX_TLS=no_such_tl, .*NO_DEVICE'
	assert_in "$(err_of none)" '^ next: .*ucx_info -d'
	assertEquals "" "$(out_of none)"
	# One of two: it says so, and takes the other.
	UCX_TLS=tcp,no_such_tl serve ucx_echo server -c 1
	ask ucx_echo client -q
	reap server
	assert_done client
	assertEquals 0 "$(rc_of server)"
	assert_in "$(err_of server)" "^warning: UCX: transport $tls"
	UCX_NET_DEVICES=no_such_dev run device "$B/ucx_echo" server -q
	assert_in "$(err_of device)" '^error: ucp_init\(.*UCX_NET_DEVICES=no_such_dev\)'
}

# Who waits sleeps; and a client that goes lets UCX work until the other side has left.
test_waiting_costs_nothing() {
	local ticks
	serve ucx_echo server
	SPY_UCX_LOG=$T/calls spied ask ucx_echo client -q
	nap 2
	ticks=$(awk '{ print $14 + $15 }' "/proc/${pids[server]}/stat")
	stop server
	assert_done client server
	assertTrue "$ticks ticks while it waited for two seconds" "((ticks < 50))"
	assertEquals ucp_worker_progress "$(tac "$T/calls" | sed -n '/^ucp_ep_close_nbx$/ { n; p; q }')"
}

test_in_the_lab() {
	local size
	ucx_on_rxe || return 0
	in_lab '
		export UCX_TLS=rc_verbs
		# A READ is answered by a flood of packets: by fewer than the 1000
		# that the receiving kernel has room for. The rest would be lost.
		export UCX_RC_VERBS_MAX_GET_ZCOPY=1m
		seen() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }
		seen >"$T/packets.before"
		UCX_NET_DEVICES=rxe0:1 start server "$B/ucx_echo" server -q -j -c 6 -p 2100 -t 60
		await listening_or_ended 2100 "$pid"
		export UCX_NET_DEVICES=rxe1:1
		for size in 0 1 12 8192 67108864; do
			run "rc.$size" timeout 60 "$B/ucx_echo" client 10.99.0.1 -p 2100 \
				-j -s $size -t 60
		done
		run ping timeout 60 "$B/ucx_echo" client 10.99.0.1 -p 2100 -j -b -n 200 \
			-t 60
		reap server
		seen >"$T/packets.after"
		export UCX_TLS=ud_verbs
		UCX_NET_DEVICES=rxe0:1 start ud.server "$B/ucx_echo" server -q -j -c 1 \
			-p 2101
		await listening_or_ended 2101 "$pid"
		run ud timeout 60 "$B/ucx_echo" client 10.99.0.1 -p 2101 -j -t 30
		reap ud.server
		export UCX_TLS=tcp
		UCX_NET_DEVICES=veth0 start tcp.server "$B/ucx_echo" server -q -j -c 1 \
			-p 2102
		await listening_or_ended 2102 "$pid"
		UCX_NET_DEVICES=veth1 run tcp timeout 60 "$B/ucx_echo" client \
			10.99.0.1 -p 2102 -j -s 1000000 -t 30
		reap tcp.server
	' || return 0
	assert_done server ping ud ud.server tcp tcp.server
	for size in $SIZES; do
		assert_done "rc.$size"
		assertEquals '"rc_verbs/rxe1:1"' "$(jq .transport "$T/rc.$size.out")"
	done
	assertEquals '"ud_verbs/rxe1:1"' "$(jq .transport "$T/ud.out")"
	assertEquals '"tcp/veth1"' "$(jq .transport "$T/tcp.out")"
	# 64 MiB and more came in packets of at most 4096 bytes.
	assertTrue "packets that rxe0 received" \
		"(($(cat "$T/packets.after") - $(cat "$T/packets.before") > 16384))"
}

# usage_error PATTERN ARGS…: the parser is the same in both, and sock_echo is
# quick to start.
usage_error() {
	run usage timeout 10 "$B/${program:-sock_echo}" "${@:2}"
	assert_error usage 2 "$1"
	assert_in "$(err_of usage)" '^ next: .*--help' "$*"
	assertEquals "stdout of $*" "" "$(out_of usage)"
}

test_wrong_usage() {
	local value
	program=ucx_echo usage_error 'role is missing'
	program=ucx_echo usage_error 'too many arguments: more' server more
	usage_error 'role is missing'
	usage_error 'role is not server or client: peer' peer
	usage_error 'server is missing' client
	usage_error 'server is missing' client ''
	usage_error 'too many arguments: more' server more
	usage_error 'too many arguments: more' client 127.0.0.1 more
	for value in 0 65536 x -1 ''; do
		usage_error '--port is not' server "--port=$value"
	done
	for value in -1 1073741825 4k ''; do
		usage_error '--size is not' client 127.0.0.1 "--size=$value"
		usage_error '--limit is not' server "--limit=$value"
	done
	for value in 0 100000001 x; do
		usage_error '--count is not' client 127.0.0.1 "--count=$value"
		usage_error '--clients is not' server "--clients=$value"
		usage_error '--timeout is not' server "--timeout=$value"
		usage_error '--info-timeout is not' server "--info-timeout=$value"
	done
	usage_error "are the client's" server -s 1
	usage_error "are the client's" server -m x
	usage_error "are the client's" server -n 1
	usage_error "are the client's" server -b
	usage_error "is the server's" client 127.0.0.1 -c 1
	usage_error 'does not go with' client 127.0.0.1 -m x -s 1
	usage_error 'does not go with' client 127.0.0.1 -m x -b
	usage_error option --nonsense server
	usage_error option -x server
	usage_error 'option|argument' server --port
	usage_error 'option|argument' --json=yes server
	run help "$B/ucx_echo" --help
	assertEquals 0 "$(rc_of help)"
	assert_in "$(out_of help)" '^usage: ucx_echo server'
	run help "$B/sock_echo" --help
	assert_in "$(out_of help)" '^usage: sock_echo server'
}

test_full_disk() {
	local rc=0
	serve ucx_echo server
	timeout 10 "$B/ucx_echo" client 127.0.0.1 -p "$port" -j >/dev/full \
		2>"$T/full.err" || rc=$?
	echo "$rc" >"$T/full.rc"
	stop server
	assert_error full 1 'could not be written'
}

oneTimeSetUp() { build_ucx; }

. shunit2
