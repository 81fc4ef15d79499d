# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# A made-up tree for the tests of labs/docs. Sourced after lib.sh.

DOCS=$ROOT/labs/docs

docs() { # runs labs/docs on the tree $T; sets $out and $rc
	rc=0
	out=$("$DOCS" --root "$T" "$@" 2>&1) || rc=$?
}

# A tree with one lesson, filled: README.md, lessons/01-a and docs-zh/01-a.md.
make_tree() {
	mkdir -p "$T/common" "$T/lessons/01-a" "$T/docs-zh"
	cat >"$T/common/a.c" <<'END'
int before;
// region outer
int one(void)
{
	// region inner
	return 1;
	// endregion inner
}
// endregion outer
END
	cat >"$T/value" <<'END'
QP 0x000011, PSN 0x1a2b3c, state RTR
took 12 ms, half round trip 3.25 us
END
	{ page '# Lesson' && english_frame; } >"$T/lessons/01-a/README.md"
	{ page '# 第一课' && chinese_frame; } >"$T/docs-zh/01-a.md"
	echo 'See [lesson 1](lessons/01-a/README.md).' >"$T/README.md"
	docs fill
	assertEquals "fill: $out" 0 "$rc"
}

page() { # TITLE
	cat <<END
$1

## Code
<!-- region common/a.c outer -->
<!-- /region -->

## Output
<!-- run cat value -->
<!-- /run -->
END
}

# What every lesson has.
english_frame() {
	cat <<'END'

## What is new
- **Time**: an hour.
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
END
}

chinese_frame() {
	english_frame | sed 's/What is new/这一课新在哪里/; s/Time/时间/; s/You need/需要/
	s/Afterwards you can/学完之后/; s/Three questions first/课前三问/; s/The idea/原理/
	s/The code/代码/; s/Run it/运行/; s/What you see/你会看到/; s/Break it/弄坏它/
	s/Questions/思考题/; s/You can now/现在你会了/'
}
