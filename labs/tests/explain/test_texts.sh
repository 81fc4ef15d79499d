#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# English and Chinese: common/explain/texts.def has every message in both, and whoever
# asks for one language gets it.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/faults"
	built_in
	# Of a fault in texts.def, helper() would not know.
	[[ ! "$SOURCES/common/explain/texts.def" -nt $B/unit_texts &&
		! "$SOURCES/common/explain/texts_pairs.def" -nt $B/unit_texts ]] || rm -f "$B/unit_texts"
	helper "$B/unit_texts" -O1 -I. -fsanitize=address,undefined -fno-sanitize-recover=all \
		labs/tests/explain/unit_texts.c "$SOURCES"/common/explain/translate.c
}

test_each_row_has_both() {
	here unit "$B/unit_texts"
	assertEquals "$(out_of unit)" 0 "$(rc_of unit)"
	assertEquals 'unit_texts: 0 failures' "$(out_of unit)"
}

# literals FILE…: each string of C, joined, without the ends of its lines
literals() {
	local file
	for file; do
		"${CC:-cc}" -fpreprocessed -dD -E -P "$file"
	done | grep -v '^#include' | tr '\n\t' '  ' |
		grep -oE '"([^"\\]|\\.)*"( *"([^"\\]|\\.)*")*' |
		sed -E 's/\\"/\x01/g; s/" *"//g; s/^"(\\n)?//; s/(\\n)?"$//; s/\x01/"/g'
}

# prose: of strings, those with words that somebody reads
prose() {
	grep -E '[a-z]{2,}[,:]? +[a-z%]' |
		grep -vE '^(ibv_[a-z_]+\(|%s\(QP|%s to %s$|qptrace: %s%s| \(no enum| (failed|seen): %)'
}

# Whatever is said can be said in Chinese. failed.c speaks for the course's own programs.
test_every_message_has_a_row() {
	local page=labs/report/report.html speakers
	mapfile -t speakers < <(cd "$SOURCES" && printf '%s\n' common/explain/*.c \
		labs/recorder/{stall,event,fast,control}.c labs/report/{text,model,compare,waits}.c |
		grep -vE '/(failed|qp_table.*|rxe_facts|translate)\.c$')
	"$B/unit_texts" --list | sort -u >"$T/rows"
	(cd "$SOURCES" && literals "${speakers[@]}") | prose | sort -u >"$T/said"
	assertTrue "only $(wc -l <"$T/said") messages" "(($(wc -l <"$T/said") > 500))"
	{
		grep -oE '[^a-z]t\("[^"]+"' "$page" | sed 's/.*t("//; s/"$//'
		sed -n '/<body>/,/<script>/p' "$page" | grep -oE '>[^<>]*[a-z][^<>]*<' | tr -d '<>' | sed 's/^ *//; s/ *$//'
	} | grep -vE '^(qptrace:|post → completion|send → receive)$' >>"$T/said"
	assertEquals 'no row in texts.def' '' "$(sort -u "$T/said" | comm -23 - "$T/rows")"
	# A message that nobody wrote a row for is seen.
	echo 'int f(void) { return g("not one %s has been " "written"); }' >"$T/new.c"
	assertEquals 'not one %s has been written' "$(literals "$T/new.c" | prose)"
}

a_recording() {
	cat <<-'END'
	{"t":1,"wall":1,"ev":"start","boot":"x","program":"a","command":"./a","pid":7,"host":"h"}
	{"t":21,"ev":"modify_qp","qp":1,"qpn":17,"from":"INIT","to":"RTS","err":22,"errname":"EINVAL","id":"no-way","cause":"the QP is in INIT, and there is no way from INIT to RTS","next":"free memory","seen":"the library remembers INIT\nalso: length is 0"}
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
	assert_in "$(report -- --lang zh)" '^ +下一步: 腾出内存$'
	assert_in "$(report -- --lang zh)" '^ +证据: 另外：length 是 0$'
	assertEquals 'no-way 1 EINVAL 腾出内存 库记得的是 INIT' "$(report -- --lang zh --json |
		jq -r '.causes[0] | [.id, .rank, .error, .next, .seen[0]] | map(tostring) | join(" ")')"
	report -- --lang zh --html "$T/zh.html" >/dev/null
	assertEquals '时间线 QP 在 INIT，从 INIT 到 RTS 没有路' "$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/zh.html" |
		jq -r '.words["Time line"] + " " + .events[1].raw.cause')"
}

# What the recorder says is Chinese, what it writes is English.
test_the_recorder_in_chinese() {
	in_lab '
		export LANG=zh_CN.UTF-8 LC_ALL="" LC_MESSAGES=""
		RDMA_EXPLAIN=0 labs/qptrace --stall 0.2 -o "$T/zh.qpt" \
			"$B/faults" hang-unsignaled wrong-qpn cq-too-large 2>"$T/zh.err" >/dev/null || :
		labs/qptrace --lang en -o "$T/en.qpt" "$B/faults" cq-too-large 2>"$T/en.err" >/dev/null || :
	' || return 0
	assert_in "$(<"$T/zh.err")" '失败：EINVAL \(22\)：cqe [0-9]+ 超过了设备的 max_cqe'
	assert_in "$(<"$T/zh.err")" '^qptrace: hang-unsignaled（pid [0-9]+）：已有 [0-9.]+ 秒没有 completion'
	assert_in "$(<"$T/zh.err")" '^qptrace:     提示：post send 时没有带 IBV_SEND_SIGNALED'
	assert_in "$(<"$T/zh.err")" '上 wr_id 0x1 的 completion：RETRY_EXC_ERR（status 12）：'
	assertEquals 'English is left' '' "$(grep -E '(cause|next|seen):| the | is ' "$T/zh.err")"
	assert_in "$(<"$T/en.err")" 'failed: EINVAL \(22\): cqe'
	assertEquals 'Chinese where English was asked for' '' "$(LC_ALL=C grep '[^ -~]' "$T/en.err")"
	assertEquals 'recordings are in English' '' "$(dump_all "$T" && LC_ALL=C grep -l '[^ -~]' "$T"/*.json*)"
}

# shellcheck disable=SC1091
. shunit2
