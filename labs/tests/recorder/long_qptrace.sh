#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace: programs end as they do without it, what is recorded is what
# happened, failures and hangs are explained, and the report can be read.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/faults"
	helper "$B/trace_probe" -O2 labs/tests/recorder/trace_probe.c -libverbs -lpthread
	helper "$B/late_end.so" -O2 -fPIC -shared labs/tests/recorder/late_end.c
	helper "$B/dl_probe" -O2 labs/tests/recorder/dl_probe.c
	helper "$B/held.so" -O2 -fPIC -shared labs/tests/recorder/held.c
	build_helpers
	built_in
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
	on_host "$B/faults" --list >"$kept/catalogue"
	export FAULTS="${told_apart[*]}"
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

# assert_child_apart NAME: the child that NAME forked has its own recording, of 40
# completions (then child.json), and no line stands in that of the other
assert_child_apart() {
	local n
	mv "$T/$1".json.* "$T/child.json"
	assertEquals 40 "$(count child '.ev == "completion"')"
	for n in child "$1"; do
		assertEquals "all lines of $n are of one process" true \
			"$(jq -s 'map(.pid) | unique | length == 1' "$T/$n.json")"
	done
}

# UCX 1.18 asks for DMA-BUFs with fd -1, and for a CQ that is larger than any.
asked_by_ucx='.id == "dmabuf-probe" or .id == "cq-too-large"'

# What a program prints, but for its figures, what perftest says of the clock,
# what rping says of who hung up first, what ucx_perftest says every second, and
# what the recorder says of UCX's CQ.
skeleton() {
	sed -E '/^qptrace: .* max_cqe/d; /^Correlation |^client DISCONNECT EVENT|^rdma_get_cm_event: |^\[thread /d; s/0x[0-9a-f]+/N/g; s/[0-9a-f:]*[0-9][0-9a-f:.]*/N/g
		s/\<-?(inf|nan)\>/N/g; s/-N/N/g; s/[ \t]+/ /g; s/ $//' "$@"
}

# given SESSION: its files in $T; the first test that asks has it run in the lab.
given() {
	local keep=$kept/$1
	if [[ ! -d $keep ]]; then
		in_lab ". labs/tests/recorder/qptrace.sh; session_$1" || return 1
		cp -r "$T" "$keep"
	fi
	cp -r "$keep/." "$T"
}

# assert_same NAME: both ways ended alike and said alike.
assert_same() {
	local side stream
	for side in server client; do
		assertEquals "exit code of $1.$side ($(err_of "t.$1.$side"))" \
			"$(rc_of "p.$1.$side")" "$(rc_of "t.$1.$side")"
		for stream in out err; do
			assertEquals "std$stream of $1.$side" \
				"$(skeleton "$T/p.$1.$side.$stream")" \
				"$(skeleton "$T/t.$1.$side.$stream")"
		done
		assertEquals "$1.$side began and ended" "1 1" \
			"$(count "t.$1.$side" '.ev == "start"') $(count "t.$1.$side" '.ev == "exit"')"
		assertEquals "failed calls of $1.$side" 0 \
			"$(count "t.$1.$side" ".err != null and .err != 0 and ($asked_by_ucx | not)")"
	done
	accepted "$1" "$T/t.$1.server.json" "$T/t.$1.client.json"
	assert_not_in "$said" MISMATCH "$1:"
}

ladder='select(.ev == "modify_qp") | .from + "-" + .to'

test_rc_pingpong() {
	local side
	given pairs || return 0
	assert_same ibv_rc_pingpong
	for side in t.ibv_rc_pingpong.server t.ibv_rc_pingpong.client; do
		assertEquals "$side" 100 "$(count $side '.ev == "post_send"')"
		assertEquals "$side" 500 "$(count $side '.ev == "post_recv"')"
		assertEquals "$side" 100 "$(count $side '.op == "SEND" and .ev == "completion"')"
		assertEquals "$side" 100 "$(count $side '.op == "RECV"')"
		assertEquals "$side" "RESET-INIT INIT-RTR RTR-RTS " "$(values $side "$ladder")"
		assert_complete $side
	done
	assertEquals 'what A was told is what B is' \
		"$(values t.ibv_rc_pingpong.client 'select(.ev == "create_qp").qpn')" \
		"$(values t.ibv_rc_pingpong.server 'select(.to == "RTR").dest_qpn')"
	assertEquals 'times go up' 0 "$(jq -s '[.[].t] as $t |
		[range(1; $t | length) | select($t[.] < $t[. - 1])] | length' \
		<(jq -c 'select(.ev == "post_send" or .ev == "completion")' "$T/t.ibv_rc_pingpong.server.json"))"
	# retry_cnt 7 is taken, and rxe tries for ever: not said aloud, but noted.
	assertEquals 'retry-forever ' "$(values t.ibv_rc_pingpong.server 'select(.ev == "warning").id')"
}

