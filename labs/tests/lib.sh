# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
#
# lib.sh - what every test suite begins with:
#
#	. "$(dirname "$0")/../lib.sh"     (labs/tests/*/test_*.sh, long_*.sh)
#	test_something() { … assert… }
#	. shunit2
#
# Gives $ROOT (the top of the tree, also the working directory), $B (the build
# folder), $SOURCES (the top of the sources under test: $ROOT, or a copy with a
# fault in it, see mutants/run), $T (a folder of the test's own under build/, so
# the lab VM sees it at the same path; removed after the test), lab (labs/lab) and
# skip. Suites define oneTimeSetUp and oneTimeTearDown at most: setUp and tearDown
# are here, because they tell the runner how each test ended.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$ROOT" || exit 1
B=${BUILD:-build}
SOURCES=${SOURCES:-$ROOT}
mkdir -p "$ROOT/build"

# What is said is compared: in English and UTF-8, whoever runs it. And an ordinary
# user's PATH on Debian lacks what only root needs.
unset LC_ALL
export LC_MESSAGES=C LC_CTYPE=C.UTF-8 PATH=$PATH:/usr/sbin:/sbin

lab() { "$ROOT/labs/lab" "$@"; }

# on_host CMD…: where no device is needed; another machine's programs (LAB_ROOT) run
# in their VM.
on_host() { ${LAB_ROOT:+lab run} "$@"; }

