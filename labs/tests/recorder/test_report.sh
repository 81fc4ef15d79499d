#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace report, of recordings that nobody had to make: whatever may be in one
# is read or refused by name, and costs little.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

# What overflows is trapped.
oneTimeSetUp() {
	must_build "$B/librdma_common.a" "$B/qptrace-report"
	helper "$B/trapped/qptrace-report" -O2 "${trapped[@]}" \
		-I"$B/labs/report" "$SOURCES"/labs/report/*.c "$B/labs/report/perfetto.pb-c.c" "$B/librdma_common.a" -libverbs -ljansson -lprotobuf-c
	built_in
	QPTRACE_BUILD+=/trapped
}
trapped=(-fsanitize=undefined -fsanitize-undefined-trap-on-error)

# Times that no clock shows do not overflow, once two machines' are set side by side.
test_no_time() {
	local t
	echo '{"t":5,"wall":4611686018427386,"ev":"start","boot":"x"}' | recording b
	for t in -9223372036854775808 9223372036854775807 -1 1152921504606846976; do
		printf '%s\n' '{"t":1,"ev":"start"}' "{\"t\":$t,\"ev\":\"exit\"}" \
			"{\"t\":$t,\"ev\":\"arm\",\"cq\":1}" | recording a
		accepted "$t" --all "$T/a.qpt" "$T/b.qpt"
		assert_in "$said" 'A exit'
		assert_in "$said" 'A +.*a.qpt \(pid 0\), 3 events'
	done
}

# as_json FILE…: what a script sees, in $T/json
as_json() {
	labs/qptrace report --json "$@" >"$T/json"
	assertEquals "report --json $*" 0 $?
	assertEquals 'its schema, its sides' "1 $#" "$(jq -r '"\(.schema) \(.sides | length)"' "$T/json")"
}

# told FILTER: of all causes, on one line
told() { jq -r ".causes[] | $1" "$T/json" | tr '\n' ' '; }

# What a script gets: each cause once, with what proves it; what failed is before what
# only waited or was warned of, and what follows from a failure is last.
test_causes_for_a_script() {
	local i
	recording a <<-'END'
	{"t":1,"wall":1,"ev":"start","boot":"x","program":"a","command":"./a é","pid":7,"host":"h"}
	{"t":1,"ev":"create_cq","cq":1}
	{"t":1,"ev":"create_qp","qp":1,"qpn":17,"type":"RC","send_cq":1,"recv_cq":1}
	{"t":2,"ev":"modify_qp","qp":1,"qpn":17,"from":"RTR","to":"RTS","retry_cnt":7,"err":0}
	{"t":3,"ev":"warning","qp":1,"qpn":17,"id":"retry-forever","cause":"seven","next":"six"}
	{"t":4,"ev":"post_send","qp":1,"qpn":17,"n":1,"op":"SEND","wr_id":"0x1"}
	{"t":9,"ev":"stall","qp":1,"qpn":17,"oldest_send":1,"sends":1,"id":"still-retrying","cause":"wait"}
	{"t":19,"ev":"stall","qp":1,"qpn":17,"oldest_send":1,"sends":1,"id":"still-retrying","cause":"wait"}
	{"t":20,"ev":"completion","cq":1,"qp":1,"qpn":17,"of":1,"wr_id":"0x1","status":"RETRY_EXC_ERR"}
	{"t":21,"ev":"explain","about":"completion","qp":1,"qpn":17,"status":"RETRY_EXC_ERR","call":"c","err":0,"id":"peer-in-error","cause":"gone","next":"look","seen":"one\ntwo"}
	END
	recording b <<-'END'
	{"t":5,"wall":1,"ev":"start","boot":"x","program":"b","command":"./b","pid":8,"host":"h"}
	{"t":6,"ev":"reg_dmabuf_mr","err":9,"errname":"EBADF","id":"dmabuf-probe","cause":"a probe"}
	{"t":30,"ev":"dealloc_pd","err":16,"errname":"EBUSY"}
	END
	as_json "$T/a.qpt"
	assertEquals 'failure peer-in-error 1 hint still-retrying 2 warning retry-forever 1 ' \
		"$(told '.kind, .id, .times')"
	assertEquals '1 2 3 ' "$(told .rank)"
	assertEquals 'A17 A17 A17 ' "$(told '.side + (.qpn | tostring)')"
	assertEquals 'what proves them' '[[10,6,9],[7,6],[5,4]]' \
		"$(jq -c '[.causes[].events | map(.line)]' "$T/json")"
	assertEquals 'RETRY_EXC_ERR c look one two' \
		"$(jq -r '.causes[0] | [.error, .call, .next, .seen[]] | join(" ")' "$T/json")"
	# The other side failed for a reason of its own: then that is first.
	as_json "$T/a.qpt" "$T/b.qpt"
	assertEquals 'B failure EBUSY A hint still-retrying A warning retry-forever A aftermath peer-in-error ' \
		"$(told '.side, .kind, .id')"
	assertEquals '30 EBUSY null' "$(jq -r '.causes[0] | [.events[0].t + 1, .error, .qpn] | map(tostring) | join(" ")' "$T/json")"
	assertEquals '7 b' "$(jq -r '"\(.sides[0].pid) \(.sides[1].program)"' "$T/json")"
	# Names that are no UTF-8, and a recording cut at any byte.
	cp "$T/b.qpt" "$T/$(printf 'b\377').qpt"
	as_json "$T"/b?.qpt
	for ((i = 4400; i < 5200; i += 41)); do
		head -c "$i" "$T/a.qpt" >"$T/cut.qpt"
		as_json "$T/cut.qpt"
		assertEquals true "$(jq .sides[0].cut "$T/json")"
	done
	labs/qptrace report --json --html "$T/x.html" "$T/a.qpt" 2>/dev/null
	assertEquals 'one way at a time' 2 $?
}

# A trace for Perfetto, read by protobuf's own decoder: a slice for each work request, an
# arrow for each send that arrived, on one track at a time no two at once.
test_perfetto() {
	local side wanted arrows rc=0
	command -v protoc >/dev/null || { skip 'no protoc (package protobuf-compiler)'; return 0; }
	for side in a b; do
		zcat "labs/pictures/trace-hello.$side.qpt.gz" >"$T/$side.qpt"
	done
	as_json "$T/a.qpt" "$T/b.qpt"
	wanted=$(jq '[.sides[].posts] | add' "$T/json") arrows=$(jq '[.sides[].arrived] | add' "$T/json")
	assertEquals '4 2' "$wanted $arrows"
	labs/qptrace report --perfetto "$T/trace" "$T/a.qpt" "$T/b.qpt"
	protoc --decode=perfetto.Trace --proto_path=labs/report perfetto.proto <"$T/trace" >"$T/text" 2>&1 || rc=$?
	assertEquals "$(head -n 3 "$T/text")" 0 "$rc"
	assertEquals 'slices begin, and end' "$wanted $wanted" \
		"$(grep -c 'type: SLICE_BEGIN' "$T/text") $(grep -c 'type: SLICE_END' "$T/text")"
	assertEquals 'arrows, each from and to' "$arrows 2" \
		"$(awk '/flow_ids/ { n[$2]++ } END { for (i in n) print n[i] }' "$T/text" | uniq -c | xargs)"
	assertEquals 'a track is in one slice at a time' '' "$(awk '/type:/ { type = $2 }
		/track_uuid:/ && type == "SLICE_BEGIN" && open[$2]++ { print }
		/track_uuid:/ && type == "SLICE_END" { open[$2]-- }' "$T/text")"
	labs/qptrace report --perfetto "$T/none/trace" "$T/a.qpt" 2>"$T/err"
	assertEquals 1 $?
	assert_in "$(<"$T/err")" 'cannot write .*none/trace: No such file'
}

# What a recording costs is little, however long it is.
test_long_recordings() {
	local way rc
	awk 'BEGIN {
		print "{\"t\":1,\"wall\":1,\"pid\":235,\"ev\":\"create_cq\",\"cq\":1}"
		print "{\"t\":1,\"ev\":\"create_qp\",\"qp\":1,\"qpn\":17,\"type\":\"RC\",\"send_cq\":1,\"recv_cq\":1}"
		for (n = 1; n < 60000; n++) {
		printf "{\"t\":%d,\"wall\":1,\"pid\":235,\"tid\":235,\"ev\":\"post_recv\",\"qp\":1,\"qpn\":17,\"len\":4096,\"sges\":1,\"wr_id\":\"0x1\",\"n\":%d}\n", 2 * n, n
		printf "{\"t\":%d,\"wall\":1,\"pid\":235,\"tid\":235,\"ev\":\"completion\",\"qp\":1,\"qpn\":17,\"cq\":1,\"status\":\"SUCCESS\",\"op\":\"RECV\",\"len\":4096,\"wr_id\":\"0x1\",\"of\":%d}\n", 2 * n + 1, n
	} }' | recording long
	for way in "" --all "--html $T/long.html"; do
		rc=0
		# shellcheck disable=SC2086 # words
		(ulimit -v 100000 && labs/qptrace report $way "$T/long.qpt" 2>&1) >"$T/said" || rc=$?
		assertEquals "report $way: $(tail -n 3 "$T/said")" 0 "$rc"
	done
	assert_in "$(<"$T/long.html")" '"left_out":118598'
}

# What a recording holds can neither end the page's script nor begin one.
test_page_is_safe() {
	local hostile data
	for hostile in '</script><script>document.title="owned"</script>' '<!--<script>'; do
		jq -nc --arg c "$hostile" '{t: 1, wall: 1, pid: 1, tid: 1, ev: "start", program: $c, command: $c, boot: "x", ($c): $c},
			{t: 2, ev: "modify_qp", err: 22, cause: $c, next: $c, seen: $c, call: $c}' | recording a
		labs/qptrace report --html "$T/safe.html" "$T/a.qpt" || fail "no page of $hostile"
		data=$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/safe.html")
		assert_not_in "$data" '<'
		assertEquals 'the data is what was recorded' "$(labs/qptrace dump "$T/a.qpt" | jq -cS .)" \
			"$(jq -cS '.events[].raw' <<<"$data")"
	done
}

# shellcheck disable=SC1091
. shunit2
