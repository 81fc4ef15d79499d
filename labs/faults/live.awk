# SPDX-License-Identifier: MIT
#
# live.awk - what labs/qptrace has said, and what of it stands: awk -f live.awk ERR...
#
# ERR: a program's stderr. -> DIR FILE KIND WORDS ALL (tabs between), for each that has any
#	KIND: hint, or cause; WORDS: why; ALL: with the call, what is next and what was seen
#
# The first word stands; where qptrace has corrected itself, the later one. Whatever comes
# after a hint takes its place.

function flush(path, n) {
	if (kind != "") {
		n = split(file, path, "/")
		print path[n - 1], path[n], kind, words, all
	}
	kind = words = all = ""
}

BEGIN { OFS = "\t" }
FNR == 1 {
	flush()
	file = FILENAME
}
!/^qptrace: / || /^qptrace:   / || /\(pid [0-9]+\): (no completion|stands still|asked)/ { next }
/^qptrace: (what was said first|rather than)/ {
	kind = ""
	next
}
/^qptrace: [^ ]/ {
	open = kind != "cause"
	if (!open)
		next
	kind = /^qptrace: hint: / ? "hint" : "cause"
	words = all = substr($0, 10)
	next
}
open { all = all " " substr($0, 10) }
END { flush() }
