#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/doctor.sh: each thing that RDMA needs is broken in turn, and the doctor must
# point at it, and at nothing else.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

export LAB=vm

# examine SCRIPT [BEFORE]: run SCRIPT in a VM of its own, then the doctor (after
# the words BEFORE; from /tmp, since an ordinary user may have no way into the
# home of root). Sets $out to the lines with a cross and $rc to its status.
examine() { examine_in --fresh "$1" "${2:-}" :; }

# examine_and_mend SCRIPT BEFORE MEND: the same in the VM that all suites share,
# which MEND sets right again. It saves starting one.
examine_and_mend() { examine_in '' "$@"; }

examine_in() { # --fresh|'' SCRIPT BEFORE MEND
	local all
	all=$(lab run ${1:+"$1"} --timeout 60 bash -c "cp '$ROOT/labs/doctor.sh' /tmp
		cd /tmp
		(
			$2
			$3 bash /tmp/doctor.sh
		)
		rc=\$?
		$4
		rm /tmp/doctor.sh
		exit \$rc" 2>&1)
	rc=$?
	out=$(grep '^✗' <<<"$all")
}

# only PATTERN...: one line each, and no more
only() {
	local p
	assertEquals "status" 1 "$rc"
	assertEquals "number of findings in: $out" $# "$(grep -c . <<<"$out")"
	for p; do assert_in "$out" "$p"; done
}

# take_away FILE…, then $give_back: scripts that do so
take_away() {
	echo "for f in $*; do [[ ! -e \$f ]] || { mv \$f \$f.away; echo \$f; }; done >/tmp/away"
}
give_back='while read -r f; do mv "$f.away" "$f"; done </tmp/away; rm /tmp/away'

nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'

test_a_healthy_vm() {
	examine true
	assertEquals "$out" 0 "$rc"
	assertEquals "" "$out"
	examine_and_mend true "$nobody" :
	assertEquals "an ordinary user: $out" 0 "$rc"
}

test_netdev_down() {
	examine 'ip link set veth0 down'
	only 'port rxe0/1 .*DOWN' 'netdev veth0 of rxe0 +down' 'port rxe1/1' ||
		return 0
}

test_no_device() {
	examine 'rdma link del rxe0; rdma link del rxe1'
	only 'RDMA device +there is none'
}

test_modules_missing() {
	examine 'rdma link del rxe0; rdma link del rxe1; rmmod rdma_rxe rdma_ucm ib_uverbs'
	only 'module rdma_rxe' 'module ib_uverbs' 'RDMA device'
}

test_device_node_without_rights() {
	examine_and_mend 'chmod 000 /dev/infiniband/uverbs0' "$nobody" \
		'chmod 666 /dev/infiniband/uverbs0'
	only 'device node of rxe0 .*may not be read and written by nobody'
}

test_device_node_missing() {
	examine_and_mend 'mv /dev/infiniband/uverbs1 /dev/away' '' \
		'mv /dev/away /dev/infiniband/uverbs1'
	assert_in "$out" 'device node of rxe1 .*is missing'
	assertEquals 1 "$rc"
}

test_memlock_limit() {
	examine_and_mend 'ulimit -l 16' "$nobody" :
	only 'memlock limit +16 KiB'
	examine_and_mend 'ulimit -l 16' '' :
	assertEquals "root may lock what it likes: $out" 0 "$rc"
}

test_provider_missing() {
	examine_and_mend "$(take_away '/usr/lib*/*/libibverbs/librxe-*' \
		'/usr/lib*/libibverbs/librxe-*')" '' "$give_back"
	only 'libibverbs finds rxe0 .*no provider' 'libibverbs finds rxe1 .*no provider'
}

test_no_ipv4_gid() {
	examine 'ip addr flush dev veth1; ip -6 addr add fe80::1/64 dev veth1 nodad; sleep 0.5'
	only 'GIDs of rxe1 .*none is RoCE v2 with an IPv4'
}

test_small_mtu() {
	examine 'rdma link del rxe0; ip link set veth0 mtu 500; rdma link add rxe0 type rxe netdev veth0'
	only 'active_mtu of rxe0 +256: .*only 500'
}

test_other_network_namespace() {
	examine_and_mend true 'unshare -n' :
	assertEquals 1 "$rc"
	assert_in "$out" 'network namespace +not the first one'
	assert_in "$out" 'UDP port 4791 +rxe does not listen'
}

test_rdma_tool_missing() {
	examine_and_mend "$(take_away /usr/{,s}bin/rdma)" '' "$give_back"
	only 'rdma tool'
}

# The answer of nft is put in its mouth: it need not be installed.
test_firewall() {
	# shellcheck disable=SC2016
	examine_and_mend 'mkdir /tmp/bin; PATH=/tmp/bin:$PATH
		printf "#!/bin/sh\necho \"udp dport 4791 counter drop\"\n" >/tmp/bin/nft; chmod +x /tmp/bin/nft' \
		'' 'rm -r /tmp/bin'
	only 'UDP port 4791 +a rule drops it: udp dport 4791'
	# shellcheck disable=SC2016
	examine_and_mend 'mkdir /tmp/bin; PATH=/tmp/bin:$PATH
		printf "#!/bin/sh\necho \"type filter hook input priority 0; policy drop;\"\n" >/tmp/bin/nft; chmod +x /tmp/bin/nft' \
		'' 'rm -r /tmp/bin'
	only 'UDP port 4791 +the input policy is to drop'
}

test_real_firewall() {
	command -v nft >/dev/null || { skip "nft is not installed"; return; }
	examine_and_mend 'nft add table inet t; nft "add chain inet t c { type filter hook input priority 0; }"
		nft add rule inet t c udp dport 4791 drop' '' 'nft delete table inet t'
	only 'UDP port 4791 +a rule drops it'
}

test_json() {
	command -v jq >/dev/null || { skip "jq is not installed"; return; }
	lab doctor --json >"$T/json"
	rc=$?
	assertEquals "$(<"$T/json")" 0 "$rc"
	assertEquals true "$(jq .ok "$T/json")"
	assertEquals true "$(jq '[.checks[] | select(.name == "VM: RDMA device" and .ok)] | length == 1' "$T/json")"
	assertEquals "every check has its four fields" true \
		"$(jq 'all(.checks[]; has("name") and has("ok") and has("detail") and has("fix"))' "$T/json")"
	lab run --fresh bash -c "ip link set veth0 down; '$ROOT/labs/doctor.sh' --json" >"$T/json"
	assertEquals 1 $?
	assertEquals false "$(jq .ok "$T/json")"
	assertEquals '"ip link set veth0 up"' "$(jq '.checks[] | select(.name == "netdev veth0 of rxe0") | .fix' "$T/json")"
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

# With a kernel in the cache, there is nothing to unpack.
test_host_with_a_kernel() {
	mkdir -p "$T/cache/kernel-host"
	echo 6.1 >"$T/cache/kernel-host/version"
	RDMA_LAB_CACHE=$T/cache labs/doctor.sh --host >"$T/out"
	rc=$?
	assertEquals "$(<"$T/out")" 0 "$rc"
	assert_not_in "$(<"$T/out")" '^. (xz|zstd) '
}

test_disk() {
	local free
	mkdir "$T/bin"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/sh' 'echo "$FREE * 1048576"' >"$T/bin/stat"
	chmod +x "$T/bin/stat"
	for free in 519 520; do
		FREE=$free PATH=$T/bin:$PATH RDMA_LAB_CACHE=$T/cache labs/doctor.sh --host >"$T/$free"
	done
	assert_in "$(<"$T/519")" '^✗ cache +only 519 MiB free'
	assert_in "$(<"$T/520")" '^✓ cache '
}

test_host_with_a_cache_it_may_not_write() {
	RDMA_LAB_CACHE=/proc/nowhere labs/doctor.sh --host >"$T/out"
	assertEquals 1 $?
	assert_in "$(<"$T/out")" '^✗ cache'
}

test_usage() {
	labs/doctor.sh --nonsense >/dev/null 2>&1
	assertEquals 2 $?
}

. shunit2
