#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace: a program ends as it does without it, whichever way it ends; nothing of
# what happened is lost; failures and hangs are explained.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

# The program, its exit code, and how many completions are recorded, if that is known.
ways='plain 7 -
signal_15 143 20
signal_6 134 20
signal_31 159 20
signal_9 137 -
crash 139 20
close 0 20
leave_8 8 20
fork 5 80
threads_64 0 2560
extended 0 120
opcodes 0 -'

# Those that explain something on stderr, the exit code, and what they explain.
failures='modify|4|^qptrace: ibv_modify_qp\(QP [0-9]+ of rxe0, INIT -> RTS, mask STATE\) failed: EINVAL \(22\): .*no transition leads from INIT to RTS
modify|4|^qptrace:  next: .
modify|4|^qptrace:  seen: the kernel has the QP in INIT
remote|4|completion of wr_id 0x2 on QP .*REM_ACCESS_ERR \(status 10\): .*rkey 0x[0-9a-f]+ belongs to no MR of QP [0-9]+ \(rxe0\)
early|4|ibv_post_send\(QP .* in INIT, wr_id 0x5\) failed: EINVAL .* sends need RTS
dl|4|^qptrace: ibv_modify_qp.* no transition leads from RESET to RTS
refused|0|^qptrace: ibv_resize_cq\(-[0-9]+\) failed: E
no_ah|139|ibv_post_send\(.*\): wr.ud.ah is NULL
no_cq|139|ibv_create_qp\(.*\): the QP was given no recv_cq'

# Who waits for seconds, and the hint.
stalls='wait|the receive is posted, but no message came
armed|the receive is posted, but no message came
unpolled|no thread takes completions from CQ 1
unsignaled|the send has no IBV_SEND_SIGNALED
unread|an event lies unread on the channel of CQ 1'

oneTimeSetUp() {
	build_probes
	helper "$B/spy.so" -O2 -fPIC -shared labs/tests/spy.c labs/tests/spy_verbs.c
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
	functions=(probe go both_go ask waits)
	WAYS=$(cut -d' ' -f1 <<<"$ways")
	FAILURES=$(cut -d'|' -f1 <<<"$failures" | uniq)
	STALLS=$(cut -d'|' -f1 <<<"$stalls")
	export WAYS FAILURES STALLS
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

# ---- in the lab

# probe NAME: sets $command; signal_9 is "trace_probe signal 9"
probe() {
	case $1 in
	extended | opcodes | refused | no_* | dl | flat) command=("$B/verbs_probe" "$1") ;;
	*) read -ra command <<<"$B/trace_probe ${1//_/ }" ;;
	esac
}

# go NAME PROBE: recorded
go() {
	local command
	probe "$2"
	begun+=("$1")
	recorded start "$1" "${command[@]}"
}

# both_go NAME: plain and recorded
both_go() {
	local command
	probe "$1"
	begun+=("p.$1")
	start "p.$1" "${limit[@]}" "${command[@]}"
	go "t.$1" "$1"
}

# ask SIGNAL NAME…
ask() {
	local name
	# shellcheck disable=SC2154 # pids: of guest.sh
	for name in "${@:2}"; do kill -"$1" "${pids[$name]}"; done
}

# What waits is asked why, by the clock or by SIGQUIT.
waits() {
	local name asked=(asked.wait asked.broken control.wait)
	options=(--stall 0.4)
	for name in $STALLS; do go "s.$name" "${name}_3"; done
	# Background jobs of a script ignore SIGQUIT; a program in a terminal does not.
	limit=(env --default-signal=QUIT)
	options=(--control-only) && go control.wait wait_30
	options=() && go asked.wait wait_30 && go asked.broken broken_30 && go asked.quit quit
	limit=(timeout 60)
	for name in "${asked[@]}"; do await in_file waiting "$T/$name.out"; done
	await in_file ready "$T/asked.quit.out"
	nap 0.3 # until it has polled in vain
	ask QUIT "${asked[@]}" asked.quit
	for name in "${asked[@]}"; do
		await in_file 'in the kernel' "$T/$name.err"
	done
	ask USR1 "${asked[@]}"
}

session_probes() {
	local name how begun=()
	waits
	for name in $WAYS; do both_go "$name"; done
	for name in $FAILURES; do both_go "$name"; done
	for how in l lp le v vp ve vpe veat fve; do go "t.exec$how" "exec$how"; done
	options=(--control-only) && go c.threads threads_2
	options=(--quiet) && go q.modify modify && options=()
	for name in brim full; do go "t.$name" "$name"; done
	# With another preload, and all symbols bound at once.
	SPY_LOG=/tmp/spy.log LD_PRELOAD=$PWD/$B/spy.so LD_BIND_NOW=1 go spied threads_2
	# The second program has the shell's PID, and so the name of the link.
	recorded start t.linked sh -c "ln -s $T/followed $recordings/t.linked.qpt.\$\$
		$B/trace_probe threads 1; exec $B/trace_probe threads 1"
	both_go flat
	reap "${begun[@]}" t.linked
	mv /tmp/spy.log "$T"
}

