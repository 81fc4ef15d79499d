# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# needle.sh - what the suites of needle and needle_server share.
#
# shellcheck disable=SC2016,SC2034 # scripts for the lab are quoted; S is the suites'

S='' # the store

needle() { keeping "$B/needle" "$1" -S "$S" "${@:2}"; }

# new_store: an empty one, in $S
new_store() {
	S=$T/store
	rm -rf "$S"
	mkdir "$S"
}

# small_store: three needles and one that was superseded; volume 7 has 184 bytes
small_store() {
	new_store
	{
		printf old | needle put 7 1 99
		printf hello | needle put 7 1 100
		needle put 7 2 5 </dev/null
		printf 12345678 | needle put 7 18446744073709551615 0
	} >"$T/out"
}

# many_needles: 600 in three volumes, and one in a volume whose id is 2^31 apart
many_needles() {
	new_store
	needle make -n 600 -V 3 -m 0 -M 3000 -s 9 >"$T/out"
	needle put 2147483652 1 1 <<<far >"$T/out"
}

# listed: the needles of the store, as an engine (needle_reader) prints what it has read
listed() {
	needle list | tail -n +2
	needle list -j | jq -r '.needles | "\(length) needles, \(map(.size) | add // 0) bytes"'
}

# fails NAME PATTERN VERB ARGS…: with one error, and nothing on stdout
fails() {
	local name=$1 pattern=$2
	shift 2
	here "$name" "$B/needle" "$1" -S "$S" "${@:2}"
	assert_error "$name" 1 "$pattern"
	assertEquals "stdout of $name" "" "$(out_of "$name")"
}

assert_done() { # NAME…: exit 0 and no error
	local name
	for name; do
		assertEquals "$name: $(err_of "$name")" "0:" "$(rc_of "$name"):$(err_of "$name")"
	done
}

build_reader() { # FOLDER FLAGS…
	helper "$1/needle_reader" "${@:2}" labs/tests/needle/needle_reader.c \
		"$1/librdma_common.a" -libverbs -lisal
}

# In the lab. node NAME ARGS…: a storage node on rxe0, when it listens; engine
# NAME ARGS…: read it from rxe1; qps N: rxe0 has N QPs in RTS; end NAME: stop it.
NODE='
node() { serve "$1" "$B/needle_server" -S "$S" "${@:2}" rxe0; }
engine() { "${how:-run}" "$1" "$B/needle_reader" -d rxe1 "${@:2}" 10.99.0.1 18515; }
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
end() {
	kill "${pids[$1]}"
	reap "$1"
}
'

# on_rxe SCRIPT
on_rxe() {
	export S
	in_lab "$NODE$1"
}
