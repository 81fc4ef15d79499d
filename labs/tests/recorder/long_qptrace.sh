#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace of programs that others have written, in pairs: they do what they do without
# it, what is recorded is what happened, and the report of both sides can be read; with
# whatever the recorder asks the system for refused, too.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	build_probes
	kept=$(mktemp -d "$ROOT/build/kept.XXXXXX")
	functions=(plain first second ways alike_ways)
}

oneTimeTearDown() { rm -rf "${kept:-}"; }

# ---- in the lab

# $how is plain or recorded
plain() { "$1" "$2" "${limit[@]}" "${@:3}"; }
first() { "$how" serve "$@"; }
second() { "$how" run "$@"; }

# ways NAME SERVER… : CLIENT…: plain and recorded, on a port of its own for the word PORT
ways() {
	port=$((${port:-18790} + 1))
	set -- "${@/PORT/$port}"
	how=plain both first second "p.$1" "${@:2}"
	how=recorded both first second "t.$1" "${@:2}"
}

# alike_ways NAME PROGRAM [OPTION…]: one whose client only adds the server's address
alike_ways() {
	ways "$1" "$2" -d rxe0 -p PORT "${@:3}" : "$2" -d rxe1 -p PORT "${@:3}" 10.99.0.1
}

session_pairs() {
	local ucx=(-p PORT -x rc_verbs -t am_lat -n 50 -w 0 -s 8) p
	for p in rc ud srq; do
		alike_ways "${p}_pingpong" "ibv_${p}_pingpong" -g 1 -n 100
	done
	alike_ways events ibv_rc_pingpong -e -g 1 -n 50
	for p in send_lat write_bw read_lat atomic_lat; do
		alike_ways $p ib_$p -x 1 -F -n 100
	done
	alike_ways send_ud ib_send_lat -x 1 -F -n 100 -c UD
	ways ours "$B/rdma_server" rxe0 PORT : "$B/rdma_client" 10.99.0.1 rxe1 PORT
	if command -v ucx_perftest >/dev/null; then
		export UCX_IB_GID_INDEX=1
		ways ucx labs/tools/ucx_perftest -d rxe0:1 "${ucx[@]}" : \
			labs/tools/ucx_perftest -d rxe1:1 "${ucx[@]}" 127.0.0.1
	fi
}

# ---- on the host

# What a program prints, but for its figures, what perftest says of the clock, what
# ucx_perftest says every second, and what the recorder says of UCX's CQ.
skeleton() {
	sed -E '/^qptrace: .* max_cqe/d; /^Correlation |^\[thread /d; s/0x[0-9a-f]+/N/g; s/[0-9a-f:]*[0-9][0-9a-f:.]*/N/g
		s/\<-?(inf|nan)\>/N/g; s/-N/N/g; s/[ \t]+/ /g; s/ $//' "$@"
}

# UCX 1.18 asks for DMA-BUFs with fd -1, and for a CQ that is larger than any.
asked_by_ucx='.id == "dmabuf-probe" or .id == "cq-too-large"'

# assert_same NAME: both ways ended alike and said alike.
assert_same() {
	local side stream
	given pairs || return 1
	for side in "$1.server" "$1.client"; do
		assertEquals "exit code of $side ($(err_of "t.$side"))" \
			"$(rc_of "p.$side")" "$(rc_of "t.$side")"
		for stream in out err; do
			assertEquals "std$stream of $side" \
				"$(skeleton "$T/p.$side.$stream")" "$(skeleton "$T/t.$side.$stream")"
		done
		assertEquals "$side began and ended, and no call failed" "1 1 0" \
			"$(count "t.$side" '.ev == "start"') $(count "t.$side" '.ev == "exit"') $(
				count "t.$side" ".err != null and .err != 0 and ($asked_by_ucx | not)"
			)"
	done
	accepted "$1" "$T/t.$1.server.qpt" "$T/t.$1.client.qpt"
	assert_not_in "$said" MISMATCH "$1:"
}

ladder='select(.ev == "modify_qp") | .from + "-" + .to'

test_rc_pingpong() {
	local side
	assert_same rc_pingpong || return 0
	for side in t.rc_pingpong.server t.rc_pingpong.client; do
		assertEquals "sends, receives, and completions of $side" '100 500 100 100' \
			"$(for n in post_send post_recv 'completion" and .op == "SEND' 'completion" and .op == "RECV'; do
				count $side ".ev == \"$n\""
			done | xargs)"
		assertEquals "$side" "RESET-INIT INIT-RTR RTR-RTS" "$(values $side "$ladder")"
		assert_complete $side
	done
	assertEquals 'what A was told is what B is' \
		"$(values t.rc_pingpong.client 'select(.ev == "create_qp").qpn')" \
		"$(values t.rc_pingpong.server 'select(.to == "RTR").dest_qpn')"
	# retry_cnt 7 is taken, and rxe tries for ever: not said aloud, but noted.
	assertEquals retry-forever "$(values t.rc_pingpong.server 'select(.ev == "warning").id')"
}

