#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/lab where something stands in its way: wrong words, folders that it may not
# write, a full disk, little memory. One line says the cause and one what to do, and
# nothing half made stays. The suite works on a copy of labs/, as test_lab.sh does.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm LAB_ACCEL=tcg # under KVM, nothing is saved
unset LAB_MEMORY
cache=${RDMA_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-lab}

oneTimeSetUp() {
	tree=$(mktemp -d /tmp/lab-tree.XXXXXX)
	mkdir "$tree/build"
	cp -r "$ROOT/labs" "$tree/labs"
	chmod 755 "$tree"
	cd "$tree" || exit 1
	XDG_RUNTIME_DIR=$(mktemp -d /tmp/lab-test.XXXXXX)
	export XDG_RUNTIME_DIR
	L=$tree/labs/lab
	"$L" run --fresh true || exit 1 # the kernel and the saved VM are there
}

oneTimeTearDown() {
	[[ -n ${tree:-} ]] || return 0
	cd "$ROOT" || return
	rm -rf "$tree" "$XDG_RUNTIME_DIR"
	tree=''
}

# refused CODE CAUSE NEXT CMD…: it ends so, and says this and no more
refused() {
	local rc
	"${@:4}" >/dev/null 2>"$T/err"
	rc=$?
	assertEquals "status of ${*:4}: $(<"$T/err")" "$1" "$rc"
	assertEquals "lines of ${*:4}: $(<"$T/err")" 2 "$(wc -l <"$T/err")"
	assert_in "$(<"$T/err")" "^lab: $2"
	assert_in "$(<"$T/err")" "^lab: next: $3"
}

# as_nobody CMD…: as an ordinary user
as_nobody() {
	ordinary env -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR -u RDMA_LAB_CACHE "$@"
}

test_wrong_words() {
	refused 2 'there is no command "rum"' 'labs/lab run, capture, up, ' "$L" rum true
	refused 2 'up takes' 'lab' "$L" up now please
	refused 2 'down takes no argument "now"' 'labs/lab down' "$L" down now
	refused 2 'clean-cache takes no argument "x"' 'labs/lab clean-cache' "$L" clean-cache x
	refused 2 'LAB_MEMORY is "2G"' 'LAB_MEMORY=1024' env LAB_MEMORY=2G "$L" run --fresh true
	refused 2 'LAB_MEMORY is "511"' 'LAB_MEMORY=1024' env LAB_MEMORY=511 "$L" run --counted true
}

# says CODE PATTERN CMD…
says() {
	"${@:3}" >"$T/out" 2>&1
	rc=$?
	assertEquals "status of ${*:3}: $(<"$T/out")" "$1" "$rc"
	assert_in "$(<"$T/out")" "$2" "${*:3}:"
}

test_words_of_the_other_scripts() {
	says 0 '^bench - .*against perftest' "$tree/labs/bench" --help
	assert_not_in "$(<"$T/out")" 'SPDX|set -euo'
	says 2 'labs/bench \[--rounds N\]' "$tree/labs/bench" --nonsense
	says 2 'labs/bench \[--rounds N\]' "$tree/labs/bench" --rounds
	says 2 "^bench: '--nonsense' is no option and no program" "$tree/labs/bench" --nonsense
	says 2 '^bench: --rounds is a number from 1, not 0$' "$tree/labs/bench" --rounds 0
	says 0 'labs/tests/run \[OPTION' "$tree/labs/tests/run" --help
	assert_not_in "$(<"$T/out")" 'SPDX|set -euo|passed,$'
	says 2 '^run: next: labs/tests/run --help' "$tree/labs/tests/run" --nonsense
	says 2 '^run: there is no suite no/such.sh' "$tree/labs/tests/run" no/such.sh
	says 2 '^run: --long goes without' "$tree/labs/tests/run" --long labs/tests/lab/test_lab.sh
	says 2 '^run: --half goes with --long' "$tree/labs/tests/run" --half
	says 1 '^run: --half draws by the commit' "$tree/labs/tests/run" --long --half
	says 2 '^run: --repeat is "often"' "$tree/labs/tests/run" --repeat often
	says 0 'labs/tests/quick \[--list\]' "$tree/labs/tests/quick" --help
	says 2 '^quick: next: labs/tests/quick --help' "$tree/labs/tests/quick" --nonsense
	says 1 '^quick: next: labs/tests/run' "$tree/labs/tests/quick" --list # no git there
	says 0 'labs/tests/mutants/random \[N \[SEED' "$tree/labs/tests/mutants/random" --help
	says 2 '^random: next: labs/tests/mutants/random --help' "$tree/labs/tests/mutants/random" many
	says 2 '^random: .*JOBS 1 ... 99; not .*"0"$' env JOBS=0 "$tree/labs/tests/mutants/random"
	says 1 '^random: .* no git checkout$' "$tree/labs/tests/mutants/random"
	says 0 'labs/tests/mutants/reached \[SUITE' "$tree/labs/tests/mutants/reached" --help
	says 2 '^reached: there is no suite no/such.sh' "$tree/labs/tests/mutants/reached" no/such.sh
	says 2 '^reached: JOBS is "0"' env JOBS=0 "$tree/labs/tests/mutants/reached"
	says 1 '^reached: next: git clone' "$tree/labs/tests/mutants/reached"
	git -C "$tree" init -q
	says 2 '^random: no file with faults matches "no/such.c"' "$tree/labs/tests/mutants/random" 5 1 no/such.c
	rm -r "$tree/.git"
	says 2 '^run: JOBS is "many"' env JOBS=many "$tree/labs/tests/run" labs/tests/lab/test_lab.sh
}

