#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/rxe.sh, for real: each test is one script, run as root in a clean VM
# whose own rxe0 and rxe1 are taken away first.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm

# in_vm: run the script on stdin in a VM of its own; sets $out
in_vm() {
	local script
	script=$(cat)
	out=$(lab run --fresh --timeout 60 bash -c "
		cd '$ROOT/labs'
		rxe() { bash ./rxe.sh \"\$@\" 2>&1; echo \"rc=\$?\"; }
		rxe teardown >/dev/null
		$script" 2>&1)
}

test_teardown_leaves_the_machine_as_it_was() {
	in_vm <<-'END'
		look() { ip -o addr; ip rule; ip route; rdma link; ls -d /run/rdma-lab-rxe; }
		look >/tmp/before 2>&1
		rxe setup --pair; rdma link; ip rule | grep -c veth
		rxe teardown
		look >/tmp/after 2>&1
		sed -i 's/^[0-9]*: //' /tmp/before /tmp/after
		diff /tmp/before /tmp/after && echo same
		ip rule | head -n1
	END
	assert_in "$out" 'link rxe0/1 state ACTIVE.* netdev veth0'
	assert_in "$out" 'link rxe1/1 state ACTIVE.* netdev veth1'
	assert_in "$out" '^same$'
	assert_in "$out" '^0:.*lookup local'
}

test_pair_is_a_wire() {
	in_vm <<-'END'
		rxe setup --pair
		ibv_rc_pingpong -n 50 -d rxe0 -g 1 >/dev/null &
		until grep -q :4853 /proc/net/tcp*; do sleep 0.05; done
		ibv_rc_pingpong -n 50 -d rxe1 -g 1 127.0.0.1
		sent() { cat /sys/class/net/veth0/statistics/tx_packets; }
		wait $! && before=$(sent) && echo "packets $before"
		timeout 10 busybox nc -l -p 7100 >/tmp/got &
		until grep -q :1BBC /proc/net/tcp*; do sleep 0.05; done
		echo over tcp | timeout 10 busybox nc 10.99.0.2 7100
		wait; cat /tmp/got; echo "tcp packets $(($(sent) - before))"
	END
	assert_in "$out" '^over tcp$'
	assert_in "$out" '^tcp packets ([3-9]|[1-9][0-9])' 'TCP does not cross the veth:'
	assert_in "$out" '^50 iters'
	assert_in "$out" '^packets [1-9][0-9]{2,}'
}

test_one_device_on_a_netdev() {
	in_vm <<-'END'
		ip link add dummy0 type dummy; ip addr add 10.1.1.1/24 dev dummy0; ip link set dummy0 up
		rxe status
		rxe setup --netdev dummy0
		rxe status
		rxe setup --netdev dummy0
		rxe teardown
		rxe status
		ip link show dummy0 >/dev/null && echo dummy stays
		ip route add default via 10.1.1.2
		rxe setup; rxe teardown
		rxe setup --netdev lo
	END
	assert_in "$out" 'rxe0 on dummy0: port 4: ACTIVE, made by rxe.sh'
	assert_in "$out" 'set up already by this script'
	assert_in "$out" 'dummy stays'
	assert_in "$out" 'link rxe0/1 state ACTIVE .*netdev dummy0'
	assert_in "$out" 'link rxe0/1 state ACTIVE .*netdev lo'
	assertEquals "codes" "1 0 0 1 0 1 0 0 0" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
}

test_what_others_made_is_not_touched() {
	in_vm <<-'END'
		rdma link add mine type rxe netdev lo
		rxe teardown
		rxe status
	END
	assert_in "$out" 'nothing here was made by this script'
	assert_in "$out" 'mine on lo: .* made by somebody else'
}

# Every refusal says why before it changes anything.
test_refusals() {
	in_vm <<-'END'
		ip link add dummy0 type dummy; ip link set dummy0 up
		ip link add link dummy0 name dummy0.5 type vlan id 5
		echo A; rxe setup --netdev nosuch
		echo B; rxe setup --netdev dummy0.5
		echo C; rxe setup
		rdma link add rxe0 type rxe netdev lo
		echo D; rxe setup --netdev dummy0
		rdma link del rxe0; rdma link add other type rxe netdev dummy0
		echo E; rxe setup --netdev dummy0
		echo F; rxe setup --netdev; rxe setup --pair --netdev lo; rxe nonsense; rxe
		echo G; setpriv --reuid=65534 --clear-groups bash ./rxe.sh setup --netdev lo; echo "rc=$?"
		echo H; ls /run/rdma-lab-rxe
	END
	assert_in "$out" 'no network device nosuch .*there are: .*dummy0'
	assert_in "$out" 'dummy0.5 is a VLAN'
	assert_in "$out" 'no default route'
	assert_in "$out" 'named rxe0 exists already .*Too many open files'
	assert_in "$out" 'dummy0 carries the Soft-RoCE device other already .*File exists'
	assert_in "$out" 'needs root'
	assertEquals "codes" "1 1 1 1 1 2 2 2 2 77" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
	assert_in "$out" "cannot access '/run/rdma-lab-rxe'"
}

test_half_a_pair_is_undone() {
	in_vm <<-'END'
		ip link add dummy0 type dummy
		rdma link add rxe1 type rxe netdev dummy0
		ip rule >/tmp/before
		rxe setup --pair
		ip rule | diff /tmp/before - && echo same rules
		ip link show veth0; rdma link show rxe0/1; ls /run/rdma-lab-rxe
	END
	assert_in "$out" 'named rxe1 exists already'
	assert_in "$out" '^rc=1'
	assert_in "$out" 'same rules'
	assert_in "$out" '"veth0" does not exist'
	assert_not_in "$out" 'link rxe0/1'
	assert_in "$out" "cannot access '/run/rdma-lab-rxe'"
}

test_other_network_namespace() {
	in_vm <<-'END'
		unshare -n bash ./rxe.sh setup --netdev lo; echo "rc=$?"
		unshare -n bash ./rxe.sh setup --netdev lo --force; echo "rc=$?"
	END
	assert_in "$out" 'not the first network namespace'
	assertEquals "77 0" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
}

# The guest's root has no /lib/modules for its kernel; other answers of modprobe
# are put in its mouth.
test_module_missing() {
	in_vm <<-'END'
		rmmod rdma_rxe
		rxe setup --netdev lo
		mkdir /tmp/bin; PATH=/tmp/bin:$PATH
		say() { printf '#!/bin/sh\necho "modprobe: ERROR: could not insert: %s" >&2; exit 1\n' "$1" >/tmp/bin/modprobe; chmod +x /tmp/bin/modprobe; }
		release() { printf '#!/bin/sh\necho %s\n' "$1" >/tmp/bin/uname; chmod +x /tmp/bin/uname; }
		say 'Key was rejected by service'; rxe setup --netdev lo
		say 'Operation not permitted'; rxe setup --netdev lo
		say 'Module rdma_rxe not found in directory'
		release 5.15.0-microsoft-standard-WSL2; rxe setup --netdev lo
		release 6.1.0-1-cloud-amd64; rxe setup --netdev lo
		release 6.8.0-1-aws; printf 'ID=ubuntu\n' >/etc/os-release; rxe setup --netdev lo
	END
	assert_in "$out" 'kernel .* has no module rdma_rxe'
	assert_in "$out" 'Secure Boot refuses'
	assert_in "$out" 'may not load kernel modules'
	assert_in "$out" "WSL2's kernel is built without"
	assert_in "$out" 'cloud kernel has no rdma_rxe'
	assert_in "$out" 'apt-get install linux-modules-extra-6.8.0-1-aws'
	assertEquals "77 77 77 77 77 77" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
}

test_device_still_open_at_teardown() {
	in_vm <<-'END'
		rxe setup --netdev lo
		ibv_rc_pingpong -d rxe0 -g 1 >/dev/null &
		until grep -q :4853 /proc/net/tcp*; do sleep 0.05; done
		rxe teardown
		kill %1
	END
	assert_in "$out" 'a program still has rxe0 open'
	assertEquals "0 0" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
}

. shunit2
