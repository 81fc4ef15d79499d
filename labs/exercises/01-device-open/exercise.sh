# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 01: the learner writes device.c. See scene.sh and judge.sh.

stage_file=device.c
strip="
gid_rank: how good an entry is: RoCE v2 with IPv4, then with a global IPv6 address, then link-local; others are of no use
choose_gid: the best entry of the GID table, or the one that is wanted; an empty slot is ENODATA
query_device: fill device_attr, and port_attr of the first port that is ACTIVE; ib_port 0 if there is none
open_one: open it, query it, choose the GID; close it again if any of that fails
has_active_port: open it, look, close it; nothing is reported
pick_device: the one called name, or else the first with an active port, or else the first
open_device: list, pick, open, free the list
close_device: close what is open, and forget it
"
what=('open a device, choose a port and a GID' '打开设备，选定 port 与 GID')

# ---- in the VM

scenes=(choose refuse moved gid_v1 fails pair no_address global port_down called)

scene_choose() {
	learner auto "$B/01-device-open"
	learner named "$B/01-device-open" rxe1
	learner slot "$B/01-device-open" rxe0 0
}

scene_refuse() {
	SPY=1 learner name "$B/rdma_server" -t 1 mlx5_99
	learner shorter "$B/rdma_server" -t 1 rxe
	learner longer "$B/rdma_server" -t 1 rxe00
	SPY=1 learner slot "$B/rdma_server" -t 1 rxe0 18515 7
	SPY=1 learner lesson "$B/01-device-open" rxe0 7
	SPY=1 SPY_LIE=no_device learner none "$B/rdma_server" -t 1
}

scene_moved() { SPY=1 SPY_LIE=gid_order learner a "$B/01-device-open" rxe0; }
scene_gid_v1() { SPY=1 SPY_LIE=gid_v1 learner a "$B/rdma_server" -t 1 rxe0; }

scene_fails() {
	SPY=1 SPY_FAIL=ibv_get_device_list:1:38 learner list "$B/rdma_server" -t 1 rxe0
	SPY=1 SPY_FAIL=ibv_open_device:1:13 learner open "$B/rdma_server" -t 1 rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_query_device:1:6 learner query "$B/rdma_server" -t 1 rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_query_port:1:6 learner port "$B/rdma_server" -t 1 rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_query_gid_ex:1:6 learner gid "$B/rdma_server" -t 1 rxe0
}

scene_pair() {
	SPY=1
	pair a -q : -q 127.0.0.1 rxe1
	unset SPY
}

# Without its IPv4 address a port has a hole in its table, and fe80:: alone.
scene_no_address() {
	ip address del 10.99.0.1/24 dev veth0
	learner a "$B/01-device-open" rxe0
	ip address add 10.99.0.1/24 dev veth0
}

# IPv4, then a global IPv6 address, then link-local. The first is in slot 1, the last in 0.
scene_global() {
	ip -6 address add fd00:99::1/64 dev veth0 nodad
	learner all "$B/01-device-open" rxe0
	ip address del 10.99.0.1/24 dev veth0
	learner six "$B/01-device-open" rxe0
	ip address add 10.99.0.1/24 dev veth0
	ip -6 address del fd00:99::1/64 dev veth0
}

scene_port_down() {
	ip link set veth0 down
	learner a "$B/rdma_server" -t 1 rxe0
	ip link set veth0 up
}

# Called by hand, with a device that has two ports, or is broken.
scene_called() {
	local world
	for world in two second init; do
		learner $world "$B/contract" device rxe0 $world
	done
	learner noname "$B/contract" device mlx5_99
	learner any "$B/contract" device '' init
	learner other "$B/contract" device '' rxe0
	SPY=1 SPY_FAIL=ibv_open_device:1:13 learner quiet "$B/contract" device ''
	SPY=1 learner again "$B/contract" device rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_query_device:1:6 learner device "$B/contract" device rxe0
	PLAIN=1 SPY=1 SPY_FAIL=ibv_query_gid_ex:1:5 learner gid "$B/contract" device rxe0
}

# ---- on the host

# opened NAME: what open_device() returned to the contract, and its port
opened() { sed -n '/^open -/{s/ port.*//; p}; /^open /p' "$E/$1.out" | head -n 1; }

chosen() { sed -n 's/^ *chosen: //p' "$E/$1.out"; }

# refused NAME REGEX WORDS: it failed, said so once, and closed what it had opened
refused() {
	blame=("$1")
	ended_with 1 "$1" && like "$(err_of "$1")" "$2" "$3" &&
		equal "$(grep -c '^error: ' "$E/$1.err") error" '1 error' &&
		equal "$(leaks "$1")" '' || return 1
	blame=()
}

