# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: MIT
#
# vm.sh - one lab VM: boot and save it once, restore it, end it.
# Sourced by labs/lab after kernel.sh.
#
# A VM lives in a directory RUNDIR:
#	pid		QEMU's process id
#	ready		"role accel memory CPUs version", written when sessions can start
#	kernel		what kernel was asked for; it outlives the VM, until "down"
#	console		what the guest's kernel says
#	ctl.sock	the agent's control port (ctl.c speaks there)
#	s0 ... s15	its session ports, sN.lock is held by the attach that uses sN
#	lock		held while the VM is started or ended
#	wire		of two hosts: where the frames for this one arrive
# Of two hosts, each has RUNDIR.A and RUNDIR.B.

: "${root:?}" "${cache:?}" "${tools:?}" "${kernel=}"
base='' run='' pid='' append='' state=''

boot_args='quiet panic=-1 rdinit=/init cryptomgr.notests mitigations=off rodata=off audit=0 lsm= init_on_alloc=0'
# Under emulation QEMU would translate each program anew for every process that
# has it at other addresses (/bin/true takes 10 ms so, 50 otherwise).
tcg_boot_args='norandmaps'

# find_rundir: sets $base and $run, short names (a socket path has 108 bytes) that
# QEMU takes as they are (a comma would end one)
find_rundir() {
	local hash
	base=${XDG_RUNTIME_DIR:-/tmp}
	[[ $base =~ ^/[A-Za-z0-9/._-]{1,60}$ && -d $base && -w $base ]] || base=/tmp
	base=$base/rdma-lab-$UID
	mkdir -m 700 "$base" 2>/dev/null || true
	[[ -d $base && -O $base && ! -L $base ]] || die 1 "$base is not ours" "remove it, or set XDG_RUNTIME_DIR"
	hash=$(sha256sum <<<"$root$mark")
	run=$base/${hash:0:8}${host:+.$host}
}

