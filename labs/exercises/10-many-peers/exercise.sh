# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 10: the learner writes what shares receives and completions (many_peers.c), and
# how a datagram is read and answered (datagram.c), in one file; making and closing is there
# already. See scene.sh and judge.sh.

stage_file=many_peers.c
sources=(common/many_peers.c common/datagram.c)
programs=(10-many-peers rdma_server ud_discover contract)
helpers=(rdma_client)
strip="
post_shared_receive: that receive slot, msg_size bytes, wr_id WR_ID_RECV(slot), into the SRQ
arm_srq_limit: one event when fewer than @low receives are left
create_peer_qp: all of q->res but MR and buffer; an RC QP with the SRQ, on the CQ; found by its number
owner_of: the qp_context of the QP that this completion is of; NULL if it is gone
dispatch_completions: take the event, arm, then deliver all that is in the CQ
take_async_event: 1, and the event, which is acknowledged; 0 if there is none
datagram_of: the data, behind the 40 bytes, and how long it is; NULL if there is less
is_ipv4_header: whether these 20 bytes are one, by the version and the protocol
answer_datagram: an AH for the sender: IPv4 or IPv6, also if it wrote to a group
"
patience='12 9 6'
what=("serve many peers with one SRQ, one CQ; answer UD" '一个 SRQ、一个 CQ 服务许多对端；回答 UD')

# ---- in the VM

scenes=(walk many discover heads fails)
failing=(create_qp:1 create_qp:4)

scene_walk() { learner a "$B/10-many-peers"; }

served() { rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -q rxe0; }

# Clients of each kind around one that is killed, and strangers.
scene_many() {
	local i await_s=5
	serving s "$B/rdma_server" -j --many 8 --slots 8 -s 4096 -t 4 rxe0
	for i in 1 2; do alone "stranger$i" "$B/peer" connect 127.0.0.1 18515 hello close; done
	start dies "$B/rdma_client" -q -e -n 1000000 127.0.0.1 rxe1
	await served
	start c1 "$B/rdma_client" -q -m hello -t 5 127.0.0.1 rxe1
	for i in 2 3; do start "c$i" "$B/rdma_client" -q -e -n 40 -s $((500 * i)) -t 5 127.0.0.1 rxe1; done
	start c4 "$B/rdma_client" -q -e -b -n 60 -w 16 -t 5 127.0.0.1 rxe1
	nap 0.5
	kill9 dies
	reap c1 c2 c3 c4
	kill "${pids[s]}" 2>/dev/null
	reap s
	overran s
}

# Who asks the group is answered, and talks.
scene_discover() {
	start d.s confined d.s "$B/ud_discover" server -d rxe0 -m here
	learner d.c "$B/ud_discover" client -q -d rxe1 -t 2
	kill "${pids[d.s]}" 2>/dev/null
	reap d.s
	overran d.s
}

scene_heads() { learner h "$B/contract" datagram; }

scene_fails() {
	local call
	for call in "${failing[@]}"; do
		PLAIN=1 SPY=1 SPY_FAIL=ibv_$call:12 learner "$call" "$B/10-many-peers"
	done
}

# ---- on the host

# shows REGEX WORDS: the program says it
shows() { like "$(out_of a)" "$1" "$2"; }

test_qp() {
	worth 10 'each QP takes its receives from the SRQ' '每个 QP 都从 SRQ 里取 receive'
	see 3 'The code'
	scene walk || return
	sets a 'create_qp send_wr_asked=32' srq '[0-9][0-9]*' 'an SRQ' && sets a 'create_qp send_wr_asked=32' type RC && sets a 'create_qp send_wr_asked=32' err 0
	because 'init.srq; max_recv_wr has no meaning then, and ibv_post_recv is refused' 'init.srq；max_recv_wr 于是无效，ibv_post_recv 也不许用'
}

test_receive() {
	worth 10 'receives go into the SRQ, and their wr_id names the slot' 'receive 进 SRQ，wr_id 说是哪个 slot'
	see 1 'The code'
	scene walk || return
	recorded a ev=completion cq=1 op=RECV && value wr_id && equal "${value:-none}" 0x7265637600000000 &&
		shows 'slot 0: "I am client 3"' 'slot 0: "I am client 3"' && shows 'slot 3: "I am client 3"' 'slot 3: "I am client 3"'
	because 'no QP is named: the SGE is the slot, its lkey that of res.mr, wr_id WR_ID_RECV(slot)' '不提 QP：SGE 是那个 slot，lkey 是 res.mr 的，wr_id 是 WR_ID_RECV(slot)'
}

test_limit() {
	worth 7 'the limit raises an event when fewer receives are left' '剩下的 receive 少于 limit，就来一个 event'
	see 2 'The code'
	scene walk || return
	shows 'after message 2: SRQ limit reached' 'after message 2: SRQ limit reached'
	because 'ibv_modify_srq with srq_limit and IBV_SRQ_LIMIT' 'ibv_modify_srq，srq_limit 与 IBV_SRQ_LIMIT'
}

test_owner() {
	worth 11 'qp_num says whose completion it is' 'qp_num 说是谁的 completion'
	see 4 'The code'
	scene walk || return
	equal "$(sed -n 's/.* is place \([-0-9]*\);.*/\1/p' "$E/a.out" | head -n 4 | xargs)" '3 0 7 3'
	because 'look the QP up by wc->qp_num and take its qp_context: wr_id names only the slot' '用 wc->qp_num 找到 QP，取它的 qp_context：wr_id 只说是哪个 slot'
}

