#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What can be said of the files without building them.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"

MAX_LINES=700

# All of them, or what is left of $CHANGED_FILES (labs/tests/quick).
oneTimeSetUp() {
	mapfile -t files < <(files_of . | if [[ ${CHANGED_FILES:-} ]]; then grep -xF "$CHANGED_FILES"; else cat; fi)
}

# files_of DIR: the text files under DIR that are, or would be, in git.
files_of() {
	(
		cd "$1" || exit
		git ls-files -co --exclude-standard 2>/dev/null ||
			find . -name build -prune -o -type f -print |
			sed 's/^..//'
	) | sort | while read -r file; do
		# Deleted but not committed yet, and binary files, do not count.
		[[ -f $1/$file ]] && echo "$file"
	done | (cd "$1" && tr '\n' '\0' | xargs -0r grep -Il '')
}

c_files() { printf '%s\n' "$@" | grep '\.[ch]$'; }

# Bash files are known by their first line, or else by their suffix.
bash_files() {
	local file first shell='^#!.*[/ ](ba)?sh( |$)'
	for file; do
		first=''
		read -r first <"$file" 2>/dev/null || :
		if [[ $file == *.sh || $first =~ $shell ]]; then
			echo "$file"
		fi
	done
}

# Each rule takes files and prints what it objects to.

