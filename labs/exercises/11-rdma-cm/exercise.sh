# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 11: the learner writes the client's side of cm_connect.c. Beside our server there
# is one that knows librdmacm only (cm_stranger.c). See scene.sh and judge.sh.

stage_file=cm_connect.c
programs=(rdma_client)
helpers=(rdma_server cm_stranger)
strip="
resolve: an id, its address and its route, each awaited; cm->peer is for messages
resolve_server: the channel, then each address of the name until one is resolved; then learn_device_of_id
create_objects_on_id: another device than the one asked for is device_refused(); stage 2 but the QP; an RC QP on the id; res->posted, res->qp, res->max_inline
learn_peer: fill what stage 4 would have told from query_qp: both PSNs, the peer's QPN, GID and MTU
parameters: the private data; READs, both ways; retries; RNR retries
request_connection: connect with my private data, await ESTABLISHED, take the peer's, then learn_peer
disconnect_cm: who is first disconnects and waits; the other waits and disconnects
close_connection: undo all that is there, and leave both structs zero
"
patience='8 6 4'
what=("the client's side of librdmacm" 'librdmacm 的 client 一侧')

# ---- in the VM

scenes=(walk band echo slow long foreign reject silent die late names elsewhere)

listening() { rdma resource show cm_id | grep -q "LISTEN .*:::$1 "; }

# meets NAME HOW CLIENT'S ARG…: the stranger does HOW
meets() {
	local how
	read -ra how <<<"$2"
	: >"$T/peer.rc"
	start "peer.$1" "$B/cm_stranger" "$port" "${how[@]}"
	await listening_or_ended "$port" "$pid"
	learner "$1" "$B/rdma_client" --cm "${@:3}"
	dismiss "peer.$1"
}

# our_server NAME [SERVER'S ARG…] : CLIENT'S ARG…: our own server
our_server() {
	local name=$1 args=()
	shift
	while [[ $1 != : ]]; do args+=("$1") && shift; done
	start "peer.$name" "$B/rdma_server" --cm -q -t 4 "${args[@]}"
	await listening_or_ended "$port" "$pid"
	learner "$name" "$B/rdma_client" --cm -t 3 "${@:2}"
	dismiss "peer.$name"
}

scene_walk() { our_server a : -j 10.99.0.1; }
scene_band() { our_server a -b -n 20 : -j -b -n 20 10.99.0.1; }
scene_echo() { meets a 'echo 3' -t 3 -j -e -n 3 10.99.0.1; }
scene_slow() { meets a 'slow 3' -t 3 -q -e -n 3 10.99.0.1; }
scene_long() { meets a 'long 3' -t 3 -q -e -n 3 10.99.0.1; }
scene_foreign() { meets a foreign -t 3 -q 10.99.0.1; }
scene_silent() { meets a silent -t 1 -q 10.99.0.1; }
scene_die() { meets a die -t 1 -q -e -n 3 10.99.0.1; }

scene_reject() {
	meets plain reject -t 3 -q 10.99.0.1
	meets reason 'reject 53594e430000000100000010' -t 3 -q 10.99.0.1
}

# The server starts when it has been refused once.
scene_late() {
	start a confined a "$B/rdma_client" --cm -q -t 4 10.99.0.1
	nap 0.6
	start peer.a "$B/rdma_server" --cm -q -t 4
	reap a
	dismiss peer.a
}

# The first address of this name is that of no RDMA device.
scene_names() {
	printf '%s two-addresses\n' 127.0.0.1 10.99.0.1 >>/etc/hosts
	our_server a : -q two-addresses
	sed -i /two-addresses/d /etc/hosts
	learner none "$B/rdma_client" --cm -q -t 1 127.0.0.1
}

scene_elsewhere() {
	learner device "$B/rdma_client" --cm -q -t 1 10.99.0.1 rxe0
	learner route "$B/rdma_client" --cm -q -t 1 172.16.9.9
}

# ---- on the host

# steps NAME: its calls of librdmacm and the events that it took, in their order
steps() {
	local record word text=''
	for record in "${all_records[@]}"; do
		case $record$'\t' in
		"$1"$'\tev=rdma_event\t'*) word=${record#*$'\top='} ;;
		"$1"$'\tev=rdma_resolve_'* | "$1"$'\tev=rdma_connect\t'* | "$1"$'\tev=rdma_disconnect\t'*) word=${record#*ev=rdma_} ;;
		*) continue ;;
		esac
		text+=" ${word%%$'\t'*}"
	done
	echo "${text# }"
}

# request NAME KEY: what the stranger saw in the REQ
request() { sed -n "s/^$2 //p" "$E/peer.$1.out" 2>/dev/null; }

