#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/lab: a command in the VM behaves as if it ran here, and the VM leaves
# nothing behind.
#
# shellcheck disable=SC2016 # scripts for the VM are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/lab/tree.sh
. "$ROOT/labs/tests/lab/tree.sh"

# ---- as if it ran here

test_exit_status() {
	local want command
	while read -r want command; do
		"$L" run bash -c "$command" 2>/dev/null
		assertEquals "$command" "$want" $?
	done <<-'END'
		0 true
		37 exit 37
		137 kill -9 $$
	END
	"$L" run /no/such/command 2>/dev/null
	assertEquals "not found" 127 $?
	"$L" run /etc/passwd 2>/dev/null
	assertEquals "not executable" 126 $?
}

test_streams() {
	"$L" run sh -c 'echo to-out; echo to-err >&2' >"$T/out" 2>"$T/err"
	assertEquals to-out "$(<"$T/out")"
	assertEquals to-err "$(<"$T/err")"
	# the two bytes that frame the wire, alone and in runs, and all others
	{
		printf '\300\333\300\300\333\334\335\0\300'
		head -c 4194304 /dev/urandom
	} >"$T/in"
	"$L" run cat <"$T/in" >"$T/out"
	assertEquals 0 $?
	assertTrue "4 MiB changed on the way" "cmp '$T/in' '$T/out'"
	head -c 3000000 /dev/zero | timeout 20 "$L" run true
	assertEquals "stdin that nobody reads" 0 $?
	: | "$L" run cat
	assertEquals "end of file" 0 $?
	"$L" run cat <&-
	assertEquals "no stdin" 0 $?
	timeout 20 "$L" run yes | head -n 1 >/dev/null
	assertEquals "SIGPIPE reached the command" 141 "${PIPESTATUS[0]}"
}

test_cwd_environment_and_arguments() {
	local dir
	mkdir -p "build/a b"
	assertEquals "$tree/build/a b" "$(cd "build/a b" && "$L" run pwd)"
	assertEquals $'one  two\n"three"' "$(VALUE=$'one  two\n"three"' "$L" run printenv VALUE)"
	assertEquals "" "$(LAB_THING=1 TMPDIR=/nowhere "$L" run sh -c 'printenv LAB_THING TMPDIR')"
	"$L" run printf '<%s>' 'a b' '' $'c\nd' "it's" '"q"' '$HOME *' >"$T/out"
	assertEquals $'<a b><><c\nd><it\'s><"q"><$HOME *>' "$(<"$T/out")"
	dir=$(mktemp -d)
	(cd "$dir" && "$L" run true) 2>"$T/err"
	assertEquals "a folder that the VM does not have" 126 $?
	rmdir "$dir"
	assert_in "$(<"$T/err")" "cannot enter $dir .*No such file"
}

test_tree_is_shared_and_the_rest_is_not() {
	local word
	"$L" run sh -c 'echo from the guest >build/file; echo x >/etc/lab-was-here'
	assertEquals "from the guest" "$(<build/file)"
	assertFalse "the guest wrote on the host" "[ -e /etc/lab-was-here ]"
	for word in first second; do
		printf '#!/bin/sh\necho %s\n' "$word" >build/prog
		chmod +x build/prog
		assertEquals "a program made anew" "$word" "$("$L" run build/prog)"
	done
}

# QEMU itself gives nothing else: root in the VM may mount what it likes.
test_no_home_of_this_host() {
	local secret
	secret=$(mktemp -d /var/tmp/secret.XXXXXX)
	echo secret >"$secret/file"
	"$L" run sh -c 'cat /sys/bus/virtio/drivers/9pnet_virtio/*/mount_tag | tr "\0" "\n" | sort
		mkdir /up
		for tag in root / home; do
			mount -t 9p -o trans=virtio,version=9p2000.L "$tag" /up 2>/dev/null && ls /up
		done
		cat "$0/file" "/usr/..$0/file" 2>/dev/null
		[ -w "$HOME" ] || echo "no home"' "$secret" >"$T/out"
	assertEquals 'etc usr work ' "$(grep -v '^opt$' "$T/out" | tr '\n' ' ')"
	rm -r "$secret"
}

test_two_runs_meet_over_tcp() {
	local server
	# It answers when it has read: nc ends when the other side has, whatever else.
	"$L" run --timeout 20 sh -c 'busybox nc -l -p 7001 -e sh -c "read -r said
		echo \$said >/tmp/said.7001; echo from-server"; cat /tmp/said.7001' >"$T/server" &
	server=$!
	wait_for "$L" run sh -c 'grep -q :1B59 /proc/net/tcp*'
	echo from-client | "$L" run --timeout 20 busybox nc 127.0.0.1 7001 >"$T/client"
	wait "$server"
	assertEquals from-client "$(<"$T/server")"
	assertEquals from-server "$(<"$T/client")"
}

