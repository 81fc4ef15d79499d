#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo: each byte comes back, many clients at once, a peer that
# knows nothing of this project, and peers that lie, stall or vanish.
#
# shellcheck disable=SC2016,SC2154 # scripts for the lab are quoted; guest.sh sets
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/ucx/ucx.sh
. "$ROOT/labs/tests/ucx/ucx.sh"

SIZES='0 1 8192 16777216'

test_units() {
	helper "$B/unit_task" -O1 labs/tests/ucx/unit_task.c "$B/librdma_common.a"
	here units "$B/unit_task"
	assertEquals "$(out_of units)" 0 "$(rc_of units)"
}

test_each_byte_comes_back() {
	local program size
	for program in ucx_echo sock_echo; do
		host $program server
		for size in $SIZES; do
			ask $program "$program.$size" -j -s "$size" -n 3
			assert_done "$program.$size"
			assertEquals "[$size,3]" "$(jq -c '[.size, .count]' "$T/$program.$size.out")"
		done
		ask $program text
		ask $program mine -q -m 'Grüß Gott'
		stop server INT
		assert_done server text mine
		assertEquals '[6,0,14,50356250]' "$(jq -c '[.clients, .failed, .objects, .bytes]' "$T/server.out")"
		assert_in "$(out_of text)" '^\[Step 2\] '
		assert_in "$(out_of text)" '^echoed 12 bytes: "hello, world"$'
		assertEquals 'echoed 11 bytes: "Grüß Gott"' "$(out_of mine)"
	done
	assertEquals 'tcp/lo socket' "$(json ucx_echo.1 .transport) $(json sock_echo.1 .transport)"
}

# Length and bytes each way, with the tags that were exchanged; then the close.
test_debug_lines() {
	local lines p='ep: 0x[0-9a-f]+, tag:'
	UCXPY_LOG_LEVEL=DEBUG host ucx_echo server -c 1
	UCXPY_LOG_LEVEL=DEBUG ask ucx_echo debug -q
	reap server
	lines=$(sed -nE 's/^\[[0-9]+\.[0-9]{6}\] \[[^ ]+:[0-9]+\] UCXPY  DEBUG //p' "$T/debug.err")
	assertEquals "$lines" 4 "$(grep -cE '^\[(Send|Recv) #' <<<"$lines")"
	tag() { grep -oE "$1: 0x[0-9a-f]+" <<<"$lines" | head -n 1 | sed 's/.* //'; }
	assert_in "$lines" "^\[Send #000\] $p $(tag msg-tag-send), nbytes: 8, type: "
	assert_in "$lines" "^\[Recv #001\] $p $(tag msg-tag-recv), nbytes: 12, type: "
	assert_in "$lines" "^\[Send shutdown\] $p $(tag ctrl-tag-send), close_after_n_recv: 2$"
	assert_in "$(err_of server)" "DEBUG \[Recv #001\] $p $(tag msg-tag-send), nbytes: 12"
}

# More than a worker of ucx_echo takes; the starts may keep two cores busy for long.
test_forty_clients() {
	local i names=()
	host ucx_echo server -c 40 -i 100 -t 100
	for ((i = 0; i < 40; i++)); do
		begin_ask ucx_echo "client.$i" -q -s 1000 -n 20 -i 100 -t 100
		names+=("client.$i")
	done
	reap "${names[@]}" server
	assert_done "${names[@]}" server
	assertEquals '[40,0,800]' "$(jq -c '[.clients, .failed, .objects]' "$T/server.out")"
}