# memory_limit [CGROUPS [SYSFS]]: MiB that we may use: the machine's, or less where a
# cgroup that we are in (a container's), or one above it, has a limit.
# shellcheck disable=SC2120 # a test has cgroups of its own
memory_limit() {
	local sys=${2:-/sys/fs/cgroup} kind path limit least
	read -r _ least _ </proc/meminfo
	least=$((least / 1024))
	while IFS=: read -r _ kind path; do
		case ,$kind, in
		,,) path=$sys$path ;;
		*,memory,*) path=$sys/memory$path ;;
		*) continue ;;
		esac
		while [[ $path == "$sys"* ]]; do
			limit=$(cat "$path"/memory.{max,limit_in_bytes} 2>/dev/null) || true
			[[ ! $limit =~ ^[0-9]+$ ]] || ((limit / 1048576 >= least)) || least=$((limit / 1048576))
			path=${path%/*}
		done
	done <"${1:-/proc/self/cgroup}"
	echo "$least"
}

# choose_size ROLE: sets $memory (MiB) and $cpus. A restore touches all of it: in 2048 MiB
# it takes two seconds, and ten where the host itself has to ask for memory first.
choose_size() {
	local limit
	limit=$(memory_limit)
	memory=2048
	((limit >= 7300)) || memory=1024
	((limit >= 1536)) || memory=768
	cpus=2
	[[ $1 != host ]] || size_of_two "$limit"
	if [[ $1 == counted ]]; then
		cpus=1
		((memory < 1024)) || memory=1024
	fi
	memory=${LAB_MEMORY:-$memory}
	[[ $memory =~ ^[1-9][0-9]{2,6}$ && $memory -ge 512 ]] ||
		die 2 "LAB_MEMORY is \"$memory\"" "LAB_MEMORY=1024, in MiB, at least 512"
}

# size_of_two LIMIT: what each of two VMs gets, of all the memory
size_of_two() {
	for memory in ${LAB_MEMORY:-1024 768 512}; do
		((2 * memory + 256 > $1)) || return 0
	done
	die 77 "two VMs of $memory MiB do not fit: there are $1 MiB" "one VM: labs/lab up; or a machine, or a container, with more memory"
}

# state_key ROLE: names the saved state; all that shapes it is in the hash
state_key() {
	local qemu
	qemu_args RUNDIR TREE "$1"
	{
		"$qemu_program" --version
		cat "$kernel/version" "$root/labs/rxe.sh" "$root"/labs/vm/{init.sh,agent.[ch],session.c,wire.h,arch.sh,kernel.sh}
		hot_fingerprint
		echo "${qemu[*]} $append"
		# The saved kernel knows the TSC's frequency.
		grep -m1 'model name' /proc/cpuinfo || true
	} | sha256sum | head -c12
}

system_folders=(usr etc)

# find_system_folders: /opt, too, if there is one
find_system_folders() {
	[[ -L ${fs:-}/bin && -L $fs/lib ]] ||
		die 77 "$fs/bin and $fs/lib are no links to $fs/usr, as in systems of before 2023" "LAB_ROOT=DIR, of a newer one"
	[[ ! -d $fs/opt ]] || system_folders=(usr etc opt)
}

# wire_of RUNDIR: what one host's QEMU sends goes to the socket of the other. While there
# is none, it is lost, as with a cable. No third can be on that wire.
wire_of() {
	local peer=${run%.?}.B
	[[ $host == A ]] || peer=${run%.?}.A
	if [[ $1 == "$run" ]]; then
		echo "dgram,id=wire,local.type=unix,local.path=$run/wire,remote.type=unix,remote.path=$peer/wire"
	else
		echo "hubport,id=wire,hubid=0" # to be saved
	fi
}

# qemu_args RUNDIR TREE ROLE: sets $qemu and $append. The same devices when the VM is
# saved and when it is restored.
qemu_args() {
	local i folder cpu=$emulated_cpu work=${2//,/,,}
	qemu=("$qemu_program" -name rdma-lab -nodefaults -no-user-config -no-reboot -display none "${machine[@]}")
	case $3:$accel in
	counted:*) qemu+=(-accel tcg -icount "shift=1,sleep=off") && cpu=$counted_cpu ;;
	*:kvm) qemu+=(-accel kvm) && cpu=host ;;
	*) qemu+=(-accel tcg) ;;
	esac
	# One that was stopped to be saved goes on when it is restored.
	qemu+=(-global migration.store-global-state=off)
	append="console=$console $boot_args"
	# The card has one address in the saved state, and another as host A or B.
	[[ $3 != host ]] || qemu+=(-netdev "$(wire_of "$1")" -device "virtio-net-pci,netdev=wire,romfile=") append+=" lab_role=host"
	[[ $accel == kvm ]] || append+=" $tcg_boot_args $emulated_boot_args"
	# shellcheck disable=SC2054 # commas within words
	qemu+=(-cpu "$cpu" -m "$memory" -smp "$cpus"
		-serial "file:$1/console"
		-fsdev "local,id=work,path=$work,security_model=none,multidevs=remap"
		-device virtio-9p-pci,fsdev=work,mount_tag=work
		-device virtio-serial-pci,max_ports=31
		-chardev "socket,id=ctl,path=$1/ctl.sock,server=on,wait=off"
		-device virtserialport,chardev=ctl,nr=1)
	# Programs, what they are set up with, and nothing of anybody's home.
	for folder in "${system_folders[@]}"; do
		qemu+=(-fsdev "local,id=$folder,path=${fs//,/,,}/$folder,security_model=none,readonly=on,multidevs=remap"
			-device "virtio-9p-pci,fsdev=$folder,mount_tag=$folder")
	done
	for ((i = 0; i < 16; i++)); do
		qemu+=(-chardev "socket,id=s$i,path=$1/s$i,server=on,wait=off"
			-device "virtserialport,chardev=s$i,nr=$((i + 2))")
	done
}

# boot_from_kernel INITRD: adds it to $qemu
boot_from_kernel() {
	qemu+=(-kernel "$kernel/vmlinux" -initrd "$1" -append "$append")
}

# last_words RUNDIR: of QEMU, if it is not a daemon, and of the guest's kernel
last_words() { tail -n8 "$1/qemu" "$1/console" >&2 2>/dev/null || true; }

# save_state ROLE FILE: boot to "rxe up and agent waiting", save, end
save_state() {
	local dir monitor pid try started=$SECONDS
	room_for 300 "a saved VM"
	note "booting the VM once, to save it as the starting point of all others"
	dir=$(mktemp -d "$base/save.XXXXXX")
	undo+=("rm -rf '$dir'")
	mkfifo "$dir/monitor"
	make_initrd "$dir/initrd"
	qemu_args "$dir" / "$1"
	boot_from_kernel "$dir/initrd"
	exec {monitor}<>"$dir/monitor"
	# New kernels, emulated on a busy machine, sometimes miss a timer and panic early.
	for try in first second; do
		"$tools/ctl" tie $$ "${qemu[@]}" -monitor stdio <"$dir/monitor" >"$dir/qemu" 2>&1 &
		pid=$!
		! "$tools/ctl" ping "$dir" "$pid" 120 || break
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" || true
		if [[ $try == second ]]; then
			last_words "$dir"
			die 1 "the VM did not come up" "labs/lab clean-cache, then again; its last words are above"
		fi
		note "the VM did not come up; booting it once more"
	done
	# Half a file is worse than none: both who writes it and QEMU must say that it
	# is whole. And it has to stand still: of pages that an emulated CPU writes meanwhile
	# some are saved as they were before.
	undo+=("rm -f '$2.new' '$2.whole'")
	printf '%s\n' stop 'migrate_set_parameter max-bandwidth 9G' \
		"migrate \"exec:cat > '$2.new' && mv '$2.new' '$2.whole'\"" 'info migrate' quit >&"$monitor"
	exec {monitor}>&-
	if ! wait "$pid" || [[ ! -s $2.whole ]] || ! grep -qiE 'status:[[:space:]]*completed' "$dir/qemu"; then
		room_for 50 "a saved VM"
		die 1 "the VM could not be saved: $(tail -n3 "$dir/qemu")" "labs/lab clean-cache, then again"
	fi
	mv "$2.whole" "$2"
	rm -rf "$dir"
	note "saved $(du -h "$2" | cut -f1) in $((SECONDS - started)) s"
}

# drop_old_states KEPT: all but the two newest that begin so, for other trees share
# this cache.
drop_old_states() {
	local old
	find "$cache" -maxdepth 1 -name "${1##*/}-*" -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		while read -r _ old; do
			rm -f "$old"
		done
	rm -f "$cache"/state-*.{new,whole}
}