rule_clang_format() {
	local list
	mapfile -t list < <(c_files "$@")
	((${#list[@]} == 0)) ||
		clang-format --dry-run -Werror "${list[@]}" 2>&1
}

# SC1091: shunit2 need not be where shellcheck could read it.
rule_shellcheck() {
	local list
	mapfile -t list < <(bash_files "$@")
	((${#list[@]} == 0)) ||
		shellcheck -x -P SCRIPTDIR:. -e SC1091 "${list[@]}" 2>&1
}

rule_bash_n() {
	local file
	while read -r file; do
		bash -n "$file" 2>&1
	done < <(bash_files "$@")
}

rule_spdx() {
	local file head
	{
		c_files "$@"
		bash_files "$@"
		printf '%s\n' "$@" | grep -E '(^|/)Makefile$|\.(mk|awk|py|cc|cpp)$'
	} | while read -r file; do
		mapfile -n 3 head <"$file"
		[[ ${head[*]} == *'SPDX-License-Identifier: MIT'* ]] ||
			echo "$file: no SPDX line. Put one on top."
	done
}

rule_language() {
	local file han chinese
	chinese=" $(LC_ALL=C.UTF-8 grep -lP '\p{Han}' "$@" | tr '\n' ' ')"
	for file; do
		han=0
		[[ $chinese != *" $file "* ]] || han=1
		case $file in
		*.h)
			((han == 0)) || echo "$file: a header has Chinese" \
				"comments. Write them in English."
			;;
		common/*.c | server/*.c | client/*.c | lessons/*.c)
			((han == 1)) || echo "$file: has no Chinese comments." \
				"Say why it does what it does."
			;;
		esac
	done
}

# The pattern is written so that it does not match itself.
rule_paths() {
	grep -nHE '(^|[^A-Za-z0-9_.-])/(wor[k]|roo[t])(/|$)' "$@"
}

# A lesson that is named is there: by number, "lesson 5" or "05 · Title", or by its
# folder, "05-slug" after a slash (the folder, its program, its page in Chinese).
rule_lessons() {
	local match name number
	grep -zoHE '[Ll]essons?[[:space:]*#]+[0-9]+|[0-9]{2} ·|第[[:space:]*]*[0-9]+[[:space:]*]*课|/[01][0-9]-[a-z]{2}[a-z0-9-]*' \
		"$@" | while IFS= read -rd '' match; do
		name=${match#*:}
		number=${name//[!0-9]/}
		if [[ $name == /* ]]; then
			name=${name#/}
			[[ ! -e $ROOT/lessons/$name && ! -e $ROOT/docs-zh/$name.md ]]
		else
			printf -v number %02d $((10#$number))
			! compgen -G "$ROOT/lessons/$number-*" >/dev/null
		fi && echo "${match%%:*}: there is no $(tr -s '\n\t *' ' ' <<<"$name")"
	done
}

# A recipe line is tabs, then text: blanks before or between the tabs are typing
# errors. (A continuation line of a variable may use blanks only.)
rule_makefile() {
	local list
	mapfile -t list < <(printf '%s\n' "$@" | grep -E '(^|/)Makefile$|\.mk$')
	((${#list[@]} == 0)) || grep -nHP '^\t* +\t|^\t+ ' "${list[@]}"
}

# Pages are long by the code and output that is filled into them.
rule_length() {
	printf '%s\n' "$@" | grep -v '\.md$' | tr '\n' '\0' |
		xargs -0r awk -v max="$MAX_LINES" '
		FNR == max + 1 {
			print FILENAME ": more than " max " lines. Divide it."
		}'
}

rule_white_space() {
	printf '%s\n' "$@" | grep -vE '\.(md|patch|diff)$|(^|/)LICENSE$' |
		tr '\n' '\0' | xargs -0r grep -nHP '[ \t]+$|\r$'
}

# objects RULE FILE TEXT: TEXT in FILE must make RULE object.
objects() {
	mkdir -p "$T/$(dirname "$2")"
	printf '%b' "$3" >"$T/$2"
	assertNotNull "$1 must object to: $3" "$(cd "$T" && "$1" "$2")"
	rm "$T/$2"
}

agrees() { # RULE FILE TEXT
	mkdir -p "$T/$(dirname "$2")"
	printf '%b' "$3" >"$T/$2"
	assertEquals "$1 must not object to: $3" '' "$(cd "$T" && "$1" "$2")"
	rm "$T/$2"
}

has() { command -v "$1" >/dev/null || { skip "no $1 here"; return 1; }; }

test_files_are_found() {
	local all
	all=" $(files_of . | tr '\n' ' ') "
	assertContains "$all" ' common/rdma_common.h '
	assertContains "$all" ' labs/tests/house/test_style.sh '
	assertNotContains "$all" ' build/'
	assertEquals labs/docs "$(bash_files labs/docs README.md)"
}

test_clang_format() {
	has clang-format || return 0
	assertEquals '' "$(rule_clang_format "${files[@]}")"
	cp .clang-format "$T"
	objects rule_clang_format a.c 'int main(void) {return 0;}\n'
}

# shellcheck disable=SC2016 # code of the planted files
test_shellcheck() {
	has shellcheck || return 0
	assertEquals '' "$(rule_shellcheck "${files[@]}")"
	objects rule_shellcheck tool '#!/usr/bin/env bash\necho $1\n'
	objects rule_shellcheck a.sh '#!/bin/sh\necho $1\n'
	agrees rule_shellcheck text 'echo $1\n'
}

# "$(…)" before it, and $? is the exit code of that.
rule_exit_codes() { grep -nE '^[[:space:]]*assert.*\$\(.*\)" ([0-9]+ )?\$\?$' "$@"; }

test_exit_codes_that_are_asserted_are_of_the_command() {
	assertEquals '' "$(rule_exit_codes "${files[@]}")"
	# shellcheck disable=SC2016
	objects rule_exit_codes a.sh '\tassertEquals "$(<err)" 0 $?\n'
}

test_bash_can_read_it() {
	assertEquals '' "$(rule_bash_n "${files[@]}")"
	objects rule_bash_n a.sh 'if true; then\n'
}

test_spdx_lines() {
	assertEquals '' "$(rule_spdx "${files[@]}")"
	objects rule_spdx a.c 'int a;\n'
	objects rule_spdx tool '#!/usr/bin/env bash\n'
	objects rule_spdx Makefile 'all:\n'
	agrees rule_spdx README.md '# Title\n'
}

test_sources_teach_in_chinese_headers_speak_english() {
	assertEquals '' "$(rule_language "${files[@]}")"
	objects rule_language common/a.c '/* English */\n'
	objects rule_language lessons/01-a/a.c 'int a;\n'
	objects rule_language common/a.h '/* 中文 */\n'
	agrees rule_language common/a.c '/* 中文 */\n'
	agrees rule_language labs/vm/a.c '/* English */\n'
}

test_no_paths_of_one_machine() {
	assertEquals '' "$(rule_paths "${files[@]}")"
	objects rule_paths a.md 'see /wor''k/tree/a.c\n'
	objects rule_paths a.sh 'cd /roo''t\n'
	agrees rule_paths a.sh 'cd build/wor''k/x\n'
}

test_lessons_that_are_named_exist() {
	assertEquals '' "$(rule_lessons "${files[@]}")"
	objects rule_lessons a.md "as in less""on 98"
	objects rule_lessons a.c "/* 第 9""9\n * 课 */\n"
	objects rule_lessons a.sh "build/""13-rdma-engine\n"
	agrees rule_lessons a.md 'lesson 5, lessons/05-send-recv, 第 5 课\n'
}

test_makefiles_do_not_mix_tabs_and_blanks() {
	assertEquals '' "$(rule_makefile "${files[@]}")"
	objects rule_makefile Makefile 'all:\n \techo\n'
	objects rule_makefile Makefile 'all:\n\t echo\n'
	agrees rule_makefile Makefile 'A = \\\\\n    b\nall:\n\techo\n'
}

test_no_file_is_too_long() {
	assertEquals '' "$(rule_length "${files[@]}")"
	objects rule_length a.c "$(printf '\\n%.0s' $(seq 701))"
	agrees rule_length a.c "$(printf '\\n%.0s' $(seq 700))"
}

test_no_white_space_at_the_end_of_lines() {
	assertEquals '' "$(rule_white_space "${files[@]}")"
	objects rule_white_space a.c 'int a; \n'
}

# git on Windows would give each text file \r\n, and bash could not read it.
test_line_ends_of_a_clone() {
	local frames=labs/tests/engine/engine_frames
	mkdir -p "$T/$frames"
	cp .gitattributes "$T"
	(
		cd "$T" && git init -q . && git config core.autocrlf true || exit
		printf 'one\ntwo\n' >script
		printf 'one\r\ntwo\n' >"$frames/a.bin"
		cp "$frames/a.bin" kept
		git add . 2>/dev/null && rm script "$frames/a.bin" && git checkout-index -a
	)
	assertEquals "a script" "$(printf 'one\ntwo' | od -c)" "$(printf '%s' "$(<"$T/script")" | od -c)"
	assertTrue "a binary file was changed" "cmp '$T/kept' '$T/$frames/a.bin'"
}

test_every_source_has_a_suite() {
	local file none=()
	# shellcheck source=labs/tests/suites.sh
	. labs/tests/suites.sh
	for file in $(git ls-files {common,client,server,labs}/'*.c' ':!labs/tests'); do
		[[ $(suites_of "$file") ]] || none+=("$file")
	done
	assertEquals 'labs/tests/quick and mutants/random run nothing for these' '' "${none[*]}"
}

test_every_fault_can_still_be_put_back() {
	local patch
	for patch in labs/tests/mutants/*.patch; do
		git apply --check "$patch" 2>/dev/null
		assertEquals "$patch no longer applies" 0 $?
	done
}

# What is listed as a fault that nobody can see: it can be drawn, and has a reason.
test_equivalent_faults_can_still_be_drawn() {
	local equivalent=labs/tests/mutants/equivalent
	# shellcheck source=labs/tests/suites.sh
	. labs/tests/suites.sh
	sources_with_faults | xargs awk -f labs/tests/mutants/rules.awk |
		awk -F '\t' '{ line = ""; for (i = 4; i <= NF; i++) line = line $i; print $1 "\t" line }' >"$T/drawn"
	assertEquals 'no longer drawn' '' "$(cut -f 1,2 $equivalent | grep -vxFf "$T/drawn")"
	assertEquals 'without a reason, or with tabs in it' '' "$(awk -F '\t' 'NF != 3 || $3 == ""' $equivalent)"
	assertEquals 'twice' '' "$(cut -f 1,2 $equivalent | sort | uniq -d)"
}

# It is shown what TAILQ_FOREACH is. Formats are the compiler's, who knows them of
# all our functions; for cppcheck, %ju does not take a uint64_t.
test_cppcheck() {
	has cppcheck || return 0
	local list queue
	mapfile -t list < <(c_files "${files[@]}" |
		grep -E '^(common|server|client|lessons)/.*c$')
	((${#list[@]})) || return 0
	queue=$("${CC:-cc}" -E -x c - <<<'#include <sys/queue.h>' |
		sed -n 's/^# 1 "\(.*queue\.h\)".*/\1/p')
	assertEquals '' "$(cppcheck -q --std=c11 --error-exitcode=1 -Icommon \
		--include="$queue" --suppress=invalidPrintfArgType_uint \
		--suppress=invalidPrintfArgType_sint \
		--enable=warning,portability --inline-suppr \
		--suppress=missingIncludeSystem \
		--suppress=normalCheckLevelMaxBranches "${list[@]}" 2>&1)"
}

. shunit2
