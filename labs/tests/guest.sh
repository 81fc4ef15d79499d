# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# guest.sh - what the suites of rdma_server and rdma_client share. Its first half
# runs on the host, the second inside the lab, where rxe0 (10.99.0.1) and rxe1
# (10.99.0.2) are joined by the veth pair veth0, veth1.
#
#	in_lab [--fresh | --counted] SCRIPT     run SCRIPT there, with all functions below
#
# What SCRIPT writes to $T is on the host as well. What a program leaves behind in
# the lab (an object of the device, a listening socket) fails the test.

# These tests take links down and change MTUs: never on a real machine.
export LAB=${LAB:-vm}
export ROOT B T

# Each program that is started below says what it still has when it ends (kept.c), and
# that fails the test (lib.sh).
KEPT_B=$B KEPT_FOLDER=$(cd "$B" && pwd -P)
export KEPT_B KEPT_FOLDER

# ---- on the host

# build_kept: not beside sanitizers, which have an allocator of their own
build_kept() {
	[[ ! ${LAB_ROOT-} ]] || return 0
	! nm "$B/librdma_common.a" 2>/dev/null | grep -q '__asan_init' || return 0
	helper "$B/kept.so" -O2 -fPIC -shared labs/tests/kept.c
}
! declare -F helper >/dev/null || build_kept

in_lab() {
	local fresh=() rc=0
	[[ $1 != --* ]] || fresh=("$1")
	need_lab || return
	# shellcheck disable=SC2016 # for the shell in the lab
	lab run "${fresh[@]}" bash -c '
		cd "$ROOT" && . labs/tests/guest.sh && begin && eval "$0" && finish
	' "${!#}" >"$T/lab.out" 2>"$T/lab.err" || rc=$?
	assertEquals "the script in the lab: $(tail -n 5 "$T/lab.err")" 0 "$rc"
	((rc == 0)) || return 1
	assertEquals "left behind" "$(cat "$T/before")" "$(cat "$T/after")"
	return 0
}

# build_peer FOLDER: peer, into it
build_peer() { helper "$1/peer" -O2 labs/tests/peer.c -lisal; }

# build_helpers: spy.so and peer, into $B
build_helpers() {
	helper "$B/spy.so" -O2 -fPIC -shared labs/tests/spy.c labs/tests/spy_verbs.c && build_peer "$B"
}

# text FILE: what cat would print of such a file, but without a process
text() {
	local lines
	mapfile -d '' lines <"$1" && printf '%s' "${lines[@]}"
}

rc_of() {
	if [[ -s $T/$1.rc ]]; then text "$T/$1.rc"; else echo none; fi
}
out_of() { text "$T/$1.out"; }
err_of() { text "$T/$1.err"; }

# assert_clean [PATTERN]: no report of a sanitizer (nor PATTERN) in this test, and
# nobody ended with a report's code
# shellcheck disable=SC2120 # the pattern is optional
assert_clean() {
	assert_not_in "$(cat "$T"/*.err)" \
		"ERROR: AddressSanitizer|LeakSanitizer|runtime error${1:+|$1}"
	assertEquals 'exit codes of reports' '' \
		"$(grep -lx '99\|134\|139\|9' "$T"/*.rc)"
}

# json NAME FILTER: of the result that program NAME printed
json() { jq -r "$2" "$T/$1.out"; }

# assert_agree NAME A B…: of the result that NAME printed, these figures are the same
assert_agree() {
	local name=$1 first=$2 other
	shift 2
	for other; do
		assertEquals "$name: $first is $other: $(<"$T/$name.out")" true \
			"$(json "$name" "($first) as \$a | \$a > 0 and (($other) / \$a - 1 | fabs) < 0.001")"
	done
}

# assert_pair NAME: server and client of that name both did it, silently.
assert_pair() {
	local side
	for side in server client; do
		assertEquals "exit code of $1.$side ($(err_of "$1.$side"))" \
			0 "$(rc_of "$1.$side")"
		assertEquals "stderr of $1.$side" "" "$(err_of "$1.$side")"
	done
}

