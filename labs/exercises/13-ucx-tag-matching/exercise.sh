# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 13: the learner writes credit.c. See scene.sh and judge.sh.

stage_file=credit.c
source=common/tag/credit.c
programs=(tag_lat 13-ucx-tag-matching credits unit_tag_channel)
patience='12 8 5'
strip="
tag_take_credits: the peer has consumed so many (modulo 256); take it only if it goes forward, and not beyond what was sent
tag_has_credit: less than TAG_DEPTH are under way; else look at the byte that the peer WRITEs into receive slot TAG_RING
tag_owes_credits: half of TAG_DEPTH is owed, or anything while messages are kept in the ring
tag_credits_are_old: TAG_DEPTH have been consumed since the byte was written
tag_write_credits: WRITE the count, one byte, to the peer's credit_addr; it has been told then
"
what=('keep the credits of a tag channel' '管好 tag channel 的 credit')
todo=('Write what is marked TODO; common/tag/parts.h has the contracts.' '写出标着 TODO 的部分；约定在 common/tag/parts.h。')

# ---- in the VM

scenes=(sums pair one_way old_byte many lesson nobody)

scene_sums() { PLAIN=1 learner a "$B/credits"; }
scene_one_way() { PLAIN=1 learner a "$B/unit_tag_channel" rxe0 rxe1 one-way; }
scene_old_byte() { PLAIN=1 learner a "$B/unit_tag_channel" rxe0 rxe1 old-byte; }

scene_pair() {
	serving a.s "$B/tag_lat" server -q -n 100 -t 3 rxe0
	learner a.c "$B/tag_lat" client -q -n 100 -t 3 127.0.0.1 rxe1
	reap a.s
}

# No receive may have been missing: the device counts it.
rnr() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/rcvd_rnr_err; }

scene_many() {
	rnr >"$T/before"
	PLAIN=1 learner a "$B/unit_tag_channel" rxe0 rxe1 many
	rnr >"$T/after"
}

scene_lesson() { learner a "$B/13-ucx-tag-matching" rxe0; }
scene_nobody() { PLAIN=1 learner a "$B/13-ucx-tag-matching" --break no-receive rxe0; }

# ---- on the host

# answer NAME VALUE: what the driver (labs/exercises/credits.c) got for it
answers() {
	local i
	blame=(a)
	ended_with 0 a || return
	blame=()
	for ((i = 1; i < $#; i += 2)); do
		equal "${!i} $(sed -n "s/^${!i} //p" "$E/a.out")" "${!i} ${*:i+1:1}" || return
	done
}

# unit: the course's own test of the channel, around the learner's stage
unit() {
	blame=(a)
	ended_with 0 a || { differs "$(grep -v '^==' "$E/a.err" | head -n 1)" "$(say 'no failure' '没有失败')" && return 1; }
	blame=()
}

test_forward() {
	worth 10 'news of the peer is taken: its count goes forward' '对端说的计数：往前走'
	see 1 'The code'
	scene sums || return
	answers forward 7 all 10 same 4
	because '@consumed is the count of the peer, not a number of credits to be added' '@consumed 是对端的计数，不是要加上去的个数'
}

test_stale() {
	worth 10 'old news changes nothing' '旧消息：什么也不变'
	see 1 'The code'
	scene sums || return
	answers forward 7 stale 4 stale-wrapped 1
	because 'the header and the byte overtake each other: a count that goes back gives credits away twice' \
		'header 与那个字节互不排队：计数若后退，同一个 credit 就给了两次'
}

test_false() {
	worth 8 'more than was sent cannot have been consumed' '没发过的，不可能已被取走'
	see 1 'The code'
	scene sums || return
	answers forward 7 false 4 false-far 4
	because 'who takes it has credits for receives that are not there (RNR)' '收下它，就有了对方没有 receive 的 credit（RNR）'
}

test_wraps() {
	worth 8 'counts go from 255 to 0' '计数过了 255 是 0'
	see 2 'The code'
	scene sums || return
	answers wrapped 1 full-wrapped '0 212' mail-wrapped '1 3' owes-wrapped 1
	because 'compare differences in uint8_t; a < b is wrong for half of all pairs' '比的是 uint8_t 的差；直接 a < b，一半的情形是错的'
}

test_limit() {
	worth 9 'a sender is TAG_DEPTH ahead, not one more' '至多领先 TAG_DEPTH 条'
	see 3 'The idea'
	scene sums || return
	answers free '1 0' full '0 0'
	because 'message TAG_DEPTH + 1 meets no receive of its own' '第 TAG_DEPTH + 1 条没有给它的 receive'
}

test_mailbox() {
	worth 9 'without credit, look at the byte that the peer writes' '没有 credit 时，看对端写来的那个字节'
	see 3 'The code'
	scene sums || return
	answers mail '1 2' mail-stale '0 10'
	because 'credits that no message brings come by RDMA WRITE into slot TAG_RING' '没有消息可搭时，credit 由 RDMA WRITE 写进 slot TAG_RING'
}

test_owes() {
	worth 8 'half of the ring is worth a message of its own' '欠了半圈，就值得专门还一次'
	see 4 'The code'
	scene sums || return
	answers owes-little 0 owes-half 1 owes-nothing 0
	because 'one WRITE for each message doubles the packets; one for the whole ring stops the sender' \
		'每条都还，包就多一倍；整圈才还，对方就停在那里'
}

test_pressed() {
	worth 8 'messages that stay in the ring: one is given back at once' '环里压着消息：一个也还'
	see 4 'The code'
	scene sums || return
	answers owes-pressed 1 owes-nothing 0
	because 'then few slots go round, and half a ring may never come together' '这时在转的格子不多，半圈可能永远凑不齐'
}

test_old() {
	worth 5 'the byte is written again before its value is too old' '那个字节：太旧之前要重写'
	see 5 'The code'
	scene sums || return
	answers fresh 0 old 1 old-wrapped 1 fresh-wrapped 0 && scene old_byte && unit
	because 'modulo 256, a byte that is 192 behind looks like news' '模 256，落后 192 的旧值看上去像新消息'
}

test_one_way() {
	worth 8 'a thousand messages one way: credits come by WRITE, not too often' '单向一千条：credit 靠 WRITE 回来，也不太频繁'
	see 6 'The idea'
	scene one_way || return
	unit
	because 'nothing goes back that could carry a credit' '没有反方向的消息可搭便车'
}

test_no_rnr() {
	worth 6 'both ways at once: no message meets an empty receive queue' '双向同时：没有消息撞上空的 receive queue'
	see 6 'What you see'
	scene many || return
	because 'credits are there so that the device never has to turn a SEND away' '有 credit，网卡就不必把 SEND 挡回去'
	unit || return
	equal "RNR $(xargs <"$E/after")" "RNR $(xargs <"$E/before")"
}

test_programs() {
	worth 6 'tag_lat, the lesson, and back-pressure: 72 messages that nobody receives' 'tag_lat、这一课的程序；没人收的 72 条'
	see 7 'Break it'
	scene pair || return
	well a && scene lesson && blame=(a) && ended_with 0 a && equal "$(leaks a)" '' && scene nobody &&
		like "$(out_of a)" 'B keeps 8 on the heap and 64 in its ring' 'B keeps 8 on the heap and 64 in its ring'
	because 'slots that are not free give no credit: that is what stops the sender' '格子不还，credit 就不还：发送方因此停下'
}