test_chooses() {
	worth 10 'without a name: the first usable device, its RoCE v2 GID with IPv4' '不点名：第一个能用的设备，IPv4 的 RoCE v2 GID'
	see 1 'The idea'
	scene choose || return
	blame=(auto)
	{ equal "$(chosen auto)" 'rxe0 port 1, GID index 1 = ::ffff:10.99.0.1' && ended_with 0 auto; } || {
		because 'the best GID is RoCE v2 and IPv4-mapped; ports count from 1' '最好的 GID 是 RoCE v2、IPv4-mapped 的；port 从 1 数起'
		return
	}
	{ scene called && equal "$(grep '^device' "$E/other.err")" 'device rxe1' ; } || {
		because 'without a name it is the first device with an active port: rxe0 has none here, rxe1 has' '不点名，就取第一个有 ACTIVE port 的设备：这里 rxe0 没有，rxe1 有'
		return
	}
	equal "$(grep -m1 -E '^(error:|device)' "$E/quiet.err" | sed 's/rxe.$//')" 'device '
	because 'a device that was only tried is no error: the next one will do' '只是试一试的设备，打不开也不算错：下一个能用'
}

test_by_name() {
	worth 10 'a device that is named, and a slot that is named' '点了名的设备，点了名的槽位'
	see 2 'The code'
	scene choose || return
	blame=(named slot)
	equal "$(chosen named)" 'rxe1 port 1, GID index 1 = ::ffff:10.99.0.2' &&
		like "$(chosen slot)" '^rxe0 port 1, GID index 0 = fe80::' 'rxe0 port 1, GID index 0 = fe80::…'
	because 'what the user names is taken, and nothing else' '用户点了名，就只认那一个'
}

test_unknown_name() {
	worth 8 'a device that is not there is refused by its name' '没有这个设备：报出它的名字'
	see 2 'The code'
	scene refuse || return
	{ refused name 'mlx5_99' 'an error that names mlx5_99' && equal "$(count name ev=open_device) devices opened" '0 devices opened'; } || {
		because 'another device than the one asked for is worse than none' '换一个设备顶替，比没有更糟'
		return
	}
	refused shorter 'rxe' 'an error that names rxe' && refused longer 'rxe00' 'an error that names rxe00'
	because 'a name is compared as a whole: rxe0 is not rxe, and not rxe00' '名字要整个比：rxe0 不是 rxe，也不是 rxe00'
}

test_no_device() {
	worth 8 'a machine without a device: an error, no crash' '一个设备也没有：报错，而不是崩溃'
	see 3 'The code'
	scene refuse || return
	refused none 'no RDMA device|device' 'an error about devices'
	because 'the list is empty then, not NULL: list[0] is NULL' '这时列表是空的而不是 NULL：list[0] 才是 NULL'
}

test_empty_slot() {
	worth 8 'an empty slot that was asked for is refused' '点名的槽位是空的：拒绝'
	see 4 'The idea'
	scene refuse || return
	refused slot 'GID|slot' 'an error about GID index 7' || {
		because 'ibv_query_gid_ex says ENODATA for an empty slot' '空槽位，ibv_query_gid_ex 回 ENODATA'
		return
	}
	scene called && equal "$(grep '^slot 257' "$E/again.out")" 'slot 257: -99, as before' && equal "$(grep '^slot 255' "$E/again.out")" 'slot 255: -99, as before'
	because 'a slot has 8 bits, and that in 255 is RoCE v1: one that will not do is -EADDRNOTAVAIL, and gid_index and gid stay as they are' \
		'槽位只有 8 位，255 里的又是 RoCE v1：不能用的槽位是 -EADDRNOTAVAIL，gid_index 与 gid 保持原样'
}

test_not_index_1() {
	worth 10 'a GID that is not index 1: it is chosen by type' 'GID 不在槽 1：按类型选，不按号码'
	see 5 'The idea'
	scene moved || return
	blame=(a)
	equal "$(chosen a)" 'rxe0 port 1, GID index 5 = ::ffff:10.99.0.1'
	because 'slot 1 is RoCE v1 on this device; index 1, or 3, is a habit and not a rule' '这个设备的槽 1 是 RoCE v1；1 或 3 只是习惯，不是规律'
}

test_hole() {
	worth 8 'IPv4, then global, then link-local; and a hole in the table' '先 IPv4，再全局 IPv6，再 fe80::；表中有空洞'
	see 4 'The idea'
	scene global || return
	blame=(all)
	{ like "$(chosen all)" '::ffff:10.99.0.1$' '… = ::ffff:10.99.0.1' && blame=() && like "$(chosen six)" 'fd00:99::1$' '… = fd00:99::1'; } || {
		because 'the order is IPv4-mapped, global IPv6, link-local (fe80::)' '次序是 IPv4-mapped、全局 IPv6、link-local（fe80::）'
		return
	}
	scene no_address || return
	blame=(a)
	like "$(chosen a)" '^rxe0 port 1, GID index 0 = fe80::' 'rxe0 port 1, GID index 0 = fe80::…'
	because 'ENODATA is an empty slot, not a failure: go on with the next; fe80:: is the last resort, and one' \
		'ENODATA 是空槽位，不是失败：看下一个；fe80:: 是最后的选择，但也是选择'
}

