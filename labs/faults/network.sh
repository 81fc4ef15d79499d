#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# network.sh NAME - in the lab's VM: break the network or the device, for the catalogue's
# A (rxe0, veth0). Others source it: break_net NAME [END], mend.

# break_net NAME [END]: seen from who posts requests, on rxe0 (END 0) or rxe1
break_net() {
	local i=${2:-0} j=$((1 - ${2:-0}))
	case $1 in
	firewall) nft 'add table inet wall; add chain inet wall in { type filter hook input priority 0; }; add rule inet wall in udp dport 4791 drop' ;;
	loss) tc qdisc add dev "veth$i" root netem loss 100% ;;
	way-back) tc qdisc add dev "veth$j" root netem loss 100% ;;
	cable) ip link set "veth$j" down ;;
	own-link) ip link set "veth$i" down ;;
	mtu) ip link set "veth$i" mtu 1500 ;;
	wrong-mac) ip neigh replace "10.99.0.$((j + 1))" lladdr 02:99:00:00:00:99 dev "veth$i" ;;
	dead-gateway) ip route add 192.99.0.0/24 via 10.99.0.88 dev "veth$i" ;;
	unreachable) ip route add unreachable 192.99.0.0/24 ;;
	# The GID goes a little later.
	no-address) ip addr del "10.99.0.$((i + 1))/24" dev "veth$i" && sleep 1 ;;
	no-device) rdma link del rxe0 && rdma link del rxe1 ;;
	no-node) mv /dev/infiniband /dev/elsewhere ;;
	not-permitted) chmod 600 /dev/infiniband/uverbs* ;;
	esac
}

# What a link that goes down takes with it is put back as labs/rxe.sh has made it.
mend() {
	local i j
	{
		nft delete table inet wall
		ip route del 192.99.0.0/24
		mv /dev/elsewhere /dev/infiniband
		chmod 666 /dev/infiniband/uverbs*
		for i in 0 1; do
			tc qdisc del dev "veth$i" root
			rdma link show "rxe$i" || rdma link add "rxe$i" type rxe netdev "veth$i"
		done
	} >/dev/null 2>&1 || true
	for i in 0 1; do
		j=$((2 - i))
		ip link set "veth$i" mtu 4200 up
		ip addr replace "10.99.0.$((i + 1))/24" dev "veth$i"
		ip route replace "10.99.0.$j" dev "veth$i" src "10.99.0.$((i + 1))"
		ip neigh replace "10.99.0.$j" lladdr "02:99:00:00:00:0$j" dev "veth$i"
		ip neigh replace "fe80::99:ff:fe00:$j" lladdr "02:99:00:00:00:0$j" dev "veth$i"
	done
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || break_net "$@"
