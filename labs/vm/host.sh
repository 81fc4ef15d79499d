#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# host.sh - in the VM of one of two hosts: be it, and do to its packets what "lab net"
# asks for. What is set is read from the kernel, not kept anywhere.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

list() {
	cat <<-'END'
	lab net --on A|B …, for what that host sends, on eth0:
	  loss 2%          each packet is lost with this probability   tc netem
	  delay 5ms        each waits so long, a value in us, ms or s
	  reorder 10%      so many overtake the others; wants a delay
	  duplicate 5%     so many go out twice
	  corrupt 1%       so many have a wrong bit
	  rate 10mbit      and no faster, in kbit, mbit or gbit
	for the card:
	  down | up        the link                                    ip link
	  mtu 600          68 to 9000; rxe needs 282                   ip link
	a firewall:
	  block-roce [in | out]   UDP 4791 is dropped, both ways or one  nft
	and:
	  show             what is set
	  clean            undo all of it
	Settings add up. They end with the VM, too.
	END
}

# die CODE CAUSE NEXT
die() {
	echo "lab: $2" >&2
	echo "lab: next: $3" >&2
	exit "$1"
}

# netem: what is set, as tc takes it again
netem() { tc qdisc show dev eth0 root | sed -n 's/^qdisc netem .* limit [0-9]*//p' | sed 's/ seed [0-9]*//; s/ gap 1$//; s/ gap 1 / /'; }

blocked() { { nft list table inet lab 2>/dev/null || true; } | sed -n 's/.*hook \(in\|out\)put.*/\1/p' | sort | xargs; }

mtu() { cat /sys/class/net/eth0/mtu; }

is_down() { [[ $(ip link show eth0) != *[,\<]UP[,\>]* ]]; }

show() {
	local set='' ways
	[[ ! $(netem) ]] || set+=",$(netem)"
	! is_down || set+=", down"
	(($(mtu) == 1500)) || set+=", mtu $(mtu)"
	ways=$(blocked)
	[[ ! $ways ]] || set+=", block-roce ${ways/in out/(in, out)}"
	set=${set#, }
	echo "${set:-clean}"
}

# shape WORD VALUE FORM
shape() {
	local now
	now=$(netem)
	[[ $2 =~ ^$3$ ]] || die 2 "net $1 wants a value, not \"$2\"" "labs/lab net lists all, with examples"
	[[ $1 != reorder || $now == *\ delay\ * ]] || die 1 "what overtakes needs others that wait" "first labs/lab net --on $(hostname) delay 5ms"
	[[ $now != *" $1 "* ]] || die 1 "$(hostname) has$now already" "labs/lab net --on $(hostname) clean"
	# shellcheck disable=SC2086 # words
	tc qdisc replace dev eth0 root netem limit 10000 $now "$1" "$2"
}

block_roce() {
	local way ways
	ways=$(blocked)
	[[ $1 == in || $1 == out || ! $1 ]] || die 2 "net block-roce takes in or out, not \"$1\"" "without either, both are dropped"
	[[ ! $ways || ($1 && $ways != *"$1"*) ]] || die 1 "UDP 4791 is blocked already: $ways" "labs/lab net --on $(hostname) clean"
	for way in ${1:-in out}; do
		nft "add table inet lab
			add chain inet lab $way { type filter hook ${way}put priority 0; }
			add rule inet lab $way udp dport 4791 counter drop"
	done
}

# link up | down
link() {
	local now=up
	! is_down || now=down
	[[ $1 != "$now" ]] || die 1 "the link of $(hostname) is $now already" "labs/lab status"
	ip link set eth0 "$1"
}

set_mtu() {
	# shellcheck disable=SC2015 # either is a reason
	[[ $1 =~ ^[1-9][0-9]{1,3}$ ]] && (($1 >= 68 && $1 <= 9000)) && ip link set eth0 mtu "$1" || die 2 "net mtu wants 68 to 9000, not \"$1\"" "labs/lab net --on $(hostname) mtu 600"
}

clean() {
	tc qdisc del dev eth0 root 2>/dev/null || true
	nft delete table inet lab 2>/dev/null || true
	ip link set eth0 up mtu 1500
	ip neigh flush dev eth0 # the other one may have had another MAC
}

net() {
	local want=2
	case ${1:-} in
	loss | reorder | duplicate | corrupt | delay | rate | mtu) ;;
	down | up | show | clean) want=1 ;;
	block-roce) (($# == 2)) || want=1 ;;
	*) die 2 "net has no \"${1:-}\"" "labs/lab net lists all" ;;
	esac
	(($# == want)) || die 2 "net takes one thing at a time, not \"$*\"" "labs/lab net lists all, with examples"
	case $1 in
	delay) shape "$1" "$2" '[0-9]{1,6}(us|ms|s)' ;;
	rate) shape "$1" "$2" '[1-9][0-9]{0,5}[kmg]bit' ;;
	mtu) set_mtu "$2" ;;
	down | up) link "$1" ;;
	block-roce) block_roce "${2:-}" ;;
	clean) clean ;;
	show) ;;
	*) shape "$1" "$2" '(100|[0-9]{1,2}(\.[0-9]+)?)%' ;;
	esac
	echo "$(hostname): $(show)"
}

# be A | B: with MAC, address, name and rxe0
be() {
	local i=1
	[[ $1 == A ]] || i=2
	hostname "$1"
	ip link set eth0 address "52:54:00:98:00:0$i"
	ip addr add "10.98.0.$i/24" dev eth0
	ip link set eth0 up
	printf '10.98.0.1 A\n10.98.0.2 B\n' >>/etc/hosts
	"${BASH_SOURCE[0]%/vm/*}/rxe.sh" setup --netdev eth0 >/dev/null
}

"$@"