# assert_error NAME RC PATTERN: it ended with RC and one error, which says PATTERN.
assert_error() {
	local text line errors=0 others=''
	text=$(err_of "$1")
	while IFS= read -r line; do
		case $line in
		'error: '*) errors=$((errors + 1)) ;;
		' next: '* | ' seen: '*) ;;
		*) others+=$line ;;
		esac
	done <<<"$text"
	assertEquals "exit code of $1 ($text)" "$2" "$(rc_of "$1")"
	assertEquals "error lines of $1 in: $text" 1 "$errors"
	assert_in "$text" "$3" "$1:"
	# Nothing but that line, at most one "next", and the evidence.
	assertEquals "other lines of $1 in: $text" "" "$others"
}

# assert_refusals LEAST SURVIVED [SERVERS] <LINES: LEAST of them at least, and each refusal
# ended the program (or one of SERVERS, or a client of that) with one error that names the
# call, or what the system has said; but those of SURVIVED (a regex of "NAME call") may go
# unnoticed. What is no lack of memory some programs know by what it means. Of what does
# no harm, which is not counted, nobody says anything.
assert_refusals() {
	local lines n
	lines=$(cat)
	n=$(grep -vc '|harmless ' <<<"$lines")
	assertTrue "$n refusals" "((n >= $1))"
	assertEquals 'refusals' '' "$(awk -F '|' -v survived="^($2)\$" -v servers="^(${3-})\$" '
		BEGIN {
			means["fcntl"] = "descriptor . is closed|did not bring a sealed"
			means["fstat"] = "did not bring a sealed"
			means["socket"] = "another process listens"
			means["send"] = means["recv"] = means["sendmsg"] = means["recvmsg"] = "(peer|engine) closed|nothing came"
		}
		{ names = index($7, $3 "(") || index($7, $4) || ($3 in means && $7 ~ means[$3]) }
		$4 ~ /memory/ { names = $7 ~ /memory/ }
		$2 ~ /harmless/ {
			if ($5 " " $6 != "0 0") print "no harm, but: " $0
			next
		}
		($1 " " $3) ~ survived && $5 " " $6 == "0 0" { next }
		$5 " " $6 != "1 1" && ($5 " " $6 != "0 1" || $1 !~ servers) { print "not told: " $0; next }
		!names { print "told without the call: " $0 }
	' <<<"$lines")"
}

# here NAME CMD…: on_host.
here() {
	local name=$1 rc=0
	shift
	keeping on_host timeout 20 "$@" >"$T/$name.out" 2>"$T/$name.err" </dev/null || rc=$?
	echo "$rc" >"$T/$name.rc"
}

# usage_error PATTERN PROGRAM ARGS…
usage_error() {
	local pattern=$1
	shift
	here usage "$B/$1" "${@:2}"
	assert_error usage 2 "$pattern"
	assert_in "$(err_of usage)" '^ next: .*--help' "$*"
	assertEquals "stdout of $*" "" "$(out_of usage)"
}

# ours CMD…: it is a program that make has built, and build_kept has kept.so for it;
# not under the recorder, which keeps its file to the end
ours() {
	local word
	[[ -e $KEPT_FOLDER/kept.so ]] || return 1
	for word; do
		[[ $word != */qptrace ]] || return 1
		[[ $word == "$KEPT_B"/* ]] || continue
		case ${word#"$KEPT_B"/} in
		*/* | *.so | unit_* | *_probe | *peer | needle_reader) ;;
		*) return 0 ;;
		esac
	done
	return 1
}

# keeping CMD…: with kept.so, if it is ours
keeping() {
	if ours "$@"; then
		local -x KEPT=$T/.kept LD_PRELOAD=$KEPT_FOLDER/kept.so${LD_PRELOAD:+:$LD_PRELOAD}
	fi
	"$@"
}

# ---- in the lab

# nap SECONDS: without starting a process
nap() {
	[[ ${nap_fd:-} ]] || exec {nap_fd}<> <(:)
	read -rt "$1" -u "$nap_fd" || true
}

# await CMD…: until it succeeds, two minutes ($await_s seconds) at most; then the test fails
# in any case (lib.sh)
await() {
	local most=${await_s:-120} ms=10 nap
	local end=$((SECONDS + most))
	until "$@"; do
		((SECONDS < end)) || {
			echo "waited $most s for: $*" | tee -a "$T/.waited" >&2
			return 1
		}
		# Not often: each look is a process or two, and these are emulated.
		printf -v nap '0.%03d' "$ms"
		nap "$nap"
		((ms >= 160)) || ms=$((ms * 2))
	done
}

