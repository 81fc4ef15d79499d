# SPDX-License-Identifier: MIT
#
# Targets (make help prints them):
#   all        build the programs and the lessons into build/ (the default)
#   rebuild    clean, then all
#   test_connection  only build/test_connection and the NCCL net plugins
#   clean      remove build/
#   demo       a server and a client over a real Soft-RoCE device, side by side
#   demo-two   the same on two hosts, two lab VMs on a wire
#   test       does the course work on this machine? 5 minutes; the last line counts
#   lint       the style of the sources and the pages, a minute
#   test-long  every known failure, sanitizers, valgrind, fuzzers, graders: 50 minutes
#   quick      before a commit: lint and suites of what changed, in a minute
#   release-check  all of this, on each system: hours, and one table
#   test-distros  demo and test on minimal Debian 12, 13, sid, and in a container
#   mutants    put each known fault back and see the tests catch it
#   bench      compare our programs with perftest, iperf3 and others, as ratios
#   bench-plots  curves over size, clients, QPs, channels, events;
#              PLOTS="qps memory": only these
#   faults     make each mistake of the catalogue, see the explainer name it
#   explain-bench  sabotage other projects' programs, count the causes found
#   fuzzers    the libFuzzer targets (needs clang; labs/tests/fuzz/long_fuzz.sh)
#   english    build/english: the sources with English comments, where pages show them
#   docs       fill code, output and pictures into the READMEs and docs-zh
#   deps       install what is missing (apt, dnf or pacman)
#   install    qptrace, its report and qp_explain below PREFIX; uninstall
#   lab-up     start the lab VM (where this machine has no RDMA device)
#   lab-down   stop it
#   help       print this list
#
# Variables: CC, CFLAGS, BUILD=build (the output folder), SANITIZE=1 (ASan and
# UBSan), V=1 (show the commands), PKG_CONFIG; of install: PREFIX=/usr/local,
# LIBDIR (below it), DESTDIR.

BUILD    ?= build
CPPFLAGS += -D_GNU_SOURCE -Icommon
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wconversion -Wno-sign-conversion
ifdef FUZZ # asked for by the target "fuzzers"
CC       := clang
endif
CC_VERSION := $(shell $(CC) --version 2>/dev/null)
ifdef FUZZ
SAN      := -fsanitize=fuzzer-no-link,address,undefined \
            -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifdef SANITIZE
SAN      := -fsanitize=address,undefined -fno-sanitize-recover=all \
            -fno-omit-frame-pointer
endif
# The compiler, if it is there; what is missing is told when a recipe fails.
cc        = $(if $(CC_VERSION),$(CC),false)
or_say    = || { labs/deps.sh --check build $(if $(FUZZ),test) >&2; exit 1; }
COMPILE   = $(cc) $(CPPFLAGS) $(PKG_FLAGS) -std=gnu11 $(CFLAGS) \
            $(WARNINGS) $(SAN) $(PIC) -MMD -MP
LINK      = $(cc) $(CFLAGS) $(SAN) $(LDFLAGS)
PIC      := # what objects of shared libraries need

# The libraries are asked for where they are used, and not for "make clean". Without
# pkg-config they are looked for where the compiler looks.
PKG_CONFIG ?= pkg-config
# call library,MODULE,WITHOUT-PKG-CONFIG
library   = $(or $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null),$(2))
VERBS     = $(call library,libibverbs,-libverbs)
RDMACM    = $(call library,librdmacm,-lrdmacm)
JANSSON   = $(call library,jansson,-ljansson)
UCX       = $(call library,ucx,-lucp -lucs)
CRYPTO    = $(call library,libcrypto,-lcrypto)
ISAL      = $(call library,libisal,-lisal)
UUID      = $(call library,uuid,-luuid)
PROTOBUF  = $(call library,libprotobuf-c,-lprotobuf-c)
MSGPACK   = $(call library,msgpack-c,$(call library,msgpack,-lmsgpackc))
LDLIBS    = $(VERBS) $(JANSSON)
PKG_FLAGS = $(eval PKG_FLAGS := $$(shell \
            for m in libibverbs jansson ucx libcrypto libisal uuid msgpack-c msgpack libprotobuf-c; do \
            $(PKG_CONFIG) --cflags $$$$m; done 2>/dev/null))$(PKG_FLAGS)

ifndef V
Q := @
say = @$(if $(findstring s,$(firstword -$(MAKEFLAGS))),:,echo "  $(1)	$@")
endif

# What each recipe begins with. "sudo make" leaves files that others may not write.
may_write = @mkdir -p $(@D) 2>/dev/null; \
	for f in $(@D) $(wildcard $@ $(@:.o=.d)); do [ -w $$f ] || { \
	echo "make: $$f may not be written; was it made by sudo make?" >&2; \
	echo "make: next: sudo rm -r $(BUILD), or make BUILD=other" >&2; \
	exit 1; }; done

