# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 05: the learner writes transfer.c. See scene.sh and judge.sh.

stage_file=transfer.c
strip="
post_receive: one request for the whole of that receive slot, wr_id WR_ID_RECV(slot); remember_receive() it, report a refusal
post_all_receives: each slot, in their order
post_request: inline if it carries data and is short enough; post it, remember_send() it, report a refusal
post_send: length bytes of that send slot, wr_id WR_ID_SEND(slot), signaled if that is asked for
check_completion: a status that is not SUCCESS is explained by explain_failure(); RECV goes with WR_ID_RECV and SEND with WR_ID_SEND (lesson 08 adds others), anything else is an unexpected_completion()
try_completion: ask the CQ once: 0 if there is nothing, 1 for a completion that is good, or a negative errno
arm_cq: have the CQ raise an event; remember that in res->armed
take_cq_event: take one event from the channel, count it in event_debt, acknowledge them at times; the CQ is no longer armed
arm_or_sleep: arm the CQ, if it is not; else sleep on the channel's fd until the deadline, and take the event
await_completion: look, and if there is nothing arm or sleep (with a channel), or look again; a stop is -EINTR, the deadline -ETIMEDOUT; say why nothing came
poll_completion: wait for that wr_id; one of the other queue may come first, and is kept in res->early
"
later=post_all_receives
what=('post receives and sends, wait for completions' 'post 收发请求，等 completion')

# ---- in the VM

scenes=(pair pingpong window events between liars early late posts_fail nobody stopped lesson called)

scene_pair() { pair a -j -m "$(printf '%.0s1234567' {1..10})" rxe0 : -j -m hello 127.0.0.1 rxe1; }
scene_pingpong() { pair a -q -n 20 -s 9000 rxe0 : -q -n 20 -s 9000 127.0.0.1 rxe1; }
scene_window() { pair a -q -b -n 200 -w 16 -s 2000 rxe0 : -q -b -n 200 -w 16 -s 2000 127.0.0.1 rxe1; }
scene_events() { pair a -q -e -n 10 rxe0 : -q -e -n 10 127.0.0.1 rxe1; }

# All that is to come has come when the CQ is armed: there will be no event for it.
scene_between() {
	SPY=1 SPY_LIE=late serving a.s "$B/rdma_server" -q -e -t 3 rxe0
	SPY=1 SPY_LIE=between learner a.c "$B/rdma_client" -q -e -t 3 127.0.0.1 rxe1
	reap a.s
}

# spied NAME LIE: a pair whose client is lied to, and that waits for $seconds
spied() {
	serving "$1.s" "$B/rdma_server" -q -t "${seconds:-3}" rxe0
	SPY=1 SPY_LIE=$2 learner "$1" "$B/rdma_client" -q -t "${seconds:-3}" 127.0.0.1 rxe1
	kill9 "$1.s"
}

scene_liars() {
	local lie
	for lie in wr_id opcode status broken; do
		spied "$lie" "$lie"
	done
}

scene_early() {
	spied early early
	spied poison poison
	spied received_twice twice
}

# What the server sends comes 300 ms after the client began to wait.
scene_late() {
	SPY=1 SPY_LIE=late serving a.s "$B/rdma_server" -q -e -t 3 rxe0
	SPY=1 learner a.c "$B/rdma_client" -q -e -t 3 127.0.0.1 rxe1
	reap a.s
}

# Ctrl-C while it polls for what never comes, and SIGTERM while it sleeps
scene_stopped() {
	serving s "$B/rdma_server" -q -t 3 rxe0
	SPY=1 SPY_LIE=lost interrupted INT '^post_send' INT "$B/rdma_client" -q -t 30 127.0.0.1 rxe1
	kill9 s
	serving s "$B/rdma_server" -q -t 3 rxe0
	SPY=1 SPY_LIE=lost interrupted TERM '^post_send' TERM "$B/rdma_client" -q -e -t 30 127.0.0.1 rxe1
	kill9 s
}

scene_posts_fail() {
	PLAIN=1 SPY=1 SPY_FAIL=ibv_post_recv:1:12 learner recv "$B/rdma_server" -q -t 3 rxe0
	serving send.s "$B/rdma_server" -q -t 3 rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_post_send:1:12 learner send "$B/rdma_client" -q -t 3 127.0.0.1 rxe1
	kill9 send.s
}

