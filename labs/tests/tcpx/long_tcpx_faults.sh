#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 when something is wrong with the plugin. Both sides end in time, with 1
# and one error that says why, and take down what they have built.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

# ---- the plugin

NOT_READY="$LOST|connect\(dev 0\) of plugin .* returned 2"

# A call that fails: its name | which side | what the error says | and the peer's
failing_calls() {
	cat <<-'END'
		init|both|init\(\)|waiting for a client|no server listened
		devices|both|devices\(\)|waiting for a client|no server listened
		getProperties|both|getProperties\(dev 0\)|waiting for a client|no server listened
		getProperties:2|both|getProperties\(dev 0\)|READY
		listen|server|listen\(dev 0\)|no server listened
		listen:3|server|listen\(dev 0\)|no server listened
		connect|client|connect\(dev 0\)|READY
		connect:3|client|connect\(dev 0\)|READY
		accept|server|accept\(\)|READY
		regMr|both|regMr\(.* type 1\)|READY
		regMr:4|both|regMr\(.* type 1\)|READY
		isend|client|isend\(\)|DONE
		isend:100|client|isend\(\)|DONE
		irecv|server|irecv\(\)|DONE
		irecv:100|server|irecv\(\)|DONE
		test|both|test\(\)|DONE
		test:99|both|test\(\)|DONE
	END
}

# The side that is not at fault may wait for one who never comes: 2 s at most.
test_failing_calls() {
	local call side says peer_says name other
	with_shim
	while IFS='|' read -r call side says peer_says; do
		if [[ $side != client ]]; then
			server_shim=fail=$call client_shim='' \
				talks "server.$call" -q -t 2 -c 4 : -q -t 2 -s 7000 -n 90
		fi
		if [[ $side != server ]]; then
			server_shim='' client_shim=fail=$call \
				talks "client.$call" -q -t 2 -c 4 : -q -t 2 -s 7000 -n 90
		fi
	done < <(failing_calls)
	wait
	without_shim
	while IFS='|' read -r call side says peer_says; do
		for name in server client; do
			[[ $side == both || $side == "$name" ]] || continue
			[[ $name == server ]] && other=client || other=server
			assert_fails "$name.$call.$name" \
				"^error: $says of plugin \"Shim\" \(v8\) returned 2: system error"
			peer_says=${peer_says/#READY/$NOT_READY}
			assert_fails "$name.$call.$other" "${peer_says/#DONE/$LOST}"
		done
	done < <(failing_calls)
}

# Whatever the program or the plugin asks the system for is refused once.
test_refusals() {
	without_shim
	refusals_of_client two 2
	refusals_of_client listens 1 -l # which listens and accepts, too
}
refusals_of_client() { # NAME CHANNELS OPTION…
	each_request starved_test "$@"
	assertEquals "$(err_of "$1")$(err_of server)" '0 0' "$(rc_of "$1") $(rc_of server)"
	assert_refusals 30 "$1 connect" <"$T/refusals"
	rm "$T/refusals"
}
starved_test() { # N NAME CHANNELS OPTION…
	local rc=0
	next_port
	server_side server -q -t 2 -c "$3"
	starved "$1" "$2" timeout -k 5 "$TIME_LIMIT" "$B/test_connection" -q -t 2 \
		-p "$port" -c "$3" "${@:4}" client 127.0.0.1 >>"$T/refusals" || rc=$?
	reap server
	assertEquals "request $1: $(err_of server)" "$(rc_of "$2")" "$(rc_of server)"
	return "$rc"
}

# 64 channels of 1 GiB; where a machine has them, there is nothing to refuse.
test_more_memory_than_there_is() {
	(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE) >> 36 == 0)) || return 0
	without_shim
	talk huge -q -c 64 : -q -s 1073741824
	assert_fails huge.server 'the buffers need 65536 MiB, this machine has [0-9]+ MiB'
	assert_fails huge.client 'the buffers need 65536 MiB, this machine has [0-9]+ MiB'
}

# A client that is connected and ready learns it from READY, not from silence.
test_the_peer_is_told() {
	with_shim
	server_shim=slow,fail=regMr client_shim='' talk told -q -t 2 : -q -t 2
	without_shim
	assert_fails told.server 'regMr\('
	assert_fails told.client 'the peer failed before sync point READY: EIO \(5\)'
}

