# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# qptrace.sh - what the suites of recordings ask, and what test_qptrace.sh runs in
# the lab, on the functions of guest.sh. All programs of a session share one: a start
# of the lab's shell, and a look at what they leave behind, cost as much as several.
#
#	session_pairs	  servers and clients, as they are and recorded
#	session_probes	  trace_probe in all its ways of life, faults, dl_probe
#
# Plain runs are p.NAME, recorded ones t.NAME with t.NAME.json.

# ---- on the host

# built_in: labs/qptrace takes what was built in $B
built_in() {
	export QPTRACE_BUILD=$ROOT/$B
	[[ $B != /* ]] || QPTRACE_BUILD=$B
}

# accepted NAME FILE…: the report takes them; sets $said.
accepted() {
	local rc=0
	said=$(labs/qptrace report "${@:2}" 2>&1) || rc=$?
	assertEquals "report of $1: $said" 0 "$rc"
}

# count NAME FILTER: lines of NAME.json for which the jq filter holds
count() { jq -c "select($2)" "$T/$1.json" | wc -l; }

# values NAME FILTER: what the filter gives, on one line
values() { jq -r "$2" "$T/$1.json" | tr '\n' ' '; }

# assert_complete NAME: each signaled post of a finished run has its completion.
assert_complete() {
	assertEquals "completions without a post in $1" 0 \
		"$(count "$1" '.ev == "completion" and .of == null')"
	assertEquals "posts that are completed twice in $1" 0 \
		"$(jq -s '[.[] | select(.of != null) | .of] | length - (unique | length)' "$T/$1.json")"
}

# Its stderr may be the recorder's.
alike_but_told() { # NAME RC
	assertEquals "exit code of $1 without" "$2" "$(rc_of "p.$1")"
	assertEquals "exit code of $1 ($(err_of "t.$1"))" "$2" "$(rc_of "t.$1")"
	assertEquals "output of $1" "$(out_of "p.$1")" "$(out_of "t.$1")"
}

unharmed() { # NAME RC
	alike_but_told "$@"
	assertEquals "stderr of $1" "$(err_of "p.$1")" "$(err_of "t.$1")"
}

# ---- in the lab

limit=(timeout 60)
options=() # of qptrace

# In the lab's own memory, and brought out at the end: the shared folder is slow.
recordings=/tmp/recordings.$$
bring_out() {
	find "$recordings" ! -type f ! -type d -delete
	mv "$recordings"/* "$T"
}

# recorded start|run|serve NAME CMD…: and no mutex is unlocked that is not held
recorded() {
	LD_PRELOAD=$PWD/$B/held.so${LD_PRELOAD:+:$LD_PRELOAD} "$1" "$2" "${limit[@]}" labs/qptrace "${options[@]}" \
		-o "$recordings/$2.json" -- "${@:3}"
}

# ---- pairs

serve_plain() { serve "$1" "${limit[@]}" "${@:2}"; }
run_plain() { run "$1" "${limit[@]}" "${@:2}"; }
serve_recorded() { recorded serve "$@"; }
run_recorded() { recorded run "$@"; }

# ways NAME SERVER… : CLIENT…: both ways, on a port of its own for the word PORT
ways() {
	port=$((${port:-18790} + 1))
	set -- "${@/PORT/$port}"
	both serve_plain run_plain "p.$1" "${@:2}"
	both serve_recorded run_recorded "t.$1" "${@:2}"
}

# alike NAME [OPTION…]: a program whose client only adds the server's address
alike() {
	local program=$1
	shift
	ways "$program" "$program" -d rxe0 -p PORT "$@" : \
		"$program" -d rxe1 -p PORT "$@" 10.99.0.1
}

session_pairs() {
	mkdir "$recordings"
	local p ucx=(-p PORT -x rc_verbs -t am_lat -n 50 -w 0 -s 8)
	for p in rc ud srq; do
		alike "ibv_${p}_pingpong" -g 1 -n 100
	done
	ways events ibv_rc_pingpong -e -d rxe0 -p PORT -g 1 -n 50 : \
		ibv_rc_pingpong -e -d rxe1 -p PORT -g 1 -n 50 10.99.0.1
	for p in ib_send_lat ib_write_bw ib_read_lat; do
		alike $p -x 1 -F -n 100
	done
	ways ours "$B/rdma_server" rxe0 PORT : "$B/rdma_client" 10.99.0.1 rxe1 PORT
	if command -v ucx_perftest >/dev/null; then
		export UCX_IB_GID_INDEX=1
		ways ucx labs/tools/ucx_perftest -d rxe0:1 "${ucx[@]}" : \
			labs/tools/ucx_perftest -d rxe1:1 "${ucx[@]}" 127.0.0.1
	fi
	if command -v rping >/dev/null; then
		# RDMA CM listens, which TCP knows nothing of.
		# shellcheck disable=SC2317 # called by serve
		listening() { [[ $(rdma resource show cm_id) == *" LISTEN "*":$1 "* ]]; }
		ways rping rping -s -a 10.99.0.1 -p PORT -C 5 : \
			rping -c -a 10.99.0.1 -p PORT -C 5
	fi
	bring_out
}

# ---- probes

declare -A begun=()

# go HOW ARG…: trace_probe recorded, as HOW.ARGS; blanks become _
go() {
	local args=${*:2}
	begun[$1.${args// /_}]=1
	recorded start "$1.${args// /_}" "$B/trace_probe" "${@:2}"
}

# both_go ARG…: plain and recorded
both_go() {
	local args=$*
	begun[p.${args// /_}]=1
	start "p.${args// /_}" "${limit[@]}" "$B/trace_probe" "$@"
	go t "$@"
}

reap_all() {
	reap "${!begun[@]}"
	begun=()
}

# piped ARG: trace_probe recorded in a pipe, which nobody reads until it says that it
# is full, and had time to do more; what came out, little by little, is t.ARG.lines
piped() {
	mkfifo "$recordings/t.$1.json"
	{
		await in_file full "$T/t.$1.out"
		nap 1
		dd bs=1k status=none
	} <"$recordings/t.$1.json" >"$recordings/t.$1.lines" &
	go t "$1"
}

# SIGTERM comes while the program itself, and not the thread behind it, is about to write:
# it has said that it is full, and sleeps for nothing else.
ended_while_writing() {
	local name=t.ended
	mkfifo "$recordings/$name.json"
	{
		await test -e "$T/ended.asked"
		cat
	} <"$recordings/$name.json" >"$recordings/$name.lines" &
	begun[$name]=1
	recorded start $name "$B/trace_probe" brim
	await in_file full "$T/$name.out"
	# shellcheck disable=SC2154 # pids: of guest.sh
	await in_file '\) S ' "/proc/${pids[$name]}/stat"
	ask TERM $name
	touch "$T/ended.asked"
}

# What waits for seconds, and is asked why.
slow_probes() {
	local name waiting
	options=(--stall 0.4)
	for name in wait unpolled unsignaled armed unread datagram; do
		go s "$name" 3
	done
	LD_PRELOAD=$PWD/$B/late_end.so go s.late wait 3
	options=(--stall 1.2) && go s woken 4 # it has polled, and that counts for half a second
	# Background jobs of a script ignore SIGQUIT; a program in a terminal does not.
	limit=(env --default-signal=QUIT)
	options=(--control-only) && go control wait 30
	options=() && go asked wait 30 && go asked broken 30 && go asked quit 30
	limit=(timeout 60)
	waiting=(asked.wait_30 asked.broken_30 control.wait_30)
	for name in "${waiting[@]}"; do await in_file waiting "$T/$name.out"; done
	await in_file ready "$T/asked.quit_30.out"
	nap 0.3 # until it has polled in vain
	ask QUIT "${waiting[@]}" asked.quit_30
	for name in "${waiting[@]}"; do
		await in_file 'in the kernel' "$T/$name.err"
	done
	ask USR1 "${waiting[@]}"
}

# ask SIGNAL NAME…
ask() {
	local name
	for name in "${@:2}"; do
		# shellcheck disable=SC2154 # pids: of guest.sh
		kill -"$1" "${pids[$name]}"
	done
}

session_probes() {
	mkdir "$recordings"
	local program
	slow_probes
	both_go plain
	both_go leave 8
	for program in 'signal 15' 'signal 6' 'signal 31' 'signal 9' crash fork extended batch devices close; do
		# shellcheck disable=SC2086 # words
		both_go $program
	done
	options=(--control-only) && go c threads 2 && go c ops
	options=(--quiet) && go q modify
	options=() && go t ops
	both_go modify && both_go remote && both_go early && both_go early_extended
	both_go extremes
	limit=(timeout 10) && both_go cycle && limit=(timeout 60)
	for program in l lp le v vp ve vpe veat fve; do go t "exec$program"; done
	piped brim && piped full
	ended_while_writing
	reap_all
	both_go threads 64
	# With another preload, with all symbols bound at once, and under a shell that
	# starts two programs.
	SPY_LOG=$T/spy.log LD_PRELOAD=$PWD/$B/spy.so go spied threads 2
	LD_BIND_NOW=1 go bound threads 2
	LD_BIND_NOW=1 recorded start t.none true
	recorded start t.two sh -c "$B/trace_probe threads 1; $B/trace_probe threads 2"
	# The second program has the shell's PID, and so the name that the link has.
	recorded start t.linked sh -c "ln -s $T/followed $recordings/t.linked.json.\$\$
		$B/trace_probe threads 1; exec $B/trace_probe threads 1"
	start p.dl "$B/dl_probe"
	recorded start t.dl "$B/dl_probe"
	start p.symbols "$B/dl_probe" symbols
	recorded start t.symbols "$B/dl_probe" symbols
	reap_all
	reap t.none t.two t.linked p.dl t.dl p.symbols t.symbols
	# The program itself explains nothing.
	options=(--stall 0.2)
	# shellcheck disable=SC2086 # names
	RDMA_EXPLAIN=0 recorded run t.faults "$B/faults" $FAULTS
	bring_out
}

# named FILE…: for each its program's name and the first cause in it. A hint is none where
# there is another: on a busy machine somebody who polls looks for a while as if he did not.
named() {
	jq -nr 'reduce inputs as $line ({}; (input_filename) as $f |
		(if $line.kind == "hint" then 2 else 1 end) as $at |
		if $line.ev == "start" then .[$f][0] = $line.program
		elif $line.id and (.[$f][$at] | not) then .[$f][$at] = $line.id
		else . end) | .[] | "\(.[0]) \(.[1] // .[2])"' "$@"
}
