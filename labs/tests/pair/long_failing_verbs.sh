#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The faults that programs of this kind are known for, one test each. The tests
# look at the calls themselves (spy.c), the bytes on the wire and the kernel's
# objects. labs/tests/mutants/run puts each fault back and demands that its test
# fails; BUILD names the build under test.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# One connection, watched by the spy on both sides, serves several tests.
watched_pair() {
	[[ ! -d $seen ]] || return 0
	in_lab '
		spied server a.server -j rxe0
		SPY_LOG=$T/a.client.log LD_PRELOAD=$B/spy.so run a.client \
			"$B/rdma_client" -j -s 100 127.0.0.1 rxe1
		reap a.server
	' || return 1
	cp -r "$T" "$seen"
}

# attr SIDE STATE NAME: of the ibv_modify_qp that SIDE asked for; 1 INIT 2 RTR 3 RTS
attr() {
	grep "^modify_qp state=$2 " "$seen/a.$1.log" | grep -o " $3=[^ ]*" |
		cut -d= -f2
}

test_is_global_always() {
	watched_pair || return 0
	assertEquals 1 "$(attr server 2 is_global)"
	assertEquals 1 "$(attr client 2 is_global)"
	assertEquals "0 0" "$(cat "$seen"/a.{server,client}.rc | xargs)"
}

test_path_mtu_follows_the_ports() {
	watched_pair || return 0
	assertEquals "IBV_MTU_4096" 5 "$(attr server 2 path_mtu)"
	assertEquals "IBV_MTU_4096" 5 "$(attr client 2 path_mtu)"
	# A peer that says it has 512: the lower one counts.
	in_lab '
		spied server low -q -t 10 rxe0
		run peer "$B/peer" connect 127.0.0.1 18515 hello con,mtu=2 sync,status=5
		reap low
	' || return 0
	assert_in "$(cat "$T/low.log")" '^modify_qp state=2 .* path_mtu=2 '
}

test_hop_limit_crosses_routers() {
	watched_pair || return 0
	assertEquals 64 "$(attr server 2 hop_limit)"
	assertEquals 64 "$(attr client 2 hop_limit)"
}

# How long the device waits for a peer, and what a peer may do here: with too much of
# either all works as well, on a good day.
test_timers_and_rights() {
	local side
	watched_pair || return 0
	for side in server client; do
		assertEquals "0.64 ms after an RNR NAK" 12 "$(attr "$side" 2 min_rnr_timer)"
		assertEquals "67 ms, 6 times, after an RNR for ever" "14 6 7" \
			"$(for name in timeout retry_cnt rnr_retry; do attr "$side" 3 "$name"; done | xargs)"
		assertEquals "rights of the QP, as the device has them" "qp access=6" \
			"$(grep '^qp access' "$seen/a.$side.log")"
		assertEquals "rights of the MR" "access=7" \
			"$(grep -o '^make mr .*' "$seen/a.$side.log" | grep -o 'access=.*')"
	done
}

test_psn_is_random_and_exchanged() {
	local side psns
	watched_pair || return 0
	in_lab '
		spied server b.server -j rxe0
		SPY_LOG=$T/b.client.log LD_PRELOAD=$B/spy.so run b.client \
			"$B/rdma_client" -j 127.0.0.1 rxe1
		reap b.server
	' || return 0
	assertEquals "$(attr server 3 sq_psn)" "$(attr client 2 rq_psn)"
	assertEquals "$(attr client 3 sq_psn)" "$(attr server 2 rq_psn)"
	psns=$(cat "$seen"/a.*.log "$T"/b.*.log | grep "^modify_qp state=3 " |
		grep -o " sq_psn=[0-9]*" | cut -d= -f2)
	assertEquals "four, all different" 4 "$(sort -u <<<"$psns" | wc -l)"
	for side in $psns; do
		assertTrue "24 bits" "[[ $side -lt 16777216 ]]"
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
	watched_pair || return 0
	assertEquals "" "$(overlap "$seen/a.server.log")"
	assertEquals "" "$(overlap "$seen/a.client.log")"
	in_lab '
		spied server c.server -q -n 20 rxe0
		run c.client "$B/rdma_client" -q -n 20 127.0.0.1 rxe1
		reap c.server
	' || return 0
	assert_pair c
	assertEquals "" "$(overlap "$T/c.server.log")"
}

# The receive is posted before the peer may send, that is before READY.
test_receive_is_posted_before_anybody_may_send() {
	local side
	watched_pair || return 0
	for side in server client; do
		assertEquals "$side: the first of the two" post_recv \
			"$(grep -oE '^(post_recv|send)' "$seen/a.$side.log" | head -n 1)"
	done
}

