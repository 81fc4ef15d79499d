# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: MIT
#
# kernel.sh - a kernel with Soft-RoCE for the VM, unpacked into the cache.
# Sourced by labs/lab. Gives $kernel/{vmlinux,version,modules/NN-*.ko}.
# Nothing is installed: Debian's packages are downloaded and taken apart.

: "${root:?}" "${cache:?}" "${tools:?}" "${run=}"
kernel=''

# In the order in which the guest loads them, dependencies come by themselves.
guest_modules=(virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay crc32_generic
	"${arch_modules[@]}" rdma_rxe ib_uverbs rdma_ucm ib_umad veth dummy 8021q af_packet sch_netem
	sch_prio sch_tbf sch_htb cls_u32 nf_tables nft_counter nft_limit)

# Debian's releases, by their names; "host" is this host's own kernel or what its
# apt offers, and anything else a folder: one with .deb files, or a root.
kernel_names='bookworm|trixie|sid'

# choose_kernel: sets $kernel, the folder for the kernel that is asked for: by
# LAB_KERNEL (--kernel sets it), or else as the VM in $run was asked for.
choose_kernel() {
	local name=${LAB_KERNEL:-}
	[[ $name || ! -s $run/kernel ]] || name=$(<"$run/kernel")
	LAB_KERNEL=${name:-host}
	case $LAB_KERNEL in
	host | bookworm | trixie | sid) kernel=$cache/kernel$mark-$LAB_KERNEL ;;
	/*)
		[[ -d $LAB_KERNEL ]] || die 2 "there is no folder $LAB_KERNEL for --kernel" "a folder with the kernel's .deb files, or with boot/ and lib/modules/"
		kernel=$cache/kernel$mark-$(sha256sum <<<"$LAB_KERNEL" | head -c8)
		;;
	*) die 2 "there is no kernel \"$LAB_KERNEL\"" "--kernel ${kernel_names//|/, }, host or the full path of a folder" ;;
	esac
}

# image_of DIR VERSION: where Debian, Ubuntu and Arch put it
image_of() {
	local image
	for image in "$1/boot/vmlinuz-$2" "$1/lib/modules/$2/vmlinuz"; do
		[[ ! -r $image ]] || { echo "$image" && return; }
	done
}

# kernel_in DIR: the newest version in DIR that can run the lab, or nothing
kernel_in() {
	local v
	while read -r v; do
		if [[ $(image_of "$1" "$v") ]] && compgen -G \
			"$1/lib/modules/$v/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null; then
			echo "$v"
			return
		fi
	done < <(cd "$1/lib/modules" 2>/dev/null && printf '%s\n' * | sort -rV)
}

# kernel_packages: what holds the kernel and its modules, found through the
# metapackage; Ubuntu and Debian's newer releases cut it into several packages.
kernel_packages() {
	local meta
	for meta in "linux-image-$debian_arch" linux-image-generic; do
		apt-cache depends --recurse -i "$meta" 2>/dev/null |
			grep -E '^linux-(image|binary|modules|modules-extra)-[0-9]' |
			grep -v unsigned | sort -u | grep . && return
	done || true
}

# own_release: the guest's own, or one that will do
own_release() { sed -n 's/^VERSION_CODENAME=\(bookworm\|trixie\|sid\)$/\1/p' "$fs/etc/os-release" | grep . || echo trixie; }

# own_lists RELEASE: lets apt look at Debian's RELEASE, whatever this host is, with
# lists of our own that need no root.
own_lists() {
	local dir=$cache/apt-$1$mark mirror
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[[ -r $keys ]] || die 77 "Debian's keys are missing: $keys" "install the package debian-archive-keyring, or choose --kernel host"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n1) || true
	mkdir -p "$dir"/{lists,archives}/partial
	echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $1 main" >"$dir/sources.list"
	# A mirror that is behind is good enough for a guest.
	cat >"$dir/apt.conf" <<-END
	APT::Architecture "$debian_arch";
	APT::Architectures { "$debian_arch"; };
	Dir::Etc::SourceList "$dir/sources.list";
	Dir::Etc::SourceParts "/dev/null";
	Dir::Etc::Preferences "/dev/null";
	Dir::Etc::PreferencesParts "/dev/null";
	Dir::State::Lists "$dir/lists";
	Dir::State::Status "/dev/null";
	Dir::Cache "$dir";
	Acquire::Languages "none";
	Acquire::Check-Valid-Until "false";
	APT::Sandbox::User "root";
	END
	export APT_CONFIG=$dir/apt.conf
	apt-get -qq update 2>"$dir/said" || die 77 "Debian's list of packages of $1 could not be fetched: $(tail -n1 "$dir/said")" "is there a network? then again"
}

# room_for MIB WHAT: ends if the cache's disk has less
room_for() {
	local free
	free=$(($(stat -f -c '%a * %S' "$cache") / 1048576))
	((free >= $1)) || die 1 "$2 needs $1 MiB in $cache, and $free are free" "make room there, or set RDMA_LAB_CACHE to a folder with more"
}

# fetch_kernel DIR: with apt, what $LAB_KERNEL names, into DIR; what is there is
# not fetched again
fetch_kernel() {
	local packages fetched unpacked
	command -v apt-get >/dev/null || die 77 "this host has no kernel with rdma_rxe that may be read, and no apt to fetch one" "--kernel DIR, with .deb files or an unpacked kernel in DIR; or the container, see README.md"
	if [[ $LAB_KERNEL != host ]]; then
		own_lists "$LAB_KERNEL"
	elif [[ $fs || ! $(kernel_packages) ]]; then
		# no lists, as in a container; any Debian kernel will do
		own_lists "$(own_release)"
	fi
	mapfile -t packages < <(kernel_packages)
	[[ ${packages[0]:-} ]] || die 77 "no kernel with rdma_rxe here, and apt knows of none" "apt-get update, as root; or --kernel ${kernel_names//|/, }"
	read -r fetched unpacked < <(apt-cache show --no-all-versions "${packages[@]}" |
		awk '/^Size:/ { f += $2 } /^Installed-Size:/ { u += $2 } END { print int(f / 1e6), int(u / 1024) }')
	room_for $((fetched + unpacked + 300)) "the kernel"
	note "fetching the kernel: ${packages[*]} ($fetched MB, once)"
	mkdir -p "$1"
	(cd "$1" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" >"$1/said" 2>&1) ||
		die 77 "the kernel could not be downloaded: $(tail -n1 "$1/said")" "is there a network? then again: what has come is kept"
}

# unpack_debs DIR OUT: without what no VM needs
unpack_debs() {
	local deb
	mkdir -p "$2"
	for deb in "$1"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$2" --exclude='*/drivers/gpu' \
			--exclude='*/drivers/media' --exclude='*/kernel/sound' 2>"$2/said" || {
			room_for 50 "the kernel"
			die 1 "$deb could not be unpacked: $(head -n1 "$2/said")" "labs/lab clean-cache, then again"
		}
	done
	# depmod and modprobe look into lib/
	[[ -e $2/lib || ! -d $2/usr/lib ]] || ln -s usr/lib "$2/lib"
}

