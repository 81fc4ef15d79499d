#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What prove (exercises.sh) says of the grader, in the exercises about what a connection stands on.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_00_first_message() { prove 00; }
test_01_device() { prove 01; }
test_02_resources() { prove 02; }

. shunit2
