#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/qptrace report of two processes: what neither recording tells alone, both
# together do; who failed first is the cause, and what followed is aftermath; and who
# only computes, sleeps or idles is not accused.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

# What is wrong (two_sides.c), and the cause that follows from it.
faults='rkey rkey-unknown
rkey-swapped rkey-byte-order
range remote-outside-mr
pd rkey-other-pd
mr-right mr-lacks-right
qp-right qp-lacks-right
psn psn-differs
mtu mtu-differs
qkey qkey-differs
datagram qpn-differs
no-receive no-receive-posted
deadlock post-forgotten
asleep peer-asleep
dead peer-died
unpolled nobody-polls
solicited armed-solicited-only
unacked events-not-acked
same-id lkey-unknown
unsignaled unsignaled
doubled post-doubled'

# told FILE…: how many of these processes are gone, or have told where they stand,
# connected, and that is not where they wait for the other to be so, too, or linger
# (two_sides.c). Who is only slow has to end.
told() {
	local file lines n=0
	for file; do
		lines=$("$B/qptrace-report" --dump "$file" 2>/dev/null) || continue
		{ kill -0 "$(sed -n '1s/.*"pid":\([0-9]*\),.*/\1/p' <<<"$lines")" 2>/dev/null &&
			! awk -v slow="${file/*slow*/1}" '
			/"to":"RTS"/ { up = 1 }
			up && /"ev":"thread"/ { told = slow != 1 && !/"in":"read","on":"socket"/ }
			END { exit !told }' <<<"$lines"; } || n=$((n + 1))
	done
	echo "$n"
}

# until_said PATTERN CMD…: that CMD says it, 20 s at most
until_said() {
	local i
	for ((i = 0; i < 200; i++)); do
		! "${@:2}" 2>/dev/null | grep -qs -- "$1" || break
		sleep 0.1
	done
}

# in_the_lab DIR HOW…: all side by side, until each has told where it stands
in_the_lab() {
	local dir=$1 how
	shift
	for how; do
		labs/qptrace -o "$dir/$how.qpt" --stall 2 -- "$B/two_sides" "$how" "$dir/end" "$dir/said" \
			2>"$dir/$how.err" &
	done
	{ until_said 'qptrace: hint' cat "$dir/slow.err"; touch "$dir/said"; } &
	until [[ $(told "$dir"/*.qpt*) == $((2 * $#)) ]]; do
		((SECONDS < 150)) || break
		sleep 0.2
	done
	touch "$dir/end"
	wait
}

oneTimeSetUp() {
	build_probes
	rm -rf "$B/two"
	mkdir -p "$B/two"
	# shellcheck disable=SC2046 # words
	T=$B/two in_lab "$(declare -f told until_said in_the_lab)
		in_the_lab $B/two slow $(cut -d' ' -f1 <<<"$faults" | tr '\n' ' ')"
	export lab_ran=$?
}

# Without a lab there are no recordings.
ran() { need_lab && assertEquals 'the recordings were made' 0 "$lab_ran"; }

# causes_of HOW FILTER: of the causes that both recordings tell, best first
causes_of() { causes "$2" "$B/two/$1".qpt*; }

test_each_fault_is_named_first() {
	ran || return 0
	local how cause
	while read -r how cause; do
		assertEquals "$how" "$cause" \
			"$(causes_of "$how" 'select(.kind != "warning") | .id' | head -n 1)"
	done <<<"$faults"
}

# Of two hosts, both recordings say which way is closed; the sender's alone cannot.
test_which_way_is_closed() {
	local case both alone got
	while IFS=: read -r case both alone; do
		for got in A B; do zcat "labs/exercises/09-two-hosts/cases/$case/$got.qpt.gz" >"$T/$got.qpt"; done
		assertEquals "case $case" "$both" "$(causes .id "$T/A.qpt" "$T/B.qpt" | head -n 1)"
		assertEquals "case $case, B alone" "$alone" "$(causes .id "$T/B.qpt" | head -n 1)"
	done <<-'END'
		1:nothing-arrives:RETRY_EXC_ERR
		2:acks-lost:RETRY_EXC_ERR
		4:peer-died:RETRY_EXC_ERR later
	END
}

# The watcher reads the recordings of both ends of one machine: what it said while both ran
# is what JSON, text and page say later.
test_one_judge() {
	ran || return 0
	local how json first live
	while read -r how _; do
		json=$(labs/qptrace report --json "$B/two/$how".qpt*)
		first=$(jq -r '.causes[0].cause' <<<"$json")
		live=$(sed -f <(jq -r '.sides[] | "s/pid \(.pid)\\b/\(.side)/g"' <<<"$json") "$B/two/$how.err")
		assertContains "$how, live:" "$live" ": $first"
		assertEquals "$how, text" "$first" "$(labs/qptrace report "$B/two/$how".qpt* |
			sed -n '0,/^1\. /d; s/^ *[a-z]* *: //p' | head -n 1)"
		labs/qptrace report --html "$T/page" "$B/two/$how".qpt*
		assertEquals "$how, page" "$first" \
			"$(sed -n 's/^const data = \(.*\);$/\1/p' "$T/page" | jq -r '.causes[0].cause')"
	done <<<"$faults"
}

# Whatever else was said is below it, and once. Who waits is not accused, and who only
# computes for six seconds is nobody's cause.
test_what_follows_is_aftermath() {
	ran || return 0
	local accused='select(.kind == "failure" or .kind == "stall") | .kind'
	assertEquals 'one cause' failure "$(causes_of rkey "$accused")"
	assertEquals failure "$(causes_of dead .kind | head -n 1)"
	assertEquals 'who sleeps may wake' hint "$(causes_of asleep .kind | head -n 1)"
	assertEquals 'nobody' '' "$(causes_of slow "$accused")"
	assert_in "$(<"$B/two/slow.err")" 'qptrace: hint: '
	assertEquals '' "$(grep -A3 'cause: ' "$B/two/slow.err")"
}

# Of a cause that was compared the text names both sides.
test_both_sides_are_named() {
	ran || return 0
	assert_in "$(causes_of rkey .cause | head -n 1)" "rkey 0x[0-9a-f]+ belongs to no MR of QP [0-9]+ \([AB]"
	assert_in "$(causes_of qp-right .cause | head -n 1)" "^QP [0-9]+ \([AB].* lacks"
	assert_in "$(causes_of qkey .cause | head -n 1)" "QP [0-9]+ \([AB], rxe0\) has 0x"
	assert_in "$(causes .cause --lang zh "$B"/two/rkey.qpt* | head -n 1)" '不属于'
}

# shellcheck disable=SC1091
. shunit2