test_rc_pingpong_with_events() {
	given pairs || return 0
	assert_same events
	assertEquals 'a sleep for each arming but the last' true \
		"$(jq -s '([.[] | select(.ev == "cq_event")] | length) as $e |
			([.[] | select(.ev == "arm")] | length) as $a |
			$e > 10 and $a >= $e' "$T/t.events.server.json")"
}

test_ud_and_srq_pingpong() {
	local p
	given pairs || return 0
	for p in ibv_ud_pingpong ibv_srq_pingpong; do
		assert_same $p
		assert_complete t.$p.server
		assert_complete t.$p.client
	done
	assertEquals 16 "$(count t.ibv_srq_pingpong.server '.ev == "create_qp"')"
	assertEquals 500 "$(count t.ibv_srq_pingpong.server '.ev == "post_srq_recv"')"
	assertEquals 48 "$(count t.ibv_srq_pingpong.client '.ev == "modify_qp"')"
	assertEquals 'UD sends name the peer' \
		"$(values t.ibv_ud_pingpong.client 'select(.ev == "create_qp").qpn')" \
		"$(values t.ibv_ud_pingpong.server 'select(.ev == "post_send").remote_qpn' | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/^ //')"
}

test_perftest() {
	local p
	given pairs || return 0
	for p in ib_send_lat ib_write_bw ib_read_lat; do
		assert_same $p
		assert_complete t.$p.client
		assertEquals "posts of $p" 100 "$(count t.$p.client '.ev == "post_send"')"
	done
	assertEquals RDMA_READ "$(values t.ib_read_lat.client \
		'select(.ev == "post_send").op' | tr ' ' '\n' | sort -u | tr -d '\n')"
	assertEquals 100 "$(count t.ib_write_bw.client \
		'.ev == "post_send" and .op == "RDMA_WRITE" and .rkey != null')"
}

test_rping() {
	command -v rping >/dev/null || { skip 'no rping (package rdmacm-utils)'; return 0; }
	given pairs || return 0
	assert_same rping
	assert_in "$(values t.rping.server "$ladder")" 'RESET-INIT .*INIT-RTR RTR-RTS .*-ERR'
}

# UCX loads libibverbs where RTLD_NEXT does not see it.
test_ucx() {
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 0; }
	ucx_on_rxe || return 0
	given pairs || return 0
	assert_same ucx
	assertEquals true "$(jq -s '[.[] | select(.ev == "post_send")] | length > 49' "$T/t.ucx.client.json")"
	assertEquals true "$(jq -s '[.[] | select(.op == "RECV")] | length > 49' "$T/t.ucx.server.json")"
}

test_ours() {
	given pairs || return 0
	assert_same ours
	assert_complete t.ours.server
	assertEquals "RESET-INIT INIT-RTR RTR-RTS " "$(values t.ours.client "$ladder")"
}

# The catalogue's faults, one of each kind of call and of completion, with the
# program itself told to explain nothing.
told_apart=(init-port-zero init-on-connected-qp rtr-no-grh rtr-gid-slot-empty
	rtr-from-reset rts-missing-bits err-to-init rtr-mtu-in-bytes-taken rts-retry-seven
	mr-remote-write-alone mr-not-mapped mr-string-literal mr-memlock cq-too-large qp-too-deep
	qp-type-forgotten destroy-cq-in-use post-send-in-init post-recv-in-reset send-queue-full
	post-inline-too-long lkey-wrong lkey-of-another-pd sge-outside-mr recv-too-small rnr
	rkey-wrong own-rkey write-past-end mr-lacks-remote-write qp-lacks-remote-write
	mtu-differs wrong-qpn psn-differs peer-in-err cq-overrun hang-read-depth-zero
	hang-unsignaled hang-wrong-cq hang-sqd)

