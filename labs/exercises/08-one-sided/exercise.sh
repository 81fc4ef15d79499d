# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 08: the learner writes one_sided.c; its memory windows are there already. See
# scene.sh and judge.sh.

stage_file=one_sided.c
programs=(08-one-sided contract)
strip="
expose_memory: register that memory with just the rights that are asked for, and LOCAL_WRITE
allow_remote: these rights for the QP, in the state that it is in: STATE and ACCESS_FLAGS
post_read: one READ into that memory, wr_id WR_ID_READ(slot), always with a completion
post_write: one WRITE from that send slot, wr_id WR_ID_WRITE(slot), with the caller's flags
post_write_imm: the same with four bytes of immediate data, in network byte order
received_imm: those four bytes, in host byte order
post_atomic: 8 bytes of that send slot take what was there before; always with a completion
post_compare_swap: @expected and @desired, wr_id WR_ID_SWAP(slot)
post_fetch_add: @add, wr_id WR_ID_ADD(slot)
atomic_result: what was there before, out of that send slot
"
patience='9 6 5' # a completion may be waited for, for five seconds
what=("read and write the peer's memory" '读写对端的内存')

# ---- in the VM

scenes=(walk gates called fails)
# What may fail in the walk: its verbs, and which call of them is the stage's.
failing=(reg_mr:3 modify_qp:3 post_send:1 post_send:2)

scene_walk() { SPY=1 learner a "$B/08-one-sided"; }

scene_gates() {
	local how
	for how in wrong-rkey mr-no-write qp-no-write; do
		learner $how "$B/08-one-sided" --break $how
	done
}

scene_called() { learner c "$B/contract" one_sided; }

scene_fails() {
	local call
	for call in "${failing[@]}"; do
		PLAIN=1 SPY=1 SPY_FAIL=ibv_$call:12 learner "$call" "$B/08-one-sided"
	done
}

# ---- on the host

# asks OP FIELD REGEX [WORDS]: what the first such request says
asks() { sets a "post_send op=$1" "${@:2}"; }

# board: sets $rkey and $place, the key and the address of the memory that B exposes
board() {
	sets a 'reg_mr len=786704' err 0 || return
	value rkey && rkey=$value
	value addr && place=$value
}

# called WORD WANT: what the contract says of it
called() {
	scene called || return
	told c "$1: " "$1: $2"
}

# aimed OP OFFSET: that request names the peer's memory, OFFSET bytes behind its begin
aimed() {
	local rkey place want
	board || return
	printf -v want '0x%x' $((place + $2))
	asks "$1" remote_addr "$want" "$want (the peer's address)" && asks "$1" rkey "$rkey" "$rkey (the peer's rkey)"
}

# shows TEXT: the program says it
shows() { equal "$(grep -oF "$1" "$E/a.out" | head -n 1)" "$1"; }

# refused HOW STATUS WORDS: that break of the lesson ends as the lesson says
refused() {
	grep -q 'was not refused' "$E/$1.err" || blame=("$1")
	{ ended_with 1 "$1" && like "$(err_of "$1")" "$2" "$3"; } || return 1
	blame=()
}

test_expose() {
	worth 12 'the MR covers that memory, with the rights asked for and LOCAL_WRITE' 'MR 覆盖那块内存，权限是要求的那些，加上 LOCAL_WRITE'
	see 1 'The idea'
	scene walk || return
	board && sets a 'reg_mr len=786704' access 'LOCAL_WRITE\|REMOTE_WRITE\|REMOTE_READ\|REMOTE_ATOMIC' 'LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC'
	[[ $failed ]] || called 'no memory' '-14, mr as before' ||
		because '*mr is set on success only; ibv_reg_mr() sets errno, and what is returned is that, negative' '成功才设 *mr；ibv_reg_mr() 设 errno，返回的是它的负值'
	because 'the device writes there for the peer: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE' '替对端写内存的是本地的设备：REMOTE_WRITE、REMOTE_ATOMIC 都要有 LOCAL_WRITE'
}

test_mr_gate() {
	worth 8 'an MR without REMOTE_WRITE lets no WRITE in' '没有 REMOTE_WRITE 的 MR，WRITE 进不来'
	see 1 'Break it'
	scene gates || return
	refused mr-no-write 'REM_ACCESS|\(10\)' 'status 10, REM_ACCESS_ERR' && refused wrong-rkey 'REM_ACCESS|\(10\)' 'status 10, REM_ACCESS_ERR'
	because 'no rights but those that were asked for: who has the rkey can use them all' '只给要求的权限：拿到 rkey 的一方全都能用'
}

test_allow() {
	worth 10 "the QP's own rights are set, in the state that it is in" 'QP 一级的权限：在它当前的状态里设'
	see 2 'The idea'
	scene walk || return
	sets a 'modify_qp from=INIT to=INIT' mask 'STATE\|ACCESS_FLAGS' 'STATE|ACCESS_FLAGS' &&
		sets a 'modify_qp from=INIT to=INIT' access '.*REMOTE_ATOMIC.*' 'REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC' && sets a 'modify_qp from=INIT to=INIT' err 0
	[[ $failed ]] || called 'no rights' '0, 0' ||
		because 'the rights are those that are asked for, and no others: 0 takes all away' '权限就是要求的那些：0 就是全部收回'
	because 'INIT to INIT and RTS to RTS may change ACCESS_FLAGS alone; qp_state is the state that it has' 'INIT→INIT、RTS→RTS 可以只改 ACCESS_FLAGS；qp_state 填当前的状态'
}

