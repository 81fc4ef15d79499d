#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The graders of the exercises are right: the starter gets nothing, the course's own stage
# all; mistakes lose points for the right reason, right solutions in another hand lose none.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

# plant NN: a folder for each solution in the rules; its line, "NAME TEST CAUSE", or "NAME
# all" of one that is right, to $expected
plant() {
	local line name
	expected=()
	while IFS= read -r line; do
		case $line in
		'#'*) ;;
		$'\t'*) printf '%s\n' "${line#$'\t'}" >>"$T/$name.sed" ;;
		*)
			name=${line%% *}
			expected+=("$line")
			;;
		esac
	done < <(cat labs/tests/exercises/{wrong,right}/"$1".rules)
	for line in "${expected[@]}"; do
		name=${line%% *}
		mkdir "$T/class/$name"
		sed -f "$T/$name.sed" "$course" >"$T/class/$name/$stage"
		! cmp -s "$course" "$T/class/$name/$stage" || fail "$name changes nothing"
	done
}

# in_class NAME: a folder that is there is to be judged by all tests
in_class() { expected=("$1 all" "${expected[@]}"); }

# judge_class: all that is expected, in two VMs side by side; those that play all scenes
# first, each to the other half than the one before it
judge_class() {
	local line name test i=0 half
	local first=() second=()
	for line in "${expected[@]}"; do
		read -r name test _ <<<"$line"
		if ((i++ % 2)); then
			second+=("$name:$test")
		else
			first+=("$name:$test")
		fi
	done
	(set +eu && need_programs) || fail 'the programs of the tree'
	(set +eu && judge_many "$folder" "$T/class" "${first[@]}") &
	half=$!
	(set +eu && judge_many "$folder" "$T/class" "${second[@]}") || fail 'the second half'
	wait "$half" || fail 'the first half'
}

# total NAME: its points
total() { awk -F'\t' '{ n += $2 } END { print n + 0 }' "$T/class/$1.results"; }

assert_right() { # NAME
	assertEquals "$1" '' "$(awk -F'\t' '$1 != "ok" { print $4 ": " $6 " | " $8 }' "$T/class/$1.results")"
	assertEquals "$1: points" 100 "$(total "$1")"
}

# assert_caught NAME TEST CAUSE: that test fails for that reason, and names a hint
assert_caught() {
	local status test observed said hint
	IFS=$'\t' read -r status _ _ test _ observed _ said hint _ <"$T/class/$1.results"
	assertEquals "$1: test $test" "fail $2" "$status $test"
	assert_in "$said" "$3" "$1 ($observed):"
	assertNotEquals "$1: a hint" - "$hint"
	printf '%-22s %-20s hint %-2s %.90s\n' "$1" "$test" "$hint" "$said"
}

prove() { # NN
	local line name test cause
	begin_class "$1"
	plant "$1"
	for name in labs/tests/exercises/right/"$1"-*/; do
		[[ -d $name ]] || continue
		cp -r "$name" "$T/class/"
		in_class "$(basename "$name")"
	done
	reference reference
	in_class reference
	EXERCISE_DIR=$T/class labs/exercise start "$1" >/dev/null
	mv "$T/class/${folder##*/}" "$T/class/starter"
	in_class starter
	judge_class
	for line in "${expected[@]}"; do
		read -r name test cause <<<"$line"
		case $name:$test in
		starter:all) assertTrue "the starter has $(total starter)" "[ -s $T/class/starter.results ] && (($(total starter) <= 20))" ;;
		*:all) assert_right "$name" ;;
		*) assert_caught "$name" "$test" "$cause" ;;
		esac
	done
}

test_00_first_message() { prove 00; }
test_01_device() { prove 01; }
test_02_resources() { prove 02; }
test_03_qp_state() { prove 03; }
test_04_tcp_sync() { prove 04; }
test_05_transfer() { prove 05; }
test_06_plugin() { prove 06; }
test_07_ten() { prove 07; }
test_08_one_sided() { prove 08; }
test_09_hosts() { prove 09; }
test_10_peers() { prove 10; }
test_11_cm() { prove 11; }
test_13_credit() { prove 13; }
test_14_reads() { prove 14; }

# failing_vm N CMD…: QEMU ends N times, at once or, with MIDDLE=1, in its second scene
failing_vm() {
	local real name
	name=qemu-system-$(uname -m)
	real=$(type -P "$name")
	echo "$1" >"$T/failures"
	mkdir -p "$T/bin"
	cat >"$T/bin/$name" <<-END
		#!/bin/sh
		[ "\$1" = --version ] && exec $real --version
		left=\$(cat $T/failures)
		[ "\$left" = 0 ] && exec $real "\$@"
		echo \$((left - 1)) >$T/failures
		if [ "\$MIDDLE" ]; then
			for box; do
				case \$box in local,id=work,path=*) box=\${box##*path=} && break ;; esac
			done
			$real "\$@" &
			until [ "\$(ls "\${box%%,*}/seen" | wc -l)" -gt 1 ]; do sleep 0.1; done
			kill -KILL \$!
		fi
		echo out of luck >&2
		exit 1
	END
	chmod 755 "$T/bin/$name"
	LAB_AGAIN=1 PATH=$T/bin:$PATH "${@:2}"
}

# A VM that fails is no fault of the learner's: tried once more, and never points lost.
test_a_vm_that_fails_costs_no_points() {
	local folder=$ROOT/labs/exercises/01-device-open own=$T/mine/01-device-open
	mkdir -p "$own" "$T/none"
	cp labs/tests/exercises/right/01-*/device.c "$own/"
	(set +eu && need_programs && need_vm) || fail 'no VM'
	MIDDLE=1 failing_vm 1 exercise check 1
	assertEquals "$out" '0 0' "$rc $(<"$T/failures")"
	assertTrue 'its points' "[ -s $own/.results ]"
	failing_vm 2 exercise check 1
	assertEquals "$out" 77 "$rc"
	assert_in "$out" 'not judged, the VM failed twice: .*; next: '
	assertFalse 'points of before' "[ -e $own/.results ]"
	failing_vm 2 exercise grade --csv "$T/marks.csv" 1 "$T/none" "$own"
	assertEquals "$out" 77 "$rc"
	assert_in "$out" '^01-device-open  *-  *not judged'
	assertEquals 'in the marks' none "$(sed 1d "$T/marks.csv" | cut -d, -f1 | tr -d '"' | xargs basename -a)"
}

. shunit2
