#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Clients of memory_server and ring_server that are killed, stopped, misled or refused
# what they ask for, at each moment; servers that lie; and test_remote.sh under sanitizers.
#
# shellcheck disable=SC2016,SC2034 # scripts for the lab are quoted; arrays by name
. "$(dirname "$0")/../lib.sh"
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"
# shellcheck source=labs/tests/remote/remote.sh
. "$ROOT/labs/tests/remote/remote.sh"

oneTimeSetUp() {
	build_all
	mkdir -p "$B/lying"
	# A client whose messages have other contents, a server that gives too much credit.
	sed 's/qp_num << 40/qp_num << 41/' "$SOURCES/client/ring_client.c" >"$B/lying/client.c"
	helper "$B/ring_other" -O2 "$B/lying/client.c" "$SOURCES/common/remote/ring.c" \
		"$B/librdma_common.a" -libverbs -ljansson -lisal
	sed 's/ring_credit_of(ring->taken)/ring_credit_of(ring->taken + 1000)/' \
		"$SOURCES/server/ring_server.c" >"$B/lying/server.c"
	helper "$B/ring_generous" -O2 -I"$SOURCES/server" "$B/lying/server.c" \
		"$SOURCES"/{server/peers,common/remote/ring}.c \
		"$B/librdma_common.a" -libverbs -ljansson -lisal -lpthread
}

# Its requests: add, read, swap, read, write, write, swap; so up to the next round.
test_lock_killed_at_any_request() {
	on_rxe '
		lend memory
		for n in {1..8}; do
			stop_at "$n" "dies$n" lock_client -n 2
			kill9 "dies$n"
			client run "after$n" lock_client -n 3
		done
		end memory
	' || return 0
	assert_done memory after{1..8}
	assertEquals "killed in between two words" 1 "$(sum .repairs after{1..8})"
	assertEquals "completed by the next one" 1 "$(json after6 .repairs)"
	# Stopped before the nth request, so these are done: the add of all but the first
	# (the last one stopped in its second round), the record of those past both WRITEs.
	assertEquals "the counter" $((24 + 7)) "$(json after8 .counter)"
	assertEquals "the record" $((24 + 3)) "$(json after8 .entries)"
	assertEquals "locks that were freed" 4 \
		"$(grep -c 'a lock that it had is free again' <<<"$(out_of memory)")"
}

# Its requests: read the word and the half, read the word, swap, write, swap; and again.
# (There is no half to read of a new key, which the first one does not get to put.)
test_kv_killed_at_any_request() {
	on_rxe '
		lend memory
		for n in {1..12}; do
			stop_at "$n" "dies$n" kv_client -n 3 -K 1 -w 100
			((n > 1)) || client run before kv_client -n 1 -K 1 -w 0
			kill9 "dies$n"
			client run "after$n" kv_client -n 3 -K 1 -w 50
		done
		client run count kv_client -c
		end memory
	' || return 0
	assert_done memory before count after{1..12}
	assertEquals "nothing yet" 0 "$(json before .gets)"
	assertEquals "locks that were freed" 4 \
		"$(grep -c 'a lock that it had is free again' <<<"$(out_of memory)")"
	# Stopped before the nth request: from the 7th on, the first put is done.
	assertEquals "puts" $(($(sum .puts after{1..12}) + 6)) "$(json count .puts)"
}

# What is not on its way yet is lost with its sender; no message comes that was not sent.
test_ring_killed() {
	local took
	on_rxe '
		threads() { ls "/proc/${pids[ring]}/task" | wc -l; }
		met() { (($(threads) > alone)); }
		ring ring
		client start other ring_client -t 60 -n 3000
		for n in 1 2 100 300; do
			stop_at "$n" "dies$n" ring_client -n 1000
			kill9 "dies$n"
		done
		reap other
		await qps 0
		client run after ring_client -n 500
		# To be stopped is what it waits for, whoever has said nothing yet.
		alone=$(threads)
		start silent "$B/peer" connect 127.0.0.1 18515
		await met
		end ring
		reap silent
		ring second -q
		client start lost ring_client -n 4000000000
		await qps 1
		kill9 second
		reap lost
		# Stopped, it gives no credit.
		ring third
		stop_at 2 early ring_client -t 2 -n 100000
		freeze third
		kill -CONT "${pids[early]}"
		reap early
		kill -CONT "${pids[third]}"
		await in_file " took " "$T/third.out" # SIGTERM would be a stop
		end third
	' || return 0
	assert_done ring other after third
	took=$(grep -o 'took [0-9]* messages' <<<"$(out_of ring)" | cut -d' ' -f2 | sort -n | xargs)
	assertEquals "each is told: $took" '6 3000 500' "$(awk '{ print NF, $6, $5 }' <<<"$took")"
	assertEquals "of 0, 1, 99 and 299 sent: $took" 1 \
		"$(awk '{ print ($1 == 0 && $2 <= 1 && $3 <= 99 && $4 <= 299) }' <<<"$took")"
	assert_error lost 1 'closed the connection|retry'
	assert_error early 1 'no credit for 2000 ms: [0-9]+ sent, [01] taken'
	# Whoever is gone when it is looked at again: what he had sent is taken.
	assertEquals "$(err_of early)" "$(grep -o '[0-9]* sent' <<<"$(err_of early)")" \
		"$(sed -n 's/.*took \([0-9]*\) messages.*/\1 sent/p' <<<"$(out_of third)")"
}

