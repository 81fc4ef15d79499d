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

# Who says what the table has. failed.c speaks for the course's own programs.
mapfile -t speakers < <(cd "$SOURCES" && printf '%s\n' common/explain/*.c \
	labs/recorder/{stall,event,fast,control}.c labs/report/{text,model,compare,waits}.c |
	grep -vE '/(failed|qp_table.*|rxe_facts|translate)\.c$')

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report"
	built_in
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

# prose: the literals that somebody reads: with a blank and a word, not only names,
# calls, %s and punctuation; and not those of a time line's columns (", bytes").
prose() {
	local word='(^|[^a-z_A-Z0-9/%.=-])[a-z]{2,}([^a-z_A-Z0-9/(=]|$)'
	local exempt='^(ibv_[a-z_]+\(|usage: | failed: %s|%s\(QP|%s to %s$| \(no enum|  \(%.1f ms\)$|,? [A-Za-z]+( [A-Za-z]+)?$)'
	sed -E 's/<PRI[A-Za-z0-9]*>//g' | grep ' ' | grep -vE "$exempt" >"$T/literals"
	sed -E 's/qptrace://; s/%[-.0-9*hlzj]*[a-z]/%/g; s/\\n/ /g' "$T/literals" |
		grep -nE "$word" | awk -F: 'NR == FNR { keep[$1]; next } FNR in keep' - "$T/literals"
}

# literals FILE…: as xgettext joins them, without the ends of their lines
literals() {
	xgettext -a -L C --from-code=UTF-8 --no-wrap -o - "$@" 2>/dev/null |
		sed -nE 's/\\n"$/"/; s/^msgid "(.+)"$/\1/p' | sed -E 's/^\\n//'
}

# Whatever the sources say can be said in Chinese: a message without its row fails.
test_every_message_has_a_row() {
	command -v xgettext >/dev/null || { skip 'no xgettext here'; return; }
	"$B/unit_texts" --list | sort -u >"$T/rows"
	(cd "$SOURCES" && literals "${speakers[@]}") | sed 's/\\"/"/g' | prose | sort -u >"$T/said"
	assertTrue "only $(wc -l <"$T/said") messages" "(($(wc -l <"$T/said") > 400))"
	assertEquals 'no row in texts.def' '' "$(comm -23 "$T/said" "$T/rows")"
	# A message that nobody wrote a row for is seen.
	echo 'int f(void) { return g("not one %s has been " "written"); }' >"$T/new.c"
	assertEquals 'not one %s has been written' "$(literals "$T/new.c" | prose)"
}

# causes: "ID<TAB>TEXT" of all calls of because() with both as literals
causes() {
	local file
	for file; do
		"${CC:-cc}" -E -P -D_GNU_SOURCE -Icommon -Ilabs/recorder \
			-D'because(id,next,...)=@@ id @@ __VA_ARGS__ @@' "$file"
	done | tr '\n' ' ' | grep -oE '@@ +"[^"]*" +@@ +"([^"\\]|\\.)*"( *"([^"\\]|\\.)*")*' |
		sed -E 's/^@@ +"([^"]*)" +@@ +"/\1\t/; s/" *"//g; s/"$//' | grep -v '	%s$'
}

# One cause has one id, and the table has it.
test_ids() {
	"$B/unit_texts" --causes | sort -u >"$T/rows"
	(cd "$SOURCES" && causes "${speakers[@]}") | sort -u >"$T/said"
	assertTrue "only $(wc -l <"$T/said") causes" "(($(wc -l <"$T/said") > 130))"
	assertEquals 'no such row in texts.def' '' "$(comm -23 "$T/said" "$T/rows")"
	assertEquals 'ids are slugs' '' "$(cut -f1 "$T/rows" | grep -vE '^[a-z0-9]+(-[a-z0-9]+)*$')"
}

# All that the page says itself: in t("…"), and between its tags.
test_the_page() {
	local page=labs/report/report.html
	{
		grep -oE '[^a-z]t\("[^"]+"' "$page" | sed 's/.*t("//; s/"$//'
		grep -oE '[^a-z]t\([a-z.]+ [=>]+ 1 \? "[^"]+" : "[^"]+"' "$page" | grep -oE '"[^"]*"' | tr -d '"'
		sed -n '/<body>/,/<script>/p' "$page" | grep -oE '>[^<>]*[a-z][^<>]*<' | tr -d '<>' | sed 's/^ *//; s/ *$//'
		sed -n '/<body>/,/<script>/p' "$page" | grep -oE '(title|placeholder)="[^"]*"' | sed 's/.*="//; s/"$//'
	} | grep -vE '^(qptrace:|post → completion|send → receive)$' | sort -u >"$T/said"
	"$B/unit_texts" --page | sort -u >"$T/rows"
	assertTrue "only $(wc -l <"$T/said")" "(($(wc -l <"$T/said") > 35))"
	assertEquals 'no row in texts.def' '' "$(comm -23 "$T/said" "$T/rows")"
	assertEquals 'nobody says it' '' "$(comm -13 "$T/said" "$T/rows")"
}