u32_at() { od -An -tu4 -j"$2" -N4 "$1" | tr -d ' '; }
hex_at() { od -An -tx1 -j"$2" -N4 "$1" | tr -d ' '; }

# payload_of IMAGE: where in it the packed kernel is, and how long. x86: in the
# setup header (Documentation/x86/boot.rst), and the last four bytes are the unpacked
# size. arm64: a "zboot" EFI program says so at its start; else it is all of the file.
payload_of() {
	local sectors
	if [[ $arch == x86_64 ]]; then
		sectors=$(od -An -tu1 -j497 -N1 "$1" | tr -d ' ')
		echo $(((sectors + 1) * 512 + $(u32_at "$1" 584))) $(($(u32_at "$1" 588) - 4))
	elif [[ $(hex_at "$1" 4) == 7a696d67 ]]; then
		echo "$(u32_at "$1" 8) $(u32_at "$1" 12)"
	else
		echo 0 "$(stat -c %s "$1")"
	fi
}

# unpack_vmlinux IMAGE OUT: the bare kernel saves the guest from unpacking itself
# under emulation; on x86 QEMU starts it by PVH.
unpack_vmlinux() {
	local offset length how
	read -r offset length < <(payload_of "$1")
	case $(hex_at "$1" "$offset") in
	fd377a58) how=(xz -dc --single-stream) ;;
	1f8b*) how=(gzip -dc) ;;
	28b52ffd) how=(zstd -dc) ;;
	02214c18) how=(lz4 -dc) ;;
	4d5a*) how=(cat) ;; # an arm64 Image, as it is
	*) die 77 "the kernel $1 is compressed in an unknown way" "report it" ;;
	esac
	command -v "${how[0]}" >/dev/null || die 77 "${how[0]} is needed to unpack the kernel" "sudo labs/deps.sh lab"
	tail -c "+$((offset + 1))" "$1" | head -c "$length" | "${how[@]}" >"$2" 2>/dev/null || true
	[[ $(hex_at "$2" "${kernel_magic[0]}") == "${kernel_magic[1]}" ]] || die 77 "the kernel $1 could not be unpacked" "report it"
}

