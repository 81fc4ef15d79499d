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

DATA=$SOURCES/common/explain/qp_table_data.c
STATES='RESET INIT RTR RTS SQD SQE ERR'
TYPES='RC UC UD XRC_INI XRC_TGT'

CFLAGS=(-O1 -Wall -Wextra -Werror -std=gnu11 -D_GNU_SOURCE -I"$SOURCES/common" -I"$SOURCES/common/explain")

oneTimeSetUp() {
	sweep=$(mktemp -d "$ROOT/build/sweep.XXXXXX")
	export SWEEP=$sweep/qp_sweep
	"${CC:-cc}" "${CFLAGS[@]}" -c -o "$sweep/sweep.o" labs/tests/explain/qp_sweep.c
	"${CC:-cc}" "${CFLAGS[@]}" -c -o "$sweep/table.o" \
		"$SOURCES/common/explain/qp_table.c"
	"${CC:-cc}" "${CFLAGS[@]}" -c -o "$sweep/rxe.o" \
		"$SOURCES/common/explain/rxe_facts.c"
	build_sweep "$SWEEP" "$DATA" || fail "cannot build qp_sweep"
}

oneTimeTearDown() { rm -rf "$sweep"; }

# build_sweep OUT DATA: with the table that DATA holds
build_sweep() {
	"${CC:-cc}" "${CFLAGS[@]}" -o "$1" "$sweep"/{sweep,table,rxe}.o "$2" \
		-libverbs
}

# explain NAME ARGS…: leaves NAME.out, .err and .rc in $T
explain() {
	local name=$1 rc=0
	shift
	"$B/qp_explain" "$@" >"$T/$name.out" 2>"$T/$name.err" || rc=$?
	echo "$rc" >"$T/$name.rc"
}

# ---- the kernel

# One clean VM serves two tests; what it left is in $asked.
ask_the_kernel() {
	asked=$sweep/asked
	[[ ! -d $asked ]] || return 0
	in_lab --fresh '
		cd /sys/kernel/tracing
		echo "p:asked ib_modify_qp_is_ok" >kprobe_events
		echo 1 >events/kprobes/asked/enable
		cd "$ROOT"
		run drive timeout 60 "$SWEEP" drive
		cp /sys/kernel/tracing/kprobe_profile "$T/hits"
		run memory timeout 60 "$SWEEP" memory
		dmesg >"$T/dmesg"
	' || return 1
	cp -r "$T" "$asked"
}

