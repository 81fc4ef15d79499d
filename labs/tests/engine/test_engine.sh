#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rdma_engine and engine_client on rxe: what they do when all is well, and what
# they say to requests that cannot be served. What breaks is in
# test_engine_faults.sh.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/engine/engine.sh
. "$ROOT/labs/tests/engine/engine.sh"

# Each of 64 clients reads so often.
ENGINE_READS=${ENGINE_READS:-50}
export ENGINE_READS

oneTimeSetUp() {
	build_engine_tests || return 1
	make_store
}

oneTimeTearDown() { rm -rf "${S:-}"; }

# The names and types that the original engine answered with (unit_engine_proto
# ties them to the recorded bytes), for the requests in their order.
RECORDED='{"type":"Pong","data":{"client_timestamp_ns":"uint","server_timestamp_ns":"uint","server_rtt_ns":"uint"}}
{"type":"Pong","data":{"client_timestamp_ns":"uint","server_timestamp_ns":"uint","server_rtt_ns":"uint"}}
{"type":"GetCapabilitiesResponse","data":{"device_name":"str","vendor_id":"uint","max_transfer_size":"uint","max_sessions":"uint","active_sessions":"uint","port_gid":"str","port_lid":"uint","supported_auth":["str"],"version":"str","real_rdma":"bool","extensions":["str","str"]}}
{"type":"StartReadResponse","data":{"session_id":"str","local_addr":"uint","local_key":"uint","transfer_size":"uint","expected_crc":"uint","expires_at_ns":"uint"}}
{"type":"StartReadResponse","data":{"session_id":"str","local_addr":"uint","local_key":"uint","transfer_size":"uint","expected_crc":"uint","expires_at_ns":"uint"}}
{"type":"Error","data":{"code":"str","message":"str","category":"str","recoverable":"bool"}}
{"type":"CompleteReadResponse","data":{"success":"bool","server_crc":"uint","message":"str"}}
{"type":"CompleteReadResponse","data":{"success":"bool","server_crc":"uint","message":"str"}}
{"type":"Error","data":{"code":"str","message":"str","category":"str","recoverable":"bool"}}
{"type":"Error","data":{"code":"str","message":"str","category":"str","recoverable":"bool"}}
{"type":"Error","data":{"code":"str","message":"str","category":"str","recoverable":"bool"}}'

# Unchanged but for the session ids, which the engine chooses. Two sessions at
# most, as it was when they were recorded.
test_recorded_requests() {
	local crc part
	on_engine '
		node node
		engine engine -n 2
		items=() kind=types
		for kind in types answer; do
			items=()
			for i in 000 002 004 006 008 010 012 014 016 018 020; do
				items+=("frame=labs/tests/engine/engine_frames/$i-req.bin" "$kind")
			done
			peer "$kind" "${items[@]}"
		done
		peer arrays arrays ping types caps types start=9,1,7 types map=1 answer bytes \
			complete=1,1,13,0 types complete=1,1,13 types
		stop engine node
	' || return 0
	assert_done engine node types answer arrays
	assertEquals "$RECORDED" "$(out_of types)"
	assertEquals "as arrays" "$(sed -n "1p; 3p; 4p; 7p; 9p" <<<"$RECORDED")" \
		"$(sed "4,5d" "$T/arrays.out")"
	assertEquals "68656c6c6f2c206e6565646c65 read-only" "$(sed -n 5p "$T/arrays.out")"
	# jq would round them.
	assert_in "$(sed -n 1p "$T/answer.out")" '"client_timestamp_ns":1795227289325611468,'
	assert_answer answer 3 GetCapabilitiesResponse \
		'.data | "\(.device_name) \(.max_sessions) \(.real_rdma) \(.supported_auth) \(.extensions)"' \
		'rxe1 2 true ["none"] ["MapBuffer","ReadProgress"]'
	crc=$("$B/needle" list -S "$S" -j | jq '.needles[] | select(.volume == 1 and .needle == "100").crc32c')
	assert_answer answer 4 StartReadResponse .data.transfer_size 4096
	assert_answer answer 5 StartReadResponse \
		'.data | "\(.transfer_size) \(.expected_crc)"' "8192 $crc"
	assert_answer answer 6 Error .data.code 'TooManySessions { max_sessions: 2 }'
	# The client lied about the CRC, and reported a failure.
	assert_answer answer 7 CompleteReadResponse .data.success false
	assert_in "$(answer answer 7 .data.message)" 'client_crc is not the CRC'
	assert_answer answer 8 CompleteReadResponse .data.success false
	assert_in "$(answer answer 8 .data.message)" 'reported a failure'
	assert_answer answer 9 Error .data.code \
		'SessionNotFound { session_id: "no-such-session" }'
	for part in 10 11; do
		assert_answer answer "$part" Error \
			'.data | "\(.code) \(.category) \(.recoverable)"' \
			'UNSUPPORTED_MESSAGE request true'
	done
}

