#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_engine and engine_client on rxe: what they do when all is well, and what
# they say to requests that cannot be served. More of what breaks is in
# long_engine_faults.sh; long_engine_memory.sh runs tests of both under sanitizers.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/engine/engine.sh
. "$ROOT/labs/tests/engine/engine.sh"

# The names and types that the original engine answered with.
RECORDED='Pong {"client_timestamp_ns":"number","server_timestamp_ns":"number","server_rtt_ns":"number"}
GetCapabilitiesResponse {"device_name":"string","vendor_id":"number","max_transfer_size":"number","max_sessions":"number","active_sessions":"number","port_gid":"string","port_lid":"number","supported_auth":["string"],"version":"string","real_rdma":"boolean","extensions":["string","string"]}
StartReadResponse {"session_id":"string","local_addr":"number","local_key":"number","transfer_size":"number","expected_crc":"number","expires_at_ns":"number"}
Error {"code":"string","message":"string","category":"string","recoverable":"boolean"}
CompleteReadResponse {"success":"boolean","server_crc":"number","message":"string"}'

# Unchanged but for those with a session's id, which the engine chooses. Two sessions at
# most, as it was when they were recorded.
test_recorded_requests() {
	local crc
	on_engine '
		node node
		engine engine -n 2
		request() { items+=("frame=$FRAMES/$1-req.bin" answer); }
		items=()
		for i in 000 002 004 006 008 010; do request "$i"; done
		items+=(complete=1,1,4096,0xcafef00d answer complete=2,0,4096 answer)
		for i in 016 018 020; do request "$i"; done
		peer recorded "${items[@]}"
		# Some clients write arrays, and the smallest integers: a Ping, a StartRead.
		peer arrays hex=92a450696e679107 answer \
			hex=92a953746172745265616498090107000000001e answer map=1 answer \
			bytes complete=1,1,13 answer
		stop engine node
	' || return 0
	assert_done engine node recorded arrays
	assertEquals "$RECORDED" "$(jq -r '"\(.type) \(.data |
		map_values(if type == "array" then map(type) else type end))"' \
		"$T/recorded.out" | awk '!seen[$1]++')"
	# The client lied about the CRC, and reported a failure.
	assert_told recorded 'Pong 1' 'Pong 1' GetCapabilitiesResponse 'Start 4096' 'Start 8192' \
		'Error session true .*\[TooManySessions { max_sessions: 2 }\]' \
		'Complete false .*client_crc is not the CRC' 'Complete false .*reported a failure' \
		'Error session true .*\[SessionNotFound { session_id: "no-such-session" }\]' \
		'Error request true .*\[UNSUPPORTED_MESSAGE\]' \
		'Error request true .*\[UNSUPPORTED_MESSAGE\]'
	# jq would round them.
	assert_in "$(sed -n 1p "$T/recorded.out")" '"client_timestamp_ns":1795227289325611468,'
	assertEquals 'rxe1 2 true ["none"] ["MapBuffer","ReadProgress"]' "$(sed -n 3p "$T/recorded.out" |
		jq -r '.data | "\(.device_name) \(.max_sessions) \(.real_rdma) \(.supported_auth) \(.extensions)"')"
	crc=$("$B/needle" list -S "$S" -j |
		jq '.needles[] | select(.volume == 1 and .needle == "100").crc32c')
	assertEquals 'the CRC of needle 100' "$crc" "$(sed -n 5p "$T/recorded.out" | jq .data.expected_crc)"
	assert_told arrays 'Pong 7' 'Start 13' 'Map 13' '68656c6c6f2c206e6565646c65 read-only' 'Complete true'
}

