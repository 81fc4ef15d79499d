# SPDX-License-Identifier: MIT
#
# cases.awk - programs x sabotages -> cases, one a line:
#
#	NAME CLASS PROGRAM SIDE RULE EXPECTED HALF READY SERVER CLIENT	(tabs between)
#
# awk -v limit=N -f cases.awk programs sabotages: of each sabotage at most N cases, the
# first by the hash of their names, so that all programs get their share.

function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

# A fixed number of each name, the same everywhere.
function hash(s, i, h) {
	h = 5381
	for (i = 1; i <= length(s); i++)
		h = (h * 33 + index(bytes, substr(s, i, 1))) % 1000003
	return (h * 7919) % 1000003
}

function does(program, what) { return index(" " words[program] " ", " " what " ") > 0 }

function fits(program, side, needs, n, all, i, what, no) {
	n = split(needs, all, ",")
	for (i = 1; i <= n; i++) {
		what = all[i]
		no = sub(/^!/, "", what)
		sub(/^my:/, side == "server" ? "s:" : "c:", what)
		sub(/^peer:/, side == "server" ? "c:" : "s:", what)
		if (does(program, what) == no)
			return 0
	}
	return 1
}

function add(program, side, name) {
	name = program "." side "." rule
	if (!(name in seen) && fits(program, side, needs)) {
		seen[name]
		found[++count] = name
		program_of[name] = program
		side_of[name] = side
	}
}

# The first by their hashes, limit of them
function choose(k, i, best) {
	for (k = 0; k < limit; k++) {
		best = ""
		for (i = 1; i <= count; i++)
			if (found[i] != "" && (best == "" || hash(found[i]) < hash(found[best])))
				best = i
		if (best == "")
			return
		put(found[best])
		found[best] = ""
	}
}

function put(name, p) {
	p = program_of[name]
	print name, class, p, side_of[name], rule, cause,
		int(hash(name) / 7) % 2 ? "unseen" : "seen", ready[p], server[p], client[p]
}

BEGIN {
	FS = "|"
	OFS = "\t"
	for (i = 32; i < 127; i++)
		bytes = bytes sprintf("%c", i)
}
/^#/ || NF < 5 { next }
FILENAME ~ /programs$/ {
	p = trim($1)
	order[++programs] = p
	words[p] = trim($2)
	ready[p] = trim($3)
	server[p] = trim($4)
	client[p] = trim($5)
	next
}
{
	class = trim($1)
	rule = trim($2)
	whose = trim($3)
	needs = trim($4)
	cause = trim($5)
	count = 0
	for (i = 1; i <= programs; i++) {
		if (whose != "both")
			add(order[i], whose)
		else {
			add(order[i], "client")
			add(order[i], "server")
		}
	}
	choose()
}