# What was said of one thing is translated with the other things in it.
test_texts_in_texts() {
	assertEquals '证据：另外也不对：INIT -> RTR 不允许带 CUR_STATE' \
		"$("$B/unit_texts" 'qptrace:  seen: also wrong: INIT -> RTR does not allow CUR_STATE' | sed 's/^qptrace: *//')"
	assertEquals '对端的 MR 没有 REMOTE_WRITE' "$("$B/unit_texts" "the peer's MR lacks REMOTE_WRITE")"
	assertEquals 'rxe1 的 QP 7 的 MR 没有 REMOTE_WRITE' "$("$B/unit_texts" "QP 7 of rxe1's MR lacks REMOTE_WRITE")"
	assertEquals '解析不出对端的 MAC 地址：在 veth0 上，网关 10.1.1.1 一秒之内没有应答 ARP' "$("$B/unit_texts" \
		"the peer's MAC address could not be resolved: the gateway 10.1.1.1 on veth0 did not answer ARP for a second")"
	assertEquals 'qptrace: 不记录，打不开 /tmp/a.json：ELOOP，不跟随符号链接' "$("$B/unit_texts" \
		'qptrace: not recording, cannot open /tmp/a.json: ELOOP, symbolic links are not followed')"
	assertEquals 'somebody says something new' "$("$B/unit_texts" 'somebody says something new')"
	# Whatever is in a recording costs little.
	timeout 10 "$B/unit_texts" "$(printf 'the QP is in a, %.0s' {1..2000})" >/dev/null
	assertEquals 'a long line' 0 $?
	timeout 10 "$B/unit_texts" "$(printf "s's QP %.0s" {1..250})" >/dev/null
	assertEquals 'a line that is like many' 0 $?
}

a_recording() {
	cat <<-'END'
	{"t":1,"wall":1,"ev":"start","boot":"x","program":"a","command":"./a","pid":7,"host":"h"}
	{"t":21,"ev":"modify_qp","qp":1,"qpn":17,"from":"INIT","to":"RTS","err":22,"errname":"EINVAL","id":"no-way","cause":"the QP is in INIT, and there is no way from INIT to RTS","next":"free memory","seen":"the library remembers INIT\nalso: length is 0"}
	END
}

# says VARIABLE=VALUE… -- OPTION…: the report's cause, in one word
says() {
	local variables=()
	while [[ $1 != -- ]]; do
		variables+=("$1")
		shift
	done
	env -u LC_ALL -u LC_MESSAGES -u LANG "${variables[@]}" labs/qptrace report "${@:2}" "$T/a.json" 2>&1 |
		grep -oE 'the QP is in INIT|QP 在 INIT' | sort -u
}