# What is asked for is what comes: ranges, ends, cookies, addresses; a damaged needle is
# refused as a whole, and the others are not touched by it. And nobody has more rights
# than the READs need.
test_reads() {
	local -x huge=4611686018427387904 most=18446744073709551615
	local hello=68656c6c6f2c206e6565646c65
	local refused='Error request false .*not within the needle'
	on_engine '
		SPY_LOG=$T/node.log node node
		SPY_LOG=$T/engine.log engine engine
		p="start=9,1,7"
		peer good ping answer $p answer map=1 answer bytes complete=1,1,13 answer \
			$p,7,3 answer map=2 answer bytes complete=2,1,3 answer \
			$p,7,0 answer map=3 answer bytes \
			$p,13,0 answer map=4 answer bytes complete=4,1,0,0 answer \
			start=9,2,7 answer map=5 answer bytes
		peer refused start=9,1,8 answer start=9,5,7 answer start=7,1,7 answer \
			$p,14,0 answer $p,13,1 answer $p,0,14 answer \
			$p,0,$huge answer $p,$huge,$huge answer \
			$p,1,$most answer $p,$most,1 answer start=9,1,7 answer
		# The node tells where its volumes lie; the data begin 32 bytes later.
		read -r at key < <(sed -n "s/.*volume 9: .* at \(0x[0-9a-f]*\), rkey \(0x[0-9a-f]*\)/\1 \2/p" "$T/node.out")
		peer addresses $p,0,5,4096,1 answer map=1 answer bytes \
			$p,0,5,$most,$((0xffffffff)) answer map=2 answer bytes \
			$p,0,5,$((at + 34)),$((key)) answer map=3 answer bytes \
			$p,0,5,$((at + 34)),$((key + 1)) answer map=4 answer bytes \
			$p,1,11,$((at + 34)),$((key)) answer map=5 answer bytes \
			$p,0,11,$((at + 34)),$((key)) answer map=6 answer bytes
		peer damaged start=8,1,7 answer start=8,1,7,0,5 answer map=1 answer bytes \
			start=9,1,7 answer
		client client read 8 1 7
		stop engine node
	' || return 0
	assert_done engine node good refused addresses damaged
	assert_told good 'Pong 7' 'Start 13' 'Map 13' "$hello read-only" 'Complete true' \
		'Start 3' 'Map 3' '6e6565 read-only' 'Complete true' \
		'Start 6' 'Map 6' '6e6565646c65 read-only' \
		'Start 0' 'Map 0' ' read-only' 'Complete true' 'Start 0' 'Map 0' ' read-only'
	assert_told refused 'Error security false .*wrong cookie' \
		'Error request false .*no needle 5 in volume 9' \
		'Error request false .*no needle 1 in volume 7' \
		"$refused" "$refused" "$refused" "$refused" "$refused" "$refused" "$refused" 'Start 13'
	# An address within the needle is used; others are not, and do no harm: the fifth
	# would end behind it, the sixth ends with it.
	assertEquals "$(printf '%s read-only\n' "${hello:0:10}" "${hello:0:10}" "${hello:4:10}" \
		"${hello:0:10}" "${hello:2:22}" "${hello:4:22}")" "$(grep read-only "$T/addresses.out")"
	assert_told damaged 'Error io true .*needle 1 of volume 8 is damaged: the CRC-32C' \
		'Start 5' 'Map 5' '68656c6c6f read-only' 'Start 13'
	assert_error client 1 'is damaged.*\(io\)'
	assertEquals "nothing of it" "" "$(out_of client)"
	# LOCAL_WRITE is 1, REMOTE_WRITE 2, REMOTE_READ 4. The engine's first memory region is
	# stage 2's own, which the READs do not use.
	assertEquals "the store" "access=4" "$(grep '^make mr' "$T/node.log" | grep -o 'access=.*' | sort -u)"
	assertEquals "the buffers" "access=1" "$(grep '^make mr' "$T/engine.log" | sed 1d | grep -o 'access=.*' | sort -u)"
	assertEquals "the QPs, as the device has it" "qp access=6" \
		"$(cat "$T"/{node,engine}.log | grep '^qp access' | sort -u)"
}

