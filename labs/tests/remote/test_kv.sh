#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# kv_client in memory_server's memory: each value is right, whoever reads, writes or
# is killed beside it; and a torn READ is seen, which without the check it is not.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() {
	build_helpers
	# The same client, which believes all that it reads.
	helper "$B/kv_trusts_all" -O2 -DKV_TRUSTS_ALL "$SOURCES/client/kv_client.c" \
		"$SOURCES/common/remote/kv.c" "$B/librdma_common.a" -libverbs -ljansson -lisal
	# And one in which a put leaves the version as it was.
	sed 's|\*version = now + 1;|*version = now ? now : 1;|' \
		"$SOURCES/common/remote/kv.c" >"$T/stands_still.c"
	helper "$B/kv_stands_still" -O2 -iquote "$SOURCES/common/remote" "$SOURCES/client/kv_client.c" \
		"$T/stands_still.c" "$B/librdma_common.a" -libverbs -ljansson -lisal
	export spy=$B/spy.so
}

test_put_and_get() {
	on_rxe '
		lend memory -q -c 4 -b 449 # rounded up to 512
		client run missing kv_client -k none
		for key in one two three; do client run "put.$key" kv_client -k "$key" -p "value $key"; done
		client run again kv_client -k two -p 第二
		client run empty kv_client -k one -p ""
		for key in one two three; do client run "get.$key" kv_client -k "$key"; done
		client run full kv_client -k four -p x
		client run absent kv_client -k four
		client run long kv_client -k one -p "$(printf %0300d 0)"
		client run count kv_client -c
		run told "$B/kv_client" -k two 10.99.0.1 rxe1
		end memory
	' || return 0
	assert_done told
	assert_in "$(out_of told)" '^\[Step 1\] connect to the server of the memory'
	assert_done memory put.{one,two,three} again empty get.{one,two,three} count
	assertEquals '' "$(out_of get.one)"
	assertEquals '第二' "$(out_of get.two)"
	assertEquals 'value three' "$(out_of get.three)"
	assertEquals '3 5' "$(json count '"\(.keys) \(.puts)"')"
	assert_error missing 1 'there is no key "none"'
	assert_error absent 1 'there is no key "four"'
	assert_error full 1 'no cell is free for key "four": 3 were looked at'
	assert_error long 1 'the value has 300 bytes, a cell holds 180'
}

test_eight_clients() {
	on_rxe '
		lend memory -q -b 8192
		for i in {1..8}; do client start "c$i" kv_client -e -t 60 -n 60 -K 3; done
		reap c{1..8}
		client run count kv_client -c
		end memory
	' || return 0
	assert_done memory count c{1..8}
	assertEquals "no put is lost" "3 $(sum .puts c{1..8})" \
		"$(json count '"\(.keys) \(.puts)"')"
	assertTrue "nobody read" "(( $(sum .gets c{1..8}) > 100 ))"
}

# The reader has the word of version 1 and is held; version 2 is put, and of version 3,
# which goes where 1 was, only a part arrives.
torn='
	lend memory -q -b 8192
	client run first kv_client -n 1 -K 1 -w 100
	stop_at 2 reader "$reader" -n 1 -K 1 -w 0
	await halted reader
	client run second kv_client -n 1 -K 1 -w 100
	SPY_STOP=ibv_post_send:6 LD_PRELOAD=$spy start third "$B/sabotage" -o "$T/said" \
		post_send:5:sge.length-2000 "$B/kv_client" -j -n 1 -K 1 -w 100 10.99.0.1 rxe1
	stopped() { rdma resource show qp link rxe1 | grep -o "pid [0-9]*" | while read -r _ p; do
		[[ $(<"/proc/$p/stat") == *") T "* ]] && echo "$p"; done; }
	two() { (($(stopped | wc -l) == 2)); }
	await two
	kill -CONT "${pids[reader]}"
	reap reader
	kill -KILL $(stopped)
	reap third 2>/dev/null
	client run fourth kv_client -n 4 -K 1
	client run count kv_client -c
	end memory
'

test_a_torn_read_is_seen() {
	on_rxe "reader=kv_client; $torn" || return 0
	assert_done memory first second reader fourth count
	assertEquals "torn once, and read again" '1 1' "$(json reader '"\(.torn) \(.gets)"')"
	assertEquals "what was half written is not there" $((2 + $(json fourth .puts))) \
		"$(json count .puts)"
}

test_a_torn_read_is_not_seen_without_the_check() {
	on_rxe "reader=kv_trusts_all; $torn" || return 0
	assert_done memory first second fourth count
	assert_error reader 1 'key-0 has a wrong value'
}

# Of version 1 it has the word and is held; when it reads the half, version 3 is there.
test_an_overtaken_read_is_seen() {
	on_rxe '
		lend memory -q
		client run first kv_client -n 1 -K 1 -w 100
		stop_at 2 reader kv_client -n 1 -K 1 -w 0
		await halted reader
		client run others kv_client -n 2 -K 1 -w 100
		kill -CONT "${pids[reader]}"
		reap reader
		end memory
	' || return 0
	assert_done memory first reader others
	assertEquals '0 1 1' "$(json reader '"\(.torn) \(.overtaken) \(.gets)"')"
}

