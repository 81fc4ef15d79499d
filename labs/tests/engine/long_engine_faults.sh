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

# What is no request, and what the engine says about it.
WRONG='length=0|ends in the middle of a value
hex=9191919191919191919191919191919191c0|nested deeper than 16
hex=ddffffffff|ends in the middle of a value
hex=dfffffffff|ends in the middle of a value
hex=dbffffffff61|ends in the middle of a value
hex=c9ffffffff01|ends in the middle of a value
hex=c1|0xc1
hex=90c0|1 bytes follow the value
hex=01|it is an integer, not a map or array
hex=80|it has no type
hex=9101|field type is an integer
hex=92a450696e67a161|Ping: data is a string
hex=92a450696e6790|Ping: field timestamp_ns is missing
hex=92a450696e6791ff|timestamp_ns is negative: -1
hex=92a450696e6791ca40a00000|timestamp_ns is a float, not an integer
hex=92a450696e6792cc07a1ff|client_id is not UTF-8
hex=92a450696e6792cc07c40161|client_id is binary data, not a string
hex=82a474797065a450696e67a46461746182ac74696d657374616d705f6e7301ac74696d657374616d705f6e7301|timestamp_ns is given twice
hex=92ac436f6d706c6574655265616492a17801|success is an integer, not a bool
start=4294967296,1,7|volume_id is 4294967296, more than
start=9,1,4294967303|cookie is 4294967303, more than
start=9,1,7,0,0,0,4294967296|remote_key is 4294967296, more than'

# One client sends what is wrong, another reads a needle all the while.
test_bytes_that_are_no_messages() {
	local i patterns
	local -x items
	items=$(awk -F '|' '{ print $1, "answer" }' <<<"$WRONG" | xargs)
	mapfile -t patterns < <(awk -F '|' '{ print "Error ipc true .*" $2 }' <<<"$WRONG")
	on_engine '
		node node
		engine engine
		client first read 9 1 7
		held engine >"$T/held.before"
		how=start client beside "bench read" 9 1 7 -n 200 -f 2
		peer slow trickle=20 ping answer
		# shellcheck disable=SC2086 # many items
		peer wrong $items ping answer
		peer million length=1048576 fill=1048576 answer ping answer
		peer over length=1048577 answer eof
		how=start peer over.sent length=1048577 fill=1048577 answer eof
		how=start peer most length=4294967295 fill=300000 answer eof
		# A request may bring a descriptor; nobody wants it.
		peer gift memory=10 ping memory=10 ping answer answer
		# All it asked is answered, even if it has said that it will ask no more.
		peer last repeat=50 ping shut repeat=50 answer eof
		for i in 004 006 012; do
			peer "cuts$i" "cuts=$FRAMES/$i-req.bin" ping answer
		done
		reap over.sent most beside
		await has_sessions 0
		await all_back
		stop engine node
	' || return 0
	assert_done engine node first beside slow wrong million over over.sent most gift last cuts{004,006,012}
	assert_told slow 'Pong 7'
	assert_told wrong "${patterns[@]}" 'Pong 7'
	assert_told million 'Error ipc true .*1048575 bytes follow the value' 'Pong 7'
	for i in over over.sent; do
		assert_told "$i" 'Error ipc true .*too large: 1048577 bytes' closed
	done
	assert_told most 'Error ipc true .*too large: 4294967295 bytes' closed
	assertEquals 50 "$(grep -c Pong "$T/last.out")"
}