# copy_modules ROOT VERSION OUT: uncompressed, numbered in the order of loading
copy_modules() {
	local file to i=0
	mkdir -p "$3"
	[[ -e $1/lib/modules/$2/modules.dep ]] || depmod -b "${1:-/}" "$2" 2>/dev/null
	for m in "${guest_modules[@]}"; do
		modprobe -d "${1:-/}" -S "$2" --show-depends "$m" 2>/dev/null | sed -n 's/^insmod \(.*\.ko[.a-z0-9]*\).*/\1/p' || true
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

# get_kernel: fill $kernel if it is empty or was made for other modules. The caller
# holds the cache lock.
get_kernel() {
	local work root=$fs version debs=''
	[[ ! -s $kernel/version || $(cat "$kernel/wanted" 2>/dev/null) != "${guest_modules[*]}" ]] || return 0
	need_tool modprobe kmod
	work=$(mktemp -d "$cache/new.XXXXXX")
	undo+=("rm -rf '$work'")
	if [[ $LAB_KERNEL == /* ]]; then
		root=$LAB_KERNEL
		! compgen -G "$root/*.deb" >/dev/null || debs=$root
	elif [[ $LAB_KERNEL != host || ! $(kernel_in "$fs") ]]; then
		debs=$cache/debs-$LAB_KERNEL$mark
		(fetch_kernel "$debs") # with an APT_CONFIG of its own
	fi
	if [[ $debs ]]; then
		root=$work/root
		unpack_debs "$debs" "$root"
	fi
	version=$(kernel_in "$root")
	[[ $version ]] || die 77 "no kernel with rdma_rxe in ${debs:-$root}" "choose another: --kernel ${kernel_names//|/, }"
	mkdir "$work/kernel"
	copy_modules "$root" "$version" "$work/kernel/modules"
	unpack_vmlinux "$(image_of "$root" "$version")" "$work/kernel/vmlinux"
	echo "${guest_modules[*]}" >"$work/kernel/wanted"
	echo "$version" >"$work/kernel/version"
	rm -rf "$kernel" "$cache"/{debs,apt}-*
	mv "$work/kernel" "$kernel"
	rm -rf "$work"
}

# make_initrd OUT: busybox, the modules, and what of this directory runs there
make_initrd() {
	local dir busybox
	busybox=$(PATH=$guest_path type -P busybox) || die 77 "busybox is missing${fs:+ in $fs}" "sudo labs/deps.sh lab"
	dir=$(mktemp -d "$cache/new.XXXXXX")
	undo+=("rm -rf '$dir'")
	mkdir "$dir/bin"
	cp "$busybox" "$dir/bin/busybox"
	cp -r "$kernel/modules" "$dir/modules"
	cp "$agent" "$dir/agent"
	cp "$root/labs/rxe.sh" "$dir/rxe.sh"
	sed 's|^/||' "$hot_list" >"$dir/hot.list"
	cp "$root/labs/vm/init.sh" "$dir/init"
	chmod 755 "$dir"/{init,agent,rxe.sh,bin/busybox}
	(cd "$dir" && find . | busybox cpio -o -H newc 2>/dev/null) >"$1"
	rm -rf "$dir"
}

# Does KVM really run this kernel? There are machines where /dev/kvm opens and
# the guest then hangs: the first line must come within 2 s. The answer is
# kept until the host is booted again.
kvm_works() {
	local answer byte=
	answer=$cache/kvm-$(</proc/sys/kernel/random/boot_id)
	[[ $arch == "$host_arch" && -r /dev/kvm && -w /dev/kvm ]] || return 1
	if [[ ! -e $answer ]]; then
		rm -f "$cache"/kvm-*
		exec {probe}< <(exec "$tools/ctl" tie $$ "$qemu_program" -nodefaults -no-reboot -display none "${machine[@]}" \
			-accel kvm -cpu host -m 256 -kernel "$kernel/vmlinux" \
			-append "$early_console panic=-1" -serial stdio </dev/null 2>/dev/null)
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