# Sessions end by CompleteRead, by their time-out and with their client. Who knows a
# session's id but did not begin it gets neither its buffer (which its owner's next read
# would fill) nor its end.
test_sessions() {
	local gone='Error session true .*not found' full='Error session true Maximum number of sessions \(3\)'
	local expired='Error session true .*has expired' theirs='Error security false .*session .* is another client.s'
	on_engine '
		node node
		engine engine -t 1 -n 3
		p="start=9,1,7,0,0,0,0"
		peer ends $p,60 answer complete=1,1,13 answer complete=1,1,13 answer map=1 answer \
			$p,60 answer complete=2,1,12 answer $p,60 answer complete=3,0,0 answer
		peer times $p,9223372036854775807 answer $p,0 answer $p,1 answer sleep=1300 \
			complete=2,1,13 answer map=3 answer complete=3,1,13 answer \
			$p,18446744073709551615 answer complete=1,1,13 answer complete=4,1,13 answer
		how=start peer many repeat=3 $p,60 repeat=3 answer eof
		three() { [[ $(grep -c Start "$T/many.out") == 3 ]]; }
		await three
		peer full $p,60 answer
		kill9 many
		await has_sessions 0
		peer room $p,60 answer

		how=start peer owner $p,60 answer gate=/tmp/gate.1 \
			complete=1,1,13 answer start=9,3,7 answer map=2 answer bytes \
			gate=/tmp/gate.3
		await in_file StartRead "$T/owner.out"
		id=$(jq -r .data.session_id "$T/owner.out")
		how=start peer thief id="$id" map=1 answer complete=1,1,13 answer \
			gate=/tmp/gate.2 bytes
		two() { (($(wc -l <"$T/thief.out") == 2)); }
		await two
		: >/tmp/gate.1
		await in_file read-only "$T/owner.out"
		: >/tmp/gate.2
		reap thief
		: >/tmp/gate.3
		reap owner
		rm /tmp/gate.[123]
		stop engine node
	' || return 0
	assert_done engine node ends times full room owner
	assert_told ends 'Start 13' 'Complete true' "$gone" "$gone" 'Start 13' 'Complete false' \
		'Start 13' 'Complete false'
	assert_told times 'Start 13' 'Start 13' 'Start 13' "$expired" "$expired" "$expired" 'Start 13' \
		'Complete true' 'Complete true'
	# For ever is INT64_MAX, for clients that put it into a signed number.
	assertEquals 2 "$(grep -c '"expires_at_ns":9223372036854775807}' "$T/times.out")"
	assert_told full "$full"
	assert_told room 'Start 13'
	assert_told thief "$theirs" "$theirs"
	assertEquals "engine_peer: no descriptor came" "$(err_of thief)"
	assert_told owner 'Start 13' 'Complete true' 'Start 8' 'Map 8' '6120736563726574 read-only'
}

test_token() {
	printf 'secret\n' >"$T/token"
	printf 'secreT\n' >"$T/wrong"
	cp "$T/token" "$T/shown"
	chmod 600 "$T/token" "$T/wrong"
	chmod 640 "$T/shown"
	: >"$T/empty"
	on_engine '
		node node
		engine engine -a "$T/token"
		p="start=9,1,7"
		peer peer ping answer $p answer $p,0,0,0,0,30,secreT answer $p,0,0,0,0,30, answer \
			$p,0,0,0,0,30,secret answer map=1 answer
		client good read 9 1 7 -a "$T/token"
		client bad read 9 1 7 -a "$T/wrong"
		client none read 9 1 7
		client lost read 9 1 7 -a "$T/nofile"
		client shown read 9 1 7 -a "$T/shown"
		client caps caps -j
		stop engine node
		run empty timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -a "$T/empty"
		run nofile timeout 20 "$B/rdma_engine" -s "$sock" -p 10.99.0.1 -a "$T/nofile"
	' || return 0
	assert_done engine node peer good caps
	assert_told peer 'Pong 7' 'Error security false .*an auth_token is needed' \
		'Error security false .*the auth_token is wrong' \
		'Error security false .*the auth_token is wrong' 'Start 13' 'Map 13'
	assertEquals 'hello, needle' "$(out_of good)"
	assertEquals 'hello, needle' "$(out_of shown)"
	assert_in "$(err_of shown)" '^warning: others may read the token in .*/shown$'
	assert_error bad 1 'Permission denied: the auth_token is wrong \(security\)'
	assert_error lost 1 'open\(.*nofile.*ENOENT'
	assert_error none 1 'Permission denied: an auth_token is needed \(security\)'
	assertEquals '["token"]' "$(json caps '.supported_auth | @json')"
	assert_error empty 1 'is not 1 \.\.\. 4096 bytes long'
	assert_error nofile 1 'open\(.*nofile.*ENOENT'
}

