#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace: programs end as they do without it, what is recorded is what
# happened, failures and hangs are explained, and the report can be read.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh

oneTimeSetUp() {
	make_says=$(build "$B/libqptrace.so" "$B/qptrace-report" 2>&1) ||
		echo "$make_says" >&2
	helper "$B/trace_probe" -O2 labs/tests/trace_probe.c -libverbs -lpthread
	build_helpers
	export QPTRACE_BUILD=$ROOT/$B
	[[ $B != /* ]] || QPTRACE_BUILD=$B
	port=18790
}

# count NAME FILTER: lines of NAME.json for which the jq filter holds
count() { jq -c "select($2)" "$T/$1.json" | wc -l; }

# values NAME FILTER: what the filter gives, on one line
values() { jq -r "$2" "$T/$1.json" | tr '\n' ' '; }

# What a program prints, but for its figures, what perftest says of the clock and
# what rping says of who hung up first.
skeleton() {
	sed -E '/^Correlation |^client DISCONNECT EVENT/d; s/0x[0-9a-f]+/N/g; s/[0-9a-f:]*[0-9][0-9a-f:.]*/N/g
		s/\<-?(inf|nan)\>/N/g; s/-N/N/g; s/[ \t]+/ /g; s/ $//' "$@"
}

# both_ways NAME SERVER… : CLIENT…: without and with the recorder, in the lab.
# Leaves NAME.{p,t}{a,b}.{out,err,rc} and NAME.a.json, NAME.b.json.
both_ways() {
	local name=$1 server=() client=()
	shift
	while [[ $1 != : ]]; do server+=("$1") && shift; done
	shift
	client=("$@")
	export PAIR_NAME=$name PAIR_PORT=$((++port))
	PAIR_SERVER=$(printf '%q ' "${server[@]}")
	PAIR_CLIENT=$(printf '%q ' "${client[@]}")
	export PAIR_SERVER PAIR_CLIENT
	# shellcheck disable=SC2016 # for the lab
	in_lab '
		eval "s=($PAIR_SERVER) c=($PAIR_CLIENT)"
		PATH=$PATH:$B
		limit=(timeout 60)
		start $PAIR_NAME.pa "${limit[@]}" "${s[@]}"
		await listening_or_ended $PAIR_PORT $pid
		run $PAIR_NAME.pb "${limit[@]}" "${c[@]}"
		reap $PAIR_NAME.pa
		start $PAIR_NAME.ta "${limit[@]}" labs/qptrace -o "$T/$PAIR_NAME.a.json" "${s[@]}"
		await listening_or_ended $PAIR_PORT $pid
		run $PAIR_NAME.tb "${limit[@]}" labs/qptrace -o "$T/$PAIR_NAME.b.json" "${c[@]}"
		reap $PAIR_NAME.ta'
}

# assert_same NAME: both runs of both_ways ended alike and said alike.
assert_same() {
	local side stream
	for side in a b; do
		assertEquals "exit code of $1.$side ($(err_of "$1.t$side"))" \
			"$(rc_of "$1.p$side")" "$(rc_of "$1.t$side")"
		for stream in out err; do
			assertEquals "std$stream of $1.$side" \
				"$(skeleton "$T/$1.p$side.$stream")" \
				"$(skeleton "$T/$1.t$side.$stream")"
		done
		assertEquals "$1.$side began and ended" "1 1" \
			"$(count "$1.$side" '.ev == "start"') $(count "$1.$side" '.ev == "exit"')"
		assertEquals "failed calls of $1.$side" 0 \
			"$(count "$1.$side" '.err != null and .err != 0')"
	done
	accepted "$1" "$T/$1.a.json" "$T/$1.b.json"
	assert_not_in "$said" MISMATCH "$1:"
}

# accepted NAME FILE…: the report takes them; sets $said.
accepted() {
	local rc=0
	said=$(labs/qptrace report "${@:2}" 2>&1) || rc=$?
	assertEquals "report of $1: $said" 0 "$rc"
}

# assert_complete NAME: each signaled post of a finished run has its completion.
assert_complete() {
	assertEquals "completions without a post in $1" 0 \
		"$(count "$1" '.ev == "completion" and .of == null')"
	assertEquals "posts that are completed twice in $1" 0 \
		"$(jq -s '[.[] | select(.of != null) | .of] | length - (unique | length)' "$T/$1.json")"
}

ladder='select(.ev == "modify_qp") | .from + "-" + .to'

test_rc_pingpong() {
	local o=(-g 1 -n 100) side
	both_ways rc ibv_rc_pingpong -d rxe0 -p $((port + 1)) "${o[@]}" : \
		ibv_rc_pingpong -d rxe1 -p $((port + 1)) "${o[@]}" 10.99.0.1 ||
		return 0
	assert_same rc
	for side in rc.a rc.b; do
		assertEquals "$side" 100 "$(count $side '.ev == "post_send"')"
		assertEquals "$side" 500 "$(count $side '.ev == "post_recv"')"
		assertEquals "$side" 100 "$(count $side '.op == "SEND" and .ev == "completion"')"
		assertEquals "$side" 100 "$(count $side '.op == "RECV"')"
		assertEquals "$side" "RESET-INIT INIT-RTR RTR-RTS " "$(values $side "$ladder")"
		assert_complete $side
	done
	assertEquals 'what A was told is what B is' \
		"$(values rc.b 'select(.ev == "create_qp").qpn')" \
		"$(values rc.a 'select(.to == "RTR").dest_qpn')"
	assertEquals 'times go up' 0 "$(jq -s '[.[].t] as $t |
		[range(1; $t | length) | select($t[.] < $t[. - 1])] | length' \
		<(jq -c 'select(.ev == "post_send" or .ev == "completion")' "$T/rc.a.json"))"
	# The page: drawn, clicked, looked at by test_page.
	cp "$T/rc.a.json" "$B/qptrace.a.json"
	cp "$T/rc.b.json" "$B/qptrace.b.json"
}

test_rc_pingpong_with_events() {
	local o=(-e -g 1 -n 50)
	both_ways rce ibv_rc_pingpong -d rxe0 -p $((port + 1)) "${o[@]}" : \
		ibv_rc_pingpong -d rxe1 -p $((port + 1)) "${o[@]}" 10.99.0.1 ||
		return 0
	assert_same rce
	assertEquals 'a sleep for each arming but the last' true \
		"$(jq -s '([.[] | select(.ev == "cq_event")] | length) as $e |
			([.[] | select(.ev == "arm")] | length) as $a |
			$e > 10 and $a >= $e' "$T/rce.a.json")"
}

test_ud_and_srq_pingpong() {
	local o=(-g 1 -n 50) p
	for p in ud srq; do
		both_ways $p ibv_${p}_pingpong -d rxe0 -p $((port + 1)) "${o[@]}" : \
			ibv_${p}_pingpong -d rxe1 -p $((port + 1)) "${o[@]}" 10.99.0.1 ||
			return 0
		assert_same $p
		assert_complete $p.a
		assert_complete $p.b
	done
	assertEquals 16 "$(count srq.a '.ev == "create_qp"')"
	assertEquals 500 "$(count srq.a '.ev == "post_srq_recv"')"
	assertEquals 48 "$(count srq.b '.ev == "modify_qp"')"
	assertEquals 'UD sends name the peer' \
		"$(values ud.b 'select(.ev == "create_qp").qpn')" \
		"$(values ud.a 'select(.ev == "post_send").remote_qpn' | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/^ //')"
}

test_perftest() {
	local p o=(-x 1 -F -n 100)
	for p in ib_send_lat ib_write_bw ib_read_lat; do
		both_ways $p $p -d rxe0 -p $((port + 1)) "${o[@]}" : \
			$p -d rxe1 -p $((port + 1)) "${o[@]}" 10.99.0.1 || return 0
		assert_same $p
		assert_complete $p.b
		assertEquals "posts of $p" 100 "$(count $p.b '.ev == "post_send"')"
	done
	assertEquals RDMA_READ "$(values ib_read_lat.b \
		'select(.ev == "post_send").op' | tr ' ' '\n' | sort -u | tr -d '\n')"
	assertEquals 100 "$(count ib_write_bw.b \
		'.ev == "post_send" and .op == "RDMA_WRITE" and .rkey != null')"
}

test_rping() {
	command -v rping >/dev/null || { skip 'no rping (package rdmacm-utils)'; return 0; }
	both_ways rping rping -s -a 10.99.0.1 -p $((port + 1)) -C 5 : \
		rping -c -a 10.99.0.1 -p $((port + 1)) -C 5 || return 0
	assert_same rping
	assert_in "$(values rping.a "$ladder")" 'RESET-INIT .*INIT-RTR RTR-RTS .*-ERR'
}

# UCX loads libibverbs where RTLD_NEXT does not see it.
test_ucx() {
	local o=(-x rc_verbs -t am_lat -n 50 -w 0 -s 8)
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 0; }
	export UCX_IB_GID_INDEX=1
	both_ways ucx ucx_perftest -d rxe0:1 -p $((port + 1)) "${o[@]}" : \
		ucx_perftest -d rxe1:1 -p $((port + 1)) "${o[@]}" 127.0.0.1 || return 0
	unset UCX_IB_GID_INDEX
	assert_same ucx
	assertEquals true "$(jq -s '[.[] | select(.ev == "post_send")] | length > 49' "$T/ucx.b.json")"
	assertEquals true "$(jq -s '[.[] | select(.op == "RECV")] | length > 49' "$T/ucx.a.json")"
}

test_ours() {
	both_ways our "$B/rdma_server" rxe0 $((port + 1)) : \
		"$B/rdma_client" 10.99.0.1 rxe1 $((port + 1)) || return 0
	assert_same our
	assert_complete our.a
	assertEquals "RESET-INIT INIT-RTR RTR-RTS " "$(values our.b "$ladder")"
}

# probes [QPTRACE-OPTION…] -- 'ARGS'…: trace_probe with each ARGS, plain
# (p.ARGS) and recorded (t.ARGS, t.ARGS.json); blanks become _.
probes() {
	local options=()
	while [[ $1 != -- ]]; do options+=("$1") && shift; done
	shift
	export PROBE_OPTIONS="${options[*]}" PROBES
	PROBES=$(printf '%s\n' "$@")
	# shellcheck disable=SC2016 # for the lab
	in_lab '
		while read -r args; do
			name=${args// /_}
			run p.$name timeout 60 "$B/trace_probe" $args
			run t.$name timeout 60 labs/qptrace $PROBE_OPTIONS -o "$T/t.$name.json" \
				-- "$B/trace_probe" $args
		done <<<"$PROBES"'
}

unharmed() { # NAME RC
	assertEquals "exit code of $1 without" "$2" "$(rc_of "p.$1")"
	assertEquals "exit code of $1 ($(err_of "t.$1"))" "$2" "$(rc_of "t.$1")"
	assertEquals "output of $1" "$(out_of "p.$1")" "$(out_of "t.$1")"
	assertEquals "stderr of $1" "$(err_of "p.$1")" "$(err_of "t.$1")"
}

test_unharmed() {
	local n
	probes -- plain 'signal 15' 'signal 6' 'signal 9' crash fork 'threads 64' \
		extended close || return 0
	unharmed plain 7
	assertFalse 'no verbs, no recording' "[[ -e $T/t.plain.json ]]"
	unharmed signal_15 143
	unharmed signal_6 134
	unharmed signal_9 137
	unharmed crash 139
	unharmed fork 5
	unharmed threads_64 0
	unharmed extended 0
	unharmed close 0
	# Fatal signals lose nothing; kill -9 only the last moment, and no half line
	# that the report would not take.
	for n in signal_15 signal_6 crash close; do
		assertEquals "completions of $n" 20 "$(count "t.$n" '.ev == "completion"')"
	done
	assertEquals 20 "$(count t.extended '.ev == "post_send" and .op == "SEND"')"
	assertEquals 10 "$(count t.extended '.op == "SEND" and .ev == "completion" and .len == 32')"
	assert_complete t.extended
	accepted signal_9 "$T/t.signal_9.json"
	# 64 threads, each with QPs, 20 messages and a tid of its own.
	assertEquals 2560 "$(count t.threads_64 '.ev == "completion"')"
	assertEquals 64 "$(jq 'select(.ev == "post_send").tid' "$T/t.threads_64.json" | sort -u | wc -l)"
	assert_complete t.threads_64
	# The child has a recording of its own, the parent's goes on.
	assertEquals 80 "$(count t.fork '.ev == "completion"')"
	mv "$T"/t.fork.json.* "$T/child.json"
	assertEquals 40 "$(count child '.ev == "completion"')"
	assertEquals 1 "$(count child '.ev == "start" and .forked == 1')"
}

# Half a line at the end is what kill -9 may leave.
test_half_a_line() {
	local rc=0
	echo '{"t":1,"wall":1,"pid":1,"tid":1,"ev":"start","boot":"x"}' >"$T/a.json"
	printf '{"t":2,"wall":1,"pi' >>"$T/a.json"
	accepted half "$T/a.json"
	assert_in "$said" 'last line was cut off'
	printf 'd\n{"t":3,"wall":1,"ev":"exit"}\n' >>"$T/a.json"
	said=$(labs/qptrace report "$T/a.json" 2>&1) || rc=$?
	assertEquals 1 "$rc"
	assert_in "$said" 'a.json, line 2 is no line of a recording'
}

test_control_only() {
	probes --control-only -- 'threads 2' ops || return 0
	unharmed threads_2 0
	assertEquals 0 "$(count t.threads_2 '.ev == "completion" or .ev == "post_send"')"
	assertEquals 6 "$(count t.threads_2 '.ev == "modify_qp"')"
	# ops: the provider's, untouched
	unharmed ops 0
	probes -- ops || return 0
	assertEquals libqptrace.so "$(out_of t.ops)"
}

test_failures_are_explained() {
	probes -- modify remote early || return 0
	assertEquals "4 4 4" "$(rc_of t.modify) $(rc_of t.remote) $(rc_of t.early)"
	assertEquals "$(out_of p.modify)" "$(out_of t.modify)"
	assert_in "$(err_of t.modify)" \
		'^qptrace: ibv_modify_qp\(QP [0-9]+ of rxe0, INIT -> RTS, mask STATE\) failed: EINVAL \(22\): .*no way from INIT to RTS'
	assert_in "$(err_of t.modify)" '^qptrace:  next: '
	assertEquals EINVAL "$(values t.modify 'select(.to == "RTS").errname' | tr -d ' ')"
	# The explanation asked the kernel; the program's own copy is as it was.
	assertEquals "$(out_of p.remote)" "$(out_of t.remote)"
	assert_in "$(err_of t.remote)" 'completion of wr_id 0x2 on QP .*REM_ACCESS_ERR \(status 10\): .*rkey'
	assertEquals 1 "$(count t.remote '.ev == "explain" and .about == "completion"')"
	assert_in "$(err_of t.early)" 'ibv_post_send\(QP .* in INIT, wr_id 0x5\) failed: EINVAL'
	assertEquals 1 "$(count t.early '.ev == "post_failed" and .wr_id == "0x5" and .err == 22')"
	accepted early "$T/t.early.json"
	assert_in "$said" 'cause: the QP is in INIT|cause: .*state'
	probes --quiet -- modify || return 0
	assertEquals '' "$(err_of t.modify)"
}

test_stalls_are_explained() {
	probes --stall 0.4 -- 'wait 2' 'unpolled 2' 'unsignaled 2' || return 0
	local n
	for n in wait unpolled unsignaled; do
		assertEquals "$n" 6 "$(rc_of "t.${n}_2")"
		assertEquals "$n says it once" 1 "$(grep -c 'no completion for 0' "$T/t.${n}_2.err")"
		assert_in "$(err_of "t.${n}_2")" 'RC\): RTS in the user.s copy, RTS in the kernel'
	done
	assert_in "$(err_of t.wait_2)" '1 receive waits, the oldest for 0\.[4-9] s: wr_id 0x1, 64 bytes'
	assert_in "$(err_of t.wait_2)" 'cause: all is ready here, and nothing has come'
	assert_in "$(err_of t.unpolled_2)" '1 send waits.*wr_id 0x2, 64 bytes, SEND'
	assert_in "$(err_of t.unpolled_2)" 'cause: no thread polls CQ 1'
	assert_in "$(err_of t.unsignaled_2)" 'cause: none of the sends is signaled'
	assertEquals 1 "$(count t.wait_2 '.ev == "stall" and .receives == 1 and .kernel_state == "RTS"')"
}

# An event loop waits for the file descriptor, which nobody can record; of a
# datagram nobody knows whether the program took it.
test_stalls_of_event_loops_and_datagrams() {
	local n
	# shellcheck disable=SC2016 # for the lab
	in_lab '
		for n in armed unread datagram; do
			run $n timeout 60 labs/qptrace --stall 0.4 -o "$T/$n.json" \
				-- "$B/trace_probe" $n 2 &
		done
		wait' || return 0
	for n in armed unread datagram; do
		assertEquals "$n" 6 "$(rc_of "$n")"
		assertEquals "$n says it once" 1 "$(grep -c 'no completion for 0' "$T/$n.err")"
		assertEquals "$n: one cause" 1 "$(grep -c 'cause:' "$T/$n.err")"
	done
	assert_in "$(err_of armed)" 'cause: all is ready here, and nothing has come'
	assert_in "$(err_of unread)" 'cause: an event lies unread on the channel of CQ 1'
	assert_in "$(err_of datagram)" 'UD\): RTS in the user.s copy'
	assert_in "$(err_of datagram)" '1 receive waits.*104 bytes \(1 completed before\)'
	assert_in "$(err_of datagram)" 'cause: either the peer sends nothing more, or'
	assert_not_in "$(err_of datagram)" 'psn'
}

test_sigquit() {
	# Background jobs of a script ignore SIGQUIT; a program in a terminal does not.
	# shellcheck disable=SC2016
	in_lab '
		asked() {
			start $1 env --default-signal=QUIT labs/qptrace $2 -o "$T/$1.json" -- "$B/trace_probe" $3 3
			await in_file "$4" "$T/$1.out"
			nap 0.3
			kill -QUIT $pid
			reap $1
		}
		asked full "" wait waiting
		asked control --control-only wait waiting
		asked own "" quit ready' || return 0
	assertEquals 'it goes on' 6 "$(rc_of full)"
	assert_in "$(err_of full)" 'cause: all is ready here'
	assertEquals 6 "$(rc_of control)"
	assert_in "$(err_of control)" 'QP [0-9]+ of rxe0 \(RC\): RTS in the user.s copy, RTS in the kernel'
	assertEquals 'a program with a handler of its own' 9 "$(rc_of own)"
	assertEquals '' "$(err_of own)"
}

# With another preload, with all symbols bound at once, and under a shell that
# starts two programs.
test_company() {
	# shellcheck disable=SC2016
	in_lab '
		SPY_LOG=$T/spy.log LD_PRELOAD=$PWD/$B/spy.so run spied \
			labs/qptrace -o "$T/spied.json" "$B/trace_probe" threads 2
		LD_BIND_NOW=1 run bound labs/qptrace -o "$T/bound.json" "$B/trace_probe" threads 2
		LD_BIND_NOW=1 run none labs/qptrace -o "$T/none.json" true
		run two labs/qptrace -o "$T/two.json" \
			sh -c "$B/trace_probe threads 1; $B/trace_probe threads 2"' || return 0
	assertEquals "0 0 0 0" "$(rc_of spied) $(rc_of bound) $(rc_of none) $(rc_of two)"
	assertEquals 'the spy saw them, too' 2 "$(grep -c '^make qp' "$T/spy.log")"
	assertEquals 80 "$(count spied '.ev == "completion"')"
	assertEquals 80 "$(count bound '.ev == "completion"')"
	assertEquals 40 "$(count two '.ev == "completion"')"
	mv "$T"/two.json.* "$T/second.json"
	assertEquals 80 "$(count second '.ev == "completion"')"
}

# Both orders of the two tools do the same; the recording lands where it was
# asked for, also outside of the tree that the VM shares.
test_with_labs_lab() {
	local rc=0 out far
	lab_here || { skip 'the lab cannot run here'; return 0; }
	far=$(mktemp -d)
	out=$(labs/qptrace -o "$T/near.json" labs/lab run --timeout 60 \
		"$B/trace_probe" modify 2>"$T/near.err") || rc=$?
	assertEquals "$(cat "$T/near.err")" 4 "$rc"
	assertEquals 'modify: 22' "$out"
	assert_in "$(cat "$T/near.err")" 'qptrace: ibv_modify_qp'
	assertEquals trace_probe "$(values near 'select(.ev == "start").program' | tr -d ' ')"
	rc=0
	labs/qptrace -o "$far/a.json" labs/lab run "$B/trace_probe" modify \
		>/dev/null 2>&1 || rc=$?
	assertEquals 4 "$rc"
	assertEquals 1 "$(grep -c '"to":"RTS"' "$far/a.json")"
	rc=0
	labs/lab run labs/qptrace -o "$T/inner.json" "$B/trace_probe" modify \
		>/dev/null 2>&1 || rc=$?
	assertEquals 4 "$rc"
	assertEquals trace_probe "$(values inner 'select(.ev == "start").program' | tr -d ' ')"
	assertEquals 'nothing is left' '' "$(find build -maxdepth 1 -name 'qptrace.??????' ! -name '*.json')"
	rm -r "$far"
}

test_usage() {
	local rc
	for args in '' '-o' '--stall soon ls' '--nonsense ls' 'report' 'report a b c'; do
		rc=0
		# shellcheck disable=SC2086 # words
		labs/qptrace $args >/dev/null 2>"$T/err" || rc=$?
		assertEquals "qptrace $args" 2 "$rc"
		assertNotNull "qptrace $args" "$(cat "$T/err")"
	done
	rc=0
	labs/qptrace report "$T/none.json" >/dev/null 2>"$T/err" || rc=$?
	assertEquals 1 "$rc"
	assert_in "$(cat "$T/err")" 'cannot open .*none.json'
	rc=0
	(cd "$T" && "$ROOT/labs/qptrace" true 2>err) || rc=$?
	assertEquals 0 "$rc"
}

test_mismatches_are_marked() {
	[[ -e $B/qptrace.a.json ]] || { skip 'nothing was recorded'; return 0; }
	jq -c 'if .rq_psn then .rq_psn += 1 else . end |
		if .path_mtu then .path_mtu = 4096 else . end' "$B/qptrace.b.json" >"$T/b.json"
	accepted mismatch "$B/qptrace.a.json" "$T/b.json"
	assert_in "$said" "A's first PSN +0x[0-9a-f]+ +0x[0-9a-f]+ +<- MISMATCH"
	assert_in "$said" 'path MTU +1024 +4096 +<- MISMATCH'
	assertEquals 2 "$(grep -c MISMATCH <<<"$said")"
}

# page_says NAME A.json B.json SCRIPT: run SCRIPT in the page, in Chromium;
# prints what it puts into document.title.
page_says() {
	local page=$T/$1.html
	labs/qptrace report --html "$page" "$2" "$3" || return 1
	printf '<script>try { %s } catch (e) { document.title = "threw " + e; }</script>\n' \
		"$4" >>"$page"
	timeout 60 chromium --headless --no-sandbox --disable-gpu \
		--user-data-dir="$T/chromium" --dump-dom "file://$page" 2>/dev/null |
		sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p' | head -n 1
}

test_page() {
	local a=$B/qptrace.a.json b=$B/qptrace.b.json
	command -v chromium >/dev/null || { skip 'no chromium'; return 0; }
	[[ -e $a ]] || { skip 'nothing was recorded'; return 0; }
	# shellcheck disable=SC2016 # JavaScript
	assertEquals 'all agree|2 lanes|RESET INIT RTR RTS|arrows|post_send|arrived at A|picked' \
		"$(page_says page "$a" "$b" '
		const out = [];
		out.push(document.querySelector("#pairs .good").textContent.trim());
		out.push(document.querySelectorAll("#sides .card").length + " lanes");
		$("fit").click();
		const seen = new Set([...document.querySelectorAll("rect[data-state]")].map((r) => r.dataset.state));
		out.push([...seen].join(" "));
		out.push(document.querySelectorAll("path.cross").length > 100 ? "arrows" : "no arrows");
		const send = E.find((e) => e.kind === "send" && e.side === 1);
		document.querySelector(`#list tr[data-i="${send.i}"]`).click();
		out.push(document.querySelector("#detail b").textContent);
		out.push([...document.querySelectorAll("#detail a")].map((x) => x.textContent).find((t) => t.startsWith("arrived")).slice(0, 12));
		document.querySelector(`.ev[data-i="${send.i}"]`).dispatchEvent(new MouseEvent("click", { bubbles: true }));
		out.push(document.querySelectorAll(".ev.picked").length === 1 ? "picked" : "lost");
		document.title = out.join("|");')"
	jq -c 'if .rq_psn then .rq_psn += 1 else . end' "$b" >"$T/b.json"
	assertEquals "1 mismatch|A's first PSN" \
		"$(page_says wrong "$a" "$T/b.json" '
		document.title = document.querySelector("#pairs .bad").textContent.trim() + "|" +
			document.querySelector("tr.differs td").textContent;')"
	# Nothing is fetched from anywhere.
	assertEquals '' "$(grep -oE '(src|href)="(https?:)?//[^"]*"' "$T/page.html")"
	timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
		--user-data-dir="$T/chromium" --window-size=1400,1300 \
		--screenshot="$ROOT/build/qptrace.png" "file://$T/page.html" >/dev/null 2>&1
	assertTrue 'no screenshot' "[[ -s build/qptrace.png ]]"
}

# What a recording holds cannot get out of the page's script.
test_page_is_safe() {
	local hostile='</script><script>document.title="owned"</script>'
	command -v chromium >/dev/null || { skip 'no chromium'; return 0; }
	jq -nc --arg c "$hostile" '{t: 1, wall: 1, pid: 1, tid: 1, ev: "start", program: $c, command: $c, boot: "x"}' >"$T/a.json"
	assertEquals 'safe' "$(page_says safe "$T/a.json" "$T/a.json" '
		if (document.title !== "owned") document.title = "safe";')"
}

# shellcheck disable=SC1091
. shunit2
