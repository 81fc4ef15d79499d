#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# English and Chinese: a recording has the row of common/explain/causes.def and its
# arguments, and whoever asks for one language gets that.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/faults" "$B/05-send-recv" "$B/sabotage" "$B/libsaboteur.so"
}

# What a rule says is a row of causes.def: the id and its arguments are all it has.
test_each_id_has_a_row() {
	local said
	said=$(cd "$SOURCES" && cat common/explain/*.c labs/{report,recorder}/*.c | tr -d '\n\t' |
		grep -oE '(because\(|also_seen\([^,"]+, )"[^"]+"' | sed 's/.*[(,] *"/"/' | sort -u)
	assertTrue "only $(wc -l <<<"$said") ids" "(($(wc -l <<<"$said") > 180))"
	assertEquals 'no row in causes.def' '' "$(grep -oE '"[^"]+"' "$SOURCES/common/explain/causes.def" | sort -u | comm -23 <(echo "$said") -)"
}

a_recording() {
	cat <<-'END'
	{"t":1,"wall":1,"ev":"start","boot":"x","program":"a","command":"./a","pid":7,"host":"h"}
	{"t":21,"ev":"modify_qp","qp":1,"qpn":17,"from":"INIT","to":"RTS","err":22,"errname":"EINVAL","id":"no-way","args":"INIT\tRTS\tUse new PSNs then.","seen":"qp-state\tINIT\tRTR\nmr-length-zero"}
	END
}

# report VARIABLE=VALUE… -- OPTION…: of that recording
report() {
	local variables=()
	while [[ $1 != -- ]]; do
		variables+=("$1")
		shift
	done
	env -u LC_ALL -u LC_MESSAGES -u LANG "${variables[@]}" labs/qptrace report "${@:2}" "$T/a.qpt" 2>&1
}

test_which_language() {
	local variables options language line
	a_recording | recording a
	while IFS='|' read -r variables options language; do
		line='QP 在 INIT'
		[[ $language == zh ]] || line='the QP is in INIT'
		# shellcheck disable=SC2086 # words
		assert_in "$(report $variables -- $options)" "$line" "$variables $options:"
	done <<-'END'
		||en
		LANG=zh_CN.UTF-8||zh
		LC_MESSAGES=zh_TW LANG=de_DE||zh
		LC_ALL=C LC_MESSAGES=zh_CN LANG=zh_CN||en
		LC_ALL= LANG=zh||zh
		LANG=zh_CN.UTF-8|--lang en|en
		LANG=en_US.UTF-8|--lang zh|zh
		LANG=C|--json --lang zh|zh
	END
	report -- --lang fr >/dev/null
	assertEquals 'no such language' 2 $?
}

test_the_report_in_chinese() {
	a_recording | recording a
	assert_in "$(report -- --lang zh)" '^ +下一步: 按 RESET .*这时要用新的 PSN。$'
	assert_in "$(report -- --lang zh)" '^ +证据: 另外：length 是 0$'
	assertEquals 'no-way 1 EINVAL 内核里 QP 在 INIT，库记得的是 RTR' "$(report -- --lang zh --json |
		jq -r '.causes[0] | [.id, .rank, .error, .seen[0]] | map(tostring) | join(" ")')"
	report -- --lang zh --html "$T/zh.html" >/dev/null
	assertEquals 'QP 在 INIT，没有从 INIT 到 RTS 的转换' "$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/zh.html" |
		jq -r '.events[1].raw.cause')"
}

# What the recorder says is Chinese, what it writes is English.
test_the_recorder_in_chinese() {
	in_lab '
		export LANG=zh_CN.UTF-8 LC_ALL="" LC_MESSAGES=""
		n=0
		while read -r -a wrong; do
			labs/qptrace --stall 0.2 -o "$T/zh.$((++n)).qpt" "$B/sabotage" "${wrong[@]}" 2>>"$T/zh.err" >/dev/null || :
		done <<-END
			post_send:send_flags-SIGNALED $B/faults send
			post_send:send_flags-SIGNALED $B/05-send-recv
			modify_qp:RTR:dest_qp_num+1000 $B/faults write
			create_cq:cqe=1000000 $B/faults send
		END
		labs/qptrace --lang en -o "$T/en.qpt" "$B/sabotage" create_cq:cqe=1000000 "$B/faults" send 2>"$T/en.err" >/dev/null || :
	' || return 0
	assert_in "$(<"$T/zh.err")" '失败：EINVAL \(22\)：cqe [0-9]+ 超过了设备的 max_cqe'
	assert_in "$(<"$T/zh.err")" '^qptrace: faults（pid [0-9]+）：已有 [0-9.]+ 秒没有 completion'
	assert_in "$(<"$T/zh.err")" '^qptrace: 提示：(send 没有带|receive 已经 post)'
	assert_in "$(<"$T/zh.err")" 'RETRY_EXC_ERR \(status 12\)：本端|RETRY_EXC_ERR \(status 12\)：'
	assertEquals 'English is left' '' "$(grep '^qptrace: ' "$T/zh.err" | grep -E '(cause|next|seen):| the | is ')"
	assert_in "$(<"$T/en.err")" 'failed: EINVAL \(22\): cqe'
	assertEquals 'Chinese where English was asked for' '' "$(LC_ALL=C grep '[^ -~]' "$T/en.err")"
	assertEquals 'recordings are in English' '' "$(dump_all "$T" && LC_ALL=C grep -l '[^ -~]' "$T"/*.json*)"
}

# shellcheck disable=SC1091
. shunit2
