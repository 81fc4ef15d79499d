#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/docs: fills and checks the pages of made-up trees; this one's: test_pages.sh
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# shellcheck source=labs/tests/house/tree.sh
. "$(dirname "$0")/tree.sh"

test_fill_shows_region_and_output() {
	make_tree
	cat >"$T/want" <<'END'
# Lesson

## Code
<!-- region common/a.c outer -->
```c
int one(void)
{
	return 1;
}
```
[common/a.c](../../common/a.c)
<!-- /region -->

## Output
<!-- run cat value -->
```console
$ cat value
QP 0x000011, PSN 0x1a2b3c, state RTR
took 12 ms, half round trip 3.25 us
```
<!-- /run -->
END
	assertEquals '' "$(head -n 21 "$T/lessons/01-a/README.md" | diff "$T/want" - 2>&1)"
	assert_in "$(cat "$T/docs-zh/01-a.md")" '^\[common/a.c\]\(../common/a.c\)$'
	docs check
	assertEquals "check: $out" 0 "$rc"
}

test_fill_leaves_a_filled_page_alone() {
	make_tree
	local before after
	before=$(stat -c '%i %y' "$T/lessons/01-a/README.md")
	docs fill
	after=$(stat -c '%i %y' "$T/lessons/01-a/README.md")
	assertEquals "$before" "$after"
	assertEquals '' "$out"
}

test_fill_keeps_volatile_values() {
	make_tree
	local before
	before=$(md5sum <"$T/docs-zh/01-a.md")
	cat >"$T/value" <<'END'
QP 0x000011, PSN 0xffeedd, state RTR
took 7 ms, half round trip 103.5 us
END
	docs fill
	assertEquals "$before" "$(md5sum <"$T/docs-zh/01-a.md")"
	docs check
	assertEquals "$out" 0 "$rc"
	sed -i s/RTR/RTS/ "$T/value"
	docs fill
	assert_in "$(cat "$T/docs-zh/01-a.md")" 'PSN 0xffeedd, state RTS'
}

test_unknown_region_and_file() {
	make_tree
	sed -i 's/a.c outer/a.c missing/' "$T/docs-zh/01-a.md"
	docs fill
	assertEquals 1 "$rc"
	assert_in "$out" '^docs-zh/01-a.md:4: common/a.c has no region missing'
	sed -i 's/a.c missing/b.c outer/' "$T/docs-zh/01-a.md"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" '^docs-zh/01-a.md:4: there is no file common/b.c'
}

test_region_without_end() {
	make_tree
	sed -i '/endregion outer/d' "$T/common/a.c"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'common/a.c:2: region outer has no end'
}

test_marker_without_end_changes_nothing() {
	make_tree
	sed -i '/^<!-- .run -->/d' "$T/README.md" "$T/docs-zh/01-a.md"
	sed -i 's/return 1/return 2/' "$T/common/a.c"
	local before
	before=$(cat "$T/docs-zh/01-a.md")
	docs fill
	assertEquals 1 "$rc"
	assert_in "$out" '^docs-zh/01-a.md:15: the run marker has no <!-- /run'
	assertEquals "$before" "$(cat "$T/docs-zh/01-a.md")"
	# The good page was filled all the same.
	assert_in "$(cat "$T/lessons/01-a/README.md")" 'return 2'
}

test_markers_that_cannot_be() {
	make_tree
	printf '<!-- /region -->\n\n<!--region a b-->\n' >>"$T/README.md"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:2: this end marker ends nothing'
	assert_in "$out" '^README.md:4: this is almost a marker'
}

test_markers_in_code_are_text() {
	make_tree
	cat >>"$T/docs-zh/01-a.md" <<'END'
```
<!-- region x y -->
# no heading
```
END
	docs check
	assertEquals "$out" 0 "$rc"
}

test_check_catches_region_drift() {
	make_tree
	sed -i 's/return 1/return 2/' "$T/common/a.c"
	local before
	before=$(cat "$T/docs-zh/01-a.md")
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^-	return 1;'
	assert_in "$out" '^\+	return 2;'
	assertEquals 'check must not write' "$before" "$(cat "$T/docs-zh/01-a.md")"
}

