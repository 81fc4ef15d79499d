# SPDX-License-Identifier: MIT
#
# table.awk - count verdicts by a column: awk -v by=N -v title=T -f table.awk VERDICTS
#
# In percent: of the cases that changed something. What was not reached is left out.

function percent(n, of) { return of ? sprintf("%5.1f %%", 100 * n / of) : "      -" }

function row(name, faulty) {
	faulty = n[name, "right-first"] + n[name, "right"] + n[name, "vague"] + \
		n[name, "silent"] + n[name, "wrong"]
	printf "%-20s %6d %6d %6d %6d %6d %8s %10d %8d\n", name,
		n[name, "right-first"], n[name, "right"], n[name, "vague"],
		n[name, "silent"], n[name, "wrong"],
		percent(n[name, "right-first"], faulty), n[name, "unchanged"],
		n[name, "accused"]
}

BEGIN { FS = "\t" }
$1 != "not-reached" {
	if (!($by in seen)) {
		seen[$by]
		order[++rows] = $by
	}
	n[$by, $1]++
	n["all", $1]++
}
END {
	printf "%-20s %6s %6s %6s %6s %6s %8s %10s %8s\n", title, "first", "right",
		"vague", "silent", "wrong", "first", "unchanged", "accused"
	for (i = 1; i <= rows; i++)
		row(order[i])
	if (rows > 1)
		row("all")
}
