# SPDX-License-Identifier: MIT
#
# starter.awk - a stage with its heart taken out: of each function named in STRIP
# the contract (its head) and the comments stay, the code goes; what it has to do stands
# there in English, too, if STRIP says it. A name that is a macro goes as a whole.
#
#	STRIP="path_mtu: the lower of both sides'
#	modify_qp_to_rtr: …" awk -v head="TEXT" [-v unwritten="WHAT-IT-DOES"] -f starter.awk STAGE.c
#
# Until it is written a function fails with ENOSYS, or does what UNWRITTEN says of NAME.

BEGIN {
	strip = ENVIRON["STRIP"]
	n = split(strip, lines, "\n")
	for (i = 1; i <= n; i++)
		if (match(lines[i], /^[[:space:]]*[A-Za-z_0-9]+: /)) {
			name = substr(lines[i], 1, RLENGTH - 2)
			sub(/^[[:space:]]*/, "", name)
			is_stripped[name] = substr(lines[i], RLENGTH + 1)
		} else {
			m = split(lines[i], words, " ")
			for (j = 1; j <= m; j++)
				is_stripped[words[j]] = ""
		}
}

# todo(): what is to be written, as a comment of lines that are not too long
function todo(    words, n, i, line) {
	n = split("TODO: " name "()" (is_stripped[name] ? ": " : "") is_stripped[name], words, " ")
	line = "\t/*"
	for (i = 1; i <= n; i++) {
		if (length(line " " words[i]) > 70) {
			print line
			line = "\t *"
		}
		line = line " " words[i]
	}
	print line " */"
}

# The first line of the file, its licence, stays the first.
NR == 1 {
	print
	print head
	next
}

# What a function that does nothing has to return.
function nothing(type, name) {
	if (type ~ /\*$/)
		return "return NULL;"
	if (type ~ /(^| )void *$/)
		return ""
	if (type ~ /struct [a-z_]+ *$/)
		return "return (" type "){ 0 };"
	if (type ~ /(^| )bool *$/)
		return "return false;"
	if (type ~ /(^| )int *$/)
		return "return fail(-ENOSYS, \"write it\", \"%s() is not " \
			"written yet\",\n\t\t    __func__);"
	return "return (" type ")0;"
}

# end_of_function: the hole, and what is returned until it is filled
function end_of_function(    value, text) {
	todo()
	value = nothing(type, name)
	if (unwritten) {
		text = unwritten
		gsub(/NAME/, name "()", text)
		print "\t" text
		if (value ~ /ENOSYS/)
			value = "return -ENOSYS;"
	}
	if (value)
		print "\t" value
	print "}"
	inside = 0
}

function comment_line(text) {
	sub(/^[ \t]+/, "", text)
	print "\t" (text ~ /^\*/ ? " " : "") text
}

# The comments of a line of code, or of a line inside a comment.
function keep_comments(line) {
	if (in_comment) {
		comment_line(line)
		in_comment = line !~ /\*\//
		return
	}
	if (!match(line, /\/\*/))
		return
	line = substr(line, RSTART)
	in_comment = line !~ /\*\//
	if (!in_comment)
		sub(/\*\/.*/, "*/", line)
	comment_line(line)
}

# Marks for the pages are not the learner's.
/^[ \t]*\/\/ (end)?region / { next }

inside {
	if ($0 == "}")
		end_of_function()
	else
		keep_comments($0)
	next
}

macro {
	macro = /\\$/
	next
}

/^#define / {
	word = $2
	sub(/\(.*/, "", word)
	if (word in is_stripped) {
		macro = /\\$/
		next
	}
}

# The head of a function begins at the left margin and ends before "{".
/^[a-z].*\(/ && !/;$/ {
	name = $0
	sub(/\(.*/, "", name)
	type = name
	sub(/.*[ *]/, "", name)
	sub(/[a-z_0-9]+$/, "", type)
	sub(/^static /, "", type)
	sub(/ +$/, "", type)
	headed = name in is_stripped
}

{ print }

/^#include "/ && strip && !unwritten && !reports++ { print "#include \"base/report.h\"" }

$0 == "{" && headed {
	inside = 1
	headed = in_comment = 0
}

$0 == "}" { headed = 0 }
