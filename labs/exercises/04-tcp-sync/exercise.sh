# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 04: the learner writes tcp_sync.c. See scene.sh and judge.sh.

stage_file=tcp_sync.c
strip="
sock_sync_data: write all of mine, then read all of the peer's, before the deadline
sock_sync_step: tell the peer the step and the status, in network byte order; with a failure do not wait, else hear what the peer says and check it
cm_con_data_of: QPN, LID, PSN, MTU, GID, and the buffer's address, rkey and message size, in host byte order
cm_con_data_to_wire: each integer in network byte order; the GID stays as it is
exchange_cm_con_data: hello first, both ways, checked; then the data, both ways, checked; res->remote is set on success only
"
what=('tell the peer what it must know, over TCP' '用 TCP 告诉对端它必须知道的')

# ---- in the VM

scenes=(pair bytes slow short bad_hello bad_data cut silent stopped peer_failed own_failure elsewhere called)

scene_pair() { pair a -j rxe0 : -j 127.0.0.1 rxe1; }

# peer_listens NAME ITEM…: our hand-made server, which records what it hears
peer_listens() {
	: >"$T/peer.rc"
	start "peer.$1" "$B/peer" listen "$port" record="$T/$1.wire" "${@:2}"
	await listening "$port"
}

# meets NAME ITEM…: a client meets it
meets() {
	peer_listens "$@"
	learner "$1" "$B/rdma_client" -t 1 127.0.0.1 rxe1
	dismiss "peer.$1"
}

# The peer is in RTS, perhaps, but has not said so.
scene_bytes() { meets a hello con,qpn=0x1234,psn=0xabcdef,mtu=2; }

scene_slow() {
	serving a.s "$B/rdma_server" -t 2 rxe0
	start peer "$B/peer" connect 127.0.0.1 "$port" hello con,qpn=0x1234,psn=0x77 sync plan,size=24 \
		trickle=2 record="$T/slow.wire"
	reap a.s
	dismiss peer
}

scene_short() {
	SPY=1 SPY_LIE=short,eintr
	export SPY_LIE
	pair a -q rxe0 : -q 127.0.0.1 rxe1
	unset SPY SPY_LIE
}

scene_bad_hello() {
	meets magic text=HTTP/1.1 con
	meets version hello,version=2 # and nothing more
	meets length hello,length=47 con
}

scene_bad_data() {
	meets psn hello con,psn=0x1000001
	meets gid hello con,gid=::
	peer_listens called hello con,psn=0x1000001
	learner called "$B/contract" remote "$port"
	dismiss peer.called
}

scene_cut() {
	meets hello hello cut=5 close
	meets data hello con cut=30 close
}

# Who says nothing; who says it so slowly that no single byte is late, but all of it is.
scene_silent() {
	SPY=1 meets a
	meets slowly hello con trickle=60
}

scene_stopped() {
	local sig
	for sig in INT TERM; do
		peer_listens $sig
		SPY=1 interrupted $sig '^send' $sig "$B/rdma_client" -t 30 127.0.0.1 rxe1
		dismiss peer.$sig
	done
}

scene_peer_failed() { meets a hello con sync,status=5; }
scene_elsewhere() { meets a hello con sync,step=2; }
scene_own_failure() { SPY=1 SPY_FAIL=ibv_modify_qp:2:22 meets a hello con sync; }

scene_called() { learner a "$B/contract" sync; }

# ---- on the host

# called WORD WANT: what the contract says of it
called() {
	scene called || return
	told a "$1: " "$1: $2"
}

# wire NAME FROM COUNT: these bytes of what the peer heard, in hex
wire() { od -An -v -tx1 -j "$2" -N "$3" "$E/$1.wire" 2>/dev/null | tr -d ' \n'; }

