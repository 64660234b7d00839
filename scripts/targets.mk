# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# Targets that use the programs: set-up, mounting, tests, installation.

# --- set-up and mounting. Set-up may change what the Makefile finds, so the rest is a second make.

.PHONY: setup setup-check setup-package mount umount env
setup:
	@BUILD='$(BUILD)' scripts/setup
setup-check:
	@BUILD='$(BUILD)' scripts/setup --check
setup-package:
	@BUILD='$(BUILD)' scripts/setup --package

mount: setup
	@+$(MAKE) --no-print-directory all
	@scripts/mount '$(PROGRAM)' '$(MNT)' $(OPTS)

umount:
	@scripts/umount '$(MNT)'

# For a shell's eval: the shell and the programs that it starts then find this build.
env:
	@scripts/environment '$(abspath $(OUT))'

# --- tests

.PHONY: check check-quick lint check-unit check-asan check-tsan check-driver check-mount check-client check-kills check-bench check-package check-fuzz check-long
check check-quick lint check-unit check-asan check-tsan check-mount check-client check-kills check-bench check-package check-fuzz check-long: setup-check
	@+BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/check $(if $(filter check,$@),all,$(@:check-%=%))

# Not part of check: shows whether the tests notice faults. MUTANTS='-k fs/tree' takes rows by file, test or words.
.PHONY: mutants
mutants: setup-check
	@BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/mutants $(MUTANTS)

# Not part of check: downloads a Debian with podman.
.PHONY: check-containers
check-containers: setup-check all client mount-programs
	@tests/containers/run '$(OUT)'

# Not part of check: shows which lines the tests execute. COVERAGE='unit mount' names other steps of scripts/check.
.PHONY: coverage
coverage: setup-check
	@BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/coverage $(COVERAGE)

# Not part of check: downloads a Debian with the engines.
.PHONY: check-engines
check-engines: setup-check all client driver-programs
	@tests/engines/run --build '$(OUT)'

.PHONY: format
format:
	$(Q)BUILD='$(BUILD)' scripts/clang-format -i $(wildcard common/*.[ch] common/*/*.[ch] backend/*.[ch] backend/*/*.[ch] backend/*/*/*.[ch] fs/*/*.[ch] fs/*/*/*.[ch] client/*/*.[ch] client/*/*/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch])

# --- installation

DEST      := $(DESTDIR)$(PREFIX)
LIB_DEST  := $(DEST)/lib/gpumemfs
UNIT_DEST := $(DEST)/lib/systemd/system
SHARE_DEST := $(DEST)/share/gpumemfs
MAN_DEST  := $(DEST)/share/man
MAN_FOLDERS := $(sort $(foreach page,$(MANPAGES),$(MAN_DEST)/man$(subst .,,$(suffix $(page)))))
# The folders that `make install` has made. With DESTDIR in the build, so that a package has no such file.
INSTALL_RECORD = $(if $(DESTDIR),$(OUT)/installed/folders$(subst /,+,$(abspath $(DESTDIR))),$(SHARE_DEST)/folders)
make_folders   = scripts/install-folders make '$(INSTALL_RECORD)' $(1)
HELPERS   := mount.gpumemfs mount.fuse.gpumemfs
# mount(8) searches for its helpers only in /sbin, a link to /usr/sbin on most systems.
HELPER_DEST ?= $(if $(filter /usr /usr/local,$(PREFIX)),$(DESTDIR)$(if $(shell test -L /sbin && echo merged),/usr)/sbin)

.PHONY: install uninstall deb bundle wheel release clean distclean help
install: $(OUT)/installed/gpumemfs
	$(Q)$(call make_folders,$(DEST)/bin $(LIB_DEST) $(MAN_FOLDERS) $(UNIT_DEST) $(SHARE_DEST)/systemd $(SHARE_DEST)/grafana $(HELPER_DEST))
	$(Q)install -m 755 $< $(DEST)/bin/gpumemfs
	$(Q)$(if $(PRIVATE_FUSE),install -m 644 $(FUSE_PREFIX)/lib/libfuse3.so.4 $(LIB_DEST)/libfuse3.so.4)
	$(Q)$(foreach page,$(MANPAGES),install -m 644 $(page) $(MAN_DEST)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)) &&) true
	$(Q)install -m 755 scripts/systemd/service $(LIB_DEST)/service
	$(Q)sed 's|@PREFIX@|$(PREFIX)|g' 'scripts/systemd/gpumemfs@.service.in' > '$(UNIT_DEST)/gpumemfs@.service'
	$(Q)install -m 644 scripts/systemd/mnt-gpumem.mount $(SHARE_DEST)/systemd/mnt-gpumem.mount
	$(Q)install -m 644 scripts/grafana/gpumemfs.json $(SHARE_DEST)/grafana/gpumemfs.json
	$(Q)$(foreach name,$(if $(HELPER_DEST),$(HELPERS)),ln -sf $(PREFIX)/bin/gpumemfs $(HELPER_DEST)/$(name) &&) true
	@echo 'installed $(DEST)/bin/gpumemfs$(if $(HELPER_DEST), and $(HELPERS:%=$(HELPER_DEST)/%))'

