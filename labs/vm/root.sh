# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# root.sh - the root folder of a Debian for another machine, for LAB_ROOT.
# Sourced by labs/lab after kernel.sh. Its packages are unpacked, and no program of
# theirs is run: that needs neither root nor an emulator.

# What the programs of the course are linked with, and what the labs run.
root_packages=(busybox-static iproute2 ibverbs-utils ibverbs-providers jq kmod mawk nftables
	perftest procps rdma-core rdmacm-utils ucx-utils wireshark-common libc6-dev libibverbs-dev
	librdmacm-dev libisal-dev libjansson-dev libprotobuf-c-dev libssl-dev libucx-dev uuid-dev '?or(?exact-name(libmsgpack-dev),?exact-name(libmsgpack-c-dev))')

# fetch_root: all their packages, with apt, into $cache/apt-.../archives
fetch_root() {
	own_lists "$release"
	note "fetching Debian $release for $arch (about 180 MB, once)"
	apt-get -qq -y -o Debug::NoLocking=1 -o Dpkg::Use-Pty=0 --no-install-recommends --download-only install \
		'?essential' "${root_packages[@]}" >"$work/said" 2>&1 ||
		die 77 "Debian $release for $arch could not be fetched: $(tail -n1 "$work/said")" "is there a network? then again: what has come is kept"
}

# finish_root DIR: what the packages' own scripts would do, as far as it matters
finish_root() {
	cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
	cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
	cp "$1/usr/share/libc-bin/nsswitch.conf" "$1/etc/nsswitch.conf"
	ln -sf mawk "$1/usr/bin/awk"
	echo "127.0.0.1 localhost" >"$1/etc/hosts"
	rm -rf "$1"/usr/share/{doc,locale,man} "$1/said"
}

# get_root MACHINE: prints the folder; makes it if it is not there
get_root() {
	local dir deb work release
	arch=$1 fs='' mark=-$1
	case $1 in
	x86_64) debian_arch=amd64 ;;
	aarch64) debian_arch=arm64 ;;
	*) die 2 "there is no machine ${1@Q}" "lab root aarch64, or x86_64" ;;
	esac
	release=$(own_release)
	dir=$cache/root-$1-$release
	mkdir -p "$cache"
	exec {cache_lock}>"$cache/lock"
	flock "$cache_lock"
	[[ -e $dir/usr/include/protobuf-c/protobuf-c.h ]] || rm -rf "$dir" # made before it was needed
	if [[ ! -d $dir ]]; then
		need_tool apt-get apt
		work=$(mktemp -d "$cache/new.XXXXXX")
		undo+=("rm -rf '$work'")
		room_for 1100 "a Debian for $1"
		(fetch_root)
		mkdir -p "$work"/usr/{bin,sbin,lib}
		ln -s usr/bin usr/sbin usr/lib "$work"
		for deb in "$cache/apt-$release$mark"/archives/*.deb; do
			dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --keep-directory-symlink --no-same-owner 2>"$work/said" || {
				room_for 50 "a Debian for $1"
				die 1 "$deb could not be unpacked: $(head -n1 "$work/said")" "labs/lab clean-cache, then again"
			}
		done
		finish_root "$work"
		chmod 755 "$work"
		mv "$work" "$dir"
		rm -rf "$cache/apt-$release$mark"
	fi
	echo "$dir"
}
