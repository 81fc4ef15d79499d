# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 06: the learner writes calls.c. See scene.sh and judge.sh. net_shim.so
# (labs/tests/tcpx) stands between the learner and the plugin of the lab: it watches
# that the contract is kept, and misbehaves as real plugins do.

stage_file=calls.c
source=common/tcpx/calls.c
programs=(test_connection plugin_calls)
helpers=(libnccl-net-lab.so net_shim.so)
strip="
ask_once: one connect() or accept(), by the table of that version; from v7 on with a device handle, in comm->dev_storage
ask_until_there: ask again, with the same buffer, until there is a comm or an error; tcpx_pause() between two tries
tcpx_connect_v5: a comm of ours around the plugin's, which gets a copy of the handle; freed if it fails
tcpx_accept_v5: the same for a listener
close_comm: close it, free it, and forget it, even if closing fails; nothing to do for NULL
tcpx_reg_mr: regMr of that version; rc alone says whether it went well, mhandle may be NULL; before v8 at most INT_MAX bytes
comm_failed: report it, and remember that this comm is not to be used any more
tcpx_isend: no request if the ring is full, or if the plugin gave none; else append() it, with its size
tcpx_irecv: the same for receives
advance_to: test the oldest request until the wanted one is done, never one that is done already
tcpx_test: the state of this request, and the sizes; a send that is done is over here
tcpx_irecv_consumed: irecvConsumed() on devices that unpack, once, and the slot is free
"
what=('call an NCCL net plugin by its contract' '按契约调用一个 NCCL net 插件')
todo=('Write what is marked TODO; common/tcpx/calls.h has the contracts.' '写出标着 TODO 的部分；约定在 common/tcpx/calls.h。')

# ---- in the VM

scenes=(plain slow busy many eager sizes null_mr versions unpack failures closing)
port=12345

# talk NAME SERVER'S-SHIM CLIENT'S-SHIM [SERVER ARGS…] : [CLIENT ARGS…]
talk() {
	local name=$1 shims=("$2" "$3") args=()
	local plugin=(-P "$B/net_shim.so" -p "$port" -t 3)
	export PLAIN=1 NET_SHIM_REAL=$B/libnccl-net-lab.so
	shift 3
	while [[ $1 != : ]]; do
		args+=("$1")
		shift
	done
	NET_SHIM=${shims[0]} serving "$name.s" "$B/test_connection" "${plugin[@]}" "${args[@]}" server
	NET_SHIM=${shims[1]} learner "$name.c" "$B/test_connection" "${plugin[@]}" "${@:2}" client 127.0.0.1
	reap "$name.s"
	overran "$name.s"
}

scene_plain() { talk a '' '' -j : -j; }
scene_slow() { talk a slow slow -q -c 3 : -q; }
scene_busy() { talk a busy,sleepy busy,lazy -q : -q -n 20; }
scene_many() { talk a '' sleepy -q -c 2 : -q -n 60 -s 5000; }
# A user that asks for all at once, and for the last one first.
scene_eager() {
	export PLAIN=1 NET_SHIM_REAL=$B/libnccl-net-lab.so
	NET_SHIM=fail=irecv:17 learner a "$B/plugin_calls" "$B/net_shim.so"
}

scene_null_mr() { talk a nullmr nullmr -q : -q -n 3; }
scene_unpack() { talk a unpack,devhandle unpack,devhandle -q : -q -n 20; }

scene_sizes() {
	talk none nosize nosize -q : -q -n 3
	talk zero '' zerosize -q : -q -n 3
}

scene_versions() {
	local v
	for v in 5 6 7; do
		talk v$v '' '' -q -a v$v : -q -a v$v -n 3
	done
}

scene_failures() {
	local call
	for call in isend test regMr connect; do
		talk "$call" '' "fail=$call" -q : -q
	done
	talk irecv fail=irecv '' -q : -q
}

scene_closing() {
	talk send '' fail=closeSend -q : -q
	talk recv fail=closeRecv '' -q : -q
}

# ---- on the host

# went NAME: both did it, and had nothing to say
went() {
	blame=("$1.s" "$1.c")
	ended_with 0 "$1.s" "$1.c" && equal "$(err_of "$1.s")$(err_of "$1.c")" '' || return 1
	blame=()
}

test_text() {
	worth 10 'a text reaches the other side' '一段文字到了对面'
	see 1 'The code'
	scene plain || return
	went a && equal "$(out_of a.s | jq -r '"\(.role) \(.size) \(.iters)"')" 'server 24 1'
	because 'connect and accept give a comm, isend and irecv a request, test says when it is done' \
		'connect、accept 给 comm；isend、irecv 给 request；test 说什么时候完成'
}

