#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The needle store on disk and build/needle, without a device: what is put comes
# back to the byte, and what was damaged, cut, torn or locked is noticed.
#
# shellcheck disable=SC2317 # functions are called by name
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

S='' # the store, a new one in each test

needle() {
	local verb=$1
	shift
	keeping "$B/needle" "$verb" -S "$S" "$@"
}

new_store() {
	S=$T/store
	rm -rf "$S"
	mkdir "$S"
}

# fails NAME PATTERN VERB ARGS…: with one error, and nothing on stdout
fails() {
	local name=$1 pattern=$2
	shift 2
	here "$name" "$B/needle" "$1" -S "$S" "${@:2}"
	assert_error "$name" 1 "$pattern"
	assertEquals "stdout of $name" "" "$(out_of "$name")"
}

# bytes of FILE, in the array bytes; and back, at most COUNT of them
read_bytes() { mapfile -t bytes < <(od -An -v -tu1 -w1 "$1" | tr -d ' '); }
write_bytes() { # FILE [COUNT]
	local escapes=''
	((${2:-1} == 0)) || printf -v escapes '\\%03o' "${bytes[@]:0:${2:-${#bytes[@]}}}"
	# shellcheck disable=SC2059 # the bytes are the format
	printf "$escapes" >"$1"
}

# small_store: three needles and one that was superseded
small_store() {
	new_store
	printf old | needle put 7 1 99
	printf 'hello' | needle put 7 1 100
	needle put 7 2 5 </dev/null
	printf '12345678' | needle put 7 18446744073709551615 0
}

same_needles() {
	[[ $(needle get 7 1) == hello && $(needle get 7 2) == '' &&
		$(needle get 7 18446744073709551615) == 12345678 ]]
}

test_what_is_put_comes_back() {
	local size id=0
	new_store
	for size in 0 1 7 8 9 4096 65535 65536 65537 1000003; do
		id=$((id + 1))
		head -c "$size" /dev/urandom >"$T/in.$id"
		if ((id % 2)); then
			needle put 3 "$id" 42 <"$T/in.$id" >"$T/out"
		else
			needle put 3 "$id" --file "$T/in.$id" >"$T/out"
		fi
		assertEquals "put of $size" 0 $?
	done
	for id in {1..10}; do
		needle get 3 "$id" >"$T/got"
		assertTrue "needle $id" "cmp $T/in.$id $T/got"
	done
	# A pipe that brings the data in small pieces.
	(for id in {1..20}; do echo "piece $id" && sleep 0.01; done) | needle put 3 11 >"$T/out"
	assertEquals "piece 20" "$(needle get 3 11 | tail -n 1)"
	assertEquals 20 "$(needle get 3 11 | wc -l)"
	assertTrue "$(needle verify)" "needle verify"
}

test_names_and_newer_ones() {
	small_store >"$T/out"
	printf 123456789 | needle put 4294967295 0 4294967295 >"$T/out"
	assert_in "$(cat "$T/out")" 'volume 4294967295 needle 0 cookie 4294967295: 9 bytes, CRC-32C 0xe3069283'
	same_needles
	assertTrue "the newer one counts" $?
	needle list --json >"$T/list"
	assertEquals 4 "$(jq '.needles | length' "$T/list")"
	assertEquals '{"volume":7,"needle":"18446744073709551615","cookie":0,"size":8,"crc32c":1619493018}' \
		"$(jq -c '.needles[2]' "$T/list")"
	assertEquals '{"volume":4294967295,"needle":"0","cookie":4294967295,"size":9,"crc32c":3808858755}' \
		"$(jq -c '.needles[3]' "$T/list")"
	assertEquals "a line for each, and the head" 5 "$(needle list | wc -l)"
	assert_in "$(needle verify)" '^4 needles, 1 superseded records, 25 bytes: all is well$'
	# Nobody guesses a cookie that was not given.
	for id in 1 2 3; do needle put 8 "$id" </dev/null; done | cut -d' ' -f6 >"$T/cookies"
	assertEquals 3 "$(sort -u "$T/cookies" | wc -l)"
	cookie=$(head -n 1 "$T/cookies")
	assertTrue "needle get 8 1 ${cookie%:}"
}

