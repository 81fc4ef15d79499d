#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_engine when something is wrong: bytes that are no messages, clients that
# sleep or die, a storage node that goes and comes, damage, lies of the device.
# Whatever it is, the other clients are served all the while, every read that
# succeeds is right, and nothing is left behind.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/engine/engine.sh
. "$ROOT/labs/tests/engine/engine.sh"

oneTimeSetUp() {
	build_engine_tests || return 1
	make_store
}

oneTimeTearDown() { rm -rf "${S:-}"; }

# One client sends what is wrong, another reads a needle all the while.
test_bytes_that_are_no_messages() {
	local i hex random=''
	for i in {1..20}; do
		random+=" length=40 hex=$(head -c 40 /dev/urandom | od -An -v -tx1 | tr -d ' \n') answer"
	done
	export random
	on_engine '
		node node
		engine engine -w 8
		how=start client beside "bench read" 9 1 7 -n 200 -f 2
		peer slow trickle=120 ping answer trickle=0 arrays ping answer start=9,1,7 answer
		peer zero length=0 answer ping answer
		peer million length=1048576 fill=1048576 answer ping answer
		peer over length=1048577 answer eof
		how=start peer over.sent length=1048577 fill=1048577 answer eof
		how=start peer most length=4294967295 fill=300000 answer eof
		how=start peer half ping answer length=100 hex=0102 eof
		# shellcheck disable=SC2086 # many items
		peer random $random ping answer
		peer deep length=18 hex=9191919191919191919191919191919191c0 answer \
			length=5 hex=ddffffffff answer length=5 hex=dfffffffff answer \
			length=6 hex=dbffffffff61 answer ping answer
		peer fields \
			length=8 hex=92a450696e6791ff answer \
			length=9 hex=92a450696e6791cc07 answer \
			length=11 hex=92a450696e6792cc07a1ff answer ping answer \
			start=4294967296,1,7 answer start=9,1,4294967303 answer \
			start=9,1,7,0,0,0,0,4294967296 answer start=9,1,7 answer
		# All it asked is answered, even if it has said that it will ask no more.
		peer last repeat=50 ping shut repeat=50 answer eof
		reap over.sent most half beside
		stop engine node
	' || return 0
	assert_done engine node beside slow zero million over over.sent most half \
		random deep fields last
	assert_answer slow 2 Pong .data.client_timestamp_ns 7
	assert_answer slow 3 StartReadResponse .data.transfer_size 13
	assert_refused zero 1 ipc true 'ends in the middle of a value'
	assert_answer zero 2 Pong .data.client_timestamp_ns 7
	assert_refused million 1 ipc true '1048575 bytes follow the value'
	assert_answer million 2 Pong .data.client_timestamp_ns 7
	for i in over over.sent; do
		assert_refused "$i" 1 ipc true 'too large: 1048577 bytes'
		assertEquals closed "$(sed -n 2p "$T/$i.out")"
	done
	assert_refused most 1 ipc true 'too large: 4294967295 bytes'
	assertEquals closed "$(sed -n 2p "$T/half.out")"
	assert_answer random 21 Pong .data.client_timestamp_ns 7
	assertEquals 20 "$(jq -s 'map(select(.type == "Error")) | length' "$T/random.out")"
	assert_refused deep 1 ipc true 'nested deeper than 16'
	for i in 2 3 4; do
		assert_refused deep "$i" ipc true 'ends in the middle of a value'
	done
	assert_refused fields 1 ipc true 'timestamp_ns is negative: -1'
	assert_answer fields 2 Pong .data.client_timestamp_ns 7
	assert_refused fields 3 ipc true 'client_id is not UTF-8'
	assert_refused fields 5 ipc true 'volume_id is 4294967296, more than'
	assert_refused fields 6 ipc true 'cookie is 4294967303, more than'
	assert_refused fields 7 ipc true 'remote_key is 4294967296, more than'
	assert_answer fields 8 StartReadResponse .data.transfer_size 13
	assertEquals 50 "$(grep -c Pong "$T/last.out")"
}

