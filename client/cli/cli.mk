# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# gpumem, the command. The command uses the daemon's files and attributes but none of its code, and contains
# libgpumem.

CLI_SOURCES  := $(wildcard client/cli/*.c client/cli/*/*.c)
CLI_OBJECTS  := $(CLI_SOURCES:%.c=$(OUT)/obj/%.o)
CLI_PROGRAM  := $(OUT)/gpumem
# For the unit tests.
CLI_ARCHIVE  := $(OUT)/libgpumem-cli.a
CLI_LIBS     := $(JANSSON_LIBS) $(shell pkg-config --libs ncursesw 2>/dev/null) -lpthread -ldl
CLI_BIN       = $(DESTDIR)$(PREFIX)/bin
CLI_BASH      = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
# Debian's zsh searches vendor-completions for the completions of packages.
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
CLI_ZSH       = $(DESTDIR)$(ZSH_COMPLETIONS)
CLI_FISH      = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

$(CLI_OBJECTS): private CPPFLAGS += -DGPUMEM_VERSION='"$(CLIENT_VERSION)"'

# The object contains the text of the GPU kernel.
$(OUT)/obj/client/cli/verify/tree_ptx.o: client/cli/verify/tree.ptx

.PHONY: cli install-cli uninstall-cli
cli: $(CLI_PROGRAM)
all: cli
mount-programs: cli
every-object: $(CLI_OBJECTS)

# The sources of common/ that the command needs.
CLI_COMMON := $(addprefix $(OUT)/obj/common/,attributes.o system/descriptors.o text/closest.o)

$(CLI_PROGRAM) $(OUT)/bundled/gpumem: $(CLI_OBJECTS) $(OUT)/obj/common/number.o $(CLI_COMMON) $(CLIENT_ARCHIVE)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLI_RPATH) $(CLI_LIBS)
$(OUT)/bundled/gpumem: CLI_RPATH = '-Wl,-rpath,$$ORIGIN/../lib:$$ORIGIN/lib'

$(CLI_ARCHIVE): $(filter-out $(OUT)/obj/client/cli/main.o,$(CLI_OBJECTS)) $(CLI_COMMON)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

$(filter $(OUT)/tests/unit/cli/%,$(UNIT_PROGRAMS)): $(CLI_ARCHIVE) $(CLIENT_ARCHIVE)
$(filter $(OUT)/tests/unit/cli/%,$(UNIT_PROGRAMS)): private LIBS += $(CLI_LIBS)

install: install-cli
uninstall: uninstall-cli

install-cli: $(CLI_PROGRAM)
	$(Q)$(call make_folders,$(CLI_BIN) $(CLI_BASH) $(CLI_ZSH) $(CLI_FISH))
	$(Q)install -m 755 $< $(CLI_BIN)/gpumem
	$(Q)install -m 644 client/cli/completions/gpumem.bash $(CLI_BASH)/gpumem
	$(Q)install -m 644 client/cli/completions/gpumem.zsh $(CLI_ZSH)/_gpumem
	$(Q)install -m 644 client/cli/completions/gpumem.fish $(CLI_FISH)/gpumem.fish
	@echo 'installed $(CLI_BIN)/gpumem'

uninstall-cli:
	$(Q)rm -f $(CLI_BIN)/gpumem $(CLI_BASH)/gpumem $(CLI_ZSH)/_gpumem $(CLI_FISH)/gpumem.fish
