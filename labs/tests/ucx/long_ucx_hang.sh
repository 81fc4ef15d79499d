#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What lesson 13 says of UCX's hang over UD: the run that hangs, three changes of
# which each must cure it, and that the script ends all it has started. And of its
# crash: what the kernel does, and that an event which comes never, once, and again
# has the effects of old kernels, of none, and of new ones.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# hang NAME ARG…: hang.sh in the lab, its output in $T/NAME.out and .rc
hang() {
	local name=$1
	shift
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 1; }
	ucx_on_rxe || return 1
	export HANG="$*" NAME=$name
	in_lab 'run "$NAME" lessons/13-ucx-tag-matching/hang.sh $HANG
		! pgrep -x ucx_perftest'
}

# counter NAME DEVICE COUNTER
counter() { sed -n "s/^$2:.* $3 \([0-9]*\).*/\1/p" "$T/$1.out"; }

# Messages arrive and are received, both ways, and nothing comes of it.
test_ud_over_ipv4_hangs() {
	hang hung --seconds 2 --trace "$T/hung.json" --log "$T/hung.log" \
		UCX_TLS=ud_verbs UCX_LOG_LEVEL=debug || return 0
	assertEquals "$(out_of hung)" 1 "$(rc_of hung)"
	assert_in "$(out_of hung)" '^server on rxe0: not done after 2 s'
	assert_in "$(out_of hung)" '^client on rxe1: not done after 2 s'
	local d
	for d in rxe0 rxe1; do
		assertTrue "$d received" "(($(counter hung $d rdma_recvs) > 0))"
		assertEquals "$(counter hung $d rcvd_pkts)" "$(counter hung $d rdma_recvs)"
	done
	assertEquals "$(counter hung rxe0 sent_pkts)" "$(counter hung rxe1 rcvd_pkts)"
	assertEquals "$(counter hung rxe1 sent_pkts)" "$(counter hung rxe0 rcvd_pkts)"
	assertEquals 'what the program was given' 'RECV SUCCESS 105' \
		"$(jq -r 'select(.ev == "completion" and .op == "RECV") |
			"\(.op) \(.status) \(.len)"' "$T/hung.json" | sort -u)"
	assert_in "$(cat "$T/hung.log")" 'resending rt_psn 1 .*acked_psn 0'
}

test_over_ipv6_it_runs() {
	hang six --seconds 60 UCX_TLS=ud_verbs UCX_IB_GID_INDEX=0 || return 0
	assertEquals "$(out_of six)" 0 "$(rc_of six)"
}

test_without_the_check_it_runs() {
	hang unchecked --seconds 60 UCX_TLS=ud_verbs \
		UCX_UD_VERBS_ETH_DGID_CHECK=n || return 0
	assertEquals "$(out_of unchecked)" 0 "$(rc_of unchecked)"
	hang aux --seconds 60 UCX_TLS=rc_verbs,ud_verbs:aux \
		UCX_UD_VERBS_ETH_DGID_CHECK=n || return 0
	assertEquals "$(out_of aux)" 0 "$(rc_of aux)"
}

test_with_one_byte_changed_it_runs() {
	helper "$B/set_sl.so" -O1 -fPIC -shared labs/tests/pair/set_sl.c
	hang byte --seconds 60 UCX_TLS=ud_verbs "LD_PRELOAD=$B/set_sl.so" || return 0
	assertEquals "$(out_of byte)" 0 "$(rc_of byte)"
}

# RC alone cannot exchange its QPNs, and says so.
test_rc_alone_fails_at_once() {
	hang alone UCX_TLS=rc_verbs || return 0
	assertEquals 1 "$(rc_of alone)"
	assert_in "$(out_of alone)" \
		'^client on rxe1: failed \(exit code 255\): no auxiliary transport'
}

# clients MOST HELD SETTING…: a server over rc_verbs, and as many clients after each
# other, until one side aborts. HELD: the QPs that the server has in the end.
clients() {
	command -v ucx_perftest >/dev/null || { skip 'no UCX (package ucx-utils)'; return 1; }
	ucx_on_rxe || return 1
	export MOST=$1 HELD=$2 SETTINGS="${*:3}"
	in_lab '
		held() { rdma resource show qp link rxe0/1 | grep -c "pid $server "; }
		held_or_ended() { [[ $(held) == "$HELD" ]] || ended "$server"; }
		echo_with() { run "$1" timeout 60 env $SETTINGS "$B/ucx_echo" "${@:2}"; }
		export UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1
		start server env $SETTINGS labs/qptrace --quiet --control-only \
			-o "$T/server.json" -- "$B/ucx_echo" server -q -p 2110 -t 20
		server=$pid
		await listening_or_ended 2110 "$server"
		export UCX_NET_DEVICES=rxe1:1
		for ((i = 1; i <= MOST; i++)); do
			echo_with "client.$i" client 10.99.0.1 -q -p 2110 -t 20
			! grep -qx 134 "$T/client.$i.rc" && ! ended "$server" || break
		done
		ended "$server" || await held_or_ended
		held >"$T/held" || true
		kill "$server" 2>/dev/null || true
		reap server'
}

