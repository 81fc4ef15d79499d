#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/rxe.sh, for real: one script, run as root in a clean VM whose own rxe0 and rxe1
# are taken away first. Each test looks at its part of what that said.
#
# shellcheck disable=SC2016 # the script for the VM is quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm

script='
cd "$0/labs"
mkdir /tmp/bin
rxe() { bash ./rxe.sh "$@" 2>&1; echo "rc=$?"; }
listens() { until grep -q "$1" /proc/net/tcp*; do sleep 0.05; done; }
sent() { cat /sys/class/net/veth0/statistics/tx_packets; }
look() { ip -o addr; ip rule; ip route; rdma link; ls -d /run/rdma-lab-rxe; }
exec 2>&1
rxe teardown >/dev/null

echo "== pair"
look >/tmp/before 2>&1
rxe setup --pair; rdma link
ibv_rc_pingpong -n 50 -d rxe0 -g 1 >/dev/null &
listens :4853
ibv_rc_pingpong -n 50 -d rxe1 -g 1 127.0.0.1
wait $! && before=$(sent) && echo "packets $before"
timeout 10 busybox nc -l -p 7100 >/tmp/got &
listens :1BBC
echo over tcp | timeout 10 busybox nc 10.99.0.2 7100
wait; cat /tmp/got; echo "tcp packets $(($(sent) - before))"
rxe teardown
look >/tmp/after 2>&1
sed -i "s/^[0-9]*: //" /tmp/before /tmp/after
diff /tmp/before /tmp/after && echo same
ip rule | head -n 1

echo "== netdev"
ip link add dummy0 type dummy; ip addr add 10.1.1.1/24 dev dummy0; ip link set dummy0 up
rxe status
rxe setup --netdev dummy0
rxe status; rdma link
rxe setup --netdev dummy0
ibv_rc_pingpong -d rxe0 -g 1 >/dev/null &
listens :4853
rxe teardown
kill %%; wait
ip link show dummy0 >/dev/null && echo dummy stays
rdma link add mine type rxe netdev lo
rxe teardown
rxe status
rdma link del mine

echo "== refused"
ip link add link dummy0 name dummy0.5 type vlan id 5
rxe setup --netdev nosuch
rxe setup --netdev dummy0.5
ip route flush default; rxe setup
rdma link add rxe0 type rxe netdev lo; rxe setup --netdev dummy0
rdma link del rxe0; rdma link add other type rxe netdev dummy0; rxe setup --netdev dummy0
rxe setup --netdev; rxe setup --pair --netdev lo; rxe nonsense; rxe
setpriv --reuid=65534 --clear-groups bash ./rxe.sh setup --netdev lo; echo "rc=$?"
ls /run/rdma-lab-rxe

echo "== namespace"
ip netns add n0
ip netns exec n0 bash -c "ip link add d0 type dummy; ip link set d0 up
bash ./rxe.sh setup --netdev d0; echo rc=\$?
echo sockets \$(cat /proc/net/udp /proc/net/udp6 | grep -c :12B7); bash ./rxe.sh teardown" 2>&1
ip netns del n0

echo "== half"
rdma link del other; rdma link add rxe1 type rxe netdev dummy0
ip rule >/tmp/rules
rxe setup --pair
ip rule | diff /tmp/rules - && echo same rules
ip link show veth0; rdma link show rxe0/1; ls /run/rdma-lab-rxe
rdma link del rxe1

echo "== module"
rmmod rdma_rxe
rxe setup --netdev lo
PATH=/tmp/bin:$PATH
say() { printf "#!/bin/sh\necho \"modprobe: ERROR: could not insert: %s\" >&2; exit 1\n" "$1" >/tmp/bin/modprobe; chmod +x /tmp/bin/modprobe; }
release() { printf "#!/bin/sh\necho %s\n" "$1" >/tmp/bin/uname; chmod +x /tmp/bin/uname; }
say "Key was rejected by service"; rxe setup --netdev lo
say "Operation not permitted"; rxe setup --netdev lo
say "Module rdma_rxe not found in directory"
release 5.15.0-microsoft-standard-WSL2; rxe setup --netdev lo
release 6.1.0-1-cloud-amd64; rxe setup --netdev lo
release 6.8.0-1-aws; printf "ID=ubuntu\n" >/etc/os-release; rxe setup --netdev lo
'

oneTimeSetUp() { all=$(lab run --fresh --timeout 120 bash -c "$script" "$ROOT" 2>&1); }

# assert_part NAME CODES <PATTERNS: that part of it, and the exit codes of rxe.sh in it
assert_part() {
	local out pattern
	out=$(awk -v name="$1" '/^== / { on = $2 == name } on' <<<"$all")
	assertEquals "codes of: $out" "$2" "$(sed -n 's/^rc=//p' <<<"$out" | xargs)"
	while IFS= read -r pattern; do assert_in "$out" "$pattern"; done
}

test_pair_is_a_wire_and_leaves_nothing() {
	assert_part pair '0 0' <<-'END'
		link rxe0/1 state ACTIVE.* netdev veth0
		link rxe1/1 state ACTIVE.* netdev veth1
		^50 iters
		^packets [1-9][0-9]{2,}
		^over tcp$
		^tcp packets ([3-9]|[1-9][0-9])
		^same$
		^0:.*lookup local
	END
}

test_one_device_on_a_netdev() {
	assert_part netdev '1 0 0 1 0 0 0' <<-'END'
		link rxe0/1 state ACTIVE .*netdev dummy0
		rxe0 on dummy0: port 4: ACTIVE, made by rxe.sh
		set up already by this script
		a program still has rxe0 open
		dummy stays
		nothing here was made by this script
		mine on lo: .* made by somebody else
	END
}

# Every refusal says why before it changes anything.
test_refusals() {
	assert_part refused '1 1 1 1 1 2 2 2 2 77' <<-'END'
		no network device nosuch .*there are: .*dummy0
		dummy0.5 is a VLAN
		no default route
		named rxe0 exists already .*Too many open files
		dummy0 carries the Soft-RoCE device other already .*File exists
		needs root
		cannot access '/run/rdma-lab-rxe'
	END
}

# Whether rxe hears anything there depends on the kernel.
test_another_namespace() {
	if rxe_does listens-in-namespaces; then
		assert_part namespace 0 <<<'^sockets [12]$'
	else
		assert_part namespace 77 <<-'END'
			not the first network namespace
			^sockets 0$
		END
	fi
}

test_half_a_pair_is_undone() {
	assert_part half 1 <<-'END'
		named rxe1 exists already
		same rules
		"veth0" does not exist
		cannot access '/run/rdma-lab-rxe'
	END
	assert_not_in "$(awk '/^== half/, /^== module/' <<<"$all")" 'link rxe0/1'
}

# The guest's root has no /lib/modules for its kernel; other answers of modprobe
# are put in its mouth.
test_module_missing() {
	assert_part module '77 77 77 77 77 77' <<-'END'
		kernel .* has no module rdma_rxe
		Secure Boot refuses
		may not load kernel modules
		WSL2's kernel is built without
		cloud kernel has no rdma_rxe
		apt-get install linux-modules-extra-6.8.0-1-aws
	END
}

. shunit2
