# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# The bench: one program of all the sources here. `make bench BENCH='--svg rates.svg'` runs it.

BENCH_SOURCES := $(wildcard tests/bench/*.c)
BENCH_PROGRAM := $(OUT)/bench/bench
BENCH         ?=

TEST_SOURCES += $(BENCH_SOURCES)

bench-programs: $(BENCH_PROGRAM)

# The bench starts the daemon of its own build, and maps files by libgpumem.
$(BENCH_PROGRAM): $(BENCH_SOURCES:%.c=$(OUT)/obj/%.o) $(LIBRARY) $(CLIENT_LIBRARY) | $(PROGRAM)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ \
		$(call rpath,$(up_2),$$ORIGIN/..:$$ORIGIN/../lib) $(LIBS) -lm

# The installed bench, which gpumem bench runs; linked again if the folder of libgpumem changes.
BENCH_CLIENT := $(if $(filter $(PREFIX)/lib,$(LIBDIR)),'-Wl$(comma)-rpath$(comma)$$ORIGIN/..')
$(OUT)/installed/bench: $(BENCH_SOURCES:%.c=$(OUT)/obj/%.o) $(LIBRARY) $(CLIENT_LIBRARY) $(OUT)/installed/client
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter-out %/client,$^) $(BENCH_CLIENT) \
		$(if $(PRIVATE_FUSE),'-Wl$(comma)-rpath$(comma)$$ORIGIN',$(call rpath)) $(LIBS) -lm
$(OUT)/installed/client: always
	@mkdir -p $(@D); echo "$(BENCH_CLIENT)" | cmp -s - $@ || echo "$(BENCH_CLIENT)" > $@

.PHONY: install-bench uninstall-bench
install: install-bench
uninstall: uninstall-bench
install-bench: $(OUT)/installed/bench
	$(Q)$(call make_folders,$(LIB_DEST))
	$(Q)install -m 755 $< $(LIB_DEST)/bench
uninstall-bench:
	$(Q)rm -f $(LIB_DEST)/bench

# Unit tests cover the statistics, the data, the order and the messages of the bench.
$(filter $(OUT)/tests/unit/bench/%,$(UNIT_PROGRAMS)): \
	$(addprefix $(OUT)/obj/tests/bench/,measure.o data.o engine.o report_text.o)

.PHONY: bench
bench: setup
	@+$(MAKE) --no-print-directory $(BENCH_PROGRAM)
	@$(BENCH_PROGRAM) $(BENCH)
