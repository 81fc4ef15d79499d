#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# hang.sh - the run that hung, again: see usage() below.
set -euo pipefail
root=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
sysfs=/sys/class/infiniband
port=13340
START_LIMIT=60 # seconds

usage() {
	cat <<-'END'
	usage: hang.sh [--seconds N] [--trace FILE] [--log FILE] [NAME=VALUE...]

	ucx_perftest tag_lat, the server on rxe0, the client on rxe1, with the
	settings NAME=VALUE in the environment of both. Says how each of them ended,
	and what the two devices counted meanwhile.

	--seconds N   the time that both have once packets travel (default 20)
	--trace FILE  record the client with labs/qptrace
	--log FILE    keep what the client printed

	Exit: 0 both are done, 1 not, 2 wrong usage, 77 cannot run here.
	END
}

# die CODE CAUSE NEXT
die() {
	echo "hang.sh: $2" >&2
	echo "hang.sh: next: $3" >&2
	exit "$1"
}

# wrong CAUSE
wrong() { die 2 "$1" "hang.sh --help"; }

parse() {
	seconds=20 trace='' log='' settings=()
	while (($#)); do
		case $1 in
		--seconds | --trace | --log)
			(($# >= 2)) || wrong "$1 needs a value"
			declare -g "${1#--}=$2"
			shift
			;;
		-h | --help) usage && exit 0 ;;
		-*) wrong "there is no option $1" ;;
		[A-Za-z_]*=*) settings+=("$1") ;;
		*) wrong "\"$1\" is no NAME=VALUE" ;;
		esac
		shift
	done
	[[ $seconds =~ ^[1-9][0-9]{0,2}$ ]] ||
		wrong "--seconds $seconds: a number from 1 to 999"
}

address_of() {
	local netdev
	netdev=$(<"$sysfs/$1/ports/1/gid_attrs/ndevs/0")
	ip -4 -o addr show dev "$netdev" | awk '{ sub(/\/.*/, "", $4); print $4; exit }'
}

# counters DEVICE: "NAME VALUE" lines
counters() {
	local name
	for name in sent_pkts rcvd_pkts rdma_sends rdma_recvs; do
		echo "$name $(<"$sysfs/$1/ports/1/hw_counters/$name")"
	done
}

# counted DEVICE: since the start
counted() {
	paste -d' ' "$work/$1" <(counters "$1") |
		awk -v device="$1" '
			{ text = text (NR > 1 ? ", " : "") $1 " " $4 - $2 }
			END { print device ": " text }'
}

# perftest DEVICE COMMAND...: in the background, its process in $!
perftest() {
	local device=$1
	shift
	# stderr: what is in stdout's buffer would be lost with the process.
	env UCX_LOG_FILE=stderr "${settings[@]}" "UCX_NET_DEVICES=$device:1" \
		"$@" >"$work/$device.out" 2>&1 &
}

# A server takes one connection only, so look instead of knocking.
await_server() {
	local until=$((SECONDS + START_LIMIT))
	while [[ -z $(ss -ltnH "sport = :$port") ]]; do
		[[ -n $(jobs -rp) ]] || return 0
		((SECONDS < until)) ||
			die 1 "the server does not listen after $START_LIMIT s" "try it by hand"
		sleep 0.1
	done
}

packets_travel() {
	local device
	for device in rxe0 rxe1; do
		[[ $(counted "$device") != *"rcvd_pkts 0,"* ]] || return 1
	done
}

# The clock starts with the first packets: a busy machine must not look like a
# hang.
await_both() {
	local until=$((SECONDS + START_LIMIT)) started=''
	while [[ -n $(jobs -rp) ]] && ((SECONDS < until)); do
		if [[ ! $started ]] && packets_travel; then
			started=1
			until=$((SECONDS + seconds))
		fi
		sleep 0.1
	done
}

# ended WHO DEVICE PID: 0 if it is done
ended() {
	local why rc=0
	wait "$3" || rc=$?
	why=$(grep -o 'ERROR .*' "$work/$2.out" | head -n 1 | sed 's/^ERROR *//') || true
	case $rc in
	0) echo "$1 on $2: done" ;;
	143) echo "$1 on $2: not done after $seconds s" ;;
	*) echo "$1 on $2: failed (exit code $rc)${why:+: $why}" ;;
	esac
	return "$rc"
}

# signal_all NAME: to those that still run
signal_all() {
	local pid
	for pid in $(jobs -p); do
		kill "-$1" "$pid" 2>/dev/null || :
	done
}

clean_up() {
	signal_all KILL
	wait
	rm -rf "$work"
}

run() {
	local options=(-t tag_lat -n 20 -w 2 -p "$port") client=() server bad=0
	[[ ! $trace ]] || client=("$root/labs/qptrace" --quiet -o "$trace" --)
	counters rxe0 >"$work/rxe0"
	counters rxe1 >"$work/rxe1"
	perftest rxe0 "$root/labs/tools/ucx_perftest" "${options[@]}"
	server=$!
	await_server
	perftest rxe1 "${client[@]}" "$root/labs/tools/ucx_perftest" "${options[@]}" \
		"$(address_of rxe0)"
	await_both
	# Stopped, they send nothing while the counters are read.
	signal_all STOP
	sleep 0.3
	counted rxe0 >"$work/counted"
	counted rxe1 >>"$work/counted"
	signal_all TERM
	signal_all CONT
	ended server rxe0 "$server" || bad=1
	ended client rxe1 "$!" || bad=1
	cat "$work/counted"
	[[ ! $log ]] || cp "$work/rxe1.out" "$log"
	return "$bad"
}

parse "$@"
command -v ucx_perftest >/dev/null ||
	die 77 "ucx_perftest is missing (package ucx-utils)" "sudo labs/deps.sh test"
if [[ ! -e $sysfs/rxe1 ]]; then
	[[ ! -e /run/rdma-lab-vm ]] || die 77 "there is no rxe1 here" "labs/rxe.sh setup --pair"
	exec "$root/labs/lab" run "$root/lessons/13-ucx-tag-matching/hang.sh" "$@"
fi
work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
run
