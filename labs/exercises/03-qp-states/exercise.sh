# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 03: the learner writes qp_state.c. See scene.sh and judge.sh.

stage_file=qp_state.c
strip="
choose_psn: 24 random bits into res->psn
modify_qp_to_init: a new PSN; then port, P_Key index 0, and READ and WRITE as access rights
path_mtu: the lower of both sides'
rtr_attributes: RTR, path MTU, the peer's QPN, the PSN that it begins with, its address (a GRH with its GID), the READs it may begin, and the RNR timer
modify_qp_to_rtr: one step with those, and their mask
rts_attributes: RTS, my PSN, the ACK time-out, the retries of both kinds, the READs that I may begin
modify_qp_to_rts: one step with those, and their mask
modify_qp_to_error: ERR, with STATE alone
modify_qp_to_reset: RESET, with STATE alone
query_qp: ask the kernel with ibv_query_qp()
"
later="rtr_attributes rts_attributes"
what=('bring a QP from RESET to RTS, and back' '把 QP 从 RESET 带到 RTS，再带回来')

# ---- in the VM

scenes=(pair again walk lower_mtu other_gid rtr_fails rts_fails init_fails alone no_random)

scene_pair() { pair a -j rxe0 : -j 127.0.0.1 rxe1; }
scene_again() { pair a -q -n 20 -s 9000 rxe0 : -q -n 20 -s 9000 127.0.0.1 rxe1; }
scene_walk() { learner walk "$B/03-qp-states" rxe0; }
scene_other_gid() { pair a -q rxe0 18515 0 : -q 127.0.0.1 rxe1 18515 0; }

# Called by hand: many PSNs, few READs, a QP of which the library knows less than the kernel.
scene_alone() {
	learner psns "$B/contract" psns
	learner two "$B/contract" reads 2
	learner few "$B/contract" reads 0 few
	learner query "$B/contract" query 0 moved
}

scene_no_random() { learner none "$B/contract" psns none; }

# The peer's port takes 256 bytes. It says so, and then nothing.
scene_lower_mtu() {
	serving a.s "$B/rdma_server" -t 1 rxe0
	alone peer timeout 4 "$B/peer" connect 127.0.0.1 "$port" hello con,mtu=1,qpn=0x4242,psn=0xabcdef sync plan
	reap a.s
}

# A transition fails: what follows?
fails() {
	SPY=1 SPY_FAIL=ibv_modify_qp:$1:22 serving a.s "$B/rdma_server" -t 2 rxe0
	learner a.c "$B/rdma_client" -t 2 127.0.0.1 rxe1
	reap a.s
}
scene_rtr_fails() { fails 2; }
scene_rts_fails() { fails 3; }
scene_init_fails() { SPY=1 SPY_FAIL=ibv_modify_qp:1:22 learner a.s "$B/rdma_server" -t 1 rxe0; }

# ---- on the host

# step NAME STATE: the record of ibv_modify_qp() to STATE
step() { recorded "$1" ev=modify_qp "to=$2"; }

# bits NAME STATE BIT…: are in the mask of that step
bits() {
	local bit missing='' name=$1 to=$2
	step "$name" "$to" && value mask
	shift 2
	for bit; do
		[[ "|$value|" == *"|$bit|"* ]] || missing=1
	done
	[[ $missing ]] || return 0
	blame_all
	differs "${value:-$(say "no step to $to" "没有到 $to 的一步")}" "$(IFS='|' && echo "STATE|$*")"
	return 1
}

