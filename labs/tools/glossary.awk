# SPDX-License-Identifier: MIT
#
# glossary.awk - the page of lessons/glossary.txt in one language (lang=en or zh).
# pages: the folders of the lessons. What is wrong is said in one line, exit code 1.
function wrong(message) {
	if (!failed) print FILENAME ":" NR ": " message
	failed = 1
	exit 1
}
function link(number, i, slug) {
	if (number == "-") return "-"
	for (i in folder) {
		slug = folder[i]
		gsub(/^lessons\/|\/$/, "", slug)
		if (index(slug, number "-") == 1)
			return "[" number "](" (lang == "en" ? slug "/README.md" : slug ".md") ")"
	}
	wrong("there is no lesson " number)
}
function line(text) { page = page text "\n" }
BEGIN {
	split(pages, folder, " ")
	if (lang == "en") {
		line("# Glossary\n\nThe words of the course. In Chinese: [术语表](../docs-zh/glossary.md).\n")
		line("| Term | 中文 | What it is | Lesson | More |")
	} else {
		line("# 术语表\n\n课程里用到的词。\nEnglish: [Glossary](../lessons/GLOSSARY.md).\n")
		line("| 术语 | 中文 | 是什么 | 课 | 详见 |")
	}
	line("|---|---|---|---|---|")
	FS = " [|] "
}
/^#/ || /^$/ { next }
++nth % 3 == 1 {
	if (NF != 5) wrong("this is not TERM | in full | 中文 | lesson | more, but " NF " fields")
	if ($1 in known) wrong($1 " comes a second time")
	known[$1]
	id = tolower($1)
	gsub(/[^a-z0-9]+/, "-", id)
	name = "<a id=\"" id "\"></a>**" $1 "**" ($1 == $2 ? "" : (lang == "en" ? ", " : "，") $2)
	head = "| " name " | " $3 " | "
	tail = " | " link($4) " | " $5 " |"
	next
}
/ [|] / { wrong("this is to be a sentence, in English and then in Chinese") }
nth % 3 == (lang == "en" ? 2 : 0) { line(head $0 tail) }
END {
	if (nth % 3) wrong("the last term lacks a sentence")
	if (!failed) printf "%s", page
}
