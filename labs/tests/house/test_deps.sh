#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/deps.sh: what it finds missing and what it would install, by package managers
# that are made up here; they know the packages in $F/packages, write what they are
# told to $F/log, and bring a program of the package's name.
#
# shellcheck disable=SC2016 # scripts of the made-up programs are quoted
. "$(dirname "$0")/../lib.sh"

# not below $ROOT: an ordinary user may have no way into the home of root
oneTimeSetUp() {
	FAKES=$(mktemp -d /tmp/deps-test.XXXXXX)
	chmod 755 "$FAKES"
}

oneTimeTearDown() {
	[[ -z ${FAKES:-} ]] || rm -rf "$FAKES"
	FAKES=''
}

# fakes PROGRAM…: an empty machine in $F, and these package managers on it
fakes() {
	local program
	F=$FAKES/$RANDOM$RANDOM
	mkdir -p "$F/bin"
	: >"$F/log"
	for program in bash env cat sed awk tr sort grep uname paste mkdir chmod; do
		ln -s "$(command -v "$program")" "$F/bin/$program"
	done
	# It looks into the sbin folders of this machine, too.
	sed '/^PATH=/d' labs/deps.sh >"$F/deps.sh"
	[[ $UID == 0 ]] || fake sudo '"$@"'
	for program; do fake "$program" "$(declare -f brings)" "$(declare -f "fake_$program")" "fake_$program \"\$@\""; done
}

# fake NAME LINE…: a program
fake() {
	local name=$1
	shift
	printf '%s\n' '#!/usr/bin/env bash' "F=$F" "$@" >"$F/bin/$name"
	chmod 755 "$F/bin/$name"
}

# brings PACKAGE: what the package has in it
brings() {
	local program=$1 body='exit 0'
	case $1 in
	nftables) program=nft ;;
	gettext) program=xgettext ;;
	libxml2-utils | libxml2) program=xmllint ;;
	man-db) program='man' ;;
	rdmacm-utils | librdmacm-utils | rdma-core) program=rping ;;
	ucx-utils | ucx | openucx) program=ucx_perftest ;;
	wireshark-cli) program=tshark ;;
	ShellCheck) program=shellcheck ;;
	clang-tools-extra) program=clang-format ;;
	clang) body="[[ -e $F/runtime ]]" ;;
	libclang-rt-dev | compiler-rt) : >"$F/runtime" && return ;;
	esac
	printf '%s\n' '#!/usr/bin/env bash' "$body" >"$F/bin/$program"
	chmod 755 "$F/bin/$program"
}

fake_apt-cache() { # policy NAME…
	local name version
	for name in "${@:2}"; do
		version=$(sed -n "s/^$name //p" "$F/packages")
		printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$name" "${version:-(none)}"
	done
}

# $F/unfit: a package that cannot be installed; $F/offline: there is no network
fake_apt-get() {
	local name dry=
	[[ " $* " == *" install "* ]] || { echo "apt-get $*" >>"$F/log" && exit 0; }
	[[ " $* " != *" --assume-no "* ]] || dry=1
	while [[ $1 == -* || $1 == install || $1 == *=* ]]; do shift; done
	for name; do
		grep -q "^$name " "$F/packages" && ! grep -qsx "$name" "$F/unfit" || exit 100
	done
	if [[ $dry ]]; then
		echo 'Need to get 3 MB of archives.'
		exit 1
	fi
	[[ ! -e $F/offline ]] || { echo 'E: Unable to fetch some archives' >&2 && exit 100; }
	for name; do echo "$name" >>"$F/log" && brings "$name"; done
}

fake_dnf() {
	case " $* " in
	*' repoquery '*) sed 's/ .*//' "$F/packages" ;;
	*' install '*)
		while [[ $1 == -* || $1 == install ]]; do shift; done
		for name; do echo "$name" >>"$F/log" && brings "$name"; done
		;;
	esac
}

fake_pacman() {
	case $1 in
	-Si) grep -q "^$2 " "$F/packages" ;;
	-S)
		while [[ $1 == -* ]]; do shift; done
		for name; do echo "$name" >>"$F/log" && brings "$name"; done
		;;
	esac
}

# packages NAME…: that the manager has
packages() { printf '%s 1.0\n' "$@" >"$F/packages"; }

# deps ARG…: into $rc, $T/out and $T/err
deps() {
	PATH=$F/bin bash "$F/deps.sh" "$@" >"$T/out" 2>"$T/err"
	rc=$?
}

installed() { sort "$F/log" | paste -sd ' '; }

# one_cause_one_next PATTERN PATTERN
one_cause_one_next() {
	assert_in "$(<"$T/err")" "^deps: $1"
	assert_in "$(<"$T/err")" "^deps: next: $2"
	assertEquals "lines of deps in $(<"$T/err")" 2 "$(grep -c '^deps: ' "$T/err")"
}

TEST_DEB=(shunit2 shellcheck cppcheck clang clang-format libclang-rt-dev valgrind
	tshark nftables rdmacm-utils gettext libxml2-utils man-db ucx-utils chromium)

