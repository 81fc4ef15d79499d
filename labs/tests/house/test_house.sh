#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# labs/docs, on pages that are made up here; labs/deps.sh, with a package manager that is
# made up here; and make, where something is missing. This tree's own pages: labs/tests/lint.
#
# shellcheck disable=SC2016 # what stands in made-up programs and pages
. "$(dirname "$0")/../lib.sh"

# ---- labs/docs

docs() { # runs labs/docs on the tree $T; sets $out and $rc
	rc=0
	out=$("$ROOT/labs/docs" --root "$T" "$@" 2>&1) || rc=$?
}

# page TITLE LESSON: what every lesson has, with a region and a command
page() {
	cat <<-END
		# $1

		<!-- region common/a.c outer -->
		<!-- /region -->
		<!-- run cat value -->
		<!-- /run -->

		## What is new
		- **Time**: 5 minutes.
		- **You need**: nothing.
		- **Afterwards you can** do it.

		## Three questions first
		<details><summary>1. a?</summary>
		<details><summary>2. b?</summary>
		<details><summary>3. c?</summary>

		## The idea
		## The code
		## Run it
		## What you see
		## Break it
		## Questions

		**You can now** do it.

		![way]($2)
	END
}

in_chinese() {
	sed 's/What is new/本课的新内容/; s/Time/时间/; s/You need/需要/
	s/Afterwards you can/学完之后/; s/Three questions first/课前三问/; s/The idea/原理/
	s/The code/代码/; s/Run it/运行/; s/What you see/你会看到/; s/Break it/故意出错/
	s/Questions/思考题/; s/You can now/现在你会了/'
}

# make_tree: with one lesson in both languages, a picture and a glossary; filled
make_tree() {
	mkdir -p "$T"/{common,labs/pictures,lessons/01-a,docs-zh}
	printf '%s\n' 'int before;' '// region outer' 'int one(void) /* 为什么 */' '{' '	// region inner' \
		'	return 1;' '	// endregion inner' '}' '// endregion outer' >"$T/common/a.c"
	printf '%s\n' '# a.c' '为什么' '	why' >"$T/common/comments.en"
	printf '%s\n' 'QP 0x000011, PSN 0x1a2b3c, state RTR' 'took 12 ms' >"$T/value"
	printf '%s\n' 'title Two | 二' 'size 40' 'lane a 8 12 plain A' 'lane b 32 12 plain B' \
		'message data a b few words | 不多的字' >"$T/labs/pictures/way.pic"
	printf '%s\n' '# TERM | in full | 中文 | lesson | more' 'QP | queue pair | 队列对 | 01 | -' \
		'Two queues.' '两条队列。' 'fence | fence | 栅栏 | - | -' 'A wait.' '等一等。' >"$T/lessons/glossary.txt"
	page '01 · Lesson' ../../labs/pictures/way.svg >"$T/lessons/01-a/README.md"
	page '01 · 第一课' ../labs/pictures/way.zh.svg | in_chinese >"$T/docs-zh/01-a.md"
	echo '| 01 | [Lesson](lessons/01-a/README.md) | | [第一课](docs-zh/01-a.md) |' >"$T/README.md"
	docs fill
	assertEquals "fill: $out" 0 "$rc"
}

test_pages_are_filled() {
	local page before
	make_tree
	page=$T/lessons/01-a/README.md
	assertEquals "$(printf '%s\n' '```c' 'int one(void) /* why */' '{' '	return 1;' '}' '```' '[common/a.c](../../common/a.c)')" \
		"$(sed -n '/^<!-- region/,/^<!-- .region/p' "$page" | sed '1d;$d')"
	assertEquals "$(printf '%s\n' '```console' '$ cat value' "$(<"$T/value")" '```')" \
		"$(sed -n '/^<!-- run/,/^<!-- .run/p' "$page" | sed '1d;$d')"
	assert_in "$(<"$T/docs-zh/01-a.md")" '^int one\(void\) /\* 为什么 \*/$'
	assert_in "$(<"$T/docs-zh/01-a.md")" '^\[common/a.c\]\(../common/a.c\)$'
	assert_in "$(<"$T/labs/pictures/way.zh.svg")" '>不多的字</text>'
	assert_in "$(<"$T/docs-zh/glossary.md")" 'id="qp".*两条队列。'
	docs check
	assertEquals "check: $out" 0 "$rc"
	# What differs from run to run is no drift, and stays.
	before=$(stat -c '%i %y' "$page")
	sed -i 's/1a2b3c/ffeedd/; s/12 ms/7 ms/' "$T/value"
	docs check
	assertEquals "check: $out" 0 "$rc"
	docs fill
	assertEquals "$before" "$(stat -c '%i %y' "$page")"
	sed -i s/RTR/RTS/ "$T/value"
	docs fill
	assert_in "$(<"$page")" 'PSN 0xffeedd, state RTS'
}

