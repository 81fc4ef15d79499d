# SPDX-License-Identifier: MIT
#
# floors.awk - who stands on whom, of "nm -A -P" of all objects: a line for each
# violation. The first folder of an object (for lessons the second, too) says where it
# belongs. floors: "ROOM LESSON ROOM LESSON ..." from the ground up, LESSON being who of the
# lessons may use the room: 0 all, N those from lesson N on, - none. libs: a file of the
# names that the system's libraries define.
BEGIN {
	n = split(floors, word)
	for (i = 1; i < n; i += 2) {
		floor[word[i]] = (i + 1) / 2
		stage[word[i]] = word[i + 1]
	}
	while ((getline name < libs) > 0) system_has[name] = 1
}

# Who may share symbols freely: all of common, of server, of one lesson, ...
function group_of(object, part) {
	split(object, part, "/")
	return part[1] == "lessons" ? part[1] "/" part[2] : part[1]
}

# Where an object of common/ is: in a folder, or a stage itself.
function room_of(object) {
	sub(/^common\//, "", object)
	sub(/(\/.*|\.o)$/, "", object)
	return object
}

function folder_of(object) {
	sub(/\/[^\/]*$/, "", object)
	return object
}

function violation(text, next_step) { print text ". " next_step "." }

{
	object = $1
	gsub(/^pic\/|:$/, "", object)
	if (object != last) objects[++count] = last = object
	if ($3 == "U") {
		user[++uses] = object
		used[uses] = $2
	} else if ($3 ~ /^[A-Zu]$/) {
		group = group_of(object)
		if (group == "labs" && $2 in system_has) next # it wraps that
		in_folder[folder_of(object), $2] = object
		if (group == "common" || object == "lessons/lesson.o") {
			owner[$2] = object
		} else {
			owns[group, $2] = 1
			if ($2 != "main")
				others[$2] = others[$2] " " object
		}
	}
}

function common_uses(object, symbol, name, other) {
	if (!(symbol in owner)) {
		if (symbol in others)
			violation(object " uses " symbol ", which" \
				others[symbol] " defines",
				"Move the function into common/")
		return
	}
	name = room_of(object)
	other = room_of(owner[symbol])
	if (name in floor && other in floor && floor[other] > floor[name])
		violation(object " uses " symbol " of " owner[symbol] \
			", which stands on it or above",
			"Move one of them: see the rooms in CLAUDE.md")
}

function lesson_uses(object, symbol, number, name) {
	if (!(symbol in owner)) return
	number = object
	sub(/^lessons\//, "", number)
	number += 0
	name = room_of(owner[symbol])
	if (name in stage && (stage[name] == "-" || stage[name] > number))
		violation(object " uses " symbol " of " owner[symbol] ", " \
			(stage[name] == "-" ? "which is for programs only" : \
			"which lesson " stage[name] " teaches"),
			"A lesson uses stages 1 to its own number")
}

# A definition that is neither its own, nor of common, nor of a library.
function others_use(object, symbol, group, list, n, i, foreign) {
	if (symbol in owner || (group, symbol) in owns) return
	if (symbol in system_has || !(symbol in others)) return
	violation(object " uses " symbol ", which" others[symbol] " defines",
		"Move what both need into common/")
}

# Files of one folder that need each other, however far around.
function learn_neighbour(object, symbol, other) {
	if (!((folder_of(object), symbol) in in_folder)) return
	other = in_folder[folder_of(object), symbol]
	if (other != object && !((object, other) in needs)) {
		needs[object, other] = symbol
		neighbours[object] = neighbours[object] " " other
	}
}

function walk(object, trail, list, n, i, at, steps, part) {
	if (object in done) return
	at = index(trail " ", " " object " ")
	if (at) {
		trail = substr(trail, at + 1) " " object
		n = split(trail, part, " ")
		for (i = 1; i < n; i++)
			steps = steps (i > 1 ? ", " : "") part[i] " needs " \
				needs[part[i], part[i + 1]] " of " part[i + 1]
		violation("a circle: " steps, "Move what both need to a third")
		return
	}
	n = split(neighbours[object], list, " ")
	for (i = 1; i <= n; i++) walk(list[i], trail " " object)
	done[object] = 1
}

END {
	for (i = 1; i <= count; i++)
		if (group_of(objects[i]) == "common" &&
		    !(room_of(objects[i]) in floor))
			violation(objects[i] " has no floor",
				"Give its room a row in CLAUDE.md")
	for (i = 1; i <= uses; i++) {
		learn_neighbour(user[i], used[i])
		group = group_of(user[i])
		if (group == "common") {
			common_uses(user[i], used[i])
			continue
		}
		if (group ~ /^lessons/) lesson_uses(user[i], used[i])
		if (group != "labs") others_use(user[i], used[i], group)
	}
	for (i = 1; i <= count; i++) walk(objects[i], "")
}