# ordinary CMD…: as an ordinary user: this one, or nobody
ordinary() {
	[[ $UID == 0 ]] || { "$@"; return; }
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

# to_ordinary PATH…: give them to that user
to_ordinary() { [[ $UID != 0 ]] || chown -R 65534:65534 "$@"; }

# skip REASON: call it, then return from the test.
skip() { skip_reason=$1; }

# lab_here: the lab can run here; lab_rc, and lab_reason, say why not
lab_here() {
	local rc=0 said
	[[ -z ${lab_rc:-} ]] || return "$lab_rc"
	said=$(lab run test -e /sys/class/infiniband/rxe1 2>&1) || rc=$?
	if ((rc == 77)); then
		lab_reason=${said##*lab: next: }
	fi
	lab_rc=$rc
	return "$rc"
}

# need_lab: a skip where it cannot run; where it could, a failure
need_lab() {
	! lab_here || return 0
	if ((lab_rc == 77)); then
		skip "the lab cannot run here: $lab_reason"
	else
		fail "lab run ended with $lab_rc"
	fi
	return 1
}

# two_hosts_apart, two_hosts_up, two_hosts_down: a pair of VMs of this suite's own, because
# one that is up is not
two_hosts_apart() {
	XDG_RUNTIME_DIR=$(mktemp -d /tmp/lab-two.XXXXXX)
	export XDG_RUNTIME_DIR
}

two_hosts_up() { lab up --two || up_rc=$?; }

two_hosts_down() {
	[[ ${XDG_RUNTIME_DIR:-} ]] || return 0
	lab down 2>/dev/null
	rm -rf "$XDG_RUNTIME_DIR"
	unset XDG_RUNTIME_DIR
}

need_two_hosts() {
	((${up_rc:-0} != 77)) || { skip 'two VMs cannot run here'; return 1; }
	assertEquals 'up --two' 0 "${up_rc:-0}"
}

setUp() {
	skip_reason=''
	T=$(mktemp -d "$ROOT/build/t.XXXXXX")
	failed_before=${__shunit_assertsFailed:-0}
	test_began=$EPOCHREALTIME
}

tearDown() {
	local how=ok note=''
	[[ -n ${_shunit_test_:-} && -n ${T:-} ]] || return 0
	[[ ! -s $T/.kept ]] || fail "kept at the end: $(named_places <"$T/.kept")"
	[[ ! -s $T/.waited ]] || fail "$(<"$T/.waited")"
	rm -rf "$T"
	T=''
	if ((${__shunit_assertsFailed:-0} > failed_before)); then
		how='not ok'
	elif [[ -n $skip_reason ]]; then
		how=skip note=$skip_reason
	fi
	printf '%s\t%s\t%s\t%s\n' "$how" "$_shunit_test_" \
		"$(awk "BEGIN{printf \"%.2f\", $EPOCHREALTIME-$test_began}")" \
		"$note" >>"${TEST_RESULTS:-/dev/null}"
	# One is enough to see a mutant by.
	[[ $how != 'not ok' || ! ${STOP_AT_FAILURE:-} ]] || exit 1
}

# named_places: "0x1234 of OBJECT" (kept.c) as the function and the line
named_places() {
	local line
	while read -r line; do
		[[ $line != *', 0x'*' of /'* ]] ||
			line="${line%, 0x*}, $(addr2line -pfse "${line##* of }" "$(grep -oE '0x[0-9a-f]+' <<<"$line")" 2>&1)"
		echo "$line"
	done | sort | uniq -c | head -n 20
}

# Other suites run beside this one, over the same build folder.

# build ARG…: make, one at a time
build() { flock "$ROOT/build/.make.lock" make -s "$@"; }

# must_build ARG…: or the suite ends here, rather than judge what was there before
must_build() {
	local said
	said=$(build "$@" 2>&1) || { echo "$said" >&2 && exit 1; }
}

# under_sanitizers SUITE TEST…: these tests, of the programs of build_sanitized; a report
# ends a program with 99. Those with the spy in them have two libraries that want to be
# the first.
under_sanitizers() {
	local suite=$1
	shift
	: >"$T/results"
	BUILD=build/asan TEST_RESULTS=$T/results \
		ASAN_OPTIONS=exitcode=99:detect_leaks=1:verify_asan_link_order=0 \
		UBSAN_OPTIONS=exitcode=99:print_stacktrace=1 \
		bash "$suite" -- "$@" >"$T/output" 2>&1 </dev/null
	assertEquals "$(grep -E '^ASSERT|ERROR:|runtime error' "$T/output")" "$(printf 'ok %s\n' "$@")" \
		"$(awk -F '\t' '{ print $1, $2 }' "$T/results")"
}

# build_sanitized PROGRAM…: with ASan and UBSan, in build/asan
build_sanitized() { must_build -j"$(nproc)" BUILD=build/asan SANITIZE=1 "${@/#/build/asan/}"; }

# helper OUT ARG…: compile OUT with cc's ARGs, unless no source is newer.
helper() {
	local out=$1
	shift
	mkdir -p "$(dirname "$out")"
	(
		flock 9
		[[ ! -e $out || -n $(find labs/tests "$SOURCES"/{labs,common} -name '*.[ch]' \
			-newer "$out" -print -quit) ]] || exit 0
		"${CC:-cc}" -D_GNU_SOURCE -Icommon -g -Wall -Wextra -Werror \
			-o "$out.new" "$@" && mv "$out.new" "$out"
	) 9>"$out.lock"
}

# expr ARG…: shunit2 counts with it, three processes for each assertion
expr() {
	if [[ ${2-} == + ]]; then
		echo $(($1 + $3))
	else
		command expr "$@"
	fi
}

# matches TEXT PATTERN: a line of TEXT matches the extended regex PATTERN; this is asked
# so often that it starts no process, if TEXT is short and bash can read PATTERN
matches() {
	local line rc=0
	# shellcheck disable=SC2319 # 2: bash cannot read it
	[[ '' =~ $2 ]] || rc=$?
	if ((rc == 2 || ${#1} > 4000)) || [[ $2 == *$'\n'* ]]; then
		grep -qE -- "$2" <<<"$1"
		return
	fi
	while IFS= read -r line; do
		if [[ $line =~ $2 ]]; then return 0; fi
	done <<<"$1"
	return 1
}

# assert_in TEXT PATTERN [MESSAGE]
assert_in() {
	if matches "$1" "$2"; then
		assertEquals 0 0
	else
		fail "${3:-} nothing matches /$2/ in: $1"
	fi
}

# assert_not_in TEXT PATTERN [MESSAGE]
assert_not_in() {
	if matches "$1" "$2"; then
		fail "${3:-} /$2/ should not match in: $1"
	else
		assertEquals 0 0
	fi
}

# rxe_does NAME: this fact of build/rxe_facts holds for the lab's kernel
rxe_does() { lab run "$B/rxe_facts" "$1"; }

# ucx_on_rxe: this UCX knows RDMA devices (Debian unstable's is built without)
ucx_on_rxe() {
	local modules
	modules=$(compgen -G "${LAB_ROOT:-}/usr/lib*/ucx/libuct_ib.so*" ||
		compgen -G "${LAB_ROOT:-}/usr/lib*/*/ucx/libuct_ib.so*")
	[[ $modules ]] || { skip 'this UCX is built without RDMA: no libuct_ib'; return 1; }
}

# in_lab SCRIPT [ARG…]: run a bash script where rxe0 is, with held() in it: how
# many PDs, CQs, QPs and MRs all devices hold (the driver's own included).
# shellcheck disable=SC2016
IN_LAB='
held() { rdma resource | grep -oE "(pd|cq|qp|mr) [0-9]+" | awk "{n += \$2} END {print n}"; }
'
in_lab() {
	local script=$1
	shift
	lab run bash -c "$IN_LAB$script" in_lab "$@"
}
