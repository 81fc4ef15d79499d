#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# doctor.sh - is everything there that RDMA needs, and if not, what to do.
# "lab doctor" runs it where rxe0 is; in VM mode the host's part comes first.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

need_mib=520 # for the kernel, while it is unpacked, and the saved VM
here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
names=() states=() details=() fixes=()
sep=$'\x1f'

usage() {
	cat <<-'END'
	usage: doctor.sh [--lab | --host] [--json | --raw]

	(none)   check RDMA on this machine
	--lab    check it where "lab run" runs, and the VM's needs on this host
	--host   only what this host must have to run the VM
	--json   {"ok": bool, "checks": [{"name", "ok", "detail", "fix"}]},
	         ok is null where a check does not apply
	--raw    name, state, detail and fix, separated by the byte 0x1f

	Exit: 0 all is well, 1 something is not, 2 usage.
	END
}

# report NAME STATE DETAIL [FIX]; STATE is ok, bad or na
report() {
	names+=("$1")
	states+=("$2")
	details+=("$3")
	fixes+=("${4:-}")
}

# ---- the RDMA side

devices() {
	local d
	for d in /sys/class/infiniband/*; do
		[[ ! -e $d ]] || echo "${d##*/}"
	done
}

netdev_of() {
	local d=/sys/class/infiniband/$1
	cat "$d/parent" 2>/dev/null || cat "$d/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true
}

uverbs_of() {
	local u dev
	for u in /sys/class/infiniband_verbs/uverbs*; do
		! read -r dev 2>/dev/null <"$u/ibdev" || [[ $dev != "$1" ]] || echo "${u##*/}"
	done
}

check_modules() {
	local release
	release=$(uname -r)
	if [[ -e /sys/module/rdma_rxe ]]; then
		report "module rdma_rxe" ok "loaded, kernel $release"
	elif [[ $(devices) ]]; then
		report "module rdma_rxe" na "not loaded, but there is another RDMA device"
	elif modprobe -n rdma_rxe 2>/dev/null; then
		report "module rdma_rxe" bad "there, but not loaded" "sudo labs/rxe.sh setup"
	else
		report "module rdma_rxe" bad "kernel $release has none" "labs/rxe.sh setup says which package; or use the VM: LAB=vm labs/lab up"
	fi
	if [[ -e /sys/module/ib_uverbs ]]; then
		report "module ib_uverbs" ok "loaded"
	else
		report "module ib_uverbs" bad "not loaded: programs cannot reach a device" "modprobe ib_uverbs"
	fi
}

check_rdma_tool() {
	local version
	if version=$(rdma -V 2>/dev/null); then
		report "rdma tool" ok "$version"
	else
		report "rdma tool" bad "rdma is missing" "apt-get install iproute2"
	fi
}

check_devices() {
	local all
	all=$(devices | tr '\n' ' ')
	if [[ $all ]]; then
		report "RDMA device" ok "${all% }"
	else
		report "RDMA device" bad "there is none" "sudo labs/rxe.sh setup; or the VM: labs/lab up"
	fi
}

check_port() {
	local dev=$1 port state net
	net=$(netdev_of "$dev")
	for port in "/sys/class/infiniband/$dev/ports"/*; do
		state=$(<"$port/state")
		if [[ $state == *ACTIVE ]]; then
			report "port $dev/${port##*/}" ok "$state"
		else
			report "port $dev/${port##*/}" bad "$state: nothing can be sent" "ip link set ${net:-its netdev} up"
		fi
	done
	[[ $net && -e /sys/class/net/$net ]] || return 0
	# shellcheck disable=SC2046 # a number
	if (($(<"/sys/class/net/$net/flags") & 1)); then
		report "netdev $net of $dev" ok "up"
	else
		report "netdev $net of $dev" bad "down" "ip link set $net up"
	fi
}

# rxe takes 80 bytes of the netdev's MTU for headers, then rounds down.
expected_mtu() {
	local m
	for m in 4096 2048 1024 512 256; do
		[[ $(($1 - 80)) -lt $m ]] || break
	done
	echo "$m"
}