test_what_is_there_is_not_installed() {
	fakes
	fake cc '[[ $1 != -print-file-name=* ]] || echo "/lib/${1#*=}"'
	fake make
	fake pkg-config '[[ $2 != msgpack-c ]]' # but msgpack
	deps build
	assertEquals "$(<"$T/out")$(<"$T/err")" 0 "$rc"
	fake cc '[[ $1 != -print-file-name=* ]] || echo "${1#*=}"'
	deps --check build
	assertEquals 1 "$rc"
	assertEquals "missing: libc6-dev (static libc (the VM's agent))
next: labs/deps.sh build" "$(<"$T/out")"
}

test_check_installs_nothing() {
	fakes apt-get apt-cache
	packages "${TEST_DEB[@]}"
	deps --check test
	assertEquals 1 "$rc"
	assertEquals "${#TEST_DEB[@]}" "$(grep -c '^missing: ' "$T/out")"
	assertEquals "" "$(installed)"
}

test_unknown_manager() {
	fakes
	deps build lab test bench
	assertEquals 77 "$rc"
	one_cause_one_next 'there is no apt, dnf or pacman here' 'install by hand'
	assertEquals "not one line each" "" "$(grep -vE '^not to be had: [^ ]+ \(.+\)$|^deps: ' "$T/err")"
	assertEquals "told twice" "" "$(sort "$T/err" | uniq -d)"
	assert_in "$(<"$T/err")" 'not to be had: shunit2 '
}

test_apt() {
	fakes apt-get apt-cache
	packages "${TEST_DEB[@]}"
	deps test
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals "$(printf '%s\n' "${TEST_DEB[@]}" | sort | paste -sd ' ')" "$(installed)"
	assert_in "$(<"$T/out")" '^installing 15 packages: 3 MB to fetch'
	deps test
	assertEquals "a second time: $(<"$T/out")" "0:" "$rc:$(<"$T/out")"
}

# The first name that the release has
test_names_differ_by_release() {
	local name
	for name in libmsgpack-dev libmsgpack-c-dev; do
		fakes apt-get apt-cache
		packages $name
		deps build
		assertEquals $name "$(installed)"
	done
	fakes apt-get apt-cache
	packages libmsgpack-dev libmsgpack-c-dev
	deps build
	assertEquals libmsgpack-c-dev "$(installed)"
}

