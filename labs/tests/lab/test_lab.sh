#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/lab: a command in the VM behaves as if it ran here, and the VM leaves
# nothing behind. The suite works on a copy of labs/ in a tree of its own, so
# it has a VM of its own, which it may kill without disturbing anybody.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm
unset LAB_ACCEL LAB_MEMORY
cache=${RDMA_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-lab}

oneTimeSetUp() {
	# not below $ROOT: an ordinary user may have no way into the home of root
	tree=$(mktemp -d /tmp/lab-tree.XXXXXX)
	mkdir "$tree/build"
	cp -r "$ROOT/labs" "$tree/labs"
	chmod 755 "$tree"
	cd "$tree" || exit 1
	XDG_RUNTIME_DIR=$(mktemp -d /tmp/lab-test.XXXXXX) # other VMs are not ours
	export XDG_RUNTIME_DIR
	base=$XDG_RUNTIME_DIR/rdma-lab-$UID
	L=$tree/labs/lab
	"$L" up || exit 1
	run=$base/$(sha256sum <<<"$tree" | cut -c1-8)
}

oneTimeTearDown() {
	[[ -n ${tree:-} ]] || return 0
	cd "$ROOT" || return
	"$L" down 2>/dev/null
	rm -rf "$tree" "$XDG_RUNTIME_DIR"
	tree=''
}

# wait_for CMD...: until it succeeds
wait_for() {
	local end=$((SECONDS + 60))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || {
			fail "waited 60 s for: $*"
			return 1
		}
		sleep 0.1
	done
}

# qemus TEXT: how many QEMUs have TEXT in their command line
qemus() {
	grep -lsaF -- "$1" /proc/[0-9]*/cmdline | while read -r file; do
		grep -qsaF qemu-system "$file" && grep -qsav grep "$file" && echo "$file"
	done | grep -c . || true
}

no_qemu() { [[ $(qemus "$1") == 0 ]]; }

# in_guest PATTERN: such a process runs in the warm VM. A VM that does not
# answer is neither yes nor no.
ask_guest() {
	# shellcheck disable=SC2016
	timeout 10 "$L" run sh -c 'pgrep -f "$1" >/dev/null && echo yes || echo no' sh "$1"
}
in_guest() { [[ $(ask_guest "$1") == yes ]]; }
not_in_guest() { [[ $(ask_guest "$1") == no ]]; }

# ---- as if it ran here

test_exit_status() {
	"$L" run true
	assertEquals 0 $?
	"$L" run sh -c 'exit 37'
	assertEquals 37 $?
	# shellcheck disable=SC2016
	"$L" run sh -c 'kill -9 $$'
	assertEquals "128 + SIGKILL" 137 $?
	"$L" run /no/such/command 2>/dev/null
	assertEquals "not found" 127 $?
	"$L" run /etc/passwd 2>/dev/null
	assertEquals "not executable" 126 $?
}

test_stdout_and_stderr_are_apart() {
	"$L" run sh -c 'echo to-out; echo to-err >&2' >"$T/out" 2>"$T/err"
	assertEquals to-out "$(<"$T/out")"
	assertEquals to-err "$(<"$T/err")"
}

test_binary_stdin_to_stdout() {
	head -c 8388608 /dev/urandom >"$T/in"
	"$L" run cat <"$T/in" >"$T/out"
	assertEquals 0 $?
	assertTrue "8 MiB changed on the way" "cmp '$T/in' '$T/out'"
	# the two bytes that frame the wire, alone and in runs
	printf '\300\333\300\300\333\334\335\0\300' >"$T/in"
	"$L" run cat <"$T/in" >"$T/out"
	assertTrue "framing bytes changed" "cmp '$T/in' '$T/out'"
}

test_stdin_that_nobody_reads() {
	head -c 3000000 /dev/zero | timeout 20 "$L" run true
	assertEquals 0 $?
	: | "$L" run cat
	assertEquals "end of file" 0 $?
	"$L" run cat <&-
	assertEquals "no stdin" 0 $?
}

