#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# floors.sh - the floors of the house, which CLAUDE.md has in a table, proven by what the
# built objects define and use, and by what the files of common/ include (a header may
# need no symbol). A line for each violation; make all comes first.
set -euo pipefail
cd "$(dirname "$0")/../../.."
build=${BUILD:-build}

# objects: those whose source is still there, by their path below $build; of what
# shared libraries are made of (pic/), those that no program has, too
objects() {
	local object plain
	while read -r object; do
		plain=${object#pic/}
		[[ -e ${plain%.o}.c ]] || continue
		[[ $object != "$plain" && -e $build/$plain ]] || echo "$object"
	done < <(cd "$build" && find common server client lessons labs pic -name '*.o' | sort)
}

# What the system's libraries define: a tool that wraps ibv_create_qp does not become the
# owner of that name.
library_names() {
	find "$build" -maxdepth 1 -type f -perm -u+x -exec ldd {} + 2>/dev/null |
		awk '$3 ~ /^\// { print $3 }' | sort -u |
		xargs -r nm -D -P --defined-only 2>/dev/null |
		awk 'NF > 1 { sub(/@.*/, "", $1); print $1 }' | sort -u
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
floors=$(awk -F'[ |`]+' '/^\| `[a-z_]+` \| ([0-9]+|-) \|/ { print $2, $3 }' CLAUDE.md)
find common -mindepth 1 -maxdepth 1 '(' -type d -o -name '*.c' ')' -printf '%f\n' |
	sed 's/\.c$//' | sort >"$work/rooms"
cut -d' ' -f1 <<<"$floors" | sort | comm -13 "$work/rooms" - |
	sed 's/.*/CLAUDE.md: there is no room &. Remove its row./'
objects >"$work/objects"
find common -name '*.c' | sed 's/c$/o/' | sort | comm -23 - "$work/objects" |
	sed "s/.*/& is not in $build. Run make./"
library_names >"$work/libs"
grep -rE '^#include "' common --include='*.[ch]' |
	awk -v floors="$floors" -f labs/tests/house/includes.awk
(cd "$build" && xargs nm -A -P) <"$work/objects" |
	awk -v floors="$floors" -v libs="$work/libs" -f labs/tests/house/floors.awk
