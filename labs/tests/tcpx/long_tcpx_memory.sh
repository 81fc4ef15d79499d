#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stage 6 under AddressSanitizer, UBSan and valgrind: good runs, contract, faults,
# bad peers, a killed peer. The programs, the plugin and the shim are all
# instrumented.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/tcpx/tcpx.sh
. "$ROOT/labs/tests/tcpx/tcpx.sh"

# What assert_clean looks for besides
NOTHING_OF='AddressSanitizer|SHIM VIOLATION|^=='

assert_codes() { # SERVER CLIENT NAME…
	local name
	for name in "${@:3}"; do
		assertEquals "$name.server: $(err_of "$name.server")" "$1" \
			"$(rc_of "$name.server")"
		assertEquals "$name.client: $(err_of "$name.client")" "$2" \
			"$(rc_of "$name.client")"
	done
}

test_good_runs() {
	talks text -a v5 : -a v5
	talks many -q -c 3 -a v8 : -q -s 70001 -n 40 -a v8
	talks zero -q : -q -s 0
	talks ping -j : -j -l -n 40
	talks bw -j -c 2 : -j -b -n 40
	talks all64 -q -c 64 : -q -s 100 -n 3
	UCCL_TCPX_DEBUG=1 talks debug -q : -q
	wait
	assert_codes 0 0 text many zero ping bw all64 debug
	assert_clean "$NOTHING_OF"
}

test_contract() {
	local words modes=(slow 'busy,sleepy' devhandle 'nosize,zerosize' nullmr unpack
		linger notags 'lazy,late' shortsize longsize roomsize)
	with_shim
	for words in "${modes[@]}"; do
		shim=$words talks "$words" -q -c 2 : -q -s 7001 -n 60
		shim=$words talks "$words.ping" -q -a v7 : -q -a v7 -l -n 30
	done
	wait
	without_shim
	for words in "${modes[@]}"; do
		assert_codes 0 0 "$words" "$words.ping"
	done
	assert_clean "$NOTHING_OF"
}

# Where a call fails, all that was made before it is taken down.
test_faults() {
	local call
	with_shim
	for call in connect:2 regMr:2 isend:30 test:30 deregMr closeSend; do
		server_shim='' client_shim=fail=$call \
			talks "client.$call" -q -t 2 -c 3 : -q -t 2 -s 7001 -n 60
	done
	for call in listen:2 accept regMr:2 irecv:30 test:30 deregMr:2 closeRecv \
		closeListen; do
		server_shim=fail=$call client_shim='' \
			talks "server.$call" -q -t 2 -c 3 : -q -t 2 -s 7001 -n 60
	done
	for call in init devices getProperties; do
		server_shim=fail=$call client_shim='' \
			talks "server.$call" -q -t 1 : -q -t 1
	done
	for call in corrupt overrun nolisten; do
		shim=$call talks "$call" -q -t 2 : -q -t 2 -s 7001 -n 60
	done
	shim=linger,fail=test:40 talks linger -q -t 2 : -q -t 2 -s 70001 -n 60
	wait
	without_shim
	assert_codes 0 1 client.{deregMr,closeSend}
	assert_codes 1 1 client.{connect:2,regMr:2,isend:30,test:30} linger \
		server.{init,devices,getProperties,listen:2,accept,regMr:2,irecv:30,test:30} \
		corrupt overrun nolisten
	assert_codes 1 0 server.{deregMr:2,closeRecv,closeListen}
	assert_clean "$NOTHING_OF"
}

test_no_plugin() {
	local name
	next_port
	NET_SHIM=hole=accept side hole -q -P "$N/net_shim.so" server
	side path -q -P "$T/nothing.so" server
	side none -q -P libm.so.6 server
	side version -q -P "$N/net_shim_v5.so" -a v8 server
	side device -q -d 9999 server
	reap hole path none version device
	wait
	for name in hole path none version device; do
		assertEquals "$name" 1 "$(rc_of "$name")"
	done
	talk mixed -q -M -t 2 : -q -M -t 2
	talk lab -q -M -t 2 -P "$NET_SHIM_REAL" : -q -M -t 2 -P "$NET_SHIM_REAL"
	assert_codes 1 1 mixed lab
	assert_clean "$NOTHING_OF"
}

