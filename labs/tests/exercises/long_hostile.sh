#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Learners' code is hostile by accident: each of these gets its marks, and the next
# learner's check is unharmed.

. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/exercises.sh"

# hostile NAME CODE…: the course's own stage, with CODE where the QP goes to INIT
hostile() {
	mkdir -p "$T/class/$1"
	{
		printf '#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <signal.h>\n#include <fcntl.h>\n'
		sed 's|^int modify_qp_to_init(.*|static void harm(void);\n&|; s|int rc = choose_psn(res);|int rc = (harm(), choose_psn(res));|' "common/$stage"
		printf 'static void harm(void)\n{\n%s\n}\n' "$2"
	} >"$T/class/$1/$stage"
}

# At load time, before any main()
at_start() {
	hostile "$1" ''
	printf '__attribute__((constructor)) static void first(void)\n{\n%s\n}\n' "$2" >>"$T/class/$1/$stage"
}

cause_of() { grep -F "/class/$1\"," "$T/marks.csv" | grep '"fail"' | head -n 20; }

test_each_gets_its_marks_and_harms_nobody() {
	local name most before
	before=$(git status --porcelain 2>/dev/null)
	begin_class 03
	hostile loop '	for (volatile int i = 0; ; i++) ;'
	hostile crash '	*(volatile int *)8 = 1;'
	hostile fork-bomb '	for (;;) fork();'
	hostile output '	for (int i = 0; i < 2000000; i++) puts("one hundred megabytes of this, please, and then some more");'
	hostile memory '	for (;;) { volatile char *p = malloc(1 << 20); if (p) for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1; }'
	hostile disk '	char b[4096] = "x", n[32]; for (int f = 0; f < 500; f++) { snprintf(n, 32, "f%d", f); int d = open(n, O_CREAT | O_WRONLY, 0600); while (d >= 0 && write(d, b, sizeof(b)) > 0) ; }'
	hostile deaf '	for (int s = 1; s < 32; s++) signal(s, SIG_IGN); for (;;) pause();'
	hostile killer '	kill(-1, SIGKILL);'
	hostile escape '	if (!fork()) setsid(); for (;;) pause();'
	hostile vandal '	if (system("rm -rf ../*; for f in $(find / -xdev -writable -type f 2>/dev/null | grep -v ^/proc | head -50); do echo harm >$f; done; pkill -9 bash; reboot -f") < 0) exit(3);'
	at_start prints '	puts("received 24 bytes: \"Hello from RDMA client!\""); fflush(stdout); _exit(0);'
	hostile own-main '' && printf 'int main(void) { puts("received 24 bytes: \\"Hello from RDMA client!\\""); return 0; }\n' >>"$T/class/own-main/$stage"
	hostile makefile '' && printf 'all:\n\ttouch harmed\n' >"$T/class/makefile/Makefile"
	printf '#define HELLO_MAGIC 1\n#error mine\n' >"$T/class/makefile/rdma_common.h"
	cp -r labs/tests/exercises/right/*-direct "$T/class/zz-next"
	grade_class 03
	for name in "$T"/class/*/; do
		name=$(basename "$name")
		# Who harms others and lives on has brought the QP to INIT, and is given that.
		case $name in
		zz-next | makefile) continue ;;
		killer | vandal) most=35 ;;
		*) most=20 ;;
		esac
		assertTrue "$name has $(points "$name")" "(($(points "$name") <= $most))"
	done
	assertEquals 'the next learner' 100 "$(points zz-next)"
	assertEquals 'a Makefile of their own changes nothing' 100 "$(points makefile)"
	assertFalse 'and is not used' "test -e '$T/class/makefile/harmed'"
	assert_in "$(cause_of loop)" 'ran on until it was killed; last verb: ibv_create_qp'
	assert_in "$(cause_of crash)" 'SIGSEGV at qp_state.c:[0-9]+; last verb: ibv_create_qp'
	assert_in "$(cause_of output)" 'wrote more than 1 MB'
	assertEquals 'the tree is as it was' "$before" "$(git status --porcelain 2>/dev/null)"
}

. shunit2
