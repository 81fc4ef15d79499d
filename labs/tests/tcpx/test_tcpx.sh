#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6: test_connection drives a net plugin through v5 to v8 of its interface, and
# keeps the contract that no table shows: net_shim.so watches it. What else can be wrong
# is in long_tcpx_faults.sh (with the plugin) and long_tcpx_peers.sh (with the other side).
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

test_sizes_and_versions() {
	local v size
	for v in 5 6 7 8; do
		for size in 0 1 65537 8388608; do
			talks "$v.$size" -j -a "v$v" : -j -a "v$v" -s "$size"
		done
	done
	wait
	for v in 5 6 7 8; do
		for size in 0 1 65537 8388608; do
			assert_pair "$v.$size"
			assert_json "$v.$size" '[.net_api, .size, .mode, .channels, .iters] | @csv' \
				"$v,$size,\"check\",1,1"
		done
	done
}

test_in_the_lab() {
	local v
	# The client tries until the server listens.
	in_lab '
		for v in 5 6 7 8; do
			start "$v.server" "$B/test_connection" -j -p 2020 -a "v$v" server
			run "$v.client" "$B/test_connection" -j -p 2020 -a "v$v" \
				-s 8388608 client 10.99.0.1
			reap "$v.server"
		done
	' || return 0
	for v in 5 6 7 8; do
		assert_pair "$v"
		assert_json "$v" '[.net_api, .size] | @csv' "$v,8388608"
	done
}

test_measurements() {
	local name side
	talks bw -j : -j -b
	talks many -j -c 64 : -j -s 5000 -n 50
	talks ping -j : -j -l
	talks zero -j : -j -l -n 20 -s 0
	wait
	for name in bw many ping zero; do
		assert_pair "$name"
	done
	assert_json bw '[.mode, .size, .iters] | @csv' '"bandwidth",1048576,1000'
	assert_json many '[.channels, .size, .iters] | @csv' '64,5000,50'
	for side in bw.server bw.client; do
		assert_agree "$side" .mb_per_s '.size * .iters * .channels / .seconds / 1e6'
	done
	assertEquals true "$(json ping.client '.half_round_trip_us |
		.min > 0 and .min <= .median and .median <= .p99 and .p99 <= .max')"
}

test_text_run() {
	talk text :
	assert_pair text
	assert_in "$(out_of text.server)" '^\[Step 4\] '
	assert_in "$(out_of text.server)" "^Data: 'Hello from TCPX client!'\$"
	assert_in "$(out_of text.client)" '^✓ SUCCESS: Sent 24 bytes$'
	talk quiet -q : -q
	assert_pair quiet
	assertEquals "" "$(out_of quiet.server)$(out_of quiet.client)"
	UCCL_TCPX_DEBUG=1 talk debug -q : -q
	assert_in "$(err_of debug.server)" '^\[TCPX\] .*test: .*rc=0 done=1'
	assertEquals "one message" '1 1' "$(grep -c 'irecv: ' "$T/debug.server.err") $(grep -c 'isend: ' "$T/debug.client.err")"
}

# Not only the text: the library that is really mapped.
test_plugin_is_chosen() {
	local -x UCCL_TCPX_PLUGIN_PATH=$N/net_shim.so
	local option want
	for option in '' "-P $N/net_shim_v6.so"; do
		want=${option#-P }
		next_port
		# shellcheck disable=SC2086 # no option, or one with its path
		server_side env -q $option
		assertEquals "${want:-$N/net_shim.so}" \
			"$(grep -o '/.*/tests-net/net_shim[^ ]*so' "/proc/$(pgrep -P "$pid")/maps" | sort -u)"
		client_side env.client -j ${want:+-a v6}
		reap env
	done
	# A plugin may export one version only.
	talk v6 -j -P "$N/net_shim_v6.so" : -j -P "$N/net_shim_v6.so"
	assert_pair v6
	assert_json v6 .net_api 6
}

# The shim's words and the versions: in each mode, on both sides, with no violation. A plugin
# that is lazy moves bytes only while it is asked; the table of one that is late is filled by
# init().
test_contract() {
	local words versions v
	while read -r words versions; do
		for v in $versions; do
			[[ $words != none ]] || words=''
			echo "$words.$v.text;$words;$words;ok;ok;-q -a v$v : -q -a v$v"
			echo "$words.$v.many;$words;$words;ok;ok;-q -c 3 -a v$v : -q -a v$v -s 70001 -n 40"
			echo "$words.$v.ping;$words;$words;ok;ok;-q -a v$v : -q -a v$v -l -n 40 -s 100"
		done
	done >"$T/rows" <<-'END'
		none 5 6 7 8
		slow 5 8
		busy,sleepy 5 8
		lazy 5 8
		late 5 6 7 8
		devhandle,unpack 7 8
		nosize,nullmr 5 8
		zerosize 8
		slow,busy,sleepy,lazy,late,devhandle,nosize,nullmr,unpack 7 8
	END
	pairs '' <"$T/rows"
}

# Listening through one version and accepting through another: report 001.
test_mixed_versions() {
	talks mixed -M -t 2 : -M -t 2
	talks lab -M -t 2 -P "$NET_SHIM_REAL" : -M -t 2 -P "$NET_SHIM_REAL"
	# The versions of the two sides differ; each of them uses only one.
	talks sides -t 2 -a v7 : -t 2 -a v5
	wait
	judge mixed.client 'connect\(dev 0\)'
	assert_in "$(err_of mixed.client)" 'Connection refused'
	judge mixed.server 'accept\(\)|peer failed'
	judge lab.client 'connect\(dev 0\)'
	assert_in "$(err_of lab.client)" 'ncclNet.*v7.*v5'
	judge lab.server 'accept\(\)|peer failed'
	judge sides.client 'made by listen of API v7, .* through v5$'
	judge sides.server 'waiting for a client: nothing came'
}

test_no_plugin_and_no_peer() {
	pairs '' <<-END
		path;;;dlopen\(\) failed.*nothing\.so.*No such file;none;-P $T/nothing.so
		libm;;;libm\.so\.6 is a library, but exports none of ncclNetPlugin_v5;none;-P libm.so.6
		version;;;does not export ncclNetPlugin_v8, but v6;none;-P $N/net_shim_v6.so -a v8
		device;;;there is no device 65535;none;-d 65535
		peer;;;waiting for a client: nothing came;none;-t 1
	END
	next_port
	client_side alone -q -t 1
	judge alone 'ECONNREFUSED.*no server listened'
}

test_wrong_usage() {
	local pattern args
	while IFS='|' read -r pattern args; do
		read -ra args <<<"$args"
		usage_error "$pattern" test_connection "${args[@]}"
	done <<-'END'
		role is missing|
		role is not server or client: peer|peer
		server is missing|client
		too many arguments: more|client 127.0.0.1 more
		--net-api is not|-a v4 server
		--net-api is not|-a v9 server
		--dev is not|--dev=65536 server
		--size is not|--size=1073741825 client 127.0.0.1
		--iters is not|--iters=0 server
		--channels is not|--channels=65 server
		--port is not|--port=65536 server
		--timeout is not|--timeout=0 server
		option: --nonsense$|--nonsense server
		option|server --plugin
	END
	run help "$B/test_connection" --help
	assertEquals 0 "$(rc_of help)"
}

oneTimeSetUp() { build_net; }

. shunit2