test_cwd_environment_and_arguments() {
	mkdir -p "build/a b"
	assertEquals "$tree/build/a b" "$(cd "build/a b" && "$L" run pwd)"
	assertEquals $'one  two\n"three"' "$(VALUE=$'one  two\n"three"' "$L" run printenv VALUE)"
	assertEquals "" "$(LAB_THING=1 TMPDIR=/nowhere "$L" run sh -c 'printenv LAB_THING TMPDIR')"
	# shellcheck disable=SC2016
	"$L" run printf '<%s>' 'a b' '' $'c\nd' "it's" '"q"' '$HOME *' >"$T/out"
	assertEquals $'<a b><><c\nd><it\'s><"q"><$HOME *>' "$(<"$T/out")"
}

test_cwd_that_the_vm_does_not_have() {
	local dir
	dir=$(mktemp -d)
	(cd "$dir" && "$L" run true) 2>"$T/err"
	assertEquals 126 $?
	rmdir "$dir"
	assert_in "$(<"$T/err")" "cannot enter $dir .*No such file"
}

test_tree_is_shared_and_the_rest_is_not() {
	"$L" run sh -c 'echo from the guest >build/file; echo x >/etc/lab-was-here'
	assertEquals "from the guest" "$(<build/file)"
	assertFalse "the guest wrote on the host" "[ -e /etc/lab-was-here ]"
	printf '#!/bin/sh\necho first\n' >build/prog
	chmod +x build/prog
	assertEquals first "$("$L" run build/prog)"
	printf '#!/bin/sh\necho second\n' >build/prog
	assertEquals "a program made anew" second "$("$L" run build/prog)"
	cp /bin/true build/prog2 && "$L" run build/prog2
	assertEquals 0 $?
	cp --remove-destination /bin/false build/prog2 && "$L" run build/prog2
	assertEquals "a binary made anew" 1 $?
}

# QEMU itself gives nothing else: root in the VM may mount what it likes.
test_no_home_of_this_host() {
	local tags secret
	secret=$(mktemp -d /var/tmp/secret.XXXXXX)
	echo secret >"$secret/file"
	# shellcheck disable=SC2016
	"$L" run sh -c 'cat /sys/bus/virtio/drivers/9pnet_virtio/*/mount_tag | tr "\0" "\n" | sort
		mkdir /up
		for tag in root / home; do
			mount -t 9p -o trans=virtio,version=9p2000.L "$tag" /up 2>/dev/null && ls /up
		done
		cat "$0/file" "/usr/..$0/file" 2>/dev/null
		[ -w "$HOME" ] || echo "no home"' "$secret" >"$T/out"
	tags=$(grep -v '^opt$' "$T/out" | tr '\n' ' ')
	assertEquals 'etc usr work ' "$tags"
	rm -r "$secret"
}

# Written while others ask how long it is, and read it: newer kernels lost what the
# one had just written.
test_a_file_that_is_watched_while_it_is_written() {
	# shellcheck disable=SC2016
	"$L" run bash -c '
		cd build && : >watched
		while [[ -e watched ]]; do stat watched; done >/dev/null 2>&1 &
		while [[ -e watched ]]; do grep x watched; done >/dev/null 2>&1 &
		for i in {1..60}; do
			(echo x; echo x; sleep 0.01; echo x) >watched
			echo "$i $(grep -c x watched)"
		done
		rm watched
		wait' >"$T/out" 2>&1
	assertEquals "" "$(grep -v ' 3$' "$T/out")"
	assertEquals 60 "$(wc -l <"$T/out")"
}

test_two_runs_meet_over_tcp() {
	# It answers when it has read: nc ends when the other side has, whatever else.
	# shellcheck disable=SC2016
	"$L" run --timeout 20 sh -c 'busybox nc -l -p 7001 -e sh -c "read -r said
		echo \$said >/tmp/said.7001; echo from-server"; cat /tmp/said.7001' >"$T/server" &
	local server=$!
	wait_for "$L" run sh -c 'grep -q :1B59 /proc/net/tcp*'
	echo from-client | "$L" run --timeout 20 busybox nc 127.0.0.1 7001 >"$T/client"
	wait "$server"
	assertEquals from-client "$(<"$T/server")"
	assertEquals from-server "$(<"$T/client")"
}

test_guest_is_root_and_may_lock_memory() {
	# shellcheck disable=SC2016
	assertEquals "0 unlimited" "$("$L" run bash -c 'echo "$(id -u) $(ulimit -l)"')"
}

