#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# common/qp_table against the running kernel, by asking it (ibv_modify_qp) and by
# reading its table from memory; then qp_explain, which prints the table.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

STATES='RESET INIT RTR RTS SQD SQE ERR'
TYPES='RC UC UD XRC_INI XRC_TGT'

oneTimeSetUp() {
	sweep=$(mktemp -d "$ROOT/build/sweep.XXXXXX")
	export SWEEP=$sweep/qp_sweep
	helper "$SWEEP" -O1 labs/tests/explain/qp_sweep.c \
		"$SOURCES"/common/explain/{qp_table,qp_table_data,rxe_facts}.c -libverbs || fail 'no qp_sweep'
}

oneTimeTearDown() { rm -rf "$sweep"; }

# explain NAME ARGS…: leaves NAME.out, .err and .rc in $T
explain() {
	local name=$1 rc=0
	shift
	"$B/qp_explain" "$@" >"$T/$name.out" 2>"$T/$name.err" || rc=$?
	echo "$rc" >"$T/$name.rc"
}

# ---- the kernel

# One command serves two tests; what it left is in $asked.
ask_the_kernel() {
	asked=$sweep/asked
	[[ ! -d $asked ]] || return 0
	in_lab '
		lines=$(dmesg | wc -l)
		cd /sys/kernel/tracing
		echo "p:asked ib_modify_qp_is_ok" >kprobe_events
		echo 1 >events/kprobes/asked/enable
		cd "$ROOT"
		run drive timeout 60 "$SWEEP" drive
		cp /sys/kernel/tracing/kprobe_profile "$T/hits"
		echo 0 >/sys/kernel/tracing/events/kprobes/asked/enable
		echo >/sys/kernel/tracing/kprobe_events
		run memory timeout 60 "$SWEEP" memory
		dmesg | tail -n "+$((lines + 1))" >"$T/dmesg"
	' || return 1
	cp -r "$T" "$asked"
}

# What the probe counts is what got through libibverbs, uverbs and ib_core: a
# filter above the table could otherwise pass for a table that agrees.
test_the_kernel_agrees_call_by_call() {
	local T=$T tried all early hits
	ask_the_kernel || return 0
	T=$asked
	assertEquals "$(out_of drive; err_of drive)" 0 "$(rc_of drive)"
	tried=$(sed -n 's/^tried \([0-9]*\) calls: .* 0 differ$/\1/p' "$T/drive.out")
	assertTrue "only ${tried:-none} tried" "((${tried:-0} > 3000))"
	read -r all early < <(sed -n 's/^modify calls in all: \([0-9]*\), .*table: \([0-9]*\) .*/\1 \2/p' "$T/drive.out")
	hits=$(awk '$1 == "asked" { print $2 }' "$T/hits")
	assertEquals 'calls that reached the table' $((all - early)) "$hits"
	assertEquals 'left out, with the reason' 9 \
		"$(grep -cE '^left out: ((RC|UC|UD) SQE|XRC)' "$T/drive.out")"
	assert_not_in "$(cat "$T/dmesg")" 'BUG:|Oops|WARNING:|protection fault'
}

# Of all types, those that rxe cannot make, and the rows from SQE, included.
test_the_kernels_memory_agrees() {
	local T=$T
	ask_the_kernel || return 0
	T=$asked
	assertEquals "$(out_of memory; err_of memory)" 0 "$(rc_of memory)"
	assertEquals 'compared 245 cells of 5 types: 0 differ' "$(out_of memory)"
}

# ---- qp_explain

