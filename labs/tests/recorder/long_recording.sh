#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The recording as a file: whatever becomes of the program or of the disk, the program
# does not notice, and what stands in the file can be read; whatever is done to the file,
# the report reads what is left of it, or refuses it by name. Without a device (hollow.c).
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. labs/tests/guest.sh
# shellcheck source=labs/tests/recorder/qptrace.sh
. labs/tests/recorder/qptrace.sh

oneTimeSetUp() {
	must_build "$B/libqptrace.so" "$B/qptrace-report" "$B/librdma_common.a"
	helper "$B/hollow" -O2 labs/tests/recorder/hollow.c -libverbs -lpthread
	helper "$B/hollow.so" -O2 -DDEVICE -shared -fPIC labs/tests/recorder/hollow.c
	helper "$B/checked/qptrace-report" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
		-I"$B/labs/report" "$SOURCES"/labs/report/*.c "$B/labs/report/perfetto.pb-c.c" \
		"$B/librdma_common.a" -libverbs -ljansson -lprotobuf-c
	built_in
	export ASAN_OPTIONS=detect_leaks=0
}

# hollow OPTION… -- N HOW: recorded in $T/a.qpt
hollow() { LD_PRELOAD=$PWD/$B/hollow.so timeout 60 labs/qptrace -o "$T/a.qpt" "$@"; }

# sends_of FILE: how many the report counts, of each QP, with bad completions in brackets
sends_of() {
	labs/qptrace report "$1" 2>&1 |
		sed -n 's/.* QP .* \([0-9]*\) sends.*posted; \([0-9]*\) completions, \([0-9]*\) bad/\1 \2 (\3)/p' | sort | uniq -c | xargs
}

# How the program goes on; its exit code; of the files that it leaves, what each holds.
test_whatever_the_program_does() {
	local name args rc files sends file
	while IFS='|' read -r name args rc files sends; do
		rm -f "$T"/a.qpt*
		# shellcheck disable=SC2086 # words
		hollow -- "$B/hollow" $args >"$T/out" 2>"$T/err"
		assertEquals "$name: $(<"$T/err")" "$rc" $?
		assertEquals "$name says" '' "$(<"$T/err")"
		assertEquals "files of $name" "$files" "$(find "$T" -name 'a.qpt*' | wc -l)"
		for file in "$T"/a.qpt*; do
			[[ $name == fork && $file == *.qpt ]] ||
				assertEquals "$name: ${file##*/}" "$sends" "$(sends_of "$file")"
		done
	done <<-'END'
		one|3000|0|1|1 3000 3000 (0)
		threads|2000 64|0|1|64 2000 2000 (0)
		close|3000 close|0|1|2 3000 3000 (0)
		exec|3000 exec|0|2|1 3000 3000 (0)
		fork|3000 fork|0|21|1 3000 3000 (0)
	END
}

# The newest are kept, in what --last allows, and what has gone is counted: of 10 million
# messages, 64 MB.
test_bounds() {
	local size said gone
	hollow -- "$B/hollow" 10000000 >/dev/null
	size=$(stat -c %s "$T/a.qpt")
	assertTrue "$size bytes" "((size > 60 << 20 && size <= (64 << 20) + (1 << 20)))"
	/usr/bin/time -o "$T/cost" -f '%e %M' "$B/qptrace-report" "$T/a.qpt" >"$T/said"
	gone=$(sed -n 's/.* \([0-9]*\) posts and completions before these have gone.*/\1/p' "$T/said")
	said=$(sed -n 's/.* hollow0 *\([0-9]*\) sends.* \([0-9]*\) completions.*/\1 + \2/p' "$T/said")
	assertEquals 'all are there or counted' 20000000 "$((gone + said))"
	assertTrue "seconds and KB of a report: $(<"$T/cost")" \
		"awk '{ exit !(\$1 <= 3 && \$2 <= 200000) }' '$T/cost'"
	hollow --last 128K -- "$B/hollow" 100000 8 >/dev/null
	size=$(stat -c %s "$T/a.qpt")
	assertTrue "a block for each thread, $size bytes" "((size <= 30 * 65536 + 4096))"
}

# on_small_disk KB: a folder of so much, that this process alone sees
on_small_disk() {
	local script="mount -t tmpfs -o size=$1k none '$T/disk' && cd '$PWD' &&
		LD_PRELOAD=$PWD/$B/hollow.so labs/qptrace -o '$T/disk/a.qpt' $B/hollow 100000 2>&1; echo \$?
		cp '$T/disk/a.qpt' '$T/a.qpt'; rm '$T/disk/a.qpt'"
	mkdir -p "$T/disk"
	unshare -rm sh -c "$script" >"$T/out"
}

test_no_room() {
	local kb said rc
	unshare -rm true 2>/dev/null || { skip 'no user namespaces here'; return 0; }
	for kb in 2 4 60 68 132 300 1000; do
		on_small_disk "$kb"
		assertEquals "$kb KB" 0 "$(grep -v ^qptrace: "$T/out" | xargs)"
		assertEquals "$kb KB, said once" 1 "$(grep -cE '^qptrace: (the recording cannot grow any more|not recording, cannot open).*ENOSPC' "$T/out")"
		((kb < 200)) || accepted "$kb KB" "$T/a.qpt"
	done
	rc=0
	said=$(ulimit -f 200 && hollow -- "$B/hollow" 100000 2>&1) || rc=$?
	assertEquals "ulimit -f: $said" 0 "$rc"
	assert_in "$said" 'cannot grow any more.*EFBIG'
	mkdir "$T/gone"
	LD_PRELOAD=$PWD/$B/hollow.so labs/qptrace -o "$T/gone/a.qpt" "$B/hollow" 3000000 >"$T/out" 2>&1 &
	await in_file QPTRACE "$T/gone/a.qpt"
	rm -r "$T/gone"
	wait $! || rc=$?
	assertEquals 'the folder vanishes' '0 ' "$rc $(<"$T/out")"
}

