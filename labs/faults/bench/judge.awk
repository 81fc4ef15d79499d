# SPDX-License-Identifier: MIT
#
# judge.awk - how the explainer did: awk -f judge.awk CASES SAID
#
# CASES: as cases.awk gives them. SAID: one line for each case that ran,
#	NAME STRUCK CLIENT-RC SERVER-RC		(STRUCK: 1 if the sabotage came about)
# followed by one for each cause that the report names, in its order:
#	NAME > KIND ID MATCHES		(kinds: see labs/report/parts.h; of a report: 1 if
#					what was said matches)
# and by NAME live|alone VERDICT, of live.jq, about all its recordings and about each
# -> VERDICT NAME CLASS PROGRAM HALF EXPECTED FIRST-ID ALL-IDS CLIENT-RC SERVER-RC LIVE
#	(tabs between)
#
# The verdicts, in this order:
#	not-reached	the program never made the call: counts for nothing
#	unchanged	both ended as without the sabotage, and nobody was accused
#			(or the true cause was named)
#	accused		the same, but somebody was accused; a hint is no accusation
#	right-first	the first cause that was named is the expected one
#	right		it was named, but later, or only as a warning
#	silent		no cause was named
#	vague		what was named first names no single cause, or is a hint
#	wrong		a cause was named that is not the cause

# What does not commit itself: no id, the row of a status, and what says itself that
# it is one of several, or no more than that there is nothing.
function is_vague(id) {
	return id == "" || id ~ /^[A-Z_]+$/ || id ~ vague
}

function is_right(name, id, n, all, i) {
	n = split(cause[name], all, ",")
	for (i = 1; i <= n; i++)
		if (all[i] == id)
			return 1
	return 0
}

function verdict(name, i, id, n, right, hinted, accused, committed, first, same) {
	same = client_rc[name] == 0 && server_rc[name] == 0
	n = said[name]
	for (i = 1; i <= n; i++) {
		id = ids[name, i]
		if (first == "" && kind[name, i] != "warning") {
			first = id == "" ? "(none)" : id
			hinted = kind[name, i] == "hint"
		}
		if (kind[name, i] ~ /^(failure|stall)$/) {
			accused = 1
			if (!is_right(name, id) && !is_vague(id))
				committed = 1
		}
		if (is_right(name, id))
			right = 1
	}
	first_id = first
	if (!struck[name])
		return "not-reached"
	if (same || cause[name] == "-")
		return !accused || right && !committed ? "unchanged" : "accused"
	if (is_right(name, first))
		return "right-first"
	if (right)
		return "right"
	if (first == "")
		return "silent"
	return hinted || is_vague(first) || first == "(none)" ? "vague" : "wrong"
}

# Where both ended well, a hint of the time between needs not be true.
function liveness(name) {
	if (live[name] == "hint" && client_rc[name] == 0 && server_rc[name] == 0)
		return "same"
	return live[name] == "same" || live[name] == "" ? "same" : lonely[name] ? "alone" : "differs"
}

BEGIN {
	FS = OFS = "\t"
	vague = "^(driver-refused|post-arguments|cq-arguments|nothing-came|" \
		"no-completion|sent-or-not-taken|still-retrying|retry-forever|" \
		"qp-in-error|peer-in-error|lost-on-the-way|" \
		"qp-request|qp-access|qp-fatal)$"
}
FNR == NR {
	cause[$1] = $6
	class[$1] = $2
	program[$1] = $3
	half[$1] = $7
	next
}
$2 == ">" {
	if ($5 && !is_vague($4))
		$4 = cause[$1]
	kind[$1, ++said[$1]] = $3
	ids[$1, said[$1]] = $4
	all_ids[$1] = all_ids[$1] (all_ids[$1] == "" ? "" : " ") ($3 ~ /failure|stall/ ? "" : $3 ":") ($4 == "" ? "(none)" : $4)
	next
}
$2 == "live" {
	live[$1] = $3
	lonely[$1] = 1
	next
}
$2 == "alone" {
	lonely[$1] = lonely[$1] && $3 == "same"
	next
}
$2 == "said" { next }
{
	order[++count] = $1
	struck[$1] = $2
	client_rc[$1] = $3
	server_rc[$1] = $4
}
END {
	for (c = 1; c <= count; c++) {
		name = order[c]
		v = verdict(name)
		print v, name, class[name], program[name], half[name], cause[name],
			first_id, all_ids[name], client_rc[name], server_rc[name], liveness(name)
	}
}
