#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Programs of others that use librdmacm, and ours beside them: what the report says when one
# fails; and many connections, of which nothing is left.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# NAME | server | client; TO is the address
strangers='
rping | rping -s -C 2 | rping -c -C 2 -a TO
udaddy | udaddy | udaddy -s TO
rstream | rstream -S 64 -C 2 | rstream -s TO -S 64 -C 2
rstream_long | rstream -S 65536 -C 99999 | rstream -s TO -S 65536 -C 99999
ucmatose | ucmatose -C 9000 -S 64 | ucmatose -s TO -C 9000 -S 64
send_bw | ib_send_bw -R -d rxe0 -D 30 | ib_send_bw -R -d rxe1 -D 30 TO
write_bw | ib_write_bw -R -d rxe0 -D 30 | ib_write_bw -R -d rxe1 -D 30 TO
'

# In the lab: listens [PORT], recorded NAME CMD…
scene='
listens() { rdma resource show cm_id | grep -q "LISTEN .*:${1-}"; }
in_rts() { rdma resource show qp | grep -q "state RTS .*comm $1"; }
recorded() { run "$1" timeout -k 1 "${limit:-8}" labs/qptrace --quiet --stall 2 -o "$T/$1.qpt" "${@:2}"; }
'

# cause NAME: "RC CAUSE", the first one
cause() { echo "$(rc_of "$1") $(labs/qptrace report --json "$T/$1.qpt" | jq -r '.causes[0].id // "nothing"')"; }

test_strangers() {
	local name
	command -v rping >/dev/null || { skip 'no rping (package rdmacm-utils)'; return 0; }
	in_lab "$scene strangers='$strangers'"'
		while IFS="|" read -r name server client; do
			[[ $server ]] || continue
			name=${name// /} client=${client# }
			start $name.server $server
			await listens
			limit=60
			if [[ $name == *_bw || $name == *_long || $name == ucmatose ]]; then
				limit=8
				{ await in_rts "${client%% *}" && nap 0.3 && kill -KILL "$pid"; } &
			fi
			recorded $name.met ${client/TO/10.99.0.1}
			reap $name.server
		done <<<"$strangers"
	' || return 0
	for name in rping udaddy rstream; do assertEquals "$name" 0 "$(rc_of $name.met)"; done
	for name in ucmatose send_bw write_bw; do assert_in "$(cause $name.met)" ' peer-qp-absent$' "$name, killed"; done
	assert_in "$(labs/qptrace report "$T/rping.met.qpt")" 'modify_qp .*RTS -> ERR'
	# Its WRITEs hit memory that went away with the process; or it has seen DISCONNECTED first.
	assert_in "$(cause rstream_long.met)" ' (REM_ACCESS_ERR later|cm-peer-gone)$'
	# rsockets leaves an event for rdma_destroy_id to acknowledge: that returns.
	assert_not_in "$(labs/qptrace report --json "$T/rstream.met.qpt")" not-acked
}

# Whom our server does not understand it rejects, and waits on; what our client meets it says.
test_ours_and_strangers() {
	local name want
	command -v rping >/dev/null || { skip 'no rping (package rdmacm-utils)'; return 0; }
	in_lab "$scene"'
		start server "$B/rdma_server" --cm -q -t 60
		await listens 18515
		recorded rping rping -c -a 10.99.0.1 -p 18515 -C 1
		recorded rstream rstream -s 10.99.0.1 -p 18515 -S 64 -C 1
		recorded ucmatose ucmatose -s 10.99.0.1 -p 18515
		recorded send_bw ib_send_bw -R -d rxe1 -p 18515 -n 5 10.99.0.1
		run tcp "$B/rdma_client" -q -t 1 10.99.0.1 rxe1
		run client "$B/rdma_client" --cm -q 10.99.0.1
		reap server
		while read -ra words; do
			start "of.${words[0]}" timeout 20 "${words[@]}"
			await listens 18515
			run "to.${words[0]}" "$B/rdma_client" --cm -q -t 3 10.99.0.1
			kill "$pid"
			reap "of.${words[0]}"
		done <<-END
			rping -s -p 18515
			ucmatose -p 18515
			rstream -p 18515
			ib_send_bw -R -d rxe0 -p 18515 -n 5
		END
	' || return 0
	for name in rping rstream ucmatose send_bw; do assert_in "$(cause $name)" ' cm-refused-by-peer$' "$name"; done
	assertEquals '0 0' "$(rc_of client) $(rc_of server)"
	for name in rping ucmatose ib_send_bw; do assert_error "to.$name" 1 'magic 0x00000000'; done
	while read -r name want; do assert_error "$name" 1 "$want"; done <<-'END'
		tcp ECONNREFUSED
		to.rstream REJECTED \(status 28\)
	END
}

# Connected, killed at either end, rejected, again and again: in_lab says what is left.
test_nothing_is_left() {
	in_lab "$scene"'
		one() { # SERVER CLIENT VICTIM: both are gone then
			start s $1
			await listens "${port:-18515}"
			start c $2
			[[ ! ${3-} ]] || { await in_rts rdma_ && kill -KILL "${pids[$3]}"; }
			reap c
			[[ ${3-} != c ]] || kill "${pids[s]}"
			reap s
			[[ ${3-} || $(<"$T/c.rc") == "${want:-0}" ]] || echo "$2: $(<"$T/c.rc")"
		}
		server="$B/rdma_server --cm -q" client="$B/rdma_client --cm -q 10.99.0.1"
		for i in {1..15}; do one "$server" "$client"; done
		for i in {1..8}; do
			one "$server -n 100000" "$client -t 3 -n 100000" s
			one "$server -n 100000" "$client -n 100000" c
		done
		want=1 port=7471
		for i in {1..15}; do one "$B/11-rdma-cm server --reject" "$B/11-rdma-cm client 10.99.0.1"; done
	' 2>/dev/null || return 0
	assertEquals 'who did not end as it should' '' "$(<"$T/lab.out")"
}

. shunit2
