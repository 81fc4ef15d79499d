#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace report of two processes: what neither recording tells alone, both
# together do; who failed first is the cause, and what followed is aftermath; and who
# only computes, sleeps or idles is not accused.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

# What is wrong (two_sides.c), and the cause that follows from it.
faults='rkey rkey-unknown
rkey-swapped rkey-byte-order
range remote-outside-mr
pd rkey-other-pd
mr-right mr-lacks-right
qp-right qp-lacks-right
psn psn-differs
mtu mtu-differs
qkey qkey-differs
datagram qpn-differs
no-receive no-receive-posted
deadlock post-forgotten
asleep peer-asleep
dead peer-died
unpolled nobody-polls
solicited armed-solicited-only
unacked events-not-acked
too-long sge-outside-mr
same-id lkey-unknown
unsignaled unsignaled
thread cq-not-armed
exits-zero rkey-unknown
opcode mr-lacks-right
first-unsignaled unsignaled
one-unsignaled unsignaled
nothing post-forgotten
late post-forgotten
doubled post-doubled
surplus post-doubled
connect tcp-blocked
poll-connect tcp-blocked'

# told FILE…: of how many, who has written it tells that it ended, or where it stands,
# connected, and that is not where it waits for the other to be so, too, or lingers
# (two_sides.c). Who is only slow has to end.
told() {
	awk 'FNR == 1 { n += told; told = up = 0 }
		/"to":"RTS"/ { up = 1 }
		/"ev":"exit"/ { told = 1; up = 0 }
		up && /"ev":"thread"/ { told = FILENAME !~ /slow/ && !/"in":"(read","on":"socket"|poll"})/ }
		END { print n + told }' "$@"
}

# stopped DIR N: all of so many recordings there; of two of which one is killed, one tells
stopped() { [[ $(told "$1"/*.json*) == $(($2 - 1)) ]]; }

# kill_dead DIR: A of "dead", once it has written that it is connected and goes on
kill_dead() {
	local file
	file=$(grep -ls query_qp "$1"/dead.json*) || return 0
	kill -KILL "$(sed -n '1s/.*"pid":\([0-9]*\),.*/\1/p' "$file")" 2>/dev/null || true
}

# in_the_lab DIR HOW…: all side by side, until each has told where it stands
in_the_lab() {
	local dir=$1 how i
	shift
	for how; do
		LD_PRELOAD=$PWD/$B/held.so labs/qptrace -o "$dir/$how.json" --stall 2 -- "$B/two_sides" "$how" "$dir/end" \
			2>"$dir/$how.err" &
	done
	for ((i = 0; i < 300; i++)); do
		kill_dead "$dir"
		! stopped "$dir" $((2 * $#)) || break
		sleep 0.2
	done
	for how in $(pgrep two_sides); do
		grep -c qptrace-board "/proc/$how/maps"
	done | sort -n | tail -n 1 >"$dir/boards"
	touch "$dir/end"
	wait
	labs/qptrace -o "$dir/cm-alone.json" -- ucmatose -s 10.99.0.1 -p 7999 \
		>/dev/null 2>"$dir/cm-alone.err" || true
	labs/qptrace -o "$dir/cm-long.json" -- "$B/sabotage" connect:private_data_len=255 \
		ucmatose -s 10.99.0.1 -p 7999 >/dev/null 2>"$dir/cm-long.err" || true
	labs/qptrace -o "$dir/cm-killed.json" -- "$B/sabotage" post_recv:sleep=60 \
		ucmatose -s 10.99.0.1 -p 7999 >/dev/null 2>&1 &
	for ((i = 0; i < 300; i++)); do
		! grep -qs ROUTE_RESOLVED "$dir/cm-killed.json" || break
		sleep 0.1
	done
	pkill -KILL ucmatose
	wait
	labs/qptrace -o "$dir/cm-dead-server.json" -- "$B/sabotage" modify_qp:RTR:kill \
		ucmatose -b 10.99.0.1 -p 7998 >/dev/null 2>&1 &
	for ((i = 0; i < 100; i++)); do
		[[ $(rdma resource show cm_id) != *" LISTEN "*":7998 "* ]] || break
		sleep 0.1
	done
	timeout 20 labs/qptrace -o "$dir/cm-dead-client.json" -- \
		ucmatose -s 10.99.0.1 -p 7998 >/dev/null 2>&1 || true
	wait
	astray "$dir"
}

# astray DIR: the client asks the server, and somebody else's MAC gets the packets
astray() {
	local dir=$1 mac server client i
	mac=$(ip neigh show 10.99.0.1 dev veth1 | sed 's/.*lladdr \([^ ]*\).*/\1/')
	labs/qptrace -o "$dir/cm-astray-server.json" -- ucmatose -b 10.99.0.1 -p 7997 >/dev/null 2>&1 &
	server=$!
	for ((i = 0; i < 100; i++)); do
		[[ $(rdma resource show cm_id) != *" LISTEN "*":7997 "* ]] || break
		sleep 0.1
	done
	ip neigh replace 10.99.0.1 lladdr 02:99:00:00:00:99 dev veth1
	labs/qptrace --stall 1 -o "$dir/cm-astray-client.json" -- \
		ucmatose -s 10.99.0.1 -p 7997 >/dev/null 2>&1 &
	client=$!
	for ((i = 0; i < 200; i++)); do
		! grep -qs '"ev":"thread"' "$dir/cm-astray-client.json" || break
		sleep 0.1
	done
	kill "$client" "$server"
	wait
	ip neigh replace 10.99.0.1 lladdr "$mac" dev veth1
}

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/librdma_common.a" \
		"$B/sabotage" "$B/libsaboteur.so"
	built_in
	helper "$B/held.so" -O2 -fPIC -shared labs/tests/recorder/held.c
	helper "$B/two_sides" -O1 labs/tests/recorder/two_sides.c -libverbs -lpthread
	rm -rf "$B/two"
	mkdir -p "$B/two"
	# shellcheck disable=SC2046 # words
	T=$B/two in_lab "$(declare -f told stopped kill_dead astray in_the_lab)
		in_the_lab $B/two slow $(cut -d' ' -f1 <<<"$faults" | tr '\n' ' ')"
	export lab_ran=$?
}

# Without a lab there are no recordings.
ran() { need_lab && assertEquals 'the recordings were made' 0 "$lab_ran"; }

# report HOW: what both recordings tell, as JSON
report() {
	labs/qptrace report --json "$B/two/$1".json*
}

test_each_fault_is_named_first() {
	ran || return 0
	local how cause said hidden=lkey-unknown
	# Where rxe calls it a flush, none of three requests with one wr_id stands out.
	! rxe_does hides-local-errors || hidden=WR_FLUSH_ERR
	while read -r how cause; do
		[[ $how != same-id ]] || cause=$hidden
		said=$(report "$how" 2>&1 | jq -r '.causes[] | select(.kind != "warning") | .id' | head -n 1)
		assertEquals "$how" "$cause" "$said"
	done <<<"$faults"
}

# Recorders of one machine tell each other what their programs made: whoever fails says
# on stderr what only the other process knows.
test_the_other_process_is_known_at_once() {
	ran || return 0
	local how pattern
	while read -r how pattern; do
		assert_in "$(<"$B/two/$how.err")" "$pattern" "$how:"
	done <<-'END'
		rkey REM_ACCESS_ERR .*: rkey 0x[0-9a-f]+ is of none of QP [0-9]+ of process [0-9]+'s MRs
		rkey-swapped REM_ACCESS_ERR .* is QP [0-9]+ of process [0-9]+'s rkey 0x[0-9a-f]+ with its bytes in the other order
		range is not within QP [0-9]+ of process [0-9]+'s MR
		pd rkey 0x[0-9a-f]+ is of an MR in another PD than that of QP [0-9]+ of process
		mr-right QP [0-9]+ of process [0-9]+'s MR lacks REMOTE_WRITE
		psn begins with PSN 100, but QP [0-9]+ of process [0-9]+ expects 100100
		mtu path_mtu differs: .*QP [0-9]+ of process [0-9]+ has
	END
	assertEquals 'each maps its own board, and has let go of all others' 1 "$(<"$B/two/boards")"
}

# Whatever else was said is below it, and once.
test_what_follows_is_aftermath() {
	ran || return 0
	local said
	said=$(report rkey | jq -r '[.causes[] | select(.kind == "failure")] | length')
	assertEquals 'one cause' 1 "$said"
	said=$(report exits-zero | jq -r '.causes[0].kind')
	assertEquals 'an exit code of 0 is no excuse' failure "$said"
	said=$(report dead | jq -r '[.causes[].kind] | index("failure")')
	assertEquals 'it comes first' 0 "$said"
	said=$(report asleep | jq -r '[.causes[] | select(.kind == "failure" or .kind == "stall")] | length')
	assertEquals 'the one who waits is not accused' 1 "$said"
}

# The page shows them in the same order, and what follows is folded.
test_the_page_folds_what_follows() {
	ran || return 0
	command -v chromium >/dev/null || { skip 'no chromium'; return 0; }
	labs/qptrace report --html "$T/page.html" "$B"/two/rkey.json*
	cat >>"$T/page.html" <<-'END'
		<script>
		const first = document.querySelector("#failures > .card");
		document.title = [document.querySelectorAll("#failures > .card").length,
			/rkey 0x/.test(first.textContent), document.querySelectorAll("#failures details .card").length > 0,
			document.querySelector("#failures details").open].join(" ");
		</script>
	END
	assertEquals '1 true true false' "$(timeout 60 chromium --headless --no-sandbox --disable-gpu \
		--user-data-dir="$T/chromium" --dump-dom "file://$T/page.html" 2>/dev/null |
		sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p' | head -n 1)"
}

# One thread sleeps in ibv_get_cq_event, the other waits for it: each has its own call.
test_each_thread_has_its_own_call() {
	ran || return 0
	assertEquals '[infinibandevent]' "$(jq -r 'select(.ev == "thread" and .verb == "get_cq_event").on' \
		"$B"/two/thread.json* | sort -u)"
}

# Before the first SYN is sent once more, nothing else than its state tells.
test_what_tcp_waits_for_is_told() {
	ran || return 0
	local how
	for how in connect poll-connect; do
		assertEquals "$how" SYN_SENT "$(jq -r 'select(.ev == "thread" and .tcp).tcp' \
			"$B/two/$how".json* | sort -u)"
	done
}

# A, which was forked first, waited for B and then sleeps: that is told, and once.
test_who_moved_is_told_again() {
	ran || return 0
	assertEquals 1 "$(cat "$B"/two/asleep.json* | jq -s 'map(select(.ev == "thread")) |
		(map(.pid) | min) as $a | map(select(.pid == $a and .in == "clock_nanosleep")) | length')"
}

# Three seconds of silence, and then all goes well.
test_the_slow_are_not_accused() {
	ran || return 0
	assertEquals 'nobody' 0 "$(report slow | jq '[.causes[] | select(.kind == "failure" or .kind == "stall")] | length')"
	assert_in "$(<"$B/two/slow.err")" 'qptrace:     hint: '
	assertNotContains "$(<"$B/two/slow.err")" '    cause: '
}

# librdmacm's own events and calls: nobody listens; too much private data.
test_connection_manager() {
	ran || return 0
	assertEquals 'nobody listens' 'cm-rejected' "$(cm_cause "$B/two/cm-alone.json")"
	assert_in "$(<"$B/two/cm-alone.err")" 'REJECTED, status 8: nobody listens on that port'
	assertEquals 'too long' 'cm-private-data' "$(cm_cause "$B/two/cm-long.json")"
	# Who is killed within rdma_accept has called it.
	assertEquals 'killed within rdma_accept' 'peer-died' \
		"$(cm_cause "$B/two/cm-dead-server.json" "$B/two/cm-dead-client.json")"
	assertEquals 'to another MAC' 'wrong-mac' \
		"$(cm_cause "$B/two/cm-astray-server.json" "$B/two/cm-astray-client.json")"
	assertEquals 'killed before rdma_connect' '' "$(cm_cause "$B/two/cm-killed.json")"
	assertEquals 'it had the route' 1 "$(grep -c '"op":"ROUTE_RESOLVED"' "$B/two/cm-killed.json")"
	assertEquals 'events, too' 1 "$(grep -c '"op":"ROUTE_RESOLVED"' "$B/two/cm-alone.json")"
}
cm_cause() { labs/qptrace report --json "$@" | jq -r '.causes[] | select(.kind == "failure") | .id' | head -n 1; }

# Of a cause that was compared the text names both sides.
test_both_sides_are_named() {
	ran || return 0
	assert_in "$(report rkey | jq -r '.causes[0].cause')" "rkey 0x[0-9a-f]+ is of none of QP [0-9]+ of [AB]'s MRs"
	assert_in "$(report qp-right | jq -r '.causes[0].cause')" "^QP [0-9]+ of [AB]'s QP lacks"
	assert_in "$(report qkey | jq -r '.causes[0].cause')" "and [AB]'s QP [0-9]+ \(rxe0\) has 0x"
	assert_in "$(labs/qptrace report --json --lang zh "$B"/two/dead.json* | jq -r '.causes[0].cause')" '被杀掉了'
}

# shellcheck disable=SC1091
. shunit2
