# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# qptrace.sh - what the suites of recordings share. Plain runs are p.NAME, recorded
# ones t.NAME with t.NAME.qpt; in t.NAME.json is what `qptrace dump` says of that.

# ---- on the host

# built_in: labs/qptrace takes what was built in $B
built_in() {
	export QPTRACE_BUILD=$ROOT/$B
	[[ $B != /* ]] || QPTRACE_BUILD=$B
}

# build_probes: the programs that are recorded, and what is preloaded into them
build_probes() {
	must_build "$B/libqptrace.so" "$B/qptrace-report"
	for probe in trace_probe verbs_probe two_sides; do
		helper "$B/$probe" -O2 "labs/tests/recorder/$probe.c" -libverbs -lpthread
	done
	built_in
}

# given SESSION: $T has the files that it left in $kept; the first test that asks has it run
# in the lab, by session_SESSION and the functions that $functions names
# shellcheck disable=SC2154 # kept, functions: of the suite
given() {
	local keep=$kept/$1
	if [[ ! -d $keep ]]; then
		in_lab ". labs/tests/recorder/qptrace.sh
			$(declare -f "session_$1" "${functions[@]}")
			mkdir \$recordings; session_$1; bring_out" || return 1
		cp -r "$T" "$keep"
		dump_all "$keep"
	fi
	cp -r "$keep/." "$T"
}

# dump_all DIR: NAME.json of each NAME.qpt there
dump_all() {
	local file
	for file in "$1"/*.qpt*; do
		[[ ! -s $file ]] || labs/qptrace dump "$file" >"${file/.qpt/.json}" || :
	done
}

# recording NAME <LINES: $T/NAME.qpt of these, as `qptrace dump` would print them
recording() {
	[[ -x $B/encode ]] || helper "$B/encode" -O2 -D_GNU_SOURCE -Icommon \
		labs/tests/recorder/encode.c "$B/librdma_common.a" -libverbs -ljansson
	"$B/encode" >"$T/$1.qpt"
}

# count NAME FILTER: lines of NAME.json for which the jq filter holds
count() { jq -c "select($2)" "$T/$1.json" | wc -l; }

# values NAME FILTER: what the filter gives, on one line
values() { jq -r "$2" "$T/$1.json" | xargs; }

# completions NAME: how many it has
completions() { count "$1" '.ev == "completion"'; }

# accepted NAME FILE…: the report takes them; sets $said.
accepted() {
	local rc=0
	said=$(labs/qptrace report "${@:2}" 2>&1) || rc=$?
	assertEquals "report of $1: $said" 0 "$rc"
}

# causes FILTER FILE…: of the causes that the report names, best first
causes() { labs/qptrace report --json "${@:2}" | jq -r ".causes[] | $1"; }

# assert_complete NAME: each signaled post of a finished run has its completion.
assert_complete() {
	assertEquals "completions without a post in $1" 0 \
		"$(count "$1" '.ev == "completion" and .of == null')"
	assertEquals "posts that are completed twice in $1" '' \
		"$(jq 'select(.of).of' "$T/$1.json" | sort | uniq -d)"
}

# ---- in the lab

# In the lab's own memory, and brought out at the end: the shared folder is slow.
recordings=/tmp/recordings.$$
bring_out() {
	find "$recordings" ! -type f ! -type d -delete
	mv "$recordings"/* "$T"
	rmdir "$recordings"
}

limit=(timeout 60)
options=() # of qptrace

# recorded start|run|serve NAME CMD…
recorded() {
	"$1" "$2" "${limit[@]}" labs/qptrace "${options[@]}" -o "$recordings/$2.qpt" -- "${@:3}"
}
