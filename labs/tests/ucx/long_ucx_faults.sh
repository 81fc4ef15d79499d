#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# ucx_echo and sock_echo among peers that lie, stall or vanish, signals, and a system that
# refuses what they ask for.
#
# shellcheck disable=SC2317 # each() calls
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/ucx/ucx.sh
. "$ROOT/labs/tests/ucx/ucx.sh"

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

# each_call NAME CMD…: CMD with each call of UCX refused in turn, and what program NAME says
# of it; $seen counts them
each_call() {
	local call n
	for call in $UCX_CALLS; do
		for ((n = 1; n <= ${most_of[$call]:-20}; n++)); do
			rm -f "$T/failed"
			SPY_UCX_FAIL=ucp_$call:$n SPY_UCX_FAILED=$T/failed "${@:2}"
			[[ -s $T/failed ]] || break
			what_of_call "$1" "$call" "$n"
			((++seen))
		done
		[[ -s $T/failed ]] || assert_done "$1"
	done
}

serve_two() {
	spied serve ucx_echo host -t 3 -i 3
	if ! ended "${pids[host]}"; then
		ask ucx_echo guest -q -t 3 -i 3 -n 2
		[[ ! -s $T/failed ]] || ask ucx_echo after -q
		[[ ! -s $T/failed ]] || ended "${pids[host]}" || assert_done after
	fi
	stop host 2>/dev/null
}

# Each call fails once, in a server: that client has an error, and the next one is served,
# or there is no server.
test_calls_of_a_server_that_fail() {
	local seen=0
	each_call host serve_two
	assertTrue "$seen calls" "((seen > 15))"
}

test_calls_of_a_client_that_fail() {
	local n seen=0
	serve ucx_echo host -t 3 -i 3
	each_call guest spied ask ucx_echo guest -q -t 3 -i 3
	# Gone in the middle of a measurement: said once, whatever call it is that finds it out.
	for n in {1..12}; do
		SPY_UCX_GONE=1 SPY_UCX_FAIL=ucp_tag_send_nbx:$n SPY_UCX_FAILED=$T/failed spied ask ucx_echo guest -b -q -n 20 -t 3 -i 3
		assert_error guest 1 'gone|closed|[Rr]eset'
	done
	stop host
	assertEquals "$(err_of host)" 0 "$(rc_of host)"
	assertTrue "$seen calls" "((seen > 12))"
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

# UCX's own thread has heard half of what a client says when it connects; the other half
# comes when the server takes its workers down. UCX tells the listener of it, which must
# still be there: freed, it is overwritten here.
test_a_client_half_heard_at_the_end() {
	next_port
	start knock busybox nc -l -p "$port"
	await listening "$port"
	start real "$B/ucx_echo" client 127.0.0.1 -q -p "$port" -t 60
	await test -s "$T/knock.out"
	kill "${pids[real]}"
	reap real knock
	MALLOC_PERTURB_=165 SPY_UCX_LOG=$T/calls SPY_UCX_HOLD=$T/go spied serve ucx_echo server
	exec {knock}<>"/dev/tcp/127.0.0.1/$port"
	head -c 5 "$T/knock.out" >&"$knock"
	heard() { [[ $(ss -Htn state established "sport = :$port") =~ ^0\  ]]; }
	await heard
	kill -TERM "${pids[server]}"
	await in_file '^ucp_worker_destroy$' "$T/calls"
	tail -c +6 "$T/knock.out" >&"$knock"
	heard_or_ended() { heard || ended "${pids[server]}"; }
	await heard_or_ended
	touch "$T/go"
	reap server
	exec {knock}>&-
	assert_done server
}

oneTimeSetUp() { build_ucx; }

. shunit2