test_init() {
	worth 10 'RESET to INIT gives port, P_Key and access' 'RESET→INIT 给出 port、P_Key 与访问权限'
	see 1 'The idea'
	scene pair || return
	{ bits a.s INIT PKEY_INDEX PORT ACCESS_FLAGS && sets a.s "modify_qp to=INIT" port 1 &&
		sets a.s "modify_qp to=INIT" access '.*REMOTE_WRITE.*REMOTE_READ.*' 'REMOTE_WRITE|REMOTE_READ'; } || {
		because 'RC requires PKEY_INDEX, PORT and ACCESS_FLAGS here; what the QP does not allow, no MR can' \
		'RC 在这里要 PKEY_INDEX、PORT、ACCESS_FLAGS；QP 不允许的，MR 允许也没有用'
		return
	}
	scene alone || return
	equal "$(grep '^INIT' "$E/two.out")" 'INIT port 2' ||
		because 'the port is the one that stage 1 has chosen: res->ib_port' 'port 是第 1 阶段选出的：res->ib_port'
	# One that did not get so far fails below.
	! grep -q '^rights' "$E/two.out" || equal "$(grep '^rights' "$E/two.out")" 'rights 4'
	because 'a later step set the access rights anew, READ (4) and more: whoever calls allow_remote() in INIT loses what it allowed' \
		'后面的步骤又设了一遍访问权限：INIT 时 allow_remote() 定的就没了'
}

test_rtr_mask() {
	worth 11 'INIT to RTR sets each bit that RC requires' 'INIT→RTR 的 mask 位一个不少'
	see 2 'The code'
	scene pair || return
	because 'the kernel answers EINVAL and does not say which bit' '内核只回 EINVAL，不说是哪一位'
	bits a.s RTR AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
}

test_rtr_address() {
	worth 9 'the address names the peer by its GID' '地址用 GID 指明对端'
	see 3 'The code'
	scene pair || return
	sets a.s "modify_qp to=RTR" is_global 1 || {
		because 'RoCE has no LID: it always needs the GRH, whatever the GID begins with' 'RoCE 没有 LID：不管 GID 以什么开头，GRH 总是要的'
		return
	}
	{ sets a.s "modify_qp to=RTR" dgid '::ffff:10\.99\.0\.2' '::ffff:10.99.0.2' && sets a.s "modify_qp to=RTR" ah_port 1 &&
		sets a.s "modify_qp to=RTR" sgid_index 1; } || {
		because 'the address is a GRH: the GID of the peer as dgid, my own slot as sgid_index, my port' '地址就是 GRH：dgid 是对端的 GID，sgid_index 是自己的槽位，还有自己的 port'
		return
	}
	sets a.s "modify_qp to=RTR" hop_limit '[2-9]|[1-9][0-9]+' '64 (at least 2)' || {
		because 'hop_limit 0 or 1 ends at the first router' 'hop_limit 是 0 或 1，到第一个路由器为止'
		return
	}
	scene alone || return
	told two RTR 'RTR ah_port 2 dlid 77' || {
		because 'the rest of the address: dlid is the LID that the peer has told (0 on RoCE), port_num the port that stage 1 has chosen' \
			'地址的其余部分：dlid 是对端告诉的 LID（RoCE 上是 0），port_num 是第 1 阶段选出的'
		return
	}
	scene pair
	sets a.s "modify_qp to=RTR" err 0 && sets a.c "modify_qp to=RTR" dgid '::ffff:10\.99\.0\.1' '::ffff:10.99.0.1'
	because 'the kernel refused what RTR was given' '内核拒绝了给 RTR 的值'
}

test_psns() {
	worth 9 "each side expects the other's first PSN, and its QPN" '各自期待对方的首个 PSN 与 QPN'
	see 4 'The code'
	scene pair || return
	local side other
	for side in s c; do
		other=c
		[[ $side == s ]] || other=s
		step a.$other RTS && value sq_psn
		sets a.$side "modify_qp to=RTR" rq_psn "$value" "$value (the peer's sq_psn)" || break
		recorded a.$other ev=create_qp && value qpn
		sets a.$side "modify_qp to=RTR" dest_qpn "$value" || break
	done
	scene lower_mtu && sets a.s 'modify_qp to=RTR' dest_qpn "$((0x4242))" &&
		sets a.s 'modify_qp to=RTR' rq_psn "$((0xabcdef))"
	because 'QPN or PSN are not the peer'"'"'s: rq_psn is not the sq_psn of the peer: none of the packets would be taken (status 12 at the sender)' \
		'rq_psn 不是对端的 sq_psn：一个包也收不下（发送方看到 status 12）'
}