test_cookies() {
	small_store >"$T/out"
	assertEquals hello "$(needle get 7 1 100)"
	fails old 'cookie 99 is not that of needle 1' get 7 1 99
	fails zero 'cookie 0 is not' get 7 1 0
	assert_not_in "$(err_of zero)" 100 "the right one is not told"
	# In hex, as others print it.
	assertEquals hello "$(needle get 7 1 0x64)"
	needle put 7 9 0xDeadBeef </dev/null >"$T/out"
	assert_in "$(cat "$T/out")" 'cookie 3735928559:'
	needle get 7 9 3735928559 >"$T/out"
	assertEquals 0 $?
}

# Every byte of a small store, as the programs see it.
test_every_byte_changed() {
	local i id rc file bytes
	small_store >"$T/out"
	file=$S/volume-7.needles
	read_bytes "$file"
	assertEquals "bytes" 184 ${#bytes[@]}
	for i in "${!bytes[@]}"; do
		bytes[i]=$((bytes[i] ^ 255))
		write_bytes "$file"
		needle verify >"$T/v.out" 2>"$T/v.err"
		assertEquals "verify, byte $i" 1 $?
		assertEquals "byte $i" 1 "$(grep -c '^error: ' "$T/v.err")"
		for id in 1:hello 2: 18446744073709551615:12345678; do
			rc=0
			got=$(needle get 7 "${id%:*}" 2>"$T/g.err") || rc=$?
			[[ $rc:$got == 1: || $rc:$got == "0:${id#*:}" ]] ||
				fail "byte $i, needle $id: $rc, \"$got\""
		done
		bytes[i]=$((bytes[i] ^ 255))
	done
	# The message names the file, the offset, and both checksums.
	bytes[32 + 20]=1
	write_bytes "$file"
	fails head 'volume-7.needles: the record header at offset 32 is damaged: its CRC-32C says 0x[0-9a-f]{8}, its bytes give 0x' get 7 1
	read_bytes <(small_store >/dev/null && cat "$file")
	bytes[72 + 32]=72
	write_bytes "$file"
	fails data 'volume-7.needles: the data of needle 1 at offset 104 are damaged: the record.s CRC-32C says 0x9a71bb4c, the bytes give 0x' get 7 1
	assertEquals "the others can be read" 12345678 "$(needle get 7 18446744073709551615)"
}

test_every_truncation() {
	local i file bytes
	small_store >"$T/out"
	file=$S/volume-7.needles
	read_bytes "$file"
	for ((i = 0; i < ${#bytes[@]}; i++)); do
		write_bytes "$file" "$i"
		needle list >"$T/l.out" 2>"$T/l.err"
		assertEquals "list of $i bytes" 1 $?
		assertEquals "errors of $i bytes" 1 "$(grep -c '^error: ' "$T/l.err")"
		if ((i % 8 == 0)); then
			here put "$B/needle" put -S "$S" 7 3 1
			assertEquals "put to $i bytes" 1 "$(rc_of put)"
			assertEquals "untouched" "$i" "$(stat -c %s "$file")"
		fi
	done
	assert_in "$(cat "$T/l.err")" '184 bytes were committed, the file has only 183: it was cut'
}

test_torn_tail() {
	local pid file before
	small_store >"$T/out"
	file=$S/volume-7.needles
	before=$(stat -c %s "$file")
	mkfifo "$T/fifo"
	"$B/needle" put -S "$S" 7 3 1 <"$T/fifo" >"$T/out" 2>&1 &
	pid=$!
	exec {pipe}>"$T/fifo"
	head -c 100000 /dev/zero >&"$pipe"
	grown() { (($(stat -c %s "$file") >= before + 100000)); }
	await grown
	# Half a needle is nobody's business, and no torn tail either: a put goes on.
	here going "$B/needle" list -S "$S"
	assertEquals "0:" "$(rc_of going):$(err_of going)"
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	exec {pipe}>&-
	here torn "$B/needle" list -S "$S"
	assertEquals 0 "$(rc_of torn)"
	assert_in "$(err_of torn)" '^warning: .*volume-7.needles: a put was interrupted: the last [0-9]{6} bytes, from offset 184, are not read'
	assertEquals 4 "$(out_of torn | wc -l)"
	same_needles 2>/dev/null
	assertTrue "all that was committed" $?
	assertTrue "reading does not write" grown
	printf new | needle put 7 3 1 >"$T/out" 2>"$T/err"
	rc=$?
	assertEquals "$(cat "$T/err")" 0 "$rc"
	assert_in "$(cat "$T/err")" 'the last put was interrupted: cut off its [0-9]{6} bytes'
	assertEquals $((before + 40)) "$(stat -c %s "$file")"
	here after "$B/needle" verify -S "$S"
	assertEquals "0:" "$(rc_of after):$(err_of after)"
	assertEquals new "$(needle get 7 3)"
}

test_writers_take_turns() {
	local pid waits id
	small_store >"$T/out"
	mkfifo "$T/fifo"
	"$B/needle" put -S "$S" 7 3 1 <"$T/fifo" >"$T/first" 2>&1 &
	pid=$!
	exec {pipe}>"$T/fifo"
	printf la >&"$pipe"
	grown() { (($(stat -c %s "$S/volume-7.needles") == 184 + 32 + 2)); }
	await grown
	"$B/needle" put -S "$S" 7 4 1 -t 60 -f /usr/bin/env >"$T/waits.out" 2>"$T/waits.err" &
	waits=$!
	# With the volume open, all that it does is wait for the lock.
	opened() { find "/proc/$waits/fd" -lname '*/volume-7.needles' | grep -q .; }
	await opened
	kill "$waits"
	wait "$waits"
	echo $? >"$T/waits.rc"
	assert_error waits 1 'volume-7.needles: stopped by a signal'
	assertTrue "what the first one wrote stays" grown
	fails second 'another process is writing to it' put 7 4 -t 1
	assertEquals "another volume is free" 0 "$(needle put 8 1 </dev/null >"$T/out"; echo $?)"
	same_needles
	assertTrue "a reader need not wait" $?
	printf te >&"$pipe"
	exec {pipe}>&-
	wait "$pid"
	rc=$?
	assertEquals "$(cat "$T/first")" 0 "$rc"
	assertEquals late "$(needle get 7 3)"
	for id in {10..29}; do
		needle put 9 "$id" <<<"of $id" >"$T/out.$id" 2>&1 &
	done
	wait
	for id in {10..29}; do
		assertEquals "$(cat "$T/out.$id")" "of $id" "$(needle get 9 "$id")"
	done
	assertTrue "needle verify >/dev/null"
}

test_interrupted_puts_leave_nothing() {
	local pid signal before
	small_store >"$T/out"
	before=$(cksum "$S/volume-7.needles")
	mkfifo "$T/fifo"
	for signal in INT TERM; do
		env --default-signal=INT "$B/needle" put -S "$S" 7 3 1 <"$T/fifo" \
			>"$T/stop.out" 2>"$T/stop.err" &
		pid=$!
		exec {pipe}>"$T/fifo"
		printf half >&"$pipe"
		grown() { (($(stat -c %s "$S/volume-7.needles") > 184)); }
		await grown
		kill -s "$signal" "$pid"
		wait "$pid"
		echo $? >"$T/stop.rc"
		exec {pipe}>&-
		assert_error stop 1 'stopped by a signal'
		assertEquals "$signal" "$before" "$(cksum "$S/volume-7.needles")"
	done
	# Standard input that says nothing, and never ends.
	"$B/needle" put -S "$S" 7 3 1 -t 1 < <(exec sleep 5) >"$T/slow.out" 2>"$T/slow.err"
	echo $? >"$T/slow.rc"
	assert_error slow 1 'read\(standard input\): nothing came for 1 s'
	(ulimit -f 8 && here limit "$B/needle" put -S "$S" 7 3 1 -f /usr/bin/env)
	assert_error limit 1 'pwrite\(.*volume-7.needles\) failed: E[A-Z]+ .*: File too large'
	fails folder 'read\(/usr\) failed: EISDIR .*: Is a directory' put 7 3 1 -f /usr
	assert_in "$(err_of folder)" '^ next: give a file where this names a folder$'
	fails nofile 'open\(/no/such/file\) failed: E[A-Z]+ .*: No such file' put 7 3 1 -f /no/such/file
	assertEquals "$before" "$(cksum "$S/volume-7.needles")"
}

test_output_that_cannot_be_written() {
	local verb
	small_store >"$T/out"
	for verb in "get 7 1" list "list -j" verify "put 7 5 1"; do
		# shellcheck disable=SC2086 # words
		needle $verb </dev/null >/dev/full 2>"$T/full.err"
		echo $? >"$T/full.rc"
		assert_error full 1 'could not be written to stdout'
	done
	needle make -n 5000 -m 1 -M 1 >"$T/out"
	# More than stdio's buffer holds
	needle list -j >/dev/full 2>"$T/full.err"
	echo $? >"$T/full.rc"
	assert_error full 1 'could not be written to stdout'
	needle list 2>"$T/err" | head -n 1 >"$T/out"
	assertEquals "a reader that goes away: no signal" 1 "${PIPESTATUS[0]}"
}

# A volume that became descriptor 0, 1 or 2 would be read as input, or get the messages.
test_closed_descriptors() {
	local fd before
	small_store >"$T/out"
	printf tail >>"$S/volume-7.needles"
	before=$(cksum "$S/volume-7.needles")
	for fd in 0 1 2; do
		(ulimit -f 64 && eval "exec $fd>&-" && exec timeout 20 "$B/needle" put -S "$S" 7 3 1) \
			</dev/null >"$T/closed.out" 2>"$T/closed.err"
		echo $? >"$T/closed.rc"
		assertEquals "$fd closed" 1 "$(rc_of closed)"
		((fd == 2)) || assert_error closed 1 "descriptor $fd is closed"
		assertEquals "$fd closed" "$before" "$(cksum "$S/volume-7.needles")"
	done
}

test_what_is_not_there() {
	S=$T/nothing
	fails nofolder 'opendir\(.*/nothing\) failed: E[A-Z]+ .*: No such file' list
	fails nofolder2 'opendir' verify
	fails nofolder3 'there is no volume 1' get 1 1
	fails nofolder4 'open\(.*/nothing\) failed: E[A-Z]+ .*: No such file' put 1 1
	assert_in "$(err_of nofolder4)" 'next: make the store.s folder first'
	fails nofolder5 'open\(' make -n 1
	assertFalse "and none was made" "[[ -e $S ]]"
	S=/dev/null
	fails file 'opendir\(/dev/null\) failed: E[A-Z]+ .*: Not a directory' list
	fails file2 'open\(/dev/null/volume-1.needles\) failed: E[A-Z]+ .*: Not a directory' put 1 1
	fails file3 'open\(/dev/null/volume-1.needles\) failed: E[A-Z]+ .*: Not a directory' get 1 1
	assert_in "$(err_of file3)" '^ next: give a folder'
	small_store >"$T/out"
	fails volume 'there is no volume 6' get 6 1
	fails needle 'volume 7 has no needle 3' get 7 3
	new_store
	assertEquals '{"needles":[]}' "$(needle list --json)"
	assertEquals '0 needles, 0 superseded records, 0 bytes: all is well' "$(needle verify)"
}

# Root stays itself, so that it can enter a folder of its own, but is not let by.
test_read_only_folder() {
	local nobody=(setpriv --inh-caps=-all --bounding-set=-all)
	((EUID == 0)) || nobody=()
	small_store >"$T/out"
	chmod 755 "$T" "$S"
	if ! "${nobody[@]}" "$B/needle" --help >/dev/null 2>&1; then
		skip "root without its powers has no way into $ROOT"
		return 0
	fi
	chmod a-w "$S" "$S"/*
	here put "${nobody[@]}" "$B/needle" put -S "$S" 7 3 1
	assert_error put 1 'open\(.*volume-7.needles\) failed: E[A-Z]+ .*: Permission denied'
	here make "${nobody[@]}" "$B/needle" put -S "$S" 8 3 1
	assert_error make 1 'open\(.*volume-8.needles.new\) failed: E[A-Z]+ .*: Permission denied'
	here get "${nobody[@]}" "$B/needle" get -S "$S" 7 1
	assertEquals "0:hello" "$(rc_of get):$(out_of get)"
	chmod 000 "$S/volume-7.needles"
	here get "${nobody[@]}" "$B/needle" get -S "$S" 7 1
	assert_error get 1 'Permission denied'
	chmod -R u+w "$S"
}

test_strange_files() {
	small_store >"$T/out"
	touch "$S"/{volume-07.needles,volume-x.needles,volume-4294967296.needles} \
		"$S"/{volume-.needles,volume-7.needles.bak,volume-+1.needles,other}
	assertEquals "only the real one" 3 "$(needle list --json | jq '.needles | length')"
	mkfifo "$S/volume-1.needles"
	mkdir "$S/volume-2.needles"
	cp "$S/volume-7.needles" "$S/volume-3.needles"
	ln -s nothing "$S/volume-4.needles"
	head -c 1000 /dev/zero >"$S/volume-5.needles"
	: >"$S/volume-6.needles"
	fails fifo 'volume-1.needles: this is no regular file' get 1 1
	fails folder 'volume-2.needles: .*(no regular file|Is a directory)|pread.*Is a directory' get 2 1
	fails name 'volume-3.needles: the file is of volume 7' get 3 1
	fails link 'there is no volume 4' get 4 1
	fails zeros 'volume-5.needles: no volume: ' get 5 1
	fails empty 'volume-6.needles: its header is gone: 0 bytes' get 6 1
	fails symlink 'volume-4.needles.*symbolic link|ELOOP' put 4 1 1
	ln -s nothing "$S/volume-8.needles.new"
	fails temporary 'volume-8.needles.new.*ELOOP' put 8 1 1
	assertFalse "what a link names is made" "[ -e $S/nothing ]"
	assertTrue "the link stays" "[ -L $S/volume-8.needles.new ]"
	for id in 1 2 3 5 6; do fails "put $id" 'volume-.\.needles' put "$id" 1 1; done
	here all "$B/needle" list -S "$S" -j
	assertEquals "what can be read is listed" 1:3 \
		"$(rc_of all):$(out_of all | jq '.needles | length')"
	assertEquals "one error for each" 6 "$(err_of all | grep -c '^error: ')"
	here verify "$B/needle" verify -S "$S"
	assert_in "$(out_of verify)" ': not all is well$'
	assert_in "$(err_of verify)" 'volume-6.needles: its header is gone'
	# A file system that has room for holes: a tail of a terabyte.
	rm -r "$S"/volume-[1-6].needles
	truncate -s 1T "$S/volume-7.needles" || { skip "no large files here" && return 0; }
	assertTrue 'the same needles' 'same_needles 2>"$T/err"'
	assert_in "$(cat "$T/err")" 'the last 1099511627592 bytes, from offset 184, are not read'
	needle put 7 3 1 </dev/null >"$T/out" 2>&1
	assertEquals 216 "$(stat -c %s "$S/volume-7.needles")"
}

test_make() {
	local other=$T/other
	new_store
	needle make --count 100 --volumes 3 --min 10 --max 5000 --seed 9 >"$T/out"
	assertEquals "100 needles in 3 volumes" "$(cat "$T/out")"
	mkdir "$other"
	S=$other needle make -n 100 -V 3 -m 10 -M 5000 -s 9 >"$T/out"
	assertTrue "the same seed, the same bytes" "diff -r $S $other"
	needle list --json >"$T/list"
	assertEquals "100 34 33 33 true true" "$(jq -r '.needles | [length,
		([1, 2, 3][] as $v | map(select(.volume == $v)) | length),
		(map(.size) | min >= 10 and max <= 5000),
		(map(.cookie) | unique | length == 100)] | map(tostring) | join(" ")' "$T/list")"
	assertTrue "needle verify >/dev/null"
	mkdir "$T/third"
	S=$T/third needle make -n 100 -V 3 -m 10 -M 5000 -s 8 >"$T/out"
	for v in 1 2 3; do
		assertFalse "another seed" "cmp -s {$S,$T/third}/volume-$v.needles"
	done
	S=$other needle make -n 1 -m 10 -M 10 -s 8 >"$T/out"
	assertEquals "they supersede" 100 "$(S=$other needle list -j | jq '.needles | length')"
	assertEquals "of the size asked for" 10 "$(S=$other needle get 1 1 | wc -c)"
	assertEquals "more volumes than needles" "2 needles in 2 volumes" "$(needle make -n 2 -V 9 -M 9)"
	assertEquals "no bytes at all" 0 "$(needle make -n 5 -m 0 -M 0 >/dev/null; needle get 1 5 | wc -c)"
}

test_wrong_usage() {
	local n
	usage_error 'the command is missing' needle
	usage_error 'there is no such command: gett' needle gett
	usage_error '--store is missing' needle list
	usage_error '--store is empty' needle list -S ''
	usage_error 'needs an argument' needle list --store
	usage_error 'VOLUME and NEEDLE are missing' needle get -S x 1
	usage_error 'too many arguments: 4' needle get -S x 1 2 3 4
	usage_error 'too many arguments: 1' needle list -S x 1
	for n in 4294967296 -1 x '' 1.5 0x1 ' 1'; do
		usage_error 'VOLUME is not 0 \.\.\. 4294967295' needle get -S x -- "$n" 1
	done
	for n in 4294967296 -1 x '' 1.5 0x 0xg 0x100000000 0x-1 0x0x1 '0x 1' 1x1 a1 ' 1'; do
		usage_error 'COOKIE is not 0 \.\.\. 4294967295' needle put -S x -- 1 1 "$n"
	done
	for n in 18446744073709551616 -1 x ''; do
		usage_error 'NEEDLE is not 0' needle get -S x -- 1 "$n"
		usage_error '--seed is not' needle make -S x -n 1 --seed="$n"
	done
	for n in 0 1000000001 x; do usage_error '--count is not' needle make -S x -n "$n"; done
	for n in 0 100001 x; do usage_error '--volumes is not' needle make -S x -n 1 -V "$n"; done
	for n in 1099511627777 x; do
		usage_error '--min is not' needle make -S x -n 1 -m "$n"
		usage_error '--max is not' needle make -S x -n 1 -M "$n"
	done
	usage_error '--min is larger than --max' needle make -S x -n 1 -m 5 -M 4
	usage_error '--count is missing' needle make -S x
	usage_error '--timeout is not' needle put -S x -t 0 1 1
	usage_error 'does not take the option: -j' needle get -S x -j 1 1
	usage_error 'does not take the option: -n' needle put -S x -n 1 1 1
	usage_error 'does not take the option: -f' needle get -S x -f y 1 1
	usage_error 'unknown' needle list -S x --nonsense
	assertEquals "--help" 0 "$("$B/needle" --help >"$T/help"; echo $?)"
	assertEquals "--help of a command" "" "$("$B/needle" put --help | diff - "$T/help")"
	assertEquals "nothing was made" "" "$(ls x 2>/dev/null)"
}

# Every bit, every cut, every failing call, every power cut; the catalogue.
units() { # FOLDER FLAGS…
	local unit
	mkdir "$T/units"
	for unit in unit_needle unit_catalog; do
		helper "$1/$unit" -O1 "${@:2}" "labs/tests/needle/$unit.c" "$1/librdma_common.a" \
			-libverbs -ljansson -lisal
		assertEquals "compiled" 0 $?
		here "$unit" "$1/$unit" "$T/units"
		assertEquals "$unit: 0 failures" "$(out_of "$unit")"
		assertEquals "$(err_of "$unit" | tail -n 20)" 0 "$(rc_of "$unit")"
	done
}

# Whatever it asks the system for is refused once: an error, and nothing is kept or half done.
test_refusals() {
	local verb words
	new_store
	needle make -n 20 -V 17 -m 1 -M 100 >"$T/made"
	printf 'hello' | needle put 99 1 1 >"$T/made"
	for verb in list 'list -j' verify 'get 99 1' 'put 98 1 1 --file labs/tests/lib.sh'; do
		read -ra words <<<"$verb"
		KEPT_POLL=1 refusals "${words[0]}" "$B/needle" "${words[0]}" -S "$S" "${words[@]:1}"
		assertEquals "$verb: $(err_of "${words[0]}")" 0 "$(rc_of "${words[0]}")"
	done >"$T/refusals"
	assert_refusals 130 'put fstat' <"$T/refusals"
	assertTrue 'the store is as it was' "needle verify"
	# And what jansson asks for on its way to a list
	for S in "$S" "$T/empty"; do
		mkdir -p "$S"
		KEPT_WHOSE=libjansson refusals list "$B/needle" list -S "$S" -j
	done >"$T/refusals"
	assert_refusals 10 'list (open|read)' <"$T/refusals"
}

test_units() { units "$B"; }

test_sanitizers() {
	local i bytes rc=0
	build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/needle >"$T/make" 2>&1 || rc=$?
	assertEquals "$(cat "$T/make")" 0 "$rc"
	export ASAN_OPTIONS=exitcode=99 UBSAN_OPTIONS=exitcode=99
	units build/asan \
		-fsanitize=address,undefined -fno-sanitize-recover=all
	local B=build/asan
	small_store >"$T/out"
	same_needles
	assertTrue "the needles" $?
	for verb in "list -j" list verify "make -n 20 -V 3 -m 0 -M 100000"; do
		# shellcheck disable=SC2086 # words
		here verb "$B/needle" ${verb%% *} -S "$S" ${verb#"${verb%% *}"}
		assertEquals "$verb: $(err_of verb)" 0 "$(rc_of verb)"
	done
	read_bytes "$S/volume-7.needles"
	for ((i = 0; i < ${#bytes[@]}; i += 9)); do
		bytes[i]=$((bytes[i] ^ 255))
		write_bytes "$S/volume-7.needles"
		here flip "$B/needle" verify -S "$S"
		assertEquals "byte $i: $(err_of flip)" 1 "$(rc_of flip)"
		write_bytes "$S/volume-7.needles" "$i"
		here cut "$B/needle" get -S "$S" 7 1
		assertEquals "$i bytes: $(err_of cut)" 1 "$(rc_of cut)"
		bytes[i]=$((bytes[i] ^ 255))
	done
	fails folder 'opendir' list -j -S /no/such/folder
	unset ASAN_OPTIONS UBSAN_OPTIONS
}

test_valgrind() {
	local verb
	command -v valgrind >/dev/null || { skip "no valgrind here" && return 0; }
	small_store >"$T/out"
	for verb in "put 7 9 1" "get 7 1" "list -j" verify; do
		# shellcheck disable=SC2086 # words
		here verb valgrind -q --leak-check=full --error-exitcode=9 \
			"$B/needle" ${verb%% *} -S "$S" ${verb#"${verb%% *}"}
		assertEquals "$verb: $(err_of verb)" "0:" "$(rc_of verb):$(err_of verb)"
	done
}

. shunit2
