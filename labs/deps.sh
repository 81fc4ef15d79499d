#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# deps.sh - see what is missing, whatever brought the rest, and install it with
# apt, dnf or pacman.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

usage() {
	cat <<-'END'
	usage: deps.sh [--check] [build] [lab] [wire] [test] [dev] [bench] [arm64]

	build    to compile the course
	lab      to run it in the VM (default: build lab)
	wire     to show the packets (labs/lab capture)
	test     to test it, as make test does
	dev      to change it: linters, sanitizers, fuzzers, a browser
	bench    to compare it with other programs
	arm64    to test it on an emulated ARM machine
	--check  only list what is missing

	Exit: 0 nothing is missing, 1 something is missing and can be installed, 2 usage,
	77 only things are missing that this system has no package for.
	END
}

cc=${CC:-cc}
case $(uname -m) in
aarch64) qemu=qemu-system-aarch64 qemu_deb=qemu-system-arm ;;
*) qemu=qemu-system-x86_64 qemu_deb=qemu-system-x86 ;;
esac
qemu_rpm=${qemu%_64}

# One need in a row: its group, what shows that it is met (see has(); with |, any
# of them), the package that brings it per family (with |, the first that the
# release has; - where there is none), and what for.
needs() {
	cat <<-END
	# group  met by                  Debian, Ubuntu                   Fedora                         Arch
	build    program:$cc             gcc                              gcc                            gcc               the C compiler
	build    program:make            make                             make                           make              the build
	build    program:pkg-config      pkg-config                       pkgconf-pkg-config             pkgconf           tells how to link the libraries
	build    header:stdlib.h         libc6-dev                        glibc-devel                    glibc             C headers
	build    archive:libc.a          libc6-dev                        glibc-static                   glibc             static libc (the VM's agent)
	build    module:libibverbs       libibverbs-dev                   rdma-core-devel                rdma-core         verbs headers and library
	build    module:librdmacm        librdmacm-dev                    rdma-core-devel                rdma-core         connects by IP address, for --cm
	build    module:jansson          libjansson-dev                   jansson-devel                  jansson           JSON, for --json
	build    module:ucx              libucx-dev                       ucx-devel                      openucx           UCX, for tag matching
	build    module:libcrypto        libssl-dev                       openssl-devel                  openssl           SHA-1 for UCX-Py's tags, SHA-256 for the engine's token
	build    module:libisal          libisal-dev                      isa-l-devel                    isa-l             CRC-32C, for the needle store
	build    module:msgpack-c|msgpack  libmsgpack-c-dev|libmsgpack-dev  msgpack-c-devel|msgpack-devel  msgpack-c       MessagePack, for the engine's messages
	build    module:libprotobuf-c    libprotobuf-c-dev                protobuf-c-devel               protobuf-c        the report's traces for Perfetto
	build    program:protoc-c        protobuf-c-compiler              protobuf-c-compiler            protobuf-c        makes their code
	build    module:uuid             uuid-dev                         libuuid-devel                  util-linux-libs   UUIDs, for the engine's sessions
	lab      program:$qemu           $qemu_deb                        $qemu_rpm                      $qemu_rpm         runs the VM
	lab      static:busybox          busybox-static                   busybox                        busybox           the VM's first steps
	lab      program:modprobe        kmod                             kmod                           kmod              finds the kernel modules for the VM
	lab      program:xz              xz-utils                         xz                             xz                unpacks the kernel
	lab      program:zstd            zstd                             zstd                           zstd              unpacks the kernel, since Debian 13
	lab      program:rdma            iproute2                         iproute                        iproute2          ip and rdma
	lab      program:tc              iproute2                         iproute-tc                     iproute2          delays and loses packets
	lab      path:/usr/lib/udev/rules.d/*rdma*  rdma-core             rdma-core                      rdma-core         udev rules and rdma configuration
	lab      program:ibv_devinfo     ibverbs-utils                    libibverbs-utils               rdma-core         ibv_devices, ibv_devinfo, ibv_rc_pingpong
	lab      provider:rxe            ibverbs-providers                libibverbs                     rdma-core         the user-space driver of rxe
	lab      program:ib_send_lat     perftest                         perftest                       -                 ib_send_lat, ib_send_bw
	lab      program:jq              jq                               jq                             jq                reads JSON
	lab      program:pgrep           procps                           procps-ng                      procps-ng         ps, pgrep and pkill
	lab      program:ping            iputils-ping                     iputils                        iputils           asks whether an address is there
	lab      program:tcpdump         tcpdump                          tcpdump                        tcpdump           keeps the packets
	lab      program:nft             nftables                         nftables                       nftables          a firewall, to have one in the way
	wire     program:tshark          tshark                           wireshark-cli                  wireshark-cli     reads the packets
	test     program:shunit2         shunit2                          shunit2                        shunit2           the tests' frame
	test     program:tshark          tshark                           wireshark-cli                  wireshark-cli     reads the packets
	test     program:xmllint         libxml2-utils                    libxml2                        libxml2           reads the marks as GitLab does
	test     program:man             man-db                           man-db                         man-db            checks the manual pages
	dev      program:shellcheck      shellcheck                       ShellCheck                     shellcheck        checks the scripts
	dev      program:cppcheck        cppcheck                         cppcheck                       cppcheck          checks the C sources
	dev      program:clang           clang                            clang                          clang             a second compiler, and its analyzer
	dev      program:clang-format    clang-format                     clang-tools-extra              clang             checks the layout
	dev      fuzzer:clang            libclang-rt-dev                  compiler-rt                    compiler-rt       sanitizers and libFuzzer for clang
	dev      program:valgrind        valgrind                         valgrind                       valgrind          memory errors
	test     program:rping           rdmacm-utils                     librdmacm-utils                rdma-core         rping, for the recorder to record
	dev      program:ucx_perftest    ucx-utils                        ucx                            openucx           ucx_perftest, for the same, and for lesson 13
	test     program:protoc          protobuf-compiler                protobuf-compiler              protobuf          reads those traces
	dev      program:chromium        chromium                         chromium                       chromium          opens the recorder's report
	dev      path:/usr/lib*/python3*/*-packages/pyverbs  python3-pyverbs   python3-pyverbs                -                 verbs in Python, for the saboteur to spoil
	bench    program:iperf3          iperf3                           iperf3                         iperf3            TCP throughput, for the NCCL net plugin
	bench    program:sockperf        sockperf                         sockperf                       -                 TCP latency, for the same
	bench    path:/usr/bin/time      time                             time                             time              what memory a report takes
	bench    program:ucx_perftest    ucx-utils                        ucx                            openucx           ucx_perftest, for tag matching
	arm64    program:qemu-system-aarch64  qemu-system-arm             qemu-system-aarch64            qemu-system-aarch64  runs the VM as an ARM machine
	arm64    program:aarch64-linux-gnu-gcc  gcc-aarch64-linux-gnu     gcc-aarch64-linux-gnu          aarch64-linux-gnu-gcc  compiles for it
	arm64    program:qemu-aarch64-static|qemu-aarch64  qemu-user-static|qemu-user  qemu-user-static-aarch64  qemu-user-static  runs single programs of it
	END
}

# has KIND WHAT
has() {
	case $1 in
	program) command -v "$2" ;;
	module) pkg-config --exists "$2" ;;
	header) "$cc" -E -include "$2" -x c /dev/null ;;
	# A compiler that does not find it gives the name back.
	archive) [[ $("$cc" -print-file-name="$2") == */* ]] ;;
	# It runs where there is no libc.
	static) command -v "$2" && ! ldd "$(command -v "$2")" | grep '=>' ;;
	provider) compgen -G "/usr/lib*/libibverbs/lib$2-*.so" || compgen -G "/usr/lib*/*/libibverbs/lib$2-*.so" ;;
	# What has no main() links only where libFuzzer brings one.
	fuzzer) "$2" -x c - -fsanitize=fuzzer,address -o /dev/null <<<'int LLVMFuzzerTestOneInput(void) { return 0; }' ;;
	path) compgen -G "$2" ;;
	esac >/dev/null 2>&1
}