test_not_yet() {
	worth 12 'rc 0 and no comm: not ready, call again, with the same buffer' 'rc 为 0 而没有 comm：还没好，用同一个 buffer 再来'
	see 2 'The idea'
	scene slow || return
	went a
	because 'NULL is no failure; the plugin keeps in the buffer how far it has come' 'NULL 不是失败；连到哪一步了，插件记在 buffer 里'
}

test_busy() {
	worth 10 'rc 0 and no request: no room now, no error' 'rc 为 0 而没有 request：暂时没有空位，不是错误'
	see 3 'The idea'
	scene busy || return
	went a
	because 'the caller comes again with the same message' '调用者会带着同一条消息再来'
}

test_oldest() {
	worth 12 'many under way: only the oldest is tested, and none after it is done' '许多在途：只 test 最老的，完成后不再 test'
	see 4 'The code'
	scene many && went a && scene eager || return
	blame=(a)
	like "$(out_of a)" 'sends [0-9]+ good 12' 'sends … good 12' && like "$(out_of a)" 'good 12 text ssss' 'receives … good 12' && blame=()
	because 'plugins complete in order; a request that is done belongs to the plugin again' \
		'插件按次序完成；完成了的 request 又归插件所有'
}

test_limits() {
	worth 6 'at most 12 sends and 16 receives are under way; a comm that failed is left alone' '在途至多 12 个 send、16 个 receive；失败了的 comm 不再用'
	see 4 'The code'
	scene eager || return
	blame=(a)
	like "$(out_of a)" 'sends 12 ' 'sends 12' && like "$(out_of a)" 'receives 16 ' 'receives 16' &&
		like "$(out_of a)" 'failed -5 again -5' 'failed -5 again -5' && blame=()
	because 'beyond that real plugins overwrite a slot' '再多，真实的插件会覆盖别的 slot'
}

test_sizes() {
	worth 8 'a plugin that says no size, or 0 for a send' '不写 size 的插件，发送方的 size 是 0 的插件'
	see 5 'The code'
	scene sizes || return
	went none && went zero
	because 'what test() left alone is unknown (-1), not 0; how much was sent you know yourself' \
		'test() 没写就是不知道（-1），不是 0；发了多少自己知道'
}

test_reg_mr() {
	worth 7 'rc alone says whether memory is registered' '注册成没成，只看 rc'
	see 6 'The code'
	scene null_mr || return
	went a
	because 'some plugins need no mhandle: NULL is good' '有的插件不需要 mhandle：NULL 也是成功'
}

test_versions() {
	worth 8 'v5, v6 and v7 of the interface' '接口的 v5、v6、v7'
	see 7 'The idea'
	scene versions || return
	went v5 && went v6 && went v7
	because 'the tables differ: v5 registers int sizes, v7 has device handles, aligned and zeroed' \
		'函数表不同：v5 的 size 是 int；v7 起有 device handle，要对齐、清零'
}

test_consumed() {
	worth 8 'irecvConsumed once for each receive, on devices that unpack' '会拆包的设备：每个 receive 恰好一次 irecvConsumed'
	see 8 'The code'
	scene unpack || return
	went a && scene plain && went a
	because 'on a host device it is an error, on the other its memory is never given back' '主机设备上调用是错误；拆包设备上不调用，内存就不还'
}

test_failures() {
	worth 9 'a call that fails is told once, and its comm left alone' '失败的调用报一次，那个 comm 就不再用'
	see 9 'The code'
	scene failures || return
	local call side
	for call in isend test regMr connect irecv; do
		side=c
		[[ $call != irecv ]] || side=s
		blame=("$call.$side")
		# shellcheck disable=SC2015 # as it stands
		ended_with 1 "$call.$side" && like "$(err_of "$call.$side")" "$call\\(.* of plugin .*returned" "an error of $call() that says what it returned" &&
			equal "$(grep -c '^error: ' "$E/$call.$side.err") error" '1 error' || break
		blame=()
	done
	because 'a plugin returns 1 to 7, not -errno; after a failure only deregMr and close are allowed' \
		'插件返回 1 到 7，不是 -errno；失败之后只许 deregMr 与 close'
}

test_closes() {
	worth 5 'what was opened is closed, and its memory freed, even if that fails' '打开的都关上、内存都释放，关失败了也一样'
	see 9 'The code'
	scene plain || return
	because 'a comm that is left holds its socket and its memory' '没关的 comm 占着 socket 与内存'
	went a && scene closing || return
	blame=(send.c)
	ended_with 1 send.c && like "$(err_of send.c)" 'closeSend' 'an error of closeSend()' && blame=(recv.s) &&
		ended_with 1 recv.s && like "$(err_of recv.s)" 'closeRecv' 'an error of closeRecv()' && blame=()
}