# However a suite ends, and however much it says, the last line counts.
test_suites_that_fail_are_counted() {
	mkdir -p "$tree/labs/tests/none"
	echo 'exit 3' >"$tree/labs/tests/none/test_dies.sh"
	echo 'for ((i = 0; i < 9999; i++)); do echo "ASSERT:$i is wrong"; done; exit 1' >"$tree/labs/tests/none/test_loud.sh"
	cat >"$tree/labs/tests/none/test_waits.sh" <<-'END'
		. "$(dirname "$0")/../lib.sh"
		. labs/tests/guest.sh
		in_vain() { await_s=1 await false || true; }
		suite() { suite_addTest in_vain; }
		. shunit2
	END
	says 1 '^0 passed, 3 failed, 0 skipped$' env JOBS=1 "$tree/labs/tests/run" labs/tests/none/test_{dies,loud,waits}.sh
	assert_in "$(<"$T/out")" 'waited 1 s for: false'
	assert_in "$(<"$T/out")" 'not ok the suite ended with 3 after 0 tests'
	assert_in "$(<"$T/out")" '^  ASSERT:9 is wrong$'
}

# half_of COMMIT: the suites that --half draws for it, one a line
half_of() {
	git -C "$tree" -c user.name=x -c user.email=x@x commit -q --allow-empty -m "$1" --date "$1 +0000"
	says 0 "^$n passed, 0 failed, 0 skipped$" env JOBS=2 "$tree/labs/tests/run" --long --half
	grep '^labs/' "$T/out" | sort
}

