#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The engine's framing, messages, timers and sessions without an engine and
# without RDMA: C tests, under the sanitizers and under valgrind.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

read -ra MSGPACK <<<"$(make -s print-MSGPACK)" # its name differs by release
LIBS=("-Wl,--as-needed" "${MSGPACK[@]}" -ljansson -luuid -lcrypto -libverbs)
declare -A PARTS=(
	[engine_stream]=ipc/stream
	[engine_proto]='ipc/stream ipc/scan ipc/proto ipc/decode'
	[engine_session]='engine/session engine/buffer engine/auth ipc/proto ipc/stream
		base/timers base/array base/deadline base/report base/failure explain/explain
		explain/switch explain/net explain/verbs explain/qp_table explain/qp_table_data'
)
declare -A WRAPPED=( # by the test, which refuses memory
	[engine_stream]=realloc
	[engine_session]='calloc reallocarray tsearch'
)
declare -A ARGUMENT=(
	[engine_proto]=labs/tests/engine/engine_frames # recorded frames
	[engine_session]=build		# a folder to write to
)

# built NAME SUFFIX FLAG…: labs/tests/unit_NAME.c and what it needs of common/
built() {
	local name=$1 out=$T/$1$2 source files=()
	shift 2
	for source in ${PARTS[$name]}; do
		files+=("common/$source.c")
	done
	for source in ${WRAPPED[$name]:-}; do
		files+=("-Wl,--wrap=$source")
	done
	"${CC:-cc}" -D_GNU_SOURCE -Icommon -std=gnu11 -g -Wall -Wextra -Werror \
		-Wshadow -Wconversion -Wno-sign-conversion "$@" -o "$out" \
		"labs/tests/engine/unit_$name.c" "${files[@]}" "${LIBS[@]}"
	assertEquals "compiling unit_$name.c" 0 $?
}

# passes NAME: under the sanitizers, and (open descriptors too) under valgrind
passes() {
	local arguments=()
	[[ ! ${ARGUMENT[$1]:-} ]] || arguments=("${ARGUMENT[$1]}")
	built "$1" .asan -O1 "-fsanitize=address,undefined" \
		-fno-sanitize-recover=all &
	built "$1" .plain -O1
	wait
	assertEquals "$1: 0 failures" \
		"$(timeout 60 "$T/$1.asan" "${arguments[@]}" 2>&1)"
	assertEquals "$1: 0 failures" \
		"$(timeout 120 valgrind -q --error-exitcode=9 --leak-check=full \
			"$T/$1.plain" "${arguments[@]}" 2>&1)"
}

test_framing() { passes engine_stream; }

test_messages() { passes engine_proto; }

test_sessions() { passes engine_session; }

# The corpus of the fuzzer begins with the recorded frames.
test_recorded_frames_are_seeds() {
	local frame
	assertEquals 21 "$(find labs/tests/engine/engine_frames -name '*.bin' | wc -l)"
	for frame in labs/tests/engine/engine_frames/*.bin; do
		cmp "$frame" "labs/tests/fuzz/corpus/engine_proto/${frame##*/}"
		assertEquals "$frame" 0 $?
	done
}

. shunit2
