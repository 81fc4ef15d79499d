# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: MIT
#
# hot.sh - which of the host's files the guest keeps in its own memory.
# Sourced by labs/lab. Every open of a host file costs the guest some round
# trips to QEMU, about 65 for one cat; under emulation, on a busy host, that is
# tenths of a second. So what the labs use all the time is copied while the VM
# boots and is part of the saved state; the state's name holds the files' sizes
# and times, so that it is made anew when the host's programs change. All names
# are those that the guest knows, below $fs.
: "${cache:?}"

hot_programs=(bash sh cat ls cp mv rm mkdir rmdir touch chmod ln head tail tee tr wc sort uniq
	cut seq date sleep echo printf true false test '[' expr env id uname hostname tty stty
	nproc timeout mktemp mkfifo dirname basename readlink realpath sha256sum cmp diff od dd
	kill stat pwd whoami yes paste nohup tac grep sed awk find xargs ip rdma tc nft ss ps pgrep
	pkill setpriv taskset setsid unshare busybox ibv_devices ibv_devinfo ibv_{rc,uc,ud,srq}_pingpong
	ib_{send,write,read,atomic}_{lat,bw} rping rstream ucmatose udaddy rdma_{,x}{server,client})
# Of the course's own programs, which are in the tree.
hot_libraries=(jansson isal msgpackc uuid rdmacm numa)

# with_links: for each path on stdin, itself and what its links lead to, the
# folders always by their real names
with_links() {
	local path target dir
	while read -r path; do
		while [[ -e $fs$path ]]; do
			dir=$(cd -P -- "$fs${path%/*}/" && pwd)
			dir=${dir#"$fs"}
			path=${dir%/}/${path##*/}
			[[ -L $fs$path ]] || break
			echo "$path"
			target=$(readlink "$fs$path")
			[[ $target == /* ]] || target=${path%/*}/$target
			path=$target
		done
		[[ ! -f $fs$path || ! -r $fs$path ]] || echo "$path"
	done
}

# libraries_of FILE...: the shared libraries that they need. There is no ldd for
# another machine's files: the names that they hold, three levels deep, must do.
libraries_of() {
	local name files=("$@")
	if [[ ! $fs ]]; then
		ldd "$@" 2>/dev/null | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' || true
		return
	fi
	for _ in 1 2 3; do
		mapfile -t files < <(readelf -d "${files[@]}" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
			sort -u | while read -r name; do compgen -G "$fs/usr/lib/*/$name"; done)
		printf '%s\n' "${files[@]}"
	done
}

list_hot_files() {
	local files name
	mapfile -t files < <(PATH=$guest_path type -P "${hot_programs[@]}"
		for name in "${hot_libraries[@]}"; do compgen -G "$fs/usr/lib*/*/lib$name.so.*"; done
		find "$fs"/usr/lib*/libibverbs "$fs"/usr/lib*/*/libibverbs -name 'librxe-*.so' 2>/dev/null)
	{
		printf '%s\n' "$fs"/{bin,sbin,lib,lib64} "${files[@]}"
		libraries_of "${files[@]}"
		find "$fs"/etc/libibverbs.d "$fs"/usr/lib/locale/C.utf8 -type f 2>/dev/null || true
		find "$fs"/usr/lib/locale/locale-archive "$fs"/usr/lib*/*/gconv/gconv-modules.cache -size -8192k 2>/dev/null || true
		printf '%s\n' "$fs"/etc/{ld.so.cache,passwd,group,nsswitch.conf,hosts,localtime,libnl/classid}
	} | sed "s|^$fs/|/|" | sort -u | with_links | sort -u
}

# need_hot_list: sees to $hot_list; the caller holds the cache lock
need_hot_list() {
	hot_list=$cache/hot.list$mark
	if [[ ! -s $hot_list || $fs/var/lib/dpkg/status -nt $hot_list || ${BASH_SOURCE[0]} -nt $hot_list ]]; then
		list_hot_files >"$hot_list.new"
		mv "$hot_list.new" "$hot_list"
	fi
}

hot_fingerprint() { sed "s|^|$fs|" "$hot_list" | xargs -d '\n' stat -c '%n %s %Y' 2>/dev/null || true; }