# at_port PORT STATE: sets $found, the sockets there in this state. mapfile, because
# read would take /proc/net/tcp 128 bytes at a time, and the kernel walks all its
# sockets for each.
at_port() {
	local hex table line lines
	printf -v hex '%04X' "$1"
	found=0
	for table in /proc/net/tcp6 /proc/net/tcp; do
		mapfile -t lines <"$table"
		for line in "${lines[@]}"; do
			[[ $line != *": "+([^:]):$hex\ +([^ ])" $2 "* ]] || found=$((found + 1))
		done
	done
}

listening() {
	local found
	at_port "$1" 0A
	((found))
}

# stay FROM TO PEER: who connects to $port (18515) and says nothing. All of them are
# in then; of more than 12, some may have been sent away for newer ones.
stay() {
	local i
	for ((i = $1; i <= $2; i++)); do
		start "stays$i" "$3" connect 127.0.0.1 "${port:-18515}"
	done
	await stayed "$2"
}

stayed() {
	local found
	at_port "${port:-18515}" 01
	((found >= ($1 < 12 ? $1 : 12)))
}

ended() { ! kill -0 "$1" 2>/dev/null; }

# in_file PATTERN FILE
in_file() { grep -qsE -- "$1" "$2"; }

# What is there: objects of the devices, and listening sockets by address and port.
# Not with ss: it would walk all of /proc/net/tcp for half a second.
left() {
	local table lines line
	rdma resource show
	for table in /proc/net/tcp6 /proc/net/tcp; do
		mapfile -t lines <"$table"
		for line in "${lines[@]}"; do
			[[ $line == *":0000 0A "* ]] || continue
			line=${line#*: }
			echo "${line%% *}"
		done
	done
}

begin() {
	set -u
	PATH=$PATH:/usr/sbin:/sbin
	export LC_ALL=${LC_ALL:-C.UTF-8}
	mkfifo "/tmp/nap.$$"
	exec {nap_fd}<>"/tmp/nap.$$"
	rm "/tmp/nap.$$"
	ulimit -c 0
	mkdir -p "$T"
	left >"$T/before"
}

back_to_before() { [[ $(left) == "$(<"$T/before")" ]]; }

# The kernel takes an object down when its process is gone, not later; but
# another user of the lab may have one for a moment.
finish() {
	local end=$((SECONDS + 30))
	until back_to_before || ((SECONDS >= end)); do nap 0.2; done
	left >"$T/after"
}

# start NAME CMD…: in the background; sets $pid. Leaves NAME.out, .err and .rc.
start() {
	local name=$1
	shift
	# Not left to the redirections: they happen when the process gets a CPU, and until
	# then who awaits a word of this one would find that of the last of its name.
	: >"$T/$name.out"
	: >"$T/$name.err"
	[[ ! -e $T/$name.rc ]] || : >"$T/$name.rc"
	if ours "$@"; then
		# Not through keeping(): $pid would be a shell.
		KEPT=$T/.kept LD_PRELOAD=$KEPT_FOLDER/kept.so${LD_PRELOAD:+:$LD_PRELOAD} \
			"$@" >"$T/$name.out" 2>"$T/$name.err" </dev/null &
	else
		"$@" >"$T/$name.out" 2>"$T/$name.err" </dev/null &
	fi
	pid=$!
	pids[$name]=$pid
}
declare -A pids=()

# halted NAME: it was stopped (SIGSTOP)
halted() { [[ $(<"/proc/${pids[$1]}/stat") == *") T "* ]]; }
# freeze NAME…: SIGSTOP; one that runs on another CPU has not stopped yet when kill returns
freeze() {
	local name
	for name; do
		kill -STOP "${pids[$name]}"
		await halted "$name"
	done
}

# reap NAME…: wait for it and keep its exit code.
reap() {
	local name rc
	for name; do
		rc=0
		wait "${pids[$name]}" || rc=$?
		echo "$rc" >"$T/$name.rc"
	done
}

# kill9 NAME: and reap it
kill9() {
	kill -KILL "${pids[$1]}"
	reap "$1" 2>/dev/null
}

run() {
	start "$@"
	reap "$1"
}

# serve NAME CMD…: start and wait until it listens, on $port (18515)
serve() {
	start "$@"
	await listening_or_ended "${port:-18515}" "$pid"
}

listening_or_ended() { listening "$1" || ended "$2"; }

server() { serve "$1" "$B/rdma_server" "${@:2}"; }
client() { run "$1" "$B/rdma_client" "${@:2}"; }

# both HOW-SERVER HOW-CLIENT NAME [SERVER ARGS…] : [CLIENT ARGS…]: HOW-SERVER
# starts NAME.server and waits until it is ready, HOW-CLIENT runs NAME.client.
both() {
	local begin=$1 talk=$2 name=$3 args=()
	shift 3
	while (($#)) && [[ $1 != : ]]; do
		args+=("$1")
		shift
	done
	"$begin" "$name.server" "${args[@]}"
	"$talk" "$name.client" "${@:2}"
	reap "$name.server"
}

# starved N NAME CMD…: CMD, whose Nth request (for memory, a descriptor, a byte of a
# socket: kept.c) is refused; true, if it made so many. Then there is a line for
# assert_refusals.
starved() {
	local -x KEPT_FAIL=$1 KEPT_FAILED=$T/$2.failed
	: >"$KEPT_FAILED"
	run "${@:2}"
	refusal "$1" "$2"
}

# refusal N NAME: false, if there was none. A plugin says itself what it was refused.
refusal() {
	local line lines errors=0 said=''
	[[ -s $T/$2.failed ]] || return
	mapfile -t lines <"$T/$2.err"
	for line in "${lines[@]}"; do
		case $line in
		'error: '*) errors=$((errors + 1)) said+="${said:+ }$line" ;;
		'[ncclNet]'*) said+="${said:+ }$line" ;;
		esac
	done
	echo "$2|${KEPT_HARMLESS:+harmless }$1|$(<"$T/$2.failed")|$(<"$T/$2.rc")|$errors|$said"
}

# each_request CMD ARG…: CMD N ARG… for N = 1, 2 and so on, until there is no such request;
# then for those that can come to nothing and do no harm
each_request() {
	first_requests "$@"
	local -x KEPT_HARMLESS=1
	first_requests "$@"
}
first_requests() {
	local n
	for ((n = 1; n < 400; n++)); do "$1" "$n" "${@:2}" || return 0; done
	echo "not all requests were refused: more than 400 of $*" | tee -a "$T/.waited" >&2
}

# refusals NAME CMD…: each request in turn
refusals() { each_request starved "$@"; }

# refusals_of_server NAME: each request of the server that start_host() starts as NAME in turn,
# while meet_host() lets it serve a client, and end
refusals_of_server() { each_request starved_server "$1"; }
starved_server() { # N NAME
	: >"$T/$2.failed"
	KEPT_FAIL=$1 KEPT_FAILED=$T/$2.failed start_host "$2"
	ended "${pids[$2]}" || meet_host "$2"
	reap "$2"
	refusal "$1" "$2"
}

# refusals_of_both CLIENT…: each request of that client, then each of the "server" that
# start_host() starts; $T/ends has how both ended when it was the client's
refusals_of_both() {
	local client=("$@")
	each_request starved_client "$@"
	# shellcheck disable=SC2317 # of starved_server
	meet_host() { run client "${client[@]}"; }
	refusals_of_server server
}
starved_client() { # N CLIENT…
	local rc=0
	start_host server
	starved "$1" client "${@:2}" || rc=$?
	reap server
	((rc)) || echo "$1 $(<"$T/client.rc") $(<"$T/server.rc")" >>"$T/ends"
	return "$rc"
}

# pair NAME [SERVER ARGS…] : [CLIENT ARGS…]
pair() { both server client "$@"; }

# spied server|run NAME …: with the spy, whose log is NAME.log
# spied fails CALL:N:ERRNO NAME ARGS…: a server one of whose calls fails
spied() {
	local how=$1
	shift
	local -x LD_PRELOAD=$B/spy.so SPY_FAIL=${SPY_FAIL:-}
	if [[ $how == fails ]]; then
		SPY_FAIL=$1
		shift
		set -- "$1" "$B/rdma_server" "${@:2}"
		how=run
	fi
	local -x SPY_LOG=$T/$1.log
	"$how" "$@"
}
