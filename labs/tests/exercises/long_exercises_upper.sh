#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What prove (exercises.sh) says of the grader, in the exercises about what stands on a connection.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_06_plugin() { prove 06; }
test_13_credit() { prove 13; }
test_14_reads() { prove 14; }

. shunit2
