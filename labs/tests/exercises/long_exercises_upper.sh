#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The grader is right about what stands on a connection: starters get nothing, the course's own stages
# all, mistakes lose points for the right reason, and right solutions in another hand
# lose none.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_06_plugin() { prove 06; }
test_13_credit() { prove 13; }
test_14_reads() { prove 14; }

. shunit2
