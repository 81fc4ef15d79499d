# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
#
# catalogue.sh - what the suites of the explainer and its catalogue share.

LEAST=40 # faults in the catalogue

# These faults take links down: never on a real machine.
export LAB=vm

# faults ARG…: its output in $T/out, sets $rc
faults() {
	rc=0
	labs/faults/run "$@" >"$T/out" 2>"$T/err" || rc=$?
}

# sanitized OUT EXTRA SOURCE…: link OUT with ASan and UBSan, of EXTRA and of the
# objects that other suites have from these sources, too.
sanitized() {
	local objects=("${@:3}")
	objects=("${objects[@]/#/build/asan/}")
	objects=("${objects[@]/%.c/.o}")
	build -C "$SOURCES" -j"$(nproc)" BUILD=build/asan SANITIZE=1 \
		"${objects[@]}" >"$T/make" 2>&1 || fail "$(cat "$T/make")"
	# shellcheck disable=SC2086 # none, or one
	"${CC:-cc}" -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE \
		-I"$SOURCES/common" -fsanitize=address,undefined \
		-fno-sanitize-recover=all -o "$1" $2 \
		"${objects[@]/#/$SOURCES/}" -libverbs || fail "no $1"
}

# from GLOB: what matches in the sources under test
from() { (cd "$SOURCES" && compgen -G "$1"); }