# ---- on the host

# alike NAME RC: with the recorder as without; stderr may be the recorder's
alike() {
	assertEquals "exit code of $1 without ($(err_of "p.$1"))" "$2" "$(rc_of "p.$1")"
	assertEquals "exit code of $1 ($(err_of "t.$1"))" "$2" "$(rc_of "t.$1")"
	assertEquals "output of $1" "$(out_of "p.$1")" "$(out_of "t.$1")"
	assertEquals "stderr of $1" "$(err_of "p.$1")" "$(grep -v '^qptrace:' "$T/t.$1.err")"
}

# assert_child_apart NAME COMPLETIONS: the child that NAME forked has its own recording, of
# so many, and no line stands in that of the other
assert_child_apart() {
	local n
	mv "$T/$1".json.* "$T/child.json"
	assertEquals "completions of the child of $1" "$2" "$(completions child)"
	for n in child "$1"; do
		assertEquals "processes in $n" 1 "$(jq .pid "$T/$n.json" | sort -u | wc -l)"
	done
}

test_unharmed() {
	local name rc n
	given probes || return 0
	while read -r name rc n; do
		alike "$name" "$rc"
		[[ $n == - ]] || assertEquals "completions of $name" "$n" "$(completions "t.$name")"
	done <<<"$ways"
	assertFalse 'no verbs, no recording' "[[ -e $T/t.plain.qpt ]]"
	for name in close extended threads_64 fork leave_8; do
		assertEquals "the last line of $name, and one end" 'exit 1' \
			"$(values "t.$name" .ev | awk '{ print $NF, gsub(/exit/, "") }')"
	done
	# kill -9 loses only the last moment, and leaves nothing that the report would not take.
	accepted signal_9 "$T/t.signal_9.qpt"
	for name in extended opcodes threads_64; do assert_complete "t.$name"; done
	assertEquals 'more at once than are held back' "$(printf '0x%x ' {1..40} | xargs)" \
		"$(values t.extended 'select(.ev == "post_send").wr_id' | cut -d' ' -f21-)"
	# 64 threads, each with a tid and a QP of its own.
	assertEquals 64 "$(jq -r 'select(.ev == "completion") | "\(.tid) \(.qp) \(.qpn)"' \
		"$T/t.threads_64.json" | sort -u | wc -l)"
	assert_child_apart t.fork 40
}

# Nothing is lost when the program becomes another one, by whichever call.
test_exec() {
	local how env
	given probes || return 0
	for how in l lp le v vp ve vpe veat fve; do
		[[ $how == *e* ]] && env=given || env=own
		assertEquals "exec$how $env" "$(out_of "t.exec$how")"
		assertEquals "$(err_of "t.exec$how")" 0 "$(rc_of "t.exec$how")"
		assertEquals "completions before exec$how" 20 "$(completions "t.exec$how")"
	done
}

# More than a block of it, and a fork with work outstanding.
test_blocks() {
	local n
	given probes || return 0
	for n in brim full; do
		accepted $n "$T/t.$n.qpt"
		assertEquals "$n: the last line" exit "$(tail -n 1 "$T/t.$n.json" | jq -r .ev)"
	done
	assertEquals "$(err_of t.brim)" 0 "$(rc_of t.brim)"
	assertEquals 'each post once, and in order' '' "$(diff <(printf '0x%x\n' {1..4600}) \
		<(jq -r 'select(.ev == "post_srq_recv").wr_id' "$T/t.brim.json") | head -n 3)"
	assertEquals "$(err_of t.full)" 3 "$(rc_of t.full)"
	assertEquals 600 "$(count t.full '.ev == "post_srq_recv"')"
	assert_child_apart t.full 40
}

# A recording is for who made it, and goes where it was meant to go.
test_recordings_are_private() {
	local rc=0
	ln -s "$T/target" "$T/link.qpt"
	labs/qptrace -o "$T/link.qpt" true 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'link.qpt is a symbolic link, which is not followed'
	assertTrue 'the link is still there' "[[ -L $T/link.qpt ]]"
	given probes || return 0
	assertEquals 'others may not read' 600 \
		"$(stat -c %a "$T"/t.*.qpt "$T"/t.*.qpt.[0-9]* | sort -u)"
	assertEquals "$(err_of t.linked)" 0 "$(rc_of t.linked)"
	assert_in "$(err_of t.linked)" \
		'^qptrace: not recording, cannot open .*t.linked.qpt.[0-9]+: ELOOP, symbolic links are not followed'
	assertFalse 'FILE.PID was followed' "[[ -e $T/followed ]]"
}