# Region text is code: what would be volatile in output is not in there.
test_regions_are_compared_byte_by_byte() {
	make_tree
	sed -i 's/return 1/return 0x12345/' "$T/common/a.c"
	docs fill
	sed -i 's/return 0x12345/return 0x54321/' "$T/common/a.c"
	docs check --no-run
	assertEquals 1 "$rc"
}

# drifts OLD NEW, stays OLD NEW: of such output check must (not) complain; ask_all asks
# for all of them in one page
drifts() { cases+=(drift "$1" "$2"); }
stays() { cases+=('' "$1" "$2"); }

ask_all() {
	local i n want=0
	: >"$T/README.md"
	for ((i = 0; i < ${#cases[@]}; i += 3)); do
		echo "${cases[i + 1]}" >"$T/value$i"
		printf '<!-- run cat value%d -->\n<!-- /run -->\n' "$i" >>"$T/README.md"
	done
	docs fill README.md
	assertEquals "fill: $out" 0 "$rc"
	for ((i = 0; i < ${#cases[@]}; i += 3)); do
		echo "${cases[i + 2]}" >"$T/value$i"
	done
	docs check README.md
	[[ ! ${cases[0]} ]] || want=1
	assertEquals "$out" "$want" "$rc"
	assertEquals 'shown' "$((want * ${#cases[@]} / 3))" "$(grep -c '^+++ now' <<<"$out")"
	for ((i = 0; i < ${#cases[@]}; i += 3)); do
		n=$(grep -n "cat value$i -->" "$T/README.md")
		assertEquals "'${cases[i + 1]}', then '${cases[i + 2]}'" "${cases[i]}" \
			"$(sed -n "s/^README.md:${n%%:*}: the run block has \(drift\)ed.*/\1/p" <<<"$out")"
	done
}

test_check_catches_output_drift() {
	local cases=()
	make_tree
	drifts 'state RTR' 'state RTS'
	drifts 'device rxe0' 'device rxe1'
	drifts 'QPN 0x000011' 'QPN 0x000012'
	drifts 'QPN 17' 'QPN 18'
	drifts 'qptrace-mine-243.json' 'qptrace-first-243.json'
	drifts 'one' $'one\ntwo'
	drifts $'one\ntwo' $'two\none'
	drifts 'at 10.99.0.1' 'at 10.99.0.2'
	drifts '::ffff:10.99.0.1' '::ffff:10.99.0.2'
	drifts 'took 12 ms' 'took 12 apples'
	drifts 'magic 0x52444d41' 'magic 0x52444d42'
	drifts 'wr_id 0x7265637600000000' 'wr_id 0x7265637600000001'
	drifts '4096 bytes' '4097 bytes'
	drifts 'hop_limit 64' 'hop_limit 63'
	drifts 'PSN 0x1a2b3c' 'PSN none'
	drifts 'rcvd_pkts 7' 'rcvd_pkts 0'
	drifts '  51  a8 82 81       Packet Sequence Number: 1' '  52  a8 82 81       Packet Sequence Number: 1'
	drifts 'id f2385930-7c39-4acf-b319-b87e5600058d' 'id f2385930-7c39'
	drifts ' 11  qp_num   00 00 00 11' ' 11  qp_num   00 00 00 12'
	ask_all
}

test_check_bears_volatile_values() {
	local cases=()
	make_tree
	stays 'PSN 0x1a2b3c   next' 'PSN 0x5d6e next'
	stays 'to qptrace-mine-243.json' 'to qptrace-mine-96.json'
	stays 'rq-psn 1234567 state RTS' 'rq-psn 89 state RTS'
	stays '{"psn":123,"seconds":0.25}' '{"psn":99,"seconds":1.2e-05}'
	stays 'lkey 0x1ff, rkey 0x2ff' 'lkey 0x3ff, rkey 0x43ff'
	stays 'buffer at 0x55d0c0ffee00' 'buffer at 0x7f00c0ffee00'
	stays '2 round trips: 3.25 us.' '2 round trips: 12.5 us.'
	stays 'took 12 ms, 3 s' 'took 900 ms, 14 s'
	stays 'took 12µs (12us)' 'took 900µs (7us)'
	stays '1234 MB/s, 12MiB/s, 3 Gbit/s' '99 MB/s, 120MiB/s, 4 Gbit/s'
	stays 'pid 123 comm a' 'pid 45678 comm a'
	stays 'sent_pkts 7, rdma_recvs 12' 'sent_pkts 11, rdma_recvs 3'
	stays ' 31  psn       00 1a 2b 3c' ' 31  psn       00 ff 12 99'
	stays 'plugin.c:128 unknown' 'plugin.c:110 unknown'
	stays '  51  a8 82 81       Packet Sequence Number: 11043457' \
		'  51  cb 26 8f       Packet Sequence Number: 13313679'
	stays 'id "f2385930-7c39-4acf-b319-b87e5600058d",' \
		'id "00112233-4455-4677-8899-aabbccddeeff",'
	ask_all
}

test_exit_code() {
	make_tree
	printf '<!-- run (exit 3) -->\n<!-- /run -->\n' >"$T/README.md"
	docs fill README.md
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:1: the command ended with 3, not 0'
	printf '<!-- run exit=3 echo no; exit 3 -->\n<!-- /run -->\n' \
		>"$T/README.md"
	docs fill README.md
	assertEquals "$out" 0 "$rc"
	assert_in "$(tr '\n' '|' <"$T/README.md")" \
		'\|no\|\$ echo \$\?\|3\|```\|<!-- /run'
	sed -i 's/exit=3/exit=4/' "$T/README.md"
	docs check README.md
	assertEquals 1 "$rc"
	assert_in "$out" 'ended with 3, not 4'
}

test_command_that_does_not_end() {
	make_tree
	printf '<!-- run sleep 60 -->\n<!-- /run -->\n' >"$T/README.md"
	export DOCS_LIMIT=1
	docs fill README.md
	unset DOCS_LIMIT
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:1: the command took more than 1 s'
}

test_display_and_long_commands() {
	make_tree
	cat >"$T/README.md" <<'END'
<!-- run show="echo err
client" bash -c 'client() { echo "$PWD/x"; }; client; echo err >&2' -->
<!-- /run -->
<!-- run bash -c '
echo "a > b"
echo c' -->
<!-- /run -->
END
	docs fill README.md
	assertEquals "$out" 0 "$rc"
	cat >"$T/want" <<'END'
$ echo err
$ client
x
err
$ bash -c '
> echo "a > b"
> echo c'
a > b
c
END
	assertEquals '' "$(awk '/^```/ { on = !on; next } on' "$T/README.md" |
		diff "$T/want" -)"
	docs check --no-run README.md
	assertEquals "$out" 0 "$rc"
	sed -i 's/^client" bash/peer" bash/' "$T/README.md"
	docs check --no-run README.md
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:1: the block does not show'
}

test_output_that_looks_like_markdown() {
	make_tree
	cat >"$T/README.md" <<'END'
<!-- run cat fence -->
<!-- /run -->
END
	cat >"$T/fence" <<'END'
```
<!-- /run -->
# heading
```
END
	docs fill README.md
	docs check README.md
	assertEquals "$out" 0 "$rc"
	assert_in "$(cat "$T/README.md")" '^````console$'
}

test_generated_markdown() {
	make_tree
	printf '| a | b |\n|---|---|\n| 1 | 2 |\n' >"$T/table"
	printf '\n%s\n' '<!-- run raw=1 cat table -->' '<!-- /run -->' \
		>>"$T/README.md"
	docs fill
	assertEquals "$out" 0 "$rc"
	assert_in "$(tail -n 6 "$T/README.md")" '^. 1 . 2 .$'
	assert_not_in "$(tail -n 6 "$T/README.md")" '```|cat table$'
	docs check
	assertEquals "$out" 0 "$rc"
	sed -i 's/2/3/' "$T/table"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'the run block has drifted'
}

test_a_race_may_go_the_other_way_once() {
	make_tree
	cp "$T/value" "$T/next"
	sed -i 's/cat value/&; cp next value/' "$T"/*/01-a*/README.md "$T/docs-zh/01-a.md"
	docs fill
	echo other >"$T/value"
	docs check
	assertEquals "the second run says it: $out" 0 "$rc"
	echo other | tee "$T/value" >"$T/next"
	docs check
	assertEquals "none says it: $out" 1 "$rc"
}

test_a_command_runs_once() {
	make_tree
	sed -i 's/cat value/echo x >>count; cat count/' "$T"/*/01-a*/README.md \
		"$T/docs-zh/01-a.md"
	docs fill
	assertEquals "$out" 0 "$rc"
	assertEquals 1 "$(wc -l <"$T/count")"
	docs check --no-run
	assertEquals "$out" 0 "$rc"
	assertEquals '--no-run must not run' 1 "$(wc -l <"$T/count")"
	sed -i 's/return 1/return 2/' "$T/common/a.c"
	docs fill --no-run
	assertEquals "$out" 0 "$rc"
	assertEquals 'nor here' 1 "$(wc -l <"$T/count")"
	docs check --no-run
	assertEquals "the region was filled: $out" 0 "$rc"
}

test_headings_must_match() {
	make_tree
	sed -i 's/^## Code/### Code/' "$T/docs-zh/01-a.md"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '01-a.md:3: heading of level 3, but heading of level 2'
	sed -i 's/^### Code/## Code/' "$T/docs-zh/01-a.md"
	echo '## More' >>"$T/lessons/01-a/README.md"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" 'ends before the heading of level 2 of lessons/01-a'
}

test_blocks_must_match() {
	make_tree
	sed -i 's/a.c outer/a.c inner/' "$T/docs-zh/01-a.md"
	docs fill
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'region common/a.c inner, but region common/a.c outer'
	sed -i 's/a.c inner/a.c outer/; s|run cat value|run cat ./value|' \
		"$T/docs-zh/01-a.md"
	docs fill
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'run cat ./value'
}

test_pages_come_in_pairs() {
	make_tree
	rm "$T/docs-zh/01-a.md"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'there is no docs-zh/01-a.md'
	make_tree
	mkdir "$T/lessons/02-b"
	echo '# x' >"$T/docs-zh/02-b.md"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" 'lessons/02-b has no README.md'
	assert_in "$out" 'README.md does not list lessons/02-b'
	rmdir "$T/lessons/02-b"
	docs check
	assert_in "$out" 'docs-zh/02-b.md: there is no English page for it'
}

# A lesson of several pages, and a page of the lab: found, filled and paired alike.
test_more_pages_come_in_pairs() {
	make_tree
	page '# More' >"$T/lessons/01-a/more.md"
	page '# 更多' >"$T/docs-zh/01-a-more.md"
	mkdir "$T/labs"
	page '# Bench' >"$T/labs/bench.md"
	page '# 测量' >"$T/docs-zh/bench.md"
	docs fill
	docs check
	assertEquals "$out" 0 "$rc"
	assert_in "$out" '^docs: 7 pages, 12 blocks'
	echo '## Extra' | tee -a "$T/docs-zh/01-a-more.md" >>"$T/labs/bench.md"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '01-a-more.md:[0-9]*: heading.*nothing more in lessons/01-a/more.md'
	assert_in "$out" 'docs-zh/bench.md: ends before the heading.* of labs/bench.md'
	rm "$T/docs-zh/01-a-more.md" "$T/labs/bench.md"
	docs check --no-run
	assert_in "$out" 'lessons/01-a/more.md: there is no docs-zh/01-a-more.md'
	assert_in "$out" 'docs-zh/bench.md: there is no English page'
}

test_dead_links() {
	make_tree
	cat >>"$T/README.md" <<'END'
[a](common/none.c) `[b](not/a/link)` [c](common/a.c#L3 "title")
[d](https://example.org/x) [e](#here) [f](/common/a.c) ![g](none.png)
[h](../../outside)

[ref]: gone.md

```sh
labs/lab run lessons/01-a/README.md # labs/none
sudo labs/gone
```
END
	mkdir -p "$T/labs"
	touch "$T/labs/lab"
	docs check
	assertEquals 1 "$rc"
	assertEquals 6 "$(grep -c ': the link' <<<"$out")"
	assert_in "$out" '^README.md:9: the link /labs/none leads nowhere'
	assert_in "$out" '^README.md:10: the link /labs/gone leads nowhere'
	assert_in "$out" '^README.md:2: the link common/none.c leads nowhere'
	assert_in "$out" '^README.md:3: the link none.png leads nowhere'
	assert_in "$out" '^README.md:4: the link ../../outside leaves the tree'
	assert_in "$out" '^README.md:6: the link gone.md leads nowhere'
}

# The tree above, whose lesson shows a picture.
make_picture() {
	make_tree
	mkdir -p "$T/labs/pictures"
	cat >"$T/labs/pictures/way.pic" <<'END'
title Two & one | 二与一
size 40
lane a 8 12 plain A
lane b 32 12 plain B
message data a b few < words | 不多的字
step b 12 error the end | 到此为止
END
	echo '![two](../../labs/pictures/way.svg)' >>"$T/lessons/01-a/README.md"
	echo '![二](../labs/pictures/way.zh.svg)' >>"$T/docs-zh/01-a.md"
	docs fill
	assertEquals "fill: $out" 0 "$rc"
	docs check
	assertEquals "check: $out" 0 "$rc"
}

test_pictures_are_drawn_and_their_drift_is_caught() {
	make_picture
	local english chinese
	english=$(<"$T/labs/pictures/way.svg") chinese=$(<"$T/labs/pictures/way.zh.svg")
	assert_in "$english" '<title>Two &amp; one</title>'
	assert_in "$english" '>few &lt; words</text>'
	assert_in "$chinese" '>不多的字</text>'
	assert_not_in "$english" '不多|二'
	assert_in "$english" '^@media\(prefers-color-scheme:dark\)'
	sed -i 's/到此为止/到了/' "$T/labs/pictures/way.pic"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^labs/pictures/way.zh.svg has drifted from labs/pictures/way.pic'
	assert_not_in "$out" 'way.svg has drifted'
	assertEquals 'check must not write' "$chinese" "$(<"$T/labs/pictures/way.zh.svg")"
	docs fill --no-run
	assert_in "$out" '^docs: drew labs/pictures/way.zh.svg'
	docs check --no-run
	assertEquals "$out" 0 "$rc"
	mv "$T/labs/pictures/way.zh.svg" "$T/labs/pictures/else.zh.svg"
	docs check --no-run
	assert_in "$out" '^docs: 3 to mend'
	assert_in "$out" 'way.zh.svg leads nowhere'
	assert_in "$out" 'else.zh.svg has no labs/pictures/else.pic'
}

# make_shot: the photograph of a page that a stand-in for labs/qptrace makes of recordings
make_shot() {
	make_tree
	mkdir -p "$T/labs/pictures" "$T/bin"
	printf '%s\n' '#!/bin/sh' 'while [ "$1" != --html ]; do shift; done' \
		'cat "$3" >"$2"' >"$T/labs/qptrace"
	printf '%s\n' '#!/bin/sh' 'for a; do case $a in --screenshot=*) echo picture >"${a#*=}" ;; esac; done' \
		>"$T/bin/chromium"
	printf '#!/bin/sh\necho a-font\n' >"$T/bin/fc-list"
	chmod +x "$T/labs/qptrace" "$T/bin/"*
	printf 'size 9x9\ncat run >"$A"\n' >"$T/labs/pictures/way.shot"
	echo '{"ev":"modify_qp","to":"RTR","t":1}' >"$T/run"
	PATH=$T/bin:$PATH docs fill
	assertEquals "fill: $out" 0 "$rc"
	assert_in "$out" '^docs: photographed labs/pictures/way.zh.png'
}

test_photographs_are_of_the_page_that_is() {
	make_shot
	echo '{"ev":"modify_qp","to":"RTR","t":2}' >"$T/run" # another time is no drift
	docs check
	assertEquals "check: $out" 0 "$rc"
	echo '{"ev":"modify_qp","to":"RTS","t":2}' >"$T/run"
	docs check --no-run
	assertEquals "without a run: $out" 0 "$rc"
	docs check
	assertEquals 1 "$rc"
	assert_in "$out" '^labs/pictures/way.a.json is not what labs/pictures/way.shot records now'
	sed -i 's/^cat/echo new | cat -/' "$T/labs/qptrace"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^labs/pictures/way.png is not what the page of labs/qptrace looks like now'
	PATH=$T/bin:$PATH docs fill
	assert_in "$out" '^docs: photographed labs/pictures/way.png'
	assert_in "$(<"$T/labs/pictures/way.a.json")" RTS
	docs check
	assertEquals "check: $out" 0 "$rc"
	echo false >>"$T/labs/pictures/way.shot"
	sed -i '/^cat/d' "$T/labs/pictures/way.shot"
	docs check
	assert_in "$out" '^labs/pictures/way.shot records nothing'
}

test_pages_show_pictures_of_their_language() {
	make_picture
	sed -i 's/way.zh.svg/way.svg/' "$T/docs-zh/01-a.md"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^docs-zh/01-a.md:[0-9]+: this picture is in the other language. Show ../labs/pictures/way.zh.svg'
	sed -i 's/way.svg/way.zh.svg/; s/!.二/![/' "$T/docs-zh/01-a.md"
	sed -i 's/way.svg/way.zh.svg/' "$T/lessons/01-a/README.md"
	docs check --no-run
	assert_in "$out" '^docs-zh/01-a.md:[0-9]+: the picture ../labs/pictures/way.zh.svg has no words'
	assert_in "$out" '^lessons/01-a/README.md:[0-9]+: this picture .* Show ../../labs/pictures/way.svg'
	sed -i '/^!/d' "$T/docs-zh/01-a.md"
	docs check --no-run
	assert_in "$out" '^docs-zh/01-a.md: shows the pictures \(\), but lessons/01-a/README.md \(way\)'
}

# refused WHY LINE: a picture with this line cannot be drawn
refused() {
	printf 'title T\nsize 20 6\nbox a 1 1 9 2 plain.top\n%s\n' "$2" >"$T/labs/pictures/way.pic"
	docs fill --no-run
	assertEquals "$2" 1 "$rc"
	assert_in "$out" "way.pic:[0-9]*: .*$1" "$2:"
}

# shellcheck disable=SC2016 # a ` in a picture
test_pictures_that_would_not_be_legible() {
	make_picture
	refused 'needs 12 columns, box b has 9' 'box b 1 3 9 2 plain eleven word'
	refused 'needs 11 columns, box b has 9' 'box b 1 3 9 2 plain fits | 这句放不下'
	refused 'needs 3 rows, box b has 2' 'box b 1 3 9 2 plain a\nb\nc'
	refused 'leaves the picture' 'text 15 3 plain too far right'
	refused 'box b leaves the picture' 'box b 12 1 9 2 plain'
	refused 'needs 10 columns, its line has 6' 'arrow data 1,5 7,5 too long'
	refused 'and box a touch' 'text 8 2 plain half in'
	refused '"one" meets "two"' $'text 2 5 plain two\ntext 4 5 plain one'
	refused '"b" meets "a"' $'text 2 5 plain a\ntext 3 5 plain b'
	refused 'there is no colour pink' 'text 1 5 pink x'
	refused '"c.l" is no place' 'arrow data a.r c.l'
	refused 'there is no lane x' 'step x 4 plain x'
	refused 'there is no command circle' 'circle a'
	refused 'a ` is not closed' 'text 1 5 plain `x'
}

test_pictures_of_the_state_machine_show_its_table() {
	make_picture
	printf '| %s |\n' '1 | A → B | PORT, AV | - | x' '2 | B → A | - | - | x' >"$T/table.md"
	refused 'it does not show B A' $'table cat table.md\ntext 11 2 plain {A B}'
	refused 'A B requires PORT, AV' $'table cat table.md\ntext 11 2 plain {A B, B A: none}'
	refused 'the table has no B C' $'table cat table.md\ntext 11 2 plain {B C}'
	refused 'printed no transitions. Run make' 'table cat value'
	cat >"$T/labs/pictures/way.pic" <<'END'
title T
size 20 6
table cat table.md
text 1 1 plain {A B}
text 1 4 plain {B A: none}
END
	docs fill
	assertEquals "$out" 0 "$rc"
	assert_in "$(<"$T/labs/pictures/way.svg")" '>PORT</tspan>'
	sed -i 's/PORT, //' "$T/table.md"
	docs check --no-run
	assert_in "$out" '^labs/pictures/way.svg has drifted'
}

test_usage() {
	docs --help
	assertEquals 0 "$rc"
	assert_in "$out" '^usage: labs/docs'
	docs
	assertEquals 2 "$rc"
	docs fill none.md
	assertEquals 2 "$rc"
	docs nonsense
	assertEquals 2 "$rc"
}

# A made-up lab: what the VMs would say is in $T/fresh and $T/used.
test_a_vm_that_starts_does_not_say_so_in_a_page() {
	make_tree
	mkdir "$T/labs"
	cat >"$T/labs/lab" <<'END'
#!/bin/sh
[ -e up ] || echo "lab: VM started" >&2
touch up
[ "$3" = true ] || echo yes
END
	chmod +x "$T/labs/lab"
	printf '<!-- run labs/lab run ask -->\n<!-- /run -->\n' >>"$T/README.md"
	docs fill README.md
	assert_in "$(<"$T/README.md")" '^yes$' "$out"
	assert_not_in "$(<"$T/README.md")" 'VM started'
}

test_a_used_vm_may_confirm_and_only_a_fresh_one_deny() {
	make_tree
	mkdir "$T/labs"
	cat >"$T/labs/lab" <<'END'
#!/bin/sh
echo "$*" >>calls
case $* in
"run --fresh true" | up | down) ;;
"run --fresh ask") cat fresh ;;
"run ask") cat used ;;
esac
END
	chmod +x "$T/labs/lab"
	cat >>"$T/README.md" <<'END'
<!-- run labs/lab run --fresh ask -->
<!-- /run -->
[lesson](lessons/01-a/README.md)
END
	echo yes >"$T/fresh"
	echo no >"$T/used"
	docs fill README.md
	assert_in "$(<"$T/README.md")" '^yes$' "filled by a fresh one: $out"
	docs check README.md
	assertEquals "a used one may not deny: $out" 0 "$rc"
	echo 'yes QP 18 (0x000012), not QP 19' >"$T/used"
	echo 'yes QP 17 (0x000011), not QP 18' >"$T/fresh"
	docs fill README.md
	rm "$T/calls"
	docs check README.md
	assertEquals "$out" 0 "$rc"
	assertEquals "up run ask down" "$(xargs <"$T/calls")"
	echo 'yes QP 17 (0x000012), not QP 18' >"$T/used"
	docs check README.md
	assertEquals "another QP than the page's" \
		"run ask down run --fresh ask" \
		"$(tail -n +5 "$T/calls" | grep -v true | xargs)"
	sed -i 's/--fresh ask/& ; ip route/' "$T/README.md"
	docs fill README.md
	echo no >"$T/used"
	docs check README.md
	assertEquals "one that changes the network: $out" 0 "$rc"
	assertEquals 2 "$(grep -c '^run ask' "$T/calls")"
	echo no | tee "$T/used" >"$T/fresh"
	docs check README.md
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:[0-9]*: the run block has drifted'
}

. shunit2
