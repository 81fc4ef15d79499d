# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
#
# Exercise 14: the learner writes remote_read.c. See scene.sh and judge.sh.

stage_file=remote_read.c
source=common/engine/remote_read.c
programs=(14-rdma-engine rdma_engine remote_reads)
helpers=(needle_server)
patience='15 8 5'
strip="
post_chunk: one READ with a wr_id of its own; remember in chunk whose it is and how far it goes
post_more: while a chunk is free, the next piece of the first read in the queue, at most chunk_size; then it goes to the end
remote_reader_submit: put it at the end of both lists, and begin
remote_reader_cancel: out of the queue; what is posted still arrives, so it ends only when all of that is back
chunk_of: the chunk that a completion is of, by its wr_id; NULL: nobody's
take: a chunk has come: count it, post more, tell the caller what arrived, end the read with its last
blame: the first bad completion gives its read a status, by whether the peer is gone or the request is wrong
take_all: at most depth completions: one that is nobody's, or bad, breaks the reader
remote_reader_poll: take the event, arm again, take all; a failure breaks the reader
remote_reader_abort: RESET first; then empty the CQ, forget the chunks, and end every read
"
what=("read a storage node's memory, many READs at once" '读存储节点的内存，许多 READ 同时进行')
todo=('Write what is marked TODO; common/engine/remote_read.h has the contracts.' '写出标着 TODO 的部分；约定在 common/engine/remote_read.h。')
libraries() {
	pkg-config --libs msgpack-c 2>/dev/null || pkg-config --libs msgpack 2>/dev/null || echo -lmsgpackc
	echo -luuid -lcrypto -lisal -libverbs -ljansson
}

# ---- in the VM

scenes=(one many turns stranger bad_key cancel engine)

reads() { learner a "$B/remote_reads" "$1"; }
scene_one() { reads one; }
scene_turns() { reads turns; }
scene_stranger() { reads stranger; }
scene_bad_key() { reads bad-key; }
scene_cancel() { reads cancel; }

scene_many() {
	reads many
	learner shallow "$B/remote_reads" no-depth
}

# The walk of the lesson: a node, the engine and a client, each a process.
scene_engine() {
	chmod 1777 /tmp
	PLAIN=1 learner a "$B/14-rdma-engine" rxe0
	pkill -KILL -x 'needle_server|rdma_engine'
}

# ---- on the host

# said NAME REGEX WORDS: that line of the driver (labs/exercises/remote_reads.c)
said() {
	blame=(a)
	ended_with 0 a && like "$(grep "^$1" "$E/a.out")" "$2" "$3" || return 1
	blame=()
}

# good NAME: that read came whole, in order, once
good() { said "$1" 'status 0 dones 1 .*disorder 0 right 1' "$1 status 0 dones 1 … disorder 0 right 1"; }

test_one() {
	worth 10 'one read of 5000 bytes: every byte, and done once' '读 5000 字节：一个字节不差，done 一次'
	see 1 'The code'
	scene one || return
	good one && like "$(out_of a)" 'arrived 5000' 'arrived 5000'
	because 'a read is posted in chunks, and done when the last has come back' '一个 read 分块 post，最后一块回来才算完'
}

test_chunks() {
	worth 10 'chunks: each of chunk_size at most, one after the other in memory' '分块：每块至多 chunk_size，在内存里首尾相接'
	see 1 'The code'
	scene one || return
	because 'the last chunk is what is left; the device would write past the end' '最后一块是剩下的：多读就写到内存外面去了'
	sets a 'post_send op=RDMA_READ' len 4096 || return
	recorded a ev=post_send op=RDMA_READ
	equal "${#records[@]} READs" '2 READs' || return
	records=("${records[1]}")
	value len
	equal "len $value" 'len 904'
}

test_depth() {
	worth 10 'as many at once as the send queue holds, and no more' '在途的个数：填满 send queue，但不超过'
	see 2 'The idea'
	scene many || return
	said most 'most [34] left 0' 'most 4 left 0' && good many && equal "$(count a ev=post_send op=RDMA_READ) READs" '40 READs'
	because 'one at a time leaves the line idle; one too many is ENOMEM' '一次一个，线路空着；多一个就是 ENOMEM'
}

