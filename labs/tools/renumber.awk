# SPDX-License-Identifier: MIT
#
# renumber.awk - name QPs by the order in which they turn up (decimal after "QP",
# or as 0x0000NN): a VM that was used no longer gives them the first numbers. For
# labs/docs, before mask.awk.
function decimal(hex) {
	return index(digits, substr(hex, 1, 1)) * 16 - 17 + \
		index(digits, substr(hex, 2))
}
function name(number) {
	if (!(number in names)) names[number] = "QP" ++count
	return names[number]
}
BEGIN { digits = "0123456789abcdef" }
{
	out = ""
	while (match($0, /QP [1-9][0-9]*|0x[0-9a-f]+/)) {
		found = substr($0, RSTART, RLENGTH)
		out = out substr($0, 1, RSTART - 1)
		$0 = substr($0, RSTART + RLENGTH)
		if (found ~ /^Q/)
			found = name(substr(found, 4) + 0)
		else if (found ~ /^0x0000..$/)
			found = name(decimal(substr(found, 7)))
		out = out found
	}
	print out $0
}
