# SPDX-License-Identifier: MIT
#
# includes.awk - who of common/ includes whom, of lines "FILE:#include \"HEADER\"": a line
# for each violation. floors: as for floors.awk.
BEGIN {
	FS = "[:\"]"
	n = split(floors, word, /[ \n]+/)
	for (i = 1; i < n; i += 2)
		floor[word[i]] = i
	floor["rdma_common"] = floor["device"] # it declares the stages
}

# The room of a path below common/: its folder, or a stage itself.
function room_of(path) {
	sub(/^common\//, "", path)
	sub(/(\/.*|\.[ch])$/, "", path)
	return path
}

{
	room = room_of($1)
	other = $3 ~ /\// || $3 == "rdma_common.h" ? room_of($3) : room
}

floor[other] > floor[room] {
	print $1 " includes " $3 ", which stands above it. Move what both need down."
}

other != room && $3 ~ /\/parts\.h$/ {
	print $1 " includes " $3 ", which is for its room alone. Declare it in another header."
}