# What is asked for is what comes: ranges, ends, cookies, addresses.
test_reads() {
	local huge=4611686018427387904 most=18446744073709551615
	local hello=68656c6c6f2c206e6565646c65
	on_engine '
		serve node "$B/needle_server" -S "$S" rxe0
		engine engine
		p="start=9,1,7"
		peer good ping answer $p answer map=1 answer bytes complete=1,1,13 answer \
			$p,7,3 answer map=2 answer bytes complete=2,1,3 answer \
			$p,7,0 answer map=3 answer bytes \
			$p,13,0 answer map=4 answer bytes complete=4,1,0,0 answer \
			start=9,2,7 answer map=5 answer bytes
		peer refused start=9,1,8 answer start=9,3,7 answer start=8,1,7 answer \
			$p,14,0 answer $p,13,1 answer $p,0,14 answer \
			$p,0,'"$huge"' answer $p,'"$huge,$huge"' answer \
			$p,1,'"$most"' answer $p,'"$most"',1 answer start=9,1,7 answer
		# The node tells where its volumes lie; the data begin 32 bytes later.
		read -r at key < <(sed -n "s/.*volume 9: .* at \(0x[0-9a-f]*\), rkey \(0x[0-9a-f]*\)/\1 \2/p" "$T/node.out")
		peer addresses $p,0,5,30,4096,1 answer map=1 answer bytes \
			$p,0,5,30,'"$most"','"$((0xffffffff))"' answer map=2 answer bytes \
			$p,0,5,30,$((at + 34)),$((key)) answer map=3 answer bytes \
			$p,0,5,30,$((at + 34)),$((key + 1)) answer map=4 answer bytes \
			$p,1,11,30,$((at + 34)),$((key)) answer map=5 answer bytes \
			$p,0,11,30,$((at + 34)),$((key)) answer map=6 answer bytes
		stop engine node
	' || return 0
	assert_done engine node good refused addresses
	assert_answer good 1 Pong .data.client_timestamp_ns 7
	assert_answer good 2 StartReadResponse .data.transfer_size 13
	assert_answer good 3 MapBufferResponse .data.size 13
	assertEquals "$hello read-only" "$(sed -n 4p "$T/good.out")"
	assert_answer good 5 CompleteReadResponse .data.success true
	assertEquals "6e6565 read-only" "$(sed -n 8p "$T/good.out")"
	assertEquals "6e6565646c65 read-only" "$(sed -n 12p "$T/good.out")"
	assert_answer good 13 StartReadResponse .data.transfer_size 0
	assertEquals " read-only" "$(sed -n 15p "$T/good.out")"
	assert_answer good 16 CompleteReadResponse .data.success true
	assertEquals " read-only" "$(sed -n 19p "$T/good.out")"
	assert_refused refused 1 security false 'wrong cookie'
	assert_refused refused 2 request false 'no needle 3 in volume 9'
	assert_refused refused 3 request false 'no needle 1 in volume 8'
	local i
	for i in 4 5 6 7 8 9 10; do
		assert_refused refused "$i" request false 'not within the needle'
	done
	assert_answer refused 11 StartReadResponse .data.transfer_size 13
	# An address within the needle is used; others are not, and do no harm.
	for i in 3 6 12; do
		assertEquals "${hello:0:10} read-only" "$(sed -n "${i}p" "$T/addresses.out")"
	done
	assertEquals "${hello:4:10} read-only" "$(sed -n 9p "$T/addresses.out")"
	assertEquals "it would end behind it" "${hello:2:22} read-only" \
		"$(sed -n 15p "$T/addresses.out")"
	assertEquals "it ends with it" "${hello:4:22} read-only" "$(sed -n 18p "$T/addresses.out")"
}

