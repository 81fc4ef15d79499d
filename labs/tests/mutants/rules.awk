# SPDX-License-Identifier: MIT
#
# rules.awk - the small mistakes that people make, one for each place where one can be
# made: FILE, line, rule, and what the line is then, with tabs between.

function emit(rule, line) {
	if (line != $0)
		printf "%s\t%d\t%s\t%s\n", FILENAME, FNR, rule, line
}

# each place of FROM in the code of this line, one at a time
function swap(rule, from, to,   at, next_at) {
	for (at = 0; (next_at = index(substr(code, at + 1), from)) > 0; at += next_at)
		emit(rule, substr($0, 1, at + next_at - 1) to substr($0, at + next_at + length(from)))
}

# dropped LINE: what there was is seen behind it
function dropped(line) {
	sub(/[^\t]/, "; // &", line)
	return line
}

FNR == 1 { comment = 0; last = "" }
/^[ \t]*\/\*/ { comment = 1 }
comment { if (/\*\//) comment = 0; next }
/^#/ || /^[ \t]*\/\// || !/^\t/ { next }

{
	code = $0
	sub(/["\/'].*/, "", code) # what is a text, or a comment, stays
	swap("comparison", " < ", " <= ")
	swap("comparison", " <= ", " < ")
	swap("comparison", " > ", " >= ")
	swap("comparison", " >= ", " > ")
	swap("comparison", " == ", " != ")
	swap("comparison", " != ", " == ")
	swap("logic", " && ", " || ")
	swap("logic", " || ", " && ")
	swap("off by one", " + 1", "")
	swap("off by one", " - 1", "")
	swap("constant", "IBV_ACCESS_LOCAL_WRITE", "(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)")
	swap("constant", "0600", "0666")
	swap("constant", "true", "false")
	swap("constant", "false", "true")
	# But not the room that is handed over with its buffer, (b, sizeof(b)): one byte less
	# is seen by those only who fill it to the last, and a text is cut anyhow. Nor what is
	# mapped, in whole pages.
	if (match(code, /sizeof\([^()]*\)/)) {
		before = substr(code, 1, RSTART - 1)
		if (before ~ /^[ \t]*$/)
			before = last before
		buffer = substr(code, RSTART + 7, RLENGTH - 8)
		if (before !~ /(n?printf|_text|inet_ntop|getnameinfo|mmap|munmap)\([^;]*,[ \t]*$/ &&
		    substr(before, length(before) - length(buffer) - 1) != buffer ", ")
			emit("constant", substr($0, 1, RSTART - 1) "(" substr($0, RSTART, RLENGTH) " - 1)" substr($0, RSTART + RLENGTH))
	}
	last = code
	# Where an errno is compared, its sign decides. Where it is passed up, callers ask
	# "0 or not", and which of the two it is they do not see: there it is forgotten.
	if (match(code, /-E[A-Z0-9]+/)) {
		if (substr(code, 1, RSTART - 1) ~ /([!=]= |case )$/)
			emit("sign of errno", substr($0, 1, RSTART - 1) substr($0, RSTART + 1))
		else
			emit("lost errno", substr($0, 1, RSTART - 1) "0" substr($0, RSTART + RLENGTH))
	}
}

# a whole condition on a line
/^\t+(} else )?if \(.*\)( {)?$/ {
	line = $0
	sub(/if \(/, "if (0 \\&\\& (", line)
	sub(/\)( {)?$/, ")&", line)
	emit("dropped check", line)
}

# a whole statement on a line
/^\t+[a-z_0-9]+\(.*\);$/ {
	rule = /^\t+(free|close|munmap|[a-z_0-9]*_(free|close|put|drop|cancel|remove|destroy|return)|ibv_d[a-z_]+|destroy[a-z_]*|[A-Z]+_REMOVE)\(/ ? "missing unwind" : "dropped call"
	emit(rule, dropped($0))
}
/^\t+[a-z_0-9>.*\[\]-]+ ([|+-]|)= .*;$/ {
	emit("dropped assignment", dropped($0))
}