# What each program is made of; common/ comes to all of them as one library.
# libs_NAME: libraries that only this one needs.
PROGRAMS := rdma_server rdma_client tag_lat test_connection ucx_echo sock_echo \
            qp_explain qptrace-report faults needle_server needle \
            memory_server memory_bench lock_client kv_client \
            ring_server ring_client ud_discover \
            rdma_engine engine_client unix_pingpong epoll_echo receive_queues \
            rxe_facts sabotage innocent
LESSONS  := $(sort $(notdir $(patsubst %/,%,$(wildcard lessons/[0-9]*/))))
sources_rdma_server := server/rdma_server.c $(wildcard server/many*.c)
sources_rdma_client := client/rdma_client.c
libs_rdma_server = $(RDMACM)
libs_rdma_client = $(RDMACM)
libs_11-rdma-cm = $(RDMACM)
sources_tag_lat := client/tag_lat.c
sources_test_connection := client/test_connection.c
sources_qp_explain := $(addprefix labs/tools/,qp_explain.c qp_errno.c)
sources_rxe_facts := labs/tools/rxe_facts.c
sources_qptrace-report := $(wildcard labs/report/*.c)
objects_qptrace-report := $(BUILD)/labs/report/perfetto.pb-c.o
libs_qptrace-report = $(PROTOBUF)
sources_faults := $(wildcard labs/faults/*.c)
libs_faults = $(RDMACM)
sources_sabotage := $(addprefix labs/faults/saboteur/,sabotage.c rule.c)
sources_innocent := labs/faults/bench/innocent.c
sources_ucx_echo := client/ucx_echo.c client/echo.c
sources_sock_echo := client/sock_echo.c client/echo.c
libs_ucx_echo = $(UCX) $(CRYPTO)
sources_needle_server := $(wildcard server/needle_*.c) server/peers.c
libs_needle_server = $(ISAL)
sources_memory_server := server/memory_server.c server/peers.c
sources_memory_bench := client/memory_bench.c
sources_lock_client := client/lock_client.c
sources_kv_client := client/kv_client.c
libs_kv_client = $(ISAL)
sources_ring_server := server/ring_server.c server/peers.c
libs_ring_server = $(ISAL)
sources_ud_discover := client/ud_discover.c client/ud_notes.c
sources_ring_client := client/ring_client.c
libs_ring_client = $(ISAL)
sources_needle := $(wildcard client/needle*.c)
libs_needle = $(ISAL)
sources_rdma_engine := server/rdma_engine.c
sources_unix_pingpong := labs/tools/unix_pingpong.c
sources_epoll_echo := labs/tools/epoll_echo.c
sources_receive_queues := labs/tools/receive_queues.c
sources_engine_client := $(wildcard client/engine_*.c)
libs_rdma_engine = $(MSGPACK) $(UUID) $(CRYPTO) $(ISAL)
libs_engine_client = $(libs_rdma_engine)
libs_14-rdma-engine = $(libs_rdma_engine)
$(foreach l,$(LESSONS),$(eval sources_$(l) := lessons/lesson.c $(wildcard lessons/$(l)/*.c)))
# Lesson 00 is one file, which asks nothing of lesson.c or common/.
sources_00-first-message := lessons/00-first-message/first.c

# The teaching NCCL net plugin, and one whose handles differ between the API
# versions, which lesson 06 needs to show what mixing them does.
PLUGINS  := libnccl-net-lab.so libnccl-net-mixed.so

.PHONY: all
all: $(addprefix $(BUILD)/,$(PROGRAMS) $(LESSONS) $(PLUGINS) libqptrace.so \
     libsaboteur.so)

.PHONY: test_connection
test_connection: $(BUILD)/test_connection $(addprefix $(BUILD)/,$(PLUGINS))

define program
$(BUILD)/$(1): $(patsubst %.c,$(BUILD)/%.o,$(sources_$(1))) \
		$(objects_$(1)) $(BUILD)/librdma_common.a
	$$(may_write)
	$$(call say,LD)
	$$(Q)$$(LINK) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) \
		$$(libs_$(1)) $$(LDLIBS) $$(or_say)
endef
$(foreach p,$(PROGRAMS) $(LESSONS),$(eval $(call program,$(p))))

$(BUILD)/librdma_common.a: $(patsubst %.c,$(BUILD)/%.o,$(wildcard common/*.c common/*/*.c))
	$(may_write)
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

define compile
	$(may_write)
	$(call say,CC)
	$(Q)$(COMPILE) -c -o $@ $< $(or_say)
endef
$(BUILD)/%.o: %.c
	$(compile)

