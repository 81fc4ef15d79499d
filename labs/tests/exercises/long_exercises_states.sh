#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The grader is right about states, and what fails: starters get nothing, the course's own stages
# all, mistakes lose points for the right reason, and right solutions in another hand
# lose none.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_03_qp_state() { prove 03; }
test_07_ten() { prove 07; }

. shunit2