test_qp_gate() {
	worth 6 'a QP without REMOTE_WRITE lets no WRITE in' '没有 REMOTE_WRITE 的 QP，WRITE 进不来'
	see 2 'Break it'
	scene gates || return
	refused qp-no-write 'REM_INV_REQ|\(9\)' 'status 9, REM_INV_REQ_ERR'
	because 'both gates must be open: what the MR allows, the QP may refuse' '两道闸都要开：MR 允许的，QP 可以不许'
}

test_write() {
	worth 14 "WRITE: the bytes of the send slot are in the peer's memory" 'WRITE：send slot 里的字节到了对端内存'
	see 3 'The code'
	scene walk || return
	because "remote_addr and rkey are the peer's, addr and lkey of the SGE are mine" 'remote_addr 与 rkey 是对端的，SGE 的 addr 与 lkey 是自己的'
	asks RDMA_WRITE len 17 && asks RDMA_WRITE wr_id 0x7772697400000000 && aimed RDMA_WRITE 0 && shows "B's text: \"Hello from QP A!\"" && called write '0, 63626100 0'
}

test_read() {
	worth 12 "READ: the peer's bytes are in the memory that was named, and a completion says so" 'READ：对端的字节到了指定的内存，由 completion 说明'
	see 5 'The code'
	scene walk || return
	because 'nobody but its completion says that the bytes of a READ are here: it is always SIGNALED' 'READ 的数据到了没有，只有 completion 能说明：总是 SIGNALED'
	asks RDMA_READ len 17 && asks RDMA_READ wr_id 0x7265616400000000 && asks RDMA_READ flags SIGNALED && aimed RDMA_READ 0 &&
		shows 'A: READ completed, "Hello from QP A!"' && called read '0, there'
}

test_imm() {
	worth 8 'WRITE with immediate: the peer is told, with four bytes in network byte order' '带 immediate 的 WRITE：告诉对端，四个字节是网络字节序'
	see 6 'The code'
	scene walk || return
	because 'immediate data crosses the wire as it is in the field, which is big-endian' 'immediate 原样上线，这个字段是 big-endian'
	asks RDMA_WRITE_WITH_IMM len 4 && equal "$(grep -o 'imm=[1-9][0-9]*' "$E/a.log" | head -n 1)" 'imm=2026' &&
		shows 'B: RECV_RDMA_WITH_IMM, immediate 2026, byte_len 4' && shows "B's text: \"imm\"; its receive's buffer: \"\""
}

test_atomics() {
	worth 12 'atomics: 8 bytes, and what was there before' '原子操作：8 个字节，以及原来的值'
	see 7 'The code'
	scene walk || return
	because 'compare_add is what is compared, or added, swap what is put there; the old value comes into the send slot' 'compare_add 是要比的或要加的，swap 是要换上的；旧值回到 send slot'
	asks ATOMIC_FETCH_AND_ADD len 8 && asks ATOMIC_FETCH_AND_ADD wr_id 0x6661646400000000 && asks ATOMIC_FETCH_AND_ADD flags SIGNALED &&
		asks ATOMIC_CMP_AND_SWP wr_id 0x7377617000000000 && aimed ATOMIC_FETCH_AND_ADD 264 &&
		shows 'FETCH_ADD 2: it was 40, it is 42' && shows 'CMP_SWAP 42 to 100: it was 42, swapped; it is 100' &&
		shows 'CMP_SWAP 42 to 100: it was 100, not swapped' && shows 'the counter is 800' &&
		called 'add -1' '0, 39, before 40' && called swap '0, 99aabbccddeeff00, before 1122334455667788' && called unaligned 'refused, 0 0'
	[[ ! $observed =~ ^(add|swap|unaligned) ]] || cause=''
	because 'all of it has 64 bits, and the address goes out as it is: what is no multiple of 8 the device refuses' '全都是 64 位；地址原样发出：不是 8 的倍数，由设备拒绝'
}

test_flags() {
	worth 8 'the flags are those of the caller' 'flags 由调用者决定'
	see 4 'The code'
	scene walk || return
	because 'a WRITE without SIGNALED makes no completion, which the caller may want; FENCE waits for READs before it' '不带 SIGNALED 就没有 completion，调用者可能正要如此；FENCE 等前面的 READ'
	asks 'RDMA_WRITE len=5' flags 'INLINE|' 'no SIGNALED' && asks 'RDMA_WRITE len=8192' flags 'FENCE\|SIGNALED' 'FENCE|SIGNALED' &&
		shows 'the copy is the page, all 8192 bytes of it'
}

test_failures() {
	worth 5 'each call that fails is told once, and ends it' '每个失败的调用报一次，程序就此结束'
	see 8 'The code'
	scene fails || return
	local call any=''
	for call in "${failing[@]}"; do
		struck "$call" || continue
		any=1 blame=("$call")
		{ ended_with 1 "$call" && like "$(err_of "$call")" "ENOMEM|Cannot allocate memory" "$(say "an error of ibv_${call%:*}: ENOMEM" "ibv_${call%:*} 的错误：ENOMEM")" &&
			equal "$(grep -c '^error: ' "$E/$call.err") error" '1 error'; } || return
	done
	[[ $any ]] || { blame=(reg_mr:3) && differs "$(say 'none of these verbs was called' '这些 verb 一个也没有调用')" "$(say 'calls that fail' '失败的调用')"; }
	because 'ibv_reg_mr sets errno; modify_qp() and post_request() have told it already' 'ibv_reg_mr 设 errno；modify_qp()、post_request() 自己已经报过'
}
