# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
#
# arch.sh - what differs between the machines that the VM can be: all of it.
# Sourced by labs/lab. The guest runs the programs of one root folder: this host's,
# or those below LAB_ROOT, which may be another machine's.
#
#	$fs		that folder, empty for this host's own
#	$arch		its machine, as uname -m has it; $host_arch: this host's
#	$guest_path	where its programs are
#	$mark		ends the names of what is kept for it; empty for this host's own

fs='' mark=''
# In the VM there is no other.
if [[ ${LAB_ROOT:-} && ! -e /run/rdma-lab-vm ]]; then
	fs=$(cd -- "$LAB_ROOT" 2>/dev/null && pwd -P) || fs=$LAB_ROOT
	fs=${fs%/}
fi
# what bash was compiled for, with no process of uname's
host_arch=${BASH_VERSINFO[5]%%-*}
arch=$host_arch guest_path=$PATH
if [[ $fs ]]; then
	# e_machine, in the head of an ELF file
	arch=$(od -An -tu2 -j18 -N2 "$fs/bin/bash" 2>/dev/null | tr -d ' ') || arch=
	case $arch in
	62) arch=x86_64 ;;
	183) arch=aarch64 ;;
	esac
	guest_path=$fs/usr/sbin:$fs/usr/bin:$fs/sbin:$fs/bin
	mark=-$arch-$(sha256sum <<<"$fs" | head -c8)
fi

case $arch in
x86_64)
	debian_arch=amd64 qemu_package=qemu-system-x86
	machine=(-M pc -bios qboot.rom)
	emulated_cpu=qemu64
	# Any x86 since 2008 computes CRC-32C in hardware; as emulated instructions it
	# would cost more than the transfer that it protects.
	counted_cpu=qemu64,+ssse3,+sse4.1,+sse4.2
	console=ttyS0 early_console=earlyprintk=ttyS0
	# Unless the TSC is trusted, each look at the clock is one at an emulated HPET.
	# And on a busy host the kernel's test of the timer misses its ticks: a panic,
	# "IO-APIC + timer doesn't work!".
	emulated_boot_args='tsc=reliable no_timer_check'
	arch_modules=(crc32_pclmul)
	# an ELF file, at its start
	kernel_magic=(0 7f454c46)
	;;
aarch64)
	debian_arch=arm64 qemu_package=qemu-system-arm
	machine=(-M "virt,gic-version=max")
	# The oldest that runs kernels with pages of 4, 16 and 64 KiB.
	emulated_cpu=cortex-a76 counted_cpu=cortex-a76
	console=ttyAMA0 early_console=earlycon
	emulated_boot_args=''
	arch_modules=()
	# an Image, Documentation/arm64/booting.rst: "ARM\x64"
	kernel_magic=(56 41524d64)
	;;
*) debian_arch='' qemu_package='' machine=() arch_modules=() ;;
esac
qemu_program=qemu-system-$arch

# CC compiles for the guest; where that is another machine, cc does for this one. And
# what labs/deps.sh calls the groups that bring the tools.
host_cc=${CC:-cc} guest_cc=${CC:-cc} guest_cc_package=gcc agent=${tools:-}/agent
cross='' guest_cc_group=build qemu_group=lab
if [[ $arch != "$host_arch" ]]; then
	cross=1 guest_cc_group=arm64 qemu_group=arm64 agent+=-$arch
	host_cc=cc guest_cc=${CC:-$arch-linux-gnu-gcc} guest_cc_package=gcc-${arch//_/-}-linux-gnu
fi

need_known_arch() {
	[[ ! $debian_arch ]] || return 0
	[[ ! $fs ]] || die 2 "LAB_ROOT=$fs has no bin/bash for x86_64 or aarch64" "LAB_ROOT=DIR with the root file system of such a Debian"
	die 77 "the lab VM is made for x86_64 and aarch64, this is $arch" "use native Soft-RoCE: labs/rxe.sh setup"
}
