#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 when something is wrong with the plugin. Both sides end in time, with 1
# and one error that says why, and take down what they have built.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

many='-q -t 2 -c 4 : -q -t 2 -s 7001 -n 90'
pings='-q -t 2 : -q -t 2 -l -s 7001 -n 90'

# at_fault <TABLE: NET_SHIM; the side it is for; what this one says; its peer; ARGS. As rows
# for pairs: the other side uses the same shim, and is not at fault.
at_fault() {
	local shim sides says peer args side
	while IFS=';' read -r shim sides says peer args; do
		peer=${peer/#READY/$READY}
		peer=${peer/#LOST/$LOST}
		peer=${peer/#ABSENT/$ABSENT}
		for side in $sides; do
			if [[ $side == server ]]; then
				echo "$side.$shim.${#args};$shim;;$says;$peer;$args"
			else
				echo "$side.$shim.${#args};;$shim;$peer;$says;$args"
			fi
		done
	done
}

# Calls that fail. The side that is not at fault may wait for one who never comes: 2 s at
# most. Those that fail while they close have moved the data, and still must not say that
# all is well.
test_failing_calls() {
	local of=' of plugin "Shim" \(v8\) returned 2: system error'
	at_fault >"$T/rows" <<-END
		fail=init;server client;init\(\)$of;ABSENT
		fail=devices;server client;devices\(\)$of;ABSENT
		fail=getProperties;server client;getProperties\(dev 0\)$of;ABSENT
		fail=getProperties:2;server client;getProperties\(dev 0\)$of;READY
		fail=listen:3;server;listen\(dev 0\)$of;ABSENT
		fail=connect:3;client;connect\(dev 0\)$of;READY
		fail=accept;server;accept\(\)$of;READY
		slow,fail=regMr;server;regMr\(.* type 1\)$of;READY
		fail=regMr:4;server client;regMr\(.* type 1\)$of;READY
		fail=isend:100;client;isend\(\)$of;LOST
		fail=irecv:100;server;irecv\(\)$of;LOST
		fail=test:99;server client;test\(\)$of;LOST
		unpack,fail=irecvConsumed:5;server;irecvConsumed\(\)$of;LOST
		fail=deregMr:3;server client;deregMr\(\)$of;ok
		fail=closeSend;client;close_?[sS]end\(\)$of;ok
		fail=closeRecv;server;close_?[rR]ecv\(\)$of;ok
		fail=closeListen;server;closeListen\(\)$of;ok
		fail=accept;server client;accept\(\)$of;READY;$pings
		fail=connect;server client;connect\(dev 0\)$of;READY;$pings
		fail=isend:20;server client;isend\(\)$of;READY;$pings
		fail=irecv:20;server client;irecv\(\)$of;READY;$pings
		fail=test:30;server client;test\(\)$of;READY;$pings
		fail=test,rc=6;server;test\(\) .* returned 6: remote error;LOST
		fail=listen,rc=-1;server;listen\(.* returned -1: unknown error$;ABSENT
		fail=connect,rc=7;client;connect\(.* returned 7: unknown error$;READY
	END
	pairs "$many" <"$T/rows"
	# 6 is the peer's fault. One that has said nothing is not quoted as if it had.
	assert_in "$(err_of server.fail=test,rc=6.0.server)" "next: see the peer's own messages"
	assert_in "$(err_of server.fail=listen:3.0.server)" 'next: the plugin has not said why'
	assertEquals 'no result' '' "$(out_of server.fail=closeRecv.0.server)"
}

# What arrives is not what was sent: the receiver must see it. Nor does the buffer hold what
# is expected before anything comes. A measurement looks at the last window only, and at the
# contents.
test_lying_plugins() {
	local text='-q -t 2 : -q -t 2'
	at_fault >"$T/rows" <<-END
		corrupt;server;message 0 on channel . arrived wrong: byte 3500 of 7001 differs;LOST
		overrun;server;message 0 .*bytes outside the buffer;LOST
		leap;server;message 0 .*bytes outside the buffer;LOST
		early;server;message 0 .*bytes outside the buffer;LOST
		early;client;message 0 .*the sender's guards were written;LOST
		lost;server;message 0 .*byte 0 of 7001 differs;LOST
		corrupt;server;arrived wrong;LOST;$text -b -s 7001 -n 90
		overrun;server;arrived wrong;LOST;$text -b -s 7001 -n 90
		corrupt;client;arrived wrong;LOST;$pings
		overrun;client;arrived wrong;LOST;$pings
		corrupt;server;message 0 .*it is not the text;LOST;$text
		lost;server;message 0 .*it is not the text;LOST;$text
		overrun;server;bytes outside the buffer;LOST;$text -s 64
		overrun;server;bytes outside the buffer;LOST;$text -s 0
	END
	pairs "$many" <"$T/rows"
}

# What test() says of the size is no proof: the bytes are, and the guards. One warning says
# that they differ, and how. And the first message of an odd size is looked at, even in a
# measurement.
test_sizes_that_are_wrong() {
	local measured='-q -t 2 -c 2 : -q -t 2 -b -s 7001 -n 90'
	local odd='^warning: plugin "Shim" \(v8\) reported another size for'
	pairs "$measured" <<-END
		text;shortsize;;${odd/^/} 1 of the messages received, as 23 for 24: ;ok;-q -t 2 : -q -t 2
		bw;shortsize;;${odd/^/} 180 of the messages received, as 7000 for 7001: ;ok
		ping;;shortsize;ok;${odd/^/} 90 of the messages received, as 7000 for 7001: ;$pings
		wrong;shortsize,corrupt;;message 0 .*byte 3500 of 7001 differs;$LOST
	END
}

# It dies in our process: then the last line says whose call it was.
test_plugins_that_crash() {
	local call sides
	! nm "$B/test_connection" | grep -q __asan_init || return 0 # that says more
	for call in init devices getProperties listen accept regMr irecv test deregMr closeRecv \
		closeListen connect isend closeSend; do
		sides=server
		[[ $call != connect && $call != *[sS]end ]] || sides=client
		echo "crash=$call;$sides;139 SIGSEGV came in $call\(\) of plugin \"Shim\"\$;any"
	done | at_fault >"$T/rows"
	echo 'badlog;badlog;;139 SIGSEGV came in init\(\) of plugin "Shim", while its message from net_ib\.c was formatted$;none;-t 1' >>"$T/rows"
	pairs '-q -t 2 : -q -t 2' <"$T/rows"
	# A signal from elsewhere is not the plugin's, and ends the program as ever.
	next_port
	server_side outside -q
	kill -SEGV "$(pgrep -P "$pid")"
	reap outside
	assertEquals 139 "$(rc_of outside)"
	assertEquals "" "$(err_of outside)"
}

# In the order of v5: a hole in its table.
test_plugins_that_are_none() {
	local call v n=1 calls=(init devices getProperties listen connect accept regMr deregMr isend irecv
		iflush test closeSend closeRecv closeListen)
	echo "not a library" >"$T/text.so"
	head -c 60 "$B/libnccl-net-lab.so" >"$T/half.so"
	for call in "${calls[@]}"; do
		for v in 5 8; do
			[[ $call == iflush ]] || # which nobody calls
				echo "$call.$v;hole=$n;;ncclNetPlugin_v$v of .* has no $call\(\);none;-a v$v"
		done
		n=$((n + 1))
	done >"$T/rows"
	for v in text half; do
		echo "$v;;;dlopen\(\) failed.*$v\.so;none;-P $T/$v.so"
	done >>"$T/rows"
	echo 'nolisten;nolisten;;listen\(dev 0\) of plugin "Shim" \(v8\) returned 0 and no listenComm;none;-t 1' >>"$T/rows"
	pairs '' <"$T/rows"
}

# Whatever the program or the plugin asks the system for is refused once.
test_refusals() {
	each_request starved_test
	assertEquals "$(err_of client)$(err_of server)" '0 0' "$(rc_of client) $(rc_of server)"
	assert_refusals 30 "client connect" <"$T/refusals"
}
starved_test() { # N; a client that listens and accepts, too
	local rc=0
	next_port
	server_side server -q -t 2
	starved "$1" client timeout -k 5 "$TIME_LIMIT" "$B/test_connection" -q -t 2 -l -p "$port" client 127.0.0.1 >>"$T/refusals" || rc=$?
	reap server
	assertEquals "request $1: $(err_of server)" "$(rc_of client)" "$(rc_of server)"
	return "$rc"
}

# 1 GiB, in the newest version and in one whose regMr has an int; and 64 times as much.
test_much_memory() {
	local v kib
	if (($(getconf _PHYS_PAGES) * $(getconf PAGESIZE) >> 36 == 0)); then
		talk huge -q -c 64 : -q -s 1073741824
		judge huge.server 'the buffers need 65536 MiB, this machine has [0-9]+ MiB'
		judge huge.client 'the buffers need 65536 MiB, this machine has [0-9]+ MiB'
	fi
	kib=$(awk '/^MemAvailable/{print $2}' /proc/meminfo)
	((kib > 3 << 20)) || { skip 'less than 3 GiB of memory are free'; return; }
	for v in 5 8; do
		talk "$v" -j -a "v$v" : -j -a "v$v" -s 1073741824
		assert_pair "$v"
		assert_json "$v" .size 1073741824
	done
}

oneTimeSetUp() { build_net; }

. shunit2