test_unharmed() {
	local n
	given probes || return 0
	unharmed plain 7
	assertFalse 'no verbs, no recording' "[[ -e $T/t.plain.json ]]"
	unharmed signal_15 143
	unharmed signal_6 134
	unharmed signal_31 159
	unharmed signal_9 137
	unharmed crash 139
	unharmed fork 5
	unharmed leave_8 8
	unharmed threads_64 0
	unharmed extended 0
	unharmed batch 0
	unharmed devices 0
	unharmed close 0
	# Fatal signals and _exit lose nothing; kill -9 only the last moment, and no
	# half line that the report would not take.
	for n in signal_15 signal_6 signal_31 crash close leave_8; do
		assertEquals "completions of $n" 20 "$(count "t.$n" '.ev == "completion"')"
	done
	assertEquals 'one end, and not that of the child of vfork' 'exit 1' \
		"$(values t.leave_8 '.ev' | awk '{ print $NF, gsub(/exit/, "") }')"
	for n in close extended threads_64 fork; do
		assertEquals "the last line of $n" exit \
			"$(tail -n 1 "$T/t.$n.json" | jq -r .ev)"
	done
	assertEquals 20 "$(count t.extended '.ev == "post_send" and .op == "SEND"')"
	# Of a list of inline data librxe sends nothing.
	assertTrue 'inline data' "(($(count t.extended '.op == "SEND" and .ev == "completion" and .len == 32') >= 5))"
	assertEquals 'each adds up its own list' '10 10' "$(for n in 32 64; do
		count t.extended ".ev == \"post_send\" and .len == $n"
	done | paste -sd' ')"
	assertEquals 'of both ends' 40 "$(count t.extended '.ev == "completion"')"
	assert_complete t.extended
	# shellcheck disable=SC2046 # numbers
	assertEquals 'more at once than are held back' "$(printf '0x%x ' $(seq 265))" \
		"$(values t.batch 'select(.ev == "post_send").wr_id')"
	assert_complete t.batch
	# Of 65 open devices one is not followed; when the others are closed, the next is.
	assertEquals 40 "$(count t.devices '.ev == "completion"')"
	accepted signal_9 "$T/t.signal_9.json"
	# 64 threads, each with QPs, 20 messages and a tid of its own.
	assertEquals 2560 "$(count t.threads_64 '.ev == "completion"')"
	assertEquals 64 "$(jq 'select(.ev == "post_send").tid' "$T/t.threads_64.json" | sort -u | wc -l)"
	assert_complete t.threads_64
	# The child has a recording of its own, the parent's goes on.
	assertEquals 80 "$(count t.fork '.ev == "completion"')"
	assert_child_apart t.fork
	assertEquals 1 "$(count child '.ev == "start" and .forked == 1')"
}

# Nothing is lost when the program becomes another one, by whichever call.
test_exec() {
	local how env
	given probes || return 0
	for how in l lp le v vp ve vpe veat fve; do
		[[ $how == *e* ]] && env=given || env=own
		assertEquals "exec$how $env" "$(out_of "t.exec$how")"
		assertEquals "$(err_of "t.exec$how")" 0 "$(rc_of "t.exec$how")"
		assertEquals "completions before exec$how" 20 \
			"$(count "t.exec$how" '.ev == "completion"')"
	done
}

# While the recording cannot be written: no ring runs over, and a fork finds the
# recorder in one piece.
test_the_file_is_slow() {
	local n
	given probes || return 0
	for n in brim full; do
		mv "$T/t.$n.lines" "$T/t.$n.json"
		accepted $n "$T/t.$n.json"
		assertEquals "$n: the last line" exit "$(tail -n 1 "$T/t.$n.json" | jq -r .ev)"
	done
	assertEquals "$(err_of t.brim)" 0 "$(rc_of t.brim)"
	# shellcheck disable=SC2046 # numbers
	assertEquals 'each post once, and in order' "$(printf '0x%x ' $(seq 4600))" \
		"$(values t.brim 'select(.ev == "post_srq_recv").wr_id')"
	assertEquals "$(err_of t.full)" 3 "$(rc_of t.full)"
	assertEquals 600 "$(count t.full '.ev == "post_srq_recv"')"
	assert_child_apart t.full
	assertEquals "$(err_of t.ended)" 143 "$(rc_of t.ended)"
	assertEquals 'last words of who was writing' signal \
		"$(tail -n 1 "$T/t.ended.lines" | jq -r .ev)"
}

# A recording is for who made it, and goes where it was meant to go.
test_recordings_are_private() {
	local rc=0
	ln -s "$T/target" "$T/link.json"
	labs/qptrace -o "$T/link.json" true 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'link.json is a symbolic link, which is not followed'
	assert_in "$(cat "$T/err")" '^qptrace: next: '
	assertTrue 'the link is still there' "[[ -L $T/link.json ]]"
	given probes || return 0
	assertEquals 'others may not read' 600 \
		"$(stat -c %a "$T"/t.*.json "$T"/t.*.json.[0-9]* | sort -u)"
	assertEquals "$(err_of t.linked)" 0 "$(rc_of t.linked)"
	assert_in "$(err_of t.linked)" \
		'^qptrace: not recording, cannot open .*t.linked.json.[0-9]+: ELOOP, symbolic links are not followed'
	assert_in "$(err_of t.linked)" '^qptrace: next: choose another file'
	assertFalse 'FILE.PID was followed' "[[ -e $T/followed ]]"
}

