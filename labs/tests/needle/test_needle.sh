#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# build/needle: what is put comes back to the byte, and what was damaged, cut, torn or
# locked is noticed. needle_server on rxe: engines READ every needle, and nothing else.
#
# shellcheck disable=SC2016,SC2317 # scripts for the lab are quoted; functions by name
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/needle/needle.sh
. "$ROOT/labs/tests/needle/needle.sh"

# SANITIZE: $B was built with sanitizers (long_needle.sh)
oneTimeSetUp() {
	local flags=(-O1)
	[[ ! ${SANITIZE-} ]] ||
		flags+=('-fsanitize=address,undefined' -fno-sanitize-recover=all)
	build_helpers && build_reader "$B" "${flags[@]}" &&
		helper "$B/unit_needle" "${flags[@]}" labs/tests/needle/unit_needle.c \
			"$B/librdma_common.a" -libverbs -lisal
}

same_needles() {
	[[ $(needle get 7 1 100) == hello && $(needle get 7 2) == '' &&
		$(needle get 7 18446744073709551615) == 12345678 ]]
}

test_what_is_put_comes_back() {
	local size id=0
	new_store
	for size in 0 1 7 8 65535 65536 65537 1000003; do
		id=$((id + 1))
		head -c "$size" /dev/urandom >"$T/in.$id"
		if ((id % 2)); then
			needle put 3 "$id" 42 <"$T/in.$id" >"$T/out"
		else
			needle put 3 "$id" --file "$T/in.$id" >"$T/out"
		fi
		assertEquals "put of $size" 0 $?
		needle get 3 "$id" >"$T/got"
		assertTrue "needle $id" "cmp $T/in.$id $T/got"
	done
	# A pipe that brings the data in small pieces.
	(for id in {1..5}; do echo "piece $id" && sleep 0.01; done) | needle put 3 11 >"$T/out"
	assertEquals 5 "$(needle get 3 11 | wc -l)"
}

test_list_and_cookies() {
	local needles
	small_store
	printf 123456789 | needle put 4294967295 0 0xDeadBeef >"$T/out"
	assertEquals 'volume 4294967295 needle 0 cookie 3735928559: 9 bytes, CRC-32C 0xe3069283' \
		"$(<"$T/out")"
	assertTrue "the newer one counts" same_needles
	printf -v needles '{"volume":%s,"needle":"%s","cookie":%s,"size":%s,"crc32c":%s},' \
		7 1 100 5 2591144780 7 2 5 0 0 7 18446744073709551615 0 8 1619493018 \
		4294967295 0 3735928559 9 3808858755
	assertEquals "{\"needles\":[${needles%,}]}" "$(needle list --json | jq -c)"
	assertEquals "a line for each, and the head" 5 "$(needle list | wc -l)"
	assertEquals '4 needles, 1 superseded records, 25 bytes: all is well' "$(needle verify)"
	fails old 'cookie 99 is not that of needle 1' get 7 1 99
	fails zero 'cookie 0 is not' get 7 1 0
	assert_not_in "$(err_of zero)" 100 "the right one is not told"
	assertEquals "in hex" hello "$(needle get 7 1 0x64)"
	# Nobody guesses a cookie that was not given.
	for id in 1 2 3; do needle put 8 "$id" </dev/null; done | cut -d' ' -f6 | sort -u >"$T/cookies"
	assertEquals 3 "$(wc -l <"$T/cookies")"
}

