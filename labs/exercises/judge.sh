# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# judge.sh - judge one file of a learner: build the real programs with it inside,
# have the exercise's scenes run in a VM that dies with them (scene.sh), and run
# the exercise's tests over what was seen there. Sourced by labs/exercise.
#
#	judge FOLDER FILE RESULTS SHOW…    and end_judging when this shell ends
#
# FOLDER is labs/exercises/NN-slug. RESULTS gets a line for each test, once all are known,
# its fields apart by tabs: status points of test title observed expected cause hint section.
# The status is ok, fail or "not tried". SHOW is called with each line, as soon as it is
# known. The tests are functions of exercise.sh, in their order:
#
#	test_mask() {
#		worth 15 'title' '题目' && see 2 'section of the page'
#		scene pair || return         what was seen: $E
#		equal "$observed" "$expected" && …
#		because 'cause' '原因'        unless the explainer names one in $blame
#	}
. "${root:?}/labs/exercises/build.sh"
. "$root/labs/exercises/seen.sh"

# exercise_file FOLDER: the stage that is written there, "qp_state.c"
exercise_file() { sed -n 's/^stage_file=//p' "$1/exercise.sh"; }

# exercise_parts FOLDER: sets $parts, what it is in the course, "common/qp_state.c"
exercise_parts() {
	read -ra parts < <(sed -n 's/^source=//p; s/^sources=(\(.*\))/\1/p' "$1/exercise.sh")
	((${#parts[@]})) || parts=("common/$(exercise_file "$1")")
}

# exercise_source FOLDER: the course's own; of several, one file with all of them
exercise_source() {
	local parts folder=${1%/} made new
	exercise_parts "$folder"
	((${#parts[@]} > 1)) || { echo "${parts[0]}" && return; }
	made=build/exercise/course/${folder##*/}/$(exercise_file "$folder")
	mkdir -p "$root/${made%/*}"
	new=$made.$BASHPID
	(cd "$root" && cat "${parts[@]}" >"$new" && mv "$new" "$made")
	echo "$made"
}

# load_exercise: $folder/exercise.sh, which may say otherwise than
load_exercise() {
	programs=(rdma_server rdma_client contract "${folder##*/}") # that have the stage inside
	helpers=()      # of build/ or build/exercise/, for the scenes
	stands_alone='' # the stage is a program without common/
	later=''        # functions that a stage need not have: they came later
	todo=('Write what is marked TODO; common/rdma_common.h has the contracts.'
		'写出标着 TODO 的部分；约定在 common/rdma_common.h。')
	libraries() { echo -lrdmacm -libverbs -ljansson; }
	# shellcheck source=labs/exercises/03-qp-states/exercise.sh
	. "$folder/exercise.sh"
}

chinese() {
	local lang=${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}
	[[ $lang == zh* ]]
}

# say ENGLISH CHINESE
say() {
	if chinese; then echo "${2:-$1}"; else echo "$1"; fi
}

# ---- the scenes

# furnish_box: with what the scenes need
furnish_box() {
	local name
	cp "$root"/build/exercise/{spy.so,kept.so,peer,idle,confine} "$root/build/libqptrace.so" "$box/bin/"
	for name in "${helpers[@]}"; do
		cp "$root/build/exercise/$name" "$box/bin/" 2>/dev/null || cp "$root/build/$name" "$box/bin/"
	done
	cp "$root/labs/tests/guest.sh" "$root/labs/exercises/scene.sh" "$folder/exercise.sh" "$box/"
	mkdir "$box/seen"
	chmod 755 "$box" "$box/bin"
}

# play TREE SECONDS BOX…: the scenes of each, in a VM of their own that sees TREE. Its time
# is counted in instructions, so that no deadline in it depends on how busy this machine
# is; it is never idle (idle.c).
play() {
	# shellcheck disable=SC2016 # for that bash
	cd "$1" && LAB_IDLE_MINUTES=5 exec "$root/labs/lab" run --counted --tree "$1" --timeout "$2" -- bash -c \
		'cp "$1/bin/idle" /tmp && chrt -i 0 /tmp/idle &
		mount -t tmpfs drivers /etc/libibverbs.d && echo driver rxe >/etc/libibverbs.d/rxe.driver
		touch -c /usr/lib/*-linux-gnu/libgcc_s.so.1 /usr/bin/tar # copies them
		for box; do bash "$box/scene.sh" "$box" | tee "$box/news"; done' - "${@:3}"
}

start_scenes() {
	attempts=$((attempts + 1))
	[[ ! $news ]] || exec {news}<&-
	rm -rf "$box.news" "${box:?}"/seen/*
	loaded=''
	mkfifo "$box.news"
	play "$box" 600 "$box" >"$box.news" 2>"$box.lab" </dev/null &
	lab_pid=$!
	exec {news}<"$box.news"
	ended=' ' stopped=''
}

# vm_failed: it ended, and neither because all was played nor because the time was over
vm_failed() {
	local rc=0
	[[ $lab_pid ]] || return
	kill "$lab_pid" 2>/dev/null
	wait "$lab_pid" || rc=$?
	lab_pid=''
	((rc && rc != 124))
}

# scene NAME: wait until it was played; sets $E. If it was not, the test has failed. After a
# failure of the VM all is played once more; if not even one scene was then, that says
# nothing of the file, and sets $unjudged.
scene() {
	local line seen
	E=$box/seen/$1
	[[ $built ]] || { differs "$(say 'no program' '没有程序')" "$(say 'one that can be run' '能运行的程序')" && return 1; }
	while [[ $ended != *" $1 "* ]]; do
		# The lab ends them after 600 s, and may have to make a VM before.
		if ! read -rt 900 -u "$news" line; then
			if vm_failed; then
				((attempts > 1)) || { start_scenes && continue; }
				if [[ $ended == ' ' ]]; then
					unjudged=$(tail -n 1 "$box.lab")
					unjudged=${unjudged:-nothing was said}
					return 1
				fi
			fi
			differs "$(say 'this scene was not played to its end' '这一幕没有演完')" \
				"$(say 'programs that end' '程序会结束')"
			because "$(say "the VM ended early: $(tail -n 1 "$box.lab")" "VM 提前结束：$(tail -n 1 "$box.lab")")"
			return 1
		fi
		case $line in
		"done "*)
			ended+="${line#done } " seen=$box/seen/${line#done }
			mkdir "$seen" && tar -xmf "$seen.tar" --no-same-owner -C "$seen"
			;;
		"stopped "*) ended+="${line#stopped } " stopped+=" ${line#stopped } " ;;
		esac
	done
	load_records
	[[ "$stopped " == *" $1 "* ]] || return 0
	untried=1
	differs "$(say 'not tried any more' '没有再试')" "$(say 'programs that end' '程序会结束')"
	because "$(say "earlier programs were killed, as they did not end: $(hung)" "此前的程序没有结束，只能杀掉：$(hung)")"
	return 1
}

# hung: how the first program that did not end by itself was killed
hung() {
	local of
	for of in "$box"/seen/*/overran; do
		[[ -e $of ]] || continue
		E=${of%/*}
		load_records
		ending "$(head -n 1 "$of")"
		return
	done
}

# ---- a test

# struck NAME: the failure that the spy was told of met a call
struck() { grep -q '^fail ' "$E/$1.log" 2>/dev/null; }

# summed_up NAME KEY: what the spy summed up at the end: polls, arms, events, cpu_ms
summed_up() { sed -n "/^polls=/s/.*\\b$2=\\([0-9]*\\).*/\\1/p" "$E/$1.log" 2>/dev/null | tail -n 1; }

# waited NAME: sets $value: ms from its last request to the device until it began to take
# everything down
waited() {
	local record begin=''
	value=''
	recorded "$1"
	for record in "${records[@]}"; do
		case $record in
		*$'\tev=post_'* | *$'\tev=modify_qp\t'*) begin=$record ;;
		*$'\tev=destroy_qp\t'* | *$'\tev=exit\t'*) [[ ! $begin || $value ]] || value=$record ;;
		esac
	done
	[[ $begin && $value ]] || return
	records=("$value") && value t && set -- "$value"
	records=("$begin") && value t && value=$((($1 - value) / 1000000))
}

# in_time NAME LEAST MOST: it waited for so many ms
in_time() {
	waited "$1"
	[[ ! $value ]] || ((value < $2 || value > $3)) || return 0
	differs "$(who "$1") $(say "ended after ${value:-?} ms" "在 ${value:-?} ms 后结束")" "$(say "$2 to $3 ms, by the clock" "$2 到 $3 ms，看时钟")"
	return 1
}

# worth POINTS TITLE-ENGLISH TITLE-CHINESE
worth() {
	points=$1 title=$(say "$2" "$3")
}

# see HINT SECTION: what helps
see() { hint=$1 section=$2; }

# differs OBSERVED EXPECTED: the first counts, and what the programs in $blame said
differs() {
	[[ ! $failed ]] || return 0
	failed=1 observed=$1 expected=$2
	[[ ! $E || ${#blame[@]} == 0 ]] || named=$(explained)
	[[ ! $named =~ $is_weak ]] || weak=$named named=''
}

# because ENGLISH CHINESE: unless the explainer names a cause in $blame
because() { cause=${cause:-$(say "$@")}; }

# equal OBSERVED EXPECTED; like OBSERVED REGEX [EXPECTED-IN-WORDS]; both say whether
equal() {
	[[ $1 != "$2" ]] || return 0
	differs "${1:-$(say nothing 没有)}" "$2"
	return 1
}

like() {
	[[ ! $1 =~ $2 ]] || return 0
	differs "${1:-$(say nothing 没有)}" "${3:-$2}"
	return 1
}

# told NAME WORD WANT: what the contract says of it; if it came not so far, its own words are the cause
told() {
	local line
	line=$(grep "^$2" "$E/$1.out")
	[[ $line ]] || blame=("$1")
	equal "$line" "$3"
}

# ended_with RC NAME…: each of them, by itself
ended_with() {
	local name text='' rc=$1
	shift
	for name; do
		[[ $(rc_of "$name") != "$rc" ]] || continue
		((${#blame[@]})) || blame=("$name")
		text=$(ending "$name")
		differs "${text:-$(who "$name") $(say "ended with exit code" "的退出码是") $(rc_of "$name")}" \
			"$(who "$name") $(say "ends with exit code" "的退出码应是") $rc"
		return 1
	done
}

# well PAIR: server and client of that scene did it, and got each other's message
well() {
	local side
	blame_all
	ended_with 0 "$1.s" "$1.c" || return 1
	blame=()
	for side in s c; do
		equal "$(leaks "$1.$side")" '' || return 1
	done
}

one_line() {
	local words
	read -rd '' -a words <<<"${1:--}" || :
	printf '%s\n' "${words[*]}"
}

# run_test NAME: sets $line; $helped: the hint and section of each cause that was named. What
# a cause of a test above made fail could not be tried, and counts half; what is not written
# is another matter.
run_test() {
	local points=0 title=$1 hint='' section='' failed='' observed='' expected='' cause='' E='' blame=()
	local named='' weak='' untried='' how=ok got all_records=() records=() value same
	"$1"
	got=$points
	if [[ $failed ]]; then
		how=fail got=0
		cause=${named:-${cause:-$weak}}
		same=$(cause_as_key "${named:-$weak}")
		if [[ $untried || ($same && ${helped[$same]:-} && $same != *'is not written'*) ]]; then
			how='not tried' got=$((points / 2))
		fi
		if [[ $same && ${helped[$same]:-} ]]; then
			IFS=$'\t' read -r hint section <<<"${helped[$same]}"
		elif [[ $same ]]; then
			helped[$same]=$hint$'\t'$section
		fi
	else
		cause=''
	fi
	printf -v line '%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s' "$how" "$got" "$points" "${1#test_}" \
		"$title" "$(one_line "$observed")" "$(one_line "$expected")" "$(one_line "$cause")" \
		"${hint:--}" "${section:--}"
}

# cause_as_key TEXT: without what differs from run to run: numbers, and which program it was;
# but two lines that crash are two mistakes
cause_as_key() {
	if [[ $1 =~ ${stage_file//./\\.}:[0-9]+ ]]; then
		echo "${BASH_REMATCH[0]}"
	else
		sed -E 's/^[^ ]+ (\([a-z]+\) )?(ran on|wrote more|一直跑到|的输出)/\2/; s/[0-9]//g' <<<"$1"
	fi
}

# at_most_earned FILE: what could not be tried counts for as much as was done, at most
at_most_earned() {
	awk -F'\t' -v OFS='\t' 'NR == FNR { if ($1 == "ok") earned += $2; next }
		$1 == "not tried" { if ($2 > earned) $2 = earned; earned -= $2 } { print }' "$1" "$1"
}

# test_builds comes first, and of every exercise
test_builds() {
	worth 5 'it compiles and links into the real programs' '能编译，并链接进真正的程序'
	if [[ -s $box/borrowed ]]; then
		differs "$(<"$box/borrowed")" "$(say 'a stage that you have written' '你自己写的代码')"
		because "$(<"$box/borrowed"): $(say 'no points for what others have written' '别人写的不给分')"
	elif [[ ! $built ]]; then
		differs "$(complaint 3)" "$(say 'no errors' '没有错误')"
		because "$(complaint 1)"
	elif [[ $(complaint) ]]; then
		differs "$(complaint 2)" "$(say 'no warnings' '没有警告')"
		because 'a warning of the compiler is a fault more often than not' '编译器的警告多半就是错误'
	fi
}

tests_of() { sed -n 's/^\(test_[a-z0-9_]*\)() {.*/\1/p' "$1/exercise.sh"; }

end_judging() {
	trap '' INT TERM HUP
	[[ ! $lab_pid ]] || { kill "$lab_pid" && wait "$lab_pid"; } 2>/dev/null
	[[ ! $box || ${KEEP_BOX:-} ]] || rm -rf "${box:?}" "$box.news" "$box.lab"
	[[ ! ${results:-} ]] || rm -f "$results".{part,new}
}

# scenes_of TEST…: those that they look at; called() of an exercise looks at "called"
scenes_of() {
	local test
	for test; do
		declare -f "$test" | grep -oE '(^|[ (])(scene [a-z0-9_]+|called )' | sed 's/.*scene //; s/^[ (]*//; s/ $//'
	done
}

# new_box [FOLDER]: sets $box, where FILE is built; and $built
new_box() {
	mkdir -p "${1:-$root/build/exercise}"
	box=$(mktemp -d "${1:-$root/build/exercise}/box.XXXXXX") || return
	built=''
	! build_learner "$file" || built=1
}

# run_tests TEST…: to $results, when all are known, and each at once to the command $show
run_tests() {
	local test line
	local -A helped=()
	: >"$results.part"
	for test; do
		run_test "$test"
		[[ ! $unjudged ]] || return 77
		echo "$line" >>"$results.part"
		# Of what does not build there is no more to be said.
		[[ ! $built && $test != test_builds ]] || "${show[@]}" "$line"
	done
	at_most_earned "$results.part" >"$results.new" && mv "$results.new" "$results" && rm "$results.part"
}

judge() {
	local built='' news='' ended=' ' stopped='' source show
	folder=$1 file=$2 results=$3 show=("${@:4}") lab_pid='' box='' attempts=0 unjudged=''
	rm -f "$results" # of before; if this is interrupted there is none
	source=$(exercise_source "$folder")
	load_exercise
	new_box || return 1
	[[ ! $built ]] || { need_vm && furnish_box && start_scenes; } || return
	# shellcheck disable=SC2046 # names
	run_tests test_builds $(tests_of "$folder") || {
		say "not judged, the VM failed twice: $unjudged; next: labs/lab doctor" \
			"没有评分，VM 失败了两次：$unjudged；下一步：labs/lab doctor" >&2
		return 77
	}
}

# judge_many FOLDER DIR NAME:TEST…: for whoever trusts the files DIR/NAME/STAGE: each is
# judged by that test, or "all", and all share a VM. The results are DIR/NAME.results.
judge_many() {
	local case test built='' news='' ended=' ' stopped='' source show=(:) dir=$2 all boxes=() tests trusted=1
	local -A box_of=()
	folder=$1 lab_pid='' unjudged=''
	source=$(exercise_source "$folder")
	load_exercise
	all=$(mktemp -d "$root/build/exercise/many.XXXXXX") && chmod 755 "$all" || return
	for case in "${@:3}"; do
		file=$dir/${case%%:*}/$stage_file
		new_box "$all" || return
		box_of[$case]=$box
		[[ $built ]] || continue
		furnish_box
		test=test_${case#*:}
		# One that names its scenes by a variable may want any.
		[[ $case == *:all ]] || declare -f "$test" | grep -qE '\<scene ["$]' ||
			scenes_of "$test" >"$box/only"
		boxes+=("$box")
	done
	(play "$all" $((100 + 60 * ${#boxes[@]})) "${boxes[@]}" >"$all/lab" 2>&1 </dev/null)
	for case in "${@:3}"; do
		box=${box_of[$case]} built='' ended=' ' stopped=''
		results=$dir/${case%%:*}.results
		if [[ -e $box/news ]]; then
			built=1
			exec {news}<"$box/news"
		fi
		tests=("test_${case#*:}")
		[[ $case != *:all ]] || mapfile -t tests < <(echo test_builds && tests_of "$folder")
		run_tests "${tests[@]}"
		[[ ! $built ]] || exec {news}<&-
	done
	[[ ${KEEP_BOX:-} ]] || rm -rf "${all:?}"
}