# Every line says what was posted: the same text as last time is used again only
# if it is the same.
test_lines() {
	given pairs || return 0
	assertEquals 'each address once' 100 "$(jq -r 'select(.ev == "post_send") |
		[.n, .wr_id, .addr, .lkey] | @csv' "$T/t.ib_write_bw.client.json" | sort -u | wc -l)"
	assertEquals 'RDMA_WRITE SIGNALED' "$(jq -r 'select(.ev == "post_send") | .op + " " + .flags' \
		"$T/t.ib_write_bw.client.json" | sort -u)"
	given probes || return 0
	# One in two goes inline, in the same QP.
	assertEquals '10 INLINE null 32,10 SIGNALED 0x 64' "$(jq -r 'select(.ev == "post_send") |
		(.flags | split("|")[-1]) + " " + (if .lkey then "0x" else "null" end) + " \(.len)"' \
		"$T/t.extended.json" | sort | uniq -c | awk '{ $1 = $1; print }' | paste -sd,)"
	assertEquals 'a line has its own thread' 64 "$(jq -r 'select(.ev == "completion") |
		"\(.tid) \(.qp) \(.cq)"' "$T/t.threads_64.json" | sort -u | wc -l)"
	assertEquals 'the QP is the one of the line' 64 "$(jq -r 'select(.ev == "completion") |
		"\(.qp) \(.qpn)"' "$T/t.threads_64.json" | sort -u | wc -l)"
}

test_extremes() {
	given probes || return 0
	alike_but_told extremes 0
	accepted extremes "$T/t.extremes.json"
	assertEquals '-1 -2147483648 ' "$(values t.extremes 'select(.dmabuf).dmabuf')"
	assertEquals '-1 ' "$(values t.extremes 'select(.ev == "create_cq" and .err != 0).cqe_asked')"
	assertEquals '-2147483648 ' "$(values t.extremes 'select(.ev == "resize_cq").cqe_asked')"
	assertEquals '0xffffffffffffffff ' "$(values t.extremes 'select(.ev == "reg_mr" and .err != 0).len')"
	assertEquals 'lines of bare numbers above 63 bits' 0 \
		"$(grep -cE ':[0-9]{20}' "$T/t.extremes.json")"
}

# UCX and NCCL register fd -1 to see how it fails: nobody is accused of that.
test_dmabuf_probe() {
	given probes || return 0
	assertEquals 'dmabuf-probe ' "$(values t.extremes 'select(.dmabuf == -1).id')"
	assert_not_in "$(err_of t.extremes)" 'fd -1'
	accepted extremes "$T/t.extremes.json"
	assert_in "$said" 'reg_dmabuf_mr, bytes 64, 0  a probe: E[A-Z]+'
}

# The driver goes round until the queue is full; the recorder sees each request once or twice.
test_a_list_of_requests_that_returns_into_itself() {
	given probes || return 0
	alike_but_told cycle 255
	assertEquals "exit(-1)" 255 "$(jq 'select(.ev == "exit").code' "$T/t.cycle.json")"
	accepted cycle "$T/t.cycle.json"
	assertTrue 'a small recording' "(($(stat -c %s "$T/t.cycle.json") < 20000))"
	assertEquals 3 "$(grep -c 'the list of work requests leads back into itself' "$T/t.cycle.err")"
	assertEquals 'ibv_post_srq_recv ibv_post_send ibv_post_recv ibv_post_srq_recv ibv_post_send ' \
		"$(values t.cycle 'select(.ev == "post_failed").call')"
	assertEquals "$B/trace_probe cycle " "$(values t.cycle 'select(.ev == "start").command')"
	# Three make the list, the others are alone; what stands before the cycle is met before it is known.
	assert_in "$(err_of t.cycle)" 'num_sge 99 is above the SRQ.s max_sge 1'
	assertEquals '5 5 2' "$(for n in post_recv post_srq_recv post_send; do count t.cycle ".ev == \"$n\""; done | paste -sd' ')"
}

test_control_only() {
	given probes || return 0
	assertEquals 0 "$(rc_of c.threads_2)"
	assertEquals 0 "$(count c.threads_2 '.ev == "completion" or .ev == "post_send"')"
	assertEquals 6 "$(count c.threads_2 '.ev == "modify_qp"')"
	# ops: the provider's, untouched
	assert_not_in "$(out_of c.ops)" qptrace
	assertEquals libqptrace.so "$(out_of t.ops)"
}

test_failures_are_explained() {
	given probes || return 0
	assertEquals "4 4 4" "$(rc_of t.modify) $(rc_of t.remote) $(rc_of t.early)"
	assertEquals "$(out_of p.modify)" "$(out_of t.modify)"
	assert_in "$(err_of t.modify)" \
		'^qptrace: ibv_modify_qp\(QP [0-9]+ of rxe0, INIT -> RTS, mask STATE\) failed: EINVAL \(22\): .*no way from INIT to RTS'
	assert_in "$(err_of t.modify)" '^qptrace:  next: '
	assert_in "$(err_of t.modify)" '^qptrace:  seen: the kernel has the RC QP in INIT'
	assertEquals EINVAL "$(values t.modify 'select(.to == "RTS").errname' | tr -d ' ')"
	assert_in "$(values t.modify 'select(.to == "RTS").seen')" 'the kernel has the RC QP in INIT'
	# The explanation asked the kernel; the program's own copy is as it was.
	assertEquals "$(out_of p.remote)" "$(out_of t.remote)"
	assert_in "$(err_of t.remote)" 'completion of wr_id 0x2 on QP .*REM_ACCESS_ERR \(status 10\): .*rkey 0x[0-9a-f]+ is of none of QP [0-9]+ of rxe0.s MRs'
	assertEquals 1 "$(count t.remote '.ev == "explain" and .about == "completion"')"
	assertEquals 'and so is what comes after the second' 22 "$(jq 'select(.ev == "modify_qp" and .to == "INIT" and .from != "RESET").err' "$T/t.remote.json")"
	assert_in "$(err_of t.early)" 'ibv_post_send\(QP .* in INIT, wr_id 0x5\) failed: EINVAL'
	assertEquals 1 "$(count t.early '.ev == "post_failed" and .wr_id == "0x5" and .err == 22')"
	accepted early "$T/t.early.json"
	assert_in "$said" 'cause: the QP is in INIT, and sends need RTS'
	assert_in "$said" ' seen: the kernel has the QP in INIT'
	assert_in "$(err_of t.early_extended)" 'ibv_wr_complete\(QP .* in INIT, wr_id 0x5\) failed: EINVAL .* sends need RTS'
	assertEquals 1 "$(count t.early_extended '.ev == "post_failed" and .wr_id == "0x5" and .count == 1')"
	assertEquals '' "$(err_of q.modify)"
}