# What spares process 1 when memory runs out, and what it has open, is not the command's.
test_what_a_command_inherits() {
	# shellcheck disable=SC2016
	assertEquals '0 -1000 0 1 2 3 0' "$("$L" run sh -c 'echo $(cat /proc/self/oom_score_adj /proc/1/oom_score_adj
		ls /proc/self/fd; ls -l /proc/1/fd | grep -c -e urandom -e oom_score)')"
}

test_clock_is_right() {
	local off
	"$L" run date -s @1000000000 >/dev/null
	off=$(($("$L" run date +%s) - $(date +%s)))
	assertTrue "off by $off s" "[ ${off#-} -le 1 ]"
}

# ---- signals and ends

# start_traps: a command that tells which signal came; sets $client
start_traps() {
	rm -f "$T/out" # or the "ready" of the one before would do
	# Who ignores HUP, as under nohup, has it ignored by all that he starts.
	# shellcheck disable=SC2016
	env --default-signal "$L" run bash -c 'for s in INT TERM HUP; do trap "echo got $s; exit 9" $s; done
		echo ready; sleep 20 & wait' >"$T/out" &
	client=$!
	wait_for grep -q ready "$T/out"
}

test_signals_are_forwarded() {
	local s
	for s in INT TERM HUP; do
		start_traps
		kill "-$s" "$client"
		wait "$client"
		assertEquals "status after $s" 9 $?
		assert_in "$(<"$T/out")" "got $s"
	done
}

test_status_of_a_signalled_command() {
	"$L" run sleep 77.1 &
	client=$!
	wait_for in_guest 'sleep 77[.]1'
	kill -INT "$client"
	wait "$client"
	assertEquals 130 $?
	"$L" run sleep 77.2 &
	client=$!
	wait_for in_guest 'sleep 77[.]2'
	kill -TERM "$client"
	wait "$client"
	assertEquals 143 $?
	assertTrue "sleep goes on" "not_in_guest 'sleep 77[.]'"
}

# What it looked at on its way is closed: the locks of others, /dev/null.
test_what_a_client_holds() {
	local pid held=() clients=()
	for n in 1 2; do
		"$L" run sleep "79.$n" </dev/zero >"$T/out" 2>"$T/err" &
		clients+=($!)
		wait_for in_guest "sleep 79[.]$n"
	done
	for pid in "${clients[@]}"; do
		held+=("$(find "/proc/$pid/fd" -type l -perm -600 -printf '%l\n' | sed -nE 's|.*/(s[0-9]+[.]lock)$|\1|; /lock$|^.dev.null$/p' | sed 's/[0-9]//' | xargs)")
		kill -INT "$pid"
		wait "$pid"
	done
	assertEquals 's.lock s.lock' "${held[*]}"
}

test_killed_client_takes_its_command_along() {
	"$L" run timeout 78 bash -c 'trap "" HUP; echo ready; sleep 78.1 & wait; sleep 78.2' >"$T/out" &
	client=$!
	wait_for grep -q ready "$T/out"
	kill -KILL "$client"
	wait "$client" 2>/dev/null
	wait_for not_in_guest 'sleep 78[.]'
}

test_port_recovers_from_clients_killed_in_mid_frame() {
	local i
	for i in 1 2 3 4 5 6; do
		"$L" run cat </dev/zero >/dev/null &
		client=$!
		sleep "0.$i"
		kill -KILL "$client"
		wait "$client" 2>/dev/null
		assertEquals "after kill $i" "hello $i" "$(echo "hello $i" | timeout 20 "$L" run cat)"
	done
}

test_reader_that_goes_away() {
	timeout 20 "$L" run yes | head -n1 >/dev/null
	assertEquals "SIGPIPE reached the command" 141 "${PIPESTATUS[0]}"
}

test_interrupt_while_stdout_is_blocked() {
	mkfifo "$T/fifo"
	bash -c "exec 5<'$T/fifo'; exec sleep 30" &
	local reader=$! begin=$SECONDS
	"$L" run yes >"$T/fifo" &
	client=$!
	sleep 1
	kill -INT "$client"
	wait "$client"
	assertEquals 130 $?
	assertTrue "took too long" "[ $((SECONDS - begin)) -lt 8 ]"
	kill "$reader"
	wait "$reader" 2>/dev/null
	return 0
}