test_random_psn() {
	worth 9 'PSNs are random and have 24 bits' 'PSN 是随机的 24 位数'
	see 5 'The code'
	scene again || return
	because 'with a fixed PSN a late packet of the last connection falls into the window of this one' \
		'PSN 固定，上一条连接迟到的包就会落进这一条的窗口'
	local name of seen=''
	for of in again pair; do
		scene $of || return
		for name in a.s a.c; do
			sets "$name" "modify_qp to=RTS" sq_psn '[0-9]+' || return
			((value < 1 << 24)) || differs "$value" '< 16777216'
			seen+="$value "
		done
	done
	(($(tr ' ' '\n' <<<"$seen" | sort -u | grep -c .) == 4)) || differs "$seen" "$(say 'four different numbers' '四个不同的数')"
	[[ ! $failed ]] || return
	local bits='bits that were ever 1: 0xffffff, always 1: 0x000000, the same: 0'
	scene alone || return
	cause=''
	equal "$(grep '^bits' "$E/psns.out")" "$bits" || {
		because 'of 24 PSNs each of the 24 bits should be 1 in some and 0 in others' '24 个 PSN 里，24 位中的每一位都应当有 1 也有 0'
		return
	}
	scene no_random || return
	[[ $(rc_of none) == 1 ]] || equal "$(grep '^bits' "$E/none.out")" "$bits"
	because 'getrandom() failed, and the QP went to INIT without a PSN' 'getrandom() 失败了，QP 却没有 PSN 就进了 INIT'
}

test_rts() {
	worth 11 'RTR to RTS gives time-out, retries and READ depth that end' 'RTR→RTS 的超时、重试、READ 深度都合理'
	see 6 'The code'
	scene pair || return
	bits a.s RTS TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC || {
		because 'the kernel answers EINVAL and does not say which bit' '内核只回 EINVAL，不说是哪一位'
		return
	}
	sets a.s "modify_qp to=RTS" timeout '[89]|1[0-9]|2[0-2]' '14 (8 to 22)' ||
		because 'timeout is an exponent, 4.096 us * 2^timeout; 0 waits for ever, and nothing complains' 'timeout 是指数：4.096 µs × 2^timeout；0 就永远等，谁都不报错'
	sets a.s "modify_qp to=RTS" retry_cnt '[1-6]' '6 (1 to 6)' ||
		because 'retry_cnt 7 never gives up on rxe, 0 gives up at the first lost packet' 'retry_cnt 是 7，rxe 上永不放弃；是 0，丢一个包就放弃'
	sets a.s "modify_qp to=RTS" rnr_retry '[1-7]' '7' ||
		because 'rnr_retry 0 gives up at once if the peer has no receive ready' 'rnr_retry 是 0：对端的 receive 还没准备好，就立即放弃'
	sets a.s "modify_qp to=RTR" min_rnr_timer '[1-9]|1[0-9]|20' '12 (1 to 20)' ||
		because 'min_rnr_timer 0 is 655 ms, the longest of all: what the peer waits before it tries again' 'min_rnr_timer 是 0 就是 655 ms，最长的一档：对端等这么久才再试'
	sets a.s "modify_qp to=RTS" max_rd_atomic 16 && sets a.s "modify_qp to=RTR" max_dest_rd_atomic 16 && scene alone &&
		sets two "modify_qp to=RTS" max_rd_atomic 2 '2 (res->max_reads)' && sets two "modify_qp to=RTR" max_dest_rd_atomic 2 '2 (res->max_reads)' &&
		sets few "modify_qp to=RTS" max_rd_atomic 5 '5 (what this device may begin)' && sets few "modify_qp to=RTR" max_dest_rd_atomic 3 '3 (what this device can answer)'
	because 'READs at once: max_reads, or 16 if that is 0, and no more than the device has (reads_at_once()); with 0 a READ waits for ever' \
		'同时的 READ：max_reads，它是 0 就用 16，且不超过设备的上限（reads_at_once()）；给 0，READ 就永远等'
}