# A client that never reads is cut; nobody else waits for it.
test_clients_that_sleep() {
	on_engine '
		node node
		engine engine -w 2 -c 3
		held engine >"$T/held.before"
		how=start peer deaf repeat=100000 ping
		how=start peer idle ping answer sleep=4000 ping answer
		await in_file Pong "$T/idle.out"
		client beside "bench ping" -n 200
		awk "/^VmRSS/ { print \$2 }" "/proc/${pids[engine]}/status" >"$T/memory"
		# It is cut after 2 s, and leaves room.
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
	assert_told idle 'Pong 7' 'Pong 7'
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
		engine engine -w 2 -c 3
		freeze engine
		knock peer silent eof
		knock peer drip trickle=100 length=1000 fill=1000
		knock peer later ping answer trickle=100 length=1000 fill=1000
		knock peer full ping answer
		knock peer late sleep=300 ping answer eof
		knock client turned.away ping
		resume
		reap silent drip later full late turned.away
		peer after ping answer
		stop engine node
	' || return 0
	assert_done engine node silent late after
	assert_told silent closed
	assert_in "$(err_of drip)" 'send: (Broken pipe|Connection reset)' cut
	assert_in "$(err_of later)" 'send: (Broken pipe|Connection reset)' cut
	assert_told full 'Error capacity true .*clients \(3 at most\)'
	assert_told late 'Error capacity true .*clients \(3 at most\)' closed
	assert_error turned.away 1 'clients \(3 at most\) \(capacity\)'
	assert_told after 'Pong 7'
}

# The engine stops at its 100th READ of 4882 until a Ping is there, and at its 2000th:
# then the Ping has been answered.
test_a_long_read_keeps_nobody_waiting() {
	with_large 20000000
	on_engine '
		export S=$T/store
		node node
		SPY_LIE=ready SPY_STOP=$(stops 100 2000) engine engine -m 50 --chunk 4096 --depth 2
		how=start peer long start=5,1,1 answer
		await halted engine
		how=start peer other ping say=asked answer
		await in_file asked "$T/other.out"
		resume
		await halted engine
		await in_file Pong "$T/other.out" && [[ ! -s $T/long.out ]] && touch "$T/right"
		resume
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
	with_large 20000000
	on_engine '
		export S=$T/store
		node node
		# What is freed too early is not as it was.
		SPY_LOG=$T/calls SPY_STOP=$(stops 100 2100 4100) MALLOC_PERTURB_=165 \
			engine engine -m 50 --chunk 4096 --depth 2
		client first read 9 1 7
		held engine >"$T/held.before"
		for i in 1 2 3; do
			how=start peer "killed$i" start=5,1,1 answer
			await halted engine
			[[ ! -s $T/killed$i.out &&
				$(held engine | tail -n 1) -gt $(tail -n 1 "$T/held.before") ]] ||
				echo "$i" >>"$T/not.in.the.middle"
			kill9 "killed$i"
			resume
			# It is given back when the READs are done, not when the next client goes.
			((i < 3)) || await all_back
			# Others have room for a large read only when that memory is back.
			client "beside$i" read 9 1 7
			await has_sessions 0 || break
		done
		client again read 5 1 1 -o "$T/out" -O 19000000
		stop engine node
	' || return 0
	assert_done engine node first beside{1,2,3} again
	assertFalse "not in the middle of a read" "[ -e '$T/not.in.the.middle' ]"
	posts=$(grep -c '^post_send' "$T/calls")
	assertTrue "what is left of a dead client's READs is posted: $posts" '((posts > 4100 && posts < 4882))'
	assert_same "$T/out" <(tail -c 1000000 "$T/large")
}

# The node dies in the middle of a READ, which is made again, on a needle that has become
# larger meanwhile: the memory for the smaller one is given back. If that one dies in the
# middle, too, the read fails.
test_nodes_that_die_in_the_middle() {
	with_large 2000000
	head -c 6000000 /dev/urandom >"$T/grown"
	on_engine '
		export S=$T/store
		node node1
		SPY_STOP=$(stops 100 1700 1900) engine engine -n 1 -r 60 --chunk 4096 --depth 2
		client first read 9 1 7
		held engine >"$T/held.before"
		how=start client large read 5 1 1 -o "$T/out"
		await halted engine
		kill9 node1
		"$B/needle" put -S "$S" 5 1 1 --file "$T/grown" >/dev/null
		node node2
		resume
		reap large
		await all_back
		how=start client twice read 5 1 1 -o "$T/never"
		await halted engine
		kill9 node2
		node node3
		resume
		await halted engine
		kill9 node3
		resume
		reap twice
		stop engine
	' || return 0
	assert_done first large
	assert_rc_0 engine
	assert_same "$T/out" "$T/grown"
	assert_error twice 1 'Network timeout after [0-9]{1,5}ms'
	assertFalse 'nothing of it' "[ -s '$T/never' ]"
}