test_time_limit() {
	"$L" run --timeout 1 sleep 79 2>"$T/err"
	assertEquals 124 $?
	assert_in "$(<"$T/err")" 'time limit'
	"$L" run --timeout 1 bash -c 'trap "" TERM HUP; while :; do sleep 79; done' 2>/dev/null
	assertEquals "one that ignores SIGTERM" 124 $?
	wait_for not_in_guest 'sleep 7[9]'
}

test_background_process_is_left_alone() {
	local begin=$SECONDS
	"$L" run sh -c 'sleep 80.5 & echo started' >"$T/out"
	assertEquals 0 $?
	assertTrue "waited for it" "[ $((SECONDS - begin)) -lt 8 ]"
	assertTrue "it was ended" "in_guest 'sleep 80[.]5'"
	"$L" run pkill -f 'sleep 80[.]5'
	timeout 20 "$L" run sh -c 'yes & exit 3' | tail -n1 >/dev/null
	assertEquals "a noisy one" 3 "${PIPESTATUS[0]}"
}

test_more_sessions_than_ports() {
	local pids=() i
	for ((i = 0; i < 16; i++)); do
		"$L" run sleep 81 &
		pids+=($!)
	done
	wait_for sh -c "'$L' status | grep -q 'sessions: 16'"
	"$L" run true 2>"$T/err"
	assertEquals 125 $?
	assert_in "$(<"$T/err")" 'sessions .* in use'
	kill "${pids[@]}"
	wait "${pids[@]}"
	"$L" run true
	assertEquals 0 $?
}

# ---- terminals

test_terminal() {
	script -qec "stty rows 31 cols 97; '$L' run sh -c 'tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all'" /dev/null <<<'' >"$T/out"
	assert_in "$(<"$T/out")" '/dev/pts/[0-9]'
	assert_in "$(<"$T/out")" '31 97'
	assert_in "$(<"$T/out")" 'all'
	assertEquals "no terminal when piped" "not a tty" "$(script -qec "'$L' run tty | cat" /dev/null <<<'' | tr -d '\r' | grep tty)"
}

test_control_c_in_a_terminal() {
	(
		wait_for in_guest 'sleep 82[.]1'
		printf '\003'
		sleep 3
	) | script -qec "'$L' run sleep 82.1; echo status \$?" /dev/null >"$T/out"
	assert_in "$(<"$T/out")" 'status 130'
}

# A background job that touched the terminal would be stopped.
test_background_job_of_a_terminal() {
	timeout 20 script -qec "bash -c 'set -m; \"$L\" run sh -c \"sleep 0.5; echo done-\$((40 + 2))\" & wait; echo waited'" /dev/null \
		<<<'' >"$T/out"
	assert_in "$(<"$T/out")" 'done-42'
	assert_in "$(<"$T/out")" 'waited'
}

# ---- the VM's life

test_killed_vm_ends_its_runs_and_comes_back() {
	local pid
	"$L" run sleep 83.1 2>"$T/err" &
	client=$!
	wait_for in_guest 'sleep 83[.]1'
	read -r pid <"$run/pid"
	kill -KILL "$pid"
	wait "$client"
	assertEquals 125 $?
	assert_in "$(<"$T/err")" 'the VM went away'
	assertEquals "the next run" again "$("$L" run echo again 2>/dev/null)"
}

test_stale_files_are_noticed() {
	"$L" down 2>/dev/null
	mkdir -m 700 "$run"
	echo $$ >"$run/pid"
	echo "warm tcg 1 1" >"$run/ready"
	: >"$run/s0"
	assertEquals up-again "$("$L" run echo up-again 2>/dev/null)"
	assertTrue "killed a process that is not ours" "kill -0 $$"
}

test_parallel_ups_make_one_vm() {
	"$L" down 2>/dev/null
	"$L" up 2>/dev/null &
	"$L" up 2>/dev/null &
	"$L" run true 2>/dev/null
	assertEquals 0 $?
	wait
	assertEquals 1 "$(qemus "path=$run/ctl.sock,")"
	"$L" up 2>"$T/err"
	assert_in "$(<"$T/err")" 'running already'
}

