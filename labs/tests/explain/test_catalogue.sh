#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Some mistakes of the catalogue on rxe0, of each kind, and the explainer's judgement on
# what no device here can do. All of them: long_catalogue.sh.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# A cause of each kind that comes soon: the state machine, memory, queues, completions,
# the peer's memory, waiting, the exchange.
SOME=(rtr-gid-slot-empty rtr-gid-families-differ rtr-mtu-in-bytes-taken mask-empty ud-controlled-qkey mr-read-only mr-memlock
	cq-too-large destroy-cq-in-use post-send-in-init
	lkey-wrong recv-too-small-receiver rnr psn-differs-one-sided peer-gone
	mr-lacks-remote-write qp-lacks-remote-read
	hang-unsignaled cq-overrun ud-qkey ud-dgid-ipv4 own-rkey cm-no-listener cm-connect-data)

# faults ARG…: its output in $T/out, sets $rc; never on a real machine
faults() {
	rc=0
	LAB=vm labs/faults/run "$@" >"$T/out" 2>"$T/err" || rc=$?
}

test_some_faults_by_name() {
	need_lab || return 0
	faults "${SOME[@]}"
	assertEquals "$(grep -B9 FAIL "$T/out")$(cat "$T/err")" 0 "$rc"
	assertEquals "${#SOME[@]} of ${#SOME[@]} causes named first" "$(tail -n 1 "$T/out")"
	assert_in "$(cat "$T/out")" '^ +saw: A: ibv_modify_qp: ENODATA \(61\)$'
	assert_in "$(cat "$T/out")" '^ +said: slot 7 of the GID table is empty'
}

test_usage() {
	faults --list
	assertEquals 0 "$rc"
	assertTrue "((\$(wc -l <'$T/out') >= 140))"
	assertEquals 'no name twice' '' "$(cut -d' ' -f1 "$T/out" | sort | uniq -d)"
	# What the errors pages of lesson 07 offer in their last column can be run.
	assertEquals 'on a page, and not to be run' '' "$(
		awk -F' *[|] *' '/^\|/ && $(NF - 1) ~ /^`[a-z0-9-]+`((, |、)`[a-z0-9-]+`)*$/ { print $(NF - 1) }' \
			lessons/07-when-it-fails/errors.md docs-zh/07-when-it-fails-errors.md |
			grep -oE '[a-z0-9-]+' | sort -u | comm -23 - <(cut -d' ' -f1 "$T/out" | sort))"
	# And each cause has its fault there, or a file that makes it, or the mark.
	faults --causes
	assertEquals "$(cat "$T/err")" 0 "$rc"
	assertEquals 'no such file' '' "$(grep -oE '`labs/[^`]+`' "$T/out" | tr -d '\`' | sort -u | while read -r file; do [[ -e $file ]] || echo "$file"; done)"
	faults no-such-fault
	assertEquals 2 "$rc"
	assert_in "$(cat "$T/err")" 'no fault "no-such-fault"'
	faults --no-such-option
	assertEquals 2 "$rc"
}

# What changes links and devices must not do so outside the lab's VM.
test_fresh_faults_refuse_a_real_machine() {
	local rc=0 out
	out=$(labs/faults/run --play "$T" rtr-netdev-down 2>&1) || rc=$?
	assertEquals 77 "$rc"
	assert_in "$out" 'changes the machine'
}

# Doubles answer for the devices that are not here; ASan and UBSan watch. Where there
# are devices, the explainer asks for the peer's QP, too, and leaves nothing behind; with
# RDMA_EXPLAIN=0 a program prints the errno alone.
test_judgement_without_a_device() {
	local out rc=0 sources=("$SOURCES"/common/explain/*.c "$SOURCES"/common/base/{call_failed,report,verbs_names}.c)
	[[ ! labs/tests/explain/cases.def -nt $B/unit_explain ]] || rm -f "$B/unit_explain"
	helper "$B/unit_explain" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
		labs/tests/explain/unit_explain.c "${sources[@]}" -libverbs || fail 'no unit_explain'
	out=$("$B/unit_explain" 2>&1) || rc=$?
	assertEquals "$(grep -v '^ok ' <<<"$out")" 0 "$rc"
	need_lab || return 0
	must_build "$B/03-qp-states"
	in_lab '
		B=$1 T=$2
		held >"$T/before"
		"$B/unit_explain" rxe0 "$(cat /sys/class/infiniband/rxe0/ports/1/gids/1)" >"$T/unit" 2>&1
		echo "$?" >"$T/rc"
		held >"$T/after"
		RDMA_EXPLAIN=0 "$B/03-qp-states" --break no-grh 2>"$T/off" >/dev/null
		"$B/03-qp-states" --break no-grh 2>"$T/on" >/dev/null
	' "$B" "$T"
	assertEquals "$(cat "$T/unit")" 0 "$(cat "$T/rc")"
	assertEquals 'left behind' "$(cat "$T/before")" "$(cat "$T/after")"
	assert_in "$(cat "$T/off")" 'failed: EINVAL \(22\): Invalid argument$'
	assertEquals 1 "$(wc -l <"$T/off")"
	assertEquals 'error: next: seen:' "$(awk '{ print $1 }' "$T/on" | xargs)"
}

. shunit2
