#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Faults of the wire between two hosts: what the report says of each, from the sender's
# recording (B), from the receiver's (A), and from both.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm
oneTimeSetUp() {
	two_hosts_apart
	two_hosts_up
}
oneTimeTearDown() { two_hosts_down; }

# first RECORDING…: side and id of the first cause, if there is one
first() { labs/qptrace report --json "$@" | jq -r '.causes[0] // {side: "", id: "nothing"} | .side + " " + .id'; }

# A wrong VLAN: B's GID is that of eth0.100, A's is that of eth0.
vlan() {
	lab up --two 2>/dev/null
	lab run --on A ip addr add 10.99.1.1/24 dev eth0
	lab run --on B bash -c 'ip link add link eth0 name eth0.100 type vlan id 100
		ip addr add 10.99.1.2/24 dev eth0.100 && ip link set eth0.100 up'
	lab run --on A labs/qptrace --quiet -o "$T/A.qpt" "$B/rdma_server" -q rxe0 1 2 2>/dev/null &
	lab run --on B labs/qptrace --quiet -o "$T/B.qpt" "$B/rdma_client" -q 10.98.0.1 rxe0 1 2 2>/dev/null
	wait $!
	for host in A B; do lab kill --on $host 2>/dev/null; done
}

# By address alone, and one host's death.
test_librdmacm() {
	local rc=0
	need_two_hosts || return 0
	lab run --on A "$B/rdma_server" --cm -q -e -n 20 -t 20 >/dev/null 2>"$T/A" &
	assertEquals 'B' '' "$(lab run --on B "$B/rdma_client" --cm -j -e -n 20 -t 20 10.98.0.1 2>&1 >"$T/B.out")"
	wait $! || rc=$?
	assertEquals "A: $(<"$T/A")" 0 "$rc"
	assertEquals 'rxe0 1024' "$(jq -r '"\(.device) \(.path_mtu)"' "$T/B.out")"
	assert_in "$(lessons/11-rdma-cm/both --two --kill : --idle 3 | tr '\n' ' ')" 'no event +after 3 s C . QP in RTS.*SEND failed.*QP in ERR'
}

test_faults_of_the_wire() {
	local what alone receiver both
	need_two_hosts || return 0
	while IFS='|' read -r what alone receiver both <&3; do
		rm -f "$T"/*
		if [[ $what == vlan ]]; then
			vlan
		else
			eval "lessons/09-two-hosts/try --wire '$T' ${what/#mid /--mid }" -e 20 -n 100 >/dev/null 2>&1
		fi
		assert_in "$(first "$T/B.qpt")" "^A ${alone//,/|}\$" "$what, B alone"
		[[ ! $receiver ]] || assert_in "$(first "$T/A.qpt")" "^A ${receiver//,/|}\$" "$what, A alone"
		[[ ! $both ]] || assert_in "$(first "$T"/[AB].qpt)" "^${both//,/|}\$" "$what, both"
	done 3<<-'END'
		--net 'A block-roce in'|RETRY_EXC_ERR|nothing-came|B nothing-arrives
		--net 'B block-roce in'|RETRY_EXC_ERR|nothing-came|B acks-lost
		mid 'A block-roce in'|RETRY_EXC_ERR later|nothing-came|B lost-on-the-way
		mid 'A block-roce out'|RETRY_EXC_ERR later|nothing-came|B acks-lost
		mid 'B block-roce out'|(kernel-refuses,WR_FLUSH_ERR)|nothing-came|B (kernel-refuses,WR_FLUSH_ERR)
		--net 'B loss 30%' -r 0|RETRY_EXC_ERR( later)?||B (lost-on-the-way,nothing-arrives)
		--net 'A loss 30%' -r 0|RETRY_EXC_ERR( later)?||B acks-lost
		mid 'A down'|RETRY_EXC_ERR later|netdev-down|A netdev-down
		mid 'B down'|netdev-down|nothing-came|B netdev-down
		mid 'A ip addr flush dev eth0'|RETRY_EXC_ERR later|gid-gone|A gid-gone
		mid 'A ip link set eth0 address 02:00:00:00:00:99'|RETRY_EXC_ERR later|gid-gone|A gid-gone
		mid 'B ip link set eth0 address 02:00:00:00:00:99'|gid-gone|nothing-came|B gid-gone
		mid 'A ip neigh replace 10.98.0.2 lladdr 02:99:00:00:00:99 dev eth0'|RETRY_EXC_ERR later|nothing-came|B acks-lost
		--net 'A nft add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i udp length > 900 drop'|RETRY_EXC_ERR|nothing-came|B nothing-arrives
		mid 'A kill'|RETRY_EXC_ERR later||
		vlan|no-neighbour||B no-neighbour
	END
}

. shunit2
