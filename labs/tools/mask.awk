# SPDX-License-Identifier: MIT
#
# mask.awk - replace what changes from run to run by "#", and runs of blanks,
# whose length follows from it, by one. Lines that show a command stay as they
# are. For labs/docs, which compares the output in a page with that of a run.
function unit(s) { # a time or a rate stands at the start of s
	return s ~ /^ ?(ns|us|µs|ms|s|sec|secs|seconds?)([^A-Za-z0-9_\/]|$)/ ||
		s ~ /^ ?[kKMGT]?i?(B|b|bit|bits|bytes)\/s/ ||
		s ~ /^ ?[kKMG]?(msgs?|messages|ops|pps|packets)\/s/
}
function volatile(token, before, after) {
	# PSN, keys, addresses and pids; also as bytes ("psn 00 1f 2e").
	if (before ~ secret "$" && token ~ /^[0-9]+$/) return "#"
	if (before ~ secret "(# )*$" && token ~ /^[0-9a-f][0-9a-f]$/)
		return "#"
	if (token ~ /^0[xX][0-9a-fA-F]+$/) {
		if (before ~ constant "$") return token
		t = token
		sub(/^0[xX]0*/, "", t)
		return length(t) > 2 ? "0x#" : token
	}
	if (token ~ /^[0-9]+\.[0-9]+[A-Za-z%]*$/) {
		match(token, /^[0-9.]+/)
		return "#" substr(token, RLENGTH + 1)
	}
	if (token ~ /^[0-9]+$/ && (unit(after) || before ~ timed "$"))
		return "#"
	if (token ~ /^[1-9][0-9]*$/ && before ~ counter "$")
		return "#" # but none at all is worth knowing
	if (token ~ /^[0-9]+$/ && before ~ /[0-9]\.[0-9]+\.[0-9]+:$/)
		return "#" # a TCP port after an address
	if (token ~ /^[0-9]+$/ && before ~ /[a-z]\.[ch]:$/)
		return "#" # a line of a source: it moves with every line before it
	if (token ~ /^[0-9]+\.qpt$/ && before ~ /qptrace-.*-$/)
		return "#.qpt" # a pid
	if (token ~ /^[0-9]+(ns|us|ms|s)$/ ||
	    (token ~ /^[0-9]+[kKMGT]?i?(B|b|bit|bits)$/ && after ~ /^\/s/)) {
		sub(/^[0-9]+/, "#", token)
		return token
	}
	return token
}
function masked(s, out, token, tail) {
	out = ""
	while (match(s, /[0-9A-Za-z_.%]+/)) {
		out = out substr(s, 1, RSTART - 1)
		token = substr(s, RSTART, RLENGTH)
		s = substr(s, RSTART + RLENGTH)
		tail = ""
		while (token ~ /\.$/) {
			token = substr(token, 1, length(token) - 1)
			tail = tail "."
		}
		# 1.2e-05
		if (token ~ /^[0-9]+(\.[0-9]+)?[eE]$/ &&
		    match(s, /^[-+][0-9]+/)) {
			s = substr(s, RLENGTH + 1)
			token = "#"
		} else
			token = volatile(token, out, s)
		out = out token tail
	}
	return out s
}
BEGIN {
	secret = "(psn|PSN|[lr]key|LKEY|RKEY|addr|pid|PID|[lr]_key)[\" :=]*"
	constant = "(magic|mask|flags|access|wr_id|version)[\" :=]*"
	counter = "((sent_pkts|rcvd_pkts|rdma_sends|rdma_recvs)[\" :=]*|" \
		"(_pkts|completer_retry_err|out_of_seq_request|duplicate_request) *[+])" # 09-two-hosts
	timed = "_(ns|us|ms|s|secs?|seconds)[\" :=]*"
	h4 = "[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
	uuid = h4 h4 "-" h4 "-" h4 "-" h4 "-" h4 h4 h4
}
/^\$ / || /^> / { print; next }
# A frame byte by byte (labs/lab capture --frame): what each packet has of its own
/^ *[0-9]+ +([0-9a-f][0-9a-f] )+/ && /Identification|Checksum|Source Port|Sequence Number|CRC/ {
	match($0, /^ *[0-9]+ +/)
	bytes = substr($0, RLENGTH + 1)
	sub(/^([0-9a-f][0-9a-f] )+/, "# ", bytes)
	$0 = substr($0, 1, RLENGTH) bytes
	sub(/: .*/, ": #")
}
{ gsub(uuid, "#"); gsub(/[ \t]+/, " "); $0 = masked($0); gsub(/ +/, " "); print }
