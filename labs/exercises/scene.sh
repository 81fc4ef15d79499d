#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034,SC2154
#
# scene.sh - in a VM of its own: run the learner's programs in each scene of an
# exercise and keep what was seen. It judges nothing; judge.sh on the host does.
#
#	scene.sh BOX
#
# BOX has bin/ (the real programs with the learner's stage inside, spy.so, peer,
# libqptrace.so), guest.sh and exercise.sh, whose functions scene_NAME run programs; if
# there is a file "only", just the scenes that it names:
#
#	learner NAME CMD…     until it ends
#	serving NAME CMD…     in the background, until it listens on $port
#	reap NAME             wait for that
#	alone NAME CMD…       a program of ours, as root
#
# with SPY=1, SPY_LIE=… and SPY_FAIL=… for the spy between it and the device
# (labs/tests/spy.c), and PLAIN=1 to do without the recorder.
#
# Each leaves $E/NAME.out .err .rc and, of verbs, NAME.qpt (the recorder's) in
# BOX/seen/SCENE. The learner's code runs as nobody, who can write to one folder of
# the VM's memory and to nothing of BOX; it has limits for time, processes, memory,
# output and disk, and a process group. What is left of it dies with the scene.
box=$1
ROOT=$box B=/tmp/bin T=/tmp/scene
export ROOT B T
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
	local name=$1
	shift
	cd "$W" || exit 99
	ulimit -c 0 -f "$MAX_OUTPUT" -v 1000000 -t 10 -u 48
	export QPTRACE_FILE=$W/$name.qpt QPTRACE_QUIET=1 MALLOC_PERTURB_=165
	export LD_PRELOAD=$B/libqptrace.so${SPY:+:$B/spy.so} SPY_LOG=$W/$name.log
	[[ ! ${PLAIN:-} ]] || LD_PRELOAD=${SPY:+$B/spy.so}
	# Of forks that are refused the kernel frees the memory only if it is let.
	exec timeout -k 1 "${limits[0]:-1}" nice -n 15 setpriv --reuid=65534 --regid=65534 \
		--clear-groups --no-new-privs "$@"
}

learner() { run "$1" confined "$@" && overran "$1"; }
serving() { serve "$1" confined "$@"; }
alone() { run "$@"; }

# overran NAME: who runs on for ever is given less next time
overran() {
	case $(<"$T/$1.rc") in
	124 | 137) limits=("${limits[@]:1}") ;;
	esac
}

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
	mkdir "$box/seen/$1"
	cp "${files[@]}" "$box/seen/$1/"
}

clean_up() {
	pkill -KILL -u 65534
	rm -rf "$T" "${W:?}"/*
	mkdir -p "$T"
}

begin
set +u
chmod 666 /dev/infiniband/uverbs*
ulimit -l unlimited
# From the VM's own memory they begin at once: none waits for the host within a deadline.
rm -rf "$B"
cp -r "$box/bin" "$B"
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