# Completions that never come: polled for, and at the same time slept for.
scene_nobody() {
	port=18516 serving asleep.s "$B/rdma_server" -q -t 1 rxe0 18516
	SPY=1 SPY_LIE=lost start asleep confined asleep "$B/rdma_client" -q -e -t 1 127.0.0.1 rxe1 18516
	seconds=1 spied lost lost
	reap asleep
	overran asleep
	kill9 asleep.s
}

scene_lesson() {
	learner good "$B/05-send-recv" rxe0
	learner none "$B/05-send-recv" --break no-receive rxe0
	learner lkey "$B/05-send-recv" --break bad-lkey rxe0
}

scene_called() { learner t "$B/contract" transfer; }

# ---- on the host

# called WORD WANT: what the contract says of it
called() {
	scene called || return
	told t "$1: " "$1: $2"
}

test_receive() {
	worth 10 'a receive is posted in INIT, as large as the slot, by its wr_id' 'receive 在 INIT 时 post，大小是整个 slot，wr_id 认得出'
	see 1 'The code'
	scene pair || return
	because 'a SEND that meets no receive is turned away (RNR), and the wr_id is all that the completion knows' \
		'SEND 来时没有 receive 就被挡回（RNR）；completion 只认得 wr_id'
	local begin='' before
	recorded a.s ev=post_recv && value t && before=${value:-9}
	sets a.s post_recv wr_id 0x7265637600000000 && sets a.s post_recv len 4096 && sets a.s post_recv sges 1 || return
	recorded a.s ev=modify_qp to=RTR && value t
	((before < ${value:-0})) || differs "$(say 'posted after RTR' '在 RTR 之后才 post')" "$(say 'posted in INIT' '在 INIT 时 post')"
	[[ ! $failed ]] && scene called || return
	sets t post_recv len 100 '100 (msg_size, of a slot of 128)' && return
	cause=''
	because 'a message longer than msg_size is an error, even if it would fit into the slot' '比 msg_size 长的消息是错误，哪怕 slot 装得下'
}

test_send() {
	worth 10 'a SEND: its length, its slot, a completion' 'SEND：长度、slot、要有 completion'
	see 2 'The code'
	scene pair || return
	because 'no more than the message is sent, and not from the memory that receives' '只发消息那么长，且不从接收的内存发'
	sets a.s post_send op SEND && sets a.s post_send len 71 '71 (the text and its NUL)' &&
		sets a.s post_send wr_id 0x73656e6400000000 || return
	sets a.s post_send flags '.*SIGNALED.*' SIGNALED || {
		cause=''
		because 'without IBV_SEND_SIGNALED a SEND that goes well makes no completion' '没有 IBV_SEND_SIGNALED，成功的 SEND 不产生 completion'
		return
	}
	recorded a.s ev=post_recv && value addr
	local receives=$value
	recorded a.s ev=post_send && value addr
	equal "$(((${value:-0}) - (${receives:-0}))) bytes apart" '4096 bytes apart'
}

test_message() {
	worth 10 'rdma_server and rdma_client get each other'"'"'s text' 'rdma_server 与 rdma_client 收到对方的文字'
	see 3 'The code'
	scene pair || return
	because 'byte_len of the completion is what came' 'completion 的 byte_len 才是收到的长度'
	well a || return
	equal "$(out_of a.s | jq -r '"\(.received_bytes) \(.received_text)"')" '6 hello' &&
		equal "$(out_of a.c | jq -r '"\(.received_bytes) \(.received_text)"')" "71 $(printf '%.0s1234567' {1..10})"
}

test_inline() {
	worth 5 'a message that fits goes inline, a larger one does not' '放得下的消息走 inline，放不下的不走'
	see 2 'The code'
	scene pair || return
	sets a.c post_send flags '.*INLINE.*' INLINE && recorded a.s ev=post_send && value flags && equal "$value" SIGNALED
	because 'more than max_inline cannot be inline (EINVAL); less saves a fetch' '超过 max_inline 不能 inline（EINVAL）；放得下就省一次取数据'
	[[ ! $failed ]] && scene called || return
	sets t 'post_send op=RDMA_READ' flags SIGNALED 'SIGNALED' && return
	cause=''
	because 'the data of a READ comes from the peer: only what is sent can be inline' 'READ 的数据来自对端：只有要发出去的才能 inline'
}