# Of programs that explain nothing the recorder names the cause that the explainer
# names where it is told everything (test_catalogue.sh), and names it first.
test_same_causes_as_the_explainer() {
	local name first wanted seen=0
	given probes || return 0
	assert_not_in "$(out_of t.faults)" '^ +said:'
	while read -r name first; do
		wanted=$(awk -F'\t' -v name="$name" '$1 == name { print $4 }' "$kept/catalogue")
		assert_in "$first" "^($wanted)$" "$name:"
		seen=$((seen + 1))
	done < <(named "$T"/t.faults.json*)
	assertEquals 'one recording for each fault' "${#told_apart[@]}" "$seen"
	# On stderr, too, with next step and evidence.
	assert_in "$(err_of t.faults)" '^qptrace: ibv_reg_mr\(.*\) failed: ENOMEM \(12\): .* exceed RLIMIT_MEMLOCK'
	assert_in "$(err_of t.faults)" '^qptrace:  seen: pinned [0-9]+ bytes, CAP_IPC_LOCK not held'
}

test_stalls_are_explained() {
	local n
	given probes || return 0
	for n in wait unpolled unsignaled; do
		assertEquals "$n" 6 "$(rc_of "s.${n}_3")"
		assertEquals "$n says it once" 1 "$(grep -c 'no completion for' "$T/s.${n}_3.err")"
		assert_in "$(err_of "s.${n}_3")" 'no completion for 0'
		assert_in "$(err_of "s.${n}_3")" 'RC\): RTS in the user.s copy, RTS in the kernel'
		assert_in "$(err_of "s.${n}_3")" '^qptrace:      next: '
	done
	assert_in "$(err_of s.wait_3)" '1 receive waits, the oldest for 0\.[4-9] s: wr_id 0x1, 64 bytes'
	assert_in "$(err_of s.wait_3)" 'hint: the receive is in place, so the peer has not sent'
	assert_in "$(err_of s.wait_3)" '^qptrace:      seen: QP [0-9]+: the kernel has it in RTS'
	assert_in "$(err_of s.unpolled_3)" '1 send waits.*wr_id 0x2, 64 bytes, SEND'
	assert_in "$(err_of s.unpolled_3)" 'hint: no thread polls CQ 1'
	assert_in "$(err_of s.unsignaled_3)" 'hint: the send was posted without IBV_SEND_SIGNALED'
	assertEquals 'trace_probe nothing-came' "$(named "$T/s.wait_3.json")"
	assertEquals 1 "$(count s.wait_3 '.ev == "stall" and .receives == 1 and .kernel_state == "RTS"')"
	# Two seconds that it takes to end are no wait.
	assertEquals exit "$(tail -n 1 "$T/s.late.wait_3.json" | jq -r .ev)"
	assertEquals 1 "$(grep -c 'no completion for' "$T/s.late.wait_3.err")"
}

# An event loop waits for the file descriptor, which nobody can record; of a
# datagram nobody knows whether the program took it.
test_stalls_of_event_loops_and_datagrams() {
	local n
	given probes || return 0
	for n in armed unread datagram; do
		assertEquals "$n" 6 "$(rc_of "s.${n}_3")"
		assertEquals "$n says it once" 1 "$(grep -c 'no completion for' "$T/s.${n}_3.err")"
		assert_in "$(err_of "s.${n}_3")" 'no completion for 0'
		assertEquals "$n: one hint" 1 "$(grep -c 'hint:' "$T/s.${n}_3.err")"
	done
	assert_in "$(err_of s.armed_3)" 'hint: the receive is in place, so the peer has not sent'
	assert_in "$(err_of s.unread_3)" 'hint: an event lies unread on the channel of CQ 1'
	# Who has slept in ibv_get_cq_event does so no more.
	assertEquals "$(err_of s.woken_4)" 6 "$(rc_of s.woken_4)"
	assert_in "$(err_of s.woken_4)" 'hint: no thread polls CQ 1 or sleeps on its channel'
	assert_in "$(err_of s.datagram_3)" 'UD\): RTS in the user.s copy'
	assert_in "$(err_of s.datagram_3)" '1 receive waits.*104 bytes \(1 completed before\)'
	assert_in "$(err_of s.datagram_3)" 'hint: either the peer sends nothing more, or'
	assert_not_in "$(err_of s.datagram_3)" 'psn'
}

