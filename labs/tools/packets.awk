# SPDX-License-Identifier: MIT
#
# packets.awk - one line a packet, from the fields that labs/tools/packets asks
# tshark for. Opcodes: IBTA 9.2.1; syndromes and RNR timers: IBTA 9.7.5.
BEGIN {
	split("SEND_FIRST SEND_MIDDLE SEND_LAST SEND_LAST_WITH_IMM SEND_ONLY SEND_ONLY_WITH_IMM " \
	      "WRITE_FIRST WRITE_MIDDLE WRITE_LAST WRITE_LAST_WITH_IMM WRITE_ONLY WRITE_ONLY_WITH_IMM " \
	      "READ_REQUEST READ_RESPONSE_FIRST READ_RESPONSE_MIDDLE READ_RESPONSE_LAST READ_RESPONSE_ONLY " \
	      "ACK ATOMIC_ACK COMPARE_SWAP FETCH_ADD RESYNC SEND_LAST_WITH_INV SEND_ONLY_WITH_INV", names, " ")
	split("RC UC RD UD", transports, " ")
	split("655.36 0.01 0.02 0.03 0.04 0.06 0.08 0.12 0.16 0.24 0.32 0.48 0.64 0.96 1.28 1.92 2.56 " \
	      "3.84 5.12 7.68 10.24 15.36 20.48 30.72 40.96 61.44 81.92 122.88 163.84 245.76 327.68 491.52", rnr, " ")
	# Connection manager, IBTA 16.7.3
	split("REQ MRA REJ REP RTU DREQ DREP SIDR_REQ SIDR_REP", cm, " ")
	for (i = 1; i <= 9; i++) message[sprintf("0x%04x", 15 + i)] = cm[i]
	split("PSN sequence error,invalid request,remote access error,remote operational error", naks, ",")
}

# What stands between UDP header and payload, and the ICRC behind it
function headers(op, kind,    n) {
	n = 8 + 12 + 4
	if (kind == "UD") n += 8
	if (op ~ /^(WRITE_(FIRST|ONLY)|READ_REQUEST)/) n += 16
	if (op ~ /ACK$|READ_RESPONSE_(FIRST|LAST|ONLY)/) n += 4
	if (op == "ATOMIC_ACK") n += 8
	if (op ~ /COMPARE_SWAP|FETCH_ADD/) n += 28
	if (op ~ /WITH_I/) n += 4
	return n
}

function answer(syndrome,    kind, low) {
	kind = int(syndrome / 32) % 4
	low = syndrome % 32
	if (kind == 0) return ""
	if (kind == 1) return "RNR NAK: retry after " rnr[low + 1] " ms"
	if (kind == 3) return "NAK: " (low < 4 ? naks[low + 1] : "code " low)
	return "syndrome " syndrome
}

{
	kind = transports[int($7 / 32) + 1]
	op = names[$7 % 32 + 1]
	bytes = $11 - headers(op, kind) - $12
	what = op == "" ? "opcode " $7 : kind " " op
	said = $13 == "" ? "" : answer($13)
	if (said != "") what = kind " " said
	if ($16 != "") bytes = $16
	if (bytes > 0) what = what ", " bytes " bytes"
	if ($14 != "") what = what " at 0x" hex($14) ", rkey 0x" hex($15)
	if ($17 != "") what = what ", immediate 0x" hex($17)
	if ($8 ~ /0x0*1$/ && $18 in message) what = "CM " message[$18] " (" kind " " op ")"
	else if ($10 ~ /^(1|True)$/) what = what ", wants an ACK"
	if (!shown++)
		printf "%4s %10s  %-23s %-9s %-8s  %s\n", "#", "ms", "from > to", "QP", "PSN", "packet"
	printf "%4d %10.3f  %-23s %-9s 0x%06x  %s\n", $1, $2 * 1000, \
		$3 $5 " > " $4 $6, $8, $9, what
}

END {
	if (!shown)
		print "no packets: what a device sends to itself, or what is dropped before it, is not on the wire"
}

function hex(s) { sub(/,.*/, "", s); sub(/^0x/, "", s); gsub(/:/, "", s); sub(/^0+/, "", s); return s == "" ? "0" : s }