# prepare_start ROLE RUNDIR: sets $qemu to a command that brings the VM up
prepare_start() {
	local kept
	need_tool "$qemu_program" "$qemu_package" "$qemu_group"
	need_folder "$cache" "set RDMA_LAB_CACHE to a folder of yours"
	choose_kernel
	exec {cache_lock}>"$cache/lock"
	flock "$cache_lock"
	get_kernel
	need_hot_list
	if [[ $1 == counted ]]; then accel=tcg; else choose_accel; fi
	choose_size "$1"
	find_system_folders
	[[ $1 == counted || $1 == host ]] || set -- normal "$2"
	kept=$cache/state-$1-${kernel##*/kernel-}
	state=$kept-$(state_key "$1")
	if [[ $accel == kvm ]]; then
		make_initrd "$2/initrd" # boots in a second, needs no saved state
	elif [[ -s $state ]]; then
		touch "$state"
	else
		save_state "$1" "$state"
		drop_old_states "$kept"
	fi
	exec {cache_lock}>&-
	qemu_args "$2" "${tree:-$root}" "$1"
	if [[ $accel == kvm ]]; then
		boot_from_kernel "$2/initrd"
	else
		qemu+=(-incoming "exec:cat '$state'")
	fi
}

# again_without_state: a saved VM that does not come up is no use to anybody: drop it
# and begin this command anew, once
again_without_state() {
	[[ $accel != kvm && ! $again ]] || return 0
	note "the saved VM did not come up; it is made anew"
	rm -f "$state"
	on_exit
	[[ ! ${run_lock:-} ]] || unlock_run
	LAB_AGAIN=1 exec "$root/labs/lab" "${words[@]}"
}

# set_up RUNDIR PID ROLE
set_up() {
	"$tools/ctl" setup "$1" "$2" 60 "tree=${tree:-$root}" "role=$3" "idle=${LAB_IDLE_MINUTES:-30}"
}

# ---- the warm VM of this tree

# vm_pid RUNDIR: sets $pid if a QEMU of that RUNDIR runs. A pid file alone
# proves nothing: the number may belong to another program by now.
vm_pid() {
	local args=()
	pid=
	[[ -s $1/pid ]] || return 1
	read -r pid <"$1/pid" || true
	[[ $pid && -r /proc/$pid/cmdline ]] || return 1
	mapfile -d '' -t args 2>/dev/null <"/proc/$pid/cmdline" || true
	[[ ${args[0]:-} == *qemu-system* && " ${args[*]} " == *"path=$1/ctl.sock,"* ]]
}

vm_ready() { [[ -e $1/ready ]] && vm_pid "$1"; }

# Programs installed since the VM started are not seen in it, and it should
# run the agent of this tree: restart it then, unless somebody is using it.
vm_outdated() {
	local f
	for f in "$fs/var/lib/dpkg/status" "$agent" "$root/labs/rxe.sh" "$root/labs/vm/init.sh"; do
		[[ ! $f -nt $run/ready ]] || return 0
	done
	other_kernel
}

# other_kernel: LAB_KERNEL asks for another than the VM runs
other_kernel() { [[ ${LAB_KERNEL:-} && $LAB_KERNEL != "$(cat "$run/kernel" 2>/dev/null)" ]]; }

vm_sessions() { "$tools/ctl" busy "$run"; }

# The lock file goes away with RUNDIR: what we locked must still be there.
lock_run() {
	while :; do
		mkdir -m 700 "$run" 2>/dev/null || true
		exec {run_lock}>"$run/lock"
		flock "$run_lock"
		[[ ! /proc/$$/fd/$run_lock -ef $run/lock ]] || return 0
		exec {run_lock}>&-
	done
}

unlock_run() { exec {run_lock}>&-; }

# end_vm: end the VM in $run in any state. The caller holds the lock. What its programs
# wrote to mapped files is written back first (emulated, 12 MB/s); one that was never
# ready has run none.
end_vm() {
	local i end=0 orphan ready=''
	! vm_ready "$run" || ready=yes
	rm -f "$run/ready"
	if [[ $ready ]]; then
		! timeout 12 "$tools/ctl" off "$run" "$pid" 10 >/dev/null 2>&1 || end=$((SECONDS + 120))
		for ((i = 0; SECONDS < end; i++)); do
			vm_pid "$run" || break
			((i != 60)) || note "the VM writes back what its programs wrote to mapped files"
			sleep 0.05
		done
	fi
	if vm_pid "$run"; then
		kill -KILL "$pid" 2>/dev/null || true
		[[ ! $ready ]] || note "the VM did not end, and was killed: what its programs wrote to mapped files may be lost"
	fi
	# one whose starter was killed before QEMU wrote its pid file
	{ grep -ls "[p]ath=$run/ctl.sock," /proc/[0-9]*/cmdline || true; } | while IFS=/ read -r _ _ orphan _; do
		kill -KILL "$orphan" 2>/dev/null || true
	done
	rm -f "$run"/{pid,console,ctl.sock,initrd,wire} "$run"/s[0-9]*
}

# vm_up: see to it that the warm VM runs; says on stderr what it did
vm_up() {
	local begin=${EPOCHREALTIME/[.,]/} took why=started name=VM${host:+ $host}
	lock_run
	if vm_ready "$run"; then
		if ! vm_outdated || [[ $(vm_sessions) != 0 ]]; then
			unlock_run
			note "$name is running already"
			return 0
		fi
		why="restarted, the host's programs or the lab changed,"
		! other_kernel || why="restarted with another kernel"
	fi
	end_vm
	undo+=("end_vm")
	prepare_start "${host:+host}" "$run"
	"$tools/ctl" alone "${qemu[@]}" -daemonize -pidfile "$run/pid" ||
		die 1 "QEMU did not start" "its reason is above"
	read -r pid <"$run/pid"
	if ! set_up "$run" "$pid" warm || { [[ $host ]] && ! in_host be "$host"; }; then
		last_words "$run"
		again_without_state
		die 1 "the VM came up but was not usable" "labs/lab doctor; console: $run/console"
	fi
	echo "$LAB_KERNEL" >"$run/kernel"
	echo "warm $accel $memory $cpus $(<"$kernel/version")" >"$run/ready"
	undo=()
	unlock_run
	took=$(((${EPOCHREALTIME/[.,]/} - begin) / 10000))
	printf 'lab: %s %s in %d.%02d s (%s, %s MiB, kernel %s)\n' "$name" "$why" $((took / 100)) $((took % 100)) \
		"$accel" "$memory" "$(<"$kernel/version")" >&2
}

# in_host ARG…: host.sh, in the VM of $run
in_host() (cd "$root" && "$tools/attach" "$run" "$root/labs/vm/host.sh" "$@" </dev/null)

# up_two: both hosts; one that runs goes on
up_two() {
	[[ $("$qemu_program" -netdev help 2>&1) == *dgram* ]] ||
		die 77 "two hosts need QEMU 7.2 or newer: this one has no -netdev dgram" "one VM: labs/lab up"
	for host in A B; do
		find_rundir
		vm_up
	done
}

vm_down() {
	lock_run
	end_vm
	rm -rf "$run"
	unlock_run
}

# A --fresh VM whose client was killed leaves its directory behind.
sweep() {
	local d owner
	for d in "$base"/f.*; do
		owner=${d##*.}
		[[ ! -d $d || -d /proc/$owner ]] || rm -rf "$d"
	done
}

# fresh_run ROLE LIMIT CMD...: a VM for one command; it dies with this process,
# because attach keeps our process id and QEMU is tied to it.
fresh_run() {
	local role=$1 limit=$2 dir=$base/f.$$ pid
	shift 2
	sweep
	rm -rf "$dir"
	mkdir -m 700 "$dir"
	undo+=("rm -rf '$dir'")
	prepare_start "$role" "$dir"
	"$tools/ctl" tie $$ "${qemu[@]}" </dev/null 2>"$dir/qemu" &
	pid=$!
	undo=("kill -KILL $pid" "rm -rf '$dir'")
	if ! set_up "$dir" "$pid" "$role"; then
		last_words "$dir"
		again_without_state
		die 1 "the VM did not come up" "labs/lab doctor"
	fi
	trap - EXIT
	exec "$tools/attach" -o "$pid" ${limit:+-t "$limit"} "$dir" "$@"
}