# Of two programs the first has the file; the other has one of its own, and lets go of
# what it looked at. So has a child, which also lets go of its parent's board.
test_one_descriptor_each() {
	in_lab '
		. labs/tests/recorder/qptrace.sh
		waiting() { (($(grep -c waiting "$T/both.out") == 2)); }
		start both labs/qptrace -o "$T/both.json" -- sh -c \
			"$B/trace_probe wait 60 & $B/trace_probe wait 60 & wait"
		await waiting
		start fork labs/qptrace -o "$T/fork.json" -- "$B/trace_probe" fork 60
		await in_file child "$T/fork.out"
		for pid in $(pgrep -x trace_probe); do
			find "/proc/$pid/fd" -lname "$T/*.json*" | wc -l
			find "/proc/$pid/fd" -lname "*qptrace-board*" -exec stat -Lc %i {} + >>"$T/boards"
			grep -c qptrace-board "/proc/$pid/maps"
			kill -USR1 "$pid"
		done >"$T/open"
		reap both fork
	' || return 0
	assertEquals 'each one file, and one board' '1 1 1 1 1 1 1 1' "$(xargs <"$T/open")"
	assertEquals 'of its own' '4 4' "$(wc -l <"$T/boards") $(sort -u "$T/boards" | wc -l)"
	assertEquals 2 "$(find "$T" -name 'both.json*' | wc -l)"
}

test_sigquit() {
	given probes || return 0
	assertEquals 'it goes on' 6 "$(rc_of asked.wait_30)"
	assert_in "$(err_of asked.wait_30)" 'hint: the receive is in place'
	assertEquals 6 "$(rc_of asked.broken_30)"
	assert_in "$(err_of asked.broken_30)" 'RC\): RTS in the user.s copy, ERR in the kernel'
	# Of both ends: the one that was refused, and the one that refused.
	assertEquals 2 "$(count asked.broken_30 '.ev == "stall" and .user_state == "RTS" and .kernel_state == "ERR"')"
	assertEquals 6 "$(rc_of control.wait_30)"
	assert_in "$(err_of control.wait_30)" 'posts and completions are not recorded'
	assert_in "$(err_of control.wait_30)" 'QP [0-9]+ of rxe0 \(RC\): RTS in the user.s copy, RTS in the kernel'
	assertEquals 'a program with a handler of its own' 9 "$(rc_of asked.quit_30)"
	assertEquals '' "$(err_of asked.quit_30)"
}

test_company() {
	given probes || return 0
	assertEquals "0 0 0 0" \
		"$(rc_of spied.threads_2) $(rc_of bound.threads_2) $(rc_of t.none) $(rc_of t.two)"
	assertEquals 'the spy saw them, too' 2 "$(grep -c '^make qp' "$T/spy.log")"
	assertEquals 80 "$(count spied.threads_2 '.ev == "completion"')"
	assertEquals 80 "$(count bound.threads_2 '.ev == "completion"')"
	assertEquals 40 "$(count t.two '.ev == "completion"')"
	mv "$T"/t.two.json.* "$T/second.json"
	assertEquals 80 "$(count second '.ev == "completion"')"
}

# Programs that load libibverbs themselves and ask dlsym for its functions.
test_dlsym() {
	given probes || return 0
	unharmed_but_explained=$(grep -c '^qptrace: ibv_modify_qp.* no way from RESET to RTS' "$T/t.dl.err")
	assertEquals "explained in: $(err_of t.dl)" 1 "$unharmed_but_explained"
	assertEquals "4 4" "$(rc_of p.dl) $(rc_of t.dl)"
	assertEquals "$(out_of p.dl)" "$(out_of t.dl)"
	assertEquals 'get_device_list open_device alloc_pd create_cq create_qp modify_qp destroy_qp ' \
		"$(values t.dl 'select(.ev | IN("start", "port", "exit") | not).ev')"
	# Ours only where it stands for the version that was asked for, and what is
	# none of ours as if nobody were in between.
	assertEquals 'open_device 1.1: libqptrace.so
open_device 1.0: libibverbs.so.1
open_device: libqptrace.so
not wrapped: libibverbs.so.1
no such: none
said so
next _exit: libqptrace.so
default printf: libc.so.6' "$(out_of t.symbols)"
	assertEquals "$(out_of p.symbols)" "$(out_of t.symbols | sed 's/printf.*/&/
		s/_exit: .*/_exit: libc.so.6/; s/libqptrace.so/libibverbs.so.1/')"
}

