#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The faults that programs of this kind are known for. The tests look at the calls
# themselves (spy.c), the bytes on the wire and the kernel's objects.
# labs/tests/mutants/run puts each fault back and demands that its test fails;
# BUILD names the build under test.
#
# All scenes are played once, in one script; with tests named on the command line, only
# theirs.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

calls_of_init=(ibv_get_device_list ibv_open_device ibv_query_device
	ibv_query_gid_ex ibv_alloc_pd ibv_reg_mr ibv_create_comp_channel
	ibv_create_cq ibv_create_qp ibv_modify_qp ibv_post_recv)
calls_of_exit=(ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd)

scenes='
	# scene all
	talk() { # NAME ARG…: both sides with the same options
		local name=$1
		shift
		spied server "$name.server" -t 15 "$@" rxe0
		spied run "$name.client" "$B/rdma_client" -t 15 "$@" 127.0.0.1 rxe1
		reap "$name.server"
	}
	# scene waiting: for deadlines, beside the others, each on a port of its own
	# A message that comes later than the timeout after the receive was posted, but
	# not after the client could send.
	late() {
		local port=2001
		server late.server -q -e -t 5 rxe0 2001
		nap 2.5
		SPY_STOP=ibv_post_send:1 spied start late.client \
			"$B/rdma_client" -q -e 127.0.0.1 rxe1 2001
		await halted late.client
		nap 3
		kill -CONT "${pids[late.client]}"
		reap late.client late.server
	}
	# lost NAME PORT OPTION…: no completion is ever found
	lost() {
		local name=$1 port=$2
		shift 2
		server "$name.server" -q -e -t 10 "$@" rxe0 "$port"
		SPY_LIE=lost spied run "$name.client" \
			"$B/rdma_client" -q -e -t 3 "$@" 127.0.0.1 rxe1 "$port"
		reap "$name.server"
	}
	late &
	lost lost 2002 &
	lost any 2003 -n 100 &
	SPY_LIE=gid_order spied run gid "$B/rdma_server" -t 1 rxe0 2004 &
	# scene talks
	talk a -j -s 100
	talk b -j -s 100
	talk many -q -n 20
	talk window -q -b -w 3 -n 40
	# scene low
	spied server low -q -t 10 rxe0
	run peer "$B/peer" connect 127.0.0.1 18515 hello con,mtu=2 sync,status=5 trickle=2
	reap low
	# scene init
	for call in $calls_of_init; do
		spied fails $call:1:12 "$call" -e -q -t 1 rxe0
	done
	# While it chooses a device, it takes the next.
	export SPY_FAIL=ibv_query_device:1:12
	spied server chosen -t 60
	kill -INT "$pid"
	reap chosen
	# scene exit
	export SPY_FAIL=""
	for call in $calls_of_exit; do
		SPY_FAIL+=${SPY_FAIL:+,}$call:1:16
	done
	# What cannot be unmade stays: no leak of ours.
	ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 spied server exit.server -q rxe0
	run exit.client "$B/rdma_client" -q 127.0.0.1 rxe1
	reap exit.server
	# scene all
	unset SPY_FAIL
	export SPY_LIE
	# scene stuck
	SPY_LIE=stuck
	spied server stuck -q -t 60 rxe0
	kill -INT "$pid"
	await in_file ^stuck "$T/stuck.log"
	kill -0 "$pid" && echo alive >"$T/first"
	kill -INT "$pid"
	await_s=10 await ended "$pid" || kill -KILL "$pid"
	reap stuck
	# scene none
	SPY_LIE=no_device
	spied run none.server "$B/rdma_server" -t 1
	spied run none.client "$B/rdma_client" -t 1 127.0.0.1
	spied run none.named "$B/rdma_server" -t 1 rxe0
	# scene waiting
	SPY_LIE=gid_order
	spied run gid1 "$B/rdma_server" -q -t 1 rxe0 18515 1
	# scene low
	# What they print goes to a local file: a write to one of 9p may end with EINTR,
	# which nobody expects of a file.
	shared=$T T=$(mktemp -d)
	for SPY_LIE in short eintr alarm; do
		talk $SPY_LIE -q -e
	done
	cp "$T"/* "$shared"
	rm -r "$T"
	T=$shared
	# scene lies
	for SPY_LIE in wr_id opcode status twice broken; do
		server $SPY_LIE.server -q -t 5 rxe0
		spied run $SPY_LIE.client "$B/rdma_client" -q -t 5 127.0.0.1 rxe1
		reap $SPY_LIE.server
	done
	for SPY_LIE in wr_id opcode status; do
		spied server many_$SPY_LIE.server -q -n 5 -t 5 rxe0
		run many_$SPY_LIE.client "$B/rdma_client" -q -n 5 -t 5 127.0.0.1 rxe1
		reap many_$SPY_LIE.server
	done
	# scene text
	printf -v text "%04095d" 1
	SPY_LIE=no_nul
	spied server long.server -q -m "$text" rxe0
	run long.client "$B/rdma_client" -j 127.0.0.1 rxe1
	reap long.server
	text=$(printf "\e[2J\e]0;x\a")
	pair escape -q -m "$text" rxe0 : -q -m "$text" 127.0.0.1 rxe1
	# scene all
	unset SPY_LIE
	# scene accept: who has left before is no error
	SPY_FAIL=accept4:1:103,accept4:2:4 spied server left.server -q rxe0
	run left.client "$B/rdma_client" -q 127.0.0.1 rxe1
	reap left.server
	SPY_FAIL=accept4:1:24 spied server most.server -q rxe0
	run most.client "$B/rdma_client" -q -t 5 127.0.0.1 rxe1
	reap most.server
	# scene wire
	server wire -q -t 10 rxe0
	start peer "$B/peer" connect 127.0.0.1 18515 hello con,qpn=0x123456,psn=0x654321 sync \
		record="$T/bytes"
	enough() {
		ended "${pids[wire]}" || { [[ -e $T/bytes ]] && (($(stat -c %s "$T/bytes") >= 63)); }
	}
	await enough
	rdma -j -d resource show qp >"$T/qps"
	kill -INT "${pids[wire]}"
	reap wire peer
	# scene all
	wait
'

# played SCENE…: what they left is in $T of each test
played() {
	local script=$scenes name=all
	need_lab || return 1
	if ((named)); then
		name="$*"
		script=$(awk -v names=" all $* " '
			/^\t# scene / { sub(":", "", $3); on = index(names, " " $3 " ") }
			on' <<<"$scenes")
	fi
	if [[ ! -d $seen/$name ]]; then
		in_lab "calls_of_init='${calls_of_init[*]}' calls_of_exit='${calls_of_exit[*]}'
			$script"
		mkdir -p "$seen/$name"
		cp "$T"/* "$seen/$name"
	else
		cp "$seen/$name"/* "$T"
	fi
}

# attr SIDE STATE NAME: of the ibv_modify_qp that SIDE asked for
attr() {
	grep "^modify_qp state=$2 " "$T/$1.log" | grep -o " $3=[^ ]*" |
		cut -d= -f2
}

# How long the device waits for a peer, and what a peer may do here: with too much of
# either all works as well, on a good day. State 1 is INIT, 2 RTR, 3 RTS.
test_attributes_of_the_qp() {
	local side state name want what
	played talks low || return 0
	while read -r state name want what; do
		for side in server client; do
			assertEquals "$side: $what" "$want" "$(attr "a.$side" "$state" "$name")"
		done
	done <<-'END'
		2 is_global 1 is_global always
		2 path_mtu 5 the path MTU follows the ports: IBV_MTU_4096
		2 hop_limit 64 the hop limit crosses routers
		2 min_rnr_timer 12 0.64 ms after an RNR NAK
		3 timeout 14 67 ms
		3 retry_cnt 6 6 times
		3 rnr_retry 7 after an RNR for ever
	END
	# A peer that says it has 512: the lower one counts.
	assertEquals "the lower of both MTUs" 2 "$(attr low 2 path_mtu)"
	for side in server client; do
		assertEquals "rights of the QP, as the device has them" "qp access=6" \
			"$(grep '^qp access' "$T/a.$side.log")"
		assertEquals "rights of the MR" "access=7" \
			"$(grep -o '^make mr .*' "$T/a.$side.log" | grep -o 'access=.*')"
	done
}

test_psn_is_random_and_exchanged() {
	local psns psn
	played talks || return 0
	assertEquals "$(attr a.server 3 sq_psn)" "$(attr a.client 2 rq_psn)"
	assertEquals "$(attr a.client 3 sq_psn)" "$(attr a.server 2 rq_psn)"
	psns=$(for side in {a,b}.{server,client}; do attr "$side" 3 sq_psn; done)
	assertEquals "four, all different" 4 "$(sort -u <<<"$psns" | wc -l)"
	for psn in $psns; do
		assertTrue "24 bits" "(($psn < 16777216))"
	done
	# All 24 are used: that four of them stay below 2^16 cannot be chance.
	assertTrue "$psns" "[[ $(sort -n <<<"$psns" | tail -n 1) -gt 65535 ]]"
}

# overlap FILE: memory that is in a receive and in a send
overlap() {
	awk '
	/^post_/ {
		split($3, a, "=")
		split($4, l, "=")
		n[$1]++
		from[$1, n[$1]] = a[2]
		to[$1, n[$1]] = a[2] + l[2]
	}
	END {
		if (!n["post_recv"] || !n["post_send"])
			print "nothing was posted"
		for (i = 1; i <= n["post_recv"]; i++)
			for (j = 1; j <= n["post_send"]; j++)
				if (from["post_recv", i] < to["post_send", j] &&
				    from["post_send", j] < to["post_recv", i])
					print "receive", i, "and send", j
	}' "$1"
}

test_receives_and_sends_do_not_share_memory() {
	local name
	played talks || return 0
	for name in {a,many}.{server,client}; do
		assertEquals "$name" "" "$(overlap "$T/$name.log")"
	done
}

# The receive is posted before the peer may send, that is before READY.
test_receive_is_posted_before_anybody_may_send() {
	local side
	played talks || return 0
	for side in server client; do
		assertEquals "$side: the first of the two" post_recv \
			"$(grep -oE '^(post_recv|send)' "$T/a.$side.log" | head -n 1)"
	done
}

# assert_unmade NAME: whatever it made
assert_unmade() {
	local what
	for what in device pd mr channel cq qp; do
		assertEquals "$1: $what" "$(grep -c "^make $what" "$T/$1.log")" \
			"$(grep -c "^unmake $what" "$T/$1.log")"
	done
}

test_everything_that_was_made_is_unmade() {
	local side
	played talks || return 0
	for side in server client; do
		assert_unmade "a.$side"
		assertEquals "order" "qp cq mr pd device" "$(grep '^unmake' \
			"$T/a.$side.log" | tail -n 5 | cut -d' ' -f2 | xargs)"
	done
}

# Every call of the way up fails once; what was made before it is unmade.
test_a_failed_init_leaves_nothing() {
	local call
	played init || return 0
	for call in "${calls_of_init[@]}"; do
		assert_error "$call" 1 "${call}[a-z_ ]*\(.*ENOMEM \(12\)"
		assert_unmade "$call"
	done
	assert_in "$(out_of chosen)" '^ .*rxe1'
	assert_error chosen 1 'stopped by a signal'
}

test_failed_destroys_are_told() {
	local call
	played exit || return 0
	assertEquals 1 "$(rc_of exit.server)"
	assertEquals "the client" 0 "$(rc_of exit.client)"
	for call in "${calls_of_exit[@]}"; do
		assert_in "$(err_of exit.server)" "$call\(.*EBUSY \(16\)"
	done
	# What can be unmade still is.
	assert_in "$(<"$T/exit.server.log")" '^unmake device'
}

# A driver that never lets go: the first Ctrl-C asks to clean up, the second ends it.
test_second_signal_ends_what_is_stuck() {
	played stuck || return 0
	assertEquals alive "$(cat "$T/first")"
	assertEquals "$(err_of stuck)" 130 "$(rc_of stuck)"
	assert_in "$(err_of stuck)" 'stopped by a signal'
}

test_no_device_is_no_crash() {
	local name
	played none || return 0
	for name in server client named; do
		assert_error "none.$name" 1 'no RDMA device'
		assert_in "$(err_of none.$name)" '^ next: '
	done
}

test_gid_is_chosen_by_type() {
	played waiting || return 0
	assert_error gid1 1 'GID index 1 .*is not RoCE v2'
	assert_in "$(out_of gid)" 'GID index 5$'
	assert_error gid 1 'waiting for a client'
}

# Our bytes as a peer gets them, against our QP as the kernel has it.
test_wire_is_big_endian() {
	local hex name at want
	played wire || return 0
	rc_qp() { jq -r ".[] | select(.type == \"RC\") | $1" "$T/qps"; }
	hex=$(od -An -v -tx1 "$T/bytes" | tr -d ' \n')
	while read -r name at want; do
		assertEquals "$name" "$want" "${hex:at:${#want}}"
	done <<-END
		magic,version,length 0 52434d450001002b
		qp_num 16 $(printf %08x "$(rc_qp .lqpn)")
		lid 24 0000
		gid 28 00000000000000000000ffff0a630001
		psn 60 $(printf %08x "$(rc_qp '."sq-psn"')")
		mtu 68 05
		size 94 00001000
		sync 102 53594e430000000100000000
	END
	assertEquals "the peer's qp_num" $((0x123456)) "$(rc_qp .rqpn)"
	assertEquals "the peer's psn" $((0x654321)) "$(rc_qp '."rq-psn"')"
}

# One byte at a time in each direction, EINTR every second time, a timer signal.
test_short_writes_reads_and_signals() {
	local lie
	played low || return 0
	for lie in short eintr alarm; do
		assert_pair "$lie"
	done
	assert_error low 1 'the peer failed before sync point READY: EIO'
}

test_every_completion_is_checked() {
	local name want
	played lies || return 0
	while read -r name want; do
		assert_error "$name" 1 "$want"
	done <<-'END'
		wr_id.client unexpected completion: wr_id 0x7
		opcode.client unexpected completion.*opcode 2
		status.client transport retry.*\(12\)
		twice.client unexpected completion: wr_id 0x72656376.*opcode 128
		broken.client ibv_poll_cq\(\) = -2 .*the CQ can no longer be read
		many_wr_id.server unexpected completion: wr_id 0x7
		many_opcode.server unexpected completion.*opcode 2
		many_status.server transport retry.*\(12\)
	END
	# The man page promises a negative number, and no errno.
	assert_not_in "$(err_of broken.client)" 'ENOTTY'
}

# 4096 bytes without a NUL, and with escape sequences, through the real thing.
test_text_is_bounded_and_escaped() {
	local text side
	played text || return 0
	assert_pair long
	assert_pair escape
	assertEquals 4096 "$(json long.client .received_bytes)"
	text=$(json long.client .received_text)
	assertTrue "${#text} characters" "((${#text} <= 255))"
	assert_in "$text" '^x+\.\.\.$'
	for side in client server; do
		assertEquals "control characters" "" \
			"$(LC_ALL=C tr -d '\n -~' <"$T/escape.$side.out")"
		assert_in "$(out_of escape.$side)" '\\x1b\[2J\\x1b\]0;x\\x07'
	done
}

test_accept_fails() {
	played accept || return 0
	assert_pair left
	assert_error most.server 1 'accept\(\) failed: EMFILE \(24\)'
	assertEquals "$(err_of most.client)" 1 "$(rc_of most.client)"
}

test_deadline_begins_when_the_peer_may_send() {
	played waiting || return 0
	assert_pair late
	# And it does end.
	assert_error lost.client 1 'no completion on QP'
	# Any completion will do here: no request may be blamed for it.
	assert_error any.client 1 'within 3000 ms: nothing on this side prevents the completion'
}

# Not more sends are outstanding than --window says: a signaled one (flag 2) ends all
# before it.
test_window_is_kept() {
	played talks || return 0
	assert_pair window
	assertEquals "most outstanding" 3 "$(awk '
		/^post_send/ {
			posted++
			if (int(substr($5, 7) / 2) % 2)
				ends[++last] = posted
			if (posted - done > most)
				most = posted - done
		}
		/^wc .*opcode=0/ { done = ends[++first] }
		END { print most }' "$T/window.client.log")"
}

named=$#

oneTimeSetUp() {
	build_helpers
	seen=$(mktemp -du "$ROOT/build/seen.XXXXXX")
}

oneTimeTearDown() { [[ -z ${seen:-} ]] || rm -rf "$seen"; }

. shunit2
