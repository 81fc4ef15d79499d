#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The floors of the house, proven by what the objects define and use (nm), not
# by what the sources seem to say.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# The rooms from the ground up, and who among the lessons may use them: 0 all, N
# those from lesson N on, - none (only server and client).
FLOORS=$(awk -F'[ |`]+' '/^\| `[a-z_]+` \| ([0-9]+|-) \|/ { print $2, $3 }' CLAUDE.md)

oneTimeSetUp() {
	made=0
	make_says=$(build all 2>&1) || made=$?
	real_objects >"$B/floors.objects"
	# What the system's libraries define: a tool that wraps ibv_create_qp does
	# not become the owner of that name.
	find "$B" -maxdepth 1 -type f -perm -u+x -exec ldd {} + 2>/dev/null |
		awk '$3 ~ /^\// { print $3 }' | sort -u |
		xargs -r nm -D -P --defined-only 2>/dev/null |
		awk 'NF > 1 { sub(/@.*/, "", $1); print $1 }' |
		sort -u >"$B/floors.libs"
}

oneTimeTearDown() {
	rm -f "$B/floors.objects" "$B/floors.libs"
}

# The objects whose source is still there, by their path below $B; of what shared
# libraries are made of (pic/), those that no program has, too.
real_objects() {
	local object plain
	while read -r object; do
		plain=${object#pic/}
		[[ -e ${plain%.o}.c ]] || continue
		[[ $object == "$plain" || ! -e $B/$plain ]] && echo "$object"
	done < <(cd "$B" && find common server client lessons labs pic \
		-name '*.o' 2>/dev/null | sort)
}

# check_floors DIR <OBJECTS: one line for each violation among the objects, whose
# first folder (for lessons the second, too) says where they belong.
check_floors() {
	(cd "$1" && tr '\n' '\0' | xargs -0 nm -A -P) |
		awk -v floors="$FLOORS" -v libs="$B/floors.libs" "$JUDGE"
}

# shellcheck disable=SC2016 # awk, not bash
JUDGE='
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
}'