# Every truncation of every recorded request is answered by an Error, and a
# client that hangs up after any byte of it harms nobody.
test_truncated_requests() {
	local frame
	on_engine '
		node node
		engine engine
		client first read 9 1 7
		held engine >"$T/held.before"
		how=start client beside "bench read" 9 1 7 -n 200 -f 2
		for i in 000 002 004 006 008 010 012 014 016 018 020; do
			peer "$i" "cuts=labs/tests/engine/engine_frames/$i-req.bin" \
				"hangups=labs/tests/engine/engine_frames/$i-req.bin" ping answer
		done
		reap beside
		await has_sessions 0
		held engine >"$T/held.after"
		stop engine node
	' || return 0
	assert_done engine node first beside
	for frame in labs/tests/engine/engine_frames/*-req.bin; do
		frame=${frame##*/}
		assert_done "${frame%-req.bin}"
		assert_truncations "${frame%-req.bin}"
	done
	assertEquals "descriptors and memory regions" "$(cat "$T/held.before")" \
		"$(cat "$T/held.after")"
}

assert_truncations() { # NUMBER
	local size
	size=$(stat -c %s "labs/tests/engine/engine_frames/$1-req.bin")
	assertEquals "$1" "{\"Error\":$((size - 4))}" "$(sed -n 1p "$T/$1.out")"
	assert_answer "$1" 2 Pong .data.client_timestamp_ns 7
}

# 10,000 sessions: as many as there may be, the rest is refused, and all of them
# end with their client.
test_ten_thousand_sessions() {
	on_engine '
		node node
		engine engine -n 500
		held engine >"$T/held.before"
		how=start client beside "bench ping" -n 200
		peer many sessions=10000,9,1,7 start=9,1,7 answer ping answer
		reap beside
		await has_sessions 0
		held engine >"$T/held.after"
		client read read 9 1 7
		stop engine node
	' || return 0
	assert_done engine node many beside read
	assertEquals '500 9500' \
		"$(answer many 1 '.StartReadResponse, .Error' | xargs)"
	assert_refused many 2 session true 'Maximum number of sessions \(500\)'
	assert_answer many 3 Pong .data.client_timestamp_ns 7
	assertEquals "descriptors and memory regions" "$(cat "$T/held.before")" \
		"$(cat "$T/held.after")"
}

# A client that never reads is cut; nobody else waits for it.
test_clients_that_sleep() {
	on_engine '
		node node
		engine engine -w 2 -c 3
		held engine >"$T/held.before"
		how=start peer deaf repeat=100000 ping
		how=start peer idle ping answer silence=7000 ping answer
		await in_file Pong "$T/idle.out"
		client beside "bench ping" -n 200
		peer fourth sleep=100 ping answer
		awk "/^VmRSS/ { print \$2 }" "/proc/${pids[engine]}/status" >"$T/memory"
		# The third one is cut after 2 s, and leaves room.
		reap deaf
		peer third ping answer
		reap idle
		# Refused, it may stay a moment longer, and no more.
		how=start peer stays ping answer length=1048577 answer gate=/tmp/stays ping
		await in_file "too large" "$T/stays.out"
		await all_back
		: >/tmp/stays
		reap stays
		rm /tmp/stays
		stop engine node
	' || return 0
	assert_done engine node beside third idle
	assert_in "$(err_of stays)" 'send: (Broken pipe|Connection reset)' cut
	assert_in "$(err_of deaf)" 'send: (Broken pipe|Connection reset)' cut
	assertEquals "2 answers with a pause between them" 2 "$(grep -c Pong "$T/idle.out")"
	assertTrue "$(cat "$T/memory") KiB" "(( $(cat "$T/memory") < 40000 ))"
}

# A client that says nothing, and those whose message comes byte by byte, keep nobody
# out for longer than --client-timeout; and who is turned away meanwhile reads why,
# even if it looks late.
test_silent_and_dripping_clients() {
	# All knock at a stopped engine, in this order: however slow the machine is, the
	# first three are its clients when it sees the others.
	on_engine '
		knocking() { [[ $(grep -c " $sock$" /proc/net/unix) -gt $1 ]]; }
		knock() { # WHO NAME ARGS…
			how=start "$@"
			await knocking "$((++knocked))"
		}
		knocked=0
		node node
		engine engine -w 4 -c 3
		freeze engine
		knock peer silent eof
		knock peer drip trickle=100 length=1000 fill=1000
		knock peer later ping answer trickle=100 length=1000 fill=1000
		knock peer full ping answer
		knock peer late sleep=300 ping answer eof
		knock client turned.away ping
		kill -CONT "${pids[engine]}"
		reap silent drip later full late turned.away
		peer after ping answer
		stop engine node
	' || return 0
	assert_done engine node silent late after
	assertEquals closed "$(out_of silent)"
	assert_in "$(err_of drip)" 'send: (Broken pipe|Connection reset)' cut
	assert_in "$(err_of later)" 'send: (Broken pipe|Connection reset)' cut
	assert_refused full 1 capacity true 'clients \(3 at most\)'
	assert_refused late 1 capacity true 'clients \(3 at most\)'
	assert_error turned.away 1 'clients \(3 at most\) \(capacity\)'
	assert_answer after 1 Pong .data.client_timestamp_ns 7
}