# What is damaged and stays so; and a key that was there: of the first client, the second
# of its two requests is a get, and looks one cell before.
test_what_the_client_judges_by() {
	on_rxe '
		lend memory -q -c 2 -b 512
		client run put kv_client -k one -p x
		client run overwrites memory_bench -W -n 1 -s 448
		client run damaged kv_client -k one -t 1
		end memory
		lend memory -q -b 512
		misled gone post_send:6+:remote_addr-512 kv_client -n 2 -K 1 -w 50
		client run twice kv_stands_still -n 2 -K 1 -w 100
		end memory
	' || return 0
	assert_done memory put overwrites
	assert_error damaged 1 'version [0-9]+ in cell 1 stays damaged'
	assert_error gone 1 'key-0 is gone'
	assert_error twice 1 'key-0 went from version 1 back to 1'
}

# Its requests: read the word and the half, read the word, swap, write, swap; and again.
# (There is no half to read of a new key, which the first one does not get to put.)
test_killed_at_any_request() {
	on_rxe '
		lend memory
		for n in {1..12}; do
			stop_at "$n" "dies$n" kv_client -n 3 -K 1 -w 100
			await halted "dies$n"
			((n > 1)) || client run before kv_client -n 1 -K 1 -w 0
			kill9 "dies$n"
			client run "after$n" kv_client -n 3 -K 1 -w 50
		done
		client run count kv_client -c
		end memory
	' || return 0
	assert_done memory before count after{1..12}
	assertEquals "nothing yet" 0 "$(json before .gets)"
	assertEquals "locks that were freed" 4 \
		"$(grep -c 'a lock that it had is free again' <<<"$(out_of memory)")"
	# Stopped before the nth request: from the 7th on, the first put is done.
	assertEquals "puts" $(($(sum .puts after{1..12}) + 6)) "$(json count .puts)"
}

# Readers do not wait for a writer, and another writer waits no longer than the lease.
test_a_stopped_writer() {
	on_rxe '
		lend memory -q -l 1
		client run first kv_client -k key -p old
		stop_at 6 stopped kv_client -k key -p new
		await halted stopped
		client run reader kv_client -k key
		client run writer kv_client -t 60 -k key -p newer
		kill -CONT "${pids[stopped]}"
		reap stopped
		client run after kv_client -k key
		end memory
	' || return 0
	assert_done first reader writer after
	assertEquals old "$(out_of reader)"
	assertEquals newer "$(out_of after)"
	assert_in "$(rc_of stopped)" '^1$'
}

# Another key is in the cell by now; and the key's own lock is kept for too long.
test_a_cell_that_is_taken() {
	on_rxe '
		lend memory -c 2 -l 60
		stop_at 2 late kv_client -k a -p x
		await halted late
		client run first kv_client -k b -p old
		kill -CONT "${pids[late]}"
		reap late
		client run get kv_client -k b
		stop_at 6 stopped kv_client -k b -p new
		await halted stopped
		client run impatient kv_client -k b -p never -t 5
		cp "$T/memory.out" "$T/freed.out"
		kill9 stopped
		client run after kv_client -k b
		end memory
	' || return 0
	assert_done memory first get after
	assert_error late 1 'no cell is free for key "a": 1 were looked at'
	assert_not_in "$(out_of freed)" 'free again' "the late one kept the lock:"
	assert_error impatient 1 'client [0-9]+ has kept the lock of cell 1 for 5000 ms'
	assertEquals old:old "$(out_of get):$(out_of after)"
}

test_plans_that_cannot_be() {
	local plan
	on_rxe '
		for plan in magic=1 order=0x01020304 number={0,0x1000000} cells={0,4098} bytes={192,300,524352}; do
			serve peer "$B/peer" listen 18515 hello con,gid=::ffff:10.99.0.1,size=0x200200 sync "lend,$plan"
			client run "$plan" kv_client -k x
			reap peer
		done
	' || return 0
	assert_error magic=1 1 'the server lends no memory: 0x00000001, not 0x4d454d32'
	assert_error order=0x01020304 1 'another byte order'
	for plan in number={0,0x1000000} cells={0,4098} bytes={192,300,524352}; do
		assert_error "$plan" 1 'the server.s plan cannot be'
	done
}

test_errors() {
	on_rxe '
		lend memory -q
		client run good kv_client -k key -p value
		for rule in rkey^1 remote_addr+2147483648; do
			run "bad$rule" "$B/sabotage" -o "$T/said" "post_send:2:$rule" \
				"$B/kv_client" -k key 10.99.0.1 rxe1
		done
		client run still kv_client -k key
		client start lost kv_client -n 4000000000
		await qps 1
		kill9 memory
		reap lost
		ring ring -q
		client run stranger kv_client -t 3 -c
		end ring
	' || return 0
	assert_done good still
	assertEquals value "$(out_of still)"
	assert_error 'badrkey^1' 1 'remote access error \(10\)'
	assert_error badremote_addr+2147483648 1 'remote access error \(10\)'
	assert_error lost 1 'retry|no acknowledge|answer'
	assert_error stranger 1 'plan of the memory|lends no memory'
}

test_wrong_usage() {
	usage_error 'the server is missing' kv_client -c
	usage_error 'one of --key, --rounds, --count' kv_client 10.99.0.1
	usage_error 'one of --key, --rounds, --count' kv_client -p x 10.99.0.1
	usage_error 'one of --key, --rounds, --count' kv_client -k x -c 10.99.0.1
	usage_error '--key is not' kv_client -k '' 10.99.0.1
	usage_error '--key is not' kv_client -k "$(printf %032d 0)" 10.99.0.1
	usage_error '--puts is not' kv_client -n 1 -w 101 10.99.0.1
	assertEquals "--help" 0 "$("$B/kv_client" --help >/dev/null; echo $?)"
}

. shunit2
