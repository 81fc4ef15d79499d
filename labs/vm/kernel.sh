# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# kernel.sh - a kernel with Soft-RoCE for the VM, unpacked into the cache.
# Sourced by labs/lab. Gives $cache/kernel/{vmlinux,version,modules/NN-*.ko}.
# Nothing is installed: Debian's package is downloaded and taken apart.

: "${root:?}" "${cache:?}" "${tools:?}"

# In the order in which the guest loads them, dependencies come by themselves.
guest_modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay crc32_generic
	crc32_pclmul rdma_rxe ib_uverbs rdma_ucm ib_umad veth dummy 8021q af_packet sch_netem
	sch_prio sch_tbf sch_htb cls_u32 nf_tables nft_counter nft_limit)

# kernel_in DIR: the newest version in DIR that can run the lab, or nothing
kernel_in() {
	local v
	while read -r v; do
		if [[ -r $1/boot/vmlinuz-$v ]] && compgen -G \
			"$1/lib/modules/$v/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null; then
			echo "$v"
			return
		fi
	done < <(cd "$1/lib/modules" 2>/dev/null && printf '%s\n' * | sort -rV)
}

# The package's name is found through the metapackage; Ubuntu cuts the modules
# into several packages.
kernel_packages() {
	local meta v
	for meta in linux-image-amd64 linux-image-generic; do
		v=$(apt-cache depends "$meta" 2>/dev/null |
			awk '!seen && sub(/.*Depends: linux-image-/, "") && /^[0-9]/ { print $1; seen = 1 }') || true
		case $meta:$v in
		*:) ;;
		linux-image-amd64:*) echo "linux-image-$v" && return ;;
		*) echo "linux-image-$v linux-modules-$v linux-modules-extra-$v" && return ;;
		esac
	done
}

# fetch_kernel DIR: download and unpack into DIR
fetch_kernel() {
	local packages options=()
	packages=$(kernel_packages)
	[[ $packages ]] || die 77 "no kernel with rdma_rxe here, and apt knows of none" "apt-get update, as root"
	note "fetching the kernel: $packages (about 70 MB, once)"
	[[ $UID != 0 ]] || options=(-o APT::Sandbox::User=root)
	# shellcheck disable=SC2086 # a list of names
	(cd "$1" && apt-get -qq "${options[@]}" download $packages >&2) ||
		die 77 "the kernel package could not be downloaded" "apt-get update, as root; is there a network?"
	for deb in "$1"/*.deb; do
		dpkg-deb -x "$deb" "$1"
		rm -f "$deb"
	done
}

u32_at() { od -An -tu4 -j"$2" -N4 "$1" | tr -d ' '; }

# unpack_vmlinux BZIMAGE OUT: a PVH start of the bare ELF saves the guest from
# unpacking itself under emulation. Offset and length are in the setup header
# (Documentation/x86/boot.rst); the last four bytes are the unpacked size.
unpack_vmlinux() {
	local sectors offset length how
	sectors=$(od -An -tu1 -j497 -N1 "$1" | tr -d ' ')
	offset=$(((sectors + 1) * 512 + $(u32_at "$1" 584)))
	length=$(u32_at "$1" 588)
	case $(od -An -tx1 -j"$offset" -N4 "$1" | tr -d ' ') in
	fd377a58) how=(xz -dc --single-stream) ;;
	1f8b*) how=(gzip -dc) ;;
	28b52ffd) how=(zstd -dc) ;;
	02214c18) how=(lz4 -dc) ;;
	*) die 77 "the kernel $1 is compressed in an unknown way" "report it" ;;
	esac
	command -v "${how[0]}" >/dev/null || die 77 "${how[0]} is needed to unpack the kernel" "apt-get install ${how[0]/xz/xz-utils}"
	tail -c "+$((offset + 1))" "$1" | head -c $((length - 4)) | "${how[@]}" >"$2" 2>/dev/null || true
	[[ $(head -c4 "$2" | tail -c3) == ELF ]] || die 77 "the kernel $1 could not be unpacked" "report it"
}

# copy_modules ROOT VERSION OUT: uncompressed, numbered in the order of loading
copy_modules() {
	local file to i=0
	mkdir -p "$3"
	[[ -e $1/lib/modules/$2/modules.dep ]] || depmod -b "${1:-/}" "$2"
	for m in "${guest_modules[@]}"; do
		modprobe -d "${1:-/}" -S "$2" --show-depends "$m" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p' || true
	done | awk '!seen[$0]++' | while read -r file; do
		to=${file##*/}
		printf -v to '%s/%02d-%s.ko' "$3" "$i" "${to%.ko*}"
		i=$((i + 1))
		case $file in
		*.xz) xz -dc "$file" ;;
		*.zst) zstd -qdc "$file" ;;
		*.gz) gzip -dc "$file" ;;
		*) cat "$file" ;;
		esac >"$to"
	done
	compgen -G "$3/*-rdma_rxe.ko" >/dev/null || die 77 "no rdma_rxe in kernel $2" "report it"
}

