# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 00: the learner writes the calls of first.c. See scene.sh and judge.sh.

stage_file=first.c
source=lessons/00-first-message/first.c
programs=(00-first-message)
stands_alone=1
strip="
open_device: list the devices, take the one called name (NULL: the first), open it, free the list
find_gid: look through the GID table of port 1 for an entry that is RoCE v2
connect_qp: bring qp from RESET to INIT, RTR and RTS, with the mask that each step needs; PSNs have 24 bits
transfer: post the receive (64 bytes) on b, then the SEND (17 bytes, signaled) on a
wait_for: poll until so many completions have come, all of them good, five seconds at most
"
patience='9 6 5' # it may poll for five seconds
unwritten='fail("NAME is not written yet", ENOSYS);'
what=('send the first message, with libibverbs alone' '只用 libibverbs，发出第一条消息')
todo=('Write what is marked TODO; main() stays as it is.' '写出标着 TODO 的部分；main() 不用动。')
libraries() { echo -libverbs; }

# ---- in the VM

# first NAME [DEVICE]
first() { learner "$1" "$B/00-first-message" "${@:2}"; }

scenes=(plain named refuse other_bytes gid_order gid_v1 fails lies)

scene_plain() { SPY=1 first a; }
scene_named() { first a rxe1; }
scene_other_bytes() { SPY=1 SPY_LIE=no_nul first a; }
scene_gid_order() { SPY=1 SPY_LIE=gid_order first a; }
scene_gid_v1() { SPY=1 SPY_LIE=gid_v1 first a; }

scene_refuse() {
	first name mlx5_99
	first shorter rxe
	first longer rxe00
	SPY=1 SPY_LIE=no_device first none
}

scene_fails() {
	local call
	for call in open_device:1 modify_qp:5 post_recv:1 post_send:1; do
		PLAIN=1 SPY=1 SPY_FAIL=ibv_$call:12 first "${call%:*}"
	done
}

scene_lies() {
	local lie
	for lie in status broken poison lost; do
		SPY=1 SPY_LIE=$lie first $lie
	done
}

# ---- on the host

# failed NAME ERROR: it ended by itself, not with 0, and has said something, in its own words;
# if it names an error, then this one
failed() {
	local said
	blame=("$1")
	said=$(err_of "$1")$(out_of "$1" | grep -v '^\[Step')
	[[ $(rc_of "$1") =~ ^([1-9]|[1-9][0-9])$ && $(rc_of "$1") != 99 ]] || { differs "$(ending "$1" || :)" "$(say 'an error, and an exit code that is not 0' '报错，退出码不是 0')" && return 1; }
	[[ $said && $said != *'(null)'* ]] || { differs "${said:-$(say 'it says nothing' '什么也没说')}" "$(say 'an error in words' '说出错误')" && return 1; }
	[[ ! $said =~ :\ (Success|Inappropriate ioctl|Invalid argument|Timer expired|Input/output error) || $said == *"$2"* ]] ||
		{ differs "$said" "$2" && return 1; }
	blame=()
}

# step NUMBER STATE: the record of that ibv_modify_qp(); 1 is A's
step() {
	recorded a ev=modify_qp "to=$2"
	records=("${records[@]:$1-1:1}")
}

