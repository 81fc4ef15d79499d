#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/lab, the rest of test_lab.sh: runs and VMs that are killed at a bad moment, what
# does not answer, other users.
#
# shellcheck disable=SC2016 # scripts for the VM are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/lab/tree.sh
. "$ROOT/labs/tests/lab/tree.sh"

# Written while others ask how long it is, and read it: newer kernels lost what the
# one had just written.
test_a_file_that_is_watched_while_it_is_written() {
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

newest_state() {
	find "$cache" -name "state-normal-${LAB_KERNEL:-host}-*" -printf '%T@ %p\n' | sort -rn | sed -n '1s/^[^ ]* //p'
}

test_kvm_that_hangs_is_found_out() {
	local found=''
	mkdir -p "$T/bin" "$T/cache"
	cp -rp "$cache/kernel-${LAB_KERNEL:-host}" "$cache/hot.list" "$(newest_state)" "$T/cache"
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