test_measurements() {
	local program how
	for how in ucx_echo 'ucx_echo -B' sock_echo; do
		read -r program how <<<"$how"
		UCX_LOG_LEVEL=warn UCX_LOG_FILE=$T/ucx.log host "$program" server -l 3000000 -c 3 ${how:+"$how"}
		ask "$program" ping -j -b -n 500 ${how:+"$how"}
		ask "$program" big -q -b -n 5 -s 3000000
		ask "$program" over -q -b -s 3000001
		reap server
		assert_done ping big
		assert_error over 1 'does not play ping-pong with 3000001 bytes'
		assertEquals true "$(json ping '.half_round_trip_us |
			.min > 0 and .min <= .median and .median <= .p99 and .p99 <= .max')"
		assertEquals '["ping-pong",8,500]' "$(jq -c '[.mode, .size, .count]' "$T/ping.out")"
		assert_not_in "$(cat "$T/ucx.log" 2>/dev/null)" 'was not returned to mpool'
	done
}

test_strangers() {
	host ucx_echo server
	run http "$N/peer" connect 127.0.0.1 "$port" text=GET fill=999 close
	run reset "$N/peer" connect 127.0.0.1 "$port" fill=70000 reset
	ask ucx_echo after -q
	stop server
	assert_done after server
}

test_limit() {
	local program
	for program in ucx_echo sock_echo; do
		host $program server -l 1000
		ask $program fits -q -s 1000
		ask $program over -q -s 1001
		ask $program after -q
		stop server
		assert_done fits after
		assert_error over 1 'gone|closed|Connection reset'
		assert_error server 0 'object of 1001 bytes, the limit is 1000'
	done
}

# A client, then a server, that follow UCX-Py alone.
test_independent_peer() {
	local size
	host ucx_echo server -c 4
	for size in $SIZES; do
		run "to.$size" timeout 30 "$N/ucx_py_peer" client 127.0.0.1 "$port" "$size" 3
		assertEquals "to.$size: $(err_of "to.$size")" 0 "$(rc_of "to.$size")"
	done
	reap server
	assert_done server
	next_port
	serve driver timeout 60 "$N/ucx_py_peer" server "$port" 4
	for size in $SIZES; do
		ask ucx_echo "from.$size" -q -s "$size" -n 3
		assert_done "from.$size"
	done
	reap driver
	assertEquals "$(err_of driver)" 0 "$(rc_of driver)"
}

test_bad_clients() { meet_bad_clients "$BAD_CLIENTS" '[15,11]' -i 60 -t 60; }

# Only who says nothing is met by a server that has little time.
test_silent_clients() { meet_bad_clients "$SILENT_CLIENTS" '[5,3]' -i 2 -t 2; }

test_bad_servers() { meet_bad_servers "$BAD_SERVERS"; }

test_no_server() {
	next_port
	ask ucx_echo none -q -t 1
	assert_error none 1 "ucp_ep_create\(127.0.0.1, TCP port $port\): UCS_ERR"
	# It takes the connection, and says nothing.
	host ucx_echo silent
	freeze silent
	ask ucx_echo waits -q -t 1
	assert_error waits 1 "ucp_ep_create\(127.0.0.1, TCP port $port\): no answer before the deadline"
	kill -KILL "${pids[silent]}"
	# It has all its clients.
	host ucx_echo server -c 1
	ask_forever ucx_echo one
	ask ucx_echo two -q -t 2
	assert_error two 1 'UCS_ERR_REJECTED'
	stop one
	# It comes late.
	next_port
	begin_ask ucx_echo late -t 20
	await in_file 'connect to' "$T/late.out"
	start server "$B/ucx_echo" server -q -j -p "$port" -c 1
	reap late server
	assert_done late server
}

test_port_in_use() {
	local program
	for program in ucx_echo sock_echo; do
		host $program server
		run second timeout 10 "$B/$program" server -q -p "$port"
		assert_error second 1 "TCP port $port.*BUSY|TCP port $port.*EADDRINUSE"
		assert_in "$(err_of second)" '^ next: .*ss -ltnp'
		stop server
		# Again at once: no minute of TIME_WAIT.
		serve server "$B/$program" server -p "$port"
		ask $program again -q
		await in_file ': closed( after [1-9][0-9]* messages)?$' "$T/server.out"
		stop server
		assert_done again server
	done
}

