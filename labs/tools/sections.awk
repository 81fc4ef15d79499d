# SPDX-License-Identifier: MIT
#
# sections.awk - what the page of a lesson lacks, as "LINE<tab>MESSAGE", from the records
# of scan.awk. For labs/docs. All lessons have the same sections, in one order; others
# may stand between them. Lesson 00 has no lesson before it to ask about. page: its path;
# exercise: the number of the exercise that the lesson leads to, or nothing.
function wrong(message) { print $2 "\t" message }
BEGIN {
	FS = "\t"
	if (page ~ /^docs-zh/) {
		sections = "本课的新内容|课前三问|原理|代码|运行|你会看到|故意出错|思考题"
		items = "- **时间**|- **需要**|- **学完之后**"
		now = "**现在你会了**"
		own = "**练习**"
	} else {
		sections = "What is new|Three questions first|The idea|The code|Run it|What you see|Break it|Questions"
		items = "- **Time**|- **You need**|- **Afterwards you can**"
		now = "**You can now**"
		own = "**Exercise**"
	}
	if (page ~ /\/00-/) sub(/\|[^|]*/, "", sections)
	nsections = split(sections, section, "|")
	nitems = split(items, item, "|")
	at = 1
	due = 1
}
$1 == "H" && $3 == 2 {
	heading = $4
	if (heading == section[at]) at++
	else if (index("|" sections "|", "|" heading "|") && !misplaced++)
		wrong("here is the section " heading ", where " section[at] " is due.")
}
$1 == "T" && heading == section[1] && index($3, item[due]) == 1 { due++ }
$1 == "T" && heading == section[2] && page !~ /\/00-/ { questions += $3 ~ /^<details><summary>/ }
$1 == "T" && heading == section[nsections] && index($3, now) == 1 { ended = 1 }
$1 == "T" && ended && index($3, own) == 1 && index($3, "labs/exercise start " exercise) { led = 1 }
END {
	if (at <= nsections && !misplaced) wrong("there is no section " section[at] ". Write it.")
	if (due <= nitems) wrong(section[1] " does not end with the list of " items ".")
	if (page !~ /\/00-/ && questions != 3)
		wrong(section[2] " asks " questions + 0 ", not three, each in <details><summary>.")
	if (exercise != "" && !led)
		wrong("after " now ", no " own " leads to labs/exercise start " exercise ".")
	if (!ended) wrong("after the " section[nsections] ", no " now " sums the lesson up.")
}
