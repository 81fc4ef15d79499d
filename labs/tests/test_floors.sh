#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The floors of the house, proven by what the objects define and use (nm), not
# by what the sources seem to say.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/lib.sh"

# The files of common/ from the ground up, and who among the lessons may use
# them: 0 all, N those from lesson N on, - none (only server and client).
FLOORS='
deadline  0
report    0
failure   0
arguments 0
array 0
verbs_names 0
qp_table_data 0
qp_table  0
explain_switch 0
explain_rxe 0
explain   0
explain_net 0
explain_peer 0
explain_path 0
explain_status 0
explain_verbs 0
explain_request 0
explain_post 0
explain_modify_qp 0
explain_accepted 0
explain_wc 0
explain_silence 0
explain_grh 0
lesson    0
pattern   0
task      8
room      8
device    1
resources 2
qp_state  3
tcp_sync  4
transfer  5
tag_match 8
tag_link  8
tag_rendezvous 8
tag_flow  8
tag_silence 8
tag_channel 8
json_line -
laps      -
net_plugin 6
tcpx      6
tcpx_exchange 6
tcpx_flow 6
tcpx_session 6
measure   -
options   -
outcome   -
tcpx_options -
ucx_peer_info 8
ucx_worker 8
ucx_message 8
ucx_endpoint 8
echo      -
crc32c    9
needle_format 9
needle_store 9
needle_writer 9
needle_pattern -
needle_catalog 9
timers    9
event_loop 9
engine_frame 9
engine_scan 9
engine_proto 9
engine_decode 9
engine_auth 9
engine_buffer 9
engine_session 9
remote_read 9
engine_link 9
engine_failure 9
engine_socket 9
engine_ipc 9
engine_read 9
engine_service 9
engine_call 9
'

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

# The objects whose source is still there, by their path below $B.
real_objects() {
	local object
	while read -r object; do
		[[ -e ${object%.o}.c ]] && echo "$object"
	done < <(cd "$B" && find common server client lessons labs \
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

function name_of(object) {
	sub(/.*\//, "", object)
	sub(/\.o$/, "", object)
	return object
}

function violation(text, next_step) { print text ". " next_step "." }

{
	object = $1
	sub(/:$/, "", object)
	if (object != last) objects[++count] = last = object
	if ($3 == "U") {
		user[++uses] = object
		used[uses] = $2
	} else if ($3 ~ /^[A-Zu]$/) {
		group = group_of(object)
		if (group == "common") {
			owner[$2] = object
		} else {
			owns[group, $2] = 1
			if ($2 != "main" &&
			    !(group == "labs" && $2 in system_has))
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
	name = name_of(object)
	other = name_of(owner[symbol])
	if (name in floor && other in floor && floor[other] > floor[name])
		violation(object " (floor " floor[name] ") uses " symbol \
			" of " owner[symbol] " (floor " floor[other] ")",
			"Move one of them: a floor stands on lower ones only")
}

function lesson_uses(object, symbol, number, name) {
	if (!(symbol in owner)) return
	number = object
	sub(/^lessons\//, "", number)
	number += 0
	name = name_of(owner[symbol])
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

END {
	for (i = 1; i <= count; i++)
		if (group_of(objects[i]) == "common" &&
		    !(name_of(objects[i]) in floor))
			violation(objects[i] " has no floor",
				"Give it one in labs/tests/test_floors.sh")
	for (i = 1; i <= uses; i++) {
		group = group_of(user[i])
		if (group == "common") {
			common_uses(user[i], used[i])
			continue
		}
		if (group ~ /^lessons/) lesson_uses(user[i], used[i])
		if (group != "labs") others_use(user[i], used[i], group)
	}
}'

# planted PATH CODE: what check_floors says of the real objects with one more,
# compiled from CODE, at PATH (or instead of the one there).
planted() {
	local object
	while read -r object; do
		mkdir -p "$T/o/$(dirname "$object")"
		cp "$B/$object" "$T/o/$object"
	done <"$B/floors.objects"
	mkdir -p "$T/o/$(dirname "$1")"
	echo "$2" | ${CC:-cc} -x c -c -o "$T/o/$1" - || fail "cannot compile $2"
	(cd "$T/o" && find . -name '*.o' | sed 's/^..//') >"$T/objects"
	check_floors "$T/o" <"$T/objects"
}

test_the_tree_is_built() {
	assertEquals "$make_says" 0 "$made"
	assertEquals 'each source of common/ has an object' \
		"$(cd common && printf '%s\n' *.c | sed 's/c$/o/')" \
		"$(sed -n 's/^common.//p' "$B/floors.objects")"
	assertTrue 'no libraries found' "grep -qx ibv_create_qp $B/floors.libs"
	local lesson
	for lesson in lessons/[0-9]*/; do
		[[ -n $(find "$lesson" -maxdepth 1 -name '*.c') ]] || continue
		assertTrue "no object of $lesson" \
			"grep -q ^$lesson $B/floors.objects"
	done
}

test_floors_of_this_tree() {
	assertEquals '' "$(check_floors "$B" <"$B/floors.objects")"
}

test_common_uses_a_higher_floor() {
	assert_in "$(planted common/report.o \
		'void connect_qp(void); void report_step(void) { connect_qp(); }')" \
		'^common/report.o \(floor 2\) uses connect_qp of common/tcp_sync.o'
}

test_common_uses_a_lower_floor() {
	assertEquals '' "$(planted common/outcome.o \
		'void connect_qp(void); void receive_message(void) { connect_qp(); }
		 void send_message(void) {} void report_outcome(void) {}')"
}

test_common_file_without_a_floor() {
	assert_in "$(planted common/attic.o 'int attic;')" \
		'^common/attic.o has no floor. Give it one'
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
	planted server/more.o 'void serve(void) {}' >/dev/null
	assert_in "$(planted common/report.o \
		'void serve(void); void report_step(void) { serve(); }')" \
		'^common/report.o uses serve, which server/more.o defines'
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
	planted lessons/01-device-open/more.o 'void more(void) {}' >/dev/null
	assert_in "$(planted lessons/02-pd-mr-cq-qp/use.o \
		'void more(void); void use(void) { more(); }')" \
		'^lessons/02-.* uses more, which lessons/01-'
}

# A recorder that wraps a library's function, and helpers of the same name in
# two programs, are no violation.
test_what_is_no_violation() {
	planted labs/qptrace/wrap.o 'void ibv_create_qp(void) {}' >/dev/null
	planted server/more.o 'void helper(void) {}' >/dev/null
	assertEquals '' "$(planted lessons/05-send-recv/more.o \
		'void ibv_create_qp(void); void helper(void) {}
		 void more(void) { ibv_create_qp(); }')"
	assertEquals '' "$(planted lessons/05-send-recv/use.o \
		'void helper(void); void use(void) { helper(); }')"
}

. shunit2