test_transport_that_is_not_there() {
	local tls="^warning: UCX: transport 'no_such_tl' is not available, please use one or more of: .*tcp"
	UCX_TLS=no_such_tl run none "$B/ucx_echo" server -q
	assertEquals 1 "$(rc_of none)"
	assert_in "$(err_of none)" "$tls"
	assert_in "$(err_of none)" '^error: ucp_init\(UCX_TLS=no_such_tl, .*NO_DEVICE'
	# One of two: it says so, and takes the other.
	UCX_TLS=tcp,no_such_tl host ucx_echo server -c 1
	ask ucx_echo client -q
	reap server
	assert_done client
	assert_in "$(err_of server)" "$tls"
}

# Who waits sleeps.
test_waiting_costs_nothing() {
	local ticks
	host ucx_echo server
	ask ucx_echo client -q
	nap 1
	ticks=$(awk '{ print $14 + $15 }' "/proc/${pids[server]}/stat")
	stop server
	assert_done client server
	assertTrue "$ticks ticks in a second" "((ticks < 40))"
}

test_ends_in_the_middle() {
	ends_in_the_middle
	next_port
	begin_ask ucx_echo connecting
	await in_file 'connect to' "$T/connecting.out"
	stop connecting
	assert_error connecting 1 'stopped by a signal'
}

test_in_the_lab() {
	local size
	ucx_on_rxe || return 0
	in_lab '
		# over TLS DEVICE DEVICE SIZE…: a server, and a client for each size
		over() {
			export UCX_TLS=$1
			UCX_NET_DEVICES=$2 serve "$1.server" "$B/ucx_echo" server -q -j -c $(($# - 3)) -p $port -t 60
			for size in "${@:4}"; do
				UCX_NET_DEVICES=$3 run "$1.$size" "$B/ucx_echo" client 10.99.0.1 -p $port -j -s "$size" -t 60
			done
			reap "$1.server"
		}
		seen() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }
		port=2100
		# A READ is answered by a flood of packets: by fewer than the 1000
		# that the receiving kernel has room for. The rest would be lost.
		export UCX_RC_VERBS_MAX_GET_ZCOPY=1m
		seen >"$T/before.packets"
		over rc_verbs rxe0:1 rxe1:1 0 12 8192 8388608
		seen >"$T/after.packets"
		over ud_verbs rxe0:1 rxe1:1 12
		over tcp veth0 veth1 12
	' || return 0
	for size in rc_verbs.{0,12,8192,8388608} ud_verbs.12 tcp.12; do
		assert_done "$size" "${size%.*}.server"
		assert_in "$(json "$size" .transport)" "^${size%.*}/(rxe1:1|veth1)$"
	done
	# 8 MiB and more came in packets of at most 4096 bytes.
	assertTrue 'packets that rxe0 received' "(($(<"$T/after.packets") - $(<"$T/before.packets") > 2048))"
}

# The parser is the same in both, and sock_echo is quick to start.
test_wrong_usage() {
	local pattern words
	while IFS='|' read -r pattern words; do
		# shellcheck disable=SC2086 # words
		usage_error "$pattern" sock_echo $words
	done <<-'END'
		role is missing|
		role is not server or client: peer|peer
		too many arguments: more|server more
		--port is not|server --port=65536
		--limit is not|server --limit=4k
		--count is not|client 127.0.0.1 --count=0
		--timeout is not|server --timeout=x
		are the client's|server -s 1
		is the server's|client 127.0.0.1 -c 1
		does not go with|client 127.0.0.1 -m x -s 1
		option|--nonsense server
	END
	usage_error 'role is missing' ucx_echo
	here help "$B/ucx_echo" --help
	assertEquals 0 "$(rc_of help)"
	assert_in "$(out_of help)" '^usage: ucx_echo server'
}

oneTimeSetUp() { build_ucx; }

. shunit2