# A damaged needle is refused as a whole; the others are not touched by it.
test_damaged_needle() {
	cp -r "$S" "$T/store"
	local size
	size=$(stat -c %s "$T/store/volume-9.needles")
	# The last byte of "hello, needle": 32 of the volume, 32 of the record, 12.
	printf X | dd of="$T/store/volume-9.needles" bs=1 seek=76 conv=notrunc status=none
	assertEquals "the length" "$size" "$(stat -c %s "$T/store/volume-9.needles")"
	on_engine '
		export S=$T/store
		node node
		engine engine -n 2
		peer peer start=9,1,7 answer start=9,1,7,0,5 answer map=1 answer bytes \
			start=9,2,7 answer
		client client read 9 1 7
		stop engine node
	' || return 0
	assert_done engine node peer
	assert_refused peer 1 io true 'needle 1 of volume 9 is damaged: the CRC-32C'
	assertEquals '68656c6c6f read-only' "$(sed -n 4p "$T/peer.out")"
	assert_answer peer 5 StartReadResponse .data.transfer_size 0
	assert_error client 1 'is damaged.*\(io\)'
	assertEquals "nothing of it" "" "$(out_of client)"
}

# Sessions end by CompleteRead, by their time-out and with their client.
test_sessions() {
	on_engine '
		node node
		engine engine -t 2 -n 3
		p="start=9,1,7"
		peer ends $p answer complete=1,1,13 answer complete=1,1,13 answer map=1 answer \
			$p answer complete=2,1,12 answer $p answer complete=3,0,0 answer
		peer times $p,0,0,9223372036854775807 answer \
			$p,0,0,18446744073709551615 answer $p,0,0,0 answer \
			$p,0,0,1 answer sleep=2300 complete=3,1,13 answer \
			$p,0,0,1 answer sleep=1300 map=4 answer complete=4,1,13 answer \
			complete=1,1,13 answer complete=2,1,13 answer
		how=start peer many repeat=3 $p,0,0,60 repeat=3 answer silence=60000
		three() { [[ $(grep -c Start "$T/many.out") == 3 ]]; }
		await three
		peer full $p answer
		kill9 many
		await has_sessions 0
		peer room $p answer
		stop engine
		# The READ is still under way, and its completion never comes; there is one answer.
		SPY_LIE=lost LD_PRELOAD=$B/spy.so engine late -r 2
		peer late.peer $p,0,0,1 answer silence=1500 ping answer $p,0,0,1 answer
		stop late node
	' || return 0
	assert_done engine late node ends times full room late.peer
	assert_answer ends 2 CompleteReadResponse .data.success true
	assert_refused ends 3 session true 'not found'
	assert_refused ends 4 session true 'not found'
	assert_answer ends 6 CompleteReadResponse .data.success false
	assert_answer ends 8 CompleteReadResponse .data.success false
	# For ever is INT64_MAX, for clients that put it into a signed number.
	assert_in "$(sed -n 1p "$T/times.out")" '"expires_at_ns":9223372036854775807}'
	assert_in "$(sed -n 2p "$T/times.out")" '"expires_at_ns":9223372036854775807}'
	assert_refused times 4 session true 'Maximum number of sessions \(3\)'
	assert_refused times 5 session true 'has expired'
	assert_refused times 7 session true 'has expired'
	assert_refused times 8 session true 'has expired'
	assert_answer times 9 CompleteReadResponse .data.success true
	assert_answer times 10 CompleteReadResponse .data.success true
	assert_refused full 1 session true 'Maximum number of sessions \(3\)'
	assert_answer room 1 StartReadResponse .data.transfer_size 13
	assert_refused late.peer 1 session true 'has expired'
	assert_answer late.peer 2 Pong .data.client_timestamp_ns 7
	assert_refused late.peer 3 session true 'has expired'
}