# Each type has its rows, each bit is a power of two of its own, the masks are the sums
# of the names, and no line of an attribute is empty.
test_json() {
	explain all --json
	assertEquals 0 "$(rc_of all)"
	assertEquals "$TYPES" "$(json all '.types[].type' | xargs)"
	assertEquals true "$(json all '
		(.attributes | map({(.name): .bit}) | add) as $bit |
		([.attributes[].bit] | unique | length) == 22 and
		([.types[].transitions | length == 22] | all) and
		([.types[].transitions[] |
			.required_mask == ([.required[] | $bit[.]] | add) and
			.optional_mask == ([.optional[] | $bit[.]] | add // 0) and
			(.what | length) > 0] | all) and
		([.attributes[] | (.what, .range, .source, .members[]) != ""] |
			all)')"
	explain UD --json --type UD
	assertEquals 'attributes of UD' \
		'STATE CUR_STATE EN_SQD_ASYNC_NOTIFY PKEY_INDEX PORT QKEY SQ_PSN' \
		"$(json UD '.attributes[].name' | xargs)"
}

test_one_step_in_text() {
	explain step init Rtr
	assertEquals 0 "$(rc_of step)"
	assert_in "$(out_of step)" '^RC INIT -> RTR: legal$'
	assertEquals 'STATE AV PATH_MTU RQ_PSN MIN_RNR_TIMER MAX_DEST_RD_ATOMIC DEST_QPN' \
		"$(names_under required)"
	assertEquals 'ACCESS_FLAGS PKEY_INDEX ALT_PATH' "$(names_under optional)"
	assert_in "$(out_of step)" '^  RQ_PSN +from the peer +rq_psn$'
	assert_in "$(out_of step)" '^      IBV_MTU_256 \(1\).*not bytes'
	explain step --type=ud INIT RTR
	assertEquals STATE "$(names_under required)"
	explain step -t uc sqd sqd
	assert_in "$(out_of step)" '^  note: AV .*refused'
}

# names_under WORD: of the attributes below that line of step.out
names_under() {
	awk -v word="$1" '
	/^[a-z]+$/ { here = $1 == word; next }
	here && /^  [A-Z]/ { print $1 }' "$T/step.out" | xargs
}

# Text, Markdown and JSON show the same rows in the same order; in the drawing each has
# its number, once.
test_formats_agree() {
	local rows how
	explain j -j -t rc
	explain t -t rc
	explain m -m -t rc
	rows=$(json j '.types[0].transitions[] | "\(.from) \(.to)"')
	assertEquals 'text' "$rows" "$(sed -n 's/^ *[0-9]*  \([A-Z]*\) -> \([A-Z]*\)$/\1 \2/p' "$T/t.out")"
	assertEquals 'Markdown' "$rows" "$(sed -n 's/^| [0-9]* | \([A-Z]*\) → \([A-Z]*\) |.*/\1 \2/p' "$T/m.out")"
	for how in t m; do
		assertEquals "$how: drawing" "$(seq 22)" "$(sed -n '/^    +</,/^$\|^```/p' "$T/$how.out" |
			grep -o '[0-9]*' | sort -n)"
	done
	assertEquals 'text wider than a terminal' '' "$(awk 'length > 79' "$T/t.out")"
}