# Both orders of the two tools do the same; the recording lands where it was
# asked for, also outside of the tree that the VM shares.
test_with_labs_lab() {
	local rc=0 out far
	need_lab || return 0
	far=$(mktemp -d)
	out=$(labs/qptrace -o "$T/near.json" labs/lab run --timeout 60 \
		"$B/trace_probe" modify 2>"$T/near.err") || rc=$?
	assertEquals "$(cat "$T/near.err")" 4 "$rc"
	assertEquals 'modify: 22' "$out"
	assert_in "$(cat "$T/near.err")" 'qptrace: ibv_modify_qp'
	assertEquals trace_probe "$(values near 'select(.ev == "start").program' | tr -d ' ')"
	rc=0
	labs/qptrace -o "$far/a.json" labs/lab run "$B/trace_probe" modify \
		>/dev/null 2>&1 || rc=$?
	assertEquals 4 "$rc"
	assertEquals 1 "$(grep -c '"to":"RTS"' "$far/a.json")"
	rc=0
	labs/lab run labs/qptrace -o "$T/inner.json" "$B/trace_probe" modify \
		>/dev/null 2>&1 || rc=$?
	assertEquals 4 "$rc"
	assertEquals trace_probe "$(values inner 'select(.ev == "start").program' | tr -d ' ')"
	assertEquals 'nothing is left' '' "$(find build -maxdepth 1 -name 'qptrace.??????' ! -name '*.json')"
	rm -r "$far"
}

test_usage() {
	local rc
	for args in '' '-o' '--stall soon ls' '--nonsense ls' 'report' 'report a b c'; do
		rc=0
		# shellcheck disable=SC2086 # words
		labs/qptrace $args >/dev/null 2>"$T/err" || rc=$?
		assertEquals "qptrace $args" 2 "$rc"
		assertNotNull "qptrace $args" "$(cat "$T/err")"
	done
	rc=0
	labs/qptrace report "$T/none.json" >/dev/null 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'cannot open .*none.json'
	rc=0
	labs/qptrace report "$T" >/dev/null 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'has 0 recordings, and one or two can be shown'
	rc=0
	(cd "$T" && "$ROOT/labs/qptrace" true 2>err) || rc=$?
	assertEquals 0 "$rc"
}

# A directory stands for the recordings in it, whatever else lies there.
test_a_directory_of_recordings() {
	local rc=0
	given pairs || return 0
	mkdir "$T/dir"
	cp "$T"/t.ibv_rc_pingpong.{client,server}.json "$T/dir"
	echo '{"a":1}' >"$T/dir/other.json"
	assertEquals 'both' "$(labs/qptrace report "$T"/dir/t.*.client.json "$T"/dir/t.*.server.json)" \
		"$(labs/qptrace report "$T/dir/")"
	cp "$T/t.events.client.json" "$T/dir"
	labs/qptrace report "$T/dir" >/dev/null 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'has 3 recordings'
}

# time_line NAME A.json B.json: "MILLISECONDS SIDE" of all its events
time_line() {
	accepted "$1" --all "$2" "$3"
	sed -n 's/^ *\([0-9]*\.[0-9]\{3\}\)   *\([AB]\) .*/\1 \2/p' <<<"$said"
}

test_one_time_line() {
	local a b
	given pairs || return 0
	a=$T/t.ibv_rc_pingpong.server.json b=$T/t.ibv_rc_pingpong.client.json
	time_line pair "$a" "$b" >"$T/line"
	assertEquals 'times go up' '' "$(awk '$1 < last { print NR } { last = $1 }' "$T/line")"
	assertTrue 'A and B take turns' \
		"(($(cut -d' ' -f2 "$T/line" | uniq | wc -l) > 100))"
	# Somebody sets the wall clock in between: the kernel's own counts.
	jq -c '.wall += 5000000' "$b" >"$T/b.json"
	time_line reset "$a" "$T/b.json" >"$T/other"
	assertEquals 'the same line' "$(cat "$T/line")" "$(cat "$T/other")"
}

# of_b EVENT: when B did that, in ms
of_b() { sed -n "s/^ *\\([0-9.]*\\) *B $1.*/\\1/p" <<<"$said"; }

# Of another boot only the wall clock is the same: as well as it was read.
test_two_machines_on_one_time_line() {
	local a b times
	given pairs || return 0
	a=$T/t.ibv_rc_pingpong.server.json b=$T/t.ibv_rc_pingpong.client.json
	jq -c '.t += 3600000000000 | if .boot then .boot = "another" else . end' \
		"$b" >"$T/b.json"
	accepted one "$a" "$b"
	times="$(of_b start) $(of_b exit)"
	accepted two "$a" "$T/b.json"
	times+=" $(of_b start) $(of_b exit)"
	assertEquals "$times" good "$(awk '
		function differ(a, b) { return a > b + 100 || b > a + 100 }
		NF == 4 && !differ($1, $3) && !differ($2, $4) { print "good" }
		' <<<"$times")"
}