check_mtu() {
	local dev=$1 net mtu active want
	net=$(netdev_of "$dev")
	active=$(ibv_devinfo -d "$dev" 2>/dev/null | sed -n 's/.*active_mtu:[^0-9]*\([0-9]*\).*/\1/p') || true
	active=${active%%$'\n'*}
	if [[ ! $active || ! -r /sys/class/net/$net/mtu ]]; then
		report "active_mtu of $dev" na "could not be asked"
		return
	fi
	mtu=$(<"/sys/class/net/$net/mtu")
	want=$(expected_mtu "$mtu")
	if [[ $active != "$want" ]]; then
		report "active_mtu of $dev" bad "$active, but the MTU $mtu of $net allows $want" "ip link set $net down; ip link set $net up"
	elif [[ $active -lt 1024 ]]; then
		report "active_mtu of $dev" bad "$active: the MTU of $net is only $mtu" "ip link set $net mtu 1500"
	else
		report "active_mtu of $dev" ok "$active (MTU of $net is $mtu)"
	fi
}

# The kernel lists all slots; empty ones have no type.
check_gids() {
	local dev=$1 gids=/sys/class/infiniband/$1/ports/1 i gid type count=0 v4=
	for ((i = 0; i < 256; i++)); do
		read -r gid 2>/dev/null <"$gids/gids/$i" || break
		[[ $gid != 0000:0000:0000:0000:0000:0000:0000:0000 ]] || break
		read -r type 2>/dev/null <"$gids/gid_attrs/types/$i" || continue
		count=$((count + 1))
		[[ $v4 || $type != *v2 || $gid != 0000:0000:0000:0000:0000:ffff:* ]] || v4=$i
	done
	if [[ $v4 ]]; then
		report "GIDs of $dev" ok "$count, number $v4 is RoCE v2 with IPv4"
	else
		report "GIDs of $dev" bad "$count, none is RoCE v2 with an IPv4 address" "ip addr add 10.99.0.1/24 dev $(netdev_of "$dev")"
	fi
}

check_uverbs() {
	local dev=$1 node
	node=/dev/infiniband/$(uverbs_of "$dev")
	if [[ ! -c $node ]]; then
		report "device node of $dev" bad "$node is missing (a container?)" "docker run --device /dev/infiniband; or modprobe ib_uverbs"
	elif [[ ! -r $node || ! -w $node ]]; then
		report "device node of $dev" bad "$node may not be read and written by $(id -un)" "sudo chmod 666 $node (udev rule of rdma-core does it)"
	else
		report "device node of $dev" ok "$node can be read and written"
	fi
}

check_provider() {
	local dev=$1
	if ! command -v ibv_devices >/dev/null; then
		report "libibverbs finds $dev" bad "ibv_devices is missing" "apt-get install ibverbs-utils ibverbs-providers"
	elif grep -q "^ *${dev}[[:space:]]" <<<"$(ibv_devices 2>/dev/null)"; then
		report "libibverbs finds $dev" ok "$(find_provider)"
	elif [[ $(find_provider) == none ]]; then
		report "libibverbs finds $dev" bad "there is no provider library for rxe" "apt-get install ibverbs-providers"
	else
		report "libibverbs finds $dev" bad "not listed by ibv_devices" "see the device node; or library and provider differ in version: reinstall ibverbs-providers"
	fi
}

find_provider() {
	local lib
	lib=$(compgen -G '/usr/lib*/*/libibverbs/librxe-rdmav*.so' || compgen -G '/usr/lib*/libibverbs/librxe-rdmav*.so' || true)
	echo "${lib:-none}"
}

# CAP_IPC_LOCK (bit 14) lifts the limit.
check_memlock() {
	local limit caps
	limit=$(ulimit -l)
	caps=0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
	if [[ $limit == unlimited ]] || ((limit >= 1024)); then
		report "memlock limit" ok "$limit$([[ $limit == unlimited ]] || echo ' KiB')"
	elif ((caps >> 14 & 1)); then
		report "memlock limit" ok "$limit KiB, but this user may lock more (CAP_IPC_LOCK)"
	else
		report "memlock limit" bad "$limit KiB: ibv_reg_mr will fail with ENOMEM" "ulimit -l unlimited, or memlock in /etc/security/limits.conf"
	fi
}