# A byte at each place that has a check of its own.
test_damage() {
	local at verb pattern good file
	small_store
	file=$S/volume-7.needles
	good=$(base64 "$file")
	while IFS='|' read -r at verb pattern; do
		base64 -d <<<"$good" >"$file"
		printf '\377' | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
		# shellcheck disable=SC2086 # words
		here "byte$at" "$B/needle" ${verb%% *} -S "$S" ${verb#"${verb%% *}"}
		assert_error "byte$at" 1 "$pattern"
		[[ $verb == verify ]] || assertEquals "byte $at: stdout" '' "$(out_of "byte$at")"
	done <<-'END'
		0|get 7 1|volume-7.needles: no volume: the file does not begin
		8|get 7 1|the header at offset 0 is damaged
		52|get 7 1|record header at offset 32 is damaged: its CRC-32C says 0x[0-9a-f]{8}, its bytes give 0x
		64|verify|the data of needle 1 at offset 64 are damaged
		70|verify|the bytes after the record at offset 32 are not zero
		104|get 7 1|the data of needle 1 at offset 104 are damaged: the record.s CRC-32C says 0x9a71bb4c, the bytes give 0x
	END
	assertEquals "the others can be read" 12345678 "$(needle get 7 18446744073709551615)"
	base64 -d <<<"$good" >"$file"
	truncate -s 183 "$file"
	fails get '184 bytes were committed, the file has only 183: it was cut' get 7 1
	fails put 'it was cut' put 7 3 1
	assertEquals "untouched" 183 "$(stat -c %s "$file")"
}

# put_half NAME TEXT ARGS…: a put into volume 7 that has TEXT and waits for more, from
# $pipe; sets $pid
put_half() {
	[[ -p $T/fifo ]] || mkfifo "$T/fifo"
	env --default-signal=INT "$B/needle" put -S "$S" 7 "${@:3}" <"$T/fifo" \
		>"$T/$1.out" 2>"$T/$1.err" &
	pid=$!
	exec {pipe}>"$T/fifo"
	printf %s "$2" >&"$pipe"
	grown() { (($(stat -c %s "$S/volume-7.needles") == 184 + 32 + ${#1})); }
	await grown "$2"
}

test_put_that_is_killed() {
	local pid pipe half
	printf -v half '%0100000d' 0
	small_store
	put_half killed "$half" 3 1
	# Half a needle is nobody's business, and no torn tail either: a put goes on.
	here going "$B/needle" list -S "$S"
	assert_done going
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	exec {pipe}>&-
	here torn "$B/needle" list -S "$S"
	assertEquals 0:4 "$(rc_of torn):$(out_of torn | wc -l)"
	assert_in "$(err_of torn)" '^warning: .*volume-7.needles: a put was interrupted: the last 100032 bytes, from offset 184, are not read'
	assertTrue "reading does not write" "grown $half"
	here again "$B/needle" put -S "$S" 7 3 1 --file /dev/null
	assertEquals "$(err_of again)" 0 "$(rc_of again)"
	assert_in "$(err_of again)" 'the last put was interrupted: cut off its 100032 bytes'
	assertEquals 216 "$(stat -c %s "$S/volume-7.needles")"
	assertTrue "all that was committed" same_needles
}

test_writers_take_turns() {
	local pid pipe first id rc=0
	small_store
	put_half first la 3 1
	first=$pid
	fails second 'another process is writing to it' put 7 4 -t 1
	assertTrue "what the first one wrote stays" "grown la"
	assertTrue "another volume is free" "needle put 8 1 </dev/null >$T/out"
	assertTrue "a reader need not wait" same_needles
	printf te >&"$pipe"
	exec {pipe}>&-
	wait "$first" || rc=$?
	assertEquals "$(err_of first)" 0 "$rc"
	assertEquals late "$(needle get 7 3)"
	for id in {10..19}; do
		needle put 9 "$id" <<<"of $id" >"$T/out.$id" 2>&1 &
	done
	wait
	for id in {10..19}; do
		assertEquals "$(<"$T/out.$id")" "of $id" "$(needle get 9 "$id")"
	done
}

test_failed_put_leaves_nothing() {
	local signal before pid pipe fd
	small_store
	before=$(cksum "$S/volume-7.needles")
	for signal in INT TERM; do
		put_half "$signal" half 3 1
		kill -s "$signal" "$pid"
		wait "$pid"
		echo $? >"$T/$signal.rc"
		exec {pipe}>&-
		assert_error "$signal" 1 'stopped by a signal'
		assertEquals "$signal" "$before" "$(cksum "$S/volume-7.needles")"
	done
	put_half slow half 3 1 -t 1
	wait "$pid"
	echo $? >"$T/slow.rc"
	exec {pipe}>&-
	assert_error slow 1 'read\(standard input\): nothing came for 1 s'
	(ulimit -f 8 && here limit "$B/needle" put -S "$S" 7 3 1 -f /usr/bin/env)
	assert_error limit 1 'pwrite\(.*volume-7.needles\) failed: E[A-Z]+ .*: File too large'
	fails folder 'read\(/usr\) failed: EISDIR' put 7 3 1 -f /usr
	fails file 'open\(/no/such/file\) failed: ENOENT' put 7 3 1 -f /no/such/file
	# A volume that became descriptor 0, 1 or 2 would be read as input, or get the messages.
	for fd in 0 1 2; do
		(eval "exec $fd>&-" && exec "$B/needle" put -S "$S" 7 3 1) \
			</dev/null >"$T/fd$fd.out" 2>"$T/fd$fd.err"
		assertEquals "$fd closed" 1 $?
		assert_in "$fd$(err_of "fd$fd")" "^2|descriptor $fd is closed"
	done
	assertEquals "$before" "$(cksum "$S/volume-7.needles")"
}

test_output_that_cannot_be_written() {
	local verb
	small_store
	for verb in "get 7 1" list "list -j" verify "put 7 5 1"; do
		# shellcheck disable=SC2086 # words
		needle $verb </dev/null >/dev/full 2>"$T/full.err"
		echo $? >"$T/full.rc"
		assert_error full 1 'could not be written to stdout'
	done
}

test_stores_that_are_none() {
	local store pattern verb
	small_store
	touch "$S"/{volume-07.needles,volume-x.needles,volume-4294967296.needles,volume-7.needles.bak}
	mkfifo "$S/volume-1.needles"
	mkdir "$S/volume-2.needles"
	cp "$S/volume-7.needles" "$S/volume-3.needles"
	ln -s nothing "$S/volume-4.needles"
	: >"$S/volume-5.needles"
	ln -s nothing "$S/volume-8.needles.new"
	while IFS='|' read -r store verb pattern; do
		# shellcheck disable=SC2086 # words
		S=$store fails "${verb// /-}" "$pattern" $verb
	done <<-END
		$T/none|list -j|opendir\(.*/none\) failed: ENOENT
		$T/none|get 1 1|there is no volume 1
		$T/none|put 1 1|open\(.*/none\) failed: ENOENT
		/dev/null|list -j|opendir\(/dev/null\) failed: ENOTDIR
		/dev/null|put 1 1|open\(/dev/null/volume-1.needles\) failed: ENOTDIR
		$S|get 6 1|there is no volume 6
		$S|get 7 3|volume 7 has no needle 3
		$S|get 1 1|volume-1.needles: this is no regular file
		$S|put 2 1|volume-2.needles.*Is a directory
		$S|get 3 1|volume-3.needles: the file is of volume 7
		$S|put 4 1|volume-4.needles.*ELOOP
		$S|get 5 1|volume-5.needles: its header is gone: 0 bytes
		$S|put 8 1|volume-8.needles.new.*ELOOP
	END
	assertFalse "what a link names is made" "[ -e $S/nothing ]"
	here all "$B/needle" list -S "$S" -j
	assertEquals "what can be read is listed" 1:3:5 \
		"$(rc_of all):$(out_of all | jq '.needles | length'):$(err_of all | grep -c '^error: ')"
	new_store
	assertEquals '{"needles":[]}' "$(needle list --json)"
	assertEquals '0 needles, 0 superseded records, 0 bytes: all is well' "$(needle verify)"
}

test_make() {
	local first
	new_store
	needle make --count 100 --volumes 3 --min 10 --max 5000 --seed 9 >"$T/out"
	assertEquals "100 needles in 3 volumes" "$(<"$T/out")"
	assertEquals "100 34 33 33 true true" "$(needle list -j | jq -r '.needles | [length,
		([1, 2, 3][] as $v | map(select(.volume == $v)) | length),
		(map(.size) | min >= 10 and max <= 5000),
		(map(.cookie) | unique | length == 100)] | map(tostring) | join(" ")')"
	first=$(cat "$S"/* | cksum)
	new_store
	needle make -n 100 -V 3 -m 10 -M 5000 -s 9 >"$T/out"
	assertEquals "the same seed, the same bytes" "$first" "$(cat "$S"/* | cksum)"
	new_store
	needle make -n 100 -V 3 -m 10 -M 5000 -s 8 >"$T/out"
	assertNotEquals "another seed" "$first" "$(cat "$S"/* | cksum)"
	needle make -n 1 -m 10 -M 10 -s 8 >"$T/out"
	assertEquals "100 needles, 1 superseded" "$(needle verify | grep -o '^.* superseded')"
	assertEquals "of the size asked for" 10 "$(needle get 1 1 | wc -c)"
	assertEquals "no bytes at all" 0 "$(needle make -n 5 -m 0 -M 0 >"$T/out"; needle get 1 5 | wc -c)"
}

test_wrong_usage() {
	local pattern words
	while IFS='|' read -r pattern words; do
		# shellcheck disable=SC2086 # words
		usage_error "$pattern" $words
	done <<-'END'
		the command is missing|needle
		there is no such command: gett|needle gett
		--store is missing|needle list
		needs an argument|needle list --store
		VOLUME and NEEDLE are missing|needle get -S x 1
		too many arguments: 4|needle get -S x 1 2 3 4
		VOLUME is not 0 \.\.\. 4294967295|needle get -S x 4294967296 1
		NEEDLE is not 0|needle get -S x 1 18446744073709551616
		COOKIE is not 0 \.\.\. 4294967295|needle put -S x 1 1 0x100000000
		--count is missing|needle make -S x
		--volumes is not|needle make -S x -n 1 -V 100001
		--min is larger than --max|needle make -S x -n 1 -m 5 -M 4
		--timeout is not|needle put -S x -t 0 1 1
		does not take the option: -j|needle get -S x -j 1 1
		unknown|needle list -S x --nonsense
		--store is missing|needle_server rxe0 18515
		too many arguments: x|needle_server -S y rxe0 1 1 x
		--max-engines is not|needle_server -S y -n 4097
		--max-mr is not|needle_server -S y -M 0
		--timeout is not|needle_server -S y -t 86401
	END
	assertTrue --help "$B/needle --help >$T/out && $B/needle_server --help >$T/out"
}

# Every failing call, every power cut.
test_put_survives_each_failure() {
	mkdir "$T/unit"
	here unit "$B/unit_needle" "$T/unit"
	assertEquals "0:unit_needle: 0 failures" "$(rc_of unit):$(out_of unit)"
}

test_engines_read_a_node() {
	local name expected
	many_needles
	expected=$(listed)
	mkdir "$T/empty"
	on_rxe '
		ibv_devinfo -d rxe0 -v | awk "\$1 == \"max_qp_rd_atom:\" { print \$2 }" >"$T/limit"
		SPY_LOG=$T/node.log LD_PRELOAD=$B/spy.so node node -q
		engine small -c 500 -w 3
		engine deep -c 64 -w 128
		engine write -W
		engine outside -O
		printf later | "$B/needle" put -S "$S" 2147483653 2 7 >"$T/put"
		engine during
		run busy "$B/needle_server" -S "$S" rxe0
		end node
		# Many small memory regions: no needle may lie in two of them.
		node split -M 3100
		rdma resource show mr | grep -c needle_server >"$T/mrs"
		engine again
		kill -INT "${pids[split]}"
		reap split
		S=$T/empty node empty -q
		engine nothing
		end empty
		run device "$B/needle_server" -S "$S" mlx5_0
		run folder "$B/needle_server" -S "$T/none" rxe0
		run most "$B/needle_server" -S "$S" -M 2000 rxe0
		printf "\377" | dd of="$S/volume-2.needles" bs=1 seek=40 conv=notrunc status=none
		run damaged "$B/needle_server" -S "$S" rxe0
	' || return 0
	assert_done node split empty small deep write outside during again nothing
	for name in small deep during; do
		assertEquals "$name: what the node had at its start" "$expected" "$(out_of "$name")"
	done
	assert_in "$(out_of again)" "^2147483653 +2 +7 +5 +0x"
	assertEquals "0 needles, 0 bytes" "$(out_of nothing)"
	# An engine may have as many READs under way as the device can answer.
	assert_in "$(grep '^modify_qp state=2 ' "$T/node.log")" " max_dest_rd_atomic=$(<"$T/limit") "
	for name in write outside; do
		assertEquals "$name" "remote access error" "$(out_of "$name")"
	done
	assertTrue "$(<"$T/mrs") regions" "(($(<"$T/mrs") > 200))"
	assert_in "$(out_of split)" "in $(<"$T/mrs") MRs"
	assert_error busy 1 'EADDRINUSE'
	assert_error device 1 'no RDMA device is named "mlx5_0"'
	assert_error folder 1 'opendir\(.*none\)'
	assert_error most 1 'needle [0-9]+ of volume 1 has [0-9]+ bytes and 32 of header, one MR at most 2000'
	assert_error damaged 1 'volume-2.needles: the record header at offset 32 is damaged'
}

. shunit2