test_message() {
	worth 8 'rdma_server and rdma_client talk, twice, and leave nothing' 'rdma_server 与 rdma_client 能通信两次，不留下对象'
	see 7 'What you see'
	scene again || return
	well a || return
	scene pair
	well a && equal "$(out_of a.s | jq -r .received_text)" 'Hello from RDMA client!'
}

test_lower_mtu() {
	worth 8 "the path MTU is the lower of both sides'" '路径 MTU 取两端中较小的'
	see 8 'The code'
	scene lower_mtu || return
	sets a.s "modify_qp to=RTR" path_mtu 256 &&
		scene pair && sets a.s "modify_qp to=RTR" path_mtu 4096
	because 'a path MTU above what the peer takes: small messages pass, large ones do not; the field takes the enum, not bytes' \
		'路径 MTU 超过对端所能收的：小消息能过，大消息过不去；这个字段是枚举，不是字节数'
}

test_other_gid() {
	worth 8 'a GID that is not index 1' 'GID 不在槽 1 也能用'
	see 3 'The code'
	scene other_gid || return
	sets a.s "modify_qp to=RTR" sgid_index 0 && well a
	because 'sgid_index is the slot that stage 1 has chosen, which need not be 1' \
		'sgid_index 是第 1 阶段选出的那一槽，不一定是 1'
}

test_failure_is_told() {
	worth 6 'a step that fails ends the walk, is told once, and leaves nothing' '某一步失败：立即停下，只报一次，不留对象'
	see 9 'What you see'
	local of
	local -A steps=([init_fails]=1 [rtr_fails]=2 [rts_fails]=3)
	for of in rtr_fails rts_fails init_fails; do
		scene $of || return
		struck a.s || { blame_all && differs "$(who a.s): $(say "it never came so far" "没走到这一步")" "$(say 'the step that is made to fail' '安排好要失败的那一步')" && break; }
		ended_with 1 a.s || return
		like "$(err_of a.s)" 'EINVAL|Invalid argument' "$(say 'an error that names EINVAL' '错误里有 EINVAL')" || break
		equal "$(count a.s ev=modify_qp) ibv_modify_qp" "${steps[$of]} ibv_modify_qp" || break
		equal "$(leaks a.s)" '' || break
		equal "$(grep -c '^error: ' "$E/a.s.err")" 1 || break
	done
	because 'ibv_modify_qp RETURNS the error number; errno says nothing, and what comes after a failed step must not be tried' \
		'ibv_modify_qp 的返回值就是错误码，errno 不可信；一步失败，后面的就不该再做'
}

test_walk() {
	worth 6 'down again: SQD is left, ERR and RESET are reached' '还能走回来：到 ERR，再到 RESET'
	see 10 'The idea'
	scene walk || return
	because 'ibv_query_qp asks the kernel; qp->state is what the library remembers' 'ibv_query_qp 问的是内核；qp->state 只是库记得的'
	ended_with 0 walk || return
	equal "$(sed -n 's/^link rxe0.* state \([A-Z]*\) .*/\1/p' "$E/walk.out" | xargs)" 'RESET INIT RTR RTS SQD ERR RESET' &&
		equal "$(sed -n 's/.*library cache .*, kernel \([A-Z]*\)$/\1/p' "$E/walk.out" | xargs)" 'RESET INIT RTR RTS SQD ERR RESET' || return
	scene alone && told query state 'state ERR, sq_psn as set'
	[[ $observed != 'state ERR'* ]] || cause=''
	[[ $failed ]] || equal "$(grep '^refused' "$E/query.out"), $(grep -c '^error: ' "$E/query.err") error" 'refused: -5, 1 error' || {
		cause=''
		because 'ibv_query_qp() returns the error number; query_qp() reports it and returns it negative: -EIO' 'ibv_query_qp() 返回错误码；query_qp() 报告它，返回负的：-EIO'
	}
	because 'an attribute that the mask of ibv_query_qp() does not name may be anything: ask for all of them' 'ibv_query_qp() 的 mask 没有要的属性，可以是任何值：都要'
}
