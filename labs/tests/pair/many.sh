# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# many.sh - what the suites of rdma_server --many share.
#
# shellcheck disable=SC2016 # scripts for the lab are quoted

# In the lab. qps N: rxe0 has N QPs in RTS
MANY='
qps() { (($(rdma resource show qp link rxe0 type RC state RTS 2>/dev/null | grep -c "link rxe0") == $1)); }
'

# many_kinds: the server is "many", whom it has to serve are once, few, ping1…12, bw1…6
many_kinds() {
	in_lab "$MANY"'
		server many -j --many 40 -s 8192 -t 10 rxe0
		stay 1 4 "$B/peer"
		run get "$B/peer" connect 127.0.0.1 18515 "text=GET / HTTP/1.1" close
		for i in {1..4}; do run "gone$i" "$B/peer" connect 127.0.0.1 18515 hello close; done
		start unreached "$B/peer" connect 127.0.0.1 18515 hello con,gid=::ffff:10.99.0.77
		c() { start "$1" "$B/rdma_client" -q "${@:2}" 127.0.0.1 rxe1; }
		for i in dies1 dies2 stops; do c "$i" -e -n 10000000; done
		await qps 3
		c once -m hello
		c few -n 3 -e -s 1
		for i in {1..12}; do c "ping$i" -e -n 99 -s $((1 << i)) -t 60; done
		for i in {1..6}; do c "bw$i" -e -b -n 100 -w 16 -s $((1200 * i)) -t 60; done
		start lies "$B/sabotage" -o "$T/said" post_send:20:sge.length-8 \
			"$B/rdma_client" -q -n 100 127.0.0.1 rxe1
		c big -s 16384 -n 5
		kill9 dies1
		freeze stops
		kill9 dies2
		reap once few ping{1..12} bw{1..6} lies big unreached
		await in_file "does not go on" "$T/many.err"
		kill9 stops
		kill "${pids[many]}"
		reap many "stays"{1..4}
	'
}