test_half_of_them_is_drawn_by_the_commit() {
	local suite n=0 first second both
	git -C "$tree" init -q
	for suite in "$tree"/labs/tests/*/{long,test}_*.sh; do
		cat >"$suite" <<<'echo "ok,test,0," | tr , "\t" >>"$TEST_RESULTS"'
	done
	says 0 ' passed, 0 failed, 0 skipped$' env JOBS=2 "$tree/labs/tests/run" --long
	n=$(grep -c '^labs/' "$T/out")
	both=$(grep '^labs/' "$T/out" | sort)
	n=$(((n + 1) / 2))
	first=$(half_of 1)
	second=$(half_of 2)
	assertEquals 'none but those' '' "$(comm -13 <(echo "$both") <(echo "$first"))"
	assertEquals "$n" "$(wc -l <<<"$first")"
	assertNotEquals "$first" "$second"
	assertEquals 'the same commit draws the same' "$second" "$(says 0 . env JOBS=2 "$tree/labs/tests/run" --long --half && grep '^labs/' "$T/out" | sort)"
	rm -r "$tree/.git"
	cp -r "$ROOT/labs/tests" "$tree/labs/"
}

test_home() {
	local out
	out=$(env -u HOME -u XDG_CACHE_HOME -u RDMA_LAB_CACHE "$L" status 2>&1)
	assertEquals "without HOME: $out" 0 $?
	refused 1 '//.cache/rdma-lab cannot be written: Permission denied' 'set RDMA_LAB_CACHE' \
		as_nobody HOME=/ "$L" up
	mkdir -p "$tree/home/.cache"
	to_ordinary "$tree/home/.cache"
	chmod 555 "$tree/home/.cache"
	refused 1 "$tree/home/.cache/rdma-lab cannot be written: Permission denied" 'set RDMA_LAB_CACHE' \
		as_nobody HOME="$tree/home" "$L" up
}

# sudo leaves files of root in a home, and in build/
test_files_of_another_user() {
	mkdir -p "$tree/home2/.cache/rdma-lab"
	: >"$tree/home2/.cache/rdma-lab/lock"
	chmod 444 "$tree/home2/.cache/rdma-lab/lock"
	to_ordinary "$tree/home2/.cache/rdma-lab"
	refused 1 "$tree/home2/.cache/rdma-lab/lock belongs to another user" 'set RDMA_LAB_CACHE' \
		as_nobody HOME="$tree/home2" "$L" up
	rm "$tree/build/lab/attach"
	chmod 555 "$tree/build/lab"
	refused 1 "$tree/build/lab cannot be written: Permission denied" "sudo rm -r $tree/build" \
		as_nobody HOME="$tree/home2" "$L" build
	chmod 755 "$tree/build/lab"
	chmod a-w "$tree/build/lab/"*
	to_ordinary "$tree/build/lab"
	refused 1 "$tree/build/lab/[a-z]* belongs to another user" "sudo rm -r $tree/build" \
		as_nobody HOME="$tree/home2" "$L" build
	rm -r "$tree/build/lab"
	"$L" build
}

# What the next cache needs to start from
kernel_into() {
	mkdir -p "$1"
	cp -r "$cache/kernel-${LAB_KERNEL:-host}" "$cache/hot.list" "$1"
}

# boots_after N: a QEMU in $T/bin with which the first N boots fail
boots_after() {
	local qemu
	qemu=qemu-system-$(uname -m)
	mkdir -p "$T/bin"
	seq "$1" >"$T/boots"
	cat >"$T/bin/$qemu" <<-END
		#!/bin/sh
		case "\$*" in *" -kernel "*)
			[ ! -s "$T/boots" ] || { sed -i 1d "$T/boots"; echo "no boot today"; exit 1; } ;;
		esac
		exec $(command -v "$qemu") "\$@"
	END
	chmod +x "$T/bin/$qemu"
}

test_a_vm_that_does_not_boot() {
	kernel_into "$T/no boot"
	boots_after 2
	PATH=$T/bin:$PATH RDMA_LAB_CACHE="$T/no boot" "$L" run --fresh true 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(<"$T/err")" '^no boot today$'
	assert_in "$(<"$T/err")" '^lab: the VM did not come up$'
	assert_in "$(<"$T/err")" '^lab: next: labs/lab clean-cache'
	assertEquals "tried twice" "" "$(<"$T/boots")"
}

test_cache_path_with_a_blank() {
	kernel_into "$T/my cache"
	"$L" run --fresh true # one of the saved VMs is ours; others are of suites beside this one
	find "$cache" -name "state-normal-${LAB_KERNEL:-host}-????????????" -exec cp {} "$T/my cache" \;
	saved=$(find "$T/my cache" -name 'state-*' | sort)
	RDMA_LAB_CACHE="$T/my cache" "$L" run --fresh echo fine >"$T/out" 2>"$T/err"
	rc=$?
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals fine "$(<"$T/out")"
	assertEquals "none is made" "$saved" "$(find "$T/my cache" -name 'state-*' | sort)"
	# A saved VM that is damaged is made anew, even if it does not boot at once; and
	# the command runs, once.
	truncate -s 60000000 "$T/my cache"/state-*
	boots_after 1
	echo in | PATH=$T/bin:$PATH RDMA_LAB_CACHE="$T/my cache" "$L" run --fresh cat >"$T/out" 2>"$T/err"
	rc=$?
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals in "$(<"$T/out")"
	assert_in "$(<"$T/err")" '^lab: the saved VM did not come up; it is made anew$'
	assert_in "$(<"$T/err")" '^lab: the VM did not come up; booting it once more$'
	assertEquals "made anew: $(stat -c '%s %n' "$T/my cache"/state-*)" 1 \
		"$(find "$T/my cache" -name 'state-*' -size +60000000c | wc -l)"
}

# Where it grows too large (the file that is written here; a disk does the same).
test_state_that_cannot_be_written() {
	kernel_into "$T/cache"
	(
		ulimit -f 51200
		RDMA_LAB_CACHE="$T/cache" "$L" run --fresh true 2>"$T/err"
	)
	assertEquals 1 $?
	assert_in "$(<"$T/err")" '^lab: the VM could not be saved: '
	assert_in "$(<"$T/err")" '^lab: next: '
	assertEquals "what is left" "hot.list kernel-${LAB_KERNEL:-host} lock" \
		"$(find "$T/cache" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | paste -sd ' ')"
}

test_disk_with_too_little_room() {
	kernel_into "$T/cache"
	mkdir "$T/bin"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/sh' '[ "$1" != -f ] || { echo "299 * 1048576"; exit; }' \
		"exec $(command -v stat) \"\$@\"" >"$T/bin/stat"
	chmod +x "$T/bin/stat"
	refused 1 'a saved VM needs 300 MiB in .*, and 299 are free' 'make room there' \
		env PATH="$T/bin:$PATH" RDMA_LAB_CACHE="$T/cache" "$L" run --fresh true
}

# A socket's path has 108 bytes, and QEMU parts its options by commas.
test_runtime_folder() {
	local dir
	for dir in "$T/with,comma" "$T/$(printf '%090d' 0)" "$T/with blank" relative; do
		mkdir -p "$dir"
		XDG_RUNTIME_DIR=$dir "$L" run --fresh echo fine >"$T/out" 2>"$T/err"
		rc=$?
		assertEquals "$dir: $(<"$T/err")" 0 "$rc"
		assertEquals "$dir" fine "$(<"$T/out")"
	done
}

# limit LINES-OF-/proc/self/cgroup FILE BYTES…: what the VM thinks that it may use
limit() {
	local file
	rm -rf "$T/sys"
	printf '%b' "$1" >"$T/cgroup"
	while (($# > 1)); do
		file=$T/sys/$2
		mkdir -p "${file%/*}"
		echo "$3" >"$file"
		shift 2
	done
	# shellcheck disable=SC2016
	bash -euc 'root=x cache=x tools=x; . "$1"; memory_limit "$2" "$3"' _ \
		"$tree/labs/vm/vm.sh" "$T/cgroup" "$T/sys"
}

test_memory_limit() {
	local all g=1073741824
	all=$(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) / 1024))
	assertEquals "none" "$all" "$(limit '0::/\n')"
	assertEquals "a container's" 512 "$(limit '0::/\n' memory.max $((g / 2)))"
	assertEquals "no limit" "$all" "$(limit '0::/a\n' a/memory.max max)"
	assertEquals "of one above" 512 "$(limit '0::/a/b\n' a/memory.max $((g / 2)) a/b/memory.max max)"
	assertEquals "the least" 256 "$(limit '0::/a/b\n' a/memory.max $((g / 2)) a/b/memory.max $((g / 4)))"
	assertEquals "v1" 512 "$(limit '9:cpu:/a\n4:memory:/a\n0::/\n' \
		memory/memory.limit_in_bytes 9223372036854771712 memory/a/memory.limit_in_bytes $((g / 2)))"
	assertEquals "v1 in a container, by its host's path" 512 \
		"$(limit '4:memory:/docker/x\n' memory/memory.limit_in_bytes $((g / 2)))"
	assertEquals "v1 without" "$all" "$(limit '4:memory:/\n' memory/memory.limit_in_bytes 9223372036854771712)"
	assertEquals "more than there is" "$all" "$(limit '0::/\n' memory.max 9000000000000000)"
}

test_memory_is_chosen_by_the_limit() {
	local limit role memory
	while read -r limit role memory; do
		# shellcheck disable=SC2016
		assertEquals "$role, with $limit MiB" "$memory" "$(bash -euc 'root=x cache=x tools=x; . "$1"
			eval "memory_limit() { echo $2; }"; choose_size "$3"; echo $memory' _ \
			"$tree/labs/vm/vm.sh" "$limit" "$role")"
	done <<-'END'
	1024 warm 768
	1024 counted 768
	2048 warm 1024
	16000 warm 2048
	16000 counted 1024
	END
}

. shunit2
