# SPDX-License-Identifier: MIT
#
# region.awk - print the lines of region NAME of FILE, or fail with one line that says
# why there are none. For labs/docs.
function is(word) {
	return ($1 == "//" || $1 == "#" || $1 == "/*") && $2 == word &&
		(NF == 3 || (NF == 4 && $4 == "*/"))
}
is("region") {
	names = names " " $3
	if ($3 == name) {
		if (begun) fail = file ":" NR ": region " name \
			" begins a second time. Rename one of them."
		begun = NR; inside = 1
	}
	next
}
is("endregion") { if ($3 == name) inside = 0; next }
inside { text = text $0 "\n" }
END {
	if (!begun)
		fail = file " has no region " name \
			". Take one of:" (names ? names : " (none)") "."
	else if (inside && fail == "")
		fail = file ":" begun ": region " name \
			" has no end. Add \"// endregion " name "\"."
	else if (text == "" && fail == "")
		fail = file ":" begun ": region " name \
			" is empty. Put the code inside."
	if (fail != "") { print fail; exit 1 }
	printf "%s", text
}