# planted PATH CODE…: what check_floors says of the real objects with more of
# them, compiled from CODE, at PATH (or instead of the one there).
planted() {
	mkdir -p "$T/o"
	(cd "$B" && xargs cp --parents -t "$T/o") <"$B/floors.objects"
	while (($#)); do
		mkdir -p "$T/o/$(dirname "$1")"
		echo "$2" | ${CC:-cc} -x c -c -o "$T/o/$1" - || fail "cannot compile $2"
		shift 2
	done
	(cd "$T/o" && find . -name '*.o' | sed 's/^..//') >"$T/objects"
	check_floors "$T/o" <"$T/objects"
}

test_the_tree_is_built() {
	assertEquals "$make_says" 0 "$made"
	assertEquals 'each source of common/ has an object' \
		"$(find common -name '*.c' | sed 's/c$/o/' | sort)" \
		"$(grep '^common/' "$B/floors.objects")"
	assertTrue 'no libraries found' "grep -qx ibv_create_qp $B/floors.libs"
	local folder
	for folder in lessons/[0-9]*/ labs/*/; do
		[[ -n $(find "$folder" -maxdepth 1 -name '*.c') ]] || continue
		[[ $folder != labs/@(tests|vm|exercises)/ ]] || continue # no parts of the build
		assertTrue "no object of $folder" \
			"grep -qE '^(pic/)?$folder' $B/floors.objects"
	done
}

test_rooms_are_those_of_the_table() {
	assertEquals "$(find common -mindepth 1 -maxdepth 1 '(' -type d -o -name '*.c' ')' \
		-printf '%f\n' | sed 's/\.c$//' | sort)" \
		"$(cut -d' ' -f1 <<<"$FLOORS" | sort)"
}

test_floors_of_this_tree() {
	assertEquals '' "$(check_floors "$B" <"$B/floors.objects")"
}

test_a_room_looks_up() {
	assert_in "$(planted common/base/report.o \
		'void connect_qp(void); void report_step(void) { connect_qp(); }')" \
		'^common/base/report.o uses connect_qp of common/tcp_sync.o, which stands'
}

test_a_stage_looks_up() {
	assert_in "$(planted common/device.o \
		'void post_send(void); void rdma_list_devices(void) { post_send(); }')" \
		'^common/device.o uses post_send of common/transfer.o, which stands'
}

# Two rooms that need each other: one of the two looks up.
test_a_circle_of_rooms() {
	assert_in "$(planted common/ipc/more.o \
		'void theirs(void); void ours(void) { theirs(); }' \
		common/engine/more.o 'void ours(void); void theirs(void) { ours(); }')" \
		'^common/ipc/more.o uses theirs of common/engine/more.o, which stands'
}

test_a_circle_of_files() {
	local out
	out=$(planted common/tag/one.o 'void two(void); void one(void) { two(); }' \
		common/tag/two.o 'void three(void); void two(void) { three(); }' \
		common/tag/three.o 'void one(void); void three(void) { one(); }')
	assert_in "$out" '^a circle: .*common/tag/one.o needs two of common/tag/two.o'
	assert_in "$out" 'common/tag/three.o needs one of common/tag/one.o'
	assertEquals 'said once' 1 "$(wc -l <<<"$out")"
	rm -r "$T/o"
	assert_in "$(planted \
		pic/labs/recorder/one.o 'void two(void); void one(void) { two(); }' \
		pic/labs/recorder/two.o 'void one(void); void two(void) { one(); }')" \
		'^a circle: labs/recorder/one.o needs two of labs/recorder/two.o, '
}

test_a_room_stands_on_lower_ones() {
	assertEquals '' "$(planted common/pair/more.o \
		'void connect_qp(void); void more(void) { connect_qp(); }')"
}

test_a_room_without_a_floor() {
	assert_in "$(planted common/attic/box.o 'int box;')" \
		'^common/attic/box.o has no floor. Give its room a row'
}

test_lesson_uses_a_later_stage() {
	assert_in "$(planted lessons/02-pd-mr-cq-qp/more.o \
		'void post_send(void); void more(void) { post_send(); }')" \
		'^lessons/02-.* uses post_send .* which lesson 5 teaches'
	assert_in "$(planted lessons/05-send-recv/more.o \
		'void measure_run(void); void more(void) { measure_run(); }')" \
		'^lessons/05-.* uses measure_run .* for programs only'
}

test_lesson_uses_its_own_stage() {
	assertEquals '' "$(planted lessons/05-send-recv/more.o \
		'void post_send(void); void more(void) { post_send(); }')"
}

test_common_uses_the_server() {
	assert_in "$(planted server/more.o 'void serve(void) {}' common/base/more.o \
		'void serve(void); void more(void) { serve(); }')" \
		'^common/base/more.o uses serve, which server/more.o defines'
}

# Lessons, server and client stand on common and not on each other, or on labs.
test_neighbours_use_each_other() {
	local user
	planted labs/tool/tool.o 'void tool(void) {}' >/dev/null
	for user in lessons/01-device-open/more.o server/more.o client/more.o; do
		rm -f "$T/o/"*/more.o
		assert_in "$(planted "$user" \
			'void tool(void); void more(void) { tool(); }')" \
			"^$user uses tool, which labs/tool/tool.o defines"
	done
	rm -f "$T/o/"*/more.o
	assert_in "$(planted lessons/01-device-open/more.o 'void more(void) {}' \
		lessons/02-pd-mr-cq-qp/use.o \
		'void more(void); void use(void) { more(); }')" \
		'^lessons/02-.* uses more, which lessons/01-'
}

# A recorder that wraps a library's function, and helpers of the same name in
# two programs, are no violation.
test_what_is_no_violation() {
	assertEquals '' "$(planted labs/qptrace/wrap.o 'void ibv_create_qp(void) {}' \
		server/more.o 'void helper(void) {}' lessons/05-send-recv/more.o \
		'void ibv_create_qp(void); void helper(void) {}
		 void more(void) { ibv_create_qp(); }')"
	assertEquals '' "$(planted lessons/05-send-recv/use.o \
		'void helper(void); void use(void) { helper(); }')"
}

. shunit2
