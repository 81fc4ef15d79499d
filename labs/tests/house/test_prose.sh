#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What labs/docs asks of the words between the blocks of a page.
# shellcheck source=labs/tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/house/tree.sh
. "$(dirname "$0")/tree.sh"

# A browser shows a line break as a blank, which Chinese does not have.
test_line_breaks_in_chinese_sentences() {
	make_tree
	cat >>"$T/docs-zh/01-a.md" <<'END'

一句话。
另一句，**重要。**
这里说 RDMA
是什么（见下）。
- 一项
- 又一项
  也是一句。

| 表 |
| 格 |

```
代码
代码
```

断在逗号，
不好。这里
也不好。（括号，
也是）
END
	docs check --no-run
	assertEquals 1 "$rc"
	assertEquals "48 59 60 61" "$(sed -n 's/^docs-zh.01-a.md:\([0-9]*\): the line before.*/\1/p' <<<"$out" | xargs)"
}

# A glossary of three words for the tree above: of lessons 01, 02, and of none.
make_glossary() {
	make_tree
	mkdir "$T/lessons/02-b"
	cat >"$T/lessons/glossary.txt" <<'END'
# TERM | in full | 中文 | lesson | more
QP | queue pair | 队列对 | 01 | ibv_create_qp(3)
Two queues.
两条队列。
fence | fence | 栅栏 | - | -
A wait.
等一等。
work request | work request | 请求 | 02 | -
A wish.
一个要求。
END
	{ page '# Lesson 2' && english_frame; } >"$T/lessons/02-b/README.md"
	{ page '# 第二课' && chinese_frame; } >"$T/docs-zh/02-b.md"
	echo '[2](lessons/02-b/README.md)' >>"$T/README.md"
	docs fill
	assertEquals "fill: $out" 0 "$rc"
	docs check --no-run
	assertEquals "check: $out" 0 "$rc"
}

test_glossary_is_made_in_both_languages() {
	make_glossary
	assert_in "$(<"$T/lessons/GLOSSARY.md")" '^. <a id="qp"></a>..QP.., queue pair . 队列对 . Two queues. . .01..01-a/README.md. . ibv_create_qp'
	assert_in "$(<"$T/docs-zh/glossary.md")" '^. <a id="work-request"></a>..work request.. . 请求 . 一个要求。 . .02..02-b.md. '
	assert_in "$(<"$T/docs-zh/glossary.md")" '等一等。 . - . - .$'
	sed -i 's/Two queues/Three queues/' "$T/lessons/glossary.txt"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^lessons/GLOSSARY.md has drifted from lessons/glossary.txt'
	assert_not_in "$out" '^docs-zh/glossary.md'
	sed -i '/^两条队列/d' "$T/lessons/glossary.txt"
	docs fill --no-run
	assertEquals 1 "$rc"
	assert_in "$out" 'glossary.txt:4: this is to be a sentence'
}

test_words_lead_to_the_glossary_until_they_are_introduced() {
	make_glossary
	cat >>"$T/lessons/01-a/README.md" <<'END'

`QP` and QPN are other words. Many QPs here.
One [QP](../GLOSSARY.md#qp), a [fence](../GLOSSARY.md#fence) and a work request.
END
	cat >>"$T/docs-zh/01-a.md" <<'END'

这里有 [QP](glossary.md#qp)。
再用 QP，还有 [work request](glossary.md#work-request)。
END
	echo 'QP, fence, work request.' | tee -a "$T/docs-zh/02-b.md" >>"$T/README.md"
	docs check --no-run
	assertEquals 1 "$rc"
	assert_in "$out" '^lessons/01-a/README.md:42: the first QP of this page, which lesson 1 introduces, .*Write .QP.\(../GLOSSARY.md#qp\)'
	assert_in "$out" '^lessons/01-a/README.md:43: the first work request of this page, which lesson 2 introduces'
	assert_in "$out" '^docs-zh/01-a.md:42: the first QP of the lesson that introduces it. Say it in Chinese, too: 队列对'
	assert_in "$out" '^docs-zh/02-b.md:41: the first fence of this page, which no lesson introduces'
	assert_in "$out" '^docs-zh/02-b.md:41: the first work request of this page'
	assert_in "$out" '^docs: 5 to mend'
}

# shown SHOW COMMAND: a page that shows SHOW and runs COMMAND
shown() {
	make_tree
	printf '<!-- run show="%s" %s -->\n<!-- /run -->\n' "$1" "$2" >>"$T/README.md"
	docs fill README.md
	docs check --no-run README.md
}

# The lab of that tree only runs the command.
test_what_a_page_shows_is_what_runs() {
	mkdir -p "$T/labs"
	printf '#!/bin/sh\nshift\n[ "$1" != --fresh ] || shift\nexec "$@"\n' >"$T/labs/lab"
	chmod +x "$T/labs/lab"
	shown $'labs/lab run cat value >/dev/null   # terminal 1\nlabs/lab run env A=1 cat README.md' \
		"labs/lab run --fresh bash -c 'cat value >a 2>&1 & A=1 cat README.md 2>&1; wait'"
	assertEquals "$out" 0 "$rc"
	shown 'cat --all value' 'labs/lab run cat value'
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:2: it shows "cat --all value", which is not what runs'
	shown $'mkdir store\ncat value' 'labs/lab run cat value'
	assertEquals 1 "$rc"
	assert_in "$out" 'it shows "mkdir store", which'
	shown 'cat value' "bash -c 'cat README.md >a & cat value; wait'"
	assertEquals 1 "$rc"
	assert_in "$out" '^README.md:2: 1 programs run in the background, and it shows 1 commands'
}

# lacks EDIT WHAT COUNT: the Chinese page of a lesson, edited by sed, lacks something.
lacks() {
	make_tree
	sed -i "$1" "$T/docs-zh/01-a.md" "$T/lessons/01-a/README.md"
	docs check --no-run
	assertEquals "$1" 1 "$rc"
	assert_in "$out" "^docs-zh/01-a.md:[0-9]+: $2"
	assert_in "$out" "^docs: $3 to mend"
}

test_each_lesson_has_the_same_frame() {
	lacks '/^## 代码/d; /^## The code/d' 'here is the section 运行, where 代码 is due' 2
	lacks 's/^## 思考题/## 问/' 'there is no section 思考题' 2
	lacks 's/^## 原理/## x/; s/^## 弄坏它/## 原理/; s/^## x/## 弄坏它/' 'here is the section 弄坏它, where 原理 is due' 1
	lacks '/需要/d' '这一课新在哪里 does not end with the list of' 1
	lacks '/2. b/d' '课前三问 asks 2, not three' 2
	lacks '/现在你会了/d' 'after the 思考题, no ..现在你会了.. sums the lesson up' 1
	mv "$T/lessons/01-a" "$T/lessons/00-a"
	mv "$T/docs-zh/01-a.md" "$T/docs-zh/00-a.md"
	{ page '# 第零课' && chinese_frame; } | sed '/课前三问/d' >"$T/docs-zh/00-a.md"
	{ page '# Lesson' && english_frame; } | sed '/Three questions/d' >"$T/lessons/00-a/README.md"
	sed -i s/01-a/00-a/ "$T/README.md"
	docs fill
	docs check --no-run
	assertEquals "lesson 00 has nothing to ask about: $out" 0 "$rc"
}

. shunit2
