#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6: test_connection drives a net plugin through v5 to v8 of its interface,
# and keeps the contract that no table shows: net_shim.so watches it. What happens
# when something is wrong is in test_tcpx_faults.sh (with the plugin) and in
# test_tcpx_peers.sh (with the other side).
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

test_sizes_and_versions() {
	local v size
	for v in 5 6 7 8; do
		for size in 0 1 24 4096 65537 8388608; do
			talks "$v.$size" -j -a "v$v" : -j -a "v$v" -s "$size"
		done
	done
	wait
	for v in 5 6 7 8; do
		for size in 0 1 24 4096 65537 8388608; do
			assert_pair "$v.$size"
			assert_json "$v.$size" \
				'[.net_api, .size, .mode, .channels, .iters] | @csv' \
				"$v,$size,\"check\",1,1"
		done
	done
	assertEquals server "$(json 5.1.server .role)"
	assertEquals client "$(json 5.1.client .role)"
}

test_in_the_lab() {
	local v size
	# The client tries until the server listens.
	in_lab '
		for v in 5 6 7 8; do
			for size in 0 1 24 4096 65537 8388608; do
				start "$v.$size.server" "$B/test_connection" \
					-j -p 2020 -a "v$v" server
				run "$v.$size.client" "$B/test_connection" \
					-j -p 2020 -a "v$v" -s "$size" client 10.99.0.1
				reap "$v.$size.server"
			done
		done
	' || return 0
	for v in 5 6 7 8; do
		for size in 0 1 24 4096 65537 8388608; do
			assert_pair "$v.$size"
			assert_json "$v.$size" '[.net_api, .size] | @csv' "$v,$size"
		done
	done
}

test_channels() {
	local n
	with_shim
	for n in 1 4 64; do
		talks "$n" -j -c "$n" : -j -s 5000 -n 50
	done
	talks both -j -c 3 -s 100 -n 7 : -j -c 3 -s 100 -n 7
	wait
	without_shim
	for n in 1 4 64; do
		assert_pair "$n"
		assert_json "$n" '[.channels, .size, .iters] | @csv' "$n,5000,50"
	done
	assert_pair both
	assert_json both .channels 3
}

test_measurements() {
	talks bw -j : -j -b
	talks bw2 -j -c 4 : -j -b -n 300 -s 100000
	talks ping -j : -j -l
	talks ping0 -j : -j -l -n 20 -s 0
	talks text -q : -q -l -n 5
	wait
	for name in bw bw2 ping ping0 text; do
		assert_pair "$name"
	done
	assert_json bw '[.mode, .size, .iters] | @csv' '"bandwidth",1048576,1000'
	assert_json bw2 '[.mode, .channels, .size] | @csv' '"bandwidth",4,100000'
	assert_json ping '[.mode, .size, .iters] | @csv' '"ping-pong",64,1000'
	for side in bw.server bw.client bw2.client; do
		assert_agree "$side" .mb_per_s '.size * .iters * .channels / .seconds / 1e6'
		assertEquals "$side" true "$(json "$side" '.mb_per_s > 1')"
	done
	assertEquals true "$(json ping.client '.half_round_trip_us |
		.min > 0 and .min <= .median and .median <= .p99 and .p99 <= .max')"
	assertEquals true "$(json ping.client \
		'.half_round_trip_us.median * 2e-6 * .iters < .seconds * 2')"
	assertEquals 'none took longer than all' true "$(json ping.client \
		'.half_round_trip_us.max * 2e-6 <= .seconds * 1.01')"
	assertEquals null "$(json ping.server .half_round_trip_us)"
	assert_in "$(out_of text.client)" '^5 round trips of 64 bytes: .* us$'
	assertEquals "" "$(out_of text.server)"
}

test_text_run() {
	talk text :
	assert_pair text
	for n in 1 2 3 4; do
		assert_in "$(out_of text.server)" "^\[Step $n\] "
		assert_in "$(out_of text.client)" "^\[Step $n\] "
	done
	assert_in "$(out_of text.server)" '^✓ SUCCESS: Received 24 bytes$'
	assert_in "$(out_of text.server)" "^Data: 'Hello from TCPX client!'\$"
	assert_in "$(out_of text.client)" '^✓ SUCCESS: Sent 24 bytes$'
	assert_in "$(out_of text.client)" 'API v8'
	talk quiet -q : -q
	assert_pair quiet
	assertEquals "" "$(out_of quiet.server)$(out_of quiet.client)"
}

# It builds what it is named for, and the plugins, but no lesson.
test_make_target() {
	local plan
	plan=$(make -n BUILD="$T/b" test_connection 2>&1)
	assertEquals 0 $?
	assert_in "$plan" "-o $T/b/test_connection "
	assert_in "$plan" "-o $T/b/libnccl-net-lab\.so "
	assert_not_in "$plan" 'rdma_server|lessons/'
}

