# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2030,SC2031,SC2034,SC2154
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
: "${root:?}"

# exercise_file FOLDER: the stage that is written there, "qp_state.c"
exercise_file() { sed -n 's/^stage_file=//p' "$1/exercise.sh"; }

# exercise_source FOLDER: the course's own, "common/qp_state.c"
exercise_source() {
	local found
	found=$(sed -n 's/^source=//p' "$1/exercise.sh")
	echo "${found:-common/$(exercise_file "$1")}"
}

# load_exercise: $folder/exercise.sh, which may say otherwise than
load_exercise() {
	programs=(rdma_server rdma_client contract "${folder##*/}") # that have the stage inside
	helpers=()      # of build/ or build/exercise/, for the scenes
	stands_alone='' # the stage is a program without common/
	todo=('Write what is marked TODO; common/rdma_common.h has the contracts.'
		'写出标着 TODO 的部分；约定在 common/rdma_common.h。')
	libraries() { echo -libverbs -ljansson; }
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

# ---- building

# limited CMD…: the compiler, too, may be given what makes it run for ever
limited() {
	(
		ulimit -c 0 -t 20 -v 3000000 -f 65536
		exec timeout -k 1 20 "$@"
	)
}

# need_programs: what the exercise in $folder wants of the tree, made if anything is newer
need_programs() {
	local made=$root/build/exercise/made.${folder##*/}
	mkdir -p "$root/build/exercise"
	(
		source=$(exercise_source "$folder")
		load_exercise
		flock 9
		[[ ! -e $made || ! -e $root/build/libqptrace.so || -n $(find "$root"/{common,server,client,lessons,labs/recorder,labs/nccl-net,labs/exercises,labs/tests/spy.c,labs/tests/kept.c,labs/tests/peer.c,labs/tests/tcpx,Makefile} \
			-newer "$made" \( -name '*.[ch]' -o -name Makefile -o -name judge.sh \) -print -quit) ]] || exit 0
		cd "$root" || exit
		echo "exercise: building the programs of the tree" >&2
		"$root/labs/deps.sh" --check build lab >&2 || labs/deps.sh build lab >&2 || exit 77
		# shellcheck disable=SC2046 # names
		make -s build/lib{qptrace.so,rdma_common.a} $(tree_makes "${helpers[@]}"
			[[ $stands_alone ]] || tree_makes "${programs[@]}") >&2 || exit 1
		make_helpers && print_own && touch "$made"
	) 9>"$root/build/exercise/lock"
}

# need_vm: the first one of a machine fetches a kernel and is saved, before the clocks
# of a test run
need_vm() {
	local made=$root/build/exercise/made.vm
	(
		flock 9
		[[ ! -e $made ]] || exit 0
		"$root/labs/lab" run --counted --tree "$root/build/exercise" -- true >&2 </dev/null && touch "$made"
	) 9>"$root/build/exercise/lock"
}

# our_source NAME: of a program that only the exercises build
our_source() { compgen -G "$root/labs/exercises/$1.c" || compgen -G "$root/labs/tests/tag/$1.c" || :; }

# tree_makes NAME…: those that the Makefile knows; the lessons, too
tree_makes() {
	local name
	for name; do
		case $name in
		net_shim.so) ;;
		*) [[ $(our_source "$name") ]] || echo "build/$name" ;;
		esac
	done
}

# make_helpers: what only the exercises need, into build/exercise
make_helpers() {
	local cc=${CC:-cc} to=build/exercise name
	"$cc" -D_GNU_SOURCE -O2 -fPIC -shared -o $to/spy.so labs/tests/spy.c &&
		"$cc" -D_GNU_SOURCE -O2 -fPIC -shared -o $to/kept.so labs/tests/kept.c &&
		"$cc" -D_GNU_SOURCE -O2 -o $to/peer labs/tests/peer.c -lisal &&
		"$cc" -O1 -o $to/idle labs/exercises/idle.c &&
		"$cc" -D_GNU_SOURCE -O1 -static -o $to/confine labs/exercises/confine.c &&
		"$cc" -O1 -g -c -o $to/crash.o labs/exercises/crash.c || return
	for name in "${programs[@]}"; do
		[[ ! $(our_source "$name") ]] ||
			"$cc" -D_GNU_SOURCE -Icommon -std=gnu11 -O1 -g -c -o "$to/$name.o" "$(our_source "$name")" || return
	done
	[[ " ${helpers[*]} " != *' net_shim.so '* ]] ||
		"$cc" -D_GNU_SOURCE -Icommon -std=gnu11 -O1 -fPIC -fvisibility=hidden -shared -o $to/net_shim.so \
			labs/tests/tcpx/net_shim.c labs/tests/tcpx/net_shim_tables.c
}