# These come after the peer's confirmation: the data has arrived, and still the
# side on which it happened must not say that all is well.
test_failing_ends() {
	local side call
	with_shim
	for call in deregMr deregMr:3 close; do
		for side in server client; do
			local -x server_shim='' client_shim=''
			declare "${side}_shim=fail=$(end_call "$side" "$call")"
			talks "$side.$call" -j -t 2 -c 4 : -j -t 2 -s 7000 -n 90
		done
	done
	server_shim=fail=closeListen client_shim='' \
		talks server.listen -j -t 2 -c 4 : -j -t 2 -s 7000 -n 90
	wait
	without_shim
	for call in deregMr deregMr:3 close; do
		assert_fails "server.$call.server" 'returned 2: system error'
		assert_fails "client.$call.client" 'returned 2: system error'
		assertEquals 0 "$(rc_of "server.$call.client")"
		assertEquals 0 "$(rc_of "client.$call.server")"
		assertEquals "no result" "" "$(out_of "server.$call.server")"
	done
	assert_fails server.listen.server 'closeListen\(\)'
	assertEquals 0 "$(rc_of server.listen.client)"
	# They are named as the interface names them.
	assert_in "$(err_of server.deregMr.server)" 'deregMr\(\)'
	assert_in "$(err_of server.close.server)" 'close_?[rR]ecv\(\)'
	assert_in "$(err_of client.close.client)" 'close_?[sS]end\(\)'
}

end_call() { # SIDE CALL
	case $1.$2 in
	server.close) echo closeRecv ;;
	client.close) echo closeSend ;;
	*) echo "$2" ;;
	esac
}

test_failing_irecv_consumed() {
	with_shim
	server_shim=unpack,fail=irecvConsumed:5 client_shim='' \
		talk consumed -q -t 2 : -q -t 2 -s 7000 -n 90
	without_shim
	assert_fails consumed.server 'irecvConsumed\(\)'
	assert_fails consumed.client "$LOST"
}

# 6 means that it is the peer's fault: then the next step points there.
test_the_plugin_blames_the_peer() {
	with_shim
	server_shim=fail=test,rc=6 client_shim='' \
		talk remote -q -t 2 : -q -t 2 -s 7000 -n 90
	without_shim
	assert_fails remote.server 'test\(\) .* returned 6: remote error'
	assert_in "$(err_of remote.server)" "next: see the peer's own messages"
	assert_fails remote.client "$LOST"
	# One that has said nothing is not quoted as if it had.
	with_shim
	server_shim=fail=listen client_shim='' talk silent -q -t 1 : -q -t 1
	without_shim
	assert_in "$(err_of silent.server)" 'next: the plugin has not said why'
}

# No such results: they have no name, and yet they are failures.
test_results_that_are_none() {
	local rc
	with_shim
	for rc in -1 7; do
		server_shim=fail=listen,rc=$rc client_shim='' \
			talks "$rc.listen" -q -t 1 : -q -t 1
		server_shim=fail=accept,rc=$rc client_shim='' \
			talks "$rc.accept" -q -t 1 : -q -t 1
		server_shim='' client_shim=fail=connect,rc=$rc \
			talks "$rc.connect" -q -t 1 : -q -t 1
	done
	wait
	without_shim
	for rc in -1 7; do
		assert_fails "$rc.listen.server" "listen\(.* returned $rc: unknown error\$"
		assert_fails "$rc.accept.server" "accept\(.* returned $rc: unknown error\$"
		assert_fails "$rc.connect.client" "connect\(.* returned $rc: unknown error\$"
	done
}

test_failing_ping_pong() {
	local call side
	with_shim
	for call in accept connect isend:20 irecv:20 test:30; do
		server_shim=fail=$call client_shim='' \
			talks "server.$call" -q -t 2 : -q -t 2 -l -n 90
		server_shim='' client_shim=fail=$call \
			talks "client.$call" -q -t 2 : -q -t 2 -l -n 90
	done
	wait
	without_shim
	for call in accept connect isend:20 irecv:20 test:30; do
		for side in server.$call.server client.$call.client; do
			assert_fails "$side" "${call%:*}\(.*returned 2: system error"
		done
		for side in server.$call.client client.$call.server; do
			assert_fails "$side" "$NOT_READY"
		done
	done
}

