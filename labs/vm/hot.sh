# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# hot.sh - which of the host's files the guest keeps in its own memory.
# Sourced by labs/lab. Every open of a host file costs the guest some round
# trips to QEMU, about 65 for one cat; under emulation, on a busy host, that is
# tenths of a second. So what the labs use all the time is copied while the VM
# boots and is part of the saved state; the state's name holds the files' sizes
# and times, so that it is made anew when the host's programs change.
: "${cache:?}"

hot_programs=(bash sh cat ls cp mv rm mkdir rmdir touch chmod ln head tail tee tr wc sort uniq
	cut seq date sleep echo printf true false test '[' expr env id uname hostname tty stty
	nproc timeout mktemp mkfifo dirname basename readlink realpath sha256sum cmp diff od dd
	kill stat pwd whoami yes paste nohup tac grep sed awk find xargs ip rdma tc ss ps pgrep
	pkill setpriv taskset setsid unshare busybox ibv_devices ibv_devinfo ibv_rc_pingpong
	ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw)

# with_links: for each path on stdin, itself and what its links lead to, the
# folders always by their real names
with_links() {
	local path target dir
	while read -r path; do
		while [[ -e $path ]]; do
			dir=$(cd -P -- "${path%/*}/" && pwd)
			path=${dir%/}/${path##*/}
			[[ -L $path ]] || break
			echo "$path"
			target=$(readlink "$path")
			[[ $target == /* ]] || target=${path%/*}/$target
			path=$target
		done
		[[ ! -f $path || ! -r $path ]] || echo "$path"
	done
}

list_hot_files() {
	local programs libraries
	programs=$(type -P "${hot_programs[@]}") || true
	libraries=$(find /usr/lib*/libibverbs /usr/lib*/*/libibverbs -name '*.so' 2>/dev/null) || true
	# shellcheck disable=SC2086 # lists of names
	{
		printf '%s\n' /bin /sbin /lib /lib64 $programs $libraries
		{ ldd $programs $libraries 2>/dev/null || true; } | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p'
		find /etc/libibverbs.d /usr/lib/locale/C.utf8 -type f 2>/dev/null || true
		find /usr/lib/locale/locale-archive /usr/lib*/*/gconv/gconv-modules.cache -size -8192k 2>/dev/null || true
		printf '%s\n' /etc/ld.so.cache /etc/passwd /etc/group /etc/nsswitch.conf /etc/hosts /etc/localtime
	} | sort -u | with_links | sort -u
}

# need_hot_list: sees to $cache/hot.list; the caller holds the cache lock
need_hot_list() {
	local list=$cache/hot.list
	if [[ ! -s $list || /var/lib/dpkg/status -nt $list || ${BASH_SOURCE[0]} -nt $list ]]; then
		list_hot_files >"$list.new"
		mv "$list.new" "$list"
	fi
}

hot_fingerprint() { xargs -d '\n' stat -c '%n %s %Y' <"$cache/hot.list" 2>/dev/null || true; }