# The others: the program, whether each completion has its post, a filter, and how many
# lines of the client it holds for.
test_other_programs() {
	local name complete n filter
	while read -r name complete n filter; do
		assert_same "$name" || return 0
		assertEquals "$name: $filter" "$n" "$(count "t.$name.client" "$filter")"
		[[ $complete == - ]] || assert_complete "t.$name.client"
	done <<-'END'
		events - 50 .ev == "post_send"
		ud_pingpong complete 100 .ev == "post_send" and .remote_qpn
		srq_pingpong complete 48 .ev == "modify_qp"
		srq_pingpong complete 500 .ev == "post_srq_recv"
		ours complete 3 .ev == "modify_qp"
		send_lat complete 100 .ev == "post_send" and .op == "SEND"
		send_ud complete 100 .ev == "post_send" and .remote_qpn
		write_bw complete 100 .ev == "post_send" and .op == "RDMA_WRITE" and .rkey
		atomic_lat complete 100 .ev == "post_send" and .op == "ATOMIC_FETCH_AND_ADD"
		read_lat complete 100 .ev == "post_send" and .op == "RDMA_READ"
	END
	# The same text as last time is used again only if it is the same.
	assertEquals 'each address once' 100 "$(jq -r 'select(.ev == "post_send") |
		[.n, .wr_id, .addr, .lkey, .rkey] | @csv' "$T/t.write_bw.client.json" | sort -u | wc -l)"
}

# UCX loads libibverbs where RTLD_NEXT does not see it.
test_ucx() {
	command -v ucx_perftest >/dev/null || { skip 'no ucx_perftest (package ucx-utils)'; return 0; }
	ucx_on_rxe || return 0
	assert_same ucx || return 0
	assertTrue sends "(($(count t.ucx.client '.ev == "post_send"') > 49))"
	assertTrue receives "(($(count t.ucx.server '.op == "RECV"') > 49))"
}

# ---- the report of both

a=t.rc_pingpong.server.qpt b=t.rc_pingpong.client.qpt

# time_line A.qpt B.qpt: "MILLISECONDS SIDE" of all its events
time_line() {
	accepted 'a time line' --all "$@"
	sed -n 's/^ *\([0-9]*\.[0-9]\{3\}\)   *\([AB]\) .*/\1 \2/p' <<<"$said"
}

test_one_time_line() {
	given pairs || return 0
	time_line "$T/$a" "$T/$b" >"$T/line"
	assertEquals 'times go up' '' "$(awk '$1 < last { print NR } { last = $1 }' "$T/line")"
	assertTrue 'A and B take turns' \
		"(($(cut -d' ' -f2 "$T/line" | uniq | wc -l) > 100))"
	# Somebody sets the wall clock in between: the kernel's own counts.
	jq -c '.wall += 5000000' "$T/${b/.qpt/.json}" | recording b
	time_line "$T/$a" "$T/b.qpt" >"$T/other"
	assertEquals 'the same line' "$(cat "$T/line")" "$(cat "$T/other")"
}

# Of another boot only the wall clock is the same: as well as it was read.
test_two_machines_on_one_time_line() {
	local b_was
	given pairs || return 0
	time_line "$T/$a" "$T/$b" | grep B >"$T/one"
	jq -c '.t += 3600000000000 | if .boot then .boot = "another" else . end' \
		"$T/${b/.qpt/.json}" | recording b
	time_line "$T/$a" "$T/b.qpt" | grep B >"$T/two"
	assertEquals 'as many' "$(wc -l <"$T/one")" "$(wc -l <"$T/two")"
	b_was=$(paste -d' ' "$T/one" "$T/two" | awk '{ d = $1 - $3; if (d > 100 || d < -100) print }')
	assertEquals 'at the same time, to 100 ms' '' "$b_was"
}

test_mismatches_are_marked() {
	given pairs || return 0
	jq -c 'if .rq_psn then .rq_psn += 1 else . end |
		if .path_mtu then .path_mtu = 4096 else . end' "$T/${b/.qpt/.json}" | recording b
	accepted mismatch "$T/$a" "$T/b.qpt"
	assert_in "$said" "A's first PSN +0x[0-9a-f]+ +0x[0-9a-f]+ +<- MISMATCH"
	assert_in "$said" 'path MTU +1024 +4096 +<- MISMATCH'
	assertEquals 2 "$(grep -c MISMATCH <<<"$said")"
}

