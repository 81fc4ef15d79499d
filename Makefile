# SPDX-License-Identifier: MIT
#
#   make            build everything into build/
#   make demo       a server and a client over a real Soft-RoCE device
#   make test       every test; the last line counts them
#   make help       all targets
#
# Variables: CC, BUILD (default build), SANITIZE=1 (ASan and UBSan).

BUILD    ?= build
CC       ?= gcc
CPPFLAGS := -D_GNU_SOURCE -Icommon
CFLAGS   ?= -O2 -g
CFLAGS   += -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wconversion \
            -Wno-sign-conversion -MMD -MP
ifdef SANITIZE
CFLAGS   += -fsanitize=address,undefined -fno-sanitize-recover=all \
            -fno-omit-frame-pointer
LDFLAGS  += -fsanitize=address,undefined
endif
LDLIBS   := -libverbs -ljansson

COMMON_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard common/*.c))
PROGRAMS    := $(patsubst server/%.c,$(BUILD)/%,$(wildcard server/*.c)) \
               $(patsubst client/%.c,$(BUILD)/%,$(wildcard client/*.c))
LESSONS     := $(sort $(notdir $(wildcard lessons/[0-9]*)))
LESSON_BINS := $(addprefix $(BUILD)/,$(LESSONS))

.PHONY: all
all: $(PROGRAMS) $(LESSON_BINS)

$(BUILD)/librdma_common.a: $(COMMON_OBJS)
	$(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/rdma_server: $(BUILD)/server/rdma_server.o
$(BUILD)/rdma_client: $(BUILD)/client/rdma_client.o
$(PROGRAMS): $(BUILD)/librdma_common.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)

# A lesson is a folder: its program has the folder's name.
define lesson_rule
$(BUILD)/$(1): $(patsubst %.c,$(BUILD)/%.o,$(wildcard lessons/$(1)/*.c)) \
		$(BUILD)/librdma_common.a
	$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) \
		$$(filter %.a,$$^) $$(LDLIBS)
endef
$(foreach l,$(LESSONS),$(eval $(call lesson_rule,$(l))))

.PHONY: rebuild
rebuild:
	$(MAKE) clean
	$(MAKE) all

.PHONY: clean
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