test_whole() {
	worth 7 'one event, all completions' '一个 event，全部 completion'
	see 5 'The idea'
	scene walk || return
	shows '1 event, 4 completions' '1 event, 4 completions'
	because 'poll until ibv_poll_cq returns 0: one event stands for any number of completions' '一直 poll 到返回 0：一个 event 代表任意多个 completion'
}

test_order() {
	worth 10 'the CQ is armed after the event, and before it is polled' 'event 之后先 arm，再 poll'
	see 6 'Break it'
	scene walk || return
	local record after=''
	for record in "${all_records[@]}"; do
		[[ $record == a$'\t'*$'\t'cq=1$'\t'* || $record == a$'\t'*$'\t'cq=1 ]] || continue
		case $record in
		*ev=cq_event*) after='nothing' ;;
		*ev=arm* | *ev=completion*) [[ $after != nothing ]] || { after=${record#*ev=} after=${after%%$'\t'*} && break; } ;;
		esac
	done
	equal "${after:-no event}" arm
	because 'a completion between the last poll and the arming raises no event: it lies there until another comes' '最后一次 poll 与 arm 之间到的 completion 没有 event：它就躺在那里，直到又来一个'
}

test_async() {
	worth 6 'an asynchronous event is taken and acknowledged' 'async event 取走了，也 ack 了'
	see 7 'The idea'
	scene walk || return
	blame=(a)
	equal "$(ending a)" '' && recorded a ev=async_event && value type && equal "${value:-none}" SRQ_LIMIT_REACHED
	because 'ibv_destroy_srq waits until each event of the SRQ has been acknowledged' 'ibv_destroy_srq 会一直等到它的每个 event 都被 ack'
}

test_many() {
	worth 10 'rdma_server --many serves all, while one is killed and strangers come' 'rdma_server --many：有人被杀、有生人来，其他人照样服务'
	see 8 'What you see'
	scene many || return
	blame=(s)
	equal "$(for i in c1 c2 c3 c4; do rc_of $i; done | xargs)" '0 0 0 0' && equal "$(jq -r '"\(.served) served, \(.failed) failed"' "$E/s.out" 2>/dev/null)" '4 served, 1 failed'
	because 'an owner of NULL, a bad status and a completion of a QP that is gone are ordinary here' 'owner 为 NULL、status 不好、QP 已经不在：在这里都是平常事'
}

test_data() {
	worth 6 'the data of a datagram begins behind its 40 bytes' '一个 datagram 的数据在那 40 个字节之后'
	see 10 'The code'
	scene walk || return
	shows 'B: byte_len 104, src_qp [0-9]*; 64 bytes of data: "who is there[?]"' '64 bytes of data: "who is there?"'
	because 'byte_len counts the 40 bytes, and the slot begins with them' 'byte_len 把那 40 个字节也算在内，slot 也以它们开头'
}

test_answer() {
	worth 6 'a datagram is answered to where it came from' 'datagram 从哪里来，就答到哪里去'
	see 11 'The code'
	scene heads || return
	blame=(h)
	equal "$(out_of h | sed -n 's/^to //p' | head -n 2 | paste -sd ';')" \
		'::ffff:10.99.0.2, global 1, index right, port 1;::ffff:10.99.0.3, global 1, index right, port 1'
	because 'IPv4: the source is at 32, and what stands in the first 20 bytes says nothing' 'IPv4：源地址在 32；前 20 个字节里是什么都不算数'
}

test_ipv6() {
	worth 4 'also over IPv6, whatever the address is' 'IPv6 也一样，不管地址是什么'
	see 12 'The code'
	scene heads || return
	blame=(h)
	equal "$(out_of h | sed -n 's/^to //p' | tail -n +3 | paste -sd ';')" \
		'fe80::2, global 1, index right, port 1;fe80::45ab:2, global 1, index right, port 1'
	because 'IPv6: the source is at 8; 0x45 at 20 is not enough for IPv4, it must be UDP, too' 'IPv6：源地址在 8；20 处是 0x45 还不算 IPv4，还得是 UDP'
}

test_group() {
	worth 4 'who asks a multicast group is answered' '问多播组的，也有人答'
	see 13 'The code'
	scene discover || return
	blame=(d.s d.c)
	ended_with 0 d.c && like "$(out_of d.c)" 'RC, QP [0-9]*: "here"' 'RC, QP …: "here"'
	because 'ibv_create_ah_from_wc looks for the group in the GID table: read the source yourself' 'ibv_create_ah_from_wc 要在 GID 表里找那个组：源地址要自己读'
}

test_failures() {
	worth 4 'each call that fails is told once, and ends it' '每个失败的调用报一次，程序就此结束'
	see 9 'The code'
	scene fails || return
	local call
	for call in "${failing[@]}"; do
		blame=("$call")
		{ ended_with 1 "$call" && like "$(err_of "$call")" ENOMEM "$(say 'an error of ibv_create_qp: ENOMEM' 'ibv_create_qp 的错误：ENOMEM')" &&
			equal "$(grep -c '^error: ' "$E/$call.err") error" '1 error'; } || return
	done
	because 'ibv_create_qp sets errno: create_qp_failed()' 'ibv_create_qp 设 errno：create_qp_failed()'
}