test_client() {
	local name pattern
	with_large 3000000
	local -x cookie
	cookie=$("$B/needle" list -S "$S" -j |
		jq '.needles[] | select(.volume == 1 and .needle == "1").cookie')
	on_engine '
		export S=$T/store
		node node
		engine engine
		client ping ping -n 3 -j
		client caps caps
		client out read 9 1 7
		SPY_LIE=short client short read 9 1 7
		client range read 9 1 7 -O 7 -S 3
		client large read 5 1 1 -o "$T/copy" -j -p
		run tty script -qec "$B/engine_client read -s $sock 5 1 1 -o $T/tty.copy" /dev/null
		client cookie read 9 1 8 -o "$T/never"
		client folder read 9 1 7 -o "$T"
		client full read 9 1 7 -o /dev/full
		client bench.ping "bench ping" -n 50 -j
		client bench.text "bench ping" -n 5
		client bench.read "bench read" 1 1 "$cookie" -n 50 -f 7 -j
		client bench.map "bench read" 1 1 "$cookie" -n 50 -f 7 -j -m
		client bench.bad "bench read" 9 1 8 -n 50 -f 7
		await has_sessions 0
		install -m 755 "$B/engine_client" /tmp/theirs
		run theirs setpriv --reuid 65534 --clear-groups /tmp/theirs ping -s "$sock"
		stop engine
		client gone ping
		# Its socket is still there.
		engine killed
		kill9 killed
		client left ping
		sock="" client nowhere ping
		# A path that is too long for a socket.
		sock=/tmp/$(printf "x%.0s" {1..120}) client long ping
		stop node
	' || return 0
	assert_done engine node ping caps out short range bench.ping bench.text bench.read bench.map
	assertEquals 3 "$(jq -s 'map(select(.round_trip_us > 0)) | length' "$T/ping.out")"
	assertEquals 'device rxe1
vendor 0xffffff
GID ::ffff:10.99.0.2
LID 0
largest read 805306368 bytes
sessions 0 of 1000
authentication none
version 1.0.0
real RDMA yes
extension MapBuffer
extension ReadProgress' "$(out_of caps | tr -s ' ')"
	assertEquals 'hello, needle hello, needle nee' "$(out_of out) $(out_of short) $(out_of range)"
	assert_rc_0 large tty
	assert_same "$T/large" "$T/copy"
	assert_same "$T/large" "$T/tty.copy"
	assertEquals 3000000 "$(json large .size)"
	assert_in "$(err_of large)" '^\[progress\] [0-9]+ of 3000000 bytes$'
	# On a terminal it is one line, which is gone in the end.
	assert_in "$(tr '\r' '\n' <"$T/tty.out")" '^ *[0-9.]+ % of 3000000 bytes$'
	assert_in "$(tr '\r' '\n' <"$T/tty.out")" "^$(printf '\e')\\[K"
	assertFalse "nothing is written" "[ -e $T/never ]"
	for name in read map; do
		assert_agree "bench.$name" .mb_per_s '.iters * .size / .seconds / 1e6'
	done
	assert_in "$(out_of bench.text)" '^5 round trips of [0-9]+ bytes: half round trip min [0-9.]+ median'
	assertEquals "50 true 7" "$(json bench.map '"\(.iters) \(.mapped) \(.in_flight)"')"
	while read -r name pattern; do
		assert_error "$name" 1 "$pattern"
	done <<-'END'
		cookie wrong cookie for needle 1 of volume 9 \(security\)
		folder Is a directory
		full No space left
		bench.bad wrong cookie
		theirs only the user whose engine it is may connect
		gone no engine listens there
		left no engine listens there
		nowhere is 0 bytes long, not 1 ... 107:
		long is 125 bytes long, not 1 ... 107:
	END
}