# A pipe that the VM held would not end before the VM.
test_the_vm_keeps_no_pipe_of_its_starter() {
	"$L" down 2>/dev/null
	"$L" up 2>/dev/null 9> >(cat >"$T/held"; touch "$T/ended")
	wait_for test -e "$T/ended"
}

test_down_leaves_nothing() {
	"$L" run true 2>/dev/null
	"$L" down 2>/dev/null
	assertEquals 0 $?
	assertFalse "$(ls "$run" 2>/dev/null)" "[ -e '$run' ]"
	assertEquals 0 "$(qemus "$run/")"
	"$L" down 2>"$T/err"
	assertEquals "a second time" 0 $?
}

# 48 MiB: it takes QEMU seconds to write them.
test_down_writes_back_what_is_mapped() {
	"${CC:-cc}" -x c -o build/dirty - <<-'END'
		#include <fcntl.h>
		#include <string.h>
		#include <sys/mman.h>
		#include <unistd.h>
		int main(void)
		{
			size_t size = 48 << 20;
			char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
					 open("build/mapped", O_RDWR), 0);

			for (size_t i = 0; i < size; i += 4096)
				strcpy(map + i, "mapped");
			write(1, "dirty\n", 6);
			pause();
		}
	END
	truncate -s 48M build/mapped
	"$L" up 2>/dev/null
	"$L" run build/dirty >"$T/out" 2>/dev/null &
	client=$!
	wait_for grep -q dirty "$T/out"
	"$L" down 2>"$T/err"
	assertEquals 'lab: VM ended' "$(grep -v 'the VM writes back' "$T/err")"
	wait "$client"
	assertEquals $((48 * 256)) "$(grep -ao mapped build/mapped | wc -l)"
	rm build/mapped
}

test_down_of_a_vm_that_hangs() {
	"$L" up 2>/dev/null
	kill -STOP "$(<"$run/pid")"
	"$L" down 2>"$T/err"
	assert_in "$(<"$T/err")" 'lab: the VM did not end, and was killed: .* may be lost'
	assertEquals 0 "$(qemus "$run/")"
}

test_starter_killed_half_way() {
	"$L" down 2>/dev/null
	local i up
	for i in 1 3 5; do
		setsid "$L" up 2>/dev/null &
		up=$!
		sleep "0.$i"
		kill -KILL "$up" 2>/dev/null
		wait "$up" 2>/dev/null
		assertEquals "after 0.$i s" fine "$(timeout 30 "$L" run echo fine 2>/dev/null)"
		assertEquals 1 "$(qemus "path=$run/ctl.sock,")"
		"$L" down 2>/dev/null
	done
}

test_idle_vm_ends_itself() {
	"$L" down 2>/dev/null
	LAB_IDLE_MINUTES=0.04 "$L" run true 2>/dev/null
	wait_for no_qemu "path=$run/ctl.sock,"
	assertEquals back "$("$L" run echo back 2>/dev/null)"
}

test_status_tells() {
	"$L" run true 2>/dev/null
	"$L" status >"$T/out"
	assertEquals 0 $?
	assert_in "$(<"$T/out")" "pid $(<"$run/pid"),"
	assert_in "$(<"$T/out")" 'kernel: +[0-9]+[.]'
}

# ---- --fresh and --counted

test_fresh_vm_is_clean_and_leaves_nothing() {
	# shellcheck disable=SC2016
	local look='ls /tmp | grep -v ^lab-tree; cat /proc/sys/kernel/random/uuid; touch /tmp/x; ip link del veth0'
	"$L" run --fresh sh -c "$look" >"$T/1"
	"$L" run --fresh sh -c "$look; exit 5" >"$T/2"
	assertEquals 5 $?
	assertEquals "only the uuid" 1 "$(wc -l <"$T/2")"
	assertNotEquals "both have the same random numbers" "$(<"$T/1")" "$(<"$T/2")"
	assertEquals "" "$(ls -d "$base"/f.* 2>/dev/null)"
	assertEquals 0 "$(qemus "$base/f.")"
	"$L" run ip link show veth0 >/dev/null
	assertEquals "the warm VM was touched" 0 $?
}

