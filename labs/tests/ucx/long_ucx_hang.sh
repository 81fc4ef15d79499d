#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What lesson 13 says of UCX's hang over UD: the run that hangs, and what must cure it. And
# of its crash: what the kernel does, and that an event which comes never, once, and again
# has the effects of old kernels, of none, and of new ones.
#
# shellcheck disable=SC2016,SC2046 # scripts for the lab are quoted; words
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# hang NAME ARG…: hang.sh in the lab, its output in $T/NAME.out and .rc
hang() {
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 1; }
	ucx_on_rxe || return 1
	export HANG="${*:2}" NAME=$1
	in_lab 'run "$NAME" lessons/13-ucx-tag-matching/hang.sh $HANG
		! pgrep -x ucx_perftest'
}

# Messages arrive and are received, both ways, and nothing comes of it.
test_ud_over_ipv4_hangs() {
	local d
	counter() { sed -n "s/^$1:.* $2 \([0-9]*\).*/\1/p" "$T/hung.out"; }
	hang hung --seconds 2 --trace "$T/hung.qpt" UCX_TLS=ud_verbs || return 0
	assertEquals "$(out_of hung)" 1 "$(rc_of hung)"
	assert_in "$(out_of hung)" '^server on rxe0: not done after 2 s'
	assert_in "$(out_of hung)" '^client on rxe1: not done after 2 s'
	for d in rxe0 rxe1; do
		assertTrue "$d received" "(($(counter $d rdma_recvs) > 0))"
		assertEquals "$(counter $d rcvd_pkts)" "$(counter $d rdma_recvs)"
	done
	assertEquals 'what the program was given' 'RECV SUCCESS 105' \
		"$(labs/qptrace dump "$T/hung.qpt" | jq -r 'select(.ev == "completion" and .op == "RECV") |
			"\(.op) \(.status) \(.len)"' | sort -u)"
}

# What must cure it, each alone: the other family, no check, one byte.
test_what_cures_it() {
	local name settings
	helper "$B/set_sl.so" -O1 -fPIC -shared labs/tests/pair/set_sl.c
	while read -r name settings; do
		hang "$name" --seconds 60 "$settings" || return 0
		assertEquals "$(out_of "$name")" 0 "$(rc_of "$name")"
	done <<-END
		ipv6 UCX_TLS=ud_verbs UCX_IB_GID_INDEX=0
		unchecked UCX_TLS=ud_verbs UCX_UD_VERBS_ETH_DGID_CHECK=n
		aux UCX_TLS=rc_verbs,ud_verbs:aux UCX_UD_VERBS_ETH_DGID_CHECK=n
		byte UCX_TLS=ud_verbs LD_PRELOAD=$B/set_sl.so
	END
}

# clients MOST HELD SETTING…: a server over rc_verbs, and as many clients after each
# other, until one side aborts. HELD: the QPs that the server has in the end.
clients() {
	ucx_on_rxe || return 1
	export MOST=$1 HELD=$2 SETTINGS="${*:3}"
	in_lab '
		held() { rdma resource show qp link rxe0/1 | grep -c "pid $server "; }
		held_or_ended() { [[ $(held) == "$HELD" ]] || ended "$server"; }
		export UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 port=2110
		serve server env $SETTINGS labs/qptrace --quiet --control-only \
			-o "$T/server.qpt" -- "$B/ucx_echo" server -q -p 2110 -t 20
		server=$pid
		export UCX_NET_DEVICES=rxe1:1
		for ((i = 1; i <= MOST; i++)); do
			run "client.$i" env $SETTINGS "$B/ucx_echo" client 10.99.0.1 -q -p 2110 -t 20
			! grep -qx 134 "$T/client.$i.rc" && ! ended "$server" || break
		done
		# One that aborted leaves fewer than that.
		((i <= MOST)) || ended "$server" || await held_or_ended
		held >"$T/held" || true
		kill "$server" 2>/dev/null || true
		reap server'
}

# with_events never|once|again CLIENTS HELD: as last_wqe.c sends them
with_events() {
	helper "$B/last_wqe.so" -O1 -fPIC -shared labs/tests/ucx/last_wqe.c -lpthread
	clients "$2" "$3" LAST_WQE="$1" LD_PRELOAD="$B/last_wqe.so" UCX_IB_ASYNC_EVENTS=y
}

aborted() { cat "$T"/*.rc | grep -cx 134; }
assert_nobody_aborts() { # HELD
	assertEquals "$(cat "$T"/*.err)" 0 "$(aborted)"
	assertEquals 'each client is done, and the server' 7 "$(cat "$T"/*.rc | grep -cx 0)"
	assertEquals 'QPs of the server' "$1" "$(<"$T/held")"
}
assert_somebody_aborts() {
	assertTrue 'somebody aborts' "(($(aborted) > 0))"
	assert_in "$(cat "$T"/*.err)" 'ib_device.c:[0-9]+ +Assertion .wait_ctx->cb_id == '
}

test_an_event_that_never_comes_keeps_the_qps() { ! with_events never 6 6 || assert_nobody_aborts 6; }

test_an_event_that_comes_once_is_right() { ! with_events once 6 0 || assert_nobody_aborts 0; }

test_an_event_that_comes_again_aborts() { ! with_events again 30 0 || assert_somebody_aborts; }

# The kernel is asked what it does, and UCX has to do what follows from that.
test_the_kernels_own_event() {
	local told
	if rxe_does repeats-last-wqe; then
		clients 30 30 UCX_IB_ASYNC_EVENTS=y || return 0
		assert_somebody_aborts
	else
		clients 6 6 UCX_IB_ASYNC_EVENTS=y || return 0
		assert_nobody_aborts 6
	fi
	told=$(labs/qptrace dump "$T/server.qpt" | jq -s 'map(select(.type == "QP_LAST_WQE_REACHED")) | group_by(.qpn) |
		map(length) | max // 0')
	if rxe_does repeats-last-wqe; then told=$((told > 1)); else told=$((told == 0)); fi
	assertEquals 'told never, or again and again' 1 "$told"
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
		killed() {
			echo_with start "$1" -n 100000000
			await came "$2"
			kill9 "$1"
		}
		export UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 port=2110
		serve server "$B/ucx_echo" server -p 2110 -t 60
		server=$pid
		export UCX_NET_DEVICES=rxe1:1
		echo_with start stays -n 100000000
		await came 1
		freeze stays
		for ((i = 2; i <= 21; i++)); do
			if ((i % 5)); then echo_with run "client.$i"; else killed "killed.$i" "$i"; fi
		done
		await holds 21
		kill9 stays
		await holds 5
		kill "$server"
		reap server' || return 0
	assertEquals "$(err_of server)" 0 "$(rc_of server)"
	assertEquals 'who was not killed' 16 "$(grep -lx 0 "$T"/client.*.rc | wc -l)"
	assert_in "$(out_of server)" '^21 clients, '
}

. shunit2
