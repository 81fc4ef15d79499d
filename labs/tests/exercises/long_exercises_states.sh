#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What prove (exercises.sh) says of the grader, in the exercises about states, and what fails.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_03_qp_state() { prove 03; }
test_07_ten() { prove 07; }

. shunit2