check_namespace() {
	if [[ -e /proc/sys/net/core/netdev_budget ]]; then
		report "network namespace" ok "the first one"
	elif [[ ! -e /sys/module/rdma_rxe ]]; then
		report "network namespace" na "not the first one: rxe works here since Linux 7.1"
	elif grep -q ' rxe_ns_' /proc/kallsyms; then
		report "network namespace" ok "not the first one, and this kernel's rxe listens in each"
	else
		report "network namespace" bad "not the first one: this kernel's rxe receives no packets (UDP 4791) here" "run on the host, docker run --network host, or use the VM: LAB=vm"
	fi
	if [[ -e /run/rdma-lab-vm ]]; then
		report "container" ok "none: this is the lab's VM"
	elif [[ -e /.dockerenv || -e /run/.containerenv || ${container:-} ]]; then
		report "container" na "this is one: it needs --network host, --device /dev/infiniband, --ulimit memlock=-1"
	else
		report "container" ok "none"
	fi
}

# Best effort: a rule that names the port and drops, or a closed policy.
firewall_says() {
	local rules
	rules=$({ nft list ruleset || true; iptables -S; ip6tables -S; } 2>/dev/null) || true
	if grep -Eq 'dport.*\b4791\b.*(drop|reject|DROP|REJECT)' <<<"$rules"; then
		echo "a rule drops it: $(grep -Em1 'dport.*\b4791\b.*(drop|reject|DROP|REJECT)' <<<"$rules" | xargs)"
	elif grep -Eq 'hook input.*policy drop|^-P INPUT DROP' <<<"$rules" && ! grep -q 4791 <<<"$rules"; then
		echo "the input policy is to drop, and no rule accepts it"
	fi
}

check_udp_port() {
	local why
	# Without a device, newer kernels (seen: 7.2) do not listen.
	if [[ ! -e /sys/module/rdma_rxe ]] || ! compgen -G '/sys/class/infiniband/*' >/dev/null; then
		report "UDP port 4791" na "no rxe here"
		return
	fi
	if ! grep -qs ':12B7 ' /proc/net/udp /proc/net/udp6; then
		report "UDP port 4791" bad "rxe does not listen on it here" "give rxe a network device of this namespace: labs/rxe.sh setup; or rmmod rdma_rxe and modprobe it on the host"
		return
	fi
	why=$(firewall_says)
	if [[ $why ]]; then
		report "UDP port 4791" bad "$why" "nft add rule inet filter input udp dport 4791 accept (or ufw allow 4791/udp)"
	elif [[ $EUID != 0 ]]; then
		report "UDP port 4791" ok "rxe listens (the firewall can be read only by root)"
	else
		report "UDP port 4791" ok "rxe listens, no firewall rule against it"
	fi
}

check_rdma() {
	local dev
	check_modules
	check_rdma_tool
	check_devices
	for dev in $(devices); do
		check_port "$dev"
		check_mtu "$dev"
		check_gids "$dev"
		check_uverbs "$dev"
		check_provider "$dev"
	done
	check_memlock
	check_namespace
	check_udp_port
}

# ---- the VM's host side

check_program() {
	if command -v "$1" >/dev/null; then
		report "$1" ok "$(command -v "$1")"
	else
		report "$1" bad "missing" "sudo labs/deps.sh $2"
	fi
}

# What is needed until the kernel is in the cache
check_unpacking() {
	check_program xz lab
	check_program zstd lab
}

check_kvm() {
	local answer
	answer=$(cat "$cache/kvm-$(</proc/sys/kernel/random/boot_id)" 2>/dev/null) || answer=
	if [[ $arch != "$host_arch" ]]; then
		report "KVM" na "$arch is emulated on this $host_arch machine"
	elif [[ ! -e /dev/kvm ]]; then
		report "KVM" na "no /dev/kvm: the VM is emulated, which is slower but enough"
	elif [[ ! -r /dev/kvm || ! -w /dev/kvm ]]; then
		report "KVM" na "/dev/kvm is not for $(id -un): the VM is emulated (faster: adduser $(id -un) kvm)"
	elif [[ $answer == no ]]; then
		report "KVM" na "/dev/kvm is there, but a guest hangs under it: the VM is emulated"
	else
		report "KVM" ok "${answer:-not tried yet}"
	fi
}

