# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# suites.sh - which suites can tell whether a file still does what it should, for
# labs/tests/quick and labs/tests/mutants/, and a copy to try that in. To be sourced at
# the top of the tree.

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

# judges_of FILE: what all stand on is seen by those who stand on it, too
judges_of() {
	suites_of "$1"
	case $1 in
	common/base/*) echo labs/tests/{pair/test_*,ucx/test_ucx_{echo,faults},remote/test_ring}.sh ;;
	esac
}

# long_judges_of FILE: those of test-long, but for what counts strangers' programs
long_judges_of() {
	local room
	for room in $(judges_of "$1" | tr ' ' '\n' | xargs -n 1 dirname | sort -u); do
		compgen -G "$room/long_*.sh" | grep -v bench || :
	done
}

# draw COMMIT NAME: sets $drawn, 0 or 1, for each commit anew
# shellcheck disable=SC2034
draw() {
	local sum
	sum=$(cksum <<<"$1 $2")
	drawn=$((${sum%% *} % 2))
}

# copy_tree FOLDER: what git knows of this one, as a repository of its own
copy_tree() {
	mkdir -p "$1/build"
	git ls-files -z | tar -c --null -T - | tar -x -C "$1" &&
		git -C "$1" init -q && git -C "$1" add -A &&
		git -C "$1" -c user.name=x -c user.email=x commit -qm base
}

# sources_with_faults: the files that labs/tests/mutants/random draws from
sources_with_faults() { git ls-files -- {common,client,server,labs/{nccl-net,recorder,vm}}/'*.c'; }