# Who knows a session's id but did not begin it gets neither its buffer (which its
# owner's next read would fill) nor its end.
test_a_session_is_its_owners() {
	cp -r "$S" "$T/store"
	printf 'a secret' | "$B/needle" put -S "$T/store" 9 3 7 >/dev/null
	on_engine '
		export S=$T/store
		node node
		engine engine
		how=start peer owner start=9,1,7 answer gate=/tmp/gate.1 \
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
	assert_done engine node owner
	assert_refused thief 1 security false 'session .* is another client.s'
	assert_refused thief 2 security false 'session .* is another client.s'
	assertEquals "engine_peer: no descriptor came" "$(err_of thief)"
	assertEquals "what it sees later" "" "$(sed -n 3p "$T/thief.out")"
	assert_answer owner 2 CompleteReadResponse .data.success true
	assertEquals "6120736563726574 read-only" "$(sed -n 5p "$T/owner.out")"
}

# Nobody has more rights than the READs need: not by the flags of any MR or QP, and
# not when a storage node tries what it can with the key of a session's memory.
test_rights() {
	on_engine '
		SPY_LOG=$T/node.log LD_PRELOAD=$B/spy.so node node
		SPY_LOG=$T/engine.log LD_PRELOAD=$B/spy.so engine engine
		client good read 9 1 7
		stop engine node
		for op in "" -W; do
			# shellcheck disable=SC2086 # nothing is no word
			serve "thief$op" "$N/needle_reader" -d rxe0 -L /tmp/key $op - 18515
			engine "victim$op"
			how=start peer "owner$op" start=1,1,7 answer gate=/tmp/gate.4
			await in_file StartReadResponse "$T/owner$op.out"
			jq -r ".data | \"\(.local_addr) \(.local_key)\"" "$T/owner$op.out" >/tmp/key.new
			mv /tmp/key.new /tmp/key
			reap "thief$op"
			: >/tmp/gate.4
			reap "owner$op"
			rm /tmp/gate.4 /tmp/key
			stop "victim$op"
		done
	' || return 0
	assert_done engine node good thief thief-W owner owner-W
	assertEquals "remote access error" "$(out_of thief)"
	assertEquals "remote access error" "$(out_of thief-W)"
	# LOCAL_WRITE is 1, REMOTE_WRITE 2, REMOTE_READ 4.
	assertEquals "the store" "access=4" "$(grep '^make mr' "$T/node.log" | grep -o 'access=.*' | sort -u)"
	# The first is stage 2's own, which the READs do not use.
	assertEquals "the buffers" "access=1" "$(grep '^make mr' "$T/engine.log" | sed 1d | grep -o 'access=.*' | sort -u)"
	assertEquals "the QPs, as the device has it" "qp access=6" \
		"$(cat "$T"/{node,engine}.log | grep '^qp access' | sort -u)"
}