# Too many clients are told so.
test_too_many_clients() {
	on_engine '
		node node
		engine engine -c 2
		how=start peer one ping answer silence=60000
		how=start peer two ping answer silence=60000
		await in_file Pong "$T/one.out"
		await in_file Pong "$T/two.out"
		peer three answer eof
		kill "${pids[one]}"
		reap one
		await has_sessions 0
		peer four ping answer
		stop engine node
		reap two
	' || return 0
	assert_done engine node three four
	assert_refused three 1 capacity true 'clients \(2 at most\)'
	assert_answer four 1 Pong .data.client_timestamp_ns 7
}

# The engine stops at its 100th READ of 4882 until a Ping is there, and at its 2000th:
# then the Ping has been answered.
test_a_long_read_keeps_nobody_waiting() {
	with_large 20000000
	on_engine '
		export S=$T/store
		node node
		SPY_LIE=ready engine_that_stops 100 2000 -- -m 50 --chunk 4096 --depth 2
		how=start peer long start=5,1,1 answer
		await halted engine
		how=start peer other ping say=asked answer
		await in_file asked "$T/other.out"
		kill -CONT "${pids[engine]}"
		await halted engine
		await in_file Pong "$T/other.out" && [[ ! -s $T/long.out ]] && touch "$T/right"
		kill -CONT "${pids[engine]}"
		reap other long
		stop engine node
	' || return 0
	assert_done engine node long other
	assertTrue "the Ping had to wait for the read" "[ -e '$T/right' ]"
}

# A client dies in the middle of a READ: its memory is kept until the device is
# done with it, and then nothing is left of it. The engine stops in the middle of
# each of three reads of 4882 READs, and goes on when the client is dead.
test_client_killed_in_the_middle() {
	local posts
	cp -r "$S" "$T/store"
	head -c 20000000 /dev/urandom >"$T/large"
	"$B/needle" put -S "$T/store" 5 1 1 --file "$T/large" >/dev/null
	on_engine '
		export S=$T/store
		node node
		# What is freed too early is not as it was.
		SPY_LOG=$T/calls MALLOC_PERTURB_=165 engine_that_stops 100 2100 4100 -- -m 50 --chunk 4096 --depth 2
		client first read 9 1 7
		held engine >"$T/held.before"
		for i in 1 2 3; do
			how=start peer "killed$i" start=5,1,1 answer
			await halted engine
			[[ ! -s $T/killed$i.out &&
				$(held engine | tail -n 1) -gt $(tail -n 1 "$T/held.before") ]] ||
				echo "$i" >>"$T/not.in.the.middle"
			kill9 "killed$i"
			kill -CONT "${pids[engine]}"
			# It is given back when the READs are done, not when the next client goes.
			((i < 3)) || { await all_back; held engine >"$T/held.after"; }
			# Others have room for a large read only when that memory is back.
			client "beside$i" read 9 1 7
			await has_sessions 0 || break
		done
		client again read 5 1 1 -o "$T/out" -O 19000000
		stop engine node
	' || return 0
	assert_done engine node first beside1 beside2 beside3 again
	assertEquals "descriptors and memory regions" "$(cat "$T/held.before")" \
		"$(cat "$T/held.after")"
	assertFalse "not in the middle of a read" "[ -e '$T/not.in.the.middle' ]"
	posts=$(grep -c '^post_send' "$T/calls")
	assertTrue "what is left of a dead client's READs is posted: $posts" '((posts > 4100 && posts < 4882))'
	cmp "$T/out" <(tail -c 1000000 "$T/large")
	assertEquals "the bytes" 0 $?
}

