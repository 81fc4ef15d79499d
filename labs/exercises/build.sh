# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154
#
# build.sh - for judge.sh: what the exercises need of the tree, and the real programs with
# the learner's stage inside.

# limited CMD…: the compiler, too, may be given what makes it run for ever
limited() {
	(
		ulimit -c 0 -t 20 -v 3000000 -f 65536
		exec timeout -k 1 20 "$@"
	)
}

# need_programs: what the exercise in $folder wants of the tree, made if anything is newer
need_programs() {
	local made=$root/build/exercise/made.${folder##*/}
	local source
	source=$(exercise_source "$folder")
	mkdir -p "$root/build/exercise"
	(
		load_exercise
		flock 9
		[[ ! -e $made || ! -e $root/build/libqptrace.so || -n $(find "$root"/{common,server,client,lessons,labs/recorder,labs/nccl-net,labs/exercises,labs/tests/spy.{c,h},labs/tests/spy_verbs.c,labs/tests/kept.c,labs/tests/peer.c,labs/tests/tcpx,Makefile} \
			-newer "$made" \( -name '*.[ch]' -o -name Makefile -o -name build.sh \) -print -quit) ]] || exit 0
		cd "$root" || exit
		echo "exercise: building the programs of the tree" >&2
		"$root/labs/deps.sh" --check build lab >&2 || labs/deps.sh build lab >&2 || exit 77
		# shellcheck disable=SC2046 # names
		make -s build/lib{qptrace.so,rdma_common.a} $(tree_makes "${helpers[@]}"
			[[ $stands_alone ]] || tree_makes "${programs[@]}") >&2 || exit 1
		make_helpers && make_later && touch "$made"
	) 9>"$root/build/exercise/lock"
}

# need_vm: the first one of a machine fetches a kernel and is saved, before the clocks
# of a test run
need_vm() {
	local made=$root/build/exercise/made.vm
	(
		flock 9
		[[ ! -e $made ]] || exit 0
		"$root/labs/lab" run --counted --tree "$root/build/exercise" -- true >&2 </dev/null && touch "$made"
	) 9>"$root/build/exercise/lock"
}

# our_source NAME: of a program that only the exercises build
our_source() { compgen -G "$root/labs/exercises/$1.c" || compgen -G "$root/labs/tests/tag/$1.c" || :; }

# tree_makes NAME…: those that the Makefile knows; the lessons, too
tree_makes() {
	local name
	for name; do
		case $name in
		net_shim.so) ;;
		*) [[ $(our_source "$name") ]] || echo "build/$name" ;;
		esac
	done
}

# make_helpers: what only the exercises need, into build/exercise
make_helpers() {
	local cc=${CC:-cc} to=build/exercise name
	"$cc" -D_GNU_SOURCE -DSPY_FREE -O2 -fPIC -shared -o $to/spy.so labs/tests/spy.c labs/tests/spy_verbs.c &&
		"$cc" -D_GNU_SOURCE -O2 -fPIC -shared -o $to/kept.so labs/tests/kept.c &&
		"$cc" -D_GNU_SOURCE -O2 -o $to/peer labs/tests/peer.c -lisal &&
		"$cc" -O1 -o $to/idle labs/exercises/idle.c &&
		"$cc" -D_GNU_SOURCE -O1 -static -o $to/confine labs/exercises/confine.c &&
		"$cc" -O1 -g -c -o $to/crash.o labs/exercises/crash.c || return
	for name in "${programs[@]}"; do
		[[ ! $(our_source "$name") ]] ||
			"$cc" -D_GNU_SOURCE -Icommon -std=gnu11 -O1 -g -c -o "$to/$name.o" "$(our_source "$name")" || return
	done
	[[ " ${helpers[*]} " != *' cm_stranger '* ]] ||
		"$cc" -O1 -o $to/cm_stranger labs/exercises/cm_stranger.c -lrdmacm -libverbs || return
	[[ " ${helpers[*]} " != *' net_shim.so '* ]] ||
		"$cc" -D_GNU_SOURCE -Icommon -std=gnu11 -O1 -fPIC -fvisibility=hidden -shared -o $to/net_shim.so \
			labs/tests/tcpx/net_shim.c labs/tests/tcpx/net_shim_tables.c
}

