# SPDX-License-Identifier: MIT
#
# english.awk - the comments of a C source in English, and nothing else changed.
#
#	LC_ALL=C awk -f english.awk -v file=FOLDER/PATH.c FOLDER/comments.en - <SOURCE
#
# comments.en has the comments of the sources below its folder:
#
#	# PATH.c
#	the Chinese comment in one line, a blank line in it as " | "
#		the English one, in lines that begin with a tab
#
# A Chinese comment that is not there is an error; with lenient=1 it stays as it is, and
# an entry that no comment has any more is an error.

# Bytes, as mawk knows no others: what is not ASCII takes one column.
function width(s,    i, c, n) {
	n = 0
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		if (c == "\t")
			n += 8 - n % 8
		else if (c < "\200" || c > "\277")
			n++
	}
	return n
}

# U+3000 to U+9FFF and U+FF00 on: Han, and its punctuation
function is_chinese(s) {
	return s ~ /[\344-\351][\200-\277][\200-\277]|\343[\200-\277][\200-\277]|\357[\274\275][\200-\277]/
}

# Lines of a comment become one: without a blank where either side is Chinese.
function join(a, b) {
	if (a == "" || b == "|")
		return a (a == "" ? "" : " ") b
	if (a ~ /\|$/)
		return a " " b
	return a (a ~ /[\200-\377]$/ && b ~ /^[\200-\377]/ ? "" : " ") b
}

function complain(text) {
	print top "/comments.en: " file ": " text >"/dev/stderr"
	failed = 1
}

function trim(s) {
	sub(/^[ \t]+/, "", s)
	sub(/[ \t]+$/, "", s)
	return s
}

# Where a comment begins that is not in a string; 0: nowhere
function comment_at(s,    i, c, quote) {
	quote = ""
	for (i = 1; i < length(s); i++) {
		c = substr(s, i, 1)
		if (quote != "" && c == "\\")
			i++
		else if (quote != "")
			quote = c == quote ? "" : quote
		else if (c == "\"" || c == "'")
			quote = c
		else if (c == "/" && substr(s, i + 1, 1) == "*")
			return i
	}
	return 0
}

function english_of(text) {
	used[text] = 1
	if (!is_chinese(text) || (lenient && !(text in english)))
		return ""
	if (english[text] == "")
		complain("no English for: " text)
	return english[text]
}

function put(line) {
	text_out = text_out line "\n"
	last = line
}

# A comment of its own, at @indent: one line, or a block
function put_comment(indent, text,    word, n, i, line, start) {
	if (width(indent "/* " text " */") <= 80 && text !~ / \| /) {
		put(indent "/* " text " */")
		return
	}
	put(indent "/*")
	start = indent " *"
	line = start
	n = split(text, word, " ")
	for (i = 1; i <= n; i++) {
		if (word[i] == "|") {
			put(line)
			put(start)
			line = start
			continue
		}
		if (width(line " " word[i]) > 80 && line != start) {
			put(line)
			line = start
		}
		line = line " " word[i]
	}
	put(line)
	put(indent " */")
}

# @before and @after are the code around a comment whose @text is Chinese.
function put_english(before, text, after,    line, indent) {
	line = before "/* " text " */" after
	if (width(line) <= 80 && text !~ / \| /) {
		put(line)
		return
	}
	indent = before
	sub(/[^ \t].*$/, "", indent)
	if (last ~ /\\$/ || after ~ /\\$/)
		complain("too long for the line of a macro: " text)
	put_comment(indent, text)
	if (trim(before after) != "") {
		sub(/[ \t]+$/, "", before)
		put(before (before == "" ? indent trim(after) : after))
	}
}

# ---- comments.en

BEGIN {
	top = file
	sub(/\/.*/, "", top)
}

FILENAME != "-" {
	if (/^# /)
		mine = top "/" substr($0, 3) == file
	else if (/^\t/ && mine)
		english[key] = english[key] (english[key] == "" ? "" : " ") trim($0)
	else if (mine && NF) {
		key = $0
		keys[++n_keys] = key
	}
	next
}

# ---- the source

in_comment {
	raw = raw "\n" $0
	end = index($0, "*/")
	text = end ? substr($0, 1, end - 1) : $0
	sub(/^[ \t]*\*?/, "", text)
	text = trim(text)
	if (text != "" || !end)
		all = join(all, text == "" ? "|" : text)
	if (!end)
		next
	in_comment = 0
	sub(/ \|$/, "", all)
	sub(/^\| /, "", all)
	text = english_of(all)
	if (text != "")
		put_english(before, text, substr($0, end + 2))
	else
		put(raw)
	next
}

{
	rest = $0
	done = ""
	while ((at = comment_at(rest)) && (end = index(substr(rest, at + 2), "*/"))) {
		text = english_of(trim(substr(rest, at + 2, end - 1)))
		if (text != "") {
			put_english(done substr(rest, 1, at - 1), text, substr(rest, at + end + 3))
			next
		}
		done = done substr(rest, 1, at + end + 2)
		rest = substr(rest, at + end + 3)
	}
	if (at) {
		in_comment = 1
		before = done substr(rest, 1, at - 1)
		all = trim(substr(rest, at + 2))
		raw = $0
		next
	}
	put($0)
}

END {
	for (i = 1; i <= n_keys && lenient; i++)
		if (!(keys[i] in used))
			complain("no comment says this any more: " keys[i])
	if (!failed || lenient)
		printf "%s", text_out
	exit failed
}