# rest_of STAGE: the library without that stage, so that what the learner leaves
# out is missing
rest_of() {
	local rest=$root/build/exercise/without-$1.a
	[[ ! $stands_alone ]] || return 0
	(
		flock 9
		[[ ! -e $rest || $root/build/librdma_common.a -nt $rest ]] || exit 0
		cp "$root/build/librdma_common.a" "$rest.new" &&
			ar d "$rest.new" "$1.o" && mv "$rest.new" "$rest"
	) 9>"$root/build/exercise/lock"
	echo "$rest"
}

# objects_of PROGRAM: sets $objects, what it is made of beside the stage
objects_of() {
	local at
	objects=()
	[[ ! $stands_alone ]] || return 0
	for at in exercise server client; do
		objects=("$root/build/$at/$1.o")
		[[ ! -f ${objects[0]} ]] || return 0
	done
	objects=("$root"/build/lessons/lesson.o "$root/build/lessons/$1"/*.o)
}

# compile FOLDER: the stage in FOLDER/src, into FOLDER/stage.o; what the compiler says into
# FOLDER/compiler. What is not initialized is no zero by luck.
compile() {
	local cc=${CC:-cc} flags pattern=-ftrivial-auto-var-init=pattern assembler=''
	flags=$(pkg-config --cflags libibverbs 2>/dev/null)
	"$cc" $pattern -E -x c /dev/null >/dev/null 2>&1 || pattern=''
	[[ $("$cc" --version) != *clang* ]] || assembler=-fno-integrated-as
	# shellcheck disable=SC2086 # lists
	(cd "$1/src" && TMPDIR=$1 limited "$cc" -D_GNU_SOURCE -I"$root/common" -I"$root/$(dirname "$source")" $flags -std=gnu11 \
		-O1 -g -fno-omit-frame-pointer $pattern $assembler -fdiagnostics-color=never -Wall -Wextra -Wno-unused \
		-Wno-unused-parameter -Wno-missing-field-initializers -MD -MF ../included -Wa,--MD,../assembled \
		-c -o ../stage.o "$stage_file") >"$1/compiler" 2>&1
}

# print_of FILE.o: the same for the same code, whatever its names and comments are
print_of() {
	local bare=$1.bare
	objcopy -g -R .comment -R '.note*' -R .eh_frame "$1" "$bare" &&
		objdump -sr "$bare" | tail -n +4 | sha256sum && rm "$bare"
}

# print_own: that of the course's stage
print_own() {
	local made=$root/build/exercise/own.$stage_file
	mkdir -p "$made/src" && cp "$root/$source" "$made/src/$stage_file" && compile "$made" &&
		print_of "$made/stage.o" >"$made/print"
}

# borrowed: why what was compiled into $box is not the learner's own; "" if it is
borrowed() {
	local file real flags
	flags=$(pkg-config --cflags-only-I libibverbs 2>/dev/null)
	while IFS= read -r file; do
		real=$(cd "$box/src" && realpath -- "$file" 2>/dev/null)
		case $real in
		"$box/src/$stage_file" | "$(realpath "$box")/src/$stage_file" | "$box"/*.s | "$root"/common/*.h | "$root/$(dirname "$source")"/*.h) ;;
		/usr/include/*.h | /usr/lib/gcc/*.h | /usr/lib/llvm*.h | /usr/lib/clang/*.h | /usr/local/include/*.h) ;;
		*) [[ $real == *.h && " $flags " == *" -I${real%/*} "* ]] || {
			say "$stage_file is made of ${file/#"$root/"/}, which was not handed in" \
				"$stage_file 用了没有交上来的 ${file/#"$root/"/}"
			return
		} ;;
		esac
	done < <(sed -z 's/\\\n/ /g; s/\(^\|\n\)[^ ]*: /\1/g' "$box/included" "$box/assembled" 2>/dev/null | tr -d '\0' | xargs -n 1 printf '%s\n')
	[[ ${trusted:-} || $(print_of "$box/stage.o") != "$(cat "$root/build/exercise/own.$stage_file/print" 2>/dev/null)" ]] ||
		say "$stage_file is ${source}, which the course brings along" "$stage_file 就是课程自带的 ${source}"
}

# build_learner FILE: into $box/bin; what the compiler says into $box/compiler
build_learner() {
	local cc=${CC:-cc} rest program libs
	local objects jobs=() job rc=0
	libs=$(libraries)
	rest=$(rest_of "${stage_file%.c}")
	mkdir -p "$box/src" "$box/bin"
	head -c 1000000 "$1" >"$box/src/$stage_file"
	compile "$box" || return 1
	borrowed >"$box/borrowed"
	[[ ! -s $box/borrowed ]] || return 1
	for program in "${programs[@]}"; do
		objects_of "$program"
		# shellcheck disable=SC2086 # a list
		limited "$cc" -fno-lto -no-pie -g -o "$box/bin/$program" "${objects[@]}" "$box/stage.o" \
			"$root/build/exercise/crash.o" ${rest:+"$rest"} $libs >"$box/linker.$program" 2>&1 &
		jobs+=($!)
	done
	for job in "${jobs[@]}"; do
		wait "$job" || rc=1
	done
	cat "$box/linker.${programs[0]}" >>"$box/compiler"
	((rc == 0)) || cat "$box"/linker.* >>"$box/compiler"
	return "$rc"
}

# The first lines of what the compiler says, with the learner's own line numbers; of the
# linker only what is missing, or there twice
complaint() {
	sed -n "s|.*\(undefined reference to .*\)|\1|p; s|.*\(multiple definition of [^;]*\).*|\1|p
		/: \(fatal \)\{0,1\}error: \|: warning: /{s|[^ ]*/src/||g; p}" "$box/compiler" |
		sed "s|$root/||g" | awk '!seen[$0]++' | sort -st: -k2,2n | head -n "${1:-3}"
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
	local line
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
		"done "*) ended+="${line#done } " ;;
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

