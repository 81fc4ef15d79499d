#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What prove (exercises.sh) says of the grader, in the exercises about two sides that talk.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

test_04_tcp_sync() { prove 04; }
test_05_transfer() { prove 05; }

. shunit2