uninstall:
	$(Q)rm -f $(DEST)/bin/gpumemfs $(LIB_DEST)/libfuse3.so.4
	$(Q)rm -f $(foreach page,$(MANPAGES),$(MAN_DEST)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
	$(Q)$(if $(HELPER_DEST),rm -f $(HELPERS:%=$(HELPER_DEST)/%))
	$(Q)rm -f $(SHARE_DEST)/grafana/gpumemfs.json $(SHARE_DEST)/systemd/mnt-gpumem.mount
	$(Q)rm -f $(LIB_DEST)/service '$(UNIT_DEST)/gpumemfs@.service'
	$(Q)scripts/install-folders remove '$(INSTALL_RECORD)'
	$(Q)rmdir $(SHARE_DEST)/grafana $(SHARE_DEST)/systemd $(SHARE_DEST) $(LIB_DEST) 2>/dev/null || true

deb: setup-package
	@+BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/package

bundle: setup
	@+$(MAKE) --no-print-directory all $(OUT)/bundled/gpumemfs $(OUT)/bundled/gpumem $(CLIENT_BUNDLED) \
		unit-programs mount-programs bench-programs driver-programs client
	@BUILD='$(BUILD)' scripts/bundle

wheel: setup
	@+$(MAKE) --no-print-directory client cli $(OUT)/bundled/gpumem $(CLIENT_BUNDLED)
	@BUILD='$(BUILD)' PYTHON='$(PYTHON)' scripts/wheel

# Refuses before anything is installed or built: the script makes the targets above.
release:
	@+BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/release

clean:
	$(Q)find '$(BUILD)' -mindepth 1 -maxdepth 1 ! -name deps -exec rm -rf {} + 2>/dev/null || true

distclean:
	$(Q)rm -rf '$(BUILD)'

help:
	@sed -n 's/^#: //p' scripts/targets.mk

#: make                      build the daemon and the command: build/gpumemfs, build/gpumem
#: make setup                install the packages that a build needs (apt-get, as root; else name the missing ones)
#: make mount MNT=DIR        set up, build and mount at DIR (OPTS='-o ...' are passed on)
#: make umount MNT=DIR       unmount
#: make env                  for eval "$(make env)": this shell, compilers, pkg-config, CMake, Python and man find the build
#: make examples             build/examples: the C programs of scripts/examples, with the library of the build
#: make check                install, build and run every test: at most 15 minutes on 2 cores
#: make check-quick          build, lint files that differ from main, unit tests, 30 mount tests: at most 2 minutes
#: make lint                 style, words of comments, names, warnings as errors, static analysis
#: make format               format the code as `make lint` requires
#: make check-unit           unit tests (also check-asan, check-tsan: the same under sanitizers)
#: make check-mount          tests against real mounts: stand-in driver, host backend (more of it in check-asan)
#: make check-client         the Python module, and the installed libraries
#: make check-kills          the same tests while the daemon is killed again and again (KILLS=1000: how often, at the end)
#: make check-long           all rounds of random tests, injected failures and kills, of which check runs a part
#: make check-bench          every case of the bench with small sizes: for correctness, not for time
#: make check-package        packages in a Debian that has nothing else, the wheel in empty virtual environments, a bundle
#: make check-containers     containers by podman, and the daemon's image (as root)
#: make check-engines        llama.cpp loads from the mount, in all its modes, with and without the preload library (as root)
#: make mutants              put one-line faults into copies of the tree: each named test must fail (MUTANTS=-h)
#: make coverage             the share of each folder's lines that unit tests and 30 mount tests execute (COVERAGE=STEPS)
#: make check-fuzz           each fuzz target for a few seconds
#: make bench                measure beside FUSE, tmpfs and the machine (BENCH='--svg rates.svg'; BENCH=--help)
#: make install              into $(DESTDIR)$(PREFIX), PREFIX=/usr/local (PYTHON=python3, PYTHON_DEST=DIR: for its module);
#:                           make uninstall removes it, and the folders that were made for it
#: make deb                  Debian packages of it, for this machine's release: build/deb/*.deb
#: make wheel                build/wheel/gpumem-*.whl: for pip, the Python module with the libraries and the command
#: make release              from a commit with a tag: build/release with source, packages, wheel, list of parts
#: make bundle               build/gpumemfs-bundle: a folder that runs on an offline machine
#: make clean                remove the build; distclean: the private libfuse too
#:
#: BUILD=build  CFLAGS='-O2 -g'  SAN=address,undefined|thread  WERROR=1  V=1
