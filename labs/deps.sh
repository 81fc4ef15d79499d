#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# deps.sh - install the Debian packages that are missing, and say what for.
set -euo pipefail

usage() {
	cat <<-'END'
	usage: deps.sh [--check] [build] [lab] [test] [bench]

	build    to compile the course
	lab      to run it in the VM (default: build lab)
	test     to test and check it
	bench    to compare it with others
	--check  only tell what is missing (exit 1)
	END
}

packages_of() {
	case $1 in
	build)
		cat <<-'END'
		gcc the C compiler
		make the build
		libc6-dev C headers and static libc (the VM's agent)
		libibverbs-dev verbs headers and library
		libjansson-dev JSON, for --json
		libucx-dev UCX, for tag matching
		libssl-dev SHA-1 for UCX-Py's tags, SHA-256 for the engine's token
		libisal-dev CRC-32C, for the needle store
		libmsgpack-dev MessagePack, for the engine's messages
		uuid-dev UUIDs, for the engine's sessions
		END
		;;
	lab)
		cat <<-'END'
		qemu-system-x86 runs the VM
		busybox-static the VM's first steps
		kmod finds the kernel modules for the VM
		cpio looks into the VM's initramfs
		xz-utils unpacks the kernel
		iproute2 ip and rdma
		rdma-core udev rules and rdma configuration
		ibverbs-utils ibv_devices, ibv_devinfo, ibv_rc_pingpong
		ibverbs-providers the user-space driver of rxe
		perftest ib_send_lat, ib_send_bw
		jq reads JSON
		procps ps, pgrep and pkill
		END
		;;
	test)
		cat <<-'END'
		shunit2 the tests' frame
		shellcheck checks the scripts
		cppcheck checks the C sources
		clang a second compiler, and its analyzer
		clang-format checks the layout
		valgrind memory errors
		tshark reads the packets
		nftables a firewall for the doctor to find
		libclang-rt-14-dev sanitizers for clang
		rdmacm-utils rping, for the recorder to record
		ucx-utils ucx_perftest, for the same, and for lesson 08
		chromium opens the recorder's report
		END
		;;
	bench)
		cat <<-'END'
		iperf3 TCP throughput, for the NCCL net plugin
		sockperf TCP latency, for the same
		ucx-utils ucx_perftest, for tag matching
		END
		;;
	esac
}

# missing GROUP...: the lines of packages_of that are not installed
missing() {
	local group lines installed
	lines=$(for group in "$@"; do packages_of "$group"; done)
	# shellcheck disable=SC2046 # a list of names
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(cut -d' ' -f1 <<<"$lines") 2>/dev/null |
		sed -n 's/^installed //p') || true
	awk 'NR == FNR { have[$1] = 1; next } !($1 in have)' <(printf '%s\n' "$installed") <(printf '%s\n' "$lines")
}

as_root() {
	if [[ $EUID == 0 ]]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "deps: root is needed and there is no sudo" >&2
		echo "deps: next: as root, run $0 ${groups[*]}" >&2
		exit 77
	fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# What apt would fetch and fill, from a dry run; empty if it knows no candidate.
size_of() {
	LC_ALL=C apt-get install --no-install-recommends --assume-no "$@" 2>/dev/null |
		sed -n 's/^Need to get \(.*\) of archives.*/\1 to fetch/p; s/^After this operation, \(.*\) of additional.*/\1 on disk/p' |
		paste -sd, || true
}

check=
groups=()
while [[ $# -gt 0 ]]; do
	case $1 in
	--check) check=1 ;;
	build | lab | test | bench) groups+=("$1") ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
	shift
done
[[ ${#groups[@]} -gt 0 ]] || groups=(build lab)
command -v dpkg-query >/dev/null || {
	echo "deps: this is not a Debian or Ubuntu; install by hand:" >&2
	for g in "${groups[@]}"; do packages_of "$g"; done >&2
	exit 77
}

lines=$(missing "${groups[@]}")
[[ $lines ]] || exit 0
mapfile -t wanted < <(cut -d' ' -f1 <<<"$lines")
while read -r package what; do
	echo "missing: $package ($what)"
done <<<"$lines"
if [[ $check ]]; then
	echo "next: labs/deps.sh ${groups[*]}"
	exit 1
fi

size=$(size_of "${wanted[@]}")
if [[ ! $size ]]; then
	apt update
	size=$(size_of "${wanted[@]}")
fi
echo "installing ${#wanted[@]} packages${size:+: $size}"
apt install --no-install-recommends -y "${wanted[@]}" >/dev/null || {
	apt update
	apt install --no-install-recommends -y "${wanted[@]}" >/dev/null
}