# rest_of STAGE: the library without what the exercise is of, so that what the learner
# leaves out is missing
rest_of() {
	local rest=$root/build/exercise/without-$1.a parts
	[[ ! $stands_alone ]] || return 0
	(
		flock 9
		[[ ! -e $rest || $root/build/librdma_common.a -nt $rest ]] || exit 0
		exercise_parts "$folder" && parts=("${parts[@]##*/}")
		cp "$root/build/librdma_common.a" "$rest.new" &&
			ar d "$rest.new" "${parts[@]/%.c/.o}" && mv "$rest.new" "$rest"
	) 9>"$root/build/exercise/lock"
	echo "$rest"
}

# objects_of PROGRAM: sets $objects, what it is made of beside the stage
objects_of() {
	local at
	objects=()
	[[ ! $stands_alone ]] || return 0
	for at in exercise server client; do
		objects=("$root/build/$at/$1.o")
		[[ ! -f ${objects[0]} ]] || {
			case $1 in
			rdma_server) objects+=("$root"/build/server/many*.o) ;;
			ud_discover) objects+=("$root/build/client/ud_notes.o") ;;
			esac
			return
		}
	done
	objects=("$root"/build/lessons/lesson.o "$root/build/lessons/$1"/*.o)
}

# compile FOLDER: the stage in FOLDER/src, into FOLDER/stage.o; what the compiler says into
# FOLDER/compiler. What is not initialized is no zero by luck. A stage with the names of
# before (former.h) gets those of now.
compile() {
	local cc=${CC:-cc} flags pattern=-ftrivial-auto-var-init=pattern assembler='' former='' names
	flags=$(pkg-config --cflags libibverbs 2>/dev/null)
	"$cc" $pattern -E -x c /dev/null >/dev/null 2>&1 || pattern=''
	[[ $("$cc" --version) != *clang* ]] || assembler=-fno-integrated-as
	names=$(sed -n 's/^#define \([a-z_]*\)[[:space:]]*\([a-z_]*\)$/\2 \1/p' "$root/labs/exercises/former.h")
	# Of a stage that uses librdmacm, rdma_create_qp is librdmacm's.
	[[ $stands_alone ]] || ! grep -qwf <(cut -d' ' -f1 <<<"$names") "$1/src/$stage_file" ||
		grep -q rdma_cma.h "$1/src/$stage_file" ||
		former="-include $root/labs/exercises/former.h"
	# shellcheck disable=SC2086 # lists
	(cd "$1/src" && TMPDIR=$1 limited "$cc" -D_GNU_SOURCE -I"$root/common" -I"$root/$(dirname "$source")" $flags $former -std=gnu11 \
		-O1 -g -fno-omit-frame-pointer $pattern $assembler -fdiagnostics-color=never -Wall -Wextra -Wno-unused \
		-Wno-unused-parameter -Wno-missing-field-initializers -MD -MF ../included -Wa,--MD,../assembled \
		-c -o ../stage.o "$stage_file") >"$1/compiler" 2>&1 || return
	[[ ! $former ]] || objcopy --redefine-syms=<(echo "$names") "$1/stage.o"
}

# tokens_of FILE: its code, without comments and layout
tokens_of() { "${CC:-cc}" -fpreprocessed -dD -E -P -x c "$1" 2>/dev/null | tr -d '[:space:]'; }

# make_later: an object with the course's own functions, for those that came to the stage
# after it had been written elsewhere; they call the learner's
make_later() {
	local made=$root/build/exercise/own.$stage_file
	mkdir -p "$made/src" && cp "$root/$source" "$made/src/$stage_file" && compile "$made" &&
		objcopy --weaken "$made/stage.o" "$made/later.o"
}

# functions_of FILE.o
functions_of() { nm -g --defined-only -f posix "$1" | cut -d' ' -f1 | sort; }

# later_than STAGE.o: that object, if it lacks those of $later and no other
later_than() {
	local own=$root/build/exercise/own.$stage_file/later.o lacks
	[[ ${later:-} ]] || return 0
	lacks=$(comm -23 <(functions_of "$own") <(functions_of "$1"))
	[[ ! $lacks || $(tr ' ' '\n' <<<"$later" | comm -13 - <(echo "$lacks")) ]] || echo "$own"
}

# borrowed: why what was compiled into $box is not the learner's own; "" if it is. What is
# mended (broken.sed) may well become what it was.
borrowed() {
	local file flags here
	flags=$(pkg-config --cflags-only-I libibverbs 2>/dev/null)
	here=$(realpath "$box")
	while IFS= read -r file; do
		case $file in
		"$here/src/$stage_file" | "$here"/*.s | "$root"/common/*.h | "$root/${source%/*}"/*.h | "$root"/labs/exercises/former.h) ;;
		/usr/include/*.h | /usr/lib/linux/uapi/*.h | /usr/lib/gcc/*.h | /usr/lib/llvm*.h | /usr/lib/clang/*.h | /usr/local/include/*.h) ;;
		*) [[ $file == *.h && " $flags " == *" -I${file%/*} "* ]] || {
			say "$stage_file is made of ${file/#"$root/"/}, which was not handed in" \
				"$stage_file 用了没有交上来的 ${file/#"$root/"/}"
			return
		} ;;
		esac
	done < <(cd "$box/src" && sed -z 's/\\\n/ /g; s/\(^\|\n\)[^ ]*: /\1/g' ../included ../assembled 2>/dev/null | tr -d '\0' | xargs realpath -m -- 2>/dev/null)
	[[ ${trusted:-} || -e $folder/broken.sed || $(tokens_of "$box/src/$stage_file") != "$(tokens_of "$root/$source")" ]] ||
		say "$stage_file is ${source}, which the course brings along" "$stage_file 就是课程自带的 ${source}"
}

# build_learner FILE: into $box/bin; what the compiler says into $box/compiler
build_learner() {
	local cc=${CC:-cc} rest program libs
	local objects jobs=() job rc=0 later_objects
	libs=$(libraries)
	rest=$(rest_of "${stage_file%.c}")
	mkdir -p "$box/src" "$box/bin"
	head -c 1000000 "$1" >"$box/src/$stage_file"
	compile "$box" || return 1
	borrowed >"$box/borrowed"
	[[ ! -s $box/borrowed ]] || return 1
	later_objects=$(later_than "$box/stage.o")
	for program in "${programs[@]}"; do
		objects_of "$program"
		# shellcheck disable=SC2086 # a list
		limited "$cc" -fno-lto -no-pie -g -o "$box/bin/$program" "${objects[@]}" "$box/stage.o" ${later_objects:+"$later_objects"} \
			"$root/build/exercise/crash.o" ${rest:+"$rest"} $libs >"$box/linker.$program" 2>&1 &
		jobs+=($!)
	done
	for job in "${jobs[@]}"; do
		wait "$job" || rc=1
	done
	cat "$box/linker.${programs[0]}" >>"$box/compiler"
	((rc == 0)) || cat "$box"/linker.* >>"$box/compiler"
	return "$rc"
}

# The first lines of what the compiler says, with the learner's own line numbers; of the
# linker only what is missing, or there twice
complaint() {
	sed -n "s|.*\(undefined reference to .*\)|\1|p; s|.*\(multiple definition of [^;]*\).*|\1|p
		/: \(fatal \)\{0,1\}error: \|: warning: /{s|[^ ]*/src/||g; p}" "$box/compiler" |
		sed "s|$root/||g" | awk '!seen[$0]++' | sort -st: -k2,2n | head -n "${1:-3}"
}