# Not only the text: the library that is really mapped.
test_plugin_is_chosen() {
	local -x UCCL_TCPX_PLUGIN_PATH=$N/net_shim.so
	mapped() { grep -o '/.*/tests-net/net_shim[^ ]*so' "/proc/$1/maps" | sort -u; }
	next_port
	side env server
	await listening_or_ended "$port" "$pid"
	child=$(pgrep -P "$pid")
	assertEquals "$N/net_shim.so" "$(mapped "$child")"
	client_side env.client -q
	reap env
	assertEquals 0 "$(rc_of env)"
	next_port
	side option -P "$N/net_shim_v6.so" server
	await listening_or_ended "$port" "$pid"
	assertEquals "-P is before the environment" "$N/net_shim_v6.so" \
		"$(mapped "$(pgrep -P "$pid")")"
	client_side option.client -q -a v6
	reap option
	assertEquals 0 "$(rc_of option)"
	# Empty is as good as not set.
	UCCL_TCPX_PLUGIN_PATH='' talk empty -j : -j
	assert_pair empty
}

test_debug_shows_the_calls() {
	local side handle
	UCCL_TCPX_DEBUG=1 talk debug -q : -q
	for side in server client; do
		assertEquals "$side" 0 "$(rc_of "debug.$side")"
		assert_in "$(err_of "debug.$side")" \
			'^\[TCPX\] .*reg_mr: data=0x[0-9a-f]+ .*rc=0 mhandle=0x'
		assert_in "$(err_of "debug.$side")" '^\[TCPX\] .*test: .*rc=0 done=1'
		handle=$(sed -n 's/.*handle\[ *[0-9]*\.\.\] \(0x\)*\([0-9a-f]*\)$/\2/p' \
			"$T/debug.$side.err" | tr -d '\n')
		assertEquals "hex digits of the handle" 256 "${#handle}"
		[[ $side != server ]] || server_handle=$handle
	done
	assertEquals "the same 128 bytes on both sides" "$server_handle" "$handle"
	assert_in "$(err_of debug.server)" 'accept.*rc=0 recv_comm=0x'
	assert_in "$(err_of debug.server)" 'irecv: .*rc=0'
	assert_in "$(err_of debug.client)" 'connect.*rc=0 send_comm=0x'
	assert_in "$(err_of debug.client)" 'isend: .*size=24 .*rc=0'
	assertEquals "no more than the plan says" '1 1' "$(grep -c 'irecv: ' "$T/debug.server.err"
		) $(grep -c 'isend: ' "$T/debug.client.err")"
	UCCL_TCPX_DEBUG=0 talk silent -q : -q
	assert_pair silent
}

# Each check of the shim fires on the mistake that it is for, and on no other.
test_shim_notices_misuse() {
	local mistake asked pattern
	while IFS='|' read -r mistake asked pattern; do
		NET_SHIM=$asked run "$mistake" timeout 10 "$N/net_misuse" \
			"$N/net_shim.so" "$mistake" 2>/dev/null
		assertEquals "$mistake: $(err_of "$mistake")" 134 "$(rc_of "$mistake")"
		assert_in "$(err_of "$mistake")" "^SHIM VIOLATION: .*$pattern"
	done <<-'END'
		dirty-handle|slow|not pristine
		fresh-handle|slow|not kept between polls
		moved-handle|slow|moved between polls
		connect-again||connect was called again
		accept-again||accept was called again
		no-storage||no storage for the device handle
		odd-storage||not aligned to 16
		dirty-storage||not zeroed
		type-0||regMr of type 0
		unregistered||not in registration
		17-receives||more than 16 receives
		13-sends||more than 12 sends
		test-youngest||not the oldest
		test-again||not the oldest
		use-failed|fail=test|has failed
		consume||irecvConsumed on a host device
		consume-wrong|unpack|irecvConsumed out of order
		none|unpack|before irecvConsumed of every receive
		stay-registered||registrations left
		deregister-again||not registered
		close-again||comm that is closed
		close-null||NULL comm
		use-closed||comm that is closed
		stay-open||never closed
		none|nonsense|unknown word
	END
	run none "$N/net_misuse" "$N/net_shim.so" none
	assertEquals "$(err_of none)" 0 "$(rc_of none)"
}

# keeps_contract WORDS VERSION…: in each mode, on both sides, with no violation.
keeps_contract() {
	local v name
	shim=$1
	shift
	with_shim
	for v; do
		talks "$shim.$v.text" -q -a "v$v" : -q -a "v$v"
		talks "$shim.$v.many" -j -c 3 -a "v$v" : -j -a "v$v" -s 70001 -n 40
		talks "$shim.$v.ping" -j -a "v$v" : -j -a "v$v" -l -n 40 -s 100
		talks "$shim.$v.bw" -j -a "v$v" : -j -a "v$v" -b -n 40 -s 9999
	done
	wait
	without_shim
	for v; do
		for name in text many ping bw; do
			assert_pair "$shim.$v.$name"
		done
	done
	shim=''
}

