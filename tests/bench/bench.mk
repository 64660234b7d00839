# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# The bench: one program of all the sources here. `make bench BENCH='--svg rates.svg'` runs it.

BENCH_SOURCES := $(wildcard tests/bench/*.c)
BENCH_PROGRAM := $(OUT)/bench/bench
BENCH         ?=

TEST_SOURCES += $(BENCH_SOURCES)

bench-programs: $(BENCH_PROGRAM)

# It starts the daemon of its own build, and maps files as any program does.
$(BENCH_PROGRAM): $(BENCH_SOURCES:%.c=$(OUT)/obj/%.o) $(LIBRARY) $(CLIENT_LIBRARY) | $(PROGRAM)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ \
		$(call rpath,$(up_2),$$ORIGIN/..:$$ORIGIN/../lib) $(LIBS) -lm

.PHONY: bench
bench: setup
	@+$(MAKE) --no-print-directory $(BENCH_PROGRAM)
	@$(BENCH_PROGRAM) $(BENCH)