# Each killed at a moment of its own; each file is read, and holds no post twice.
test_killed() {
	local i pid bad='' n=0
	for ((i = 0; i < 200; i++)); do
		rm -f "$T/a.qpt"
		LD_PRELOAD=$PWD/$B/hollow.so QPTRACE_FILE=$T/a.qpt QPTRACE_LAST=131072 \
			bash -c 'LD_PRELOAD=$1:$LD_PRELOAD exec "$2" 0 2' - "$PWD/$B/libqptrace.so" "$B/hollow" &
		pid=$!
		nap "0.0$((RANDOM % 9))$((RANDOM % 10))"
		kill -KILL $pid
		wait $pid 2>/dev/null
		[[ -s $T/a.qpt ]] || continue
		n=$((n + 1))
		"$B/qptrace-report" "$T/a.qpt" >"$T/out" 2>&1 || grep -q "holds no events" "$T/out" || bad+=" $i: $(tail -n 2 "$T/out" | xargs);"
	done 2>/dev/null
	assertEquals "of $n" '' "$bad"
	assertTrue "$n had begun" "((n > 100))"
}

# Two at once under one name.
test_one_name() {
	local file
	# shellcheck disable=SC2016 # for that sh
	hollow -- sh -c '"$0" 20000 & "$0" 20000; wait' "$B/hollow" >/dev/null
	assertEquals 2 "$(find "$T" -name 'a.qpt*' | wc -l)"
	for file in "$T"/a.qpt*; do
		assertEquals "$file" '1 20000 20000 (0)' "$(sends_of "$file")"
	done
}

# checked FILE: the report reads it, or refuses it by name
checked() {
	local rc=0
	"$B/checked/qptrace-report" --all "$1" >"$T/out" 2>"$T/err" || rc=$?
	((rc == 0)) || { ((rc == 1)) && grep -q '^error: .*a.qpt\|no events' "$T/err"; }
}

# overwrite OFFSET BYTES: in a.qpt, as printf has them
# shellcheck disable=SC2059 # a format
overwrite() { printf "$2" | dd of="$T/a.qpt" bs=1 seek="$1" conv=notrunc status=none; }

# What becomes of a copy: it is of another version, another machine; cut; full of nonsense.
test_whatever_becomes_of_the_file() {
	local name offset bytes said i size bad=''
	hollow --last 64K -- "$B/hollow" 3000 >/dev/null
	mv "$T/a.qpt" "$T/good"
	while IFS='|' read -r name offset bytes said; do
		cp "$T/good" "$T/a.qpt"
		overwrite "$offset" "$bytes"
		checked "$T/a.qpt" || fail "$name: $(<"$T/err")"
		assert_in "$(cat "$T/out" "$T/err")" "$said" "$name:"
	done <<-'END'
		magic|0|X|does not begin with
		version|8|\x63\0\0\0|of version 99, and this is qptrace of version 3
		endianness|12|\1\2\3\4|another endianness, 0x04030201 instead of 0x01020304
		sizes|16|\0\0\0\0|sizes in its header cannot be
		odd sizes|20|\1\0\1\0|sizes in its header cannot be
		blocks|40|\xff\xff\xff\xff|parts of it are missing
		kind|4096|\x63\0\0\0|[0-9]+ events
		used|4112|\xff\xff\xff\xff\xff\xff\xff\x7f|parts of it are missing
		event|4160|\xff\xff\xff\xff|no events|parts of it
		member|4216|\xff\xff\xff\xff|events
	END
	size=$(stat -c %s "$T/good")
	for ((i = 0; i < 120; i++)); do
		head -c $((i < 60 ? i * 97 : i * size / 120)) "$T/good" >"$T/a.qpt"
		checked "$T/a.qpt" || bad+=" cut $i: $(head -n 3 "$T/err" | xargs);"
		cp "$T/good" "$T/a.qpt"
		head -c 40 /dev/urandom >"$T/noise"
		dd if="$T/noise" of="$T/a.qpt" bs=1 seek=$((i % 2 ? 4096 + RANDOM % 2000 : RANDOM * size / 32768)) \
			conv=notrunc status=none
		checked "$T/a.qpt" || bad+=" noise $i: $(head -n 3 "$T/err" | xargs);"
	done
	assertEquals '' "$bad"
}

# While it is written: what there is.
test_being_written() {
	local pid i said
	LD_PRELOAD=$PWD/$B/hollow.so labs/qptrace -o "$T/a.qpt" --last 64K "$B/hollow" 0 &
	pid=$!
	await in_file QPTRACE "$T/a.qpt"
	for ((i = 0; i < 10; i++)); do
		nap 0.03
		checked "$T/a.qpt" || fail "$i: $(<"$T/err")"
	done
	said=$(<"$T/out")
	kill -TERM $pid
	wait $pid
	assert_in "$said" "does not tell of the program.s end: that still runs, or was killed"
}

# shellcheck disable=SC1091
. shunit2