# ---- what was seen

# who NAME: the program that ran under this name, for people
who() {
	local words=("$1")
	[[ ! -e $E/$1.cmd ]] || read -ra words <"$E/$1.cmd"
	case ${words[0]}:$1 in
	rdma_*) echo "${words[0]}" ;;
	*.s) echo "${words[0]} $(say '(server)' '（server）')" ;;
	*.c) echo "${words[0]} $(say '(client)' '（client）')" ;;
	*) echo "${words[0]}" ;;
	esac
}

rc_of() { cat "$E/$1.rc" 2>/dev/null || echo none; }
out_of() { cat "$E/$1.out" 2>/dev/null; }
err_of() { cat "$E/$1.err" 2>/dev/null; }

# load_records: what the recorder wrote in this scene, a record a line: the name of
# the program's run, then KEY=VALUE, apart by tabs. Several tests look at one scene.
declare -A of_event=()
load_records() {
	[[ ${loaded:-} == "$E" ]] || read_records
	all_records=("${loaded_records[@]}")
}

read_records() {
	# Of two processes, whichever meets verbs first writes NAME.qpt, the other NAME.qpt.PID.
	local file files=() record key
	for file in "$E"/*.qpt "$E"/*.qpt.[0-9]*; do
		[[ ! -s $file ]] || "$root/labs/qptrace" dump "$file" >"$file.lines" 2>/dev/null || :
		[[ ! -s $file.lines ]] || files+=("$file.lines")
	done
	loaded=$E
	mapfile -t loaded_records < <([[ ! ${files[*]} ]] || jq -rR '(fromjson? // empty) as $r |
		[(input_filename | sub(".*/"; "") | sub("[.]qpt([.][0-9]+)?[.]lines$"; "")), "ev=\($r.ev)",
		($r | del(.ev) | to_entries[] | "\(.key)=\(.value)")] | join("\t")' "${files[@]}")
	of_event=()
	for record in "${loaded_records[@]}"; do
		key=${record#*$'\t'}
		of_event[${record%%$'\t'*} ${key%%$'\t'*}]+=$record$'\n'
	done
}