# What arrives is not what was sent: the receiver must see it.
test_lying_plugins() {
	local lie
	with_shim
	for lie in corrupt overrun; do
		server_shim=$lie client_shim='' \
			talks "$lie" -q -t 2 : -q -t 2 -s 7001 -n 90
		server_shim=$lie client_shim='' \
			talks "$lie.bw" -q -t 2 : -q -t 2 -b -s 7001 -n 90
		server_shim='' client_shim=$lie \
			talks "$lie.ping" -q -t 2 : -q -t 2 -l -s 7001 -n 90
	done
	server_shim=corrupt client_shim='' talks text -q -t 2 : -q -t 2
	server_shim=overrun client_shim='' talks full -q -t 2 : -q -t 2 -s 64
	server_shim=overrun client_shim='' talks none -q -t 2 : -q -t 2 -s 0
	for lie in leap early lost; do
		server_shim=$lie client_shim='' talks "$lie" -q -t 2 : -q -t 2 -s 7001
	done
	server_shim=lost client_shim='' talks lost.text -q -t 2 : -q -t 2
	server_shim='' client_shim=early talks sender -q -t 2 : -q -t 2 -s 7001
	wait
	without_shim
	assert_fails corrupt.server \
		'message 0 on channel 0 arrived wrong: byte 3500 of 7001 differs'
	for lie in overrun leap early; do
		assert_fails "$lie.server" 'message 0 .*bytes outside the buffer'
	done
	assert_fails text.server 'message 0 .*it is not the text'
	# Nor does the buffer hold what is expected before anything comes.
	assert_fails lost.server 'message 0 .*byte 0 of 7001 differs'
	assert_fails lost.text.server 'message 0 .*it is not the text'
	assert_fails sender.client "message 0 .*the sender's guards were written"
	assert_fails sender.server "$LOST"
	assert_fails full.server 'bytes outside the buffer'
	assert_fails none.server 'bytes outside the buffer'
	for lie in corrupt overrun leap early lost{,.text} text full none; do
		assert_fails "$lie.client" "$LOST"
	done
	# A measurement looks at the last window only, and at the contents.
	for lie in corrupt overrun; do
		assert_fails "$lie.bw.server" 'arrived wrong'
		assert_fails "$lie.ping.client" 'arrived wrong'
	done
}

# What test() says of the size is no proof: the bytes are, and the guards. One
# warning says that they differ, and how.
test_sizes_that_are_wrong() {
	local lie side
	with_shim
	for lie in shortsize longsize roomsize; do
		server_shim=$lie client_shim='' talks "$lie.text" -t 2 : -q -t 2
		server_shim=$lie client_shim='' \
			talks "$lie.bw" -q -t 2 -c 2 : -q -t 2 -b -s 7001 -n 90
		server_shim='' client_shim=$lie \
			talks "$lie.ping" -q -t 2 : -q -t 2 -l -s 7001 -n 90
	done
	server_shim=shortsize,corrupt client_shim='' \
		talks wrong -q -t 2 : -q -t 2 -b -s 7001 -n 90
	wait
	without_shim
	odd 1 23 24 shortsize.text.server
	odd 1 96 24 longsize.text.server
	odd 1 4096 24 roomsize.text.server
	odd 180 7000 7001 shortsize.bw.server
	odd 180 28004 7001 longsize.bw.server
	odd 90 7000 7001 shortsize.ping.client
	odd 90 28004 7001 longsize.ping.client
	for side in roomsize.bw.server roomsize.ping.client; do
		assertEquals "$side: $(err_of "$side")" "" "$(err_of "$side")"
		assertEquals 0 "$(rc_of "$side")"
	done
	for lie in shortsize longsize roomsize; do
		assert_in "$(out_of "$lie.text.server")" "^Data: 'Hello from TCPX client!'\$"
		for side in text.client bw.client ping.server; do
			assertEquals "$lie.$side: $(err_of "$lie.$side")" 0 "$(rc_of "$lie.$side")"
		done
	done
	# And the first message of an odd size is looked at, even in a measurement.
	assert_fails wrong.server 'message 0 .*byte 3500 of 7001 differs'
}

