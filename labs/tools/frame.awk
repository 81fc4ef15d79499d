# SPDX-License-Identifier: MIT
#
# frame.awk - the bytes of one packet, field by field, from tshark's PDML, which says
# of each field where it lies and what it means.
function quoted(name,    s) {
	if (!match($0, " " name "=\"[^\"]*\""))
		return ""
	s = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
	gsub(/&quot;/, "\"", s); gsub(/&#x27;/, "'", s)
	gsub(/&lt;/, "<", s); gsub(/&gt;/, ">", s); gsub(/&amp;/, "\\&", s)
	return s
}

# Which header a field of the layer "infiniband" is in
function header_of(name,    part) {
	split(name, part, ".")
	return part[2] in header ? header[part[2]] : "BTH"
}

BEGIN {
	title["eth"] = "Ethernet"; title["ip"] = "IPv4"; title["ipv6"] = "IPv6"
	title["udp"] = "UDP"; title["infiniband"] = "BTH"
	n = split("reth RETH aeth AETH deth DETH atomiceth AtomicETH atomicacketh " \
		  "AtomicAckETH immdt ImmDt ieth IETH invariant ICRC", pair, " ")
	for (i = 1; i < n; i += 2)
		header[pair[i]] = pair[i + 1]
	# What repeats others' bytes under another name, or sums them up
	skip = "^infiniband[.](bth|reth|aeth|deth|atomiceth|atomicacketh|payload)$|" \
	       "^(eth|ip|ipv6)[.](addr|host|[a-z]*_host|[a-z]*_resolved)$|" \
	       "^udp[.](port|payload)$"
}

/<proto / { proto = quoted("name") }

/<field / {
	name = quoted("name")
	at = quoted("pos") + 0
	bytes = quoted("unmaskedvalue") != "" ? quoted("unmaskedvalue") : quoted("value")
	payload = name == "data.data" || name ~ /rawdata/
	if (name == "ip.frag_offset") { # shares the flags' two bytes
		hex[at] = bytes
		size[at] = 2
	}
	if (name ~ /[.](hdr_len|padcnt)$/) { # and these, others' byte
		text = quoted("showname")
		sub(/^[.01 ]+ = /, "", text)
		what[at] = what[at] ", " text
	}
	if (!quoted("size") || bytes == "" || name ~ skip || at in hex || \
	    !(proto in title || payload))
		next
	hex[at] = bytes
	size[at] = quoted("size") + 0
	what[at] = payload ? size[at] " bytes" : quoted("showname")
	sub(/^[.01 ]+ = /, "", what[at])
	layer[at] = payload ? "payload" : \
		    proto == "infiniband" ? header_of(name) : title[proto]
	if (at + size[at] > end)
		end = at + size[at]
}

END {
	if (!end)
		exit 1
	printf "%4s  %-27s %-12s %s\n", "byte", "hex", "", "what"
	for (at = 0; at < end; at++) {
		if (at < done || !(at in hex))
			continue
		done = at + size[at]
		text = substr(hex[at], 1, 16)
		gsub(/../, "& ", text)
		if (size[at] > 8)
			text = text "..."
		printf "%4d  %-27s %-12s %s\n", at, text, \
			(layer[at] == last ? "" : layer[at]), what[at]
		last = layer[at]
	}
}
