# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 02: the learner writes resources.c. See scene.sh and judge.sh.

stage_file=resources.c
strip="
create_mr: a zeroed buffer of recv_slots + send_slots slots, and an MR over all of it that the device may write and the peer may read and write
create_pd: make the PD
create_cq: with events a completion channel first; a CQ with room for recv_slots + send_slots completions
create_qp: room for the posted[] of each slot; an RC QP that signals what it is told to; keep the max_inline that was granted
create_objects_but_qp: refuse a msg_size of 0 or above the port's max_msg_sz; 0 slots are 1; PD, MR, CQ
create_objects: the same, and the QP; if one fails, take down what there is
DESTROY: a macro or a function of yours that destroys one object, reports a failure, and goes on
destroy_objects: QP, CQ (its events acknowledged), channel, MR, memory, PD; go on after a failure and return the first
init_rdma_resources: open the device, make the objects; if that fails, close it
destroy_rdma_resources: take down the objects, close the device; return the first failure
"
later=create_objects_but_qp # of stage 11
what=('make PD, MR, CQ and QP, and take them down' '建好 PD、MR、CQ、QP，再拆掉')

# ---- in the VM

scenes=(pair many events twice fails stuck size)

scene_pair() {
	SPY=1 serving a.s "$B/rdma_server" -t 3 -m hi rxe0
	look during
	learner a.c "$B/rdma_client" -t 3 -m hi 127.0.0.1 rxe1
	reap a.s
}

scene_many() { pair a -q -b -n 300 -w 32 -s 3000 rxe0 : -q -b -n 300 -w 32 -s 3000 127.0.0.1 rxe1; }
scene_events() { pair a -q -e -n 5 rxe0 : -q -e -n 5 127.0.0.1 rxe1; }
scene_twice() { SPY=1 learner a "$B/contract" objects; }

scene_fails() {
	local verb
	for verb in alloc_pd reg_mr create_comp_channel create_cq create_qp; do
		SPY=1 SPY_FAIL=ibv_$verb:1:12 learner $verb "$B/contract" objects
	done
}

scene_stuck() {
	SPY=1 SPY_FAIL=ibv_destroy_cq:1:16 serving a.s "$B/rdma_server" -q -t 3 rxe0
	learner a.c "$B/rdma_client" -q -t 3 127.0.0.1 rxe1
	reap a.s
}

scene_size() {
	SPY=1 SPY_LIE=small_port learner large "$B/rdma_server" -t 1 -s 9000000 rxe0
	learner none "$B/contract" objects 0
	SPY=1 SPY_LIE=small_port learner largest "$B/contract" objects $((8 << 20))
	SPY=1 SPY_FAIL=ibv_destroy_qp:1:16,ibv_dealloc_pd:1:5 learner undo "$B/contract" objects
}

# ---- on the host

test_pd_of_all() {
	worth 6 'one PD holds the MR and the QP' '一个 PD 管着 MR 与 QP'
	see 1 'The idea'
	scene pair || return
	sets a.s reg_mr pd 1 && sets a.s create_qp pd 1 && sets a.s alloc_pd err 0 &&
		equal "$(count a.s ev=alloc_pd) PD" '1 PD'
	because 'a QP reaches the MRs of its own PD only (rxe: a local error at the first receive)' 'QP 只够得着同一个 PD 里的 MR'
}

test_access() {
	worth 10 'the MR allows what comes later, and covers the buffer' 'MR 的权限够用，并覆盖整个缓冲'
	see 2 'The code'
	scene pair || return
	sets a.s reg_mr access 'LOCAL_WRITE\|REMOTE_WRITE\|REMOTE_READ' 'LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ' || {
		because 'without LOCAL_WRITE the device may not put what it receives there (REMOTE_WRITE wants it as well); the peer may WRITE and READ there' \
			'没有 LOCAL_WRITE，网卡就不能把收到的写进来（REMOTE_WRITE 也要求它）；对端可以 WRITE 与 READ'
		return
	}
	sets a.s reg_mr len '(819[2-9]|8[2-9]..|[1-9][0-9]{4,})' '8192 (two slots of 4096), or more'
	because 'the MR covers all of the buffer: receive and send slots' 'MR 覆盖整个缓冲：接收的 slot 与发送的 slot'
}

