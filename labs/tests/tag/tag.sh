# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2016
#
# tag.sh - what the suites of the hand-made tag matching share.
# shellcheck source=labs/tests/guest.sh
. "$ROOT/labs/tests/guest.sh"

# compile_unit OUTPUT [FLAG…]
compile_unit() {
	"${CC:-cc}" -std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -Icommon \
		-o "$@" labs/tests/tag/unit_tag_channel.c "$B/librdma_common.a" -libverbs -ljansson
}

# In the lab: latency NAME [SERVER-ARG…] : [CLIENT-ARG…]. Each side has a log of the spy
# of its own: of two that append to one file of the host, Linux 6.12 loses lines.
export LATENCY='
latency_server() { SPY_LOG=$T/$1.log serve "$1" "$B/tag_lat" server "${@:2}" rxe0; }
latency_client() { SPY_LOG=$T/$2.log "$1" "$2" "$B/tag_lat" client "${@:3}" 127.0.0.1 rxe1; }
latency_run() { latency_client run "$@"; }
latency() { both latency_server latency_run "$@"; }
latency_start() { latency_client start "$@" && await in_rts; }
in_rts() { (($(rdma resource show qp type RC state RTS | wc -l) == 2)); }
'
