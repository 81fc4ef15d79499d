#!/bin/busybox sh
# shellcheck shell=dash
# SPDX-License-Identifier: MIT
#
# init.sh - the guest's first process, from the initramfs: modules, then
# rxe.sh with the host's own ip and rdma, then the agent. The host saves the
# VM once the agent runs, so all of this happens once per saved state.
/bin/busybox mkdir -p /proc /sys /dev /run /host /layer /root.new
/bin/busybox --install -s /bin
export PATH=/bin
failed=

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o mode=755 tmpfs /run
# What udev would make: bash's <(…) needs the first.
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr

for m in /modules/*.ko; do
	case $m in
	*-dummy.ko) set -- numdummies=0 ;;
	*) set -- ;;
	esac
	insmod "$m" "$@" || echo "init: $m did not load"
done

# The host's programs. They must be gone again before the VM is saved: a mounted 9p
# cannot be migrated.
from_host() {
	mkdir -p "/host/$1"
	mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose "$1" "/host/$1"
}

in_host() {
	for d in proc sys dev run; do
		mount -o bind "/$d" "/host/$d"
	done
	chroot /host /usr/bin/env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		"$@" </dev/null
	rc=$?
	for d in proc sys dev run; do
		umount "/host/$d"
	done
	return $rc
}

mkdir -p /host/proc /host/sys /host/dev /host/run /host/tmp /host/root /host/home /host/var/tmp
chmod 1777 /host/tmp /host/var/tmp
if from_host usr && from_host etc; then
	for d in bin sbin lib lib32 lib64 libx32; do
		[ ! -e "/host/usr/$d" ] || ln -s "usr/$d" "/host/$d"
	done
	from_host opt || true # there may be none
	cp /rxe.sh /run/rxe.sh
	ip link set lo up
	# One of two hosts gets its address, and rxe0, when it is known which.
	[ "${lab_role:-}" = host ] || in_host bash /run/rxe.sh setup --pair >/run/rxe.out 2>&1 ||
		failed="rxe.sh: $(cat /run/rxe.out)"
	rm -f /run/rxe.sh /run/rxe.out
	: >/run/rdma-lab-vm
	mkdir /hot
	(cd /host && cpio -o -H newc </hot.list) | (cd /hot && cpio -idm)
	umount /host/usr
	umount /host/etc
	umount /host/opt || true
	# Of the providers that the host has, one serves a device here; each other costs
	# every program a library to load. In an overlay such a node hides a file.
	for f in /hot/etc/libibverbs.d/*.driver; do
		[ "${f##*/}" = rxe.driver ] || { rm "$f" && mknod "$f" c 0 0; }
	done
else
	failed="the host's /usr and /etc could not be mounted"
fi
exec /agent "$failed"