# Every pair of every type: legal exactly where there is a row; else a way, each
# step of which is a row, or none, to SQE.
test_every_pair_of_states() {
	local type from to
	explain all --json
	for type in $TYPES; do
		for from in $STATES; do
			for to in $STATES; do
				explain pair --json --type "$type" "$from" "$to"
				cat "$T/pair.out" >>"$T/pairs"
				cat "$T/pair.rc" >>"$T/codes"
			done
		done
	done
	assertEquals 245 "$(jq -s length "$T/pairs")"
	assertEquals '' "$(jq -nc --slurpfile all "$T/all.out" \
		--slurpfile codes "$T/codes" '
		[inputs] | to_entries[] | (.value + {rc: $codes[.key]}) |
		. as $pair |
		[$all[0].types[] | select(.type == $pair.type) |
			.transitions[] | [.from, .to]] as $rows |
		(.path // []) as $path |
		select((
			.legal == any($rows[]; . == [$pair.from, $pair.to]) and
			.rc == (if .legal then 0 else 1 end) and
			(.legal or .to == "SQE" or (
				$path[0] == .from and $path[-1] == .to and
				.legal_from == [$rows[] |
					select(.[0] == $pair.from)[1]] and
				([range(1; $path | length)] | all(
					[$path[. - 1], $path[.]] as $step |
					any($rows[]; . == $step)))
			)) and (.to != "SQE" or $path == [])) | not)' "$T/pairs")"
}

test_ways_are_the_shortest() {
	local from to way
	while read -r from to way; do
		explain step "$from" "$to"
		assertEquals 1 "$(rc_of step)"
		assert_in "$(out_of step)" "^  way to $to: $way$"
		explain step -m "$from" "$to"
		assert_in "$(out_of step)" "^- way to $to: $way$"
	done <<-'END'
		ERR RTS ERR -> RESET -> INIT -> RTR -> RTS
		ERR INIT ERR -> RESET -> INIT
		RESET ERR RESET -> INIT -> ERR
		INIT RTS INIT -> RTR -> RTS
		RTR RTR RTR -> RESET -> INIT -> RTR
		RTS RTR RTS -> RESET -> INIT -> RTR
		RTR SQD RTR -> RTS -> SQD
		RTS SQE none: .* by itself, .*
	END
	assert_in "$("$B/qp_explain" rtr rtr)" '^  legal from RTR: RESET, RTS, ERR$'
}

# ids N FROM TO [OPTION…]: the causes of that errno, in order
ids() { "$B/qp_explain" --errno "$@" | sed -nE 's/^ *[0-9]+  E.* ([a-z-]+): .*/\1/p' | xargs; }

test_causes_of_an_errno() {
	assertEquals 'av-port no-such-state no-grh gid-families-differ alt-path no-way bits-missing bits-forbidden path-mtu-not-enum access-unknown' \
		"$(ids 22 INIT RTR)"
	assertEquals no-neighbour "$(ids 110 INIT RTR)"
	assertEquals qkey-controlled "$(ids 1 RESET INIT --type UD)"
	assertEquals 'no address in RTS' '' "$(ids 61 RTR RTS)"
	explain none --errno 5 INIT RTR
	assertEquals 1 "$(rc_of none)"
	explain illegal --errno 22 ERR INIT
	assertEquals 1 "$(rc_of illegal)"
	assert_in "$(out_of illegal)" 'way to INIT: ERR -> RESET -> INIT'
}

# Each text of the tables in Chinese, too: no cell is empty, and none that is prose is left.
test_tables_in_chinese() {
	explain zh --lang zh --markdown
	assertEquals 0 "$(rc_of zh)"
	assertEquals 'cells without Chinese' '' "$(out_of zh | grep -E '^\| [0-9A-Z]' |
		grep -E '[a-z]+ [a-z]+ [a-z]|\|  \|')"
	assert_in "$(out_of zh)" '^\| RQ_PSN \| rq_psn \| 对端 \|'
}

test_wrong_usage() {
	local args
	while read -r args; do
		# shellcheck disable=SC2086 # words
		explain usage $args
		assert_error usage 2 '.'
		assertEquals "stdout of $args" '' "$(out_of usage)"
	done <<-'END'
		INIT
		INIT RTR RTS
		INIT RTX
		0 1
		--type RAW_PACKET
		--type
		--json --markdown
		--lang fr
		--errno 22
		--errno 22 --json INIT RTR
		--errno EINVAL INIT RTR
		--bogus
		--json=1
	END
	explain help --help
	assertEquals 0 "$(rc_of help)"
	assert_in "$(out_of help)" '^usage: qp_explain '
}

test_output_that_is_lost_is_a_failure() {
	local how rc
	for how in --json --markdown ''; do
		rc=0
		"$B/qp_explain" ${how:+"$how"} >/dev/full 2>"$T/full.err" || rc=$?
		echo "$rc" >"$T/full.rc"
		assert_error full 1 'could not be written'
	done
}

. shunit2