test_what_cannot_be_had_does_not_stop_the_rest() {
	fakes apt-get apt-cache
	packages "${TEST_DEB[@]}"
	sed -i -e '/^tshark/d' -e 's/^chromium .*/chromium 2:1snap1-0ubuntu2/' "$F/packages"
	deps test
	assertEquals 77 "$rc"
	one_cause_one_next 'apt has no package for these' 'install by hand'
	assertEquals "$(printf 'not to be had: %s\n' 'tshark (reads the packets)' \
		"chromium (opens the recorder's report)")" "$(grep '^not' "$T/err")"
	assertEquals 13 "$(wc -l <"$F/log")"
	: >"$F/log"
	deps test
	assertEquals "nothing can be done, and nothing is" "77:" "$rc:$(installed)"
}

test_what_does_not_fit_does_not_stop_the_rest() {
	fakes apt-get apt-cache
	packages "${TEST_DEB[@]}"
	echo valgrind >"$F/unfit"
	deps test
	assertEquals 77 "$rc"
	assert_in "$(<"$T/err")" '^not to be had: valgrind '
	assertEquals "with new lists: $(installed)" 1 "$(grep -c 'apt-get .*update' "$F/log")"
	assertEquals 14 "$(grep -vc apt-get "$F/log")"
}

test_no_network() {
	fakes apt-get apt-cache
	packages "${TEST_DEB[@]}"
	: >"$F/offline"
	deps test
	assertEquals 1 "$rc"
	one_cause_one_next 'not all could be installed' 'is there a network'
}

test_dnf() {
	fakes dnf
	packages msgpack-devel
	deps build
	assertEquals msgpack-devel "$(installed)"
	fakes dnf
	packages shunit2 ShellCheck cppcheck clang clang-tools-extra compiler-rt valgrind \
		wireshark-cli nftables librdmacm-utils gettext libxml2 man-db ucx chromium
	deps test
	assertEquals "$(<"$T/err")" 0 "$rc"
	assertEquals 15 "$(wc -l <"$F/log")"
}

test_pacman() {
	fakes pacman
	packages iperf3 openucx
	deps bench
	assertEquals 77 "$rc"
	assertEquals "iperf3 openucx" "$(installed)"
	assert_in "$(<"$T/err")" '^not to be had: sockperf '
}

test_neither_root_nor_sudo() {
	fakes apt-get apt-cache
	rm -f "$F/bin/sudo"
	packages "${TEST_DEB[@]}"
	ordinary env PATH="$F/bin" "$F/bin/bash" "$F/deps.sh" test >"$T/out" 2>"$T/err"
	assertEquals 1 $?
	one_cause_one_next 'root is needed' 'as root: labs/deps.sh test'
	assertEquals "" "$(installed)"
}

# The VM's first program has no libc to run on.
test_busybox_must_be_static() {
	fakes
	ln -s "$(command -v ldd)" "$F/bin/ldd"
	cp "$(command -v env)" "$F/bin/busybox"
	deps --check lab
	assert_in "$(<"$T/out")" '^missing: busybox-static'
	cp "$(command -v busybox)" "$F/bin/busybox"
	deps --check lab
	assert_not_in "$(<"$T/out")" 'busybox'
}

test_arm64_has_another_qemu() {
	fakes
	deps --check lab
	assert_in "$(<"$T/out")" '^missing: qemu-system-(x86|arm) '
	rm "$F/bin/uname"
	fake uname 'echo aarch64'
	deps --check lab
	assert_in "$(<"$T/out")" '^missing: qemu-system-arm '
	fake qemu-system-aarch64
	deps --check lab
	assert_not_in "$(<"$T/out")" 'qemu'
}

# ---- make, which calls it

# tree_with_deps SCRIPT: $T is a tree whose labs/deps.sh is SCRIPT
tree_with_deps() {
	mkdir -p "$T/labs"
	cp Makefile "$T"
	printf '#!/bin/sh\n%s\n' "$1" >"$T/labs/deps.sh"
	chmod 755 "$T/labs/deps.sh"
}

test_make_goes_on_without_what_cannot_be_had() {
	tree_with_deps 'echo "$@"; exit 77'
	assertEquals 'build lab test' "$(make -s -C "$T" deps)"
	make -s -C "$T" deps >/dev/null
	assertEquals 0 $?
	tree_with_deps 'exit 1'
	make -s -C "$T" deps 2>/dev/null
	assertEquals 2 $?
}

test_make_without_a_compiler() {
	tree_with_deps 'echo "missing: $*"; echo next: deps'
	mkdir "$T/server"
	echo 'int main(void) { return 0; }' >"$T/server/rdma_server.c"
	make -s -C "$T" CC=no-such-cc build/server/rdma_server.o >"$T/out" 2>&1
	assertEquals 2 $?
	assertEquals "first line" "missing: --check build" "$(head -n 1 "$T/out")"
	assert_not_in "$(<"$T/out")" 'not found|No such file'
	assertEquals "" "$(make -s -C "$T" CC=no-such-cc clean 2>&1)"
}

test_make_without_headers() {
	tree_with_deps 'echo "missing: $*"'
	mkdir "$T/server"
	echo '#include <no/such.h>' >"$T/server/rdma_server.c"
	make -s -C "$T" build/server/rdma_server.o >"$T/out" 2>&1
	assertEquals 2 $?
	assert_in "$(<"$T/out")" '^missing: --check build'
}

# pkg-config is only an adviser, and make clean needs none.
test_make_without_pkg_config() {
	assertEquals -lmsgpackc "$(make -s PKG_CONFIG=no-such print-MSGPACK)"
	assertEquals "-libverbs -ljansson" "$(make -s PKG_CONFIG=no-such print-LDLIBS)"
	tree_with_deps ''
	fakes
	fake pkg-config 'echo asked >>"$F/log"; [[ $2 == msgpack-c ]] && echo "-L/there -lmsgpack-c"'
	assertEquals "" "$(make -s -C "$T" PKG_CONFIG="$F/bin/pkg-config" clean 2>&1; cat "$F/log")"
	assertEquals "-L/there -lmsgpack-c" "$(make -s PKG_CONFIG="$F/bin/pkg-config" print-MSGPACK)"
}

# What "sudo make" leaves behind
test_make_over_files_of_another_user() {
	local tree=$FAKES/tree
	tree_with_deps ''
	mv "$T" "$tree" && mkdir "$T"
	mkdir -p "$tree/server" "$tree/build/server"
	chmod 755 "$tree"
	echo 'int main(void) { return 0; }' >"$tree/server/rdma_server.c"
	to_ordinary "$tree"
	chmod -R a-w "$tree/build"
	ordinary make -s -C "$tree" build/server/rdma_server.o >"$T/out" 2>&1
	assertEquals 2 $?
	assertEquals "make: build/server may not be written; was it made by sudo make?
make: next: sudo rm -r build, or make BUILD=other" "$(head -n 2 "$T/out")"
	ordinary make -s -C "$tree" clean >"$T/out" 2>&1
	assertEquals 2 $?
	assert_in "$(<"$T/out")" '^make: next: sudo rm -r build$'
	assertEquals "lines of rm" "" "$(grep 'rm:' "$T/out")"
	ordinary make -s -C "$tree" BUILD=other other/server/rdma_server.o >"$T/out" 2>&1
	rc=$?
	assertEquals "$(<"$T/out")" 0 "$rc"
}

test_usage() {
	labs/deps.sh nonsense >/dev/null 2>"$T/err"
	assertEquals 2 $?
	assert_in "$(<"$T/err")" '^usage: deps.sh'
	labs/deps.sh --help | grep -q '^usage: deps.sh'
	assertEquals 0 $?
}

. shunit2