odd() { # COUNT REPORTED SENT NAME
	assertEquals "$4: $(err_of "$4")" 0 "$(rc_of "$4")"
	assertEquals 1 "$(grep -c '^warning: ' "$T/$4.err")"
	assert_in "$(err_of "$4")" "^warning: plugin \"Shim\" \(v8\) reported another size for $1 of the messages received, as $2 for $3: "
}

# listen() has no "call again".
test_listen_without_a_comm() {
	with_shim
	server_shim=nolisten client_shim='' talk listen -t 2 : -q -t 1
	server_shim='' client_shim=nolisten talk back -q -t 2 : -q -t 1 -l
	without_shim
	assert_fails listen.server \
		'^error: listen\(dev 0\) of plugin "Shim" \(v8\) returned 0 and no listenComm'
	assert_not_in "$(out_of listen.server)" 'Handle'
	assert_fails back.client 'returned 0 and no listenComm'
}

# It dies in our process: then the last line says whose call it was.
test_plugins_that_crash() {
	local call side
	! nm "$B/test_connection" | grep -q __asan_init || return 0 # that says more
	with_shim
	for call in init devices getProperties listen; do
		next_port
		server_shim=crash=$call server_side "$call.server" -q -t 2
		reap "$call.server"
	done
	for call in accept regMr irecv test deregMr closeRecv closeListen; do
		server_shim=crash=$call client_shim='' talks "$call" -q -t 2 : -q -t 2
	done
	for call in connect isend closeSend; do
		server_shim='' client_shim=crash=$call talks "$call" -q -t 2 : -q -t 2
	done
	next_port
	server_shim=badlog server_side badlog -q -t 2
	reap badlog
	wait
	without_shim
	for call in init devices getProperties listen accept regMr irecv test \
		deregMr closeRecv closeListen connect isend closeSend; do
		side=server
		[[ $call != connect && $call != *[sS]end ]] || side=client
		assertEquals "$call: $(err_of "$call.$side")" 139 "$(rc_of "$call.$side")"
		assertEquals "$call" \
			"error: SIGSEGV came in $call() of plugin \"Shim\"" \
			"$(grep '^error: ' "$T/$call.$side.err")"
	done
	assertEquals 139 "$(rc_of badlog)"
	assert_in "$(err_of badlog)" '^error: SIGSEGV came in init\(\) of plugin "Shim", while its message from net_ib\.c was formatted$'
	# A signal from elsewhere is not the plugin's, and ends the program as ever.
	next_port
	server_side outside -q
	kill -SEGV "$(pgrep -P "$pid")"
	reap outside
	assertEquals 139 "$(rc_of outside)"
	assertEquals "" "$(err_of outside)"
}

# The plugin has threads: until close, an outstanding receive may be written.
test_buffers_outlive_the_requests() {
	with_shim
	# Big ones, which free() gives back to the kernel at once.
	server_shim=linger,fail=test:40 client_shim=linger \
		talks server -q -t 2 -c 4 : -q -t 2 -s 4000000 -n 90
	server_shim=linger client_shim=linger,fail=test:40 \
		talks client -q -t 2 -c 4 : -q -t 2 -s 4000000 -n 90
	wait
	without_shim
	for name in {server,client}.{server,client}; do
		assertEquals "$name: $(err_of "$name")" 1 "$(rc_of "$name")"
	done
}

test_devices() {
	local n
	with_shim
	for n in 0 -3; do
		next_port
		server_shim=devices=$n server_side "$n" -t 2
		reap "$n"
		assert_fails "$n" "found $n devices"
	done
	without_shim
	next_port
	server_side beyond -d 65535 -t 2
	reap beyond
	assert_fails beyond 'there is no device 65535'
	talk last -q -d "$(($("$B/test_connection" -t 1 -p "$port" server 2>/dev/null |
		sed -n 's/.*Found \([0-9]*\) TCPX devices/\1/p') - 1))" : -q
	assert_pair last
}

reap_all() {
	reap "${!pids[@]}"
	pids=()
}