test_roce_v1() {
	worth 8 'a device with RoCE v1 GIDs only is refused' '只有 RoCE v1 的 GID：拒绝'
	see 5 'The idea'
	scene gid_v1 || return
	refused a 'RoCE ?v2|GID' 'an error about RoCE v2 GIDs'
	because 'over a v1 GID the packets would not be UDP, and the peer would not take them' '用 v1 的 GID，发出的不是 UDP，对端不认'
}

test_port_down() {
	worth 5 'a port that is down is refused' 'port 不是 ACTIVE：拒绝'
	see 6 'The code'
	scene port_down || return
	refused a 'port|ACTIVE|DOWN' 'an error about the port' || {
		because 'nothing leaves through a port that is not ACTIVE' '不是 ACTIVE 的 port 什么也发不出去'
		return
	}
	scene called && equal "$(opened two)" 'open 0 port 1 lid 1' && equal "$(opened second)" 'open 0 port 2 lid 2' && equal "$(opened init)" 'open -100' && equal "$(opened any)" 'open -100'
	because 'of two ports it is the first that is ACTIVE, with its own port_attr; without one (INIT is not ACTIVE) it is -ENETDOWN, whether the device was named or not' \
		'两个 port 里取第一个 ACTIVE 的，port_attr 也是它的；一个也没有（INIT 不算 ACTIVE）就是 -ENETDOWN，点没点名都一样'
}

test_failures() {
	worth 8 'each verb that fails is told, with its own error number' '每个失败的 verb 都要报，错误码不能错'
	see 7 'The code'
	scene fails || return
	{ refused list 'ENOSYS|device' 'ENOSYS' && refused open 'EACCES|[Pp]ermission' 'EACCES'; } || {
		because 'ibv_get_device_list and ibv_open_device return NULL and set errno' 'ibv_get_device_list、ibv_open_device 返回 NULL 并设 errno'
		return
	}
	local call
	for call in query port gid; do
		! struck $call || { refused $call 'ENXIO|No such device or address' 'ENXIO (6)' &&
			equal "$(opened_and_closed $call)" 'opened and closed'; } || break
	done
	[[ $failed ]] || { scene called && equal "$(opened noname)" 'open -19' && equal "$(opened device)" 'open -6' && equal "$(opened gid)" 'open -5'; } ||
		because 'what these functions return is a negative errno: -ENODEV, -ENXIO, -EIO here' '这些函数返回负的 errno：这里是 -ENODEV、-ENXIO、-EIO'
	because 'ibv_query_* return the error number; the device that was opened is closed again' 'ibv_query_* 直接返回错误码；打开了的设备要再关上'
}

# opened_and_closed NAME: whether each device was
opened_and_closed() {
	if (($(grep -cx 'make device' "$E/$1.log") == $(grep -cx 'unmake device' "$E/$1.log"))); then
		echo 'opened and closed'
	else
		say 'a device stays open' '设备没有关'
	fi
}

test_leaks() {
	worth 7 'whatever fails, no device stays open and no list is left' '无论哪里失败，设备都关上，列表都释放'
	see 8 'The code'
	local name left
	scene refuse || return
	for name in name slot lesson; do
		left=$(($(grep -cx 'get list' "$E/$name.log") - $(grep -cx 'free list' "$E/$name.log")))
		((!left)) || { differs "$left $(say 'device list is not freed' '个设备列表没有释放')" '0'
			because 'each ibv_get_device_list() needs its ibv_free_device_list(), on this path, too' '每个 ibv_get_device_list() 都要有 ibv_free_device_list()，失败时也一样'
			return; }
		{ equal "$(opened_and_closed $name)" 'opened and closed' && equal "$(leaks $name)" ''; } || break
	done
	because 'what could not be used is closed again' '打开了却不能用的，要再关上'
	[[ ! $failed ]] || return
	scene called && equal "$(tail -n 1 "$E/again.out")" 'closed again 0' && equal "$(opened_and_closed again)" 'opened and closed'
	cause=''
	because 'close_device() forgets what it has closed: a second time there is nothing to do' 'close_device() 关了就忘掉：再调用一次，什么也不用做'
}

test_list_outlives_open() {
	worth 5 'rdma_server and rdma_client talk; the list is freed after the open' '两个程序能通信；先打开，后释放列表'
	see 8 'The code'
	scene pair || return
	if ! grep -qx 'free list' "$E/a.c.log"; then
		because 'ibv_free_device_list() is missing: the list stays for ever' '没有 ibv_free_device_list()：列表一直留着'
	fi
	because 'a struct ibv_device belongs to its list until it is opened' '设备在打开之前属于列表：先释放再打开是 use-after-free'
	well a || return
	equal "$(grep -E '^(get list|make device|free list)$' "$E/a.c.log" | tail -n 2 | xargs)" 'make device free list'
}
