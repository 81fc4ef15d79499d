# SPDX-License-Identifier: MIT
#
# prose.awk - what is wrong with the prose of a page, as "LINE<tab>MESSAGE", from
# lessons/glossary.txt, if there is one, and the records of scan.awk. For labs/docs,
# in the C locale: a character of Chinese is three bytes. page: its path.
#
# A line ends in a browser with a blank, and Chinese has none between its words: a
# line break in a Chinese paragraph stands at the end of a sentence.
function ends_sentence(s) {
	gsub(/[*_ ]+$/, "", s)
	while (sub(/(”|’|）|》|\*\*)$/, "", s)) {}
	return s ~ /(。|！|？|…|[ -~])$/
}
function starts_block(s) { return s ~ /^ *([-*+] |[0-9]+[.)] |\||<|>|!)/ }

# A word of the glossary leads there where a page first uses it, up to the lesson that
# introduces it; the Chinese page of that one says it in Chinese, too.
function uses(s, term, at, rest) {
	while (at = index(s, term)) {
		rest = substr(s, at + length(term))
		if ((at == 1 || substr(s, at - 1, 1) !~ /[A-Za-z0-9_-]/) && rest !~ /^(s?[A-Za-rt-z0-9_]|ss)/)
			return 1
		s = rest
	}
	return 0
}
function check_terms(s, term, id, plain) {
	plain = s
	gsub(/`[^`]*`|!?\[[^]]*\]\([^)#]*\)/, "", plain)
	gsub(/\]\([^)]*\)/, "]", plain)
	for (term in lesson) {
		if (lesson[term] < number || term in seen || !uses(plain, term)) continue
		seen[term]
		id = tolower(term)
		gsub(/[^a-z0-9]+/, "-", id)
		if (s !~ "\\[[^]]*" term "[^]]*\\]\\([^)]*#" id "\\)")
			print $2 "\tthe first " term " of this page, which " introduced(term) \
				", does not lead to the glossary. Write [" term "](" glossary "#" id ")."
		else if (page ~ /^docs-zh/ && lesson[term] == number && !index(s, chinese[term]))
			print $2 "\tthe first " term " of the lesson that introduces it. Say it in Chinese, too: " chinese[term] "."
	}
}
function introduced(term) {
	return lesson[term] == 99 ? "no lesson introduces" : "lesson " lesson[term] " introduces"
}
BEGIN {
	FS = "\t"
	number = 100
	if (match(page, /(^lessons|^docs-zh)\/[0-9][0-9]-/)) {
		number = substr(page, RLENGTH - 2, 2) + 0
		# A second page of a lesson comes after its first.
		if (page !~ /README.md$/ && second) number += 0.5
	}
	glossary = page ~ /^docs-zh/ ? "glossary.md" : "../GLOSSARY.md"
}
FILENAME ~ /glossary.txt$/ {
	if (!/^(#|$)/ && ++nth % 3 == 1) {
		split($0, field, " [|] ")
		lesson[field[1]] = field[4] == "-" ? 99 : field[4] + 0
		chinese[field[1]] = field[3]
	}
	next
}
$1 == "T" {
	if ($2 == line + 1 && !starts_block($3) && text !~ /^(\||<)/ &&
	    $3 ~ /^ *[*_]*[\342-\357]/ && !ends_sentence(text))
		print $2 "\tthe line before breaks off inside a Chinese sentence, " \
			"where a browser shows a blank. Join the two."
	line = $2
	text = $3
	if (text !~ /^</) check_terms(text)
}
