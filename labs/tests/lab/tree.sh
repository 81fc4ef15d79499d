# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
#
# tree.sh - what the suites of labs/lab share: a copy of labs/ in a tree of its own, so
# it has a VM of its own, which may be killed without disturbing anybody.
#
# Gives $tree (the working directory), $L (its labs/lab), $cache, $base (the runtime
# folder of its VMs) and $run (that of the warm one).

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

# begin ARG…: such a run in the background, whose output is in $T/out; it says "ready".
# Sets $client.
begin() {
	rm -f "$T/out" # or the "ready" of the one before would do
	# Who ignores HUP, as under nohup, has it ignored by all that he starts.
	env --default-signal "$L" run "$@" >"$T/out" 2>"$T/err" &
	client=$!
	wait_for grep -q ready "$T/out"
}

# kill_client SIGNAL: and wait for it; sets $rc
kill_client() {
	rc=0
	kill "-$1" "$client"
	wait "$client" 2>/dev/null || rc=$?
}