test_stopped_by_a_signal() {
	local name
	on_rxe '
		interrupt() { # NAME
			stop_at 5 "$1" "$1" -t 20 -n 1000000
			kill -INT "${pids[$1]}"
			kill -CONT "${pids[$1]}"
			reap "$1"
		}
		lend memory -q -b 8192
		for name in {lock,kv}_client memory_bench; do interrupt "$name"; done
		# Who never finds the CQ empty hears a signal, too.
		export SPY_LOG=$T/spy.log
		SPY_LIE=ready LD_PRELOAD=$spy client start busy memory_bench -n 200000
		await in_file ^wc "$SPY_LOG"
		end busy memory
		ring ring -q
		interrupt ring_client
		end ring
	' || return 0
	assert_done memory ring
	for name in {lock,kv,ring}_client memory_bench busy; do
		assert_error "$name" 1 'stopped by a signal'
	done
}

# The server stands before ibv_destroy_qp: whoever looks then must find the lock taken.
test_lock_is_freed_after_its_qp() {
	on_rxe '
		SPY_STOP=ibv_destroy_qp:1 LD_PRELOAD=$spy lend memory
		stop_at 5 dies lock_client -n 2
		stop_at 1 looks lock_client -n 1 -t 3
		kill9 dies
		await halted memory
		kill -CONT "${pids[looks]}"
		reap looks
		kill -CONT "${pids[memory]}"
		client run after lock_client -n 1
		end memory
	' || return 0
	assert_error looks 1 'client 1 has kept the lock of cell 0'
	assert_done after
}

# Stopped with the lock: sent away, and what it does when it wakes up does nothing. Who is
# stopped without one may stay; and who reads a key waits for no writer.
test_stopped_with_the_lock() {
	on_rxe '
		lend memory -l 1
		client run first kv_client -k key -p old
		stop_at 1 idle lock_client -n 1
		stop_at 5 stopped lock_client -n 2
		stop_at 6 writer kv_client -k key -p new
		client run reader kv_client -k key
		client run patient lock_client -n 5 -t 60
		client run newer kv_client -t 60 -k key -p newer
		for name in stopped writer idle; do
			kill -CONT "${pids[$name]}"
			reap "$name"
		done
		client run look lock_client -n 0
		client run after kv_client -k key
		end memory
	' || return 0
	assert_done first reader patient newer idle look after
	assertEquals 0 "$(rc_of memory)"
	assert_in "$(err_of memory)" 'client 3 .* has kept a lock for [0-9]+ ms and is sent away'
	assert_error stopped 1 'WRITE|SWAP|CMP_SWP|retry|RETRY'
	assertEquals 1 "$(rc_of writer)"
	assertEquals old:newer "$(out_of reader):$(out_of after)"
	assertEquals "only the others'" 6 "$(json look .entries)"
}

# Another key is in the cell by now; and the key's own lock is kept for too long.
test_cell_that_is_taken() {
	on_rxe '
		lend memory -c 2 -l 60
		stop_at 2 late kv_client -k a -p x
		client run first kv_client -k b -p old
		kill -CONT "${pids[late]}"
		reap late
		stop_at 6 stopped kv_client -k b -p new
		client run impatient kv_client -k b -p never -t 3
		cp "$T/memory.out" "$T/freed.out"
		kill9 stopped
		client run after kv_client -k b
		end memory
	' || return 0
	assert_done memory first after
	assert_error late 1 'no cell is free for key "a": 1 were looked at'
	assert_not_in "$(out_of freed)" 'free again' "the late one kept the lock:"
	assert_error impatient 1 'client [0-9]+ has kept the lock of cell 1 for 3000 ms'
	assertEquals old "$(out_of after)"
}

