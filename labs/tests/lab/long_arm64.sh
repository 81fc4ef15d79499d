#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The course on aarch64: built for it, on rxe0 of an aarch64 kernel, in a VM that
# this machine emulates; and the host's half of the lab as aarch64 programs. With
# ARM64=full also the suites of server and client and all of the faults (a quarter
# of an hour). What an emulator on x86 cannot show: memory that is ordered weakly.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm
machine=aarch64
programs=(rdma_server rdma_client)
for dir in lessons/0[0-5]-*; do programs+=("${dir#*/}"); done
suites=(lessons/0[0-5]-*/check.sh)
faults=(mr-memlock post-send-in-init rtr-netdev-down)
if [[ ${ARM64:-} == full ]]; then
	suites+=(labs/tests/pair/test_{server_client,failing_verbs}.sh)
	faults=()
fi

oneTimeSetUp() {
	[[ $(uname -m) != "$machine" ]] || { no_arm64='this machine is one' && return; }
	local rc=0
	LAB_ROOT=$(lab root "$machine" 2>"$ROOT/build/arm64.err") || rc=$?
	((rc != 77)) || { no_arm64=$(tail -n 1 "$ROOT/build/arm64.err") && return; }
	((rc == 0)) || { failed_with=$(<"$ROOT/build/arm64.err") && return; }
	export LAB_ROOT BUILD=build/arm64
	B=$BUILD
	mkdir -p "$B"
	printf '#!/bin/sh\nexec %s-linux-gnu-gcc --sysroot="%s" "$@"\n' \
		"$machine" "$LAB_ROOT" >"$B/cc"
	chmod +x "$B/cc"
	export CC=$ROOT/$B/cc PKG_CONFIG_SYSROOT_DIR=$LAB_ROOT \
		PKG_CONFIG_LIBDIR=$LAB_ROOT/usr/lib/$machine-linux-gnu/pkgconfig
	failed_with=$(build "${programs[@]/#/$B/}" 2>&1) && failed_with=''
}

oneTimeTearDown() { [[ ! ${LAB_ROOT:-} ]] || lab down 2>/dev/null; }

# arm64_here: else the test ends
arm64_here() {
	[[ ! ${no_arm64:-} ]] || { skip "$no_arm64" && return 1; }
	assertEquals 'it could be built' '' "${failed_with:-}"
	[[ ! ${failed_with:-} ]]
}

test_server_and_client_on_an_aarch64_kernel() {
	local rc=0
	arm64_here || return 0
	assertEquals "$machine" "$(lab run uname -m)"
	assertEquals 'for AArch64' 183 "$(od -An -tu2 -j18 -N2 "$B/rdma_server" | xargs)"
	lab run bash -c '
		"$0/rdma_server" --json rxe0 >"$1/server" &
		"$0/rdma_client" --json 10.99.0.1 rxe1 >"$1/client"
		wait $!' "$B" "$T" 2>"$T/err" || rc=$?
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals 'Hello from RDMA client!' "$(jq -r .received_text "$T/server")"
	assertEquals 'Hello from RDMA server!' "$(jq -r .received_text "$T/client")"
}

# An instruction takes 2 ns there: what sleeps on events takes as long each time, but
# for the first round trips, whose code comes from the host. While the server's comes the
# clock leaps: a client that waits for it would be at its deadline.
test_counted_time_repeats() {
	arm64_here || return 0
	for _ in 1 2 3; do
		lab run --counted bash -c '. labs/tests/guest.sh && T=/tmp/t begin
			"$0/rdma_server" -q -e -n 2000 rxe0 >/dev/null &
			await listening_or_ended 18515 $!
			"$0/rdma_client" -j -e -n 2000 10.99.0.1 rxe1
			wait' "$B" 2>>"$T/err" | jq .seconds >>"$T/times"
	done
	assertEquals "$(xargs <"$T/times") s: within 2 % ($(grep error "$T/err"))" 1 "$(sort -n "$T/times" |
		awk '{ t[NR] = $1 } END { print (NR == 3 && t[1] > 0 && t[3] < 1.02 * t[1]) }')"
}

test_suites() {
	local rc=0
	arm64_here || return 0
	JOBS=1 labs/tests/run "${suites[@]}" >"$T/said" || rc=$?
	assertEquals "$(<"$T/said")" 0 "$rc"
	assert_in "$(tail -n 1 "$T/said")" '^[1-9][0-9]* passed, 0 failed, 0 skipped$'
}

test_faults() {
	local said
	arm64_here || return 0
	said=$(REPORT=build labs/faults/run "${faults[@]}" 2>&1)
	assert_in "$said" '^([1-9][0-9]*) of \1 causes named first$'
}

# The host's half as aarch64 programs, in front of this machine's VM.
test_the_tools_of_the_host() {
	local tree=$T/tree tool emulator rc=0
	arm64_here || return 0
	emulator=$(type -P "qemu-$machine-static" "qemu-$machine" | head -n 1)
	mkdir -p "$tree/build/lab"
	cp -r labs "$tree/labs"
	for tool in ctl attach; do
		"$CC" -O2 -Wall -Wextra -Werror -static -o "$tree/$tool" "labs/vm/$tool.c" || fail "$tool"
		printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$emulator" "$tree/$tool" >"$tree/build/lab/$tool"
		chmod +x "$tree/build/lab/$tool"
	done
	(
		unset LAB_ROOT CC
		cd "$tree" || exit
		echo in | labs/lab run sh -c 'cat; uname -m; echo err >&2; exit 37' >"$T/out" 2>"$T/err" || rc=$?
		echo "$rc" >"$T/rc"
		labs/lab down
	) 2>"$T/said"
	assertEquals "in $(uname -m)" "$(xargs <"$T/out")"
	assertEquals err "$(grep -v '^lab: ' "$T/err")"
	assertEquals "$(<"$T/said")" 37 "$(<"$T/rc")"
}

. shunit2
