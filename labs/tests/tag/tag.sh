# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016
#
# tag.sh - what the suites of the hand-made tag matching share.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# compile OUTPUT SOURCE… [FLAG…]
compile() {
	"${CC:-cc}" -std=gnu11 -O1 -g -Wall -Wextra -Werror -Wshadow \
		-Wconversion -Wno-sign-conversion -D_GNU_SOURCE -Icommon -o "$@"
}

# What the scripts in the lab share: latency NAME SERVER-ARGS : CLIENT-ARGS
export LATENCY='
latency_server() {
	local name=$1
	shift
	start "$name" "$B/tag_lat" server "$@"
	await listening_or_ended 18515 "$pid"
}
latency() {
	local name=$1 args=()
	shift
	while [[ $1 != : ]]; do args+=("$1") && shift; done
	shift
	latency_server "$name.server" "${args[@]}" rxe0
	run "$name.client" "$B/tag_lat" client "$@" 127.0.0.1 rxe1
	reap "$name.server"
}
in_rts() { (($(rdma resource show qp type RC state RTS | wc -l) == 2)); }
'