# engine_client reads from an engine that says what it is told (engine_peer.c), and must
# end with one error, and with nothing written. $r is "request", $c what it must be able
# to do, $s a session of 100 bytes 'x' begun. No device is needed.
LIES='old|has no MapBuffer|read 1 2 3|request capable=Other
other|answered GetCapabilities with Pong|read 1 2 3|request pong
unknown|with something unknown|read 1 2 3|request wrong
nothing|cannot be read|read 1 2 3|request hex=80
text|cannot be read|read 1 2 3|request hex=a568656c6c
long|longer than 1048576 bytes|read 1 2 3|request length=4294967295
cut|closed the connection|read 1 2 3|request length=16
silent|nothing came before the deadline|read 1 2 3 -t 1|request eof
id|session id has 4 bytes|read 1 2 3|$c request started=abcd
more|3 bytes were asked for, the engine read 100|read 1 2 3 -S 3|$s
refuses|refused StartRead: a.x1b.31mb .x.$|read 1 2 3|$c request error=a$escape[31mb
bare|without a file descriptor|read 1 2 3|$s request mapped eof
small|did not bring a sealed memfd of 5000|read 1 2 3|$c request started=$id,5000 request memory=100 mapped=5000 eof
huge|did not bring a sealed memfd of 4611686018427387904|read 1 2 3|$c request started=$id,$huge request memory=100 mapped=$huge eof
loose|did not bring a sealed memfd of 100|read 1 2 3|$s request memory=100,loose mapped eof
crc|bytes with CRC-32C 0x4edb03cf came, the engine said 100 with 0x00000001|read 1 2 3|$c request started=$id,100,1 request memory=100 mapped request completed
fewer|50 bytes with CRC-32C .* came, the engine said 100|read 1 2 3|$s request memory=100 mapped=50 request completed
disagrees|the engine disagrees: no match|read 1 2 3 -o /dev/null|$s request memory=100 mapped request completed
bench|closed the connection|bench read 1 2 3 -f 1|request started
bench.asked|answers what nobody asked|bench read 1 2 3 -f 1|request mapped eof
bench.crc|have CRC-32C 0x4edb03cf, the engine says 0x00000001|bench read 1 2 3 -f 1 -n 1 -m|request started=$id,100,1 request memory=100 mapped eof
bench.disagrees|CompleteRead did not succeed|bench read 1 2 3 -f 1 -n 1|request started request completed eof
bench.silent|no read has ended before the deadline|bench read 1 2 3 -f 1 -t 1|request eof'

test_client_of_an_engine_that_lies() {
	local name pattern args items liar i lies=$LIES
	lies=${lies//\$s/\$c request started}
	lies=${lies//\$c/request capable}
	lies=${lies//\$id/01234567-89ab-cdef-0123-456789abcdef}
	lies=${lies//\$huge/4611686018427387904}
	while IFS='|' read -r name pattern args items; do
		read -ra args <<<"$args"
		read -ra items <<<"${items//\$escape/$'\e'}"
		timeout 60 "$B/engine_peer" listen "$T/sock" "${items[@]}" 2>"$T/$name.liar" &
		liar=$!
		for ((i = 0; i < 1000; i++)); do
			# 00010000: it listens; bound alone it still refuses
			! grep -qs " 00010000 .* $T/sock\$" /proc/net/unix || break
			sleep 0.01
		done
		here "$name" "$B/engine_client" "${args[@]}" -s "$T/sock"
		wait "$liar" || fail "$name: the liar: $(cat "$T/$name.liar")"
		assert_error "$name" 1 "$pattern"
		assertEquals "$name: bytes on stdout" 0 "$(stat -c %s "$T/$name.out")"
	done <<<"$lies"
}

test_wrong_usage() {
	local pattern words n
	while IFS='|' read -r pattern words; do
		read -ra words <<<"$words"
		usage_error "$pattern" "${words[@]}"
	done <<-'END'
		--socket is missing|rdma_engine -p x
		--peer is missing|rdma_engine -s x
		too many arguments: z|rdma_engine -s x -p y z
		port is not 1|rdma_engine -s x -p y:0
		port is not 1|rdma_engine -s x -p y:65536
		port is not 1|rdma_engine -s x -p [::1]:
		is not HOST|rdma_engine -s x -p :1
		--max-sessions is not|rdma_engine -s x -p y -n 0
		--max-sessions is not|rdma_engine -s x -p y --max-sessions=1000001
		--depth is not 1|rdma_engine -s x -p y --depth 0
		gid-index is not|rdma_engine -s x -p y -g 256
		unknown|rdma_engine --nonsense
		needs an argument|rdma_engine --socket
		the command is not ping, caps|engine_client
		the command is not .*: bench|engine_client bench
		--socket is missing|engine_client ping
		COOKIE is missing|engine_client read -s x 1 2
		too many arguments: 4|engine_client read -s x 1 2 3 4
		VOLUME is not|engine_client read -s x 4294967296 2 3
		COOKIE is not|engine_client read -s x 1 2 4294967296
		--json needs --output|engine_client read -s x -j 1 2 3
		does not take the option: -o|engine_client ping -s x -o y
		--in-flight is not|engine_client bench read -s x -f 0 1 2 3
		--iters is not|engine_client ping -s x -n 0
	END
	# A port that is one, at either form of a host: no device is what is wrong.
	for n in 127.0.0.1:1 '[::1]:65535' ::1; do
		here peer "$B/rdma_engine" -s "$T/sock" -p "$n" -d none0
		assertEquals "--peer $n: $(err_of peer)" 1 "$(rc_of peer)"
	done
	for n in rdma_engine engine_client; do
		assertEquals "$n --help" 0 "$("$B/$n" --help >/dev/null; echo $?)"
	done
}

# 64 clients, and some in other processes, while the node is killed and comes back: every
# read is right, and nothing is left when they are gone.
test_many_readers_of_a_node_that_comes_back() {
	on_engine '
		ls -A /dev/shm >"$T/shm.before" # of another program, in the same VM
		node node1
		SPY_STOP=$(stops 300) engine engine -r 30 --chunk 3000 --depth 8
		# What it opens when a first client comes is there already.
		client first read 9 1 7
		await has_sessions 0
		held engine >"$T/held.before"
		how=start client many "bench read" 1 100 305419896 -f 64 -n 700 -m -j
		how=start client short "bench read" 9 1 7 -f 4 -n 100 -m -j
		how=start client range "bench read" 1 100 305419896 -O 1000 -S 5000 -f 4 -n 100 -m -j
		await halted engine
		kill9 node1
		resume
		client ping ping
		node node2
		times=2 await connected_or_ended engine
		reap many short range
		await has_sessions 0
		await all_back
		ls -A /dev/shm >"$T/shm"
		stop engine node2
	' || return 0
	assert_done first many short range ping node2
	assert_rc_0 engine
	assert_in "$(err_of engine)" 'the node has closed the connection'
	assertEquals "shared memory" "$(cat "$T/shm.before")" "$(cat "$T/shm")"
}

# Without a node, what needs it waits for it, but not for ever; the rest is answered.
test_no_node() {
	on_engine '
		sock=/tmp/patient.sock start_engine patient -r 60
		sock=/tmp/patient.sock how=start peer waits start=9,1,7 answer map=1 answer bytes
		start_engine engine -r 1
		peer early ping answer start=9,1,7 answer
		node node
		reap waits
		stop patient
		await connected_or_ended engine
		stop node
		client late read 9 1 7
		node again
		times=2 await connected_or_ended engine
		client good read 9 1 7
		stop engine again
	' || return 0
	assert_done early waits good again
	assert_told early 'Pong 7' 'Error network true Network timeout after [1-9][0-9]{3}ms'
	assert_told waits 'Start 13' 'Map 13' '68656c6c6f2c206e6565646c65 read-only'
	assert_error late 1 'Network timeout after .* \(network\)'
	assert_rc_0 engine
}

. shunit2
