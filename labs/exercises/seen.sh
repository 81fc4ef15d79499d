# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# seen.sh - for judge.sh: what was seen in the scene $E: how its programs ended, what they
# said, and what was recorded.

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
		[[ ! -s $file ]] || "$root/labs/qptrace" dump --lang "$(say en zh)" "$file" >"$file.lines" 2>/dev/null || :
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

# objects_left NAME: made and not destroyed, "qp 1 mr 2 "; "" for none
objects_left() {
	local kind left what make unmake text=''
	for kind in pd:alloc:dealloc mr:reg:dereg cq:create:destroy qp:create:destroy device:open:close; do
		IFS=: read -r what make unmake <<<"$kind"
		recorded "$1" "ev=${make}_$what" err=0
		left=${#records[@]}
		recorded "$1" "ev=${unmake}_$what" err=0
		left=$((left - ${#records[@]}))
		((left == 0)) || text+="$what $left "
	done
	echo "${text% }"
}

# leaks NAME: those, and what else it has kept, "40 bytes of resources.c:83"
leaks() {
	local text
	text="$(objects_left "$1") $(kept "$1")"
	xargs <<<"$text"
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
		done | sort | uniq -c | sed 's/^ *1 //; t; s/^ *\([0-9]*\) /\1 times /' | head -n 3 | paste -sd , | sed 's/,/, /g; s/ (discriminator [0-9]*)//g'
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
		rdma_*) echo "$value" && return ;;
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