# left_by NAME: what it has kept; but librdmacm opens the device once, and for good
left_by() {
	local text
	text=$(leaks "$1")
	xargs <<<"${text#device 1}"
}

# ids_left NAME: those that it used and did not destroy
ids_left() {
	local record ids=() text=''
	recorded "$1" ev=rdma_resolve_addr
	ids=("${records[@]}")
	for record in "${ids[@]}"; do
		records=("$record") && value cm_id
		recorded "$1" ev=rdma_destroy_id "cm_id=$value"
		((${#records[@]})) || text+=" cm_id $value is not destroyed"
	done
	echo "${text# }"
}

# failed_once NAME REGEX WORDS: it said so once, ended, and kept nothing
failed_once() {
	blame=("$1")
	ended_with 1 "$1" && like "$(err_of "$1")" "$2" "$3" || return 1
	blame=()
	equal "$(grep -c '^error: ' "$E/$1.err") times error:" '1 times error:' && equal "$(left_by "$1")" ''
}

# all_well NAME: it did its work
all_well() { blame=("$1") && ended_with 0 "$1" && blame=(); }

test_resolve() {
	worth 12 'the address, then its route; each has its event' '先地址，再路由；各有一个 event'
	see 1 'The idea'
	scene walk || return
	blame=(a)
	like "$(steps a)" '^resolve_addr ADDR_RESOLVED resolve_route ROUTE_RESOLVED( |$)' 'resolve_addr ADDR_RESOLVED resolve_route ROUTE_RESOLVED …' &&
		sets a rdma_resolve_addr address 10.99.0.1 && sets a rdma_resolve_addr port 18515
	because 'a call only begins a step: await_cm_event() before the next' '调用只是开始：先 await_cm_event()，再走下一步'
}

test_names() {
	worth 8 'a name with several addresses; one that leads to no RDMA device' '一个名字有几个地址；有的不通往 RDMA 设备'
	see 2 'The idea'
	scene names || return
	all_well a && equal "$(err_of a)" '' && equal "$(ids_left a)" '' &&
		failed_once none 'rdma_resolve_route.*ENODEV' 'an error: rdma_resolve_route, ENODEV'
	because 'the next address, with a new id; cm->more says whether there is one, and only the last is reported' \
		'换下一个地址，用新的 id；cm->more 表示后面还有没有地址，只报告最后一个'
}

test_qp() {
	worth 8 'the QP is made on the id, and is in INIT' 'QP 建在 id 上，已经到 INIT'
	see 3 'The code'
	scene walk || return
	sets a create_qp type RC && sets a create_qp recv_wr_asked 1 && sets a 'modify_qp to=INIT' err 0 &&
		equal "$(count a ev=post_recv) receives" '1 receives'
	because 'rdma_create_qp(): send_slots, recv_slots, res->cq; res->posted remembers the requests' 'rdma_create_qp()：send_slots、recv_slots、res->cq；res->posted 记请求'
}

test_elsewhere() {
	worth 4 'another device than the one asked for; no route' '不是用户点名的设备；没有路由'
	see 4 'The idea'
	scene elsewhere || return
	like "$(err_of device)" 'through rxe1, not through rxe0' 'an error: reached through rxe1, not through rxe0' && failed_once device . . &&
		failed_once route 'rdma_resolve_addr.*ENETUNREACH' 'an error: rdma_resolve_addr, ENETUNREACH'
	because 'device_refused() and cm_failed() report, and return -errno' 'device_refused()、cm_failed() 会报告，并返回 -errno'
}

test_request() {
	worth 10 'the REQ has the private data, retries and READs' 'REQ 里有 private data、重试次数、READ 的个数'
	see 5 'The code'
	scene echo || return
	local addr='' rkey='' data
	blame=(a)
	data=$(request a private)
	recorded a ev=reg_mr && value addr && printf -v addr '%016x' "$((${value:-0}))" && value rkey && printf -v rkey '%08x' "$((${value:-0}))"
	equal "${data:0:48}" "52434d450001002b$addr$rkey$(printf '%08x' 4096)" &&
		like "$(request a retries)" '^[1-6] [1-7]$' 'retry_count 1 to 6, rnr_retry_count 1 to 7' &&
		like "$(request a reads)" '^[1-9][0-9]* [1-9]' 'responder_resources and initiator_depth, not 0'
	because 'private_data_of(cm_con_data_of(res), extra), all of it; with 0 a READ waits for ever, and a missing receive is fatal' \
		'private_data_of(cm_con_data_of(res), extra) 的全部；是 0，READ 就永远等，缺一个 receive 就断'
}

test_established() {
	worth 6 'nothing is sent before ESTABLISHED' 'ESTABLISHED 之前什么也不发'
	see 6 'The idea'
	scene slow || return
	all_well a && like "$(steps a)" 'connect ESTABLISHED' 'connect ESTABLISHED'
	because 'rdma_connect returns when the REQ is on its way' 'rdma_connect 返回时，REQ 才刚发出'
}

test_remote() {
	worth 8 'QPN, PSNs and what the peer said are in res' 'QPN、PSN 与对端的 private data，都在 res 里'
	see 7 'The code'
	scene echo || return
	local psn='' mine=''
	blame=(a)
	ended_with 0 a || { because 'take_private_data(): what the peer said came with ESTABLISHED' 'take_private_data()：对端的 private data 随 ESTABLISHED 到来' && return; }
	recorded a ev=modify_qp to=RTR && value rq_psn && psn=$value
	recorded a ev=modify_qp to=RTS && value sq_psn && mine=$value
	equal "$(jq -r '"qpn \(.remote.qpn) psn \(.remote.psn) gid \(.remote.gid), my psn \(.local.psn)"' "$E/a.out" 2>/dev/null)" \
		"qpn $(request a qpn) psn $psn gid ::ffff:10.99.0.1, my psn $mine"
	because 'ask the QP: dest_qp_num, rq_psn, sq_psn, the dgid, path_mtu' '去问 QP：dest_qp_num、rq_psn、sq_psn、dgid、path_mtu'
}

test_refused() {
	worth 7 'a refusal is told once, with its reason' '被拒绝：报一次，说出原因'
	see 8 'What you see'
	scene reject || return
	failed_once plain 'REJECTED .status 28' 'an error: REJECTED (status 28)' && failed_once reason 'EBUSY' "an error: the peer's EBUSY"
	because 'await_cm_event() has reported it: pass its status up' 'await_cm_event() 已经报告：原样返回它的返回值'
}

test_late() {
	worth 4 'a server that starts later' 'server 晚一点才启动'
	see 8 'What you see'
	scene late || return
	all_well a
	because '-EAGAIN goes up as it is; then the caller closes all and begins again' '-EAGAIN 原样返回；调用者会全部拆掉，从头再来'
}

test_silent() {
	worth 6 'a server that never answers: it ends by its deadline' 'server 一直不答：到期限就结束'
	see 9 'What you see'
	scene silent || return
	failed_once a 'deadline|ETIMEDOUT' 'an error about the deadline' && in_time a 600 1600
	because 'its kernel tells this one to wait, and no event comes: only the deadline ends that' '对端的内核让这边继续等，没有 event：只有期限能结束等待'
}

test_foreign() {
	worth 5 'private data that is longer, or not ours' 'private data 更长，或者不是我们的'
	see 7 'What you see'
	scene foreign || return
	failed_once a 'magic 0x00000000' 'an error with the magic 0x00000000' && scene long && all_well a
	because 'the field is always 196 bytes long: take_private_data() looks at what is in it' '那个字段总是 196 字节：take_private_data() 看里面是什么'
}

test_dies() {
	worth 3 'a server that is killed when connected' '刚连上，server 就被杀'
	see 11 'What you see'
	scene die || return
	blame=(a)
	like "$(steps a)" ESTABLISHED ESTABLISHED && ended_with 1 a && equal "$(left_by a)" ''
	because 'whatever has happened, close_connection() undoes what is there' '无论发生了什么，close_connection() 都拆掉现有的'
}

test_down() {
	worth 8 'one side disconnects first, the other answers' '一边先断，另一边回应'
	see 10 'The code'
	scene walk || return
	blame=(a)
	like "$(steps a)" 'ESTABLISHED DISCONNECTED disconnect' 'ESTABLISHED DISCONNECTED disconnect' && ended_with 0 a && equal "$(rc_of peer.a)" 0 &&
		equal "$(count a ev=modify_qp to=ERR) times to ERR" '1 times to ERR' &&
		scene band && like "$(steps a)" 'ESTABLISHED disconnect DISCONNECTED' 'ESTABLISHED disconnect DISCONNECTED' && ended_with 0 a
	because 'after DISCONNECTED the QP is still in RTS, and the peer waits for its DREP: rdma_disconnect()' \
		'DISCONNECTED 之后 QP 还在 RTS，对端还在等 DREP：rdma_disconnect()'
}

test_close() {
	worth 6 'all is given back: QP, objects, id, channel' '全部还回去：QP、对象、id、channel'
	see 11 'The code'
	scene walk || return
	blame=(a)
	ended_with 0 a && blame=() && equal "$(left_by a)" '' && equal "$(ids_left a)" ''
	because 'rdma_destroy_qp, destroy_objects, rdma_destroy_id, rdma_destroy_event_channel: the kernel keeps an id until its process ends' \
		'rdma_destroy_qp、destroy_objects、rdma_destroy_id、rdma_destroy_event_channel：内核会一直留着 id，直到进程结束'
}