# What a node says instead of its catalogue, or in it, and what the engine says about it.
LIES='magic|catalog,magic=1 needle crc|its magic is 0x00000001, not 0x4e44434c
version|catalog,version=2 needle crc|its version is 2, mine is 1
entry|catalog,entry=39 needle crc|an entry is 39 bytes, not 40
most|catalog,count=16777217|16777217 needles are more than 16777216
twice|catalog,count=2 needle needle crc|volume 9 needle 1: it is there twice, or not in order
order|catalog,count=2 needle,id=2 needle crc|volume 9 needle 1: it is there twice, or not in order
wraps|catalog needle,addr=0xfffffffffffffff8 crc|volume 9 needle 1: its address range wraps around
crc|catalog needle crc=1|its CRC-32C is 0x00000001, not 0x[0-9a-f]{8}
gone|catalog,count=2 needle hear=63 close|reading the peer.s catalogue: the peer closed
reset|catalog,count=1000000 needle hear=63 reset|reading the peer.s catalogue'
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
	local errors want i=0
	on_engine '
		eval "$LIAR"
		n=0
		while IFS="|" read -r name items _; do
			# Each time an engine waits longer: so not too many for one.
			((n++ % 4)) || start_engine "engine$n" -r 1
			# shellcheck disable=SC2086 # many items
			liar "$name" $items
			reap "$name"
			((n % 4)) && [[ $name != reset ]] && continue
			peer "asked.$name" start=9,1,7 answer
			stop "engine$((n - (n - 1) % 4))"
		done <<<"$LIES"
	' || return 0
	assert_rc_0 engine1 engine5 engine9
	# One error for each lie, and none for the stop; on a busy machine a liar may be late.
	mapfile -t errors < <(grep -h '^error: ' "$T"/engine{1,5,9}.err | grep -v 'no server listened')
	assertEquals 'errors' 10 "${#errors[@]}"
	while IFS='|' read -r _ _ want; do
		assert_in "${errors[i++]-}" "$want"
	done <<<"$LIES"
	for name in asked.most asked.crc asked.reset; do
		assert_told "$name" 'Error network true Network timeout after'
	done
}

# One that goes silent where the catalogue should come, one that says more than
# that, one whose needle is too large and whose QP is not there; then a true one.
test_node_that_says_too_little_or_too_much() {
	local timeout='Error network true Network timeout after'
	on_engine '
		eval "$LIAR"
		start_engine engine -r 1
		liar silent catalog
		peer asked.silent start=9,1,7 answer ping answer
		reap silent
		liar more catalog needle crc text=more
		await connected_or_ended engine
		reap more
		qpn=0xffff liar huge catalog,count=2 \
			needle,size=0x4000000000000000 needle,id=2 crc
		times=2 await connected_or_ended engine
		peer asked.huge start=9,1,7 answer start=9,2,7 answer ping answer
		reap huge
		node node
		times=3 await connected_or_ended engine
		client good read 9 1 7
		stop engine node
	' || return 0
	assert_done good node more huge silent
	assert_rc_0 engine
	# On a busy machine a liar may be late, too: the same error once more.
	assertEquals 'other errors' '' "$(grep '^error: ' "$T/engine.err" |
		grep -v -e '\(nothing came\|no server listened there\) before the deadline$' -e 'rxe0 has no QP 65535 (0xffff)$')"
	assert_in "$(err_of engine)" "reading the peer's catalogue: nothing came before the deadline"
	assert_in "$(err_of engine)" 'READ of 13 bytes at 0x1000 on QP .* rxe0 has no QP 65535'
	assert_in "$(err_of engine)" 'the node says what it should not'
	assert_told asked.silent "$timeout" 'Pong 7'
	assert_told asked.huge 'Error capacity true .*requested 4611686018427387904' "$timeout" 'Pong 7'
}