is_met() { # KIND:WHAT|WHAT...
	local what all
	IFS='|' read -ra all <<<"${1#*:}"
	for what in "${all[@]}"; do
		! has "${1%%:*}" "$what" || return 0
	done
	return 1
}

# look: into $missing, lines "NAMES WHAT FOR", NAMES being packages of $family, or
# what is looked for where there is none
look() {
	local group met deb rpm arch what names
	missing=()
	while read -r group met deb rpm arch what; do
		[[ " ${groups[*]} " == *" $group "* ]] || continue
		! is_met "$met" || continue
		case $family in
		dnf) names=$rpm ;;
		pacman) names=$arch ;;
		*) names=$deb ;;
		esac
		[[ $names != - ]] || names=${met#*:}
		missing+=("$names $what")
	done < <(needs)
}

# known NAME...: those that the release has. Ubuntu's chromium is a stub that
# wants a snap, which does not run in a container: as good as none.
known() {
	case $family in
	apt)
		LC_ALL=C apt-cache policy "$@" 2>/dev/null | awk '
			/^[^ ]/ { name = $1; sub(/:.*/, "", name) }
			$1 == "Candidate:" && $2 != "(none)" &&
			!(name == "chromium" && $2 ~ /ubuntu/) { print name }'
		;;
	dnf) dnf -q repoquery --qf '%{name}\n' "$@" 2>/dev/null ;;
	pacman) for name; do ! pacman -Si "$name" >/dev/null 2>&1 || echo "$name"; done ;;
	esac
}