test_failures_are_explained() {
	local name rc pattern
	given probes || return 0
	while IFS='|' read -r name rc pattern; do
		alike "$name" "$rc"
		assert_in "$(err_of "t.$name")" "$pattern" "$name:"
	done <<<"$failures"
	# UCX and NCCL register fd -1 to see how it fails: nobody is accused of that.
	assert_not_in "$(err_of t.refused)" 'fd -1'
	accepted refused "$T/t.refused.qpt"
	assert_in "$said" 'reg_dmabuf_mr, bytes 64, 0  a probe: E[A-Z]+'
	accepted early "$T/t.early.qpt"
	assert_in "$said" 'cause: the QP is in INIT, and sends need RTS'
	assertEquals 'quiet' '' "$(err_of q.modify)"
	assertEquals 'and yet recorded' no-way "$(causes .id "$T/q.modify.qpt")"
}

test_stalls_are_explained() {
	local n hint
	given probes || return 0
	while IFS='|' read -r n hint; do
		assertEquals "$n" 6 "$(rc_of "s.$n")"
		# At the end it may say what it has learned since, so a hint may be the second.
		assert_in "$(grep -c 'copy, RTS in the kernel' "$T/s.$n.err") $(grep -c 'hint:' "$T/s.$n.err")" '^1 [12]$' "$n says it once:"
		assert_in "$(err_of "s.$n")" "hint: $hint" "$n:"
		assert_in "$(err_of "s.$n")" '\): RTS in the user.s copy, RTS in the kernel' "$n:"
	done <<<"$stalls"
	assert_in "$(err_of s.wait)" '1 receive waits, the oldest for [0-9]\.[0-9] s: wr_id 0x1, 64 bytes'
	assertEquals nothing-came "$(causes .id "$T/s.wait.qpt")"
}

test_sigquit() {
	given probes || return 0
	assertEquals 'they go on' '6 6 6' \
		"$(rc_of asked.wait) $(rc_of asked.broken) $(rc_of control.wait)"
	assert_in "$(err_of asked.wait)" 'hint: the receive is posted'
	assert_in "$(err_of asked.broken)" 'RC\): RTS in the user.s copy, ERR in the kernel'
	# Of both ends: the one that was refused, and the one that refused.
	assertEquals 2 "$(count asked.broken '.ev == "stall" and .user_state == "RTS" and .kernel_state == "ERR"')"
	assert_in "$(err_of control.wait)" 'posts and completions are not recorded'
	assertEquals 'a program with a handler of its own' '9 ' \
		"$(rc_of asked.quit) $(err_of asked.quit)"
}

test_control_only() {
	given probes || return 0
	assertEquals 0 "$(rc_of c.threads)"
	assertEquals 'modify_qp, and no posts' '6 0' \
		"$(count c.threads '.ev == "modify_qp"') $(count c.threads '.ev | test("post|completion")')"
}

test_company() {
	given probes || return 0
	assertEquals '0 80' "$(rc_of spied) $(completions spied)"
	assertEquals 'the spy saw them, too' 2 "$(grep -c '^make qp' "$T/spy.log")"
}

# What it knows of an object it forgets with the object; and it gives back what it looks
# at, whenever a QP fails whose peer it does not know.
test_nothing_is_kept() {
	given probes || return 0
	alike flat 0
	assert_in "$(out_of t.flat)" '^0 more descriptors, 0 more pages$'
}

test_usage() {
	local rc
	for args in '' '-o' '--stall soon ls' '--nonsense ls' 'report'; do
		rc=0
		# shellcheck disable=SC2086 # words
		labs/qptrace $args >/dev/null 2>"$T/err" || rc=$?
		assertEquals "qptrace $args" 2 "$rc"
		assertNotNull "qptrace $args" "$(cat "$T/err")"
	done
	labs/qptrace report "$T/none.qpt" >/dev/null 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(cat "$T/err")" 'cannot open .*none.qpt'
	labs/qptrace report "$T" >/dev/null 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(cat "$T/err")" 'has no recordings'
	(cd "$T" && "$ROOT/labs/qptrace" true 2>err)
	assertEquals 0 $?
}

# shellcheck disable=SC1091
. shunit2