# The name of the socket: of its owner only, taken by one, left behind by none.
test_socket() {
	on_engine '
		refused() { run "$1" timeout 20 "$B/rdma_engine" -s "${2:-$sock}" -p 10.99.0.1 -d rxe1; }
		node node
		start_engine first
		stat -c "%a %F" "$sock" "$sock.lock" >"$T/stat"
		refused second
		client ping ping
		# A dead one leaves its name, which the next one takes.
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
		refused file
		mv "$sock" "$T/precious"
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
		refused link
		rm "$sock.lock"
		[[ ! -e /tmp/elsewhere ]] || echo made >"$T/elsewhere"
		refused nowhere /nowhere/x
		# Room for the lock, and for no socket.
		mkdir -p /tmp/few && mount -t tmpfs -o nr_inodes=2 none /tmp/few
		refused few /tmp/few/x
		umount /tmp/few
		stop node
	' || return 0
	assertEquals "600 socket 600 regular empty file" "$(xargs <"$T/stat")"
	assertEquals 2 "$(wc -l <"$T/left")"
	assert_done ping ping2 ping3
	assert_rc_0 third fourth
	assertEquals 2 "$(grep -c 'No such file' "$T/none")"
	assertEquals precious "$(cat "$T/precious")"
	assertFalse "somebody else's is removed" "[ -e '$T/removed' ]"
	assertEquals "one of six" 1 "$(cat "$T"/race?.rc | grep -cx 0)"
	assertFalse 'followed' "[ -e $T/elsewhere ]"
	assert_error second 1 'bind\("/tmp/engine.sock"\).*another engine listens there'
	assert_error file 1 'is there and is not a socket'
	assert_error other 1 'connect\("/tmp/engine.sock"\).*EPROTOTYPE'
	assert_error link 1 'open\("/tmp/engine.sock.lock"\).*ELOOP.*it is a symbolic link'
	assert_error nowhere 1 'open\("/nowhere/x.lock"\).*ENOENT'
	assert_error few 1 'bind\("/tmp/few/x"\).*ENOSPC'
}

# The device fails and lies: no wrong byte gets through, and a READ that was lost
# is made again.
test_device_that_lies() {
	local lie
	local -x lies='wr_id old opcode status lost rkey'
	local -x calls='ibv_post_send:1:12 ibv_reg_mr:2:12 ibv_reg_mr:2:23 ibv_modify_qp:1:22
		ibv_modify_qp:3:22'
	on_engine '
		node node
		for lie in short,eintr again; do
			SPY_LIE=$lie engine "$lie"
			client "$lie.client" read 9 1 7
			client "$lie.bench" "bench read" 9 1 7 -n 20 -f 2 -m
			stop "$lie"
		done
		for lie in $lies; do
			SPY_LIE=$lie engine "$lie" -r 3
			client "$lie.client" read 9 1 7
			# The READ is still under way, and its completion never comes; there is one
			# answer.
			[[ $lie != lost ]] ||
				peer late start=9,1,7,0,0,0,0,1 answer sleep=2500 ping answer
			client "$lie.ping" ping
			stop "$lie"
		done
		for call in $calls; do
			SPY_FAIL=$call engine "$call" -r 3
			client "$call.client" read 9 1 7
			client "$call.again" read 9 1 7
			stop "$call"
		done
		stop node
	' || return 0
	assert_done {short\,eintr,again}{,.client,.bench}
	assert_told late 'Error session true .*has expired' 'Pong 7'
	for lie in $lies; do
		assert_done "$lie.ping"
		assert_rc_0 "$lie"
		assert_error "$lie.client" 1 'Network timeout|RDMA operation failed'
		assertEquals "$lie" "" "$(out_of "$lie.client")"
		[[ $lie == lost ]] || assertEquals "$lie: a new link at once, and so the second time: $(err_of "$lie")" \
			2 "$(grep -c 'a READ has failed; ' "$T/$lie.err")"
	done
	for lie in $calls; do
		assert_rc_0 "$lie"
		assert_done "$lie.again"
	done
	for lie in ibv_post_send:1:12 ibv_modify_qp:1:22; do
		assert_done "$lie.client"
		assertEquals 'hello, needle' "$(out_of "$lie.client")"
	done
	assert_in "$(err_of ibv_post_send:1:12)" '^\[link\] a READ could not be posted; .* connecting again$'
	assert_error ibv_reg_mr:2:12.client 1 'System resource exhausted.*\(capacity\)'
	assert_error ibv_reg_mr:2:23.client 1 'System resource exhausted.*file descriptors' # ENFILE
}

