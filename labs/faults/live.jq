# SPDX-License-Identifier: MIT
#
# live.jq - is the first cause of a report what stands on the terminals, too?
#	jq -rn --rawfile words WORDS -f live.jq REPORT...
#
# WORDS: of live.awk; REPORT: of `qptrace report --json`, of the recordings beside them.
# -> DIR > KIND ID, for each cause of the report
#    DIR said KIND ID ALL, for each terminal's word that stands
#    DIR live VERDICT
#	same	somebody names the first cause, and nobody accuses of what the report does
#		not call a failure, a stall or their aftermath; or neither accuses anybody
#	other, silent	a cause: what is named is another, or nothing is
#	hint, none	the same, but the report has no more than a hint, or nothing

def plain: gsub("pid [0-9]+|\\b[A-Z]\\b"; "X") | gsub("[0-9.]+"; "N");

($words | split("\n") | map(select(. != "") | split("\t")) | group_by(.[0])
	| map({key: .[0][0], value: .}) | from_entries) as $all
| inputs
| [.sides[].path | split("/")] as $paths
| [$paths[][-1] | split(".")[0]] as $sides
| .causes as $causes
| ($causes[0] // {} | select(.kind != "warning") // {}) as $first
| [$all[$paths[0][-2]][]? | . as $word
	| select(.[1] | . == "err" or (split(".")[0] | IN($sides[])))
	| (.[3] | plain) as $said
	| ([$causes[] | select(.cause // "" | plain | . as $c | $c != "" and ($said | endswith($c)))][0] // {id: ""})
	| {id, kind, said: $word[2], all: $word[4]}] as $live
| ($live | any(.id == $first.id)) as $named
| ($live | any(.said == "cause" and .id != $first.id
	and (.kind | IN("failure", "stall", "aftermath") | not))) as $wrong
| ($first.kind | IN("failure", "stall")) as $accuses
| ($causes[] | [">", .kind, .id]),
	($live[] | ["said", .said, .id, .all]),
	["live", if $accuses and $named and ($wrong | not) then "same"
		elif $accuses then if $live == [] then "silent" else "other" end
		elif $wrong then "none"
		elif $named or $first.id == null then "same"
		else "hint" end]
| [$paths[0][-2]] + . | @tsv
