# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 07: the learner mends ten broken programs, all in ten.c. The starter is
# ten.c spoiled by broken.sed. See scene.sh and judge.sh.

stage_file=ten.c
source=labs/exercises/07-when-it-fails/ten.c
programs=(ten)
stands_alone=1
strip=''
what=('mend ten broken programs' '修好十个坏了的程序')
todo=('Each patient_N() has one illness; the functions before them are well.' '每个 patient_N() 都有一处病；前面的工具函数没有病。')
libraries() { echo -libverbs; }

# ---- in the VM

scenes=(one two three four five six seven eight nine ten)

patient() { learner a "$B/ten" "$1" rxe0; }
scene_one() { patient 1; }
scene_two() { patient 2; }
scene_three() { patient 3; }
scene_four() { patient 4; }
scene_five() { patient 5; }
scene_six() { patient 6; }
scene_seven() { patient 7; }
scene_eight() { patient 8; }
scene_nine() { patient 9; }
scene_ten() { patient 10; }

# ---- on the host

# well_again N COUNT KEY=VALUE…: it ends with 0, says what arrived, and the recorder
# has COUNT such completions
well_again() {
	blame=(a)
	ended_with 0 a && equal "$(grep -c "^arrived: patient $1$" "$E/a.out") arrived: patient $1" "1 arrived: patient $1" || return 1
	equal "$(count a ev=completion status=SUCCESS "${@:3}") completions ${*:3}" "$2 completions ${*:3}" || return 1
	blame=()
}

test_access() {
	worth 9 '1: local protection error (4)' '1：local protection error (4)'
	see 1 'The idea'
	scene one || return
	well_again 1 1 op=RECV len=10
	because 'what is received is written into the MR: it needs LOCAL_WRITE' '收到的要写进 MR：它要有 LOCAL_WRITE'
}

test_rnr() {
	worth 9 '2: RNR retry exceeded (13)' '2：RNR retry exceeded (13)'
	see 2 'The idea'
	scene two || return
	well_again 2 1 op=RECV len=10
	because 'the receive stands in the queue of another QP than the SEND meets' 'receive 排在别的 QP 的队列里'
}

test_full() {
	worth 9 '3: ENOMEM at the ninth ibv_post_send' '3：第九个 ibv_post_send 回 ENOMEM'
	see 3 'The idea'
	scene three || return
	well_again 3 24 op=RECV && equal "$(count a ev=post_send) SENDs" '24 SENDs' &&
		like "$(count a ev=completion op=SEND)" '^([3-9]|[12][0-9])$' 'at least 3 completions of SENDs'
	because 'places of the send queue are given back by a completion, and unsignaled SENDs make none' \
		'send queue 的位置靠 completion 收回；不 signal 就没有'
}

test_remote_access() {
	worth 9 '4: remote access error (10), though the rkey is right' '4：remote access error (10)，而 rkey 没错'
	see 4 'The idea'
	scene four || return
	well_again 4 1 op=RDMA_WRITE
	because 'the MR has to allow it, too: REMOTE_WRITE' 'MR 也要允许：REMOTE_WRITE'
}

test_length() {
	worth 9 '5: local length error (1)' '5：local length error (1)'
	see 5 'The idea'
	scene five || return
	well_again 5 1 op=RECV len=3000
	because 'the receive that is met must hold the whole message' '碰上的那个 receive 要装得下整条消息'
}

test_busy() {
	worth 9 '6: EBUSY at the end' '6：拆的时候 EBUSY'
	see 6 'The idea'
	scene six || return
	well_again 6 1 op=RECV && equal "$(objects_left a)" ''
	because 'an MR is in its PD: it goes first' 'MR 还在 PD 里：先拆它'
}

test_grh() {
	worth 9 '7: EINVAL at RTR, on RoCE' '7：RoCE 上 RTR 回 EINVAL'
	see 7 'The idea'
	scene seven || return
	well_again 7 0 && equal "$(count a ev=modify_qp to=RTR err=0) RTR" '1 RTR'
	because 'RoCE has no LID: the GID in the GRH is the address' 'RoCE 没有 LID：GRH 里的 GID 就是地址'
}

test_leak() {
	worth 9 '8: QPs become more and more' '8：QP 越来越多'
	see 8 'The idea'
	scene eight || return
	well_again 8 3 op=RECV && equal "$(objects_left a)" '' && equal "$(count a ev=destroy_qp err=0) QPs destroyed" '6 QPs destroyed'
	because 'each QP stays until it is destroyed; a CQ with QPs answers EBUSY' 'QP 不拆就一直在；还有 QP 的 CQ 回 EBUSY'
}

test_psn() {
	worth 9 '9, two processes: retry exceeded (12)' '9，两个进程：retry exceeded (12)'
	see 9 'The idea'
	scene nine || return
	well_again 9 1 op=SEND
	because 'the first PSN that I use must be the one that I have told' '我用的第一个 PSN 要是告诉过对端的那个'
}

test_lifetime() {
	worth 9 '10, two processes: the READ finds no memory' '10，两个进程：READ 找不到内存'
	see 10 'The idea'
	scene ten || return
	well_again 10 1 op=RDMA_READ
	because 'the owner does not see a READ: it must be told when it is over' 'READ 时内存的主人毫不知情：读完要告诉它'
}

test_all() {
	worth 5 'all ten are well' '十个都好了'
	see 11 'The idea'
	local scene of=0
	for scene in "${scenes[@]}"; do
		scene "$scene" || return
		[[ $(rc_of a) != 0 ]] || of=$((of + 1))
	done
	equal "$of of 10" '10 of 10'
	because 'one mended by luck breaks another: run them all' '修一个碰坏另一个：每次都全跑一遍'
}