# A read that is larger than a client's share, and one more than fits. No READ is longer
# than the port takes, whatever --chunk says.
test_memory_is_bounded() {
	with_large 9437184
	on_engine '
		export S=$T/store
		node node
		SPY_LOG=$T/log SPY_LIE=small_port engine engine -m 14 --chunk 1073741824
		peer peer start=5,1,1 answer start=5,1,1 answer complete=1,1,9437184 answer \
			start=5,1,1 answer
		stop engine
		engine small -m 3
		peer small.peer start=5,1,1 answer start=5,1,1,0,2000000 answer
		stop small node
	' || return 0
	assert_done engine small node peer small.peer
	assert_told peer 'Start 9437184' 'Error capacity true .*memory for 9437184 bytes' 'Complete true' \
		'Start 9437184'
	assert_told small.peer 'Error capacity true .*requested 9437184, available 2359296' 'Start 2000000'
	assertEquals '8388608 1048576' "$(sed -n 's/^post_send .* length=\([0-9]*\) .*/\1/p' "$T/log" | head -n 2 | xargs)"
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
		await has_sessions 0
		stop small node
	' || return 0
	assert_done engine small node first halves beside large told
	assertTrue "$(in_kib memory.1 VmHWM) to $(in_kib memory.2 VmHWM) KiB" \
		"(($(in_kib memory.2 VmHWM) - $(in_kib memory.1 VmHWM) < 16384))"
	assert_told large 'Start 12000000'
	assert_told told 'Error capacity true .*memory for a message, [0-9]+ of 1048576 bytes' closed
	assert_told many 'Error capacity true .*memory for a client, [0-9]+ of 1048576 bytes'
}

# What idle clients have been given, and what the engine keeps for the next read, of
# all sizes: all of it within the limit.
test_memory_that_is_kept() {
	local n
	with_large 1048576
	on_engine '
		export S=$T/store
		node node
		engine engine -m 4
		cp "/proc/${pids[engine]}/status" "$T/memory.1"
		# While a session is open, memory is kept.
		how=start peer holder start=9,1,7 answer gate=/tmp/kept
		await in_file StartRead "$T/holder.out"
		for n in 2 8 32; do
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
	for n in 2 8 32; do
		assertEquals "of 2 MiB in $n" "$n" "$(grep -c StartReadResponse "$T/sizes$n.out")"
	done
	assertTrue "$(in_kib memory.2 RssShmem) KiB" "(($(in_kib memory.2 RssShmem) - $(in_kib memory.1 RssShmem) <= 4096))"
	assertTrue "$(in_kib memory.2 VmPin) KiB pinned" \
		"(($(in_kib memory.2 VmPin) - $(in_kib memory.1 VmPin) <= 4096))"
}

. shunit2
