#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The explainer: the catalogue of faults with it, its judgement on what no device
# here can do, and what it must not do. Without it: long_catalogue.sh.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/explain/catalogue.sh
. "$ROOT/labs/tests/explain/catalogue.sh"

# blocks: one line per fault of $T/out, "NAME: MISTAKE # saw: … # said: … # …"
blocks() {
	awk '/^[a-z0-9-]+: / { if (line) print line; line = $0; next }
		/^ / { sub(/^ +/, ""); line = line " # " $0 }
		END { print line }' "$T/out"
}

test_the_right_cause_is_named_first() {
	local n
	need_lab || return 0
	faults
	assertEquals "$(grep -B9 FAIL "$T/out")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/out")" '^([0-9]+) of \1 causes named first$'
	n=$(tail -n 1 "$T/out" | cut -d' ' -f1)
	assertTrue "$n faults, $LEAST wanted" "((n >= LEAST))"
	# Every one says all it has to say: one cause, one next step.
	assertEquals "$n" "$(blocks | grep -cE \
		-e ' # saw: [^#]+ # said: [^#]+ # next: [^#]+ .*# ok [A-Za-z0-9_-]+$' \
		-e ' # saw: [^#]+: 0 # ok none: this kernel does it$')"
}

# The explainer may ask, but it changes nothing and leaves nothing.
test_nothing_is_left_behind() {
	local held
	need_lab || return 0
	held=$(in_lab 'held; "$1"/faults rtr-no-grh wrong-qpn lkey-wrong \
		mr-memlock post-send-in-init >/dev/null; held' "$B")
	assertEquals "$(head -n 1 <<<"$held")" "$(tail -n 1 <<<"$held")"
}

test_one_fault_alone() {
	need_lab || return 0
	faults rtr-gid-slot-empty
	assertEquals 0 "$rc"
	assert_in "$(blocks)" 'saw: ibv_modify_qp: ENODATA \(61\) # said: slot 7 of the GID table is empty'
	assert_in "$(cat "$T/out")" '^1 of 1 causes named first$'
}

# One whose cause each layer knows: the GID table, the path, the value, the peer.
test_some_faults_by_name() {
	need_lab || return 0
	faults rtr-gid-slot-empty rtr-gid-families-differ \
		rtr-mtu-in-bytes-taken peer-in-err
	assertEquals "$(cat "$T/out")" 0 "$rc"
	assert_in "$(cat "$T/out")" '^4 of 4 causes named first$'
}

test_usage() {
	faults --list
	assertEquals 0 "$rc"
	assertTrue "((\$(wc -l <'$T/out') >= LEAST))"
	assertEquals 'no name twice' '' "$(cut -d' ' -f1 "$T/out" | sort | uniq -d)"
	faults no-such-fault
	assertEquals 2 "$rc"
	assert_in "$(cat "$T/err")" 'no fault "no-such-fault"'
	faults --no-such-option
	assertEquals 2 "$rc"
}

# What changes links and devices must not do so outside the lab's VM.
test_fresh_faults_refuse_a_real_machine() {
	[[ ! -e /run/rdma-lab-vm ]] || { skip 'this is the lab'; return 0; }
	local rc=0 out
	must_build "$B/faults"
	out=$("$B/faults" rtr-netdev-down 2>&1) || rc=$?
	assertEquals 77 "$rc"
	assert_in "$out" 'changes the machine'
}

# Any program of ours: with the switch it prints the errno, and nothing else.
test_switch_in_a_program() {
	local out
	need_lab || return 0
	must_build "$B/03-qp-states"
	out=$(RDMA_EXPLAIN=0 lab run "$B/03-qp-states" --break no-grh 2>&1 >/dev/null)
	assert_in "$out" 'failed: EINVAL \(22\): Invalid argument$'
	assertEquals 1 "$(wc -l <<<"$out")"
	out=$(lab run "$B/03-qp-states" --break no-grh 2>&1 >/dev/null)
	assertEquals 'error: next: seen:' "$(awk '{ print $1 }' <<<"$out" | xargs)"
}

# Doubles answer for the devices that are not here; ASan and UBSan watch.
test_judgement_without_a_device() {
	local out rc=0 judges
	mapfile -t judges < <(from 'common/explain/*.c')
	sanitized "$T/unit" labs/tests/explain/unit_explain.c "${judges[@]}" \
		common/base/{failure,report,verbs_names}.c
	out=$("$T/unit" 2>"$T/err") || rc=$?
	assertEquals "$(grep -v '^ok ' <<<"$out")$(grep -v '^error: call()' "$T/err")" \
		0 "$rc"
	assertTrue "$(wc -l <<<"$out") checks" "(($(grep -c '^ok ' <<<"$out") >= 84))"
	# Where there are devices, it asks for the peer's QP, too.
	need_lab || return 0
	rc=0
	out=$(in_lab '"$1" rxe0 "$(cat /sys/class/infiniband/rxe0/ports/1/gids/1)"' "$T/unit") || rc=$?
	assertEquals "$out" 0 "$rc"
}

