# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# The example in C, for the tests of the examples. The head of the source shows how to compile the example.

EXAMPLE_SOURCES := scripts/examples/frame_producer.c
EXAMPLE_PROGRAM := $(OUT)/mount/frame_producer

TEST_SOURCES += $(EXAMPLE_SOURCES)
mount-programs: $(EXAMPLE_PROGRAM)

# The example includes <gpumem.h>, as from an installed tree.
$(EXAMPLE_SOURCES:%.c=$(OUT)/obj/%.o): private CPPFLAGS += -Iclient/lib

$(EXAMPLE_PROGRAM): $(EXAMPLE_SOURCES:%.c=$(OUT)/obj/%.o) $(CLIENT_LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ '-Wl,-rpath,$$ORIGIN/..:$$ORIGIN/../lib'