# What the probe counts is what got through libibverbs, uverbs and ib_core: a
# filter above the table could otherwise pass for a table that agrees.
test_the_kernel_agrees_call_by_call() {
	local T=$T tried all early hits
	ask_the_kernel || return 0
	T=$asked
	out_of drive
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

# wrong NAME OLD NEW: a sweep with another table: NEW for the first OLD
wrong() {
	awk -v old="$2" -v new="$3" '
	!done && (at = index($0, old)) {
		$0 = substr($0, 1, at - 1) new substr($0, at + length(old))
		done = 1
	}
	{ print }
	END { exit !done }' "$DATA" >"$T/$1.c" || fail "$DATA has no $2"
	build_sweep "$T/$1" "$T/$1.c" || fail "cannot build $1"
}

test_a_wrong_table_is_found_row_by_row() {
	wrong lacks 'ROW(INIT, RTR, CONNECT | RESPONDER' \
		'ROW(INIT, RTR, CONNECT | IBV_QP_MAX_DEST_RD_ATOMIC'
	wrong wants 'ROW(RTS, SQD, 0' 'ROW(RTS, SQD, IBV_QP_SQ_PSN'
	wrong allows 'ROW(RTR, RTS, IBV_QP_SQ_PSN, OPT_MOVE' \
		'ROW(RTR, RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY | OPT_MOVE'
	wrong forbids 'ROW(INIT, INIT, 0, OPT_INIT' 'ROW(INIT, INIT, 0, 0'
	wrong leads 'ROW(RESET, RESET, 0' 'ROW(RESET, ERR, 0'
	wrong xrc 'ROW(RTR, RTS, IBV_QP_TIMEOUT' 'ROW(RTR, RTS, IBV_QP_RETRY_CNT'
	in_lab --fresh '
		for name in lacks wants allows forbids leads; do
			run drive.$name timeout 60 "$T/$name" drive
		done
		for name in leads xrc; do
			run memory.$name timeout 60 "$T/$name" memory
		done
	' || return 0
	local name
	for name in drive.{lacks,wants,allows,forbids,leads} memory.{leads,xrc}; do
		assertEquals "$name" 1 "$(rc_of "$name")"
	done
	assert_in "$(out_of drive.lacks)" \
		'^DIFFER RC INIT -> RTR, with MIN_RNR_TIMER: expected EINVAL, got OK'
	assert_in "$(out_of drive.wants)" \
		'^DIFFER RC RTS -> SQD, without SQ_PSN: expected EINVAL, got OK'
	assert_in "$(out_of drive.allows)" \
		'^DIFFER UC RTR -> RTS, with QKEY: expected OK, got EINVAL'
	assert_in "$(out_of drive.forbids)" \
		'^DIFFER RC INIT -> INIT, with PORT: expected EINVAL, got OK'
	assert_in "$(out_of drive.leads)" \
		'^DIFFER RC RESET -> ERR, required set STATE: expected OK, got EINVAL'
	assert_in "$(out_of drive.leads)" \
		'^DIFFER RC RESET -> RESET, .*: expected EINVAL, got OK'
	assertEquals 2 "$(grep -c '^DIFFER RC RESET -> ' "$T/memory.leads.out")"
	assert_in "$(out_of memory.xrc)" '^DIFFER XRC_TGT RTR -> RTS: '
	assertEquals 1 "$(grep -c ^DIFFER "$T/memory.xrc.out")"
}

test_qp_sweep_where_it_cannot_run() {
	local rc=0
	"$SWEEP" drive no_such_device 2>/dev/null || rc=$?
	assertEquals 77 "$rc"
	rc=0
	"$SWEEP" nonsense 2>/dev/null || rc=$?
	assertEquals 2 "$rc"
}

# ---- qp_explain

test_json_has_every_row() {
	local type
	explain all --json
	assertEquals 0 "$(rc_of all)"
	assertEquals "$TYPES" "$(json all '.types[].type' | xargs)"
	for type in $TYPES; do
		explain "$type" --json --type "$type"
		assertEquals "rows of $type" "1 22" "$(json "$type" \
			'"\(.types | length) \(.types[0].transitions | length)"')"
	done
	assertEquals 'the same, asked for at once or by type' \
		"$(json all '.types[]')" \
		"$(for type in $TYPES; do json "$type" '.types[]'; done)"
	assertEquals 'attributes' 22 "$(json all '.attributes | length')"
	assertEquals 'attributes of UD' \
		'STATE CUR_STATE EN_SQD_ASYNC_NOTIFY PKEY_INDEX PORT QKEY SQ_PSN' \
		"$(json UD '.attributes[].name' | xargs)"
}

# Each bit is a power of two of its own, the masks are the sums of the names,
# and no line of an attribute is empty.
test_json_is_consistent() {
	explain all --json
	assertEquals true "$(json all '
		(.attributes | map({(.name): .bit}) | add) as $bit |
		([.attributes[].bit] | unique | length) == 22 and
		([.types[].transitions[] |
			.required_mask == ([.required[] | $bit[.]] | add) and
			.optional_mask == ([.optional[] | $bit[.]] | add // 0) and
			(.what | length) > 0] | all) and
		([.attributes[] | (.what, .range, .source, .members[]) != ""] |
			all)')"
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

# Text, Markdown and JSON show the same rows in the same order.
test_formats_agree() {
	local type json text markdown
	for type in $TYPES; do
		explain j -j -t "$type"
		explain t -t "$type"
		explain m -m -t "$type"
		json=$(json j '.types[0].transitions[] | "\(.from) \(.to)"')
		text=$(sed -n 's/^ *[0-9]*  \([A-Z]*\) -> \([A-Z]*\)$/\1 \2/p' "$T/t.out")
		markdown=$(sed -n 's/^| [0-9]* | \([A-Z]*\) → \([A-Z]*\) |.*/\1 \2/p' "$T/m.out")
		assertEquals "$type in text" "$json" "$text"
		assertEquals "$type in Markdown" "$json" "$markdown"
		assertEquals "bits of $type in Markdown" \
			"$(json j '.types[0].transitions[] |
				"\(.required[1:] | join(", ")) | \(.optional | join(", "))"')" \
			"$(awk -F' [|] ' '/^[|] [0-9]/ { print $3 " | " $4 }' "$T/m.out" |
				sed 's/^- |/ |/; s/| -$/| /')"
	done
	assertEquals 'text wider than a terminal' '' \
		"$("$B/qp_explain" | awk 'length > 79')"
	assertEquals 'columns' 5 "$("$B/qp_explain" -m | awk -F'[|]' '
		/^```/ { fenced = !fenced }
		!fenced && /^[|]/ { print NF - 2 }' | sort -u)"
}

# The numbers of the drawing are those of the rows: each once.
test_diagram_has_all_transitions() {
	local how
	for how in --markdown ''; do
		assertEquals "$(seq 22)" "$("$B/qp_explain" ${how:+"$how"} --type rc |
			sed -n '/^    +</,/^$\|^```/p' |
			grep -o '[0-9]*' | sort -n)"
	done
	explain all
	assertEquals 'one drawing for all' 1 "$(grep -c '^| RESET' "$T/all.out")"
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