aborted() { cat "$T"/*.rc | grep -cx 134; }
ASSERTION="ib_device.c:[0-9]+ +Assertion .wait_ctx->cb_id == "

assert_nobody_aborts() { # HELD
	assertEquals "$(cat "$T"/*.err)" 0 "$(aborted)"
	assertEquals 'each client is done, and the server' 7 "$(cat "$T"/*.rc | grep -cx 0)"
	assertEquals 'QPs of the server' "$1" "$(cat "$T/held")"
}

assert_somebody_aborts() {
	assertTrue 'somebody aborts' "(($(aborted) > 0))"
	assert_in "$(cat "$T"/*.err)" "$ASSERTION"
}

# preload MODE: the setting that makes last_wqe.c send the event never, once, again
preload() {
	helper "$B/last_wqe.so" -O1 -fPIC -shared labs/tests/ucx/last_wqe.c -lpthread
	echo "LAST_WQE=$1 LD_PRELOAD=$B/last_wqe.so UCX_IB_ASYNC_EVENTS=y"
}

test_an_event_that_never_comes_keeps_the_qps() {
	# shellcheck disable=SC2046 # words
	clients 6 6 $(preload never) || return 0
	assert_nobody_aborts 6
}

test_an_event_that_comes_once_is_right() {
	# shellcheck disable=SC2046 # words
	clients 6 0 $(preload once) || return 0
	assert_nobody_aborts 0
}

test_an_event_that_comes_again_aborts() {
	# shellcheck disable=SC2046 # words
	clients 30 0 $(preload again) || return 0
	assert_somebody_aborts
}

# As ucx_echo sets it for itself where there is rxe, on any kernel.
test_who_does_not_listen_survives() {
	clients 6 6 || return 0
	assert_nobody_aborts 6
}

# One stays, fifteen come and go, and the next worker takes over; some are killed. All
# that the first has kept goes with it, when the one that stays has left.
test_a_server_that_lives_on_keeps_few() {
	ucx_on_rxe || return 0
	in_lab '
		held() { rdma resource show qp link rxe0/1 | grep -c "pid $server "; }
		holds() { (($(held) == $1)); }
		came() { (($(grep -c ": connected$" "$T/server.out") == $1)); }
		echo_with() { "$1" "$2" "$B/ucx_echo" client 10.99.0.1 -q -p 2110 -t 60 "${@:3}"; }
		export UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1
		start server "$B/ucx_echo" server -p 2110 -t 60
		server=$pid
		await listening_or_ended 2110 "$server"
		export UCX_NET_DEVICES=rxe1:1
		echo_with start stays -n 100000000
		await came 1
		freeze stays
		for ((i = 2; i <= 21; i++)); do
			if ((i % 5)); then
				echo_with run "client.$i"
			else
				echo_with start "killed.$i" -n 100000000
				await came "$i"
				kill9 "killed.$i"
			fi
		done
		await holds 21; held >"$T/both"
		kill9 stays
		await holds 5; held >"$T/second"
		kill "$server"
		reap server' || return 0
	assertEquals 'those of both workers' 21 "$(cat "$T/both")"
	assertEquals 'those of the second' 5 "$(cat "$T/second")"
	assertEquals "$(err_of server)" 0 "$(rc_of server)"
	assertEquals 'who was not killed' 16 "$(grep -lx 0 "$T"/client.*.rc | wc -l)"
	assert_in "$(out_of server)" '^21 clients, '
}

# The kernel is asked what it does, and UCX has to do what follows from that.
test_the_kernels_own_event() {
	local told most=6
	! rxe_does repeats-last-wqe || most=30
	clients "$most" "$most" UCX_IB_ASYNC_EVENTS=y || return 0
	told=$(jq -s 'map(select(.type == "QP_LAST_WQE_REACHED")) | group_by(.qpn) |
		map(length) | max // 0' "$T/server.json")
	assertEquals 'each QP is put into ERR twice' true "$(jq -s 'map(select(.to == "ERR")) |
		length > 0 and (map(select(.from == "ERR")) | length) > 0' "$T/server.json")"
	if rxe_does repeats-last-wqe; then
		assertTrue "told $told times" "((told > 1))"
		assert_somebody_aborts
	else
		assertEquals 'told' 0 "$told"
		assertEquals "$(cat "$T"/*.err)" 0 "$(aborted)"
		assertEquals 'QPs of the server' "$most" "$(cat "$T/held")"
	fi
}

test_usage() {
	local args rc
	for args in '--seconds 0' '--seconds x' --seconds '--nonsense' word \
		'UCX_TLS=tcp --trace'; do
		rc=0
		# shellcheck disable=SC2086 # words
		lessons/13-ucx-tag-matching/hang.sh $args >"$T/out" 2>"$T/err" || rc=$?
		assertEquals "$args" 2 "$rc"
		assertEquals "$args" '' "$(cat "$T/out")"
		assert_in "$(cat "$T/err")" 'hang.sh: next: '
	done
	assert_in "$(lessons/13-ucx-tag-matching/hang.sh --help)" '^usage: hang.sh'
}

# shellcheck disable=SC1091
. shunit2