test_token() {
	printf 'secret\n' >"$T/token"
	printf 'secreT\n' >"$T/wrong"
	chmod 600 "$T/token" "$T/wrong"
	: >"$T/empty"
	cp "$T/token" "$T/shown"
	chmod 640 "$T/shown"
	on_engine '
		node node
		engine engine -a "$T/token"
		p="start=9,1,7"
		peer peer ping answer $p answer token=secreT $p answer token= $p answer \
			token=secret $p answer map=1 answer
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
	assert_answer peer 1 Pong .data.client_timestamp_ns 7
	assert_refused peer 2 security false 'an auth_token is needed'
	assert_refused peer 3 security false 'the auth_token is wrong'
	assert_refused peer 4 security false 'the auth_token is wrong'
	assert_answer peer 5 StartReadResponse .data.transfer_size 13
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
	local name
	head -c 3000000 /dev/urandom >"$T/big"
	cp -r "$S" "$T/store"
	"$B/needle" put -S "$T/store" 5 1 1 --file "$T/big" >/dev/null
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
		SPY_LIE=short LD_PRELOAD=$B/spy.so client short read 9 1 7
		client range read 9 1 7 -O 7 -S 3
		client big read 5 1 1 -o "$T/big.copy" -j -p
		client text read 5 1 1 -o "$T/big.again"
		run tty script -qec "$B/engine_client read -s $sock 5 1 1 -o $T/big.tty" /dev/null
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
		LD_PRELOAD= run theirs setpriv --reuid 65534 --clear-groups /tmp/theirs ping -s "$sock"
		stop engine
		client gone ping
		# Its socket is still there.
		engine killed
		kill9 killed
		client left ping
		sock=/tmp/nobody client nobody caps
		sock="" client nowhere ping
		# A path that is too long for a socket.
		sock=/tmp/$(printf "x%.0s" {1..120}) client long ping
		stop node
	' || return 0
	assert_done engine node ping caps out range text bench.ping bench.read bench.map
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
	assertEquals 'hello, needle' "$(out_of out)"
	assertEquals 'hello, needle' "$(out_of short)"
	assertEquals 'nee' "$(out_of range)"
	assertEquals "big: $(err_of big)" 0 "$(rc_of big)"
	assertTrue "the bytes" "cmp $T/big $T/big.copy"
	assertTrue "the bytes" "cmp $T/big $T/big.again"
	assertEquals 3000000 "$(json big .size)"
	assert_in "$(err_of big)" '^\[progress\] [0-9]+ of 3000000 bytes$'
	# On a terminal it is one line, which is gone in the end.
	assertEquals 0 "$(rc_of tty)"
	assert_in "$(tr '\r' '\n' <"$T/tty.out")" '^ *[0-9.]+ % of 3000000 bytes$'
	assert_in "$(tr '\r' '\n' <"$T/tty.out")" "^$(printf '\e')\\[K"
	assert_error cookie 1 'wrong cookie for needle 1 of volume 9 \(security\)'
	assertFalse "nothing is written" "[ -e $T/never ]"
	assert_error folder 1 'Is a directory'
	assert_error full 1 'No space left'
	for name in read map; do
		assert_agree "bench.$name" .mb_per_s '.iters * .size / .seconds / 1e6'
	done
	assert_in "$(out_of bench.text)" '^5 round trips of [0-9]+ bytes: half round trip min [0-9.]+ median'
	assertEquals "50 true 7" "$(json bench.map '"\(.iters) \(.mapped) \(.in_flight)"')"
	assert_error bench.bad 1 'wrong cookie'
	assert_error theirs 1 'only the user whose engine it is may connect'
	assert_error gone 1 'no engine listens there'
	assert_error left 1 'no engine listens there'
	assert_error nobody 1 'no engine listens there'
	assert_error nowhere 1 'is 0 bytes long, not 1 ... 107: '
	assert_in "$(err_of nowhere)" 'next: name a path$'
	assert_error long 1 'is 125 bytes long, not 1 ... 107: '
}

# lies NAME PATTERN CLIENT-ARGS ITEM...: engine_client reads from an engine that
# does ITEM... (labs/tests/engine/engine_liar.c) and must end with one error that says
# PATTERN, and with nothing written. No device is needed.
lies() {
	local name=$1 pattern=$2 liar i args
	read -ra args <<<"$3"
	timeout 60 "$B/engine_liar" "$T/$name.sock" "${@:4}" 2>"$T/$name.liar" &
	liar=$!
	for ((i = 0; i < 100; i++)); do
		[[ ! -S $T/$name.sock ]] || break
		sleep 0.05
	done
	here "$name" "$B/engine_client" "${args[@]}" -s "$T/$name.sock"
	wait "$liar" || fail "$name: the liar: $(cat "$T/$name.liar")"
	assert_error "$name" 1 "$pattern"
	assertEquals "$name: bytes on stdout" 0 "$(stat -c %s "$T/$name.out")"
}

CAPS='say={"type":"GetCapabilitiesResponse","data":{"device_name":"x","vendor_id":1,"max_transfer_size":1,"max_sessions":1,"active_sessions":0,"port_gid":"x","port_lid":0,"supported_auth":["none"],"version":"1","real_rdma":true,"extensions":["MapBuffer"]}}'
ID=01234567-89ab-cdef-0123-456789abcdef

