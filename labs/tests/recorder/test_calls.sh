#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What labs/qptrace writes of the calls that hardly anybody makes (verbs_probe.c): each
# with the numbers that it was given, and with the result that the program had.
#
# shellcheck disable=SC2016 # scripts for the lab, and jq's, are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/librdma_common.a"
	helper "$B/verbs_probe" -O2 labs/tests/recorder/verbs_probe.c "$B/librdma_common.a" \
		-libverbs -ljansson
	helper "$B/held.so" -O2 -fPIC -shared labs/tests/recorder/held.c
	built_in
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

# given: the test has in its folder what was recorded, once
given() {
	if [[ ! -e $kept/told.json ]]; then
		in_lab '
			run plain "$B/verbs_probe"
			LD_PRELOAD=$PWD/$B/held.so run told labs/qptrace -o "$T/told.json" -- "$B/verbs_probe"
		' || return 1
		cp "$T"/*.* "$kept"
	fi
	cp "$kept"/*.* "$T"
}

test_the_program_has_the_same_results() {
	given || return 0
	assertEquals "$(err_of plain)" 0 "$(rc_of plain)"
	assertEquals "$(err_of told)" 0 "$(rc_of told)"
	assertEquals "$(out_of plain)" "$(out_of told)"
	assert_in "$(out_of told)" '^inv: opcode 128, status 0$'
}

# "mr" and "mw" are its only rkeys; of the addresses the last digits are its own.
test_each_opcode() {
	given || return 0
	assertEquals 'RDMA_WRITE 16 mr 000
RDMA_READ 17 mr 040
ATOMIC_FETCH_AND_ADD 8 mr 080
ATOMIC_CMP_AND_SWP 8 mr 0c0
BIND_MW 0 mw -
SEND 21 - -
SEND_WITH_IMM 22 - -
RDMA_WRITE_WITH_IMM 23 mr 1c0
SEND_WITH_INV 24 mw -
LOCAL_INV 0 0x7700 -' "$(jq -rs '(map(select(.ev == "reg_mr" and .iova)) | first.rkey) as $mr |
		(map(select(.op == "BIND_MW")) | first.rkey) as $mw |
		.[] | select(.ev == "post_send" and .qp == 2) |
		[.op, .len, (.rkey | if . == $mr then "mr" elif . == $mw then "mw" else . // "-" end),
			(.remote_addr // "-")[-3:]] | join(" ")' "$T/told.json")"
	assertEquals 'RDMA_WRITE RDMA_READ FETCH_ADD COMP_SWAP BIND_MW RECV SEND RECV SEND RECV_RDMA_WITH_IMM RDMA_WRITE RECV SEND ' \
		"$(values told 'select(.ev == "completion" and .qp == 2 and .op).op')"
	assert_complete told
}

# number FILTER: of the post for which it holds
number() { jq -s "map(select(.n and ($1))) | last.n" "$T/told.json"; }

# After RESET a receive with the wr_id of one that is gone; and completions that do not
# say whose they are.
test_each_completion_is_of_its_own_post() {
	given || return 0
	assertEquals 2 "$(count told '.wr_id == "0x12c" and .n')"
	assertEquals "$(number '.wr_id == "0x12c"')" "$(jq 'select(.wr_id == "0x12c" and .of).of' "$T/told.json")"
	assertEquals 'whose it is' '5 7 4 6' "$(values told 'select(.cq == 2 and .ev == "completion").qp' | xargs)"
	assertEquals 'and of which post' "$(for qp in 5 7 4 6; do number ".qp == $qp"; done)" \
		"$(jq 'select(.cq == 2 and .ev == "completion").of' "$T/told.json")"
	assertEquals 'and so it is explained' '5 7 4 6' \
		"$(values told 'select(.ev == "explain" and .status == "REM_ACCESS_ERR" and .qp > 3 and .qp < 8).qp' | xargs)"
	assertEquals 'each of a QP that is known' 8 "$(err_of told |
		grep -cE '^qptrace: completion of wr_id 0x19[0-3] on QP [0-9]{1,5} of rxe0: REM_ACCESS_ERR .*: rkey 0x')"
}

# What is known of each event, op and state, beside these and its time, PID and TID; a "?"
# is for what is there only when it applies.
test_what_each_event_says() {
	local said
	given || return 0
	said=$(jq -rs 'group_by([.ev, .op, .to])[] | ([.[0] | .ev, .op, .to | values] | join(" ")) as $event |
		(map(keys - ["ev", "op", "to", "t", "wall", "pid", "tid"])) as $names |
		$event + ": " + ([$names | add | unique[] as $name |
			$name + (if all($names[]; index([$name])) then "" else "?" end)] | join(" "))' "$T/told.json")
	assertEquals "ack: count cq
alloc_pd: device dur err pd
arm: cq
async_event: call? cause? cq? dev err id? next? srq? type
close_device: dev device dur err
completion: cq of qp qpn status vendor_err wr_id
completion BIND_MW: cq len of qp qpn status wr_id
completion COMP_SWAP: cq len of qp qpn status wr_id
completion FETCH_ADD: cq len of qp qpn status wr_id
completion RDMA_READ: cq len of qp qpn status wr_id
completion RDMA_WRITE: cq flags? len of qp qpn status wr_id
completion RECV: cq flags len of qp qpn status wr_id
completion RECV_RDMA_WITH_IMM: cq flags len of qp qpn status wr_id
completion SEND: cq flags? len of qp qpn status wr_id
cq_event: cq
create_ah: ah dgid dur err is_global port sgid_index
create_comp_channel: channel dur err
create_cq: channel? cq cqe cqe_asked device dur err
create_qp: dev dur err inline pd qp qpn recv_cq recv_sge recv_wr recv_wr_asked send_cq send_sge send_wr send_wr_asked sq_sig_all srq? type
create_srq: device dur err max_sge max_wr srq
dealloc_pd: dur err pd
dereg_mr: dur err mr
destroy_ah: ah dur err
destroy_comp_channel: channel dur err
destroy_cq: cq dur err
destroy_qp: dur err qp qpn
destroy_srq: dur err srq
exit: code
explain: about call cause err id next qp qpn seen status wr_id
get_device_list: count dur err
import_device: call cause dev device dur err errname next
modify_qp: access dur err from mask qp qpn
modify_qp INIT: access? dur err from mask pkey_index port qkey? qp qpn
modify_qp RESET: dur err from mask qp qpn
modify_qp RTR: ah_port? dest_qpn? dgid? dur err from hop_limit? is_global? mask max_dest_rd_atomic? min_rnr_timer? path_mtu? qp qpn rq_psn? sgid? sgid_index? sl? traffic_class?
modify_qp RTS: dur err from mask max_rd_atomic? qp qpn retry_cnt? rnr_retry? sq_psn timeout?
modify_qp_rate_limit: call cause dur err errname next qp qpn rate_limit
modify_srq: dur err limit? max_wr? srq
open_device: dev device dur err node
port: active_mtu dev device lid link port state
post_recv: addr len lkey n qp qpn sges wr_id
post_send ATOMIC_CMP_AND_SWP: addr flags len lkey n qp qpn remote_addr rkey sges wr_id
post_send ATOMIC_FETCH_AND_ADD: addr flags len lkey n qp qpn remote_addr rkey sges wr_id
post_send BIND_MW: flags len n qp qpn rkey sges wr_id
post_send LOCAL_INV: flags len n qp qpn rkey sges wr_id
post_send RDMA_READ: addr flags len lkey n qp qpn remote_addr rkey sges wr_id
post_send RDMA_WRITE: addr flags len lkey n qp qpn remote_addr rkey sges wr_id
post_send RDMA_WRITE_WITH_IMM: addr flags len lkey n qp qpn remote_addr rkey sges wr_id
post_send SEND: addr flags len lkey n qp qpn remote_qkey? remote_qpn? sges wr_id
post_send SEND_WITH_IMM: addr flags len lkey n qp qpn sges wr_id
post_send SEND_WITH_INV: addr flags len lkey n qp qpn rkey sges wr_id
post_srq_recv: addr len lkey n sges srq wr_id
query_qp: dur err qp qpn state
reg_mr: access addr dur err iova? len lkey mr pd rkey
rereg_mr: call cause dur err errname flags lkey mr next rkey
resize_cq: cq cqe cqe_asked dur err
start: boot command control_only forked host ppid program version" "$said"
}

test_where_it_goes() {
	given || return 0
	assertEquals '119 0x4321 ' "$(values told 'select(.wr_id == "0x1f4" and .n) | [.remote_qpn, .remote_qkey] | join(" ")')"
	assert_in "$(values told 'select(.wr_id == "0x12e" and .n).remote_addr')" '240 $'
}

test_the_shared_queue() {
	given || return 0
	assertEquals 'create_srq 1 16  post_srq_recv 1   post_srq_recv 1   post_srq_recv 1   post_srq_recv 1   post_srq_recv 1   modify_srq 1 32 5 modify_srq 1   destroy_srq 1   ' \
		"$(values told 'select(.srq and (.ev | test("srq"))) | [.ev, .srq, .max_wr, .limit] | join(" ")')"
}

test_asynchronous_events() {
	given || return 0
	assertEquals 'SRQ_LIMIT_REACHED srq 1 CQ_ERR cq 3 ' "$(values told 'select(.ev == "async_event") |
		[.type, (if .srq then "srq", .srq else "cq", .cq end)] | join(" ")')"
	assert_in "$(err_of told)" '^qptrace: asynchronous event CQ_ERR of rxe0: the CQ was full'
	assert_not_in "$(err_of told)" SRQ_LIMIT
}

test_calls_that_the_device_does_not_have() {
	given || return 0
	assertEquals 'modify_qp_rate_limit 2 123  95 import_device   0 95 ' \
		"$(values told 'select(.ev | test("rate_limit|import")) | [.ev, .qp, .rate_limit, .device, .err] | join(" ")')"
	assertEquals '2 0x4 ' "$(values told 'select(.ev == "rereg_mr") | [.mr, .flags] | join(" ")')"
	assert_in "$(err_of told)" '^qptrace: ibv_modify_qp_rate_limit\(QP [0-9]+, 123 kbps\) failed: EOPNOTSUPP'
	assert_in "$(err_of told)" '^qptrace: ibv_import_device\(fd [0-9]+\) failed: EOPNOTSUPP'
}

# What makes the library crash is told before it does.
test_calls_that_crash() {
	in_lab '
		. labs/tests/recorder/qptrace.sh
		recordings=$T
		for how in no_ah no_cq; do
			run "plain.$how" "$B/verbs_probe" "$how"
			recorded run "$how" "$B/verbs_probe" "$how"
		done
	' || return 0
	assertEquals '139 139 139 139' "$(rc_of plain.no_ah) $(rc_of no_ah) $(rc_of plain.no_cq) $(rc_of no_cq)"
	assertEquals 'post 0x258 ah-null ' "$(values no_ah 'select(.ev == "explain") | [.about, .wr_id, .id] | join(" ")')"
	assertEquals 'create_qp qp-without-cq ' "$(values no_cq 'select(.ev == "explain") | [.about, .id] | join(" ")')"
}

# The veth takes both ports down with it.
test_a_port_that_goes_down() {
	in_lab --fresh '
		. labs/tests/recorder/qptrace.sh
		recordings=$T
		state() { ibv_devinfo -d rxe0 | grep -q "PORT_$1"; }
		recorded start told "$B/verbs_probe" port
		await in_file waiting "$T/told.out"
		kill -QUIT "${pids[told]}"
		await in_file "SRQ 1" "$T/told.err"
		ip link set veth0 down
		await state DOWN
		recorded run down "$B/verbs_probe"
		ip link set veth0 up
		await state ACTIVE
		reap told
	' || return 0
	assertEquals "$(err_of told)" 0 "$(rc_of told)"
	assertEquals 'PORT_ERR 1 PORT_ACTIVE 1 ' "$(values told 'select(.ev == "async_event") | [.type, .port] | join(" ")')"
	assertEquals 1 "$(grep -c '^qptrace: asynchronous event' "$T/told.err")"
	assert_in "$(grep -A1 'SRQ 1$' "$T/told.err")" '1 receive waits, .*: wr_id 0x77, 64 bytes'
	assert_in "$(err_of told)" '^qptrace: asynchronous event PORT_ERR of rxe0: '
	assertEquals 'DOWN ' "$(values down 'select(.ev == "port").state')"
	assertEquals 'rxe0 1 netdev-down ' "$(values down 'select(.ev == "warning") | [.dev, .port, .id] | join(" ")')"
}

# It looks at other processes, whenever a QP fails whose peer it does not know.
test_it_gives_back_what_it_looks_at() {
	in_lab '
		. labs/tests/recorder/qptrace.sh
		recordings=$T
		recorded serve other "$B/rdma_server" rxe1
		run plain "$B/verbs_probe" peers
		options=(--stall 0.1)
		recorded run told "$B/verbs_probe" peers
		kill "${pids[other]}"
		reap other
	' || return 0
	assertEquals 12 "$(count told '.ev == "completion" and .status == "RETRY_EXC_ERR"')"
	assert_in "$(err_of told)" 'hint: the device gives up after [0-9]+ ms only'
	assert_not_in "$(err_of told)" 'cause: the device gives up'
	assert_in "$(out_of plain)" '^0 more descriptors, 0 more mappings$'
	assertEquals "$(err_of told)" "$(out_of plain)" "$(out_of told)"
}

# What it knows of an object it forgets with the object.
test_objects_come_and_go() {
	in_lab '
		. labs/tests/recorder/qptrace.sh
		recordings=$T
		run plain "$B/verbs_probe" flat
		recorded run told "$B/verbs_probe" flat
	' || return 0
	assertEquals "$(err_of plain)" '0 more pages' "$(out_of plain)"
	assertEquals "$(err_of told)" '0 more pages' "$(out_of told)"
	assertEquals 400 "$(count told '.ev == "close_device"')"
}

# Whatever the recorder asks the system for is refused once: the program does not notice,
# and what there is of a recording can be read.
test_refusals() {
	local file
	in_lab '
		run plain "$B/verbs_probe"
		export KEPT=$T/descriptors KEPT_WHOSE=libqptrace KEPT_FAIL KEPT_FAILED=$T/told.failed
		for ((KEPT_FAIL = 1; KEPT_FAIL < 200; KEPT_FAIL++)); do
			rm -f "$KEPT_FAILED" "$KEPT"
			LD_PRELOAD=$KEPT_FOLDER/kept.so run told labs/qptrace -o "$T/$KEPT_FAIL.json" -- "$B/verbs_probe"
			[[ -s $KEPT_FAILED ]] || break
			cmp -s "$T/plain.out" "$T/told.out" && same=same || same=other
			! grep -q "not recording" "$T/told.err" || ! grep -qs "[.]json" "$KEPT" || same="same, and keeps the file"
			echo "$KEPT_FAIL $(<"$KEPT_FAILED") $(<"$T/told.rc") $same $(grep -vc "^qptrace:" "$T/told.err")"
		done
	' || return 0
	assertEquals "$(err_of plain)" '0 0' "$(rc_of plain) $(rc_of told)"
	assertTrue "$(wc -l <"$T/lab.out") refusals" "(($(wc -l <"$T/lab.out") >= 30))"
	assertEquals 'seen by the program' '' "$(grep -v ' 0 same 0$' "$T/lab.out")"
	for file in "$T"/*.json*; do
		[[ ! -s $file ]] || accepted "${file##*/}" "$file"
	done
}

. shunit2