# page_says A.qpt B.qpt SCRIPT: run SCRIPT in the page, in Chromium; prints what it puts
# into document.title.
page_says() {
	labs/qptrace report --html "$T/page.html" "$1" "$2" || return 1
	printf '<script>try { %s } catch (e) { document.title = "threw " + e; }</script>\n' \
		"$3" >>"$T/page.html"
	timeout 60 chromium --headless --no-sandbox --disable-gpu \
		--user-data-dir="$T/chromium" --dump-dom "file://$T/page.html" 2>/dev/null |
		sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p' | head -n 1
}

test_page() {
	command -v chromium >/dev/null || { skip 'no chromium'; return 0; }
	given pairs || return 0
	# shellcheck disable=SC2016 # JavaScript
	assertEquals 'all agree|2|RESET INIT RTR RTS|true|post_send' "$(page_says "$T/$a" "$T/$b" '
		const all = (what) => [...document.querySelectorAll(what)];
		const send = E.find((e) => e.kind === "send" && e.side === 1);
		$("fit").click();
		document.querySelector(`#list tr[data-i="${send.i}"]`).click();
		document.title = [document.querySelector("#pairs .good").textContent.trim(),
			all("#sides .card").length,
			[...new Set(all("rect[data-state]").map((r) => r.dataset.state))].join(" "),
			all("path.cross").length > 100,
			document.querySelector("#detail b").textContent].join("|");')"
	assertEquals 'nothing is fetched from anywhere' '' \
		"$(grep -oE '(src|href)="(https?:)?//[^"]*"' "$T/page.html")"
}

# ---- in one program

# Whatever the recorder asks the system for is refused once: the program does not notice,
# and what there is of a recording can be read.
test_refusals() {
	local file
	in_lab '
		run plain "$B/verbs_probe" opcodes
		export KEPT=$T/descriptors KEPT_WHOSE=libqptrace KEPT_FAIL KEPT_FAILED=$T/told.failed
		for ((KEPT_FAIL = 1; KEPT_FAIL < 200; KEPT_FAIL++)); do
			rm -f "$KEPT_FAILED" "$KEPT"
			LD_PRELOAD=$KEPT_FOLDER/kept.so run told labs/qptrace -o "$T/$KEPT_FAIL.qpt" -- "$B/verbs_probe" opcodes
			[[ -s $KEPT_FAILED ]] || break
			cmp -s "$T/plain.out" "$T/told.out" && same=same || same=other
			! grep -q "not recording" "$T/told.err" || ! grep -qs "[.]qpt" "$KEPT" || same="same, and keeps the file"
			echo "$KEPT_FAIL $(<"$KEPT_FAILED") $(<"$T/told.rc") $same $(grep -vc "^qptrace:" "$T/told.err")"
		done
	' || return 0
	assertEquals "$(err_of plain)" '0 0' "$(rc_of plain) $(rc_of told)"
	assertTrue "$(wc -l <"$T/lab.out") refusals" "(($(wc -l <"$T/lab.out") >= 20))"
	assertEquals 'seen by the program' '' "$(grep -v ' 0 same 0$' "$T/lab.out")"
	for file in "$T"/*.qpt*; do
		[[ ! -s $file ]] || accepted "${file##*/}" "$file"
	done
}

# Both orders of the two tools do the same; the recording lands where it was asked for,
# also outside of the tree that the VM shares.
test_with_labs_lab() {
	local far how
	need_lab || return 0
	far=$(mktemp -d)
	for how in "labs/qptrace -o $T/near.qpt labs/lab run --timeout 60" \
		"labs/qptrace -o $far/far.qpt labs/lab run" "labs/lab run labs/qptrace -o $T/inner.qpt"; do
		# shellcheck disable=SC2086 # words
		here lab $how "$B/trace_probe" modify
		assertEquals "$how: $(err_of lab)" '4 modify: 22' "$(rc_of lab) $(out_of lab)"
		assert_in "$(err_of lab)" 'qptrace: ibv_modify_qp'
	done
	mv "$far/far.qpt" "$T"
	dump_all "$T"
	for how in near far inner; do
		assertEquals trace_probe "$(values $how 'select(.ev == "start").program')"
	done
	assertEquals 'nothing is left' '' "$(find build -maxdepth 1 -name 'qptrace.??????' ! -name '*.qpt')"
	rm -r "$far"
}

# shellcheck disable=SC1091
. shunit2
