#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034,SC2154
#
# scene.sh - in a VM of its own: run the learner's programs in each scene of an
# exercise and keep what was seen. It judges nothing; judge.sh on the host does.
#
#	scene.sh BOX
#
# BOX has bin/ (the real programs with the learner's stage inside, spy.so, kept.so, peer,
# confine, libqptrace.so), guest.sh and exercise.sh, whose functions scene_NAME run programs; if
# there is a file "only", just the scenes that it names:
#
#	learner NAME CMD…     until it ends
#	serving NAME CMD…     in the background, until it listens on $port
#	reap NAME             wait for that
#	interrupted SIG WORD NAME CMD…   SIG as soon as the spy has logged WORD
#	alone NAME CMD…       a program of ours, as root
#	kill9 NAME, dismiss NAME   a peer that nobody asks for any more
#
# with SPY=1, SPY_LIE=… and SPY_FAIL=… for the spy between it and the device
# (labs/tests/spy.c), and PLAIN=1 to do without the recorder.
#
# Each leaves $E/NAME.cmd .out .err .rc, NAME.kept (what it did not give back: kept.c) and,
# of verbs, NAME.qpt (the recorder's) in BOX/seen/SCENE. The learner's code runs as nobody, who can write to one folder of
# the VM's memory and to nothing of BOX; it has limits for time, processes, memory,
# output and disk, and a process group. What is left of it dies with the scene.
box=$1
ROOT=$box B=/tmp/bin T=/tmp/scene
export ROOT B T
# From the VM's own memory they begin at once: none waits for the host within a deadline.
# For the same reason nobody looks for a program in /usr/local, or for a translation.
PATH=/usr/bin:/usr/sbin LC_ALL=${LC_ALL:-C}
rm -rf "$B"
cp -r "$box/bin" "$B"
# shellcheck source=labs/tests/guest.sh
. "$box/guest.sh"
# shellcheck source=labs/exercises/03-qp-states/exercise.sh
. "$box/exercise.sh"

W=/tmp/learner            # all that the learner can write to
# seconds for the next program that overruns
read -ra limits <<<"${patience:-5 4 3}"
MAX_OUTPUT=1024           # KiB of one file that it writes, 64 MB in all
port=18515

# confined NAME CMD…: replaces this shell
confined() {
	local name=$1 preload=$B/libqptrace.so
	shift
	cd "$W" || exit 99
	ulimit -c 0 -f "$MAX_OUTPUT" -v 1000000 -t 10 -u 48
	[[ ! ${PLAIN:-} ]] || preload=''
	export QPTRACE_FILE=$W/$name.qpt MALLOC_PERTURB_=165 SPY_LOG=$W/$name.log
	export LD_PRELOAD=$preload${SPY:+ $B/spy.so}${UNKEPT:- $B/kept.so} KEPT=$W/$name.kept KEPT_FOLDER=$B
	echo "${*##*/}" >"$T/$name.cmd"
	exec "$B/confine" "${limits[0]:-1}" "$@"
}

learner() { run "$1" confined "$@" && overran "$1"; }
serving() { serve "$1" confined "$@"; }
alone() { run "$@"; }

# overran NAME: who runs on for ever is given less next time
overran() {
	case $(<"$T/$1.rc") in
	124 | 137)
		limits=("${limits[@]:1}")
		echo "$1" >>"$T/overran"
		;;
	esac
}

# dismiss NAME: it ends when the other has closed; if nobody came, it is killed
dismiss() {
	local await_s=1
	await ended "${pids[$1]}" 2>/dev/null
	! ended "${pids[$1]}" || { reap "$1" && return; }
	kill9 "$1" 2>/dev/null
}

# interrupted SIGNAL WORD NAME CMD…: as soon as its log has WORD it gets SIGNAL
interrupted() {
	local await_s=5
	start "$3" confined "${@:3}"
	await in_file_or_ended "$2" "$W/$3.log" "$pid"
	sleep 0.1
	kill "-$1" "$pid"
	reap "$3"
	overran "$3"
}
in_file_or_ended() { in_file "$1" "$2" || ended "$3"; }

# pair NAME [SERVER'S ARGS…] : [CLIENT'S ARGS…]
pair() {
	local name=$1 args=()
	shift
	while [[ $1 != : ]]; do
		args+=("$1")
		shift
	done
	serving "$name.s" "$B/rdma_server" -t 3 "${args[@]}"
	learner "$name.c" "$B/rdma_client" -t 3 "${@:2}"
	reap "$name.s"
	overran "$name.s"
}

# look NAME: what the devices hold now
look() { rdma resource show qp >"$T/$1.qp" && rdma resource show >"$T/$1.all"; }

# keep SCENE: what was seen, for the host: ordinary files only
keep() {
	local file files=()
	for file in "$T"/* "$W"/*; do
		[[ ! -f $file || -L $file ]] || files+=("$file")
	done
	# In one file: each that the host has to make costs as much as a program of the scene.
	tar -cPf "$box/seen/$1.tar" --mode=644 --transform='s|.*/||' "${files[@]}"
}

clean_up() {
	"$B/confine"
	rm -rf "${T:?}"/* "${W:?}"/*
}

begin
set +u
chmod 666 /dev/infiniband/{uverbs*,rdma_cm}
ulimit -l unlimited
mkdir -p "$W"
mount -t tmpfs -o size=64m,nr_inodes=1000,uid=65534,gid=65534,mode=700 learner "$W"
for scene in "${scenes[@]}"; do
	[[ ! -e $box/only ]] || grep -qxF "$scene" "$box/only" || continue
	clean_up
	((${#limits[@]})) || { echo "stopped $scene"; continue; }
	"scene_$scene"
	keep "$scene"
	echo "done $scene"
done
clean_up
umount "$W"