test_order() {
	worth 12 'taken down in the reverse order, all of it' '按相反的次序全部拆掉'
	see 7 'The code'
	scene pair || return
	local record order=''
	recorded a.s
	blame=(a.s)
	for record in "${records[@]}"; do
		[[ $record =~ ev=(destroy_qp|destroy_cq|dereg_mr|dealloc_pd|close_device) ]] || continue
		order+=${BASH_REMATCH[1]}
		[[ $record$'\t' == *$'\terr=0\t'* ]] || order+=' (refused)'
		order+=' '
	done
	# The MR may go at any time after the QP.
	case $order in
	'destroy_qp destroy_cq dereg_mr dealloc_pd close_device ' | 'destroy_qp dereg_mr destroy_cq dealloc_pd close_device ' | \
		'destroy_qp dereg_mr dealloc_pd destroy_cq close_device ') ;;
	*) differs "$order" 'destroy_qp destroy_cq dereg_mr dealloc_pd close_device' ;;
	esac
	because 'what is still used answers EBUSY and stays: QP before CQ and PD, MR before PD' '还被用着的回 EBUSY、不会消失：QP 先于 CQ 与 PD，MR 先于 PD'
	blame=()
	local free='free(buf), ibv_dereg_mr()'
	[[ $failed ]] || ! grep -qx 'free registered' "$E/a.s.log" || {
		cause=''
		differs "$free" 'ibv_dereg_mr(), free(buf)'
		because 'memory is freed while it is still registered: the device may write there, into what is somebody else'"'"'s by then' \
			'内存还注册着就 free 了：设备仍可能往里写，而那里已是别人的'
	}
	[[ $failed ]] || equal "$(leaks a.s)" '' || because 'what was made or allocated has to be given back' '建的、要来的，都要归还'
}

test_slots() {
	worth 9 'receive and send slots lie apart, and all inside the MR' '收发各有 slot，互不重叠，都在 MR 里'
	see 3 'The code'
	scene twice || return
	blame=(a)
	equal "$(sed -n 's/ zero.*//; 1p' "$E/a.out")" 'slots 3 2 apart 1 covered 1 state 0' || {
		[[ $observed != *'covered 0'* ]] || because 'the last send slot ends behind the buffer or its MR: slot_size bytes for each slot' '最后一个发送 slot 超出了缓冲或 MR：每个 slot 要 slot_size 字节'
		because 'a posted receive is written at any time: what is sent from there is what has just come in' \
		'post 过的 receive 随时会被写入：与发送共用，发出去的可能是刚收到的'
		return
	}
	equal "$(sed -n 's/.* zero/zero/; 1p' "$E/a.out")" 'zero 1 channel 1' &&
		equal "$(sed -n '3p' "$E/a.out")" 'slots 1 1 apart 1 covered 1 state 0 zero 1 channel 0'
	because 'the buffer is zeroed; 0 slots in the configuration are 1; without events there is no channel' 'buf 要清零；配置里 slot 数是 0 就当 1；没有 events 就没有 channel'
}

test_qp() {
	worth 10 'the QP is RC, signals what it is told to, and has room for what was asked' 'QP 是 RC，按请求 signal，容量按要求'
	see 5 'The code'
	scene many || return
	because 'with sq_sig_all each SEND makes a completion that nobody waits for' '设了 sq_sig_all，每个 SEND 都产生没人等的 completion'
	sets a.c create_qp type RC && sets a.c create_qp sq_sig_all 0 &&
		sets a.c create_qp send_wr_asked '3[2-9]|[4-9][0-9]|[1-9][0-9]{2,}' '32 (the window), or more' &&
		sets a.s create_qp recv_wr_asked '3[2-9]|[4-9][0-9]|[1-9][0-9]{2,}' '32 (the window), or more' || return
	recorded a.s ev=create_qp && value send_cq
	local cq=$value
	value recv_cq
	equal "recv_cq $value" "recv_cq $cq"
}

test_cq_holds() {
	worth 9 'the CQ holds all completions that can be outstanding' 'CQ 装得下所有未取走的 completion'
	see 4 'The code'
	scene many || return
	recorded a.s ev=create_qp && value recv_wr_asked
	local receives=${value:-1} sends
	value send_wr_asked
	sends=${value:-1}
	recorded a.s ev=create_cq && value cqe_asked
	((${value:-0} >= receives + sends)) || differs "cqe $value" "cqe $((receives + sends)) ($receives + $sends)"
	well a
	because 'a CQ that overruns loses completions (rxe) or its QP (hardware)' 'CQ overrun：rxe 丢 completion，物理网卡连 QP 一起丢'
}

test_inline() {
	worth 6 'what the device granted is read back: short messages go inline' '读回实际给的容量：短消息走 inline'
	see 5 'The code'
	scene pair || return
	sets a.c post_send flags '.*INLINE.*' INLINE
	because 'ibv_create_qp writes into init.cap what it really gave' 'ibv_create_qp 把实际给的写回 init.cap'
}

test_during() {
	worth 4 'while it waits, rdma resource shows one QP, and its objects' '等待期间，rdma resource 看到的正是这些对象'
	see 6 'What you see'
	scene pair || return
	blame=(a.s)
	like "$(cat "$E/during.qp")" 'link rxe0/1 lqpn [0-9]+ rqpn 0 type RC state INIT' 'link rxe0/1 … type RC state INIT' &&
		like "$(cat "$E/during.all")" 'rxe0: pd 2 cq 2 qp 2 cm_id 0 mr 1' "rxe0: pd 2 cq 2 qp 2 … mr 1 (one each is the driver's)"
	because 'an administrator sees just what the program holds' '管理员看到的，就是程序占着的'
}