test_everything_that_was_made_is_unmade() {
	local side what
	watched_pair || return 0
	for side in server client; do
		for what in device pd mr cq qp; do
			assertEquals "$side: $what" \
				"$(grep -c "^make $what" "$seen/a.$side.log")" \
				"$(grep -c "^unmake $what" "$seen/a.$side.log")"
		done
		assertEquals "order" "qp cq mr pd device" "$(grep '^unmake' \
			"$seen/a.$side.log" | tail -n 5 | cut -d' ' -f2 | xargs)"
	done
}

# Every call of the way up fails once; what was made before it is unmade.
test_a_failed_init_leaves_nothing() {
	local call made
	in_lab '
		for call in ibv_get_device_list ibv_open_device ibv_query_device \
			ibv_query_gid_ex ibv_alloc_pd ibv_reg_mr ibv_create_comp_channel \
			ibv_create_cq ibv_create_qp ibv_modify_qp ibv_post_recv; do
			spied fails $call:1:12 "$call" -e -q -t 1 rxe0
		done
		# While it chooses one, it takes the next.
		spied fails ibv_query_device:1:12 chosen -t 1
	' || return 0
	assert_in "$(out_of chosen)" '^ .*rxe1'
	assert_error chosen 1 'waiting for a client: nothing came'
	for call in ibv_get_device_list ibv_open_device ibv_query_device \
		ibv_query_gid_ex ibv_alloc_pd ibv_reg_mr ibv_create_comp_channel \
		ibv_create_cq ibv_create_qp ibv_modify_qp ibv_post_recv; do
		assert_error "$call" 1 "${call}[a-z_ ]*\(.*ENOMEM \(12\)"
		for made in device pd mr channel cq qp; do
			assertEquals "$made after $call failed" \
				"$(grep -c "^make $made" "$T/$call.log")" \
				"$(grep -c "^unmake $made" "$T/$call.log")"
		done
	done
}

# A driver that never lets go: the first Ctrl-C asks to clean up, the second ends it.
test_second_signal_ends_what_is_stuck() {
	in_lab '
		export SPY_LIE=stuck
		spied server stuck -q -t 60 rxe0
		kill -INT "$pid"
		await in_file ^stuck "$T/stuck.log"
		nap 0.2
		kill -0 "$pid" && echo alive >"$T/first"
		kill -INT "$pid"
		await ended "$pid" || kill -KILL "$pid"
		reap stuck
	' || return 0
	assertEquals alive "$(cat "$T/first")"
	assertEquals "$(err_of stuck)" 130 "$(rc_of stuck)"
	assert_in "$(err_of stuck)" 'stopped by a signal'
}

test_no_device_is_no_crash() {
	in_lab '
		export SPY_LIE=no_device
		spied run server "$B/rdma_server" -t 1
		spied run client "$B/rdma_client" -t 1 127.0.0.1
	' || return 0
	assert_error server 1 'no RDMA device'
	assert_error client 1 'no RDMA device'
}

# Our bytes as a peer gets them, against our QP as the kernel has it.
test_wire_is_big_endian() {
	local hex
	in_lab '
		server a -q -t 3 rxe0
		start peer "$B/peer" connect 127.0.0.1 18515 hello con,qpn=0x123456,psn=0x654321 sync \
			record="$T/bytes"
		enough() { [[ -e $T/bytes ]] && (($(stat -c %s "$T/bytes") >= 63)); }
		await enough
		rdma -j -d resource show qp >"$T/qps"
		kill -INT "${pids[a]}"
		reap a peer
	' || return 0
	hex=$(od -An -v -tx1 "$T/bytes" | tr -d ' \n')
	rc_qp() { jq -r ".[] | select(.type == \"RC\") | $1" "$T/qps"; }
	assertEquals "hello: magic, version 1, length 43" 52434d450001002b "${hex:0:16}"
	assertEquals "qp_num" "$(printf %08x "$(rc_qp .lqpn)")" "${hex:16:8}"
	assertEquals "lid" 0000 "${hex:24:4}"
	assertEquals "gid" 00000000000000000000ffff0a630001 "${hex:28:32}"
	assertEquals "psn" "$(printf %08x "$(rc_qp '."sq-psn"')")" "${hex:60:8}"
	assertEquals "mtu" 05 "${hex:68:2}"
	assertEquals "size" 00001000 "${hex:94:8}"
	assertEquals "sync" 53594e430000000100000000 "${hex:102:24}"
	assertEquals "the peer's qp_num" $((0x123456)) "$(rc_qp .rqpn)"
	assertEquals "the peer's psn" $((0x654321)) "$(rc_qp '."rq-psn"')"
}

