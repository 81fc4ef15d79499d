#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The grader is right about two sides that talk: starters get nothing, the course's own stages
# all, mistakes lose points for the right reason, and right solutions in another hand
# lose none.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_04_tcp_sync() { prove 04; }
test_05_transfer() { prove 05; }

. shunit2
