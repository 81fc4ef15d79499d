#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The same as long_exercises.sh, of the exercises that are whole programs.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_00_first_message() { prove 00; }
test_06_plugin() { prove 06; }
test_07_ten() { prove 07; }
test_13_credit() { prove 13; }
test_14_reads() { prove 14; }

. shunit2