# The node is killed and started again in the middle of 1,000 reads.
test_node_killed_in_the_middle() {
	on_engine '
		node node1
		engine engine -r 30
		how=start run_load load 10 100
		for i in 1 2 3; do
			nap 0.7
			kill9 "node$i"
			client "ping$i" ping
			nap 0.3
			node "node$((i + 1))"
			times=$((i + 1)) await connected_or_ended engine "${pids[engine]}"
		done
		reap load
		stop engine node4
	' || return 0
	assert_done node4 load ping1 ping2 ping3
	assertEquals 1000 "$(json load .reads)"
	assertEquals "engine: $(err_of engine)" 0 "$(rc_of engine)"
	assert_in "$(err_of engine)" 'the node has closed the connection'
}

# What a node says before its catalogue, and the catalogue's items: NAME ITEM…
LIES='magic catalog,magic=1 needle crc
version catalog,version=2 needle crc
entry catalog,entry=39 needle crc
most catalog,count=16777217
twice catalog,count=2 needle needle crc
order catalog,count=2 needle,id=2 needle crc
wraps catalog needle,addr=0xfffffffffffffff8 crc
crc catalog needle crc=1
gone catalog,count=2 needle hear=63 close
reset catalog,count=1000000 needle hear=63 reset'
# liar NAME ITEM…: the next connection of the engine is to it; $qpn is what it says
# shellcheck disable=SC2317 # called in the lab
liar() {
	local name=$1
	shift
	start "$name" "$B/peer" listen 18515 hello \
		"con,gid=::ffff:10.99.0.1,qpn=${qpn:-0x11}" sync "$@"
}
LIAR=$(declare -f liar)
export LIES LIAR