test_contract_without_perversion() { keeps_contract '' 5 6 7 8; }
test_contract_slow() { keeps_contract slow 5 8; }
test_contract_busy() { keeps_contract busy 5 8; }
test_contract_sleepy() { keeps_contract sleepy 8; }
# A plugin that moves bytes only while it is asked: a side that waits for an answer
# goes on asking after what it has sent itself.
test_contract_lazy() { keeps_contract lazy 5 8; }
# Its table is filled by init().
test_contract_late() { keeps_contract late 5 6 7 8; }
test_contract_devhandle() { keeps_contract devhandle 7 8; }
test_contract_nosize() { keeps_contract nosize 5 8; }
test_contract_zerosize() { keeps_contract zerosize 5 8; }
test_contract_nullmr() { keeps_contract nullmr 5 8; }
test_contract_notags() { keeps_contract notags 5 8; }
test_contract_unpack() { keeps_contract unpack 5 7 8; }
test_contract_all_at_once() {
	keeps_contract slow,busy,sleepy,lazy,late,devhandle,nosize,nullmr,notags,unpack,linger 7 8
}

# A plugin may export any of the versions: the newest there is, or the one asked.
test_plugins_with_one_version() {
	local v
	for v in 5 6 7 8; do
		talks "$v" -j -P "$N/net_shim_v$v.so" : -j -P "$N/net_shim_v$v.so"
	done
	wait
	for v in 5 6 7 8; do
		assert_pair "$v"
		assert_json "$v" .net_api "$v"
	done
	talk newest -j -P "$N/net_shim.so" : -j -P "$N/net_shim.so"
	assert_pair newest
	assert_json newest .net_api 8
	next_port
	side other -P "$N/net_shim_v6.so" -a v8 server
	reap other
	assert_fails other 'does not export ncclNetPlugin_v8, but v6'
}

# These are not called, so they may be missing.
test_holes_that_do_not_matter() {
	local hole
	with_shim
	for hole in regMrDmaBuf iflush getDeviceMr irecvConsumed name; do
		shim=hole=$hole talks "$hole" -j : -j
	done
	wait
	without_shim
	for hole in regMrDmaBuf iflush getDeviceMr irecvConsumed name; do
		assert_pair "$hole"
	done
}

# Where test_connection itself never goes.
test_calls_at_their_limits() {
	local flags
	net_flags
	helper "$N/unit_tcpx_calls" "${flags[@]}" labs/tests/tcpx/unit_tcpx_calls.c \
		"$B/librdma_common.a" -libverbs -ljansson -ldl
	run calls timeout "$TIME_LIMIT" "$N/unit_tcpx_calls" "$B/libnccl-net-lab.so"
	assertEquals "$(out_of calls) $(err_of calls)" 0 "$(rc_of calls)"
}

# usage_error PATTERN ARGS…
usage_error() {
	run usage timeout 10 "$B/test_connection" "${@:2}"
	assert_error usage 2 "$1"
	assert_in "$(err_of usage)" '^ next: .*--help' "$*"
	assertEquals "stdout of $*" "" "$(out_of usage)"
}

test_wrong_usage() {
	local value
	usage_error 'role is missing'
	usage_error 'role is missing' -j
	usage_error 'role is not server or client: peer' peer
	usage_error 'role is not server or client' ''
	usage_error 'server is missing' client
	usage_error 'server is missing' client ''
	usage_error 'too many arguments: more' server more
	usage_error 'too many arguments: more' client 127.0.0.1 more
	for value in v4 v9 8 v v88 V8 '' v5x; do
		usage_error '--net-api is not' -a "$value" server
	done
	for value in -1 65536 x '' 1.5; do
		usage_error '--dev is not' "--dev=$value" server
	done
	for value in -1 1073741825 4k '' 18446744073709551616; do
		usage_error '--size is not' "--size=$value" client 127.0.0.1
	done
	for value in 0 100000001 x -1; do
		usage_error '--iters is not' "--iters=$value" server
	done
	for value in 0 65 x -1; do
		usage_error '--channels is not' server "--channels=$value"
	done
	for value in 0 65536 x -1; do
		usage_error '--port is not' "--port=$value" server
	done
	for value in 0 86401 x 1.5; do
		usage_error '--timeout is not' "--timeout=$value" server
	done
	usage_error 'option: --nonsense$' --nonsense server
	usage_error 'unknown option: -x$' -x server
	usage_error 'option|argument' server --plugin
	usage_error 'option|argument' --json=yes server
	run help "$B/test_connection" --help
	assertEquals 0 "$(rc_of help)"
	assertEquals "" "$(err_of help)"
}

oneTimeSetUp() { build_net; }

. shunit2