# Each row: what is done to the tree, and what "check --no-run" says of it.
DRIFT=(
	"sed -i 's/return 1/return 2/' common/a.c" '^\+	return 2;'
	"sed -i 's/为什么/为何/' common/a.c" '^lessons/01-a/README.md:3: common/comments.en: common/a.c: no English for: 为何$'
	"sed -i 's/a.c outer/a.c missing/' docs-zh/01-a.md" '^docs-zh/01-a.md:3: common/a.c has no region missing'
	"sed -i '/endregion outer/d' common/a.c" 'common/a.c:2: region outer has no end'
	"sed -i '/^<!-- .run -->/d' docs-zh/01-a.md" '^docs-zh/01-a.md:[0-9]+: the run marker has no <!-- /run'
	"echo '<!--region a b-->' >>README.md" '^README.md:2: this is almost a marker'
	"sed -i 's/cat value -->/cat other -->/' docs-zh/01-a.md" 'the block does not show'
	"sed -i 's/run cat/run show=\"ls x\" cat/' docs-zh/01-a.md" 'it shows "ls x", which is not what runs'
	"echo '[a](common/none.c)' >>README.md" '^README.md:2: the link common/none.c leads nowhere'
	"echo '[a](../out)' >>README.md" '^README.md:2: the link ../out leaves the tree'
	"rm docs-zh/01-a.md" 'there is no docs-zh/01-a.md'
	"echo '## More' >>lessons/01-a/README.md" 'ends before the heading of level 2 of lessons/01-a'
	"sed -i '/^## Break it/d' lessons/01-a/README.md; sed -i '/^## 故意出错/d' docs-zh/01-a.md" '故意出错'
	"printf '断在逗号，\n不好。\n' >>docs-zh/01-a.md" '^docs-zh/01-a.md:[0-9]+: the line before'
	"echo 'One fence.' >>lessons/01-a/README.md" 'the first fence of this page, which no lesson introduces'
	"sed -i 's/Two queues/Three/' lessons/glossary.txt" '^lessons/GLOSSARY.md has drifted from lessons/glossary.txt'
	"sed -i 's/不多的字/少/' labs/pictures/way.pic" '^labs/pictures/way.zh.svg has drifted from labs/pictures/way.pic'
	"echo 'step x 4 plain x' >>labs/pictures/way.pic" 'way.pic:[0-9]*: .*there is no lane x'
	"sed -i 's/way.zh.svg/way.svg/' docs-zh/01-a.md" 'this picture is in the other language'
	"sed -i 's/.Lesson./[Other]/' README.md" '^README.md: calls lessons/01-a/README.md "Other", the page "Lesson"'
	"sed -i 's/need.*: nothing/&, but lesson 07/' lessons/01-a/README.md" '^lessons/01-a/README.md: needs lessons 07; README.md says none'
	"echo 'Next: [01](../01-b/README.md)' >>lessons/01-a/README.md" '^lessons/01-a/README.md: Next is called "01", the page ""'
	"sed -i d README.md" '^docs-zh/01-a.md: no Next leads here'
	"sed -i 's/5 minutes/61 minutes/' docs-zh/01-a.md" '^docs-zh/01-a.md: takes more than an hour'
	"yes 'a word' | head -600 >>lessons/01-a/README.md" 'says 5 minutes, and reading alone takes 7'
)

# Wherever comments.en has a comment, it is exchanged, and the code is the same.
test_english_sources_are_the_same_code() {
	local file
	labs/tools/english "$T/english" >/dev/null 2>&1
	assertEquals 'the exit code' 0 $?
	while read -r file; do
		cmp -s "$file" "$T/english/$file" && fail "$file: nothing in English"
		assertEquals "$file" "$(code_of "$file")" "$(code_of "$T/english/$file")"
	done < <(sed -n 's,^# ,common/,p' common/comments.en && sed -n 's,^# ,lessons/,p' lessons/comments.en)
}

# code_of FILE: without comments and layout
code_of() {
	"${CC:-cc}" -w -D_GNU_SOURCE -D__LINE__=0 -Icommon -I"$(dirname "$1")" -E -P "$1" | tr -d ' \t\n' | md5sum
}

