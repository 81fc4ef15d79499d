# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 09: six captures to diagnose, and a program between two hosts to mend, both in
# hosts.c. The starter is hosts.c spoiled by broken.sed. See scene.sh and judge.sh.

stage_file=hosts.c
source=labs/exercises/09-two-hosts/hosts.c
programs=(hosts)
stands_alone=1
strip=''
patience='9 8 7 6' # seconds
what=('name the fault in six captures; mend a program' '说出六份抓包里的毛病；修好一个程序')
todo=('Part 1: fill in answers[] from labs/wire labs/exercises/09-two-hosts/cases/N.
 * Part 2: the program ignores the path MTU and the retry limits.'
	'第一部分：看 labs/wire labs/exercises/09-two-hosts/cases/N，填写 answers[]。
 * 第二部分：程序不看路径 MTU，也不看重试上限。')
libraries() { echo "$root/build/librdma_common.a -libverbs -ljansson"; }

# ---- in the VM

scenes=(answers plain peers_mtu own_mtu outage dark acks late never)

scene_answers() { PLAIN=1 learner a "$B/hosts" answers; }

# two [LATE_MS]: the server on rxe0, the client on rxe1
two() {
	serving a.s "$B/hosts" server rxe0 "$@"
	learner a.c "$B/hosts" client 127.0.0.1 rxe1
	reap a.s
	overran a.s
}
scene_plain() { two; }

# mtu_of_peer N: a peer of ours comes, says that its port takes that MTU, and sends nothing
mtu_of_peer() {
	serving a.s "$B/hosts" server rxe0
	alone peer timeout 4 "$B/peer" connect 127.0.0.1 "$port" hello "con,mtu=$1,qpn=0x4242,psn=0xabcdef" sync
	reap a.s
	overran a.s
}
scene_peers_mtu() { mtu_of_peer 1; }

scene_own_mtu() {
	local mtu
	mtu=$(</sys/class/net/veth0/mtu)
	ip link set veth0 mtu 1500
	mtu_of_peer 5
	ip link set veth0 mtu "$mtu"
}

# wall NETDEV: what comes in there for UDP 4791 is dropped; until nft flush ruleset
wall() {
	nft "add table inet wall
		add chain inet wall in { type filter hook input priority 0; }
		add rule inet wall in iifname $1 udp dport 4791 counter drop"
}
scene_dark() { wall veth0 && two; nft flush ruleset; }
scene_acks() { wall veth1 && two; nft flush ruleset; }

# From the first packet on the line is cut for 300 ms.
scene_outage() {
	local cut
	wall veth0
	{
		until nft list ruleset | grep -q 'packets [1-9]'; do sleep 0.02; done
		sleep 0.3
		nft flush ruleset
	} &
	cut=$!
	two
	kill $cut 2>/dev/null
	wait $cut
	nft flush ruleset
}
scene_late() { two 300; }
scene_never() { two -1; }

# ---- on the host

# answered N HOST CAUSE PACKETS: what answers[] says of case N
answered() {
	local host cause_of packet
	ended_with 0 a || return
	read -r host cause_of packet < <(sed -n "s/^$1 //p" "$E/a.out")
	if [[ $cause_of != "$3" ]]; then
		differs "${cause_of:-?}" "$(say 'another cause' '另一个原因')"
	elif [[ $host != "$2" ]]; then
		differs "$cause_of, ${host:-?}" "$(say 'the other host' '另一端')"
		cause=''
		because 'the cause is right; the host is the one where it must be mended, or that sent what was lost' \
			'原因对了；host 是该动手修的那一端，路上丢的算发出它的那一端'
	elif [[ ! $packet =~ ^($4)$ ]]; then
		differs "$cause_of, $host, #$packet" "$(say 'another packet' '另一个 packet')"
		cause=''
		because 'host and cause are right; the packet is the first that shows it, by the column # of labs/wire' \
			'host 与原因都对；packet 是第一个显出毛病的，按 labs/wire 的 # 一列'
	fi
}

test_case_1() {
	worth 8 'case 1: status 12, and A has received nothing' '病例 1：status 12，A 什么也没收到'
	see 1 'The idea'
	because 'all packets reach A, its program waits to the end of its deadline, and not one is answered' \
		'packet 都到了 A，A 的程序一直等到期限，却一个回答也没有'
	scene answers && answered 1 A firewall 1
}

test_case_2() {
	worth 8 'case 2: status 12, and A has received all' '病例 2：status 12，A 却全都收到了'
	see 2 'The idea'
	because 'A answers each packet, again and again; B goes on as if no answer came' 'A 每个都回答了，一遍又一遍；B 却像没有收到回答'
	scene answers && answered 2 B firewall '2|7'
}

test_case_3() {
	worth 8 'case 3: all arrive, one late' '病例 3：都到了，有一条晚到'
	see 3 'The idea'
	because 'follow the PSNs in their order, and see what A answers where one is missing' '顺着 PSN 看：缺一个的地方，A 回答什么'
	scene answers && answered 3 B loss '6|10'
}

test_case_4() {
	worth 8 'case 4: it worked for a second' '病例 4：好了一秒钟'
	see 4 'The idea'
	because "the packets still reach A's card; how does A's recording end? labs/qptrace dump" \
		'packet 仍然到达 A 的网卡；A 的记录是怎么结束的？labs/qptrace dump'
	scene answers && answered 4 A gone 21
}

test_case_5() {
	worth 8 'case 5: B waits, and no completion comes' '病例 5：B 在等，completion 不来'
	see 5 'The idea'
	because 'a request was posted, and no packet of it is in the capture, not even again: it never left' \
		'请求 post 了，抓包里却没有它的 packet，重传也没有：根本没有发出去'
	scene answers && answered 5 B mtu '31|32'
}

test_case_6() {
	worth 8 'case 6: nothing is lost, and most is sent again' '病例 6：什么也没丢，大半却重发了'
	see 6 'The idea'
	because 'compare how long B waits before it sends again with how long an ACK takes' '比一比：B 等多久就重发，ACK 要多久才到'
	scene answers && answered 6 B timeout 2
}

# arrived N ACKNOWLEDGED: what both say at the end
arrived() {
	blame_all
	like "$(out_of a.c)" "^acknowledged $2, arrived $1\$" "acknowledged ${2//[^0-9]/}, arrived $1" || return
	blame=()
	equal "$(out_of a.s)" "received $1 of 12"
}

test_path_mtu() {
	worth 12 'the path MTU is the lower of both ports'"'"' active_mtu' '路径 MTU 取两端 active_mtu 中较小的'
	see 7 'The code'
	because 'a packet that is larger than a port takes is not cut again: it is dropped' '大过 port 的 packet 不会再分片，只会被丢弃'
	scene plain && sets a.s 'modify_qp to=RTR' path_mtu 4096 && sets a.c 'modify_qp to=RTR' path_mtu 4096 &&
		ended_with 0 a.c a.s && arrived 12 12 && equal "$(leaks a.c)$(leaks a.s)" '' &&
		scene peers_mtu && sets a.s 'modify_qp to=RTR' path_mtu 256 &&
		scene own_mtu && sets a.s 'modify_qp to=RTR' path_mtu 1024
}

test_outage() {
	worth 10 'the line is cut for 300 ms: all arrives' '线断 300 ms：消息都到'
	see 8 'The code'
	scene outage || return
	because '(retry_cnt + 1) × 4.096 us × 2^timeout must be longer than the outage' '(retry_cnt + 1) × 4.096 us × 2^timeout 要比断线的时间长'
	blame_all
	ended_with 0 a.c a.s && arrived 12 12
}

# given_up STATUS: within 2 seconds of the first SEND, and the program says so
given_up() {
	local first
	blame_all
	ended_with 1 a.c || return
	equal "$(count a.c ev=completion "status=$1") $1" "1 $1" || return
	recorded a.c ev=post_send && value t && first=$value
	recorded a.c ev=completion "status=$1" && value t
	((value - first < 2000000000)) || differs "$(((value - first) / 1000000)) ms" "$(say 'at most 2000 ms' '至多 2000 ms')"
	blame=()
}

test_dark() {
	worth 8 'no packet arrives: status 12 within 2 seconds' '一个 packet 也不到：2 秒之内 status 12'
	see 8 'The code'
	scene dark || return
	because 'timeout 0 waits for ever, and retry_cnt 7 never gives up on rxe' 'timeout 0 永远等下去；retry_cnt 7 在 rxe 上从不放弃'
	given_up RETRY_EXC_ERR && arrived 0 0
}

test_acks() {
	worth 7 'only the ACKs are lost: it asks the peer what has arrived' '只有 ACK 丢了：问对端到了多少'
	see 9 'Break it'
	scene acks || return
	because 'status 12 does not mean that nothing arrived: only the peer knows, and TCP still works' \
		'status 12 不等于没有到：只有对端知道，而 TCP 还通'
	given_up RETRY_EXC_ERR && arrived 12 0
}

test_rnr() {
	worth 10 'receives that come 300 ms late, or never' 'receive 晚来 300 ms，或者一直不来'
	see 10 'The code'
	scene late || return
	because 'the receiver says how long to wait (min_rnr_timer), the sender how often (rnr_retry; 7 is for ever)' \
		'等多久由接收端定（min_rnr_timer），等几次由发送端定（rnr_retry，7 是永远）'
	blame_all
	ended_with 0 a.c a.s && arrived 12 12 || return
	scene never || return
	given_up RNR_RETRY_EXC_ERR && arrived 0 0
}