# started ID SIZE CRC: a StartReadResponse
started() {
	echo 'say={"type":"StartReadResponse","data":{"session_id":"'"$1"'","local_addr":1,"local_key":1,"transfer_size":'"$2"',"expected_crc":'"$3"',"expires_at_ns":1}}'
}
mapped() {
	echo 'say={"type":"MapBufferResponse","data":{"session_id":"'"$ID"'","size":'"$1"'}}'
}

DONE='say={"type":"CompleteReadResponse","data":{"success":false,"server_crc":1,"message":"no match"}}'
# CRC-32C of 100 times 'x'
X100=$((0x4edb03cf))

test_client_of_an_engine_that_lies() {
	local read='read 1 2 3 -t 2' good
	good=$(started $ID 100 $X100)
	helper "$B/engine_liar" -O2 labs/tests/engine/engine_liar.c "${MSGPACK[@]}" -ljansson ||
		{ fail 'no liar' && return; }
	lies old 'has no MapBuffer' "$read" request "${CAPS/\"MapBuffer\"/}"
	lies other 'answered GetCapabilities with Pong' "$read" request \
		'say={"type":"Pong","data":{"client_timestamp_ns":1,"server_timestamp_ns":1,"server_rtt_ns":1}}'
	lies unknown 'with something unknown' "$read" request 'say={"type":"Wrong","data":{}}'
	lies nothing 'cannot be read' "$read" request 'say={}'
	lies text 'cannot be read' "$read" request hex=05000000a568656c6c
	lies long 'longer than 1048576 bytes' "$read" request hex=ffffffff
	lies cut 'closed the connection' "$read" request hex=10000000
	lies silent 'nothing came before the deadline' "$read" request eof
	lies id "session id has 4 bytes" "$read" request "$CAPS" request "$(started abcd 100 1)"
	lies more '3 bytes were asked for, the engine read 100' "$read -S 3" \
		request "$CAPS" request "$good"
	lies refuses 'refused StartRead: a.x1b.31mb .x.$' "$read" request "$CAPS" request \
		'say={"type":"Error","data":{"code":"x","message":"a\u001b[31mb","category":"x","recoverable":false}}'
	lies bare 'without a file descriptor' "$read" request "$CAPS" request "$good" \
		request "$(mapped 100)" eof
	lies small 'did not bring a sealed memfd of 5000' "$read" request "$CAPS" \
		request "$(started $ID 5000 1)" request sealed=100 "$(mapped 5000)" eof
	lies huge 'did not bring a sealed memfd of 4611686018427387904' "$read" \
		request "$CAPS" request "$(started $ID $((1 << 62)) 1)" \
		request sealed=100 "$(mapped $((1 << 62)))" eof
	lies loose 'did not bring a sealed memfd of 100' "$read" request "$CAPS" \
		request "$good" request loose=100 "$(mapped 100)" eof
	lies pipe 'did not bring a sealed memfd of 100' "$read" request "$CAPS" \
		request "$good" request pipe "$(mapped 100)" eof
	lies crc 'bytes with CRC-32C 0x4edb03cf came, the engine said 100 with 0x00000001' \
		"$read" request "$CAPS" request "$(started $ID 100 1)" \
		request sealed=100 "$(mapped 100)" request "$DONE"
	lies fewer '50 bytes with CRC-32C .* came, the engine said 100' "$read" \
		request "$CAPS" request "$good" request sealed=100 "$(mapped 50)" request "$DONE"
	lies disagrees 'the engine disagrees: no.x0amatch' "$read -o $T/copy" request "$CAPS" \
		request "$good" request sealed=100 "$(mapped 100)" request "${DONE/ /\\n}"
	lies bench 'closed the connection' 'bench read 1 2 3 -f 1 -t 2' request "$good"
	lies bench.asked 'answers what nobody asked' 'bench read 1 2 3 -f 1 -t 2' \
		request "$(mapped 100)" eof
	lies bench.crc 'have CRC-32C 0x4edb03cf, the engine says 0x00000001' \
		'bench read 1 2 3 -f 1 -n 1 -m -t 2' request "$(started $ID 100 1)" \
		request sealed=100 "$(mapped 100)" eof
	lies bench.disagrees 'CompleteRead did not succeed' 'bench read 1 2 3 -f 1 -n 1 -t 2' \
		request "$good" request "$DONE" eof
	lies bench.silent 'no read has ended before the deadline' \
		'bench read 1 2 3 -f 1 -t 2' request eof
}