# A lock that does not hold, an add that is lost, a key that was there, a message that is
# not the one: NAME|RULE|PROGRAM ARGS|ERROR, in a fresh memory
MISLED='open|post_send:6:sge.addr+16|lock_client -n 2|the lock did not hold: 1 entries, 0 exits
stolen|post_send:3:atomic.remote_addr+2048|lock_client -n 1|the lock of cell 0 was mine
back|post_send:1:atomic.remote_addr+32|lock_client -n 2|the counter went from 1 to 0
lock|post_send:3:atomic.rkey^256|lock_client|remote access error \(10\)
odd|post_send:1:atomic.remote_addr+4|lock_client|EINVAL
lost|post_send:9:skip|memory_bench -A -n 9 -d 16 -t 2|no completion|9
gone|post_send:6+:remote_addr-2048|kv_client -n 2 -K 1 -w 50|key-0 is gone'

test_what_the_clients_judge_by() {
	local name error
	export MISLED
	on_rxe '
		while IFS="|" read -r name rule words _; do
			lend memory -q
			misled "$name" "$rule" $words
			end memory
		done <<<"$MISLED"
		lend memory -q -c 2 -b 512
		client run put kv_client -k one -p x
		client run overwrites memory_bench -W -n 1 -s 448
		client run damaged kv_client -k one -t 2
		end memory
		ring ring -q
		misled skips post_send:7:skip ring_client -t 2 -n 20
		misled outside post_send:40:remote_addr+16777216 ring_client
		# Who is not told of what is done reuses no buffer.
		SPY_LIE=lost LD_PRELOAD=$spy client run blind ring_client -t 2 -n 1000
		# As whole as any, but not what this client sends.
		client run other ring_other -t 2 -n 20
		client run last ring_client -n 100
		end ring
		# More than was sent
		serve generous "$B/ring_generous" -q rxe0
		client run paid ring_client -n 1000
		end generous
	' || return 0
	assert_done memory put overwrites last
	while IFS='|' read -r name _ _ error; do assert_error "$name" 1 "$error"; done <<<"$MISLED"
	assert_error damaged 1 'version [0-9]+ in cell 1 stays damaged'
	assert_error skips 1 'no credit for 2000 ms: 20 sent, 6 taken'
	assert_error outside 1 'remote access error \(10\)'
	assert_error blind 1 'no credit for 2000 ms: 256 sent'
	assert_error other 1 'closed the connection|retry'
	assert_in "$(err_of ring)" 'message 1 of [0-9]+ bytes has the wrong content'
	assert_error paid 1 'credit for 1[0-9]{3} messages, after 0; sent are [0-9]{1,3}$'
}

test_plans_that_cannot_be() {
	local plan
	on_rxe '
		for plan in magic=1 order=0x01020304 number={0,0x1000000} cells={0,4098} bytes={192,300,524352}; do
			serve peer "$B/peer" listen 18515 hello con,gid=::ffff:10.99.0.1,size=0x200200 sync "lend,$plan"
			client run "$plan" kv_client -k x
			reap peer
		done
	' || return 0
	assert_error magic=1 1 'the server lends no memory: 0x00000001, not 0x4d454d32'
	assert_error order=0x01020304 1 'another byte order'
	for plan in number={0,0x1000000} cells={0,4098} bytes={192,300,524352}; do
		assert_error "$plan" 1 'the server.s plan cannot be'
	done
}

test_bench_of_many_qps() {
	local n what
	on_rxe '
		lend memory -q
		SPY_LOG=$T/turns.log LD_PRELOAD=$spy client run turns memory_bench -n 50 -d 4 -Q 3
		stop_at 36 held memory_bench -n 50 -Q 8
		qps 8 && touch "$T/eight"
		kill -CONT "${pids[held]}"
		reap held
		client run crowd memory_bench -Q 65
		for n in 30 31 32 33; do (ulimit -n $n && client run few$n memory_bench -e -Q 64); done
		end memory
	' || return 0
	assert_error memory 0 'client [0-9]+ is turned away: 64 are connected'
	assert_done turns held
	assertEquals 3 "$(json turns .qps)"
	for what in pd mr cq qp device; do
		assertEquals "made of $what" 3 "$(grep -c "^make $what" "$T/turns.log")"
		assertEquals "unmade of $what" 3 "$(grep -c "^unmake $what" "$T/turns.log")"
	done
	assertTrue "8 QPs at once" "[ -e $T/eight ]"
	assert_error crowd 1 'EUSERS'
	# Whichever call it is that finds no descriptor left.
	for n in 30 31 32 33; do
		assert_error few$n 1 'EMFILE|too few file descriptors'
		assert_in "$(err_of few$n)" '^ next: .*ulimit -n'
	done
}