test_events() {
	worth 8 'with --events: a channel for the CQ, and none is left' '--events：CQ 有 channel，用完拆掉'
	see 8 'The code'
	scene events || return
	well a && scene twice && { [[ $(tail -n 1 "$E/a.out") == taken* ]] || blame=(a); } &&
		equal "$(tail -n 1 "$E/a.out")" 'taken down 0, pointers none' && equal "$(leaks a)" ''
	[[ $observed != 'taken down'* ]] || because 'taken down twice, by destroy_objects() and with the rest, nothing is left to do the second time, and all pointers are NULL' \
		'destroy_objects() 之后再整个拆：第二次什么也不用做，指针全是 NULL'
	because 'the channel is a file descriptor of its own: destroyed after its CQ, or it stays' 'channel 自己占一个文件描述符：在 CQ 之后拆，否则留下'
}

test_failures() {
	worth 12 'whichever step fails: told once, and what was made is taken down' '任何一步失败：报一次，拆掉已建的'
	see 9 'The code'
	local verb any=''
	scene fails || return
	for verb in alloc_pd reg_mr create_comp_channel create_cq create_qp; do
		struck "$verb" || continue # another call does it
		any=1
		blame=("$verb")
		{ ended_with 1 "$verb" && like "$(err_of "$verb")" "ENOMEM|Cannot allocate memory" "an error of ibv_$verb that says ENOMEM"; } || break
		blame=()
		{ equal "$(leaks "$verb")" '' && equal "init_rdma_resources(): $(head -n 1 "$E/$verb.out")" 'init_rdma_resources(): made -12'; } || break
		blame=("$verb")
		equal "$(grep -c '^error: ' "$E/$verb.err") error" '1 error' || break
		blame=()
	done
	[[ $any ]] || { blame=(reg_mr) && differs "$(say 'none of these verbs was called' '这些 verb 一个也没有调用')" "$(say 'calls that fail' '失败的调用')"; }
	[[ ! $observed =~ ^[0-9] ]] || because "what was allocated before ibv_$verb() failed is still there: free it, too" "ibv_$verb() 失败之前要来的内存还在：也要 free"
	[[ ! $observed == *made* ]] || because 'a failure is passed up as -errno: -ENOMEM is -12' '失败以 -errno 返回：-ENOMEM 是 -12'
	because 'these verbs return NULL and set errno; who goes on after a failure leaves the rest for ever' \
		'这些 verb 失败时返回 NULL 并设 errno；失败后不拆，已建的就一直占着'
}

test_goes_on() {
	worth 5 'a destroy that fails is told, and the rest is still taken down' '拆除失败要报，其余照拆'
	see 7 'The code'
	scene stuck || return
	ended_with 1 a.s && like "$(err_of a.s)" 'ibv_destroy_cq.*(EBUSY|busy)' 'an error of ibv_destroy_cq: EBUSY' &&
		equal "$(count a.s ev=dereg_mr err=0) MR gone" '1 MR gone' && scene size && blame=() &&
		equal "$(sed -n 's/, pointers.*//; s/^taken/destroy_rdma_resources(): taken/p' "$E/undo.out")" 'destroy_rdma_resources(): taken down -16'
	because 'ibv_destroy_* return the error number; one failure is no reason to leave the others, and the first is what is returned' 'ibv_destroy_* 直接返回错误码；一个失败不是留下其余的理由，返回的是第一个'
}

test_size() {
	worth 4 'a message size that the port cannot carry, or 0, is refused' 'port 传不了的 msg_size，或 0：拒绝'
	see 10 'The code'
	{ scene pair && sets a.s reg_mr err 0 && scene size; } || return
	local name
	for name in large none; do
		{ equal "$(who $name) $(say 'ended with exit code' '的退出码是') $(rc_of $name)" "$(who $name) $(say 'ended with exit code' '的退出码是') 1" &&
			equal "$(count $name ev=reg_mr) ibv_reg_mr" '0 ibv_reg_mr' &&
			equal "$(grep -c '^error: ' "$E/$name.err") error" '1 error' && equal "$(leaks $name)" ''; } || break
	done
	[[ $failed ]] || like "$(head -n 1 "$E/largest.out")" '^slots' "$(say 'a msg_size of just max_msg_sz is taken' 'msg_size 正好是 max_msg_sz：可以')"
	because 'rdma_config has 1 ... MAX_MSG_SIZE bytes, and the port says in port_attr.max_msg_sz what it can carry' \
		'rdma_config 里是 1 到 MAX_MSG_SIZE 字节；port 能传多少，port_attr.max_msg_sz 说了算'
}