test_wrong_usage() {
	local n
	usage_error '--socket is missing' rdma_engine
	usage_error '--socket is missing' rdma_engine -p x
	usage_error '--peer is missing' rdma_engine -s x
	usage_error 'too many arguments: z' rdma_engine -s x -p y z
	for n in y:0 y:65536 y:z '[::1]:'; do
		usage_error "port is not 1" rdma_engine -s x -p "$n"
	done
	# A port that is one, at either form of a host: no device is what is wrong.
	for n in 127.0.0.1:1 '[::1]:65535' ::1; do
		here peer "$B/rdma_engine" -s "$T/sock" -p "$n" -d none0
		assertEquals "--peer $n: $(err_of peer)" 1 "$(rc_of peer)"
	done
	usage_error 'is not HOST' rdma_engine -s x -p ''
	printf -v n 'x%.0s' {1..255} # the longest host
	usage_error 'is not HOST' rdma_engine -s x -p "x$n"
	here peer "$B/rdma_engine" -s "$T/sock" -p "$n" -d none0
	assertEquals "$(err_of peer)" 1 "$(rc_of peer)"
	for n in 0 1000001 -1 x; do
		usage_error '--max-sessions is not' rdma_engine -s x -p y --max-sessions="$n"
	done
	for n in -c -m -t -r -w --depth --chunk; do
		usage_error 'is not 1 \.\.\.' rdma_engine -s x -p y "$n" 0
	done
	usage_error 'gid-index is not' rdma_engine -s x -p y -g 256
	usage_error 'unknown' rdma_engine --nonsense
	usage_error 'needs an argument' rdma_engine --socket
	usage_error 'the command is not ping, caps' engine_client
	usage_error 'the command is not .*: dance' engine_client dance
	usage_error 'the command is not .*: bench' engine_client bench
	usage_error '--socket is missing' engine_client ping
	usage_error 'COOKIE is missing' engine_client read -s x 1 2
	usage_error 'too many arguments: 4' engine_client read -s x 1 2 3 4
	usage_error 'VOLUME is not' engine_client read -s x 4294967296 2 3
	usage_error 'COOKIE is not' engine_client read -s x 1 2 4294967296
	usage_error '--json needs --output' engine_client read -s x -j 1 2 3
	usage_error 'does not take the option: -o' engine_client ping -s x -o y
	usage_error '--in-flight is not' engine_client bench read -s x -f 0 1 2 3
	usage_error '--iters is not' engine_client ping -s x -n 0
	for n in rdma_engine engine_client; do
		assertEquals "$n --help" 0 "$("$B/$n" --help >/dev/null; echo $?)"
	done
}

# No READ is longer than the port takes, whatever --chunk says.
test_a_port_with_short_messages() {
	with_large 9437184
	on_engine '
		export S=$T/store
		node node
		SPY_LOG=$T/log SPY_LIE=small_port LD_PRELOAD=$B/spy.so engine engine --chunk 1073741824
		client read read 5 1 1 -o "$T/out"
		stop engine node
	' || return 0
	assert_done engine node read
	assertEquals '8388608 1048576' "$(sed -n 's/^post_send .* length=\([0-9]*\) .*/\1/p' "$T/log" | xargs)"
}