test_arrives() {
	worth 12 "A's 17 bytes are in B's memory" 'A 的 17 个字节到了 B 的内存里'
	see 1 'What you see'
	scene plain || return
	blame=(a)
	ended_with 0 a && equal "$(sed -n 's/.*A.s SEND is in B.s RECV: //p' "$E/a.out")" '"Hello from QP A!"' &&
		equal "$(count a ev=completion status=SUCCESS) completions" '2 completions' &&
		equal "$(count a ev=completion status=SUCCESS op=RECV len=17) RECV of 17 bytes" '1 RECV of 17 bytes'
	if [[ $failed && ! $named && $(rc_of a) == 1 && $(count a ev=completion status=SUCCESS) -gt 1 ]]; then
		because "it said \"$(head -n 1 "$E/a.err")\", but no call has failed and no completion is bad: wc says something only if ibv_poll_cq() returned more than 0" \
			"它报了 \"$(head -n 1 "$E/a.err")\"，但没有调用失败，也没有坏的 completion：ibv_poll_cq() 返回值大于 0，wc 才有内容"
	fi
	[[ $failed ]] && recorded a ev=post_send && value len && [[ $value && $value != 17 ]] &&
		because "the SEND has $value bytes, and not 17: the NUL goes, too" "SEND 的是 $value 个字节，不是 17 个：NUL 也要发"
	[[ $failed ]] && recorded a ev=post_send && value flags && [[ ${#records[@]} != 0 && $value != *SIGNALED* ]] &&
		because 'without IBV_SEND_SIGNALED a SEND that goes well makes no completion' '没有 IBV_SEND_SIGNALED，成功的 SEND 不产生 completion'
	because 'one SEND uses up one RECV, and each makes a completion' '一个 SEND 用掉一个 RECV，各有一个 completion'
}

test_really() {
	worth 8 'what is shown is what came through the device' '显示的就是经设备收到的'
	see 1 'What you see'
	scene other_bytes || return
	blame=(a)
	ended_with 0 a && like "$(out_of a)" '"x{17}"' '17 times x, which is what was sent this time'
	because 'the text must come through the device, not by memcpy' '文字要经设备送到，不能自己 memcpy'
}

test_named() {
	worth 8 'the device that is named is opened' '点了名的设备，就打开它'
	see 2 'The code'
	scene named || return
	blame=(a)
	ended_with 0 a && like "$(out_of a)" 'open rxe1' 'open rxe1'
	because 'the name is compared with ibv_get_device_name() of each' '要与每个设备的 ibv_get_device_name() 比'
}

test_refuses() {
	worth 8 'no device of that name, or none at all: an error, no crash' '没有这个设备，或一个也没有：报错，不崩溃'
	see 2 'The code'
	scene refuse || return
	{ failed name 'No such' && failed none 'No such'; } || {
		because 'the list ends with NULL; an empty one begins with it' '列表以 NULL 结束；空列表开头就是 NULL'
		return
	}
	failed shorter 'No such' && failed longer 'No such'
	because 'a name is compared as a whole: rxe0 is not rxe, and not rxe00' '名字要整个比：rxe0 不是 rxe，也不是 rxe00'
}

test_list_freed() {
	worth 5 'the device is opened first, and the list freed then' '先打开设备，后释放列表'
	see 2 'The code'
	scene plain || return
	equal "$(grep -E '^(make device|free list)$' "$E/a.log" | xargs)" 'make device free list'
	if [[ $observed == 'make device' ]]; then
		because 'ibv_free_device_list() is missing: the list stays for ever' '没有 ibv_free_device_list()：列表一直留着'
	fi
	because 'until it is opened a device belongs to its list' '打开之前，设备属于列表'
}

test_gid() {
	worth 10 'the GID is chosen by its type: RoCE v2, wherever it is' 'GID 按类型选：RoCE v2，不管在哪个槽位'
	see 3 'The code'
	scene gid_order || return
	equal "$(grep 'modify_qp state=2' "$E/a.log" | grep -o 'sgid_index=[0-9]*' | head -n 1)" 'sgid_index=5' &&
		scene gid_v1 && failed a 'Cannot assign'
	because 'its place differs from machine to machine: here slots 0 and 1 are RoCE v1, 2 to 4 are empty (ENODATA), and 5 is RoCE v2' \
		'它在表里的位置因机器而异：这里槽 0、1 是 RoCE v1，2 到 4 是空的（ENODATA），5 才是 RoCE v2'
}

test_crosswise() {
	worth 10 'A is told of B, and B of A' 'A 填 B 的，B 填 A 的'
	see 4 'The code'
	scene plain || return
	blame=(a)
	local n own psn peers_psn
	for n in 1 2; do
		step "$n" RTR && value qpn && own=$value
		value dest_qpn
		[[ $value && $value != "$own" ]] || { differs "dest_qpn ${value:-$(say nothing 没有)}" "$(say "the other QP's number" '另一个 QP 的号码')" && break; }
		value rq_psn && psn=$value
		step $((3 - n)) RTS && value sq_psn && peers_psn=$value
		[[ $failed ]] || ((psn < 1 << 24 && peers_psn < 1 << 24)) || {
			differs "rq_psn $psn, sq_psn $peers_psn" '< 16777216'
			because 'a PSN has 24 bits: psn & 0xffffff' 'PSN 只有 24 位：psn & 0xffffff'
			break
		}
		equal "rq_psn $psn" "rq_psn $peers_psn" || break
	done
	blame=()
	because "rq_psn is the number of the peer's first packet, dest_qpn the peer's QP" 'rq_psn 是对端第一个包的号，dest_qpn 是对端的 QP'
}

test_steps() {
	worth 10 'both QPs go INIT, RTR, RTS, with an address that has a GID' '两个 QP 都走 INIT、RTR、RTS，地址带 GID'
	see 4 'The code'
	scene plain || return
	blame=(a)
	[[ ! $(count a ev=modify_qp to=RTR) -gt 0 ]] || sets a 'modify_qp to=RTR' is_global 1 || {
		because 'on RoCE the address of the peer is its GID, in a GRH' 'RoCE 上对端的地址就是 GRH 里的 GID'
		return
	}
	equal "$(count a ev=modify_qp err=0 to=INIT) $(count a ev=modify_qp err=0 to=RTR) $(count a ev=modify_qp err=0 to=RTS)" '2 2 2' || {
		because 'build/qp_explain RESET INIT, INIT RTR, RTR RTS: what each step needs in its mask' 'build/qp_explain RESET INIT、INIT RTR、RTR RTS：每一步的 mask 要什么'
		return
	}
	sets a 'modify_qp to=RTR' hop_limit '[2-9]|[1-9][0-9]+' '2 or more' ||
		because 'hop_limit 0 or 1 ends at the first router' 'hop_limit 是 0 或 1，到第一个路由器为止'
	sets a 'modify_qp to=RTS' retry_cnt '[1-6]' '1 to 6' ||
		because 'retry_cnt: 0 gives up at the first lost packet, 7 never does on rxe' 'retry_cnt：0 丢一个包就放弃，7 在 rxe 上永不放弃'
	sets a 'modify_qp to=RTS' timeout '[1-9]|1[0-9]' 'about 14 (67 ms)' ||
		because 'timeout 0 waits for ever for an ACK' 'timeout 0：永远等 ACK'
}

test_receive_first() {
	worth 7 'the receive is posted before the SEND' '先 post receive，后 SEND'
	see 5 'The code'
	scene plain || return
	blame=(a)
	{ equal "$(grep -oE '^post_(recv|send)' "$E/a.log" | xargs)" 'post_recv post_send' &&
		sets a post_recv len '(1[7-9]|[2-5][0-9]|6[0-4])' '17 to 64 bytes' && sets a post_send len 17 && sets a post_send flags '.*SIGNALED.*' SIGNALED; } || {
		because 'a SEND that finds no receive is turned away' 'SEND 来时没有 receive 就被挡回'
		return
	}
	recorded a ev=create_qp && value qpn
	sets a post_send qpn "$value" "$value (A)"
	because 'the SEND is posted on A, and the receive on B' 'SEND post 到 A，receive post 到 B'
}

test_bad_status() {
	worth 7 'a completion that is bad is not taken for success, and none not for one' 'completion 报失败：不能当成成功；没有来：不能当成来了'
	see 6 'The code'
	scene lies || return
	failed status error || {
		blame=()
		because 'a completion says that it is over, and its status whether it went well' 'completion 只说做完了；成没成看 status'
		return
	}
	{ failed broken error && in_time broken 0 3000; } || {
		because 'ibv_poll_cq() below 0: the CQ cannot be read' 'ibv_poll_cq() 小于 0：CQ 读不了了'
		return
	}
	blame=(poison)
	ended_with 0 poison || because 'wc says something only if ibv_poll_cq() returned more than 0: else a bad status is read that nobody reported' \
		'ibv_poll_cq() 返回值大于 0，wc 才有内容：否则读到的坏 status 谁也没有报过'
}

test_deadline() {
	worth 5 'a completion that never comes: it ends, after five seconds' 'completion 一直不来：五秒后结束'
	see 6 'The code'
	scene lies || return
	failed lost '' && in_time lost 3000 8000
	[[ $(rc_of poison) == 0 || $(count lost ev=post_send) == 0 ]] ||
		because 'no completion came, and it judged one: wc says something only if ibv_poll_cq() returned more than 0' \
			'没有 completion，它却判了一个：ibv_poll_cq() 返回值大于 0，wc 才有内容'
	because 'a wait ends by the clock: polled for ever, or so many times, is as long as the machine is slow' '等待的尽头由时钟定：一直轮询，或轮询若干次，长短全看机器快慢'
}

# gone_on NAME: it went on after the call that failed
gone_on() {
	sed -n '/^fail ibv_/,$p' "$E/$1.log" 2>/dev/null |
		awk 'NR == 1 { failed = substr($2, 5); next } NR == 2 && $1 == failed { next } /^(modify_qp|post_|wc |make )/ { print $1; exit }'
}

test_failures() {
	worth 5 'each call that fails is told, and ends it' '每个失败的调用都报出来，程序就此结束'
	see 7 'Break it'
	scene fails || return
	local call
	for call in open_device modify_qp post_recv post_send; do
		struck "$call" || continue
		{ failed "$call" 'Cannot allocate memory' && equal "$(say "after ibv_$call() failed: " "ibv_$call() 失败之后：")$(gone_on "$call")" "$(say "after ibv_$call() failed: " "ibv_$call() 失败之后：")"; } || break
	done
	because 'ibv_modify_qp and ibv_post_* return the error number; ibv_open_device sets errno' \
		'ibv_modify_qp、ibv_post_* 直接返回错误码；ibv_open_device 设 errno'
}