test_own_wr_id() {
	worth 8 'each work request has a wr_id of its own' '每个请求有自己的 wr_id'
	see 3 'The code'
	scene many || return
	local record ids
	recorded a ev=post_send op=RDMA_READ
	ids=$(for record in "${records[@]}"; do grep -o 'wr_id=[^	]*' <<<"$record"; done | sort -u | wc -l)
	blame=(a)
	equal "$ids different wr_ids" '40 different wr_ids' && blame=()
	because 'two that share one cannot be told apart when they complete' '两个同号的，完成时就分不清是谁'
}

test_shallow() {
	worth 5 'a send queue of one' '只有一格的 send queue'
	see 2 'The idea'
	scene many || return
	blame=(shallow)
	ended_with 0 shallow && like "$(out_of shallow)" 'many status 0 dones 1' 'many status 0 dones 1'
	because 'the next chunk is posted when the last one has come back' '上一块回来了，才 post 下一块'
}

test_turns() {
	worth 8 'a short read does not wait for a long one' '短的不必等长的'
	see 4 'The code'
	scene turns || return
	because 'a read goes to the end of the queue after each chunk' '每 post 一块，就排到队尾去'
	good turn || return
	local order
	order=$(sed -n 's/^order //p' "$E/a.out")
	like "$order" '2.*1$' 'a 2 before the last 1' && like "$order" '3.*1$' 'a 3 before the last 1'
}

test_stranger() {
	worth 10 'a completion that is nobody'"'"'s counts for nobody' '不认得的 completion，不能算在谁头上'
	see 3 'The code'
	scene stranger || return
	said poll 'poll -5 done-before 0' 'poll -5 done-before 0' && said stranger 'status -104 dones 1' 'stranger status -104 dones 1'
	because 'the first completion need not be mine: its wr_id says whose it is' '先来的 completion 不一定是我的：是谁的，看 wr_id'
}

test_bad_key() {
	worth 8 'the READ that is at fault ends with EIO, the others with ECONNRESET' '出错的那个以 EIO 结束，其余以 ECONNRESET'
	see 5 'The code'
	scene bad_key || return
	said poll 'poll -5 broken 1' 'poll -5 broken 1' && said first 'first -5 second -104 dones 1 1' 'first -5 second -104 dones 1 1'
	because 'only the first bad completion has a cause; a wrong key is as wrong at the next try' '只有第一个失败的才有原因；key 不对，重来也不对'
}

test_abort() {
	worth 8 'abort: the QP is in RESET before anybody gets memory back' 'abort：QP 先到 RESET，才把内存还给别人'
	see 6 'The code'
	scene bad_key || return
	said state 'state 0' 'state 0 (RESET)' && said first 'broken 0' 'broken 0'
	because 'until RESET the device may write into that memory' '没到 RESET，网卡还可能写那块内存'
}

test_again() {
	worth 6 'connected again, it reads as before' '再连上，照样能读'
	see 6 'The code'
	scene bad_key || return
	good again
	because 'completions and chunks of the last connection are gone with it' '上一条连接的 completion 与各块，都要随它一起清掉'
}

test_cancel() {
	worth 7 'cancel: done when the device has nothing of it any more' '取消：网卡手里没有它了，才算完'
	see 7 'The code'
	scene cancel || return
	said before 'queued 1 under-way 0' 'before: queued 1 under-way 0' &&
		said after '-125 -125 dones 1 1 arrived 0 in-flight 0' 'after: -125 -125 dones 1 1 arrived 0 in-flight 0'
	because 'what is posted cannot be called back: the device will still write there' '已 post 的收不回来：网卡还会往那里写'
}

test_engine() {
	worth 5 'the engine, a storage node and a client: the walk of the lesson' 'engine、存储节点与 client：走一遍这一课'
	see 8 'What you see'
	scene engine || return
	blame=(a)
	ended_with 0 a && like "$(out_of a)" '3 needles, each CRC-32C right' '3 needles, each CRC-32C right' && blame=()
}