test_hostile_peers() {
	local i=0 row items
	while IFS= read -r row; do
		IFS=' ' read -ra items <<<"${row#* }"
		next_port
		i=$((i + 1))
		if [[ $row == server* ]]; then
			server_side "$i" -q -t 1
			run "$i.peer" "$N/peer" connect 127.0.0.1 "$port" "${items[@]}"
			reap "$i"
		else
			start "$i.peer" "$N/peer" listen "$port" "${items[@]}"
			await listening "$port"
			client_side "$i" -q -t 1
			reap "$i.peer"
		fi
		assert_fails "$i" .
	done <<-'END'
		server fill=4096
		server deal,size=0x10000000000
		server deal,iters=0
		server deal cut=20 close
		server deal close
		server deal,mode=2 handles fill=127 close
		server deal,size=1073741824 close
		client fill=4096
		client handles fill=127 close
		client handles fill=128
		client handles,count=65 fill=8320
		client handles,count=64 fill=8192
		client handles,length=129 fill=129
	END
	assert_clean "$NOTHING_OF"
}

test_killed_and_stopped() {
	local signal victim other
	for signal in KILL INT; do
		for victim in server client; do
			[[ $victim == server ]] && other=client || other=server
			next_port
			start "$signal.server" "$B/test_connection" -q -p "$port" \
				-c 2 server
			await listening_or_ended "$port" "$pid"
			start "$signal.client" "$B/test_connection" -q -p "$port" \
				-s 8388608 -n 20000 client 127.0.0.1
			nap 0.7
			kill -s "$signal" "${pids[$signal.$victim]}"
			reap "$signal.server" "$signal.client" 2>/dev/null
			assert_fails "$signal.$other" .
			[[ $signal == KILL ]] || assert_fails "$signal.$victim" .
		done
	done
	assert_clean "$NOTHING_OF"
}

# The driver and both plugins, too.
test_net_driver() {
	local rc=0
	build_driver
	# The last of all sockets has its part, too.
	NCCL_LAB_NSOCKS=8 drive sockets "$B/libnccl-net-lab.so" 8 size 67108864
	timeout 200 "$N/net_driver" "$B/libnccl-net-lab.so" 8 all \
		>"$T/driver.out" 2>"$T/driver.err" || rc=$?
	reap sockets
	assertEquals "$(out_of driver) $(err_of driver)" 0 "$rc"
	assertEquals "$(out_of sockets) $(err_of sockets)" 0 "$(rc_of sockets)"
	assert_clean "$NOTHING_OF"
}

# What a peer of the plugin's own sockets says decides where its bytes land.
test_hostile_net_peers() {
	assert_hostile_peers
	assert_clean "$NOTHING_OF"
}

# The same sources without sanitizers: valgrind sees what ASan does not, reads of
# what was never written.
test_valgrind() {
	command -v valgrind >/dev/null || { skip "no valgrind here"; return 0; }
	local -x B=$plain
	local name
	checked() { # NAME ARGS…
		start "$1" timeout 100 valgrind -q --leak-check=full \
			--show-leak-kinds=definite,indirect \
			--errors-for-leak-kinds=definite,indirect \
			--error-exitcode=9 "$B/test_connection" -q -t 60 \
			-p "$port" "${@:2}"
	}
	for name in text many bad; do
		local server=() client=()
		[[ $name != many ]] || client=(-s 70001 -n 20)
		[[ $name != many ]] || server=(-c 2)
		[[ $name != bad ]] || server=(-M) client=(-M)
		next_port
		checked "$name.server" "${server[@]}" server
		await listening_or_ended "$port" "$pid"
		checked "$name.client" "${client[@]}" client 127.0.0.1
		reap "$name.client" "$name.server"
	done
	# What is no plugin is closed once.
	checked none -P libresolv.so.2 server
	reap none
	assert_fails none 'exports none of'
	assert_pair text
	assert_pair many
	assert_fails bad.client 'connect\(dev 0\)'
	assert_fails bad.server .
	assert_clean "$NOTHING_OF"
}

oneTimeSetUp() {
	plain=$B
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 test_connection || return 1
	export B=build/asan
	# A sanitizer's report ends the program with 99.
	export ASAN_OPTIONS=exitcode=99:detect_leaks=1
	export UBSAN_OPTIONS=exitcode=99:print_stacktrace=1
	build_net
}

. shunit2
