# SPDX-License-Identifier: MIT
#
# order.awk - does the way through the lessons hold together? Prints "PAGE: MESSAGE" for
# what does not. For labs/docs, at the top of the tree:
#
#	LC_ALL=C awk -f order.awk README.md lessons/[0-9]*/*.md docs-zh/[0-9]*.md
#
# README.md lists the lessons in the order of their numbers, with title and needs. From
# the first of them, Next leads through all pages in that order. Each page says how long
# it takes, at most an hour, and not less than reading it does.
function wrong(page, message) { print page ": " message }
function lessons_in(s, number, n, i, out) {
	gsub(/[^0-9]+/, " ", s)
	n = split(s, number, " ")
	for (i = 1; i <= n; i++) out = out sprintf(" %02d", number[i])
	return out ? out : " none"
}
function title_of(page, s) {
	s = title[page]
	sub(/^[0-9]+ \302\267 /, "", s)
	return s
}
# from PAGE the relative LINK leads to
function led_to(page, link) {
	sub(/[^\/]*$/, "", page)
	link = page link
	while (sub(/[^\/.]+\/\.\.\//, "", link)) {}
	return link
}
function add_row(s, cell) {
	split(s, cell, " *[|] *")
	if (!match(s, /\(lessons\/[^)]*\)/)) return
	list["en", ++rows] = substr(s, RSTART + 1, RLENGTH - 2)
	says["en", rows] = substr(cell[3], 2, index(cell[3], "](") - 2)
	if (rows > 1 && cell[2] + 0 <= last + 0) wrong("README.md", "lesson " cell[2] " stands behind lesson " last ".")
	last = cell[2]
	need_of[rows] = lessons_in(cell[4])
	if (!match(s, /\[[^]]*\]\(docs-zh\/[^)]*\)/)) return
	s = substr(s, RSTART + 1, RLENGTH - 2)
	says["zh", rows] = substr(s, 1, index(s, "](") - 1)
	list["zh", rows] = substr(s, index(s, "](") + 2)
}
function lesson_of(page) {
	match(page, /[0-9]+-/)
	return substr(page, RSTART, RLENGTH)
}
function walk(language, page, nth, target) {
	nth = 1
	for (page = list[language, 1]; page in title && !(page in seen); page = target) {
		seen[page]
		if (page == list[language, nth]) {
			if (says[language, nth] != title_of(page))
				wrong("README.md", "calls " page " \"" says[language, nth] "\", the page \"" title_of(page) "\".")
			if (need_of[nth] != needs[page])
				wrong(page, "needs lessons" needs[page] "; README.md says" need_of[nth] ".")
			nth++
		}
		if (!(page in next_link)) break
		target = led_to(page, next_link[page])
		if (next_says[page] != title[target])
			wrong(page, "Next is called \"" next_says[page] "\", the page \"" title[target] "\".")
		if (lesson_of(target) != lesson_of(page) && target != list[language, nth])
			wrong(page, "Next is " target "; in README.md it is " list[language, nth] ".")
	}
	for (page in title)
		if ((page ~ /^docs-zh/) == (language == "zh") && !(page in seen))
			wrong(page, "no Next leads here from " list[language, 1] ".")
}
FNR == 1 { fenced = comment = 0 }
FILENAME == "README.md" {
	if (/^\| [0-9]+ \|/) add_row($0)
	next
}
FNR == 1 { title[FILENAME] = substr($0, 3); needs[FILENAME] = " none" }
/^```/ { fenced = !fenced; next }
fenced { code[FILENAME]++; next }
/^<!--/ { comment = 1 }
comment { comment = !/-->/; next }
/^- \*\*(Time|\346\227\266\351\227\264)\*\*/ { match($0, /[0-9]+/); minutes[FILENAME] = substr($0, RSTART, RLENGTH) + 0 }
/^- \*\*(You need|\351\234\200\350\246\201)\*\*/ { needs[FILENAME] = lessons_in($0) }
/^(Next: |\344\270\213\344\270\200\350\257\276\357\274\232)\[/ {
	next_link[FILENAME] = next_says[FILENAME] = substr($0, index($0, "[") + 1)
	sub(/\].*/, "", next_says[FILENAME])
	sub(/^[^]]*\]\(/, "", next_link[FILENAME])
	sub(/\).*/, "", next_link[FILENAME])
}
{
	gsub(/\]\([^)]*\)|[|]/, " ")
	words[FILENAME] += NF
}
END {
	walk("en")
	walk("zh")
	for (page in title) {
		reading = int(words[page] / 170 + code[page] / 14)
		if (!(page in minutes)) wrong(page, "does not say its time.")
		else if (minutes[page] > 60) wrong(page, "takes more than an hour. Move a part to a page beside it.")
		else if (page ~ /^lessons/ && minutes[page] < reading)
			wrong(page, "says " minutes[page] " minutes, and reading alone takes " reading ".")
	}
}