# get_kernel: fill $cache/kernel if it is empty or was made for other modules.
# The caller holds the cache lock.
get_kernel() {
	local work root version
	[[ ! -s $cache/kernel/version || $(cat "$cache/kernel/wanted" 2>/dev/null) != "${guest_modules[*]}" ]] || return 0
	[[ $(uname -m) == x86_64 ]] || die 77 "the lab VM is made for x86_64, this is $(uname -m)" "use native Soft-RoCE: labs/rxe.sh setup"
	need_tool modprobe kmod
	work=$(mktemp -d "$cache/new.XXXXXX")
	undo+=("rm -rf '$work'")
	root='' version=$(kernel_in '')
	if [[ ! $version ]]; then
		need_tool apt-get apt
		root=$work/deb
		mkdir "$root"
		fetch_kernel "$root"
		version=$(kernel_in "$root")
		[[ $version ]] || die 77 "the downloaded kernel has no rdma_rxe" "report it"
	fi
	mkdir "$work/kernel"
	copy_modules "$root" "$version" "$work/kernel/modules"
	unpack_vmlinux "$root/boot/vmlinuz-$version" "$work/kernel/vmlinux"
	echo "${guest_modules[*]}" >"$work/kernel/wanted"
	echo "$version" >"$work/kernel/version"
	rm -rf "$cache/kernel"
	mv "$work/kernel" "$cache/kernel"
	rm -rf "$work"
}

# make_initrd OUT: busybox, the modules, and what of this directory runs there
make_initrd() {
	local dir busybox
	busybox=$(command -v busybox) || die 77 "busybox is missing" "sudo labs/deps.sh lab"
	dir=$(mktemp -d "$cache/new.XXXXXX")
	undo+=("rm -rf '$dir'")
	mkdir "$dir/bin"
	cp "$busybox" "$dir/bin/busybox"
	cp -r "$cache/kernel/modules" "$dir/modules"
	cp "$tools/agent" "$dir/agent"
	cp "$root/labs/rxe.sh" "$dir/rxe.sh"
	sed 's|^/||' "$cache/hot.list" >"$dir/hot.list"
	cp "$root/labs/vm/init.sh" "$dir/init"
	chmod 755 "$dir"/{init,agent,rxe.sh,bin/busybox}
	(cd "$dir" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$1"
	rm -rf "$dir"
}

# Does KVM really run this kernel? There are machines where /dev/kvm opens and
# the guest then hangs: the first line must come within 2 s. The answer is
# kept until the host is booted again.
kvm_works() {
	local answer byte=
	answer=$cache/kvm-$(</proc/sys/kernel/random/boot_id)
	[[ -r /dev/kvm && -w /dev/kvm ]] || return 1
	if [[ ! -e $answer ]]; then
		rm -f "$cache"/kvm-*
		exec {probe}< <(exec "$tools/ctl" tie $$ qemu-system-x86_64 -nodefaults -no-reboot -display none \
			-accel kvm -cpu host -m 256 -bios qboot.rom -kernel "$cache/kernel/vmlinux" \
			-append 'earlyprintk=ttyS0 panic=-1' -serial stdio </dev/null 2>/dev/null)
		IFS= read -r -t 2 -n1 -u "$probe" byte || byte=
		kill -KILL $! 2>/dev/null || true
		exec {probe}<&-
		if [[ $byte ]]; then echo yes; else echo no; fi >"$answer"
	fi
	[[ $(<"$answer") == yes ]]
}

# choose_accel: sets $accel; LAB_ACCEL decides by hand
choose_accel() {
	accel=${LAB_ACCEL:-}
	[[ ! $accel ]] || return 0
	accel=tcg
	! kvm_works || accel=kvm
}