# A node whose catalogue lies is hung up on, each time, and clients are answered.
test_node_that_lies() {
	local name
	on_engine '
		eval "$LIAR"
		# So few one after another: each time the engine waits longer.
		while mapfile -n 4 -t some && ((${#some[@]})); do
			start_engine "engine.${some[0]%% *}" -r 1
			for lie in "${some[@]}"; do
				read -r name items <<<"$lie"
				# shellcheck disable=SC2086 # many items
				liar "$name" $items
				reap "$name"
			done
			peer "asked.$name" start=9,1,7 answer
			stop "engine.${some[0]%% *}"
		done <<<"$LIES"
	' || return 0
	# One error for each lie, and none for the stop.
	assertEquals 'errors' '4 4 2' "$(grep -c '^error: ' \
		"$T"/engine.{magic,twice,gone}.err | cut -d: -f2 | xargs)"
	while read -r name want; do
		assert_in "$(err_of "$name")" "^error: .*$want"
	done <<-'END'
		engine.magic its magic is 0x00000001, not 0x4e44434c
		engine.magic its version is 2, mine is 1
		engine.magic an entry is 39 bytes, not 40
		engine.magic 16777217 needles are more than 16777216
		engine.twice volume 9 needle 1: it is there twice, or not in order
		engine.twice volume 9 needle 1: its address range wraps around
		engine.twice its CRC-32C is 0x00000001, not 0x[0-9a-f]{8}
		engine.gone reading the peer's catalogue: the peer closed
	END
	for name in asked.most asked.crc asked.reset; do
		assert_refused "$name" 1 network true 'Network timeout after'
	done
	for name in engine.magic engine.twice engine.gone; do
		assertEquals "$name" 0 "$(rc_of "$name")"
	done
}

# One that goes silent where the catalogue should come, one that says more than
# that, one whose needle is too large and whose QP is not there; then a true one.
test_node_that_says_too_little_or_too_much() {
	on_engine '
		eval "$LIAR"
		start_engine engine -r 1
		liar silent catalog
		peer asked.silent start=9,1,7 answer ping answer
		reap silent
		liar more catalog needle crc text=more
		await connected_or_ended engine "${pids[engine]}"
		reap more
		qpn=0xffff liar huge catalog,count=2 \
			needle,size=0x4000000000000000 needle,id=2 crc
		times=2 await connected_or_ended engine "${pids[engine]}"
		peer asked.huge start=9,1,7 answer start=9,2,7 answer ping answer
		reap huge
		node node
		times=3 await connected_or_ended engine "${pids[engine]}"
		client good read 9 1 7
		stop engine node
	' || return 0
	assert_done good node more huge silent
	assertEquals "engine: $(err_of engine)" 0 "$(rc_of engine)"
	# On a busy machine a liar may be late, too: the same error once more.
	assertEquals 'other errors' '' "$(grep '^error: ' "$T/engine.err" |
		grep -v -e '\(nothing came\|no server listened there\) before the deadline$' -e 'rxe0 has no QP 65535 (0xffff)$')"
	assert_in "$(err_of engine)" "reading the peer's catalogue: nothing came before the deadline"
	assert_in "$(err_of engine)" 'READ of 13 bytes at 0x1000 on QP .* rxe0 has no QP 65535'
	assert_in "$(err_of engine)" 'the node says what it should not'
	assert_refused asked.silent 1 network true 'Network timeout after'
	assert_answer asked.silent 2 Pong .data.client_timestamp_ns 7
	assert_refused asked.huge 1 capacity true 'requested 4611686018427387904'
	assert_refused asked.huge 2 network true 'Network timeout after'
	assert_answer asked.huge 3 Pong .data.client_timestamp_ns 7
}

# No node: what needs it waits for it, but not for ever; the rest is answered.
test_no_node() {
	on_engine '
		sock=/tmp/patient.sock start_engine patient -r 60
		sock=/tmp/patient.sock how=start peer waits start=9,1,7 answer map=1 answer bytes
		start_engine engine -r 2
		peer early ping answer start=9,1,7 answer
		node node
		reap waits
		stop patient
		await connected_or_ended engine "${pids[engine]}"
		stop node
		peer late start=9,1,7 answer
		client late.client read 9 1 7
		# Stopped, it is there but does nothing: READs wait, then fail.
		node again
		times=2 await connected_or_ended engine "${pids[engine]}"
		client good read 9 1 7
		stop engine again
	' || return 0
	assert_done early waits late good again
	assert_refused early 2 network true 'Network timeout after [2-9][0-9]{3}ms'
	assertEquals '68656c6c6f2c206e6565646c65 read-only' "$(sed -n 3p "$T/waits.out")"
	assert_refused late 1 network true 'Network timeout after'
	assert_error late.client 1 'Network timeout after .* \(network\)'
	assertEquals "engine: $(err_of engine)" 0 "$(rc_of engine)"
}

# The name of the socket: of its owner only, taken by one, left behind by none.
test_socket() {
	on_engine '
		node node
		start_engine first
		stat -c "%a %F" "$sock" "$sock.lock" >"$T/stat"
		run second timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		client ping ping
		# A name that somebody else made in its place is not removed.
		kill9 first
		ls /tmp/engine.sock* >"$T/left"
		start_engine third
		await in_file serve "$T/third.out"
		client ping2 ping
		stop third
		ls /tmp/engine.sock* >"$T/none" 2>&1
		start_engine fourth
		kill -INT "${pids[fourth]}"
		reap fourth
		ls /tmp/engine.sock* >>"$T/none" 2>&1
		echo precious >"$sock"
		run file timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		cat "$sock" >"$T/precious"
		rm "$sock"
		# Somebody is there, but not for streams.
		run other perl -MSocket -e "socket S, AF_UNIX, SOCK_DGRAM, 0;
			bind S, pack_sockaddr_un(shift); exit(system(@ARGV) >> 8)" \
			"$sock" timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		rm "$sock" || touch "$T/removed"
		# Many at once: one gets it.
		for i in 1 2 3 4 5 6; do
			start "race$i" "$B/rdma_engine" -q -s "$sock" -p 10.99.0.1 -d rxe1
		done
		five() { (($(cat "$T"/race?.err | grep -c EADDRINUSE) == 5)); }
		await five
		client ping3 ping
		for i in 1 2 3 4 5 6; do kill "${pids[race$i]}" 2>/dev/null; done
		reap race1 race2 race3 race4 race5 race6
		ln -s /tmp/elsewhere "$sock.lock"
		run link timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -d rxe1
		rm "$sock.lock"
		[[ ! -e /tmp/elsewhere ]] || echo made >"$T/elsewhere"
		run nowhere timeout 20 "$B/rdma_engine" -s /nowhere/x -p 10.99.0.1 -d rxe1
		# Room for the lock, and for no socket.
		mkdir -p /tmp/few && mount -t tmpfs -o nr_inodes=2 none /tmp/few
		run few timeout 20 "$B/rdma_engine" -s /tmp/few/x -p 10.99.0.1 -d rxe1
		umount /tmp/few
		stop node
	' || return 0
	assertEquals "600 socket 600 regular empty file" "$(xargs <"$T/stat")"
	assert_error second 1 'bind\("/tmp/engine.sock"\).*another engine listens there'
	assertEquals 2 "$(wc -l <"$T/left")"
	assert_done ping ping2 ping3
	assertEquals "third: $(err_of third)" 0 "$(rc_of third)"
	assertEquals "fourth: $(err_of fourth)" 0 "$(rc_of fourth)"
	assertEquals 2 "$(grep -c 'No such file' "$T/none")"
	assert_error file 1 'is there and is not a socket'
	assertEquals precious "$(cat "$T/precious")"
	assert_error other 1 'connect\("/tmp/engine.sock"\).*EPROTOTYPE'
	assertFalse "somebody else's is removed" "[ -e '$T/removed' ]"
	assertEquals "one of six" 1 "$(cat "$T"/race?.rc | grep -cx 0)"
	assert_error link 1 'open\("/tmp/engine.sock.lock"\).*ELOOP.*it is a symbolic link'
	assertFalse 'followed' "[ -e $T/elsewhere ]"
	assert_error nowhere 1 'open\("/nowhere/x.lock"\).*ENOENT'
	assert_error few 1 'bind\("/tmp/few/x"\).*ENOSPC'
}

# The device fails and lies: no wrong byte gets through, and a READ that was lost
# is made again.
test_device_that_lies() {
	local -x calls='ibv_post_send:1:12 ibv_post_send:2:12 ibv_reg_mr:2:12 ibv_reg_mr:2:22
		ibv_reg_mr:2:23 ibv_reg_mr:2:24 ibv_modify_qp:1:22 ibv_modify_qp:3:22'
	on_engine '
		node node
		spy_engine() {
			local name=$1
			shift
			local -x LD_PRELOAD=$B/spy.so
			engine "$name" -r 3 "$@"
		}
		for lie in short eintr again; do
			SPY_LIE=$lie spy_engine "$lie"
			client "$lie.client" read 9 1 7
			run_load "$lie.load" 2 10
			stop "$lie"
		done
		for lie in wr_id old opcode status lost; do
			SPY_LIE=$lie spy_engine "$lie"
			client "$lie.client" read 9 1 7
			client "$lie.ping" ping
			stop "$lie"
		done
		for call in $calls; do
			SPY_FAIL=$call spy_engine "$call"
			client "$call.client" read 9 1 7
			client "$call.again" read 9 1 7
			stop "$call"
		done
		stop node
	' || return 0
	assert_done {short,eintr,again}{,.client,.load}
	local lie call
	for lie in wr_id old opcode status lost; do
		assert_done "$lie.ping"
		assertEquals "$lie: $(err_of "$lie")" 0 "$(rc_of "$lie")"
		assert_error "$lie.client" 1 'Network timeout|RDMA operation failed'
		assertEquals "$lie" "" "$(out_of "$lie.client")"
		[[ $lie == lost ]] || assertEquals "$lie: a new link at once, and so the second time: $(err_of "$lie")" \
			2 "$(grep -c 'a READ has failed; ' "$T/$lie.err")"
	done
	for call in $calls; do
		assertEquals "$call: $(err_of "$call")" 0 "$(rc_of "$call")"
		assert_done "$call.again"
	done
	for call in ibv_post_send:{1,2}:12 ibv_modify_qp:1:22; do
		assert_done "$call.client"
		assertEquals 'hello, needle' "$(out_of "$call.client")"
	done
	for call in ibv_post_send:{1,2}:12; do
		assert_in "$(err_of "$call")" '^\[link\] a READ could not be posted; .* connecting again$'
	done
	assert_error ibv_reg_mr:2:12.client 1 'System resource exhausted.*\(capacity\)'
	assert_error ibv_reg_mr:2:22.client 1 'registration'
	for call in ibv_reg_mr:2:2{3,4}; do # ENFILE, EMFILE
		assert_error "$call.client" 1 'System resource exhausted.*file descriptors'
	done
}

# A read that is larger than a client's share, and one more than fits.
test_memory_is_bounded() {
	with_large 3000000
	on_engine '
		export S=$T/store
		node node
		engine engine -m 4
		peer peer start=5,1,1 answer start=5,1,1 answer complete=1,1,3000000 answer \
			start=5,1,1 answer
		stop engine
		engine small -m 3
		peer small.peer start=5,1,1 answer start=5,1,1,0,2000000 answer
		stop small node
	' || return 0
	assert_done engine small node peer small.peer
	assert_answer peer 1 StartReadResponse .data.transfer_size 3000000
	assert_refused peer 2 capacity true 'memory for 3000000 bytes'
	assert_answer peer 3 CompleteReadResponse .data.success true
	assert_answer peer 4 StartReadResponse .data.transfer_size 3000000
	assert_refused small.peer 1 capacity true 'requested 3000000, available 2359296'
	assert_answer small.peer 2 StartReadResponse .data.transfer_size 2000000
}

# in_kib NAME FIELD: of that /proc/PID/status
in_kib() { awk "/^$2:/ { print \$2 }" "$T/$1"; }

# A hundred clients who have each written most of a long message: what does not fit
# is refused and its client sent away, the others are served, and the memory is
# free again when they are gone.
test_memory_of_half_messages() {
	with_large 12000000
	on_engine '
		export S=$T/store
		node node
		engine engine -m 16 -w 60
		client first read 9 1 7
		cp "/proc/${pids[engine]}/status" "$T/memory.1"
		how=start peer halves clients=100 length=1048576 fill=900000 end \
			clients=1 ping answer end gate=/tmp/halves
		await in_file Pong "$T/halves.out"
		cp "/proc/${pids[engine]}/status" "$T/memory.2"
		client beside read 9 1 7
		: >/tmp/halves
		reap halves
		rm /tmp/halves
		await has_sessions 0
		peer large start=5,1,1 answer
		stop engine
		engine small -m 1
		peer told length=1048576 fill=900000 answer eof
		# More than are sent away at leisure; those that were let in leave room.
		peer many clients=150 end answer
		await has_sessions 0 && touch "$T/room"
		stop small node
	' || return 0
	assert_done engine small node first halves beside large told
	assertTrue "$(in_kib memory.1 VmHWM) to $(in_kib memory.2 VmHWM) KiB" \
		"(($(in_kib memory.2 VmHWM) - $(in_kib memory.1 VmHWM) < 16384))"
	assert_answer large 1 StartReadResponse .data.transfer_size 12000000
	assert_refused told 1 capacity true 'memory for a message, [0-9]+ of 1048576 bytes'
	assertEquals closed "$(sed -n 2p "$T/told.out")"
	assertTrue "room for a client again" "[ -e '$T/room' ]"
	assert_refused many 1 capacity true 'memory for a client, [0-9]+ of 1048576 bytes'
}

# What idle clients have been given, and what the engine keeps for the next read, of
# all sizes: all of it within the limit.
test_memory_that_is_kept() {
	with_large 1048576
	on_engine '
		export S=$T/store
		node node
		engine engine -m 4
		cp "/proc/${pids[engine]}/status" "$T/memory.1"
		# While a session is open, memory is kept.
		how=start peer holder start=9,1,7 answer gate=/tmp/kept
		await in_file StartRead "$T/holder.out"
		for n in 2 4 8 16 32; do
			peer "sizes$n" repeat=$n start=5,1,1,0,$((2097152 / n)) repeat=$n answer
			await has_sessions 1
		done
		how=start peer idle clients=60 start=5,1,1,0,200000 answer map=1 answer \
			complete=1,1,200000 answer end gate=/tmp/kept
		idle() { (($(grep -c CompleteRead "$T/idle.out") == 60)); }
		await idle
		cp "/proc/${pids[engine]}/status" "$T/memory.2"
		client beside read 9 1 7
		: >/tmp/kept
		reap holder idle
		rm /tmp/kept
		stop engine node
	' || return 0
	assert_done engine node holder idle beside
	local n
	for n in 2 4 8 16 32; do
		assertEquals "of 2 MiB in $n" "$n" "$(grep -c StartReadResponse "$T/sizes$n.out")"
	done
	assertTrue "$(in_kib memory.2 RssShmem) KiB" "(($(in_kib memory.2 RssShmem) - $(in_kib memory.1 RssShmem) <= 4096))"
	assertTrue "$(in_kib memory.2 VmPin) KiB pinned" \
		"(($(in_kib memory.2 VmPin) - $(in_kib memory.1 VmPin) <= 4096))"
}

. shunit2
