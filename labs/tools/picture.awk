# SPDX-License-Identifier: MIT
#
# picture.awk - draw a picture, as SVG, from its description.
#
#	LC_ALL=C awk -v lang=en|zh -f picture.awk NAME.pic >NAME.svg
#
# What is wrong is said on stderr, as FILE:LINE: CAUSE, and the end is 1. One
# column is as wide as a Latin character and half a Chinese one, one row as high
# as a line of text; both may be fractions. A description has a command a line:
#
#	title TEXT                  for who cannot see it; must come first
#	size COLUMNS [ROWS]         all that is drawn must lie within; a ladder ends
#	                            where it ends
#	box NAME X Y W H STYLE [TEXT]
#	text X Y STYLE TEXT         X, Y: the middle of its first line
#	line STYLE FROM [VIA...] TO [TEXT]
#	arrow STYLE FROM [VIA...] TO [TEXT]
#
# TEXT is "English | 中文", or one for both; \n begins a line, `code` is upright.
# FROM and TO are a point X,Y or a side of a box, NAME.l .r .t .b, with an offset
# along it: NAME.b+3. STYLE is a colour (plain, data, control, memory, error, dim)
# and options: box: .left .top (of the text), .dash; text: .c .r (centred, ends at
# X), .b (bold); line, arrow: .dash .both .lost, and the text's place: .under, .left
# (of an upright one), .first or .last (segment).
#
# A ladder is drawn from the top downwards, a cursor tells how far it has come:
#
#	lane NAME X W STYLE TEXT    a box and the line of its time
#	message STYLE LANE LANE TEXT
#	step LANE W STYLE TEXT      what happens there: a box on the line
#	note LANE.l|r STYLE TEXT    beside the line; the cursor stays
#	span LANE.l|r ROWS STYLE TEXT     so long it takes
#	skip ROWS
#
# Of the RC state machine, "table COMMAND" reads the transitions (qp_explain
# --markdown), and in a TEXT {FROM TO} becomes what that one requires. Each must
# be in some TEXT; {FROM TO, FROM TO: words} are several that require nothing.