test_which_language() {
	local zh='QP 在 INIT' en='the QP is in INIT'
	a_recording >"$T/a.json"
	assertEquals "$en" "$(says --)"
	assertEquals "$zh" "$(says LANG=zh_CN.UTF-8 --)"
	assertEquals "$zh" "$(says LC_MESSAGES=zh_TW LANG=de_DE --)"
	assertEquals "$en" "$(says LC_ALL=C LC_MESSAGES=zh_CN LANG=zh_CN --)"
	assertEquals "$zh" "$(says LC_ALL= LANG=zh --)"
	assertEquals "$en" "$(says LANG=zh_CN.UTF-8 -- --lang en)"
	assertEquals "$zh" "$(says LANG=en_US.UTF-8 -- --lang zh)"
	assertEquals "$zh" "$(says LANG=C -- --json --lang zh)"
	labs/qptrace report --lang fr "$T/a.json" 2>/dev/null
	assertEquals 'no such language' 2 $?
	labs/qptrace --lang fr true 2>/dev/null
	assertEquals 'no such language' 2 $?
}

test_the_report_in_chinese() {
	a_recording >"$T/a.json"
	assert_in "$(labs/qptrace report --lang zh "$T/a.json")" '^ +下一步: 腾出内存$'
	assert_in "$(labs/qptrace report --lang zh "$T/a.json")" '^ +证据: 另外：length 是 0$'
	assertEquals 'no-way 1 EINVAL 腾出内存 库记得的是 INIT' "$(labs/qptrace report --lang zh --json "$T/a.json" |
		jq -r '.causes[0] | [.id, .rank, .error, .next, .seen[0]] | map(tostring) | join(" ")')"
	labs/qptrace report --lang zh --html "$T/zh.html" "$T/a.json"
	assertEquals '时间线 QP 在 INIT，从 INIT 到 RTS 没有路' "$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/zh.html" |
		jq -r '.words["Time line"] + " " + .events[1].raw.cause')"
	labs/qptrace report --lang en --html "$T/en.html" "$T/a.json"
	assertEquals '{}' "$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/en.html" | jq -c .words)"
	command -v chromium >/dev/null || { skip 'no chromium here'; return; }
	timeout 60 chromium --headless --no-sandbox --disable-gpu --window-size=1400,1100 \
		--virtual-time-budget=3000 --dump-dom "file://$T/zh.html" >"$T/dom" 2>/dev/null
	assert_in "$(<"$T/dom")" '<h2>时间线</h2>'
	assert_in "$(<"$T/dom")" '<h2>1 处失败</h2>'
	assert_in "$(<"$T/dom")" '>下一步：腾出内存<'
}

# What the recorder says is Chinese, what it writes is English.
test_the_recorder_in_chinese() {
	in_lab '
		export LANG=zh_CN.UTF-8 LC_ALL="" LC_MESSAGES=""
		for how in "--lang zh" "" "--lang en"; do
			labs/qptrace $how -o "$T/${how: -2}.json" \
				ibv_rc_pingpong -d rxe0 -g 1 -r 10000000 2>"$T/err${how: -2}" >/dev/null || :
			RDMA_EXPLAIN=0 labs/qptrace $how --stall 0.2 -o "$T/f${how: -2}.json" \
				"$B/faults" hang-unsignaled wrong-qpn 2>>"$T/err${how: -2}" >/dev/null || :
		done
	' || return 0
	assert_in "$(<"$T/errzh")" '失败：EINVAL \(22\)：cqe [0-9]+ 超过了设备的 max_cqe'
	assert_in "$(<"$T/errzh")" '^qptrace: hang-unsignaled（pid [0-9]+）：已有 [0-9.]+ 秒没有 completion'
	assert_in "$(<"$T/errzh")" '^qptrace:     1 个 send 在等，最早的等了 .*没有 SIGNALED（之前完成了 0 个）'
	assert_in "$(<"$T/errzh")" '^qptrace:     提示：post send 时没有带 IBV_SEND_SIGNALED'
	assert_in "$(<"$T/errzh")" '上 wr_id 0x1 的 completion：RETRY_EXC_ERR（status 12）：'
	assertEquals 'English is left' '' "$(grep -hE '(cause|next|seen):| the | is ' "$T/errzh" "$T/err")"
	assert_in "$(<"$T/err")" '提示：post send 时没有带' 'by LANG, too:'
	assertEquals 'Chinese where English was asked for' '' "$(LC_ALL=C grep '[^ -~]' "$T/erren")"
	assertEquals 'recordings are in English' '' "$(LC_ALL=C grep -l '[^ -~]' "$T"/*.json*)"
}

# shellcheck disable=SC1091
. shunit2
