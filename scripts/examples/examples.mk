# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# The examples in C, for the tests of the examples. The head of each source shows how to compile the example.

EXAMPLE_SOURCES := $(wildcard scripts/examples/*.c)
EXAMPLE_PROGRAMS := $(EXAMPLE_SOURCES:scripts/examples/%.c=$(OUT)/mount/%)

TEST_SOURCES += $(EXAMPLE_SOURCES)
mount-programs: $(EXAMPLE_PROGRAMS)

# The examples include <gpumem.h>, as from an installed tree.
$(EXAMPLE_SOURCES:%.c=$(OUT)/obj/%.o): private CPPFLAGS += -Iclient/lib
$(OUT)/mount/vulkan_cat: private LDFLAGS += -lvulkan

$(EXAMPLE_PROGRAMS): $(OUT)/mount/%: $(OUT)/obj/scripts/examples/%.o $(CLIENT_LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -o $@ $^ $(ALL_LDFLAGS) '-Wl,-rpath,$$ORIGIN/..:$$ORIGIN/../lib'