test_holes() {
	local call v calls
	calls='init devices getProperties listen connect accept regMr deregMr isend
		irecv test closeSend closeRecv closeListen'
	pids=()
	with_shim
	for v in 5 6 7 8; do
		for call in $calls; do
			next_port
			NET_SHIM=hole=$call side "$v.$call" -a "v$v" -t 1 server
			((${#pids[@]} % 4)) || reap_all
		done
	done
	reap_all
	for v in 5 6 7 8; do
		for call in $calls; do
			assert_fails "$v.$call" "ncclNetPlugin_v$v of .* has no $call\(\)"
		done
	done
	without_shim
}

# loads PATH ARGS…: as server, which fails
loads() {
	next_port
	server_side load -t 2 -P "$@"
	reap load
}

test_plugins_that_are_none() {
	loads "$T/nothing.so"
	assert_fails load 'dlopen\(\) failed.*nothing\.so.*No such file'
	assert_in "$(err_of load)" '^ next: '
	echo "not a library" >"$T/text.so"
	loads "$T/text.so"
	assert_fails load 'dlopen\(\) failed.*text\.so'
	loads "$T"
	assert_fails load 'dlopen\(\) failed'
	: >"$T/empty.so"
	loads "$T/empty.so"
	assert_fails load 'dlopen\(\) failed.*empty\.so'
	head -c 60 "$B/libnccl-net-lab.so" >"$T/half.so"
	loads "$T/half.so"
	assert_fails load 'dlopen\(\) failed.*half\.so'
	loads libm.so.6
	assert_fails load 'libm\.so\.6 is a library, but exports none of ncclNetPlugin_v5'
	UCCL_TCPX_PLUGIN_PATH=$T/nothing.so side env server
	reap env
	assert_fails env 'dlopen\(\) failed.*nothing\.so'
	loads "$N/net_shim_v5.so" -a v7
	assert_fails load 'does not export ncclNetPlugin_v7, but v5'
}

# Listening through one version and accepting through another: report 001.
test_mixed_versions() {
	UCCL_TCPX_DEBUG=1 talks mixed -M -t 2 : -M -t 2
	talks lab -M -t 2 -P "$B/libnccl-net-lab.so" \
		: -M -t 2 -P "$B/libnccl-net-lab.so"
	# The versions of the two sides differ; each of them uses only one.
	talks sides -t 2 -a v7 : -t 2 -a v5
	wait
	assert_fails mixed.client 'connect\(dev 0\)'
	assert_in "$(err_of mixed.client)" 'Connection refused'
	assert_fails mixed.server 'accept\(\)|peer failed'
	assert_in "$(err_of mixed.server)" 'recv_comm=\(nil\)'
	assert_fails lab.client 'connect\(dev 0\)'
	assert_fails lab.server 'accept\(\)|peer failed'
	assert_in "$(err_of lab.client)" 'ncclNet.*v7.*v5'
	assert_fails sides.client 'made by listen of API v7, .* through v5$'
	assert_fails sides.server 'waiting for a client: nothing came'
}

# An independent user of the interface: it has none of this project's headers.
test_net_driver() {
	# Both ends of 64 comms are one process; many systems begin with 1,024 descriptors.
	ulimit -Sn "$(ulimit -Hn)"
	local name
	build_driver || return
	# Three at a time: some of its tests only wait.
	drive lab.5 "$B/libnccl-net-lab.so" 5 all
	drive lab.6 "$B/libnccl-net-lab.so" 6 all
	drive mixed.5 "$B/libnccl-net-mixed.so" 5 all
	reap lab.5 lab.6 mixed.5
	drive lab.7 "$B/libnccl-net-lab.so" 7 all
	drive lab.8 "$B/libnccl-net-lab.so" 8 all
	drive mixed.8 "$B/libnccl-net-mixed.so" 8 all
	reap lab.7 lab.8 mixed.8
	NCCL_LAB_NSOCKS=1 drive sockets.1 "$B/libnccl-net-lab.so" 8 all
	NCCL_LAB_NSOCKS=8 drive sockets.8 "$B/libnccl-net-lab.so" 8 all
	reap sockets.1 sockets.8
	for name in lab.{5,6,7,8} mixed.{5,8} sockets.{1,8}; do
		assertEquals "$name: $(out_of "$name") $(err_of "$name")" \
			0 "$(rc_of "$name")"
	done
}

oneTimeSetUp() { build_net; }

. shunit2