test_mismatches_are_marked() {
	given pairs || return 0
	jq -c 'if .rq_psn then .rq_psn += 1 else . end |
		if .path_mtu then .path_mtu = 4096 else . end' "$T/t.ibv_rc_pingpong.client.json" >"$T/b.json"
	accepted mismatch "$T/t.ibv_rc_pingpong.server.json" "$T/b.json"
	assert_in "$said" "A's first PSN +0x[0-9a-f]+ +0x[0-9a-f]+ +<- MISMATCH"
	assert_in "$said" 'path MTU +1024 +4096 +<- MISMATCH'
	assertEquals 2 "$(grep -c MISMATCH <<<"$said")"
}

# page_says NAME A.json B.json SCRIPT: run SCRIPT in the page, in Chromium;
# prints what it puts into document.title.
page_says() {
	local page=$T/$1.html
	labs/qptrace report --html "$page" "$2" "$3" || return 1
	printf '<script>try { %s } catch (e) { document.title = "threw " + e; }</script>\n' \
		"$4" >>"$page"
	timeout 60 chromium --headless --no-sandbox --disable-gpu \
		--user-data-dir="$T/chromium" --dump-dom "file://$page" 2>/dev/null |
		sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p' | head -n 1
}

test_page() {
	local a b
	command -v chromium >/dev/null || { skip 'no chromium'; return 0; }
	given pairs || return 0
	a=$T/t.ibv_rc_pingpong.server.json b=$T/t.ibv_rc_pingpong.client.json
	# shellcheck disable=SC2016 # JavaScript
	assertEquals 'all agree|2 lanes|RESET INIT RTR RTS|arrows|post_send|arrived at A|picked' \
		"$(page_says page "$a" "$b" '
		const out = [];
		out.push(document.querySelector("#pairs .good").textContent.trim());
		out.push(document.querySelectorAll("#sides .card").length + " lanes");
		$("fit").click();
		const seen = new Set([...document.querySelectorAll("rect[data-state]")].map((r) => r.dataset.state));
		out.push([...seen].join(" "));
		out.push(document.querySelectorAll("path.cross").length > 100 ? "arrows" : "no arrows");
		const send = E.find((e) => e.kind === "send" && e.side === 1);
		document.querySelector(`#list tr[data-i="${send.i}"]`).click();
		out.push(document.querySelector("#detail b").textContent);
		out.push([...document.querySelectorAll("#detail a")].map((x) => x.textContent).find((t) => t.startsWith("arrived")).slice(0, 12));
		document.querySelector(`.ev[data-i="${send.i}"]`).dispatchEvent(new MouseEvent("click", { bubbles: true }));
		out.push(document.querySelectorAll(".ev.picked").length === 1 ? "picked" : "lost");
		document.title = out.join("|");')"
	jq -c 'if .rq_psn then .rq_psn += 1 else . end' "$b" >"$T/b.json"
	assertEquals "1 mismatch|A's first PSN" \
		"$(page_says wrong "$a" "$T/b.json" '
		document.title = document.querySelector("#pairs .bad").textContent.trim() + "|" +
			document.querySelector("tr.differs td").textContent;')"
	# Nothing is fetched from anywhere.
	assertEquals '' "$(grep -oE '(src|href)="(https?:)?//[^"]*"' "$T/page.html")"
	timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
		--user-data-dir="$T/chromium" --window-size=1400,1300 \
		--screenshot="$ROOT/build/qptrace.png" "file://$T/page.html" >/dev/null 2>&1
	assertTrue 'no screenshot' "[[ -s build/qptrace.png ]]"
}

# What a recording holds can neither end the page's script nor go on for ever.
test_page_is_safe() {
	local hostile data
	for hostile in '</script><script>document.title="owned"</script>' '<!--<script>'; do
		jq -nc --arg c "$hostile" '{t: 1, wall: 1, pid: 1, tid: 1, ev: "start", program: $c, command: $c, boot: "x", ($c): $c},
			{t: 2, ev: "modify_qp", err: 22, cause: $c, next: $c, seen: $c, call: $c}' >"$T/a.json"
		labs/qptrace report --html "$T/safe.html" "$T/a.json" || fail "no page of $hostile"
		data=$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/safe.html")
		assert_not_in "$data" '<'
		assertEquals 'the data is what was recorded' "$(jq -cS . "$T/a.json")" \
			"$(jq -cS '.events[].raw' <<<"$data")"
		command -v chromium >/dev/null || { skip 'no chromium'; continue; }
		assertEquals "safe of $hostile" "$(page_says safe "$T/a.json" "$T/a.json" '
			if (document.title !== "owned")
				document.title = "safe of " + data.sides[0].start.program;' |
			sed 's/&lt;/</g; s/&gt;/>/g')"
	done
}

# shellcheck disable=SC1091
. shunit2