function fail(cause) {
	printf "%s:%d: %s\n", FILENAME, FNR, cause >"/dev/stderr"
	failed = 1
}
# columns TEXT: how wide it is. Bytes, since not every awk knows UTF-8.
function columns(s, wide) {
	gsub(/`/, "", s)
	if (lang == "zh") wide = gsub(/\342\200[\230-\235]/, "ab", s)
	gsub(/[\343-\357][\200-\277][\200-\277]/, "ab", s)
	gsub(/[\302-\337][\200-\277]/, "a", s)
	gsub(/\342[\200-\277][\200-\277]/, "a", s)
	return length(s)
}
function escaped(s) {
	gsub(/&/, "\\&amp;", s)
	gsub(/</, "\\&lt;", s)
	gsub(/>/, "\\&gt;", s)
	return s
}
function marked(s, part, n, i, out) {
	n = split(escaped(s), part, "`")
	if (n % 2 == 0) fail("a ` is not closed")
	for (i = 1; i <= n; i++)
		out = out (i % 2 ? part[i] : "<tspan class=\"m\">" part[i] "</tspan>")
	return out
}
# rest N: the line from its Nth word on, in the language of this picture
function rest(n, s, at) {
	s = $0
	while (--n) sub(/^[ \t]*[^ \t]+/, "", s)
	sub(/^[ \t]+/, "", s)
	if (at = index(s, " | "))
		s = lang == "zh" ? substr(s, at + 3) : substr(s, 1, at - 1)
	return from_table(s)
}
function has(style, option) { return index(style ".", "." option ".") }
function colour(style) { sub(/\..*/, "", style); return style }
function known(style) {
	if (colour(style) !~ /^(plain|data|control|memory|error|dim)$/)
		fail("there is no colour " colour(style))
}
function number(s) {
	if (s !~ /^-?[0-9]+(\.[0-9]+)?$/) fail("\"" s "\" is not a number")
	return s + 0
}
function draw(floor, s) { floors[floor] = floors[floor] s "\n" }

# ---- text ------------------------------------------------------------------

# put X Y ALIGN CLASS TEXT: lines, the first one's middle at X, Y
function put(x, y, align, class, s, n, i, line, w, left) {
	n = split(s, line, /\\n/)
	for (i = 1; i <= n; i++) {
		w = columns(line[i])
		left = align == "start" ? x : align == "end" ? x - w : x - w / 2
		claim(left, y + i - 1, w, line[i])
		draw(4, sprintf("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\"%s>%s</text>",
			class, x * CW, (y + i - 1) * RH + 4.5, \
			align == "start" ? "" : " text-anchor=\"" align "\"", \
			marked(line[i])))
	}
}
# claim: no two texts may meet, and none may leave the picture
function claim(x, y, w, s, i) {
	tx[++texts] = x; ty[texts] = y; tw[texts] = w; what[texts] = s
	if (x < 0.5 || x + w > width - 0.5 || y < 0.5 || y > height - 0.5)
		fail("\"" s "\" (" w " columns) leaves the picture")
	for (i = 1; i < texts; i++)
		if (x < tx[i] + tw[i] + 1 && tx[i] < x + w + 1 && y < ty[i] + 0.8 && ty[i] < y + 0.8)
			fail("\"" s "\" meets \"" what[i] "\"")
}
# A text lies in a box or does not touch it: asked when all boxes are known.
function touches(i, b) {
	return tx[i] < bx[b] + bw[b] && bx[b] < tx[i] + tw[i] && \
		ty[i] - 0.4 < by[b] + bh[b] && by[b] < ty[i] + 0.4 && \
		!(tx[i] >= bx[b] && tx[i] + tw[i] <= bx[b] + bw[b] && \
		ty[i] - 0.4 >= by[b] && ty[i] + 0.4 <= by[b] + bh[b])
}
function widest(s, n, i, line, w) {
	n = split(s, line, /\\n/)
	for (i = 1; i <= n; i++) if (columns(line[i]) > w) w = columns(line[i])
	lines = n
	return w
}

# ---- boxes and lines -------------------------------------------------------

function box(name, x, y, w, h, style, s, top, left) {
	known(style)
	boxes[++count] = name
	bx[name] = x; by[name] = y; bw[name] = w; bh[name] = h
	if (x < 0 || y < 0 || x + w > width || y + h > height)
		fail("box " name " leaves the picture")
	draw(has(style, "top") ? 1 : 3, sprintf("<rect class=\"%s%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"4\"/>", \
		"b " colour(style), has(style, "dash") ? " dash" : "", x * CW, y * RH, w * CW, h * RH))
	if (s == "") return
	if (widest(s) > w - 1)
		fail("\"" s "\" needs " widest(s) + 1 " columns, box " name " has " w)
	if (lines > h) fail("\"" s "\" needs " lines " rows, box " name " has " h)
	left = has(style, "left")
	top = has(style, "top") ? y + 0.8 : y + h / 2 - (lines - 1) / 2
	put(left ? x + 1 : x + w / 2, top, left ? "start" : "middle", \
		has(style, "b") ? "b" : "t", s)
}
# point WORD: its place, into px and py
function point(s, p, name, side, off) {
	if (s ~ /^[0-9.]+,[0-9.]+$/) {
		split(s, p, ",")
		px = p[1] + 0; py = p[2] + 0
		return 1
	}
	if (!match(s, /\.[lrtb]([+-][0-9.]+)?$/)) return 0
	name = substr(s, 1, RSTART - 1)
	side = substr(s, RSTART + 1, 1); off = substr(s, RSTART + 2) + 0
	if (!(name in bx)) return 0
	px = bx[name] + (side == "r" ? bw[name] : side == "l" ? 0 : bw[name] / 2 + off)
	py = by[name] + (side == "b" ? bh[name] : side == "t" ? 0 : bh[name] / 2 + off)
	return 1
}
function head(class, x1, y1, x2, y2, a) { # in pixels; at x2, y2
	a = atan2(y2 - y1, x2 - x1)
	draw(2, sprintf("<path class=\"h %s\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>", \
		class, x2, y2, x2 - 9 * cos(a) + 4 * sin(a), y2 - 9 * sin(a) - 4 * cos(a), \
		x2 - 9 * cos(a) - 4 * sin(a), y2 - 9 * sin(a) + 4 * cos(a)))
}
function cross(x, y) {
	draw(2, sprintf("<path class=\"x error\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\"/>", \
		x * CW - 5, y * RH - 5))
}
# stroke N STYLE TEXT: through X[1..N], Y[1..N]
function stroke(n, style, s, arrow, i, d, c, best, span) {
	known(style)
	c = colour(style)
	for (i = 1; i <= n; i++) {
		if (X[i] < 0 || X[i] > width || Y[i] < 0 || Y[i] > height)
			fail("the line leaves the picture")
		d = d sprintf("%s%.1f %.1f", i > 1 ? "L" : "M", X[i] * CW, Y[i] * RH)
	}
	draw(2, "<path class=\"l " c (has(style, "dash") ? " dash" : "") "\" d=\"" d "\"/>")
	if (has(style, "lost")) cross(X[n], Y[n])
	else if (arrow) head(c, X[n-1] * CW, Y[n-1] * RH, X[n] * CW, Y[n] * RH)
	if (has(style, "both")) head(c, X[2] * CW, Y[2] * RH, X[1] * CW, Y[1] * RH)
	if (s == "") return
	best = has(style, "last") ? n - 1 : 1
	if (!has(style, "first") && !has(style, "last"))
		for (i = 2; i < n; i++)
			if (reach(i) > reach(best)) best = i
	label(best, style, s)
}
function abs(v) { return v < 0 ? -v : v }
function reach(i) { return abs(X[i+1] - X[i]) * CW + abs(Y[i+1] - Y[i]) * RH }
function label(i, style, s, x, y, dx, dy, w) {
	x = (X[i] + X[i+1]) / 2; y = (Y[i] + Y[i+1]) / 2
	dx = abs(X[i+1] - X[i]); dy = abs(Y[i+1] - Y[i])
	w = widest(s)
	if (dx * CW < dy * RH) { # upright: beside it
		put(x + (has(style, "left") ? -1 : 1), y - (lines - 1) / 2, \
			has(style, "left") ? "end" : "start", "t o", s)
		return
	}
	if (w > dx - 2)
		fail("\"" s "\" needs " w + 2 " columns, its line has " dx)
	dy = dy * w / dx / 2 # a slanted line comes so near to its ends
	put(x, has(style, "under") ? y + 0.65 + dy : y - lines + 0.35 - dy, \
		"middle", "t o", s)
}

# ---- ladders ---------------------------------------------------------------

function lane_of(s) {
	if (!(s in lane)) fail("there is no lane " s)
	return lane[s]
}
function beside(s, x) { # LANE.l|r: its place, and the side in SIDE
	SIDE = substr(s, length(s))
	x = lane_of(substr(s, 1, length(s) - 2))
	return SIDE == "l" ? x - 1.5 : x + 1.5
}
function message(style, from, to, s, x, part) {
	X[1] = lane_of(from); X[2] = lane_of(to)
	Y[1] = cursor; Y[2] = cursor + 0.6
	if (has(style, "lost")) {
		X[2] = X[1] + (X[2] - X[1]) * 0.7; Y[2] = cursor + 0.42
	}
	stroke(2, style, s, 1)
	cursor += 1.6
}
function time_span(place, rows, style, s, x) {
	x = beside(place)
	X[1] = X[2] = x; Y[1] = cursor; Y[2] = cursor + rows
	for (i = 0; i < 2; i++)
		draw(2, sprintf("<path class=\"l %s\" d=\"M%.1f %.1fh12\"/>", colour(style), \
			x * CW - 6, (cursor + i * rows) * RH))
	stroke(2, style ".both" (SIDE == "l" ? ".left" : ""), s, 1)
	cursor += rows
}

# ---- the state machine -----------------------------------------------------

function read_table(command, line, cell, pair) {
	while ((command | getline line) > 0) {
		if (split(line, cell, " *[|] *") < 5 || cell[2] !~ /^[0-9]+$/) continue
		split(cell[3], pair, " → ")
		needs[pair[1] " " pair[2]] = cell[4]
		row[++rows] = pair[1] " " pair[2]
	}
	close(command)
	if (!rows) fail("\"" command "\" printed no transitions. Run make first")
}
function from_table(s, at, to, list, n, i, words) {
	if (!rows || !(at = index(s, "{"))) return s
	to = index(s, "}")
	words = substr(s, at + 1, to - at - 1)
	n = split(words, list, /, |: .*/)
	for (i = 1; i <= n && list[i] != ""; i++) {
		if (!(list[i] in needs)) fail("the table has no " list[i])
		drawn[list[i]] = 1
		if (!index(words, ": ")) {
			words = "`" needs[list[i]] "`"
			gsub(/, /, "`\\n`", words)
		} else if (needs[list[i]] != "-")
			fail(list[i] " requires " needs[list[i]])
	}
	sub(/^[^:]*: /, "", words)
	return substr(s, 1, at - 1) words substr(s, to + 1)
}

# ---- main ------------------------------------------------------------------

BEGIN { CW = 8; RH = 20; cursor = 4 }
/^[ \t]*(#|$)/ { next }
$1 == "title" { title = rest(2); next }
$1 == "size" {
	width = number($2)
	height = NF > 2 ? number($3) : 999
	next
}
$1 == "table" { read_table(rest(2)); next }
title == "" || !width { fail("a picture begins with its title and its size"); exit }
$1 == "box" {
	box($2, number($3), number($4), number($5), number($6), $7, rest(8))
	next
}
$1 == "text" {
	known($4)
	put(number($2), number($3), has($4, "c") ? "middle" : has($4, "r") ? "end" : "start", \
		(has($4, "b") ? "b " : "t ") "c" colour($4), rest(5))
	next
}
$1 == "line" || $1 == "arrow" {
	for (n = 0; n + 3 <= NF && point($(n + 3)); n++) {
		X[n + 1] = px; Y[n + 1] = py
	}
	if (n < 2) fail("from where to where? \"" $(n + 3) "\" is no place")
	else stroke(n, $2, rest(n + 3), $1 == "arrow")
	next
}
$1 == "lane" {
	lane[$2] = number($3)
	order[++lanes] = $2
	box($2, $3 - $4 / 2, 1, number($4), 1.8, $5, rest(6))
	next
}
$1 == "message" { message($2, $3, $4, rest(5)); next }
$1 == "step" {
	widest(rest(5))
	box("step " FNR, lane_of($2) - $3 / 2, cursor - 0.3, number($3), lines + 0.4, $4, rest(5))
	cursor += lines + 1.2
	next
}
$1 == "note" {
	known($3)
	n = beside($2)
	put(n, cursor, SIDE == "l" ? "end" : "start", "t c" colour($3), rest(4))
	next
}
$1 == "span" { time_span($2, number($3), $4, rest(5)); next }
$1 == "skip" { cursor += number($2); next }
{ fail("there is no command " $1) }

function style_of(name, line, fill, ink) {
	return sprintf(".%s{stroke:%s;fill:%s}.h.%s{fill:%s}.c%s{fill:%s}", \
		name, line, fill, name, line, name, ink)
}
function colours(back, ink) {
	return sprintf(".bg{fill:%s}text{fill:%s}.o{stroke:%s}", back, ink, back)
}
END {
	for (i = 1; i <= texts; i++)
		for (j = 1; j <= count; j++)
			if (touches(i, boxes[j])) fail("\"" what[i] "\" and box " boxes[j] " touch")
	for (i = 1; i <= rows; i++)
		if (!(row[i] in drawn)) fail("it does not show " row[i])
	if (height == 999)
		for (height = cursor + 0.3; texts; texts--)
			if (ty[texts] + 1 > height) height = ty[texts] + 1
	for (i = 1; i <= lanes; i++)
		draw(0, sprintf("<path class=\"l plain dash\" d=\"M%.1f %.1fV%.1f\"/>", \
			lane[order[i]] * CW, 2.8 * RH, (height - 0.5) * RH))
	if (failed) exit 1
	print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " \
		width * CW " " height * RH "\" width=\"" width * CW "\" height=\"" \
		height * RH "\" role=\"img\" lang=\"" lang "\">"
	print "<title>" escaped(title) "</title>"
	print "<style>text{font:13px system-ui,sans-serif}.m{font-family:ui-monospace,monospace;font-size:12px}.b{font-weight:600}.l,.x{fill:none;stroke-width:1.5}.l{fill:none!important}.x{stroke-width:2.5}.b.dash,.l.dash{stroke-dasharray:5 4}.o{paint-order:stroke;stroke-width:5px;stroke-linejoin:round}rect{stroke-width:1.2}"
	print colours("#ffffff", "#1f2328")
	print style_of("plain", "#818b98", "#f6f8fa", "#1f2328") style_of("data", "#0969da", "#ddf4ff", "#0550ae")
	print style_of("control", "#1a7f37", "#dafbe1", "#116329") style_of("memory", "#9a6700", "#fff8c5", "#7d4e00")
	print style_of("error", "#cf222e", "#ffebe9", "#a40e26") style_of("dim", "#818b98", "#ffffff", "#59636e")
	print "@media(prefers-color-scheme:dark){" colours("#0d1117", "#e6edf3")
	print style_of("plain", "#7d8590", "#1c2128", "#e6edf3") style_of("data", "#4493f8", "#0f2c52", "#79c0ff")
	print style_of("control", "#3fb950", "#10301a", "#7ee787") style_of("memory", "#d29922", "#372a0b", "#e3b341")
	print style_of("error", "#f85149", "#44181a", "#ffa198") style_of("dim", "#7d8590", "#0d1117", "#9198a1")
	print "}</style>"
	print "<rect class=\"bg\" width=\"100%\" height=\"100%\" rx=\"6\"/>"
	for (i = 0; i <= 4; i++) printf "%s", floors[i]
	print "</svg>"
}