# Every byte of every read, and nothing is left when the clients are gone.
test_load() {
	on_engine '
		ls -A /dev/shm >"$T/shm.before" # of another program, in the same VM
		node node
		engine engine
		# What it opens when a first client comes is there already.
		client first read 9 1 7
		await has_sessions 0
		held engine >"$T/held.before"
		run_load load 64 "$ENGINE_READS"
		await has_sessions 0
		held engine >"$T/held.after"
		ls -A /dev/shm >"$T/shm"
		stop engine node
		# Chunks of 100 bytes, three at a time: each read is many.
		node again
		engine small --chunk 100 --depth 3
		run_load split 8 5
		stop small again
	' || return 0
	assert_done engine node load small again split
	assertEquals $((64 * ENGINE_READS)) "$(json load .reads)"
	assertEquals 0 "$(json load .network)"
	assertEquals 40 "$(json split .reads)"
	assertEquals "descriptors and memory regions" "$(cat "$T/held.before")" \
		"$(cat "$T/held.after")"
	assertEquals "shared memory" "$(cat "$T/shm.before")" "$(cat "$T/shm")"
}

# The node dies in the middle of a READ; on the next one that needle has become larger.
# The memory for the smaller one is given back.
test_a_needle_that_grows() {
	with_large 2000000
	head -c 6000000 /dev/urandom >"$T/grown"
	on_engine '
		export S=$T/store
		node node1
		engine_that_stops 100 -- -n 1 -r 30 --chunk 4096 --depth 2
		client first read 9 1 7
		held engine >"$T/held.before"
		how=start client large read 5 1 1 -o "$T/out"
		await halted engine
		kill9 node1
		"$N/needle" put -S "$S" 5 1 1 --file "$T/grown" >/dev/null
		node node2
		kill -CONT "${pids[engine]}"
		reap large
		await all_back
		held engine >"$T/held.after"
		stop engine node2
	' || return 0
	assert_done first large
	cmp "$T/out" "$T/grown"
	assertEquals "the bytes" 0 $?
	assertEquals "descriptors and memory regions" "$(cat "$T/held.before")" "$(cat "$T/held.after")"
}

# The node dies in the middle of a READ, and the next one, too, when it is made again.
test_a_node_that_dies_twice() {
	with_large 2000000
	on_engine '
		export S=$T/store
		node node1
		engine_that_stops 100 200 -- -r 60 --chunk 4096 --depth 2
		how=start client large read 5 1 1 -o "$T/out"
		await halted engine
		kill9 node1
		node node2
		kill -CONT "${pids[engine]}"
		await halted engine
		kill9 node2
		kill -CONT "${pids[engine]}"
		reap large
		stop engine
	' || return 0
	assert_error large 1 'Network timeout after [0-9]{1,5}ms'
	assertEquals "$(err_of engine)" 0 "$(rc_of engine)"
	assertFalse 'nothing of it' "[ -s '$T/out' ]"
}

# A READ was refused, and the node has ended: both are known at once, and the link is lost
# once.
test_a_link_is_lost_once() {
	with_large 9000
	on_engine '
		export S=$T/store
		node node1
		SPY_LIE=rkey engine_that_stops 2 -- -r 1 --chunk 4096
		how=start client refused read 5 1 1
		await halted engine
		nap 0.3
		kill9 node1
		kill -CONT "${pids[engine]}"
		reap refused
		stop engine
	' || return 0
	assert_error refused 1 'Network timeout'
	assertEquals "$(err_of engine)" 1 "$(grep -c ' is lost, ' "$T/engine.err")"
}

# Whatever it is that no descriptor is left for, it says so and keeps nothing.
test_too_few_descriptors() {
	on_engine '
		for n in {4..30}; do
			start few prlimit --nofile="$n" "$B/rdma_engine" -q -s "$sock" -p 10.99.0.1 -d rxe1
			await there "$pid"
			! ended "$pid" || reap few
			[[ -s $T/few.rc ]] || break
			cat "$T/few.err" >>"$T/all"
		done
		stop few
	' || return 0
	assertEquals "$(err_of few)" 0 "$(rc_of few)"
	assert_in "$(<"$T/all")" 'epoll_create1\(\) failed: EMFILE'
	assert_in "$(<"$T/all")" 'signalfd\(\) failed: EMFILE'
	assertEquals '' "$(grep -v 'EMFILE\|too few file descriptors\|^ next: \|^libibverbs: ' "$T/all")"
}

. shunit2