# What protobuf-c makes of a .proto is not ours to be warned of.
$(BUILD)/%.pb-c.c: %.proto
	$(may_write)
	$(Q)protoc-c --c_out=$(@D) --proto_path=$(<D) $(<F) $(or_say)
$(BUILD)/labs/report/perfetto.o: $(BUILD)/labs/report/perfetto.pb-c.c
$(BUILD)/labs/report/perfetto.o: CPPFLAGS += -I$(BUILD)/labs/report
$(BUILD)/labs/report/perfetto.pb-c.o: $(BUILD)/labs/report/perfetto.pb-c.c
	$(may_write)
	$(call say,CC)
	$(Q)$(COMPILE) -w -c -o $@ $< $(or_say)

# Objects of shared libraries, which show nothing but what they say.
$(BUILD)/pic/%.o: PIC = -fPIC -fvisibility=hidden
$(BUILD)/pic/%.o: %.c
	$(compile)

# call shared,LINKER'S-FLAGS
define shared
	$(may_write)
	$(call say,SO)
	$(Q)$(cc) $(CFLAGS) $(SAN) -shared $(1) -o $@ $(filter %.o,$^) $(or_say)
endef

# A plugin stands alone: NCCL has neither librdma_common nor libibverbs.
NET := $(patsubst %.c,$(BUILD)/pic/%.o,$(wildcard labs/nccl-net/*.c))
$(BUILD)/libnccl-net-lab.so: $(NET)
$(BUILD)/libnccl-net-mixed.so: $(NET:/connect.o=/connect-mixed.o)
$(addprefix $(BUILD)/,$(PLUGINS)):
	$(shared)
$(BUILD)/pic/%-mixed.o: PIC += -DLAB_DIFFERING_HANDLES
$(BUILD)/pic/%-mixed.o: %.c
	$(compile)

# The recorder is preloaded into anything: it shows nothing but what it wraps, and
# brings no library along (the program's own libibverbs is the one to talk to).
# Always -O2: dlsym's wrapper has to pass calls on without a trace (dl.c).
TRACE := $(patsubst %.c,$(BUILD)/pic/%.o,$(wildcard labs/recorder/*.c) \
         $(filter-out common/explain/switch.c common/explain/failed.c, \
         $(wildcard common/explain/*.c)) \
         $(addprefix common/base/,call_failed.c report.c verbs_names.c))
$(TRACE): PIC += -O2
$(TRACE) $(BUILD)/libqptrace.so: SAN =
$(BUILD)/libqptrace.so: $(TRACE) labs/recorder/qptrace.map
	$(call shared,-z defs -Xlinker --version-script=$(lastword $^))

# Told again after each commit; a copy without git has none.
$(BUILD)/version: $(wildcard .git/logs/HEAD)
	$(may_write)
	@{ git --git-dir=.git describe --tags --always 2>/dev/null || \
		echo unknown; } >$@
$(BUILD)/libqptrace.so: | $(BUILD)/version
$(BUILD)/labs/tools/qp_explain.o: $(BUILD)/version
$(BUILD)/labs/tools/qp_explain.o: \
	CPPFLAGS += -DVERSION='"$(shell cat $(BUILD)/version)"'

# What others need of this tree: to record a program, and to read the recording. The
# private files lie together, where the script finds them beside itself.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib$(addprefix /,$(shell $(cc) -print-multiarch 2>/dev/null))
OWN    := $(BUILD)/libqptrace.so $(BUILD)/qptrace-report $(BUILD)/version \
          labs/report/report.html labs/qptrace
PAGES  := $(wildcard labs/install/*.1)
COMMANDS := qptrace qp_explain
completions := share/bash-completion/completions
installed = $(addprefix $(DESTDIR)$(PREFIX)/,$(COMMANDS:%=bin/%) \
            $(COMMANDS:%=$(completions)/%) $(PAGES:labs/install/%=share/man/man1/%)) \
            $(addprefix $(DESTDIR)$(LIBDIR)/qptrace/,$(notdir $(OWN)))

.PHONY: install uninstall
install: $(OWN) $(BUILD)/qp_explain
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin $(completions) share/man/man1) \
		$(DESTDIR)$(LIBDIR)/qptrace
	install -m 644 $(filter %/libqptrace.so %/version %.html,$(OWN)) \
		$(DESTDIR)$(LIBDIR)/qptrace
	install $(BUILD)/qptrace-report labs/qptrace $(DESTDIR)$(LIBDIR)/qptrace
	install $(BUILD)/qp_explain $(DESTDIR)$(PREFIX)/bin
	ln -sfr $(DESTDIR)$(LIBDIR)/qptrace/qptrace $(DESTDIR)$(PREFIX)/bin/qptrace
	install -m 644 $(PAGES) $(DESTDIR)$(PREFIX)/share/man/man1
	for name in $(COMMANDS); do install -m 644 labs/install/completion.bash \
		$(DESTDIR)$(PREFIX)/$(completions)/$$name || exit; done
uninstall:
	rm -f $(installed)
	-[ ! -d $(DESTDIR)$(LIBDIR)/qptrace ] || rmdir $(DESTDIR)$(LIBDIR)/qptrace
# The saboteur is preloaded before the recorder; it, too, brings no library along.
SABOTEUR := $(patsubst %.c,$(BUILD)/pic/%.o,$(filter-out %/sabotage.c, \
            $(wildcard labs/faults/saboteur/*.c)))
$(SABOTEUR) $(BUILD)/libsaboteur.so: SAN =
$(BUILD)/libsaboteur.so: $(SABOTEUR)
	$(call shared,-z defs)

.PHONY: rebuild
rebuild:
	$(MAKE) clean
	$(MAKE) all

.PHONY: clean
clean:
	@rm -rf $(BUILD) 2>/dev/null || { \
	echo "make: $(BUILD) cannot be removed; was it made by sudo make?" >&2; \
	echo "make: next: sudo rm -r $(BUILD)" >&2; exit 1; }

# The fuzzers have objects of their own: each is instrumented for libFuzzer.
libs_fuzz_needle_store = $(ISAL)
libs_fuzz_needle_catalog = $(ISAL)
libs_fuzz_engine_proto = $(MSGPACK)
FUZZERS := $(patsubst labs/tests/fuzz/%.c,%,$(wildcard labs/tests/fuzz/fuzz_*.c))
.PHONY: fuzzers
fuzzers:
	$(MAKE) FUZZ=1 BUILD=$(BUILD)/fuzz $(FUZZERS:%=$(BUILD)/fuzz/%)

.SECONDARY: $(FUZZERS:%=$(BUILD)/labs/tests/fuzz/%.o)
$(BUILD)/fuzz_%: $(BUILD)/labs/tests/fuzz/fuzz_%.o $(BUILD)/librdma_common.a
	$(call say,LD)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $^ $(libs_fuzz_$*) $(LDLIBS) \
		$(or_say)

# What follows needs more than a compiler: the first step installs it. What cannot
# be had on this system (77) has been named; the rest goes on without. As many
# compilers as CPUs, unless somebody has said how many.
jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))
deps = labs/deps.sh $(1) || [ $$? -eq 77 ]
.PHONY: deps
deps:
	@$(call deps,build lab test)

# Only what it runs: the VM starts while the compiler works.
.PHONY: demo demo-two
demo demo-two:
	@$(call deps,build lab)
	$(MAKE) $(jobs) $(addprefix $(BUILD)/,rdma_server rdma_client \
		00-first-message) $(if $(filter demo,$@),lab-up)
	labs/demo $(if $(filter %two,$@),--two)

.PHONY: test
test: deps
	$(MAKE) $(jobs) all
	labs/tests/run

.PHONY: lint
lint:
	@$(call deps,build dev)
	$(MAKE) $(jobs) all
	labs/tests/lint

.PHONY: test-long
test-long:
	@$(call deps,build lab test dev arm64)
	$(MAKE) $(jobs) all
	labs/tests/run --long

.PHONY: quick
quick:
	$(MAKE) $(jobs) all
	labs/tests/quick

.PHONY: release-check
release-check:
	labs/tests/release

.PHONY: test-distros
test-distros:
	labs/tests/distros

.PHONY: bench
bench:
	@$(call deps,build lab bench)
	$(MAKE) $(jobs) all
	labs/bench

.PHONY: bench-plots
bench-plots:
	@$(call deps,build lab bench)
	$(MAKE) $(jobs) all
	labs/bench --json growth $(PLOTS) >build/growth.json
	labs/tools/plots keep <build/growth.json
	labs/tools/pictures fill labs/bench.md

.PHONY: faults
faults:
	@$(call deps,build lab)
	$(MAKE) $(jobs) all
	labs/faults/run

.PHONY: explain-bench
explain-bench:
	@$(call deps,build lab test)
	$(MAKE) $(jobs) all
	labs/faults/explain-bench
	labs/faults/explain-bench --reports

.PHONY: mutants
mutants: deps
	$(MAKE) $(jobs) all
	labs/tests/mutants/run

.PHONY: english
english:
	labs/tools/english $(BUILD)/english

.PHONY: docs
docs: deps
	$(MAKE) $(jobs) all
	labs/docs fill

.PHONY: lab-up lab-down
lab-up:
	@$(call deps,build lab)
	labs/lab up
lab-down:
	labs/lab down

.PHONY: help
help:
	@sed -n 's/^#   //p' Makefile

# For the tests: a variable's value
print-%:
	@echo '$($*)'

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
