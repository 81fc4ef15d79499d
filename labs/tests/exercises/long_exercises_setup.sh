#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The grader is right about what a connection stands on: starters get nothing, the course's own stages
# all, mistakes lose points for the right reason, and right solutions in another hand
# lose none.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_00_first_message() { prove 00; }
test_01_device() { prove 01; }
test_02_resources() { prove 02; }

. shunit2
