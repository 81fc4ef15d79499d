# SPDX-License-Identifier: MIT
#
# plot.jq - a picture, for picture.awk, of a plot that labs/bench --json growth measured:
#
#	jq -r --arg name PLOT -f plot.jq growth.json
#
# A plot is {plot, machine, kernel, cpu, date, how, rounds, curves: {NAME: [[X, Y], ...]}}.
# Both axes are logarithmic: what doubles with each step is a straight line. An SVG of
# gnuplot's differs from release to release, and would drift in labs/docs check.

def words: {
	"grow-latency": {
		title: "Half a round trip by the size of the message: rdma_client beside ib_send_lat | 半个来回的时间随消息大小的变化：rdma_client 与 ib_send_lat",
		x: "bytes of a message | 消息的字节数", y: "us, half a round trip | 半个来回，us" },
	"grow-bandwidth": {
		title: "Bandwidth by the size of the message: rdma_client --bw beside ib_send_bw | 带宽随消息大小的变化：rdma_client --bw 与 ib_send_bw",
		x: "bytes of a message | 消息的字节数", y: "MB/s" },
	"grow-messages": {
		title: "Messages per second by their size: the ring of WRITEs, SENDs, and TCP on loopback | 每秒的消息数随消息大小的变化：WRITE 写的 ring、SEND，以及 loopback 上的 TCP",
		x: "bytes of a message | 消息的字节数", y: "messages a second | 每秒消息数" },
	"grow-clients": {
		title: "What rdma_engine reads in a second, by the number of its clients | rdma_engine 每秒读多少，随 client 数的变化",
		x: "clients, a READ of each under way | client 数，各有一个 READ 在途", y: "MB/s; MB of memory | MB/s；内存 MB" },
	"grow-peers": {
		title: "Half a round trip with so many clients at once, and what the server holds: rdma_server --many beside TCP | 这么多 client 同时来回：半个来回的时间，server 的内存；rdma_server --many 与 TCP",
		x: "clients at once | 同时的 client 数", y: "us; MB of memory | us；内存 MB" },
	"grow-receives": {
		title: "So many clients at once: a receive queue for each QP of the server, or one SRQ | 这么多 client 同时来回：server 的每个 QP 一个 receive queue，还是共用一个 SRQ",
		x: "clients at once | 同时的 client 数", y: "us, half a round; MB of memory | us，半轮；内存 MB" },
	"grow-qps": {
		title: "READs of 4 KiB by the number of QPs that take turns: memory_bench beside ib_read_bw | 4 KiB 的 READ 随轮流使用的 QP 数的变化：memory_bench 与 ib_read_bw",
		x: "QPs, a READ of each under way | QP 数，各有一个 READ 在途", y: "MB/s" },
	"grow-window": {
		title: "Tagged messages a second by how many are not done: tag_lat --window beside ucx_perftest -t tag_bw -O | 每秒带 tag 的消息数，随未完成条数的变化：tag_lat --window 与 ucx_perftest -t tag_bw -O",
		x: "messages not done at once | 同时未完成的条数", y: "messages a second | 每秒消息数" },
	"grow-memory": {
		title: "What a server holds, by the number of clients that are there | server 占多少内存，随在场 client 数的变化",
		x: "clients | client 数", y: "MB" },
	"grow-channels": {
		title: "What the NCCL plugin moves in a second, by the number of channels | NCCL 插件每秒搬多少，随 channel 数的变化",
		x: "channels | channel 数", y: "MB/s" },
	"grow-events": {
		title: "qptrace report: seconds and MB of memory, by the number of events recorded | qptrace report：随所录事件数变化的秒数与内存",
		x: "events in the recording | 录下的事件数", y: "s, MB" },
	"grow-loss": {
		title: "What arrives in a second, by the packets lost in 100: two RC programs beside TCP | 每秒送到多少，随丢包率的变化：两个用 RC 的程序与 TCP",
		x: "packets lost in 100 | 每 100 个包丢几个", y: "MB/s" } };

# The numbers of an axis: powers of 2 up to 2^10 and its powers, or of 10.
def short: if . >= 1048576 and . % 1048576 == 0 then "\(. / 1048576)Mi"
	elif . >= 1024 and . % 1024 == 0 then "\(. / 1024)Ki"
	elif . >= 1000000 then "\(. / 1000000)M" elif . >= 1000 then "\(. / 1000)k"
	else tostring end;
def theirs: test("^(ib_|ucx_perftest|iperf3|sockperf|own-)");
def at: . * 100 | round / 100;
def left: 10; def right: 62; def top: 2; def bottom: 18;

select(.plot == $name) | . as $p | words[.plot] as $w
# There is no 0 on such an axis: it stands apart, on the left.
| ([.curves[][] | .[0] | select(. > 0)] | min / 4) as $zero
| def apart: if . == 0 then $zero else . end;
[.curves[][] | .[0] | apart] as $xs | [.curves[][] | .[1]] as $ys
| ($xs | min | log2) as $x0 | ($xs | max | log2) as $x1
| [range(-3; 9) as $e | (1, 2, 5) * ($e | exp10)] as $steps
| ($steps | map(select(. <= ($ys | min))) | max) as $low
| ($steps | map(select(. >= ($ys | max))) | min) as $high
# 1, 2, 5, unless there are too many of them
| (if $high / $low > 1000 then "^1" else "." end) as $shown
| def x: left + ((apart | log2) - $x0) / ($x1 - $x0) * (right - left);
def y: bottom - (. / $low | log10) / ($high / $low | log10) * (bottom - top);
# no more numbers than there is room for
def sparse: . as $all | ((length + 7) / 8 | floor) as $step
	| [range(0; length; $step) | $all[.]];
"# measured \(.date); make bench-plots measures anew",
"title \($w.title)",
"size 90 22.5",
"text 1 0.9 plain \($w.y)",
($steps[] | select(. >= $low and . <= $high)
	| (if . < 1 then . * 1000 | round / 1000 else round end | short) as $number
	| select(. == $low or . == $high or ($number | ltrimstr("0.") | ltrimstr("0") | test($shown)))
	| "line dim.dash \(left),\(y | at) \(right),\(y | at)",
	"text \(left - 1) \(y | at) dim.r \($number)"),
"line plain \(left),\(top) \(left),\(bottom) \(right),\(bottom)",
([.curves[][] | .[0]] | unique | sparse[] | "text \(x | at) \(bottom + 1) plain.c \(short)"),
"text \((left + right) / 2) \(bottom + 2.3) plain.c \($w.x)",
# Those of others are dashed, on top of ours: where two are one, both are seen.
(.curves | to_entries | sort_by(.key | theirs) | to_entries[] | .key as $i
	| (["data", "control", "memory", "error", "plain"][$i]
		+ if .value.key | theirs then ".dash" else "" end) as $style
	| "line \($style) \([.value.value[] | "\(.[0] | x | at),\(.[1] | y | at)"] | join(" "))",
	"line \($style) \(right + 2),\(top + 1 + $i * 1.5) \(right + 5),\(top + 1 + $i * 1.5)",
	"text \(right + 6) \(top + 1 + $i * 1.5) \($style | rtrimstr(".dash")) `\(.value.key)`"),
($p.how | split(" | ")) as $how
| "text 1 \(bottom + 3.8) dim \($p.kernel), \($p.machine), \($p.date): \($how[0]); rounds: \($p.rounds) | \($p.kernel)，\($p.machine)，\($p.date)：\($how[1])；轮数：\($p.rounds)"
