#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo: each byte comes back, many clients at once, peers that
# lie, stall or vanish, and a peer that knows nothing of this project.
#
# shellcheck disable=SC2016,SC2317 # scripts for the lab are quoted, each() calls
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

# What UCX says of each request that was not freed, or still waits, when its worker ends
assert_none_left() { assert_not_in "$(cat "$T/ucx.log")" 'was not returned to mpool'; }

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

# The server's descriptors, with $fds of them at an earlier time.
count_fds() { find "/proc/${pids[server]}/fd" -type l | wc -l; }
same_fds() { (($(count_fds) <= fds)); }

# One good client talks all the time while each of the bad ones comes.
# meet_bad_clients LIST COUNTS SERVER_OPTION…
meet_bad_clients() {
	local fds list=$1 counts=$2
	UCX_LOG_LEVEL=warn UCX_LOG_FILE=$T/ucx.log serve ucx_echo server "${@:3}"
	ask ucx_echo before -q
	fds=$(count_fds)
	begin_ask ucx_echo good -q -n 100000000
	meets() {
		says_next server
		bad "$1"
		await says server "$2"
		assertEquals "$1: $(said server)" 1 \
			"$(said server | grep -c '^error: \|^warning: ')"
		assertTrue "the other client lives after $1" \
			"kill -0 ${pids[good]}"
		[[ $1 == die-* ]] || assertEquals "$1 was let go" 0 "$(rc_of "bad.$1")"
	}
	each "$list" meets
	stop good INT
	assert_error good 1 'stopped by a signal'
	ask ucx_echo after -q
	assert_done before after
	# What the bad ones had is given back.
	await same_fds
	stop server
	assertEquals "exit code" 0 "$(rc_of server)"
	assert_not_in "$(cat "$T/ucx.log")" 'was not matched'
	assert_none_left
	assertEquals "$counts" "$(jq -c '[.clients, .failed]' "$T/server.out")"
}

# Only who says nothing is met by a server that has little time.
test_bad_clients() { meet_bad_clients "$(loud "$BAD_CLIENTS")" '[17,13]' -i 60 -t 60; }

test_silent_clients() { meet_bad_clients "$(silent "$BAD_CLIENTS")" '[6,3]' -i 3 -t 4; }

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

# spied CMD…: with ucx_spy.so; SPY_UCX_FAIL and others say what that does
spied() {
	helper "$B/ucx_spy.so" -O1 -fPIC -shared labs/tests/ucx/ucx_spy.c
	LD_PRELOAD=$B/ucx_spy.so "$@"
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

# After sixteen clients another worker takes over. There is none, or it cannot wake us:
# said once, and the old one goes on; sixteen clients later it is tried again.
test_no_room_for_another_worker() {
	local call fds i
	for call in ucp_worker_create ucp_worker_get_efd; do
		SPY_UCX_FAIL=$call:3+ spied serve ucx_echo server
		ask ucx_echo c1 -q
		fds=$(count_fds)
		for i in {2..34}; do
			ask ucx_echo "c$i" -q
			assert_done "c$i"
		done
		assert_done c1
		await same_fds
		stop server
		assertEquals "exit code" 0 "$(rc_of server)"
		assertEquals "$(err_of server)" $'error\nerror' \
			"$(err_of server | grep '^error: ' | sed "s/: $call(): .*//")"
		assert_in "$(out_of server)" '"clients": ?34,'
	done
}

UCX_CALLS='config_read config_modify init_version worker_create worker_get_efd worker_arm
	listener_create conn_request_query ep_create ep_flush_nbx stream_send_nbx
	stream_recv_nbx tag_send_nbx tag_recv_nbx'
declare -A most_of=([worker_arm]=2) # that is each time before it sleeps

# what_of_call NAME CALL N: what that program says of it
what_of_call() {
	case $* in
	*\ conn_request_query\ * | 'guest ep_'* | 'guest tag_send_nbx 3') # goes on without, tries again, is done
		assert_done "$1" ;;
	*) assert_in "$(err_of "$1")" '^error: ' "$*:" ;;
	esac
	assertTrue "$*: $(rc_of "$1"), $(err_of "$1")" "(($(rc_of "$1") <= 1))"
}