test_many() {
	worth 5 'twenty rounds of 9000 bytes' '二十个来回，每个 9000 字节'
	see 3 'The code'
	scene pingpong || return
	well a && equal "$(count a.s ev=completion op=RECV status=SUCCESS) received" '20 received' &&
		equal "$(count a.c ev=post_send) sent" '20 sent'
}

test_unsignaled() {
	worth 7 'a window of SENDs, of which not each makes a completion' '一窗口的 SEND，不是每个都要 completion'
	see 2 'The code'
	scene window || return
	because '@signaled is for the caller to say: each completion costs' '要不要 completion 由调用者说了算：每个都有代价'
	well a || return
	local all signaled
	all=$(count a.c ev=post_send)
	recorded a.c ev=post_send flags=SIGNALED
	signaled=${#records[@]}
	((signaled < all && signaled > 0)) || differs "$signaled of $all signaled" "$(say 'as many as were asked for' '只有要求的那些')"
}

yes_or_no() { if ((${1:-0})); then say 'was called' '调用过'; else say 'was never called' '从未调用'; fi; }

test_events() {
	worth 10 'with --events it sleeps until the CQ says so' '--events：睡到 CQ 叫醒'
	see 4 'The code'
	scene events || return
	{ well a && scene between && well a; } || {
		because 'arm, look once more, and only then sleep: else a completion slips in between' '先 arm，再看一眼，然后才睡：否则 completion 会从中间溜走'
		return
	}
	scene late || return
	{ equal "ibv_req_notify_cq() $(yes_or_no "$(summed_up a.c arms)")" "ibv_req_notify_cq() $(yes_or_no 1)" &&
		equal "ibv_get_cq_event() $(yes_or_no "$(summed_up a.c events)")" "ibv_get_cq_event() $(yes_or_no 1)"; } || {
		because 'with a channel it polls all the same: nothing is armed, nobody sleeps' '有 channel，却还是轮询：没有 arm，也没有睡'
		return
	}
	(($(summed_up a.c polls) < 500)) || differs "$(summed_up a.c polls) $(say 'times ibv_poll_cq() in 300 ms' '次 ibv_poll_cq()，在 300 ms 里')" "$(say 'a few' '几次')"
	[[ $failed ]] || called event '0, debt and acknowledged are 1000' ||
		because 'event_debt counts the events that were taken and not yet acknowledged, each once' 'event_debt 数的是取走而未确认的 event，每个只数一次'
	because 'it sleeps until the CQ says so: wait_fd() on the fd of the channel' '睡到 CQ 叫醒：对 channel 的 fd 用 wait_fd()'
}

test_late() {
	worth 4 'a message that comes late' '消息来得晚'
	see 4 'The code'
	scene late || return
	well a
	because 'a CQ that is armed once makes one event: arm it again after each' 'arm 一次只有一个 event：每次之后都要再 arm'
}

test_liars() {
	worth 9 'status, opcode and wr_id are all looked at' 'status、opcode、wr_id 都要看'
	see 5 'The code'
	scene liars || return
	local lie
	local -A says=([status]="RETRY_EXC|retry counter exceeded" [opcode]=completion [wr_id]=completion [broken]='ibv_poll_cq|CQ')
	local -A words=([status]="$(say 'an error: the status is RETRY_EXC_ERR' '错误：status 是 RETRY_EXC_ERR')" [opcode]="$(say 'an error: RDMA_READ, and nobody has read' '错误：RDMA_READ，可没有谁 READ')"
		[wr_id]="$(say "an error: wr_id 7 is nobody's" '错误：wr_id 7 不是谁的')" [broken]="$(say 'an error: ibv_poll_cq() returned -2' '错误：ibv_poll_cq() 返回 -2')")
	for lie in status opcode wr_id broken; do
		ended_with 1 "$lie" || break
		like "$(err_of "$lie")" "${says[$lie]}" "${words[$lie]}" || break
	done
	[[ ! $failed ]] || because "a completion says whether, what and which; here: ${words[$lie]}" "completion 说明成没成、是什么、是哪一个；这里是：${words[$lie]}"
	[[ $failed ]] || called remembered 'receive 1, send 1' ||
		because 'the request that failed is found by its wr_id in res->posted: receives are first, sends behind all recv_slots of them' \
			'失败的请求凭 wr_id 在 res->posted 里找：receive 在前，send 在全部 recv_slots 个之后'
}

test_bad_status() {
	worth 5 'a bad completion is explained once, with its status' '失败的 completion：解释一次，说出 status'
	see 5 'The code'
	scene lesson || return
	because 'the first bad completion is the cause; what follows are flushes' '第一个失败的 completion 才是原因；后面的只是 flush'
	ended_with 1 none lkey && ended_with 0 good || return
	like "$(err_of none)" 'RNR' 'RNR_RETRY_EXC_ERR (13)' && like "$(err_of lkey)" 'lkey' 'the lkey that is nobody'"'"'s' &&
		equal "$(grep -c '^error: ' "$E/none.err") error" '1 error'
}

test_early() {
	worth 7 "the peer's answer comes before the SEND's own completion" '对方的回信先于自己 SEND 的 completion 到来'
	see 6 'The code'
	scene early || return
	because 'send and receive queue are not ordered against each other: keep what came, and give it at the next call' \
		'SQ 与 RQ 之间没有先后：先到的留着，下次再给'
	blame=(early)
	ended_with 0 early || return
	blame=()
	cause=''
	ended_with 1 received_twice ||
		because 'a second completion that nobody waits for is an error; it was accepted' '第二个没有人等的 completion 是错误，而它被收下了'
	[[ ! $failed ]] || return
	{ called 'of no bytes' '0, 0, 0 bytes' && called 'and no more' -110; } ||
		because 'an empty message is one, too; what came early is given once' '空消息也是消息；先到的只给一次'
	[[ ! $failed ]] || return
	scene early
	ended_with 0 poison || because 'wc says something only if ibv_poll_cq() returned more than 0' 'ibv_poll_cq() 返回值大于 0，wc 才有内容'
}

test_posts_fail() {
	worth 3 'a post that is refused is told' 'post 被拒绝：要报'
	see 7 'The code'
	scene posts_fail || return
	! grep -q '^post_.* next=1' "$E/recv.log" "$E/send.log" || {
		differs "$(say 'wr.next is not NULL' 'wr.next 不是 NULL')" 'wr.next NULL'
		because 'wr.next leads to the next request of a list: a wr that is not zeroed leads anywhere' 'wr.next 指向链表里的下一个请求：wr 没有清零，它就不知指向哪里'
		return
	}
	ended_with 1 recv && like "$(err_of recv)" 'ENOMEM|Cannot allocate memory' 'ibv_post_recv … ENOMEM' && ended_with 1 send &&
		like "$(err_of send)" 'ENOMEM|Cannot allocate memory' 'ibv_post_send … ENOMEM'
	because 'ibv_post_* return the error number; a request that was not taken never completes' 'ibv_post_* 直接返回错误码；没收下的请求永远不会完成'
}

test_deadline() {
	worth 6 'a completion that never comes: it ends by its deadline, and says why' 'completion 一直不来：到期限就结束，并说出原因'
	see 8 'Break it'
	scene nobody || return
	if ended_with 1 lost asleep; then
		{ in_time lost 700 1500 && in_time asleep 700 1500; } || {
			named=''
			because 'a wait ends by the clock: so many polls are as long as the machine is slow' '等待的尽头由时钟定：轮询若干次有多久，全看机器快慢'
			return
		}
		like "$(err_of lost)" 'no completion|completion' 'an error: no completion' && like "$(err_of asleep)" 'completion' 'an error: no completion'
	fi
	because 'polled for ever: a wait without a deadline' '一直轮询下去：等待没有期限'
}

test_stop() {
	worth 4 'Ctrl-C and SIGTERM end the wait' 'Ctrl-C 与 SIGTERM 结束等待'
	see 8 'The code'
	scene stopped || return
	local sig
	for sig in INT TERM; do
		{ ended_with 1 $sig && like "$(err_of $sig)" 'EINTR|[Ss]top|[Ii]nterrupt|signal' "$(say "an error: SIG$sig" "错误：SIG$sig")"; } || break
	done
	[[ ! $failed || ! ${sig:-} || $(rc_of $sig) != @(124|137) ]] || named='' # it ran on: no wonder
	[[ ! $failed || ! ${sig:-} || $(rc_of $sig) == @(124|137) ]] ||
		because 'it ended, and did not say why: a stop is reported, too (wait_failed())' '结束了，却没有说为什么：停止也要报告（wait_failed()）'
	because 'a stop was requested, and it went on waiting: stop_requested(), -EINTR' '已经要求停止，它还在等：stop_requested()，-EINTR'
}