# One byte at a time in each direction, EINTR every second time, a timer signal.
test_short_writes_reads_and_signals() {
	local lie
	in_lab '
		# What they print goes to a local file: a write to one of 9p may end
		# with EINTR, which nobody expects of a file.
		shared=$T T=$(mktemp -d)
		for lie in short eintr alarm; do
			export SPY_LIE=$lie
			spied server "$lie.server" -q -e rxe0
			spied run "$lie.client" "$B/rdma_client" -q -e 127.0.0.1 rxe1
			reap "$lie.server"
		done
		cp "$T"/* "$shared" && T=$shared
	' || return 0
	for lie in short eintr alarm; do
		assert_pair "$lie"
	done
}

# A peer whose bytes come one by one is understood as well.
test_partial_reads() {
	in_lab '
		server a -q -t 5 rxe0
		start peer "$B/peer" connect 127.0.0.1 18515 hello con sync,status=5 trickle=5
		reap a peer
	' || return 0
	assert_error a 1 'the peer failed before sync point READY: EIO'
}

test_every_completion_is_checked() {
	local lie
	in_lab '
		for lie in wr_id opcode status; do
			server $lie.server -q -t 2 rxe0
			SPY_LIE=$lie LD_PRELOAD=$B/spy.so run $lie.client \
				"$B/rdma_client" -q -t 2 127.0.0.1 rxe1
			reap $lie.server
		done
		for lie in wr_id opcode status; do
			SPY_LIE=$lie spied server $lie.s -q -n 5 -t 2 rxe0
			run $lie.c "$B/rdma_client" -q -n 5 -t 2 127.0.0.1 rxe1
			reap $lie.s
		done
		server twice.s -q -t 2 rxe0
		SPY_LIE=twice spied run twice.c "$B/rdma_client" -q -t 2 127.0.0.1 rxe1
		reap twice.s
	' || return 0
	assert_error twice.c 1 'unexpected completion: wr_id 0x72656376.*opcode 128'
	assert_error wr_id.client 1 'unexpected completion: wr_id 0x7'
	assert_error opcode.client 1 'unexpected completion.*opcode 2'
	assert_error status.client 1 'transport retry.*\(12\)'
	assert_error wr_id.s 1 'unexpected completion: wr_id 0x7'
	assert_error opcode.s 1 'unexpected completion.*opcode 2'
	assert_error status.s 1 'transport retry.*\(12\)'
}

# 4096 bytes without a NUL, and with escape sequences, through the real thing.
test_text_is_bounded_and_escaped() {
	local text side
	in_lab '
		printf -v text "%04095d" 1
		SPY_LIE=no_nul spied server a.server -q -m "$text" rxe0
		run a.client "$B/rdma_client" -j 127.0.0.1 rxe1
		reap a.server
		text=$(printf "\e[2J\e]0;x\a")
		server b.server -q -m "$text" rxe0
		run b.client "$B/rdma_client" -q -m "$text" 127.0.0.1 rxe1
		reap b.server
	' || return 0
	assert_pair a
	assert_pair b
	assertEquals 4096 "$(json a.client .received_bytes)"
	text=$(json a.client .received_text)
	assertTrue "${#text} characters" "[[ ${#text} -le 255 ]]"
	assert_in "$text" '^x+\.\.\.$'
	for side in client server; do
		assertEquals "control characters" "" \
			"$(LC_ALL=C tr -d '\n -~' <"$T/b.$side.out")"
		assert_in "$(out_of b.$side)" '\\x1b\[2J\\x1b\]0;x\\x07'
	done
}

# Who has left before accept is no error, and an error of accept is told.
test_accept_fails() {
	in_lab '
		SPY_FAIL=accept4:1:103,accept4:2:4 spied server left.server -q rxe0
		run left.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap left.server
		SPY_FAIL=accept4:1:24 spied server most.server -q rxe0
		run most.client "$B/rdma_client" -q -t 2 127.0.0.1 rxe1
		reap most.server
	' || return 0
	assert_pair left
	assert_error most.server 1 'accept\(\) failed: EMFILE \(24\)'
	assertEquals "$(err_of most.client)" 1 "$(rc_of most.client)"
}

# Whatever a side asks the system for is refused once: it ends with one error, and so does
# the other.
test_refusals() {
	in_lab '
		start_host() { server "$1" -q -e -t 2 -n 3 rxe0; }
		refusals_of_both "$B/rdma_client" -q -e -t 2 -n 3 127.0.0.1 rxe1
	' || return 0
	assertEquals "$(err_of client)$(err_of server)" '0 0' "$(rc_of client) $(rc_of server)"
	assertEquals 'the other side, too' '' "$(grep -v ' 1 1$\| 0 0$' "$T/ends")"
	assert_refusals 30 'client connect|server (socket|epoll_wait)' <"$T/lab.out"
}

# So many receives are there before the peer may send: a burst meets one each.
test_receives_for_a_burst() {
	in_lab '
		spied server burst.server -q -b -s 64 -n 2000 rxe0
		run burst.client "$B/rdma_client" -q -b -s 64 -n 2000 127.0.0.1 rxe1
		reap burst.server
	' || return 0
	assert_pair burst
	assertEquals 512 "$(sed -n '/^wc /q; /^post_recv /p' "$T/burst.server.log" | wc -l)"
}

test_failed_destroys_are_told() {
	local call
	in_lab '
		for call in ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd; do
			export SPY_FAIL=$call:1:16
			spied server $call.server -q rxe0
			unset SPY_FAIL
			run $call.client "$B/rdma_client" -q 127.0.0.1 rxe1
			reap $call.server
		done
	' || return 0
	for call in ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd; do
		assertEquals "$call" 1 "$(rc_of "$call.server")"
		assert_in "$(err_of "$call.server")" "$call\(.*EBUSY \(16\)"
		assertEquals "$call: the client" 0 "$(rc_of "$call.client")"
		# What can be unmade still is.
		assert_in "$(cat "$T/$call.server.log")" '^unmake device'
	done
}

# The server's 5 s for a message begin when the client may send, not before.
test_deadline_begins_when_the_peer_may_send() {
	in_lab '
		server a.server -q rxe0
		nap 7
		SPY_LIE=late spied run a.client "$B/rdma_client" -q 127.0.0.1 rxe1
		reap a.server
		# And it does end.
		server lost -q -t 10 rxe0
		SPY_LIE=lost LD_PRELOAD=$B/spy.so run lost.client \
			"$B/rdma_client" -q -t 1 127.0.0.1 rxe1
		reap lost
		# Any completion will do here: no request may be blamed for it.
		server any -q -n 100 -t 3 rxe0
		SPY_LIE=lost LD_PRELOAD=$B/spy.so run any.client \
			"$B/rdma_client" -q -n 100 -t 1 127.0.0.1 rxe1
		reap any
	' || return 0
	assert_pair a
	assert_error lost.client 1 'no completion on QP'
	assert_error any.client 1 'within 1000 ms: nothing on this side keeps the completion'
}

# A CQ that cannot be read: the man page promises a negative number, and no errno.
test_a_cq_that_cannot_be_read() {
	in_lab '
		server a -q -t 10 rxe0
		SPY_LIE=broken LD_PRELOAD=$B/spy.so run a.client \
			"$B/rdma_client" -q -t 5 127.0.0.1 rxe1
		reap a
	' || return 0
	assert_error a.client 1 'ibv_poll_cq\(\) = -2 .*the CQ can no longer be read'
	assert_not_in "$(err_of a.client)" 'ENOTTY'
}

test_gid_is_chosen_by_type() {
	in_lab '
		SPY_LIE=gid_order spied run auto "$B/rdma_server" -q -t 1 rxe0
		SPY_LIE=gid_order spied server explicit -q rxe0 18515 1
		reap explicit
		SPY_LIE=gid_order spied server a -t 1 rxe0
		reap a
	' || return 0
	assert_error explicit 1 'GID index 1 .*is not RoCE v2'
	assert_in "$(out_of a)" 'GID index 5$'
	assert_error auto 1 'waiting for a client'
}

# Not more sends are outstanding than --window says.
test_window_is_kept() {
	local w
	in_lab '
		for w in 1 2 7; do
			server $w.server -q -b -n 40 rxe0
			SPY_LOG=$T/$w.log LD_PRELOAD=$B/spy.so run $w.client \
				"$B/rdma_client" -q -b -n 40 -w $w 127.0.0.1 rxe1
			reap $w.server
		done
	' || return 0
	for w in 1 2 7; do
		assert_pair "$w"
		# A signaled send (flag 2) ends all before it.
		assertEquals "most outstanding with --window $w" "$w" "$(awk '
			/^post_send/ {
				posted++
				if (int(substr($5, 7) / 2) % 2)
					ends[++last] = posted
				if (posted - done > most)
					most = posted - done
			}
			/^wc .*opcode=0/ { done = ends[++first] }
			END { print most }' "$T/$w.log")"
	done
}

oneTimeSetUp() {
	build_helpers
	seen=$(mktemp -du "$ROOT/build/seen.XXXXXX")
}

oneTimeTearDown() { [[ -z ${seen:-} ]] || rm -rf "$seen"; }

. shunit2