# Each call fails once, in a server: that client has an error, and the next one is served,
# or there is no server.
test_calls_of_a_server_that_fail() {
	local call n seen=0
	for call in $UCX_CALLS; do
		for ((n = 1; n <= ${most_of[$call]:-20}; n++)); do
			rm -f "$T/failed"
			SPY_UCX_FAIL=ucp_$call:$n SPY_UCX_FAILED=$T/failed spied serve ucx_echo host -t 3 -i 3
			if ! ended "${pids[host]}"; then
				ask ucx_echo guest -q -t 3 -i 3 -n 2
				[[ ! -s $T/failed ]] || ask ucx_echo after -q
				[[ ! -s $T/failed ]] || ended "${pids[host]}" || assert_done after
			fi
			stop host 2>/dev/null
			[[ -s $T/failed ]] || break
			what_of_call host "$call" "$n"
			((++seen))
		done
		[[ -s $T/failed ]] || assert_done host
	done
	assertTrue "$seen calls" "((seen > 15))"
}

test_calls_of_a_client_that_fail() {
	local call n seen=0
	serve ucx_echo host -t 3 -i 3
	for call in $UCX_CALLS; do
		for ((n = 1; n <= ${most_of[$call]:-20}; n++)); do
			rm -f "$T/failed"
			SPY_UCX_FAIL=ucp_$call:$n SPY_UCX_FAILED=$T/failed spied ask ucx_echo guest -q -t 3 -i 3
			[[ -s $T/failed ]] || break
			what_of_call guest "$call" "$n"
			((++seen))
		done
		[[ -s $T/failed ]] || assert_done guest
	done
	# Gone in the middle of a measurement: said once, whatever call it is that finds it out.
	for n in {1..12}; do
		SPY_UCX_GONE=1 SPY_UCX_FAIL=ucp_tag_send_nbx:$n SPY_UCX_FAILED=$T/failed spied ask ucx_echo guest -b -q -n 20 -t 3 -i 3
		assert_error guest 1 'gone|closed|[Rr]eset'
	done
	stop host
	assertEquals "$(err_of host)" 0 "$(rc_of host)"
	assertTrue "$seen calls" "((seen > 12))"
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

test_bad_servers() { bad_servers; }

# Killed while a client waits for it, whether that one sends objects or pings.
test_servers_that_are_killed() {
	local how n=0
	for how in ucx_echo 'ucx_echo -b' sock_echo 'sock_echo -b'; do
		((++n))
		# shellcheck disable=SC2086 # words
		{
			set -- $how
			next_port
			start "server$n" "$B/$1" server -p "$port"
			await listening_or_ended "$port" "$pid"
			begin_ask "$1" "client$n" -q -n 100000000 "${@:2}"
			await grep -q ': connected$' "$T/server$n.out"
			stop "server$n" KILL 2>/dev/null
			reap "client$n"
		}
		assert_error "client$n" 1 'gone|closed|[Rr]eset|ENDPOINT_TIMEOUT'
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

test_independent_peer_that_misbehaves() {
	local list
	for list in "$(loud "$DRIVER_FAULTS")" "$(silent "$DRIVER_FAULTS")"; do
		misbehaves "$list"
	done
}

misbehaves() { # LIST
	local patience=60
	[[ ! $(silent "$1") ]] || patience=3
	serve ucx_echo server -i "$patience" -t "$patience"
	meets() {
		says_next server
		run "$1" timeout 60 "$N/ucx_driver" client 127.0.0.1 "$port" \
			--fault "$1" --timeout 50
		assertEquals "$1: $(err_of "$1")" 0 "$(rc_of "$1")"
		await says server "$2"
		run after timeout 15 "$N/ucx_driver" client 127.0.0.1 "$port"
		assertEquals "after $1" 0 "$(rc_of after)"
	}
	each "$1" meets
	stop server
	assertEquals "exit code" 0 "$(rc_of server)"
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
		[[ $program == sock_echo ]] || assert_in "$(out_of server)" ': closed after [1-9][0-9]* messages$'
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

# await_echoes CLIENT…: until each is in the middle of its echoes
await_echoes() {
	local name
	for name; do await in_file 'send and receive$' "$T/$name.out"; done
}

# Whatever a program asks the system for is refused once: an error, and who comes to that
# server then is served or sent away, but it ends when it is told.
test_refusals() {
	local program asked=(-q -t 3 -i 3)
	for program in ucx_echo sock_echo; do
		[[ $program == ucx_echo ]] || local -x KEPT_POLL=1
		refusals_of_server "$program" >>"$T/servers"
		assertEquals "$program: $(err_of "$program")" 0 "$(rc_of "$program")"
		serve "$program" host
		refusals "$program" "$B/$program" client 127.0.0.1 -p "$port" -q >>"$T/clients"
		assert_done "$program"
		stop host
	done
	unset KEPT_POLL
	assert_refusals 20 'sock_echo (socket|getpeername|recv)' 'ucx_echo|sock_echo' <"$T/servers"
	assert_refusals 12 'sock_echo (connect|recv)' <"$T/clients"
	# What a ping-pong asks for: that client is over then, and nothing more is said.
	program=ucx_echo asked+=(-b -n 3)
	refusals_of_server pingpong >"$T/pingpong"
	assertEquals "$(<"$T/pingpong")" 1 "$(grep -c '|1|error: .*no memory for a ping-pong$' "$T/pingpong")"
}

# What each of them is asked in the meantime
start_host() { serve "$program" "$1" -t 3; }
meet_host() {
	ask "$program" guest "${asked[@]}"
	[[ $(rc_of guest) != 1?? ]] || fail "the guest of $1: $(err_of guest)"
	kill "${pids[$1]}" 2>/dev/null
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

test_stop_signals() {
	local program signal
	for program in ucx_echo sock_echo; do
		for signal in INT TERM; do
			serve $program "idle$signal"
			stop "idle$signal" $signal
			assert_done "idle$signal"
			# With clients in the middle of it.
			serve $program busy
			begin_ask $program one -n 100000000
			begin_ask $program two -n 100000000
			await_echoes one two
			stop busy $signal
			reap one two
			assert_done busy
			assert_error one 1 'closed|gone|reset'
			assert_error two 1 'closed|gone|reset'
			serve $program server -c 2
			begin_ask $program client -n 100000000
			begin_ask $program bench -b -n 100000000
			await_echoes client bench
			stop client $signal
			stop bench $signal
			reap server
			assert_error client 1 'stopped by a signal'
			assert_error bench 1 'stopped by a signal'
		done
	done
	# In the middle of an object, of which two bytes have come.
	serve sock_echo half
	exec 8<>"/dev/tcp/127.0.0.1/$port"
	printf '\x0c\0\0\0\0\0\0\0he' >&8
	nap 0.4
	stop half
	exec 8>&-
	assert_done half
	next_port
	begin_ask ucx_echo connecting
	await in_file 'connect to' "$T/connecting.out"
	stop connecting INT
	assert_error connecting 1 'stopped by a signal'
	start host timeout 20 "$N/ucx_peer" server "$port" no-info
	await listening_or_ended "$port" "$pid"
	begin_ask ucx_echo waiting
	await in_file 'create the endpoint' "$T/waiting.out"
	stop waiting TERM
	reap host
	assert_error waiting 1 'waiting for its peer info: stopped by a signal'
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