# A getrandom() that has to wait for entropy ends with EINTR when a signal comes.
test_random_numbers_do_not_wait() {
	assertEquals 1 "$("$L" run --fresh sh -c 'dmesg | grep -c "crng init done"')"
}

test_killed_fresh_client_leaves_no_qemu() {
	local s
	for s in KILL INT; do
		: >"$T/out"
		"$L" run --fresh sh -c 'echo up; sleep 84' >>"$T/out" 2>/dev/null &
		client=$!
		wait_for grep -q up "$T/out"
		assertEquals "QEMU of $s" 1 "$(qemus "/f.$client/ctl.sock")"
		kill "-$s" "$client"
		wait "$client" 2>/dev/null
		wait_for no_qemu "/f.$client/ctl.sock"
	done
	# and in the middle of its start
	"$L" run --fresh sleep 84 2>/dev/null &
	client=$!
	wait_for test -S "$base/f.$client/ctl.sock"
	kill -KILL "$client"
	wait "$client" 2>/dev/null
	wait_for no_qemu "/f.$client/ctl.sock"
	"$L" run --fresh true
	assertEquals "directories of killed ones" "" "$(ls -d "$base"/f.* 2>/dev/null)"
}

# ---- Soft-RoCE in there

test_packets_cross_the_veth() {
	# shellcheck disable=SC2016
	timeout 60 "$L" run --fresh bash -c 'n=/sys/class/net/veth0/statistics/tx_packets; before=$(<$n)
		ibv_rc_pingpong -d rxe0 -g 1 >/dev/null & until grep -q :4853 /proc/net/tcp*; do sleep 0.05; done
		ibv_rc_pingpong -d rxe1 -g 1 127.0.0.1 >/dev/null || exit 1
		wait $! || exit 1; echo $(($(<$n) - before))' >"$T/out"
	assertEquals 0 $?
	assertTrue "only $(<"$T/out") packets on veth0" "[ $(<"$T/out") -ge 1000 ]"
}

test_path_mtu_is_4096() {
	assertEquals 2 "$("$L" run ibv_devinfo | grep -c 'active_mtu:.*4096')"
}

test_netem_takes_effect() {
	timeout 60 "$L" run --fresh bash -c 'tc qdisc add dev veth0 root netem delay 20ms
		ibv_rc_pingpong -n 10 -d rxe0 -g 1 >/dev/null & until grep -q :4853 /proc/net/tcp*; do sleep 0.05; done
		ibv_rc_pingpong -n 10 -d rxe1 -g 1 127.0.0.1' >"$T/out"
	local us
	us=$(sed -n 's/.*seconds = \([0-9]*\).* usec.*/\1/p' "$T/out")
	assertTrue "an iteration took ${us:-?} us" "[ ${us:-0} -ge 20000 ]"
}

# ---- where it cannot, and wrong use

test_usage() {
	local args
	for args in '' 'frobnicate' 'run' 'run --nonsense true' 'run --timeout' 'run --timeout x true' 'run --fresh' 'root' 'root vax'; do
		# shellcheck disable=SC2086
		"$L" $args >/dev/null 2>&1
		assertEquals "lab $args" 2 $?
	done
	LAB=sideways "$L" run true 2>/dev/null
	assertEquals "LAB=sideways" 2 $?
	LAB_ROOT=$T "$L" run true 2>"$T/err"
	assertEquals "LAB_ROOT without programs" 2 $?
	assert_in "$(<"$T/err")" "^lab: LAB_ROOT=$T has no bin/bash for x86_64 or aarch64"
	"$L" --help | grep -q '^usage: lab'
	assertEquals 0 $?
}

# The VM is shown /usr, to which /bin and /lib are links on any system of today.
test_a_system_with_a_bin_of_its_own() {
	mkdir -p "$T/old/bin" "$T/old/lib"
	cp /bin/bash "$T/old/bin/"
	LAB_ROOT=$T/old "$L" run true 2>"$T/err"
	assertEquals 77 $?
	assert_in "$(<"$T/err")" "^lab: $T/old/bin and $T/old/lib are no links to $T/old/usr"
}

