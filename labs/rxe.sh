#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# rxe.sh - Soft-RoCE on this machine: make it, take it away, look at it.
# The lab VM makes its rxe0 and rxe1 with this very script (setup --pair).
#
# Each step that changes something first writes down how to undo it, so a
# set-up that fails half-way, and teardown, walk the same list backwards.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

state=/run/rdma-lab-rxe
force=

usage() {
	cat <<-'END'
	usage: rxe.sh setup [--netdev DEV | --pair] [--force]
	       rxe.sh teardown | status

	setup       rxe0 on DEV (default: the device of the default route)
	  --pair    rxe0 (10.99.0.1) and rxe1 (10.99.0.2) on a veth pair, with
	            routing rules that make their packets cross it
	  --force   even in a network namespace where no packet would arrive
	teardown    remove only what setup made
	status      show the devices (exit 1: no Soft-RoCE device)

	Exit: 0 done, 1 failed, 2 usage, 77 cannot be done on this machine.
	END
}

# die CODE CAUSE NEXT
die() {
	echo "rxe: $2" >&2
	echo "rxe: next: $3" >&2
	exit "$1"
}

use_vm="use the lab's VM, which needs none of this: labs/lab up"

# ---- what is there

rxe_devices() {
	local d
	for d in /sys/class/infiniband/*; do
		[[ ! -e $d/parent ]] || echo "${d##*/}"
	done
}

# The sysctls of the first network namespace are not shown in the others.
first_netns() { [[ -e /proc/sys/net/core/netdev_budget ]]; }

# Since Linux 7.1 rxe has sockets in each namespace, and functions for them.
rxe_knows_namespaces() { grep -q ' rxe_ns_' /proc/kallsyms; }

is_vlan() { [[ -e /proc/net/vlan/$1 ]] || [[ $(ip -d link show "$1") == *' vlan protocol '* ]]; }

kernel_lacks_rdma() {
	{ zcat /proc/config.gz || cat "/boot/config-$(uname -r)"; } 2>/dev/null |
		grep '^# CONFIG_INFINIBAND is not set' >/dev/null
}

# ---- what can be wrong, said before it goes wrong

module_package() {
	local release id=
	release=$(uname -r)
	# shellcheck disable=SC1091
	[[ ! -r /etc/os-release ]] || id=$(. /etc/os-release && echo "${ID:-}")
	if [[ $release == *icrosoft* ]]; then
		echo "WSL2's kernel is built without InfiniBand; $use_vm"
	elif kernel_lacks_rdma; then
		echo "this kernel is built without InfiniBand; $use_vm"
	elif [[ $id == ubuntu ]]; then
		echo "apt-get install linux-modules-extra-$release"
	elif [[ $release == *cloud* ]]; then
		echo "apt-get install linux-image-${release##*-} (the cloud kernel has no rdma_rxe), reboot; or $use_vm"
	else
		echo "install the kernel package that holds rdma_rxe for $release; or $use_vm"
	fi
}

need_module() {
	local why
	[[ -e /sys/module/rdma_rxe ]] && return
	modprobe -q crc32_generic 2>/dev/null || true
	why=$(modprobe rdma_rxe 2>&1) && return
	case $why in
	*"not found"*) die 77 "kernel $(uname -r) has no module rdma_rxe" "$(module_package)" ;;
	*"Key was rejected"*) die 77 "Secure Boot refuses rdma_rxe: it is not signed with a key the firmware knows" \
		"use the distribution's own signed module, or enrol the key (mokutil --import), or $use_vm" ;;
	*"not permitted"*) die 77 "this container may not load kernel modules" "modprobe rdma_rxe on the host; or $use_vm" ;;
	*) die 77 "modprobe rdma_rxe failed: $why" "look at dmesg; or $use_vm" ;;
	esac
}

need_machine() {
	[[ $EUID = 0 ]] || die 77 "making a Soft-RoCE device needs root" "sudo $0 setup; or $use_vm"
	command -v rdma >/dev/null || die 77 "the rdma tool is missing" "apt-get install iproute2"
	need_module
	if ! first_netns && ! rxe_knows_namespaces && [[ ! $force ]]; then
		die 77 "this is not the first network namespace (a container?): this kernel's rxe listens for UDP 4791 only there, so connections are made but no packet arrives" \
			"run on the host or with --network host; or $use_vm (--force: do it anyway)"
	fi
}

# check_free NAME NETDEV: everything that rdma link add would refuse
check_free() {
	local name=$1 dev=$2 d
	[[ -e /sys/class/net/$dev ]] ||
		die 1 "there is no network device $dev (there are: $(cd /sys/class/net && echo *))" "choose one with --netdev"
	[[ ! -e /sys/class/infiniband/$name ]] ||
		die 1 "an RDMA device named $name exists already (rdma link add would say: Too many open files in system)" \
			"use it; or remove it: rdma link del $name"
	for d in $(rxe_devices); do
		[[ $(<"/sys/class/infiniband/$d/parent") != "$dev" ]] ||
			die 1 "$dev carries the Soft-RoCE device $d already (rdma link add would say: File exists)" \
				"use $d; or remove it: rdma link del $d"
	done
	! is_vlan "$dev" ||
		die 1 "$dev is a VLAN: rxe goes on a real device only" "use its parent; the VLAN is then reached through the parent's GIDs"
}

# ---- doing and undoing

# step UNDO CMD...: note how to undo it, then do it
step() {
	printf '%s\n' "$1" >>"$state/undo"
	shift
	"$@"
}

undo_all() {
	local line
	touch "$state/undo"
	tac "$state/undo" | while read -r line; do
		eval "$line" 2>/dev/null || true
	done
	rm -rf "$state"
}

