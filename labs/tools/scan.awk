# SPDX-License-Identifier: MIT
#
# scan.awk - what a page holds, one record per line, fields separated by tabs.
# For labs/docs:
#	H LINE LEVEL TEXT       a heading
#	L LINE TARGET           a link, or a program in a command to be typed
#	T LINE TEXT             a line of prose: no heading, not in a block or a fence
#	B KIND START MARK END   a block: marker on lines START to MARK, then the
#	                        text, then the end marker on line END
#	E LINE MESSAGE          a marker that cannot be

function closes(s) {
	sub(/^ ? ? ?/, "", s)
	sub(/[ \t]+$/, "", s)
	return substr(s, 1, length(fence)) == fence &&
		s ~ (substr(fence, 1, 1) == "`" ? "^`+$" : "^~+$")
}
function error(line, text) { printf "E\t%d\t%s\n", line, text }
function links(s) {
	gsub(/`[^`]*`/, "", s)
	if (match(s, /^ ? ? ?\[[^]]+\]:[ \t]*/)) {
		s = substr(s, RLENGTH + 1)
		sub(/[ \t].*/, "", s)
		printf "L\t%d\t%s\n", NR, s
		return
	}
	while (match(s, /\]\([^)]*\)/)) {
		t = substr(s, RSTART + 2, RLENGTH - 3)
		s = substr(s, RSTART + RLENGTH)
		sub(/^[ \t]*</, "", t)
		sub(/>?([ \t].*)?$/, "", t)
		printf "L\t%d\t%s\n", NR, t
	}
}
# What a reader is to type: programs of the tree that it names.
function commands(s) {
	while (match(s, /(^|[ \t(])(labs|lessons)\/[A-Za-z0-9_.\/-]+/)) {
		t = substr(s, RSTART, RLENGTH)
		s = substr(s, RSTART + RLENGTH)
		sub(/^[ \t(]/, "", t)
		printf "L\t%d\t/%s\n", NR, t
	}
}
in_marker {
	if (/-->[ \t]*$/) { in_marker = 0; mark = NR }
	next
}
fence != "" {
	if (closes($0)) fence = ""
	else if (typed) commands($0)
	next
}
match($0, /^ ? ? ?(```+|~~~+)/) {
	fence = substr($0, RSTART, RLENGTH)
	sub(/^ +/, "", fence)
	typed = kind == "" && /(```|~~~)(sh|console)$/
	next
}
/^<!-- (region|run)[ \t]/ {
	if (kind != "")
		error(start, "the " kind " marker has no <!-- /" kind \
			" -->. Add it below the block.")
	kind = $2; start = mark = NR
	if ($0 !~ /-->[ \t]*$/) in_marker = 1
	next
}
/^<!-- \/(region|run) -->[ \t]*$/ {
	if ($2 != "/" kind)
		error(NR, "this end marker ends nothing. Put <!-- " \
			substr($2, 2) " ... --> above its block.")
	else
		printf "B\t%s\t%d\t%d\t%d\n", kind, start, mark, NR
	kind = ""
	next
}
/^[ \t]*<!--[ \t]*\/?(region|run)([ \t]|-->|$)/ {
	error(NR, "this is almost a marker. Begin the line with " \
		"\"<!-- region\" or \"<!-- run\".")
	next
}
{ links($0) }
match($0, /^#+[ \t]+/) {
	level = $0
	sub(/[ \t].*/, "", level)
	printf "H\t%d\t%d\t%s\n", NR, length(level), substr($0, RLENGTH + 1)
	next
}
kind == "" && /[^ \t]/ { text = $0; gsub(/\t/, " ", text); printf "T\t%d\t%s\n", NR, text }
END {
	if (in_marker)
		error(start, "the marker is not closed. End it with -->.")
	else if (kind != "")
		error(start, "the " kind " marker has no <!-- /" kind \
			" -->. Add it below the block.")
}