# The agent runs in the VM before there is a libc.
check_static_libc() {
	if [[ $("$guest_cc" ${cross:+"--sysroot=$fs"} -print-file-name=libc.a 2>/dev/null) == */* ]]; then
		report "static libc" ok "there"
	else
		report "static libc" bad "libc.a is missing" "sudo labs/deps.sh build"
	fi
}

check_kernel() {
	if [[ -s $cache/kernel$mark-host/version ]]; then
		report "kernel for the VM" ok "$(<"$cache/kernel$mark-host/version") in $cache"
	elif compgen -G "/lib/modules/$(uname -r)/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null &&
		[[ -r /boot/vmlinuz-$(uname -r) ]]; then
		report "kernel for the VM" ok "this host's own"
	elif command -v apt-get >/dev/null; then
		report "kernel for the VM" ok "not here yet, apt can fetch it"
	else
		report "kernel for the VM" bad "not here, and no apt to fetch it with" "labs/lab up --kernel /DIR, with the .deb files of Debian's kernel in it"
	fi
}

check_disk() {
	local dir=$cache free
	while [[ ! -d $dir ]]; do dir=$(dirname "$dir"); done
	free=$(($(stat -f -c '%a * %S' "$dir") / 1048576))
	if [[ ! -w $dir ]]; then
		report "cache" bad "$dir may not be written" "set RDMA_LAB_CACHE to a directory of yours"
	elif [[ $free -lt $need_mib && ! -s $cache/kernel$mark-host/version ]] || [[ $free -lt 300 ]]; then
		report "cache" bad "only $free MiB free in $dir" "make room, or set RDMA_LAB_CACHE"
	else
		report "cache" ok "$cache, $free MiB free"
	fi
}

check_host() {
	# shellcheck source=labs/vm/arch.sh disable=SC1091
	. "$here/vm/arch.sh"
	[[ $debian_arch ]] || report "machine" bad "the VM is made for x86_64 and aarch64, this is $arch" "native Soft-RoCE: labs/rxe.sh setup"
	check_program "$qemu_program" "$qemu_group"
	check_program busybox lab
	check_program modprobe lab
	check_program cc build
	[[ $guest_cc == "$host_cc" ]] || check_program "$guest_cc" "$guest_cc_group"
	check_static_libc
	[[ -s $cache/kernel$mark-host/version ]] || check_unpacking
	check_kvm
	check_kernel
	check_disk
}

# The guest's own findings, taken over one by one.
check_guest() {
	local name state detail fix n=0
	while IFS=$sep read -r name state detail fix; do
		report "VM: $name" "$state" "$detail" "$fix"
		n=$((n + 1))
	done < <(LAB=vm "$here/lab" run --timeout 60 "$here/doctor.sh" --raw)
	[[ $n -gt 0 ]] || report "VM" bad "it does not start" "labs/lab up says why"
}

check_lab() {
	if [[ ${LAB:-auto} == native || (${LAB:-auto} == auto && $(devices)) ]]; then
		check_rdma
		return
	fi
	check_host
	all_well && check_guest
}

# ---- telling

all_well() {
	local s
	for s in "${states[@]}"; do
		[[ $s != bad ]] || return 1
	done
}

json_string() {
	local s=$1
	s=${s//\\/\\\\}
	s=${s//\"/\\\"}
	s=${s//$'\n'/\\n}
	s=${s//$'\t'/\\t}
	printf '"%s"' "${s//[[:cntrl:]]/ }"
}

print_json() {
	local i ok
	all_well && ok=true || ok=false
	printf '{"ok":%s,"checks":[' "$ok"
	for i in "${!names[@]}"; do
		case ${states[i]} in ok) ok=true ;; bad) ok=false ;; *) ok=null ;; esac
		[[ $i == 0 ]] || printf ','
		printf '\n{"name":%s,"ok":%s,"detail":%s,"fix":%s}' "$(json_string "${names[i]}")" \
			"$ok" "$(json_string "${details[i]}")" "$(json_string "${fixes[i]}")"
	done
	printf ']}\n'
}

print_table() {
	local i mark
	for i in "${!names[@]}"; do
		case ${states[i]} in ok) mark=✓ ;; bad) mark=✗ ;; *) mark=– ;; esac
		printf '%s %-26s %s\n' "$mark" "${names[i]}" "${details[i]}"
		[[ ! ${fixes[i]} ]] || printf '  %-26s fix: %s\n' '' "${fixes[i]}"
	done
}

print_raw() {
	local i
	for i in "${!names[@]}"; do
		printf "%s$sep%s$sep%s$sep%s\n" "${names[i]}" "${states[i]}" "${details[i]//$'\n'/ }" "${fixes[i]}"
	done
}

what=rdma how=table
cache=${RDMA_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-~}/.cache}/rdma-lab}
while [[ $# -gt 0 ]]; do
	case $1 in
	--lab | --host) what=${1#--} ;;
	--json | --raw) how=${1#--} ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
	shift
done
"check_$what" || true
"print_$how"
all_well
