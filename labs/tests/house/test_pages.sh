#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The code, headings, links and pictures of this tree's pages; what their commands print
# is in long_docs.sh.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

test_pages_show_this_tree() {
	local out rc=0
	[[ -x build/qp_explain ]] || build BUILD=build build/qp_explain
	out=$(labs/docs check --no-run 2>&1) || rc=$?
	assertEquals "$out" 0 "$rc"
}

. shunit2