# Whatever a program asks the system for is refused once: it ends with one error, a server
# of many goes on without the client that it was for.
test_refusals() {
	on_rxe '
		lend other -q
		refusals kv_client "$B/kv_client" -q -k x -p y 10.99.0.1 rxe1
		refusals memory_bench "$B/memory_bench" -q -n 3 -Q 3 10.99.0.1 rxe1
		end other
		start_host() { serve "$1" "$B/$1_server" -q rxe0; }
		meet_host() {
			client run guest "$guest" -n 3 -t 2
			kill "${pids[$1]}"
		}
		guest=ring_client refusals_of_server ring
		guest=lock_client refusals_of_server memory
	' || return 0
	assert_done kv_client memory_bench ring memory
	assertEquals 'who was refused' 'kv_client memory_bench ring memory' \
		"$(cut -d '|' -f1 "$T/lab.out" | uniq | xargs)"
	assert_refusals 60 '.* connect|(ring|memory) (socket|getpeername|recv)' 'ring|memory' <"$T/lab.out"
}

# In the lab. crowd CLIENT ARGS…: eight of it, one after the other in each of eight
# places; and a ninth place whose clients are killed, each at another moment.
CROWD='
place() { # NUMBER CLIENT ARGS…
	local i=0 n=$1
	shift
	while ((SECONDS < until)); do
		client run "$1.$n.$((++i))" "$@" || return
	done
}
crowd() {
	local n i=0 placed=() until=$((SECONDS + 10))
	for n in {1..8}; do
		place "$n" "$@" &
		placed+=("$!")
	done
	while ((SECONDS < until)); do
		client start "killed$((++i))" "$@"
		nap "0.$((i * 37 % 90 + 10))"
		kill9 "killed$i"
	done
	wait "${placed[@]}"
}
'

test_clients_beside_killed_ones() {
	local client server file kv=() lock=() ring=()
	on_rxe "$CROWD"'
		# Ten that spin on two CPUs: an ACK may well be late.
		export SPY_LIE=patient LD_PRELOAD=$spy
		lend memory -q -b 16384
		crowd kv_client -e -t 60 -n 400 -K 4
		client run count kv_client -c
		crowd lock_client -e -t 60 -n 200
		client run look lock_client -n 1
		end memory
		ring ring -q
		crowd ring_client -t 60 -n 3000
		end ring
	' || return 0
	for client in kv lock ring; do
		local -n names=$client
		for file in "$T/${client}_client."*.rc; do names+=("$(basename "$file" .rc)"); done
		assertTrue "few: ${names[*]}" "((${#names[@]} >= 8))"
		assert_done "${names[@]}"
	done
	# Who is killed in the handshake is reported.
	for server in memory ring; do
		assertEquals "$server: $(err_of "$server")" 0: "$(rc_of "$server"):$(grep '^error: ' \
			"$T/$server.err" | grep -v 'the peer closed the connection$')"
	done
	assert_done count look
	assertTrue "puts that are not there" "(($(json count .puts) >= $(sum .puts "${kv[@]}")))"
	assertTrue "rounds that are not there: $(out_of look)" \
		"(($(json look .entries) > $(sum .rounds "${lock[@]}") && $(json look .counter) >= $(json look .entries)))"
}

test_sanitizers() {
	local said rc=0
	must_build -j"$(nproc)" BUILD=build/asan SANITIZE=1 build/asan/{memory_server,lock_client} \
		build/asan/{kv_client,memory_bench,ring_server,ring_client,sabotage,libsaboteur.so}
	# spy.so and libsaboteur.so are before ASan.
	said=$(BUILD=build/asan SANITIZE=1 TEST_RESULTS=/dev/null \
		ASAN_OPTIONS=exitcode=99:verify_asan_link_order=0 UBSAN_OPTIONS=exitcode=99 \
		bash labs/tests/remote/test_remote.sh 2>&1) || rc=$?
	assertEquals "$said" 0 "$rc"
}

. shunit2