test_no_qemu_here() {
	local p
	mkdir "$T/bin"
	for p in bash sh env dirname readlink sha256sum mkdir cc flock mv rm chmod id ls; do
		ln -s "$(command -v "$p")" "$T/bin/$p"
	done
	sed 's|^PATH=.*||' "$L" >"$tree/labs/lab2" # it adds the sbin directories
	chmod +x "$tree/labs/lab2"
	PATH=$T/bin "$tree/labs/lab2" run --fresh true 2>"$T/err"
	assertEquals 77 $?
	assert_in "$(<"$T/err")" 'qemu-system-x86_64 is missing'
	assert_in "$(<"$T/err")" 'next: sudo labs/deps.sh'
	rm "$tree/labs/lab2"
}

# as_nobody CMD...: as an ordinary user with a home of its own
as_nobody() {
	ordinary env -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR HOME="$tree/home" \
		RDMA_LAB_CACHE="$tree/home/cache" "$@"
}

make_nobody() {
	mkdir -p "$tree/home/cache"
	cp -r "$cache/kernel-${LAB_KERNEL:-host}" "$tree/home/cache"
	to_ordinary "$tree/home"
	as_nobody test -r "$L" || { skip "nobody may not read $tree"; return 1; }
}

test_ordinary_user() {
	make_nobody || return 0
	as_nobody "$L" run sh -c 'id -u; rdma link' >"$T/out" 2>"$T/err"
	rc=$?
	assertEquals "$(<"$T/err")" 0 "$rc"
	assert_in "$(<"$T/out")" 'rxe1/1 state ACTIVE'
	mkdir -m 555 "$tree/closed"
	as_nobody "$L" run touch "$tree/closed/not-mine" 2>/dev/null
	assertNotEquals "wrote where nobody may not" 0 $?
	to_ordinary "$tree/build"
	as_nobody "$L" capture true >"$T/out" 2>"$T/err"
	rc=$?
	assertEquals "capture: $(<"$T/err")" 0 "$rc"
	assert_in "$(<"$T/out")" '^no packets: '
	as_nobody "$L" down 2>/dev/null
	assertEquals 0 $?
	assertEquals 0 "$(qemus "$tree/home/cache/")"
}

test_native_without_a_device() {
	! compgen -G '/sys/class/infiniband/*' >/dev/null || { skip "this host has a device"; return; }
	make_nobody || return 0
	LAB=native as_nobody "$L" run true 2>"$T/err"
	assertEquals 77 $?
	assert_in "$(<"$T/err")" 'next: sudo labs/rxe.sh setup'
}

# Inside the VM there is a device, so auto means: just run it.
test_native_inside_the_vm() {
	LAB=auto "$L" run env LAB=auto "$L" run sh -c 'cat /proc/sys/kernel/hostname; exit 6' >"$T/out"
	assertEquals 6 $?
	assertEquals rdma-lab "$(<"$T/out")"
}

newest_state() {
	find "$cache" -name "state-normal-${LAB_KERNEL:-host}-*" -printf '%T@ %p\n' | sort -rn | sed -n '1s/^[^ ]* //p'
}

test_kvm_that_hangs_is_found_out() {
	local found=''
	mkdir -p "$T/bin" "$T/cache"
	cp -rp "$cache/kernel-${LAB_KERNEL:-host}" "$cache/hot.list" "$(newest_state)" "$T/cache"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/sh' 'case "$*" in *"accel kvm"*) exec sleep 85 ;; esac' \
		"exec $(command -v qemu-system-x86_64) \"\$@\"" >"$T/bin/qemu-system-x86_64"
	chmod +x "$T/bin/qemu-system-x86_64"
	PATH=$T/bin:$PATH RDMA_LAB_CACHE=$T/cache timeout 60 "$L" run --fresh true 2>/dev/null
	assertEquals 0 $?
	# Without /dev/kvm, as without the right to it, there is nothing to find out.
	[[ ! -r /dev/kvm || ! -w /dev/kvm ]] || found=no
	assertEquals "$found" "$(cat "$T"/cache/kvm-* 2>/dev/null)"
	assertEquals "the probe runs on" "" "$(pgrep -f 'sleep 85$')"
}

. shunit2
