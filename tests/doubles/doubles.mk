# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# Doubles of the libraries of AMD and Intel, each in a folder of its own, for tests without such GPUs.

DOUBLES := $(OUT)/doubles/hip/libamdhip64.so.6 $(OUT)/doubles/levelzero/libze_loader.so.1
DOUBLES_SOURCES := tests/doubles/hip.c tests/doubles/levelzero.c tests/doubles/memory.c

TEST_SOURCES += $(DOUBLES_SOURCES) tests/doubles/abi.c
mount-programs: $(DOUBLES)

$(filter %/libamdhip64.so.6,$(DOUBLES)): tests/doubles/hip.c
$(filter %/libze_loader.so.1,$(DOUBLES)): tests/doubles/levelzero.c
$(DOUBLES): tests/doubles/memory.c tests/doubles/memory.h client/gpu/hip_abi.h client/gpu/levelzero_abi.h \
		tests/doubles/doubles.mk | ready
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fPIC -shared -fvisibility=hidden -Wl,-soname,$(@F) -o $@ $(filter %.c,$^)

# Compares the declarations of HIP and Level Zero with the headers of the vendors, where these are installed.
.PHONY: doubles-abi
doubles-abi:
	$(Q)$(CC) -std=gnu17 -I. -fsyntax-only tests/doubles/abi.c