test_guest_is_root_and_may_lock_memory() {
	local off
	assertEquals "0 unlimited" "$("$L" run bash -c 'echo "$(id -u) $(ulimit -l)"')"
	assertEquals "the path MTU is 4096" 2 "$("$L" run ibv_devinfo | grep -c 'active_mtu:.*4096')"
	"$L" run date -s @1000000000 >/dev/null
	off=$(($("$L" run date +%s) - $(date +%s)))
	assertTrue "the clock is off by $off s" "[ ${off#-} -le 1 ]"
}

# ---- signals and ends

test_signals() {
	local signal want
	for signal in INT TERM HUP; do
		begin bash -c 'for s in INT TERM HUP; do trap "echo got $s; exit 9" $s; done
			echo ready; sleep 77.1 & wait'
		kill_client "$signal"
		assertEquals "status after $signal" 9 "$rc"
		assert_in "$(<"$T/out")" "got $signal"
	done
	while read -r signal want; do
		begin bash -c 'echo ready; exec sleep 77.2'
		kill_client "$signal"
		assertEquals "$signal" "$want" "$rc"
	done <<-'END'
		INT 130
		TERM 143
	END
	assertTrue "sleep goes on" "not_in_guest 'sleep 77[.]2'"
}

test_killed_client_takes_its_command_along() {
	begin timeout 78 bash -c 'trap "" HUP; echo ready; sleep 78.1 & wait; sleep 78.2'
	kill_client KILL
	wait_for not_in_guest 'sleep 78[.]'
}

test_time_limit() {
	"$L" run --timeout 1 sleep 79 2>"$T/err"
	assertEquals 124 $?
	assert_in "$(<"$T/err")" 'time limit'
	wait_for not_in_guest 'sleep 7[9]'
}

test_terminal() {
	script -qec "stty rows 31 cols 97; '$L' run sh -c 'tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all'" /dev/null <<<'' >"$T/out"
	assert_in "$(<"$T/out")" '/dev/pts/[0-9]'
	assert_in "$(<"$T/out")" '31 97'
	assert_in "$(<"$T/out")" 'all'
	assertEquals "no terminal when piped" "not a tty" "$(script -qec "'$L' run tty | cat" /dev/null <<<'' | tr -d '\r' | grep tty)"
	# Ctrl-C; then its stdin stays open for as long as it takes to end.
	{
		wait_for in_guest 'sleep 82[.]1'
		printf '\003'
		wait_for not_in_guest 'sleep 82[.]1'
		sleep 0.5
	} | script -qec "'$L' run sleep 82.1; echo status \$?" /dev/null >"$T/out"
	assert_in "$(<"$T/out")" 'status 130' 'Ctrl-C:'
}

# ---- the VM's life

test_killed_vm_ends_its_runs_and_comes_back() {
	local pid rc=0
	begin sh -c 'echo ready; sleep 83.1'
	read -r pid <"$run/pid"
	kill -KILL "$pid"
	wait "$client" || rc=$?
	assertEquals 125 "$rc"
	assert_in "$(<"$T/err")" 'the VM went away'
	assertEquals "the next run" again "$("$L" run echo again 2>/dev/null)"
}

test_fresh_vm_is_clean_and_leaves_nothing() {
	local look='ls /tmp/x 2>/dev/null; cat /proc/sys/kernel/random/uuid; touch /tmp/x
		tc qdisc add dev veth0 root netem delay 20ms || echo no netem; ip link del veth0'
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

test_status_and_down() {
	"$L" run true 2>/dev/null
	"$L" status >"$T/out"
	assertEquals 0 $?
	assert_in "$(<"$T/out")" "pid $(<"$run/pid"),"
	assert_in "$(<"$T/out")" 'kernel: +[0-9]+[.]'
	"$L" down 2>/dev/null
	assertEquals 0 $?
	assertFalse "$(ls "$run" 2>/dev/null)" "[ -e '$run' ]"
	assertEquals 0 "$(qemus "$run/")"
	"$L" down 2>"$T/err"
	assertEquals "a second time" 0 $?
}

# ---- where it cannot, and wrong use

test_usage() {
	local args
	for args in '' 'frobnicate' 'run' 'run --nonsense true' 'run --timeout x true' 'run --fresh' 'root' 'root vax'; do
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

# Inside the VM there is a device, so auto means: just run it.
test_native_inside_the_vm() {
	LAB=auto "$L" run env LAB=auto "$L" run sh -c 'cat /proc/sys/kernel/hostname; exit 6' >"$T/out"
	assertEquals 6 $?
	assertEquals rdma-lab "$(<"$T/out")"
}

. shunit2
