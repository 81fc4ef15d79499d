#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make install: these files and no others, and they work for somebody who has nothing
# of this tree.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/qp_explain"
}

# installs WHERE ARG…: what lies below WHERE afterwards
installs() {
	make_says=$(build install "${@:2}" 2>&1)
	assertEquals "make install ${*:2}: $make_says" 0 $?
	assertEquals 'what is installed' \
		"LIB/libqptrace.so LIB/qptrace LIB/qptrace-report LIB/report.html LIB/version bin/qp_explain bin/qptrace share/bash-completion/completions/qp_explain share/bash-completion/completions/qptrace share/man/man1/qp_explain.1 share/man/man1/qptrace.1" \
		"$(cd "$1" && find . ! -type d | sed 's/^..//; s,^lib.*qptrace/,LIB/,' | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"
}

test_into_a_package() {
	installs "$T/root/opt/a" DESTDIR="$T/root" PREFIX=/opt/a LIBDIR=/opt/a/lib64
	assertTrue 'LIBDIR' "[ -e '$T/root/opt/a/lib64/qptrace/libqptrace.so' ]"
	assertEquals 'nothing names the way to it' '' "$(find "$T/root" -type l -lname '/*')"
	assertEquals 'not for all to read' '' "$(find "$T/root" ! -type l ! -perm -444)"
	build uninstall DESTDIR="$T/root" PREFIX=/opt/a LIBDIR=/opt/a/lib64 >/dev/null
	assertEquals 'left behind' '' "$(find "$T/root" ! -type d)"
	assertTrue 'a folder of ours is left' "[ ! -e '$T/root/opt/a/lib64/qptrace' ]"
}

# What that user types. It comes by stdin, which the programs are not to read.
user_types() {
	cat <<-'END'
	{
	[[ $(id -un) != root && ! $(ls -A "$ROOT") ]] && echo alone
	qptrace --version && qp_explain --version
	qptrace -o s.qpt ibv_rc_pingpong -d rxe0 -p 18833 -g 1 -n 10 >s.out &
	until [[ $(ss -ltn) == *:18833* ]]; do sleep 0.1; done
	qptrace -o c.qpt ibv_rc_pingpong -d rxe1 -p 18833 -g 1 -n 10 10.99.0.1 >c.out
	echo "client $?" && wait $! && echo "server $?"
	qptrace report s.qpt c.qpt >text && echo "text $?"
	qptrace report --json s.qpt c.qpt >json && echo "json $?"
	qptrace report --html page.html s.qpt c.qpt && echo "page $?"
	qptrace ibv_rc_pingpong -d rxe0 -g 1 -r 10000000 >deep.out 2>deep
	echo "deep $?" && ls qptrace-ibv_rc_pingpong-*.qpt
	qptrace labs/lab run true 2>none
	echo "none $?"
	qp_explain INIT RTR | head -n 1
	} </dev/null
	END
}

# An ordinary user, in another folder; of this tree there is nothing but an empty
# folder, and the installation lies elsewhere than where it was put.
test_without_the_tree() {
	local said
	installs "$T/prefix" PREFIX="$T/prefix"
	chmod 755 "$T" "$T/prefix"
	user_types >"$T/script"
	# shellcheck disable=SC2016 # for the shell in the lab
	in_lab '
		mkdir /tmp/moved && mount --bind "$T/prefix" /tmp/moved
		mkdir -m 777 /tmp/user
		PATH=/tmp/moved/bin:$PATH HOME=/tmp/user timeout 60 unshare -m bash -c "
			mount -t tmpfs none $ROOT && cd /tmp/user && exec setpriv --reuid=65534 \
				--regid=65534 --clear-groups bash -s
		" <"$T/script" >"$T/said" 2>"$T/errors"
		cp -r /tmp/user "$T"
		umount /tmp/moved && rm -r /tmp/moved /tmp/user
	' || return 0
	said=$(sed 's/^\(q[a-z_]*\) [^ ]*[0-9a-f]\{7\}$/\1 VERSION/; s/-[0-9]*\.qpt/-PID.qpt/' "$T/said")
	assertEquals "$(cat "$T/errors")" "alone
qptrace VERSION
qp_explain VERSION
client 0
server 0
text 0
json 0
page 0
deep 1
qptrace-ibv_rc_pingpong-PID.qpt
none 127
RC INIT -> RTR: legal" "$said"
	assertEquals 'stderr' '' "$(cat "$T/errors")"
	assert_in "$(<"$T/user/text")" 'RC: QP [0-9]+ of rxe0 \(A\) and QP [0-9]+ of rxe1 \(B\)'
	assertEquals 'A B' "$(jq -r '[.sides[].side] | join(" ")' "$T/user/json")"
	assert_in "$(<"$T/user/page.html")" '^const data = \{"sides":'
	assert_in "$(<"$T/user/deep")" '^qptrace: ibv_create_cq.*max_cqe'
}

# completes WORD…: what is offered for the last one
completes() {
	bash --norc -c '
		. labs/install/completion.bash
		compopt() { :; } # there is no line that is edited
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
		"_$1" 2>&1
		printf "%s\n" "${COMPREPLY[@]}" | LC_ALL=C sort -u | tr "\n" " "
	' completes "$@"
}

test_completion() {
	local words offered
	touch "$T/a.qpt" "$T/a.txt" && mkdir "$T/ab"
	while IFS='|' read -r words offered; do
		# shellcheck disable=SC2086 # words
		assertEquals "$words" "$offered " "$(eval "completes $words")"
	done <<-END
		qptrace report --h|--help --html
		qptrace report --html x.html $T/a|$T/a.qpt $T/ab
		qptrace --lang ''|en zh
		qptrace -o x --s|--stall
		qptrace --stall 3 mktem|mktemp
		qp_explain --type RC INIT RT|RTR RTS
	END
}

# shellcheck disable=SC1091
. shunit2