# choose: into $wanted, for each of $missing the first of its names that is known
choose() {
	local line name all
	# shellcheck disable=SC2046 # a list of names
	all=$(known $(printf '%s\n' "${missing[@]%% *}" | tr '|' '\n' | sort -u)) || true
	wanted=()
	for line in "${missing[@]}"; do
		for name in $(tr '|' ' ' <<<"${line%% *}"); do
			[[ $'\n'$all$'\n' != *$'\n'"$name"$'\n'* ]] || { wanted[$name]=1 && break; }
		done
	done
}

# show HOW: a line for each of $missing
show() {
	local names what
	printf '%s\n' "${missing[@]}" | while read -r names what; do
		echo "$1: ${names%%|*} ($what)"
	done
}

# stop CODE CAUSE NEXT
stop() {
	echo "deps: $2" >&2
	echo "deps: next: $3" >&2
	exit "$1"
}

by_hand() { # CAUSE
	show "not to be had" >&2
	stop 77 "$1; all else is there" "install by hand what you need of these, or go without"
}

as_root() {
	if [[ $EUID == 0 ]]; then "$@"; else sudo "$@"; fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# A container has no lists of packages. (With newer ones, pacman would want a newer
# system: they are left to the user.)
has_lists() { [[ $family != apt ]] || compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }
update() { [[ $family != apt ]] || apt update; }

# What apt would fetch and fill, from a dry run; fails if it cannot be done
size_of() {
	[[ $family == apt ]] || return 0
	{ LC_ALL=C apt-get install --no-install-recommends --assume-no "$@" 2>/dev/null || true; } |
		sed -n 's/^Need to get \(.*\) of archives.*/: \1 to fetch/p; s/^After this operation, \(.*\) of additional.*/, \1 on disk/p' |
		paste -sd '' | grep .
}

install() { # NAME...
	case $family in
	apt) apt install --no-install-recommends -y "$@" >/dev/null ;;
	dnf) as_root dnf -q -y --setopt=install_weak_deps=False install "$@" >/dev/null ;;
	pacman) as_root pacman -S --needed --noconfirm "$@" >/dev/null ;;
	esac
}

# install_wanted: once more with new lists, and without what does not fit this
# system: that must not stop the others
install_wanted() {
	local name
	echo "installing ${#wanted[@]} packages$(size_of "${!wanted[@]}" || :)"
	install "${!wanted[@]}" && return
	update
	choose
	size_of "${!wanted[@]}" >/dev/null || for name in "${!wanted[@]}"; do
		size_of "$name" >/dev/null || unset "wanted[$name]"
	done
	install "${!wanted[@]}"
}

check='' family='' groups=() missing=()
declare -A wanted
while [[ $# -gt 0 ]]; do
	case $1 in
	--check) check=1 ;;
	build | lab | wire | test | dev | bench | arm64) groups+=("$1") ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
	shift
done
[[ ${#groups[@]} -gt 0 ]] || groups=(build lab)
for name in pacman dnf apt; do
	! command -v "${name/apt/apt-get}" >/dev/null || family=$name
done

look
[[ ${#missing[@]} -gt 0 ]] || exit 0
if [[ $check ]]; then
	show missing
	echo "next: labs/deps.sh ${groups[*]}"
	exit 1
fi
[[ $family ]] || by_hand "there is no apt, dnf or pacman here"
choose
[[ ${#wanted[@]} -gt 0 ]] || ! has_lists || by_hand "$family has no package for these"
show missing
[[ $EUID == 0 ]] || { command -v sudo >/dev/null && sudo true; } ||
	stop 1 "root is needed to install that, and there is no sudo" "as root: labs/deps.sh ${groups[*]}"
if [[ ${#wanted[@]} == 0 ]]; then
	update
	choose
fi
[[ ${#wanted[@]} == 0 ]] || install_wanted ||
	stop 1 "not all could be installed, $family says why" "is there a network, and room on the disk? then again"
look
[[ ${#missing[@]} == 0 ]] || by_hand "$family has no package for these"
