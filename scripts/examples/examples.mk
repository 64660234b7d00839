# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# The examples in C, built against the library of the build. The head of each source shows how to compile the example.

EXAMPLE_SOURCES := $(wildcard scripts/examples/*.c)
EXAMPLE_PROGRAMS := $(EXAMPLE_SOURCES:scripts/examples/%.c=$(OUT)/examples/%)

TEST_SOURCES += $(EXAMPLE_SOURCES)
.PHONY: examples
examples: $(EXAMPLE_PROGRAMS) ; @:
mount-programs: examples

# The examples include <gpumem.h>, as from an installed tree.
$(EXAMPLE_SOURCES:%.c=$(OUT)/obj/%.o): private CPPFLAGS += -Iclient/lib
$(OUT)/examples/vulkan_cat: private LDFLAGS += -lvulkan

$(EXAMPLE_PROGRAMS): $(OUT)/examples/%: $(OUT)/obj/scripts/examples/%.o $(CLIENT_LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -o $@ $^ $(ALL_LDFLAGS) '-Wl,-rpath,$$ORIGIN/..:$$ORIGIN/../lib'