# From which value on: each limit, and one beyond it; and the parts that all stand on.
test_limits() {
	local name least out rc judges
	mapfile -t judges < <(from 'common/explain/*.c')
	while read -r name least; do
		sanitized "$T/$name" "labs/tests/explain/$name.c" "${judges[@]}" \
			common/base/{failure,report,verbs_names}.c
		rc=0
		out=$("$T/$name" 2>&1) || rc=$?
		assertEquals "$(grep -v '^ok ' <<<"$out")" 0 "$rc"
		assertTrue "$(wc -l <<<"$out") checks of $name" "(($(grep -c '^ok ' <<<"$out") >= $least))"
	done <<-'END'
		unit_limits 110
		unit_requests 110
		unit_parts 110
		unit_failed 40
	END
}

# network: the script that makes a network, then runs its arguments in it
network() {
	cat <<-'END'
		for pair in near:far off:plug bare:hole; do
			ip link add ${pair%:*} type veth peer ${pair#*:}
		done
		ip addr add 192.0.2.1/24 dev near
		ip addr add fd00:1::1/64 dev near nodad
		for name in lo near far bare; do ip link set $name up; done
		ip route add 198.51.100.0/24 via 192.0.2.2
		ip route add fd00:3::/64 via fd00:1::2
		for type in unreachable:1 prohibit:2 blackhole:3; do
			ip route add ${type%:*} 203.0.113.${type#*:}
			ip route add ${type%:*} fd00:4::${type#*:}
		done
		for peer in 192.0.2.10 fd00:1::10; do
			ip neigh add $peer lladdr 02:00:00:00:00:10 dev near
		done
		ip neigh add 192.0.2.11 dev near nud failed
		# The kernel looks at the links a little later.
		for i in $(seq 100); do
			[ "$(ip -br link | grep -cE '^near@.* UP |^bare@.* (LOWERLAYER)?DOWN ')" != 2 ] || break
			sleep 0.1
		done
		ip neigh add 192.0.2.12 dev near nud incomplete
		exec "$@"
	END
}

# What it asks the network: routes, neighbours, links and GIDs; and of more QPs than
# one answer of the kernel holds.
test_what_the_network_says() {
	local out rc=0 judges
	mapfile -t judges < <(from 'common/explain/*.c')
	sanitized "$T/unit" labs/tests/explain/unit_network.c "${judges[@]}" \
		common/base/{failure,report,verbs_names}.c
	out=$("$T/unit") || rc=$?
	assertEquals "$out" 0 "$rc"
	need_lab || return 0
	rc=0
	network >"$T/network.sh"
	must_build "$B/faults" "$B/00-first-message"
	# A fresh one: no packet has come yet; then some have, then RNR NAKs, too.
	out=$(lab run --fresh bash -c '
		gid=$(cat /sys/class/infiniband/rxe0/ports/1/gids/1)
		for before in true "$2/00-first-message" "$2/faults rnr"; do
			$before >/dev/null
			"$1" rxe0 "$gid" || exit
		done
		gid=$(cat /sys/class/infiniband/rxe1/ports/1/gids/1)
		"$1" rxe1 "$gid" && "$1" mac "$gid" || exit
		"$1" mac ::ffff:192.0.2.1 || exit
		mac=$(cat /sys/class/net/veth1/address)
		ip neigh replace 10.99.0.2 lladdr "${mac%?}f" dev veth0 nud permanent
		"$1" mac "$gid" wrong-mac || exit
		ip neigh replace 10.99.0.2 lladdr "$mac" dev veth0 nud permanent
		unshare -n "$1" alone || exit
		exec unshare -n sh -e "$0" "$1" routes' "$T/network.sh" "$T/unit" "$B") || rc=$?
	assertEquals \
		'# packets: 0, RNR NAKs: 0,# packets: 1, RNR NAKs: 0,# packets: 1, RNR NAKs: 1' \
		"$(grep '^# packets' <<<"$out" | head -n 3 | paste -sd,)"
	assertEquals "$out" 0 "$rc"
	assertTrue "only: $out" "(($(grep -c '^ok ' <<<"$out") >= 180))"
}

. shunit2