test_drift_is_caught() {
	local i whole before
	make_tree
	whole=$T
	for ((i = 0; i < ${#DRIFT[@]}; i += 2)); do
		T=$whole/$i
		mkdir "$T"
		cp -r "$whole"/{common,docs-zh,labs,lessons,README.md,value} "$T"
		(cd "$T" && eval "${DRIFT[i]}")
		before=$(cat "$T"/*/*.md)
		docs check --no-run
		assertEquals "${DRIFT[i]}: $out" 1 "$rc"
		assert_in "$out" "${DRIFT[i + 1]}" "${DRIFT[i]}:"
		assertEquals 'check must not write' "$before" "$(cat "$T"/*/*.md)"
	done
	T=$whole
}

# Each row: what a command printed, and what it prints now.
DRIFTED=(
	'state RTR' 'state RTS'
	'QPN 0x000011' 'QPN 0x000012'
	'QPN 17' 'QPN 18'
	'one' $'one\ntwo'
	$'one\ntwo' $'two\none'
	'at 10.99.0.1' 'at 10.99.0.2'
	'took 12 ms' 'took 12 apples'
	'magic 0x52444d41' 'magic 0x52444d42'
	'4096 bytes' '4097 bytes'
	'PSN 0x1a2b3c' 'PSN none'
	'rcvd_pkts 7' 'rcvd_pkts 0'
)
SAME=(
	'PSN 0x1a2b3c   next' 'PSN 0x5d6e next'
	'{"psn":123,"seconds":0.25}' '{"psn":99,"seconds":1.2e-05}'
	'lkey 0x1ff, rkey 0x2ff' 'lkey 0x3ff, rkey 0x43ff'
	'buffer at 0x55d0c0ffee00' 'buffer at 0x7f00c0ffee00'
	'2 round trips: 3.25 us.' '2 round trips: 12.5 us.'
	'1234 MB/s, 12MiB/s, 3 Gbit/s' '99 MB/s, 120MiB/s, 4 Gbit/s'
	'pid 123 comm a' 'pid 45678 comm a'
	'sent_pkts 7, rdma_recvs 12' 'sent_pkts 11, rdma_recvs 3'
	'id "f2385930-7c39-4acf-b319-b87e5600058d",' 'id "00112233-4455-4677-8899-aabbccddeeff",'
)

test_output_drift() {
	local i rows=("${DRIFTED[@]}" "${SAME[@]}") drift=()
	for ((i = 0; i < ${#rows[@]}; i += 2)); do
		printf '<!-- run cat value%d -->\n<!-- /run -->\n' "$i" >>"$T/README.md"
		echo "${rows[i]}" >"$T/value$i"
		((i >= ${#DRIFTED[@]})) || drift+=("$i")
	done
	printf '<!-- run exit=3 exit 3 -->\n<!-- /run -->\n' >>"$T/README.md"
	docs fill README.md
	assertEquals "fill: $out" 0 "$rc"
	for ((i = 0; i < ${#rows[@]}; i += 2)); do echo "${rows[i + 1]}" >"$T/value$i"; done
	sed -i 's/exit=3/exit=4/' "$T/README.md"
	printf '<!-- run sleep 60 -->\n<!-- /run -->\n' >>"$T/README.md"
	DOCS_LIMIT=1 docs check README.md
	assertEquals "$out" 1 "$rc"
	assertEquals "$out" "${drift[*]}" "$(sed -n 's/^+++ now//p; s/.*\(README.md:[0-9]*\): the run block has drifted.*/\1/p' <<<"$out" |
		grep . | while IFS=: read -r _ i; do sed -n "${i}s/.*value\([0-9]*\).*/\1/p" "$T/README.md"; done | xargs)"
	assert_in "$out" 'the command ended with 3, not 4'
	assert_in "$out" 'the command took more than 1 s'
}

# ---- labs/deps.sh

# fakes: an empty machine in $F, in whose folder of programs is apt, which knows the
# packages in $F/packages, and writes what it installs to $F/log. Not below $ROOT: an
# ordinary user may have no way into it.
fakes() {
	local program
	F=$(mktemp -d /tmp/deps-test.XXXXXX)
	chmod 755 "$F"
	mkdir "$F/bin"
	: >"$F/log"
	printf '%s\n' tshark qemu-system-arm gcc-aarch64-linux-gnu qemu-user-static >"$F/packages"
	for program in bash env cat sed awk tr sort grep uname paste mkdir chmod; do
		ln -s "$(command -v "$program")" "$F/bin/$program"
	done
	# It looks into the sbin folders of this machine, too.
	sed '/^PATH=/d' labs/deps.sh >"$F/deps.sh"
	[[ $UID == 0 ]] || fake sudo '"$@"'
	fake apt-cache 'for name in "${@:2}"; do' \
		'grep -qx "$name" $F/packages && version=1.0 || version="(none)"' \
		'printf "%s:\n  Candidate: %s\n" "$name" "$version"; done'
	fake apt-get '[[ " $* " == *" install "* ]] || exit 0' \
		'[[ " $* " != *" --assume-no "* ]] || { echo "Need to get 3 MB of archives." && exit 1; }' \
		'[[ ! -e $F/offline ]] || exit 100' \
		'while [[ $1 == -* || $1 == install || $1 == *=* ]]; do shift; done' \
		'for name; do echo "$name" >>$F/log' \
		'case $name in qemu-system-arm) name=qemu-system-aarch64 ;; gcc-*) name=aarch64-linux-gnu-gcc ;;' \
		'qemu-user-static) name=qemu-aarch64-static ;; esac' \
		'echo "#!/bin/sh" >$F/bin/$name && chmod 755 $F/bin/$name; done'
}

# fake NAME LINE…: a program
fake() {
	printf '%s\n' '#!/usr/bin/env bash' "F=$F" "${@:2}" >"$F/bin/$1"
	chmod 755 "$F/bin/$1"
}

# deps RC INSTALLED SAYS [CMD…] -- ARG…: labs/deps.sh on that machine
deps() {
	local want=$1 installed=$2 says=$3 how=() rc=0
	shift 3
	while [[ $1 != -- ]]; do how+=("$1") && shift; done
	"${how[@]}" env PATH="$F/bin" bash "$F/deps.sh" "${@:2}" >"$T/out" 2>&1 || rc=$?
	assertEquals "$* in: $(<"$T/out")" "$want" "$rc"
	assertEquals "installed by $*" "$installed" "$(sort "$F/log" | paste -sd ' ')"
	assert_in "$(<"$T/out")" "$says" "$*:"
	rm -r "$F"
}

test_deps() {
	local all='gcc-aarch64-linux-gnu qemu-system-arm qemu-user-static tshark'
	fakes && deps 0 "$all" '^installing 4 packages: 3 MB to fetch' -- wire arm64
	fakes && deps 1 '' '^missing: tshark .*' -- --check wire
	fakes && fake tshark && deps 0 '' '^$' -- wire
	fakes && sed -i /tshark/d "$F/packages" &&
		deps 77 "${all% *}" '^not to be had: tshark ' -- wire arm64
	fakes && : >"$F/offline" && deps 1 '' '^deps: next: is there a network' -- wire
	fakes && rm "$F"/bin/apt-* && deps 77 '' '^deps: there is no apt, dnf or pacman here' -- wire
	fakes && rm -f "$F/bin/sudo" && deps 1 '' '^deps: next: as root: labs/deps.sh wire' ordinary -- wire
	fakes && deps 2 '' '^usage: deps.sh' -- nonsense
}

# ---- make

test_make_tells_what_is_missing() {
	mkdir -p "$T"/{labs,server}
	cp Makefile "$T"
	printf '#!/bin/sh\necho "missing: $*"\n' >"$T/labs/deps.sh"
	chmod 755 "$T/labs/deps.sh"
	echo '#include <no/such.h>' >"$T/server/rdma_server.c"
	assertEquals 'a compiler' 'missing: --check build' \
		"$(make -s -C "$T" CC=no-such-cc build/server/rdma_server.o 2>&1 | head -n 1)"
	assertEquals 'make clean needs none' '' "$(make -s -C "$T" CC=no-such-cc clean 2>&1)"
	assert_in "$(make -s -C "$T" build/server/rdma_server.o 2>&1)" '^missing: --check build' 'a header:'
	printf '#!/bin/sh\nexit 77\n' >"$T/labs/deps.sh"
	assertTrue 'it goes on without what cannot be had' "make -s -C '$T' deps"
	assertEquals 'no pkg-config' '-libverbs -ljansson' "$(make -s PKG_CONFIG=no-such print-LDLIBS)"
}

# What "sudo make" leaves behind
test_make_over_files_of_another_user() {
	local tree
	tree=$(mktemp -d /tmp/make-test.XXXXXX)
	mkdir -p "$tree"/{server,build/server}
	cp Makefile "$tree"
	echo 'int main(void) { return 0; }' >"$tree/server/rdma_server.c"
	to_ordinary "$tree"
	chmod -R a-w "$tree/build"
	assert_in "$(ordinary make -s -C "$tree" build/server/rdma_server.o 2>&1)" \
		'^make: build/server may not be written; was it made by sudo make\?$'
	assert_in "$(ordinary make -s -C "$tree" clean 2>&1)" '^make: next: sudo rm -r build$'
	chmod -R u+w "$tree"
	rm -r "$tree"
}

. shunit2