# sync_of NAME FROM: the sync message that the peer heard, in words
sync_of() {
	local hex magic step status
	hex=$(wire "$1" "$2" 12)
	((${#hex} == 24)) || { say "no sync message, but ${hex:-nothing}" "不是 sync 消息，而是 ${hex:-什么也没有}" && return; }
	magic=$((0x${hex:0:8})) step=$((0x${hex:8:8})) status=$((0x${hex:16:8}))
	case $step in
	1) step='READY (1)' ;;
	2) step='DONE (2)' ;;
	esac
	if ((magic == 0x53594e43)); then
		echo "SYNC, step $step, status $status"
	elif ((magic == 0x434e5953)); then
		say "SYNC in the byte order of this host" "SYNC，却是本机的字节序"
	else
		say "something else than a sync message, with the length $step" "不是 sync 消息，长度是 $step"
	fi
}

# refused NAME REGEX WORDS: it said so once, ended, and never brought its QP to RTR
refused() {
	blame=("$1")
	ended_with 1 "$1" || return 1
	[[ $(err_of "$1") ]] || because 'it failed without a word: a failure is reported once, where its cause is known' '失败了却一声不吭：失败要报一次，在知道原因的地方'
	like "$(err_of "$1")" "$2" "$3" || return 1
	blame=()
	equal "$(count "$1" ev=modify_qp to=RTR) times to RTR" '0 times to RTR' && equal "$(leaks "$1")" ''
}

# hello_of NAME: what the peer heard first
hello_of() {
	local hex
	hex=$(wire "$1" 0 8)
	[[ $hex ]] || { say 'nothing' '什么也没有' && return; }
	echo "magic ${hex:0:8}, version ${hex:8:4}, length ${hex:12:4}"
}

test_hello() {
	worth 8 'the hello: magic, version, length, big-endian' 'hello：magic、version、length，big-endian'
	see 1 'The code'
	scene bytes || return
	equal "$(hello_of a)" 'magic 52434d45, version 0001, length 002b'
	because 'each integer goes out in network byte order, and the hello first' '每个整数都用网络字节序，hello 在最前'
}

test_byte_order() {
	worth 11 'QPN, PSN, rkey and size on the wire are big-endian' '线上的 QPN、PSN、rkey、size 都是 big-endian'
	see 2 'The idea'
	scene bytes || return
	local qpn psn rkey
	recorded a ev=create_qp && value qpn && printf -v qpn '%08x' "${value:-0}"
	recorded a ev=reg_mr && value rkey && printf -v rkey '%08x' "$((${value:-0}))"
	if ! { equal "qp_num $(wire a 8 4)" "qp_num $qpn" && equal "rkey $(wire a 43 4)" "rkey $rkey"; }; then
		because 'QPN 0x11 arrives as 0x11000000: the peer sends to nobody (status 12)' 'QPN 0x11 到那边成了 0x11000000：包发给了不存在的 QP（status 12）'
		return
	fi
	equal "active_mtu $(wire a 34 1)" 'active_mtu 05' || {
		because 'active_mtu is the enum (5 is 4096), not bytes: it has 8 bits' 'active_mtu 是枚举（5 就是 4096），不是字节数：它只有 8 位'
		return
	}
	equal "size $(wire a 47 4)" 'size 00001000' || {
		because "size is what the peer may send at once: msg_size, not the whole buffer's" 'size 是对端一次最多能发多少：msg_size，不是整个缓冲'
		return
	}
	equal "psn $(wire a 30 1)..." 'psn 00...' || {
		because 'a PSN has 24 bits: the first of its four bytes on the wire is 00' 'PSN 只有 24 位：线上四个字节的头一个是 00'
		return
	}
	recorded a ev=modify_qp to=RTS && value sq_psn
	[[ $value ]] || { untried=1 && differs "$(say 'no way to RTS' '没有到 RTS')" "$(say 'the sq_psn of RTS, on the wire' '线上的 PSN 就是 RTS 的 sq_psn')" &&
		because 'the QP never got to RTS: see the other tests' 'QP 没有走到 RTS：看别的几项' && return; }
	printf -v psn '%08x' "$value"
	equal "psn $(wire a 30 4)" "psn $psn"
	[[ $failed ]] || called told 'rkey 12345678 mtu 3 size 100' ||
		because 'the rkey of the MR, not its lkey; the active_mtu of the port, not its max_mtu; and the msg_size' 'MR 的 rkey，不是 lkey；port 的 active_mtu，不是 max_mtu；还有 msg_size'
	because 'the PSN that was told is not the one that is sent with' '告诉对端的 PSN 与实际用的不同'
}

test_gid() {
	worth 8 'the GID goes as it stands, 16 bytes; and the address of the buffer' 'GID 原样 16 个字节；还有缓冲的地址'
	see 3 'The idea'
	scene bytes || return
	local addr
	recorded a ev=reg_mr && value addr && printf -v addr '%016x' "$((${value:-0}))"
	equal "gid $(wire a 14 16)" 'gid 00000000000000000000ffff0a630002' ||
		because 'a GID is a string of bytes and in network order already' 'GID 是字节串，本来就是网络字节序'
	equal "addr $(wire a 35 8)" "addr $addr" ||
		because 'the address is an integer of 64 bits: htobe64' '地址是 64 位整数：htobe64'
}

test_back() {
	worth 9 "the peer's data comes back to host byte order" '收到的转回主机字节序'
	see 2 'The idea'
	scene bytes || return
	sets a 'modify_qp to=RTR' dest_qpn "$((0x1234))" "$((0x1234)) (0x1234)" &&
		sets a 'modify_qp to=RTR' rq_psn "$((0xabcdef))" "$((0xabcdef)) (0xabcdef)" &&
		sets a 'modify_qp to=RTR' path_mtu 512
	because 'what came over the wire is big-endian: be32toh, too' '线上来的是 big-endian：读的时候也要 be32toh'
}

test_waits_for_ready() {
	worth 8 'nothing is sent before the peer has said READY' '对端说 READY 之前，什么也不发'
	see 4 'The code'
	scene bytes || return
	sets a 'modify_qp to=RTS' err 0 && equal "$(count a ev=post_send) SENDs" '0 SENDs' && ended_with 1 a &&
		equal "$(sync_of a 51)" 'SYNC, step READY (1), status 0'
	because 'who sends to a QP that is not in RTR yet gets retries, or status 12' '发给还没到 RTR 的 QP：轻则重试，重则 status 12'
}

test_slow_peer() {
	worth 7 'a peer whose bytes come one at a time' '对端一次只来一个字节'
	see 5 'The idea'
	scene slow || return
	sets a.s 'modify_qp to=RTS' err 0 && sets a.s 'modify_qp to=RTR' dest_qpn "$((0x1234))" &&
		equal "$(sync_of slow 51)" 'SYNC, step READY (1), status 0'
	because 'TCP is a stream: one read may bring one byte, so read until all have come' 'TCP 是字节流：一次可能只读到一个字节，要读满为止'
}

test_short() {
	worth 7 'reads and writes of one byte, and signals between' '每次只读写一个字节，中间还有信号'
	see 5 'The idea'
	scene short || return
	well a
	because 'recv() and send() may do a part, or end with EINTR; neither is a failure' 'recv()、send() 可能只做一部分，也可能 EINTR：都不算失败'
}

test_bad_hello() {
	worth 7 'somebody else, or another version: refused, with its values' '对面是别的程序或别的版本：拒绝并说出它的值'
	see 6 'The code'
	scene bad_hello || return
	{ refused magic '0x48545450|HTTP' 'an error with the magic 0x48545450 ("HTTP")' && refused length 'length 47' 'an error with length 47'; } || {
		because 'without a look at the hello, HTTP is taken for a QPN and a GID' '不看 hello，HTTP 也会被当成 QPN 与 GID'
		return
	}
	refused version 'version 2' 'an error with version 2'
	named=''
	because 'the hello is checked as soon as it is there: a peer of another version may not send what comes next' \
		'hello 一到就检查：别的版本的对端，后面的数据可能根本不来'
}

test_bad_data() {
	worth 6 'data that cannot be is refused' '不可能的数据：拒绝'
	see 6 'The code'
	scene bad_data || return
	{ refused psn 'psn' 'an error about the PSN' && refused gid 'GID' 'an error about the GID'; } || {
		because 'the peer is not to be trusted: check_cm_con_data()' '对端不可信：check_cm_con_data()'
		return
	}
	equal "$(grep '^refused' "$E/called.out")" 'refused 1, remote as before'
	because 'outputs are set on success only: res->remote was set although the data was refused' '成功了才写输出：数据被拒，res->remote 却改了'
}

test_cut() {
	worth 6 'a peer that goes away in the middle' '对端中途消失'
	see 7 'The idea'
	scene cut || return
	refused hello 'closed|reset|ECONNRESET|hello' 'an error: the peer closed' && refused data 'closed|reset|ECONNRESET' 'an error: the peer closed'
	because 'a read of 0 bytes is the end: half a struct is no struct' '读到 0 个字节就是结束：半个结构体不能用'
}

test_silent() {
	worth 5 'a peer that says nothing, or says it too slowly: it ends by its deadline' '对端一声不吭，或说得太慢：到期限就结束'
	see 7 'The idea'
	scene silent || return
	{ refused a 'deadline|ETIMEDOUT' 'an error about the deadline' && in_time a 700 1400; } || {
		because 'each wait has a deadline' '每个等待都有期限'
		return
	}
	if (($(summed_up a cpu_ms) > 500)); then
		differs "$(summed_up a cpu_ms) $(say 'ms of CPU time in a wait of a second' 'ms CPU 时间，等了一秒')" "$(say 'a wait that sleeps' '睡着等')"
		because 'who asks a socket again and again takes the CPU from others: poll(2), as wait_fd() does' '一遍遍地问 socket，占着 CPU：用 poll(2) 睡，像 wait_fd() 那样'
		return
	fi
	refused slowly 'deadline|ETIMEDOUT' 'an error about the deadline' && in_time slowly 700 1400
	because 'the deadline is for the whole exchange: it does not begin anew with each byte or each read' '期限是给整个交换的：不因为来了一个字节、又读一次就重新算起'
}

test_stop() {
	worth 4 'Ctrl-C and SIGTERM end the wait' 'Ctrl-C 与 SIGTERM 结束等待'
	see 7 'The idea'
	scene stopped || return
	local sig
	for sig in INT TERM; do
		{ ended_with 1 $sig && like "$(err_of $sig)" 'EINTR|[Ss]top|[Ii]nterrupt|signal' "$(say "an error: SIG$sig" "错误：SIG$sig")" && equal "$(leaks $sig)" ''; } || break
	done
	[[ ! $failed || ! ${sig:-} || $(rc_of $sig) != @(124|137) ]] || named='' # it ran on: no wonder
	because 'a stop was requested, and it went on waiting: stop_requested(), -EINTR' '已经要求停止，它还在等：stop_requested()，-EINTR'
}

test_peer_failed() {
	worth 5 "the peer's failure is understood; a peer elsewhere, too" '看懂对端的失败；也看懂它走到了别处'
	see 8 'The code'
	scene peer_failed || return
	blame=(a)
	ended_with 1 a && like "$(err_of a)" 'EIO|Input/output' 'an error with the status of the peer, EIO (5)' && scene elsewhere &&
		blame=(a) && ended_with 1 a && like "$(err_of a)" 'DONE \(2\)|sync point' 'an error about sync point 2' && blame=()
	[[ $failed ]] || { called together '0 at once, heard step 2 status 0' && called theirs '-121 at once, heard step 2 status 0' &&
		called elsewhere '-71 at once, heard step 2 status 0'; }
	because 'the sync message says where the peer is, and how it fared: check_sync()' 'sync 消息说明对端到了哪里、情况如何：check_sync()'
}

test_own_failure() {
	worth 4 'the peer is told of a failure of ours' '自己失败了，也要告诉对端'
	see 8 'The code'
	scene own_failure || return
	ended_with 1 a && equal "$(sync_of a 51)" 'SYNC, step READY (1), status 22'
	[[ $failed ]] || { called mine '-5 at once, heard step 2 status 5' && called gone -5; } ||
		because 'with a failure of ours: it is told as a positive errno, nothing is waited for, and the status is returned; MSG_NOSIGNAL' \
			'自己失败时：告诉对端正的 errno，什么也不等，返回这个 status；MSG_NOSIGNAL'
	because 'else the peer waits for the whole of its deadline, and learns nothing' '否则对端白等到期限，还不知道为什么'
}
