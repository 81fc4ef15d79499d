#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# How the lab finds a kernel with rdma_rxe, wherever a distribution puts it, and what
# it keeps when that fails: labs/vm/kernel.sh over folders and an apt made up here.
#
# shellcheck disable=SC2016 # scripts are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

L=$ROOT/labs/lab

# functions SCRIPT: run it with what labs/lab knows, but with none of its commands
functions() (
	mkdir -p "$T/labs"
	ln -sfn "$SOURCES/labs/vm" "$T/labs/vm"
	sed '/^case ${1:-} in$/,$d' "$SOURCES/labs/lab" >"$T/labs/functions"
	cd "$T" && RDMA_LAB_CACHE=$T/cache PATH=$T/bin:$PATH bash -c '
		set -euo pipefail
		mkdir -p "$RDMA_LAB_CACHE"
		. labs/functions && eval "$0"
	' "$1"
)

# fake PROGRAM SCRIPT: for functions
fake() {
	mkdir -p "$T/bin"
	printf '#!/bin/bash\n%s\n' "$2" >"$T/bin/$1"
	chmod +x "$T/bin/$1"
}

# kernel DIR VERSION IMAGE [SUFFIX]: an unpacked kernel
kernel() {
	local rxe=$T/$1/lib/modules/$2/kernel/drivers/infiniband/sw/rxe
	mkdir -p "$rxe" "$(dirname "$T/$1/$3")"
	: >"$T/$1/$3"
	: >"$rxe/rdma_rxe.ko${4:-}"
}

test_every_layout() {
	kernel debian12 6.1.0-50-amd64 boot/vmlinuz-6.1.0-50-amd64
	kernel debian13 6.12.107+deb13-amd64 boot/vmlinuz-6.12.107+deb13-amd64 .xz
	kernel sid 7.2.13+deb14-amd64 lib/modules/7.2.13+deb14-amd64/vmlinuz .xz
	kernel ubuntu 6.8.0-41-generic boot/vmlinuz-6.8.0-41-generic .zst
	kernel ubuntu 6.8.0-39-generic boot/vmlinuz-6.8.0-39-generic .zst
	# One without an image, one without the module: neither will do.
	kernel bad 6.9.1 elsewhere/vmlinuz
	kernel bad 6.9.2 boot/vmlinuz-6.9.2 .gone
	rm "$T/bad/lib/modules/6.9.2/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.gone"
	assertEquals "$(
		cat <<-'END'
			6.1.0-50-amd64 debian12/boot/vmlinuz-6.1.0-50-amd64
			6.12.107+deb13-amd64 debian13/boot/vmlinuz-6.12.107+deb13-amd64
			7.2.13+deb14-amd64 sid/lib/modules/7.2.13+deb14-amd64/vmlinuz
			6.8.0-41-generic ubuntu/boot/vmlinuz-6.8.0-41-generic
			bad:
		END
	)" "$(functions '
		for dir in debian12 debian13 sid ubuntu; do
			version=$(kernel_in $dir)
			echo "$version $(image_of $dir "$version")"
		done
		echo "bad: $(kernel_in bad)"' | sed 's/ *$//')"
}

# Of two packages the second does not come.
test_what_has_come_is_kept() {
	local rc=0
	fake apt-cache 'case $* in
	*depends*) printf "%s\n" linux-image-6.1.0-50-amd64 linux-modules-6.1.0-50-amd64 ;;
	*show*) printf "Size: 70000000\nInstalled-Size: 400000\n" ;;
	esac'
	fake apt-get 'case $* in
	*download*)
		echo fetched >>linux-image.deb
		echo "E: Failed to fetch linux-modules.deb  Could not connect" >&2
		exit 100 ;;
	esac'
	functions 'LAB_KERNEL=host; fetch_kernel "$cache/debs-host"' 2>"$T/err" || rc=$?
	assertEquals 77 "$rc"
	assert_in "$(<"$T/err")" '^lab: the kernel could not be downloaded: E: Failed to fetch linux-modules.deb'
	assert_in "$(<"$T/err")" '^lab: next: is there a network\? then again: what has come is kept$'
	assertTrue "[ -s '$T/cache/debs-host/linux-image.deb' ]"
}

# refused CODE PATTERN CMD…
refused() {
	local rc=0
	"${@:3}" >"$T/out" 2>"$T/err" || rc=$?
	assertEquals "$(<"$T/err")" "$1" "$rc"
	assertEquals "$(<"$T/err")" 2 "$(wc -l <"$T/err")"
	assert_in "$(head -n 1 "$T/err")" "$2"
	assert_in "$(tail -n 1 "$T/err")" '^lab: next: '
}

test_kernels_that_are_none() {
	local -x LAB=vm
	refused 2 'there is no kernel "bogus"' "$L" run --fresh --kernel bogus true
	refused 2 'there is no folder /nowhere for --kernel' "$L" run --fresh --kernel /nowhere true
	refused 2 '--kernel wants a name or a folder' "$L" up --kernel
	refused 2 'up takes --two and --kernel K' "$L" up --kernel host now
	mkdir "$T/empty"
	refused 77 "no kernel with rdma_rxe in $T/empty" "$L" run --fresh --kernel "$T/empty" true
}

# While somebody uses the VM it is not taken from him.
test_a_vm_in_use_keeps_its_kernel() {
	local -x LAB=vm
	need_lab || return 0
	mkfifo "$T/gate"
	LAB_KERNEL='' lab run sh -c 'echo in; read -r _' <"$T/gate" >"$T/user" 2>/dev/null &
	exec {gate}>"$T/gate"
	until [[ -s $T/user ]]; do sleep 0.05; done
	refused 1 'the VM runs another kernel, and is in use' "$L" run --kernel "$T" true
	echo >&"$gate"
	exec {gate}>&-
	wait $!
	assertEquals 0 $?
}

. shunit2
