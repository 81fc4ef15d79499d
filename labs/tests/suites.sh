# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# suites.sh - which suites can tell whether a file still does what it should, for
# labs/tests/quick. To be sourced at the top of the tree.

# suites_of FILE: their paths, some more than once
suites_of() {
	local room=''
	case $1 in
	labs/tests/*/test_*.sh | lessons/*/check.sh) echo "$1" ;;
	labs/tests/mutants/* | .*) ;;
	labs/tests/*/*) room=${1#labs/tests/} ;;
	lessons/*/*) echo "$(dirname "$1")/check.sh" ;;
	lessons/glossary.txt) echo labs/tests/house/test_{docs,pages,prose}.sh ;;
	lessons/*) echo lessons/*/check.sh ;;
	docs-zh/*) compgen -G "lessons/$(basename "$1" .md)/check.sh" || : ;;
	common/ipc/*) room=engine ;;
	common/base/*) echo labs/tests/*/test_*units.sh labs/tests/tcpx/test_tcpx.sh ;;
	common/explain/failed*) echo labs/tests/{explain,pair}/test_*.sh ;;
	common/*/*) room=${1#common/} ;;
	common/*) room=pair ;;
	client/*echo* | server/*echo*) room=ucx ;;
	client/lock* | client/kv* | client/ring* | server/memory* | server/ring*) room=remote ;;
	server/peers*) echo labs/tests/{remote,needle}/test_*.sh ;;
	client/tag* | server/tag*) room=tag ;;
	client/needle* | server/needle*) room=needle ;;
	client/engine* | server/*engine*) room=engine ;;
	client/test_connection* | labs/nccl-net/*) room=tcpx ;;
	client/* | server/*) room=pair ;;
	labs/recorder/* | labs/report/* | labs/install/* | labs/qptrace) room=recorder ;;
	labs/faults/saboteur/* | labs/faults/bench/* | labs/faults/explain-bench)
		echo labs/tests/recorder/test_saboteur.sh ;;
	labs/faults/*) room=explain ;;
	labs/deps.sh | Makefile) echo labs/tests/house/test_deps.sh ;;
	labs/docs | labs/tools/*.awk | labs/tools/glossary | labs/tools/pictures | labs/tools/shots | *.md) echo labs/tests/house/test_{docs,pages,prose}.sh ;;
	labs/*) room=lab ;;
	esac
	[[ ! $room ]] || compgen -G "labs/tests/${room%%/*}/test_*.sh" || :
}
