#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/doctor.sh: each thing that RDMA needs is broken in turn, and the doctor must
# point at it, and at nothing else.
#
# shellcheck disable=SC2016 # scripts for the VM are quoted
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm

nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'

# Functions for the VM: "sick NAME BREAK [BEFORE [MEND]]" runs BREAK, then the doctor
# after the words BEFORE (from /tmp, since an ordinary user may have no way into the
# home of root), then MEND. Prints the lines with a cross, and the doctor's code.
ward='
cp "$0/labs/doctor.sh" /tmp
cd /tmp
mkdir -p /tmp/bin
sick() {
	local rc=0
	echo "== $1"
	(
		eval "$2"
		${3:-} bash /tmp/doctor.sh >/tmp/doctor.said
	) || rc=$?
	eval "${4:-}"
	grep "^✗" /tmp/doctor.said
	echo "rc=$rc"
}
put() { printf "#!/bin/sh\necho \"%s\"\n" "$2" >"/tmp/bin/$1"; chmod +x "/tmp/bin/$1"; }
away() {
	for file; do [[ ! -e $file ]] || { mv "$file" "$file.away" && echo "$file"; }; done >/tmp/away
}
back() { while read -r file; do mv "$file.away" "$file"; done </tmp/away; }
'

# What can be mended, in the VM that all suites share. The answer of nft is put in its
# mouth: it need not be installed.
mended='
sick healthy ""
sick healthy-user "" "$nobody"
sick node-rights "chmod 000 /dev/infiniband/uverbs0" "$nobody" "chmod 666 /dev/infiniband/uverbs0"
sick node-missing "mv /dev/infiniband/uverbs1 /dev/away" "" "mv /dev/away /dev/infiniband/uverbs1"
sick memlock "ulimit -l 16" "$nobody"
sick provider "away /usr/lib*/*/libibverbs/librxe-* /usr/lib*/libibverbs/librxe-*" "" back
sick namespace "" "unshare -n"
sick tool "away /usr/{,s}bin/rdma" "" back
PATH=/tmp/bin:$PATH
sick rule "put nft \"udp dport 4791 counter drop\""
sick policy "put nft \"type filter hook input priority 0; policy drop;\"" "" "rm -r /tmp/bin"
rm /tmp/doctor.sh
'

# What cannot, in one of its own.
broken='
sick mtu "rdma link del rxe0; ip link set veth0 mtu 500; rdma link add rxe0 type rxe netdev veth0"
sick gid "ip addr flush dev veth1; ip -6 addr add fe80::1/64 dev veth1 nodad; sleep 0.5"
sick down "ip link set veth0 down"
echo "== json"
bash /tmp/doctor.sh --json
echo
sick device "rdma link del rxe0; rdma link del rxe1"
sick modules "rmmod rdma_rxe rdma_ucm ib_uverbs"
'

oneTimeSetUp() {
	all=$(
		lab run --timeout 60 bash -c "nobody='$nobody' $ward $mended" "$ROOT" 2>&1
		lab run --fresh --timeout 60 bash -c "$ward $broken" "$ROOT" 2>&1
	)
}

part() { awk -v name="$1" '/^== / { on = $2 == name; next } on' <<<"$all"; }

# Each row: NAME and the findings, as regexes; "…" is for those that may stand beside
test_what_is_broken_is_named() {
	local name findings said finding namespace='UDP port 4791 +rxe does not listen'
	rxe_does listens-in-namespaces || namespace="network namespace +not the first one|$namespace"
	while IFS='|' read -r name findings; do
		IFS='|' read -ra findings <<<"$findings"
		said=$(part "$name")
		for finding in "${findings[@]}"; do
			[[ $finding == … ]] || assert_in "$said" "^✗ $finding" "$name:"
		done
		[[ ${findings[*]} == *…* ]] || assertEquals "$name: findings in: $said" \
			"${#findings[@]}" "$(grep -c '^✗' <<<"$said")"
		assertEquals "$name: $said" "rc=$((${#findings[@]} > 0))" "$(tail -n 1 <<<"$said")"
	done <<-END
		healthy
		healthy-user
		node-rights|device node of rxe0 .*may not be read and written by nobody
		node-missing|device node of rxe1 .*is missing|…
		memlock|memlock limit +16 KiB
		provider|libibverbs finds rxe0 .*no provider|libibverbs finds rxe1 .*no provider
		namespace|$namespace|…
		tool|rdma tool
		rule|UDP port 4791 +a rule drops it: udp dport 4791
		policy|UDP port 4791 +the input policy is to drop
		mtu|active_mtu of rxe0 +256: .*only 500
		gid|active_mtu of rxe0|GIDs of rxe1 .*none is RoCE v2 with an IPv4
		down|active_mtu of rxe0|GIDs of rxe1|port rxe0/1 .*DOWN|netdev veth0 of rxe0 +down|port rxe1/1
		device|RDMA device +there is none
		modules|module rdma_rxe|module ib_uverbs|RDMA device
	END
}

test_json() {
	local filter rc=0
	while read -r filter; do
		assertEquals "$filter" true "$(part json | jq "$filter")"
	done <<-'END'
		.ok == false
		all(.checks[]; has("name") and has("ok") and has("detail") and has("fix"))
		[.checks[] | select(.name == "netdev veth0 of rxe0") | .fix] == ["ip link set veth0 up"]
	END
	lab doctor --json >"$T/json" || rc=$?
	assertEquals "$(<"$T/json")" 0 "$rc"
	assertEquals true "$(jq '.ok and ([.checks[] | select(.name == "VM: RDMA device" and .ok)] | length == 1)' "$T/json")"
}

# The host's side: what the VM needs is missing.
test_host_without_qemu() {
	local p
	mkdir "$T/bin"
	ln -s "$ROOT/labs/vm" "$T/vm"
	for p in bash sh env dirname cat sed grep head tr id uname stat apt-cache; do
		ln -s "$(command -v "$p")" "$T/bin/$p"
	done
	sed 's|^PATH=.*||' labs/doctor.sh >"$T/doctor.sh"
	PATH=$T/bin RDMA_LAB_CACHE=$T/cache bash "$T/doctor.sh" --host >"$T/out"
	assertEquals 1 $?
	assert_in "$(<"$T/out")" '^✗ qemu-system-x86_64'
	assert_in "$(<"$T/out")" 'fix: sudo labs/deps.sh lab'
	for p in busybox modprobe cc 'static libc' xz zstd; do
		assert_in "$(<"$T/out")" "^✗ $p "
	done
}

test_cache() {
	mkdir -p "$T/cache/kernel-host"
	RDMA_LAB_CACHE=/proc/nowhere labs/doctor.sh --host >"$T/out"
	assertEquals 1 $?
	assert_in "$(<"$T/out")" '^✗ cache'
	# With a kernel in the cache, there is nothing to unpack.
	echo 6.1 >"$T/cache/kernel-host/version"
	RDMA_LAB_CACHE=$T/cache labs/doctor.sh --host >"$T/out"
	assert_not_in "$(<"$T/out")" '^. (xz|zstd) '
	labs/doctor.sh --nonsense >/dev/null 2>&1
	assertEquals 2 $?
}

. shunit2