# A device vanishes at once, but the command waits, deaf to signals, until no
# program has it open: do not wait with it for ever.
del_link() {
	local pid i
	[[ -e /sys/class/infiniband/$1 ]] || return 0
	rdma link del "$1" >/dev/null 2>&1 </dev/null &
	pid=$!
	for ((i = 0; i < 30; i++)); do
		kill -0 "$pid" 2>/dev/null || return 0
		sleep 0.1
	done
	disown "$pid"
	echo "rxe: a program still has $1 open; it is gone when that program ends"
}

add_link() {
	local name=$1 dev=$2 why
	check_free "$name" "$dev"
	printf 'del_link %s\n' "$name" >>"$state/undo"
	why=$(rdma link add "$name" type rxe netdev "$dev" 2>&1) && [[ -e /sys/class/infiniband/$name ]] && return
	if ! grep -q '^name *: crc32$' /proc/crypto; then
		die 1 "the kernel's crc32 is missing, rxe needs it (rdma link add: $why)" "modprobe crc32_generic"
	elif [[ ! -e /sys/module/rdma_rxe ]]; then
		die 1 "the module rdma_rxe went away (rdma link add: $why)" "modprobe rdma_rxe"
	fi
	die 1 "rdma link add $name type rxe netdev $dev: ${why:-no device came}" "look at dmesg; or $use_vm"
}

# Two devices on one machine would short-circuit: the kernel delivers packets
# for a local address without a wire. Here "local" is asked only for packets
# that come in by a veth, or that go from an address to itself.
make_pair() {
	local i j
	[[ ! -e /sys/class/net/veth0 && ! -e /sys/class/net/veth1 ]] ||
		die 1 "a network device veth0 or veth1 exists already" "remove it, or use --netdev"
	step 'ip link del veth0' \
		ip link add veth0 mtu 4200 address 02:99:00:00:00:01 type veth \
		peer name veth1 mtu 4200 address 02:99:00:00:00:02
	for i in 0 1; do
		j=$((2 - i)) # the peer is known without ARP, which costs a second
		echo 1 >"/proc/sys/net/ipv4/conf/veth$i/accept_local"
		echo 0 >"/proc/sys/net/ipv4/conf/veth$i/rp_filter"
		# A link that comes up can use fe80:: at once: nobody else can have it there.
		[[ ! -e /proc/sys/net/ipv6 ]] || echo 0 >"/proc/sys/net/ipv6/conf/veth$i/accept_dad"
		ip addr add "10.99.0.$((i + 1))/24" dev "veth$i"
		ip link set "veth$i" up
		ip neigh replace "10.99.0.$j" lladdr "02:99:00:00:00:0$j" dev "veth$i"
		ip neigh replace "fe80::99:ff:fe00:$j" lladdr "02:99:00:00:00:0$j" dev "veth$i"
	done
	ip route add 10.99.0.2 dev veth0 src 10.99.0.1
	ip route add 10.99.0.1 dev veth1 src 10.99.0.2
	for i in 0 1; do
		j=10.99.0.$((i + 1))
		step "ip rule del pref 1$i" ip rule add pref "1$i" iif "veth$i" lookup local
		step "ip rule del pref 2$i" ip rule add pref "2$i" from "$j" to "$j" lookup local
		step "ip rule del pref 3$i" ip rule add pref "3$i" to "$j" lookup main
	done
	step 'ip rule del pref 40' ip rule add pref 40 lookup local
	step 'ip rule add pref 0 lookup local' ip rule del pref 0
	add_link rxe0 veth0
	add_link rxe1 veth1
}

default_netdev() {
	ip -o route show default | awk '!seen && sub(/.* dev /, "") { print $1; seen = 1 }'
}

cmd_setup() {
	local pair='' dev=''
	while [[ $# -gt 0 ]]; do
		case $1 in
		--pair) pair=1 ;;
		--netdev)
			dev=${2:-}
			[[ $dev ]] || { usage >&2 && exit 2; }
			shift
			;;
		--force) force=1 ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift
	done
	[[ ! $pair || ! $dev ]] || { usage >&2 && exit 2; }
	need_machine
	[[ ! -e $state/undo ]] || die 1 "set up already by this script" "$0 teardown"
	if [[ ! $pair && ! $dev ]]; then
		dev=$(default_netdev)
		[[ $dev ]] || die 1 "there is no default route to take the network device from" "setup --netdev DEV, or --pair"
	fi
	install -d -m 700 "$state"
	trap 'undo_all' EXIT
	if [[ $pair ]]; then make_pair; else add_link rxe0 "$dev"; fi
	trap - EXIT
	rdma link show rxe0/1
}

cmd_teardown() {
	[[ $EUID = 0 ]] || die 77 "taking a Soft-RoCE device away needs root" "sudo $0 teardown"
	[[ -e $state/undo ]] || { echo "rxe: nothing here was made by this script"; return; }
	undo_all
	echo "rxe: removed"
}

cmd_status() {
	local d n=0
	for d in $(rxe_devices); do
		n=$((n + 1))
		echo "$d on $(<"/sys/class/infiniband/$d/parent"): port $(<"/sys/class/infiniband/$d/ports/1/state")," \
			"made by $([[ -e $state/undo ]] && grep -q "^del_link $d\$" "$state/undo" && echo rxe.sh || echo "somebody else")"
	done
	[[ $n -gt 0 ]] || { echo "no Soft-RoCE device"; return 1; }
}

case ${1:-} in
setup) shift && cmd_setup "$@" ;;
teardown) cmd_teardown ;;
status) cmd_status ;;
-h | --help) usage ;;
*) usage >&2 && exit 2 ;;
esac