# recorded NAME KEY=VALUE…: sets $records, those of NAME that say all of this; first ev=…,
# and it is quick
recorded() {
	local record word among=("${all_records[@]}")
	records=()
	[[ ${2-} != ev=* ]] || mapfile -t among <<<"${of_event[$1 $2]-}"
	for record in "${among[@]}"; do
		[[ $record == "$1"$'\t'* ]] || continue
		for word in "${@:2}"; do
			[[ $record$'\t' == *$'\t'"$word"$'\t'* ]] || continue 2
		done
		records+=("$record")
	done
}

# value KEY: sets $value: what the first of $records says; "" if nothing
value() {
	local record=${records[0]-}$'\t'
	value=''
	[[ $record != *$'\t'"$1="* ]] || value=${record#*$'\t'"$1="} value=${value%%$'\t'*}
}

# sets NAME EVENT FIELD REGEX [WORDS]: what the first such call gave for FIELD;
# EVENT is "reg_mr", or "modify_qp to=RTR" and the like
sets() {
	local -a event
	read -ra event <<<"$2"
	recorded "$1" "ev=${event[0]}" "${event[@]:1}"
	value "$3"
	[[ ! $value =~ ^($4)$ ]] || return 0
	# Of one that talks to our hand-made peer, a failure later on is no wonder.
	[[ $value && -e $E/peer.rc ]] || blame_all
	if ((${#records[@]})); then
		differs "$(who "$1"): $3 ${value:-$(say nothing 没有)}" "$3 ${5:-$4}"
	else
		differs "$(who "$1"): $(say "no ibv_$2" "没有 ibv_$2")" "$3 ${5:-$4}"
	fi
	return 1
}

# blame_all: the cause is what any program of this scene says
blame_all() {
	local file
	blame=()
	for file in "$E"/*.err; do
		file=${file##*/}
		[[ $file == peer.* ]] || blame+=("${file%.err}")
	done
}

# count NAME KEY=VALUE…: how many there are
count() { recorded "$@" && echo "${#records[@]}"; }

# leaks NAME: objects that were made and not destroyed, "qp 1 mr 2", and what else it has
# kept, "40 bytes of resources.c:83"; "" for none
leaks() {
	local kind left what make unmake text=''
	for kind in pd:alloc:dealloc mr:reg:dereg cq:create:destroy qp:create:destroy device:open:close; do
		IFS=: read -r what make unmake <<<"$kind"
		recorded "$1" "ev=${make}_$what" err=0
		left=${#records[@]}
		recorded "$1" "ev=${unmake}_$what" err=0
		left=$((left - ${#records[@]}))
		((left == 0)) || text+="$what $left "
	done
	text+=$(kept "$1")
	echo "${text% }"
}

# kept NAME: memory and descriptors that it had not given back when it ended
kept() {
	local bytes at of
	[[ -s $E/$1.kept ]] || return 0
	sed -n 's/^[^:]*: \([0-9]*\) bytes, \(0x[0-9a-f]*\) of \(.*\)/\1 \2 \3/p' "$E/$1.kept" |
		while read -r bytes at of; do
			# A return address is after its call.
			printf -v at '0x%x' $((at - 1))
			at=$(addr2line -e "$box/bin/${of##*/}" "$at" 2>/dev/null)
			echo "$bytes bytes of ${at##*/}"
		done | sort | uniq -c | sed 's/^ *1 //; s/^ *\([0-9]*\) /\1 times /' | head -n 3 | paste -sd , | sed 's/,/, /g; s/ (discriminator [0-9]*)//g'
	sed -n 's/^[^:]*: \(descriptor.*\|library.*\|[0-9]* threads\)/\1/p' "$E/$1.kept" | grep -vE '[.]qpt|qptrace' | head -n 3 | paste -sd ,
}

# last_verb NAME: before it was told to end, and took everything down
last_verb() {
	local i down=-
	recorded "$1" ev=exit
	((!${#records[@]})) || down='@(destroy_*|dereg_*|dealloc_*|close_device)'
	recorded "$1"
	for ((i = ${#records[@]} - 1; i >= 0; i--)); do
		records[0]=${records[i]}
		value ev
		# shellcheck disable=SC2053 # a pattern
		[[ $value != $down ]] || continue
		case $value in
		start | exit | port | signal | stall | thread) ;;
		warning) value cause && echo "$value" && return ;; # "ibv_destroy_cq waits …"
		*) echo "ibv_$value" && return ;;
		esac
	done
	say none 没有
}

# line_of NAME: where in the learner's file NAME crashed, "qp_state.c:84"
line_of() {
	local addresses i
	read -ra addresses < <(sed -n 's/^crash: signal [0-9]* at//p' "$E/$1.err")
	# A return address is after its call.
	for i in "${!addresses[@]}"; do
		printf -v "addresses[i]" '0x%x' $((addresses[i] - (i > 1)))
	done
	recorded "$1" ev=start && value program
	[[ ! $value || $value == */* ]] || addr2line -e "$box/bin/$value" "${addresses[@]}" 2>/dev/null |
		sed -n "s/.*\($stage_file:[0-9]*\).*/\1/p" | head -n 1
}

# crashed NAME: by which signal
crashed() { sed -n 's/^crash: signal \([0-9]*\) .*/\1/p' "$E/$1.err"; }

# ending NAME: how it ended if not by itself: killed, crashed, too much; "" if it did
ending() {
	local rc signal line who
	rc=$(rc_of "$1")
	who=$(who "$1")
	case $rc in
	0 | 1 | 2) return ;;
	124 | 137)
		say "$who ran on until it was killed; last verb: $(last_verb "$1")" \
			"$who 一直跑到被杀；最后一个 verb：$(last_verb "$1")"
		;;
	153) say "$who wrote more than 1 MB" "$who 的输出超过 1 MB" ;;
	none) say "$who never began" "$who 没有开始" ;;
	1[2-9][0-9])
		signal=SIG$(kill -l $((rc - 128)))
		line=$(line_of "$1")
		say "$who died by $signal at ${line:-?}; last verb: $(last_verb "$1")" \
			"$who 死于 $signal，在 ${line:-?}；最后一个 verb：$(last_verb "$1")"
		;;
	*) say "$who ended with exit code $rc" "$who 以退出码 $rc 结束" ;;
	esac
}

# explained: how the programs in $blame died, or else the first cause that the
# explainer named in them and that is not a mere consequence of the other's
explained() {
	local files=("${blame[@]/#/$E/}") name text record
	text=$(cat "${files[@]/%/.err}" 2>/dev/null | sed -n 's/^SHIM VIOLATION: //p' | head -n 1)
	[[ ! $text ]] || { say "the plugin's contract: $text" "插件的契约：$text" && return; }
	# Who brings no explainer along is explained by the recorder.
	for name in "${blame[@]}"; do
		[[ $stands_alone && ! $(crashed "$name") ]] || continue
		for record in "${all_records[@]}"; do
			[[ $record == "$name"$'\t'*$'\tcause='* ]] || continue
			records=("$record") && value cause
			echo "$value" && return
		done
	done
	for name in "${blame[@]}"; do
		text=$(ending "$name")
		[[ ! $text || $(rc_of "$name") == none ]] || { echo "$text" && return; }
	done
	[[ ! $stands_alone ]] || return 0 # what it says itself explains nothing
	cat "${files[@]/%/.err}" 2>/dev/null | sed -En 's/^(error|warning): //p' |
		awk -v weak="$is_weak" '$0 ~ weak { if (!said) said = $0; next } { said = $0; exit }
			END { if (said) print substr(said, 1, 400) }'
}

# Who sent knows more than who waited in vain, or was left by the other.
is_weak='the peer (failed|closed)|waiting for the peer|nothing came before the deadline|no completion on QP .* within'

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

# scenes_of TEST…: those that they look at
scenes_of() {
	local test
	for test; do
		declare -f "$test" | grep -oE '(^|[ (])scene [a-z0-9_]+' | sed 's/.*scene //'
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
