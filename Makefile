# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# `make help` lists the targets. All output goes below $(BUILD).

BUILD  ?= build
# Normalised, because the path is in the flags, and other flags make other objects.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
PREFIX ?= /usr/local
# The folder of the libraries that other programs load; packages use /usr/lib/x86_64-linux-gnu and the like.
LIBDIR ?= $(PREFIX)/lib
# With a sanitizer: quick to build, with line numbers for reports. The thread sanitizer remembers a number of calls, and
# at -O1 there are fewer.
CFLAGS ?= $(if $(SAN),$(if $(findstring fuzzer,$(SAN)),-O0,$(if $(findstring thread,$(SAN)),-O1,-Og)) -g1,-O2 -g)
MNT    ?= /mnt/gpumem
OPTS   ?=
ifeq ($(origin CC),default)
CC     := gcc
endif

# A sanitizer changes every object, so each has its own tree: build/asan, build/tsan, build/fuzz.
SAN    ?=
OUT    := $(BUILD)$(if $(findstring address,$(SAN)),/asan)$(if $(findstring thread,$(SAN)),/tsan)$(if $(findstring fuzzer,$(SAN)),/fuzz)

Q      := $(if $(V),,@)
say     = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

# --- sources and programs

SOURCES  := $(wildcard common/*.c common/*/*.c backend/*.c backend/*/*.c backend/*/*/*.c fs/*/*.c fs/*/*/*.c)
OBJECTS  := $(SOURCES:%.c=$(OUT)/obj/%.o)
LIBRARY  := $(OUT)/libgpumemfs.a
PROGRAM  := $(OUT)/gpumemfs
MANPAGES := $(wildcard man/*.[1-9])

UNIT_SOURCES  := $(wildcard tests/unit/*/test_*.c)
UNIT_SUPPORT  := $(filter-out $(UNIT_SOURCES),$(wildcard tests/unit/*.c))
UNIT_PROGRAMS := $(UNIT_SOURCES:%.c=$(OUT)/%)
# The thread sanitizer runs the tests that make threads, except test_tree_limits, whose thread only needs a small stack.
TSAN_TESTS    ?= $(filter-out %/test_tree_limits.c,$(shell grep -lE 'pthread_create|thrd_create' $(UNIT_SOURCES) /dev/null))
TSAN_PROGRAMS := $(TSAN_TESTS:%.c=$(OUT)/%)
FUZZ_SOURCES  := $(wildcard tests/fuzz/*.c)
FUZZ_PROGRAMS := $(FUZZ_SOURCES:%.c=$(OUT)/%)
# Programs that tests/mount/run runs inside a mount, and programs that need a GPU.
MOUNT_SOURCES  := $(wildcard tests/mount/prog_*.c)
MOUNT_PROGRAMS := $(MOUNT_SOURCES:tests/%.c=$(OUT)/%)
# A FUSE server that a mount test runs beside the daemon.
LYING_SOURCES  := $(wildcard tests/mount/lying/*.c)
LYING_SERVER   := $(OUT)/mount/lying_server
# Libraries that a mount test loads: each has a CUDA runtime library of its own.
RUNTIME_USERS  := $(OUT)/mount/runtime1/user.so $(OUT)/mount/runtime2/user.so
RUNTIME_SOURCES := $(wildcard tests/mount/runtime/*.c)
GPU_SOURCES    := $(wildcard tests/gpu/*.c)
GPU_PROGRAMS   := $(GPU_SOURCES:tests/%.c=$(OUT)/%)
TEST_SOURCES   := $(UNIT_SOURCES) $(UNIT_SUPPORT) $(FUZZ_SOURCES) $(MOUNT_SOURCES) $(LYING_SOURCES) \
		  $(GPU_SOURCES)

# --- libraries. scripts/setup installs libfuse into FUSE_PREFIX if the distribution's libfuse is too old.

FUSE_PREFIX  := $(BUILD)/deps/fuse
PRIVATE_FUSE := $(wildcard $(FUSE_PREFIX)/lib/libfuse3.so)
ifneq ($(PRIVATE_FUSE),)
FUSE_CFLAGS  := -I$(FUSE_PREFIX)/include/fuse3
FUSE_LIBS    := -L$(FUSE_PREFIX)/lib -lfuse3
FUSE_LIBDIR  := $(FUSE_PREFIX)/lib
else
FUSE_CFLAGS  := $(shell pkg-config --cflags fuse3 2>/dev/null)
FUSE_LIBS    := $(shell pkg-config --libs fuse3 2>/dev/null)
FUSE_LIBDIR  := $(filter-out /usr/lib /usr/lib/% /lib /lib/% /usr/lib64,$(shell pkg-config --variable=libdir fuse3 2>/dev/null))
endif
# The interface of libfuse that the sources are written for: 3.18's.
FUSE_CFLAGS  += -DFUSE_USE_VERSION=318
JANSSON_CFLAGS := $(shell pkg-config --cflags jansson 2>/dev/null)
JANSSON_LIBS   := $(shell pkg-config --libs jansson 2>/dev/null)
CHECK_CFLAGS   := $(shell pkg-config --cflags check 2>/dev/null)
CHECK_LIBS     := $(shell pkg-config --libs check 2>/dev/null)
LIBS           := $(FUSE_LIBS) $(JANSSON_LIBS) -lpthread -ldl

# --- flags

comma := ,

# Under the address sanitizer gcc has false warnings of the named kinds, and under the others of more kinds.
WARNINGS := -Wall -Wextra $(if $(filter-out thread fuzzer,$(or $(SAN),none)),$(if $(WERROR),-Werror)) \
	    $(if $(findstring address,$(SAN)),-Wno-stringop-overflow -Wno-format-overflow -Wno-maybe-uninitialized)
ifeq ($(SAN),)
HARDENING := $(shell CC='$(CC)' scripts/hardening)
# libc's checks need the optimizer.
HARDENING := $(if $(findstring -O0,$(CFLAGS)),$(filter-out -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=%,$(HARDENING)),$(HARDENING))
else
SANITIZE  := -fsanitize=$(if $(findstring fuzzer,$(SAN)),fuzzer-no-link$(comma)address$(comma)undefined,$(SAN)) \
             -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ALL_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. $(WARNINGS) $(HARDENING) $(SANITIZE) -fPIE \
             $(FUSE_CFLAGS) $(JANSSON_CFLAGS) $(if $(SAN),-DGPUMEMFS_DEBUG=1) $(if $(findstring -Og,$(CFLAGS)),-DXXH_NO_INLINE_HINTS=1) $(CPPFLAGS) $(CFLAGS)
# DT_RPATH, not DT_RUNPATH: DT_RPATH also applies to libraries that the private libraries load.
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--disable-new-dtags $(SANITIZE) $(LDFLAGS)

# The search path for a program $(1) levels below $(BUILD), and of the same program in a bundle.
up_1 := $(if $(SAN),../)
up_2 := $(if $(SAN),../)../
up_3 := $(if $(SAN),../)../../
up_4 := $(if $(SAN),../)../../../
rpath = $(if $(FUSE_LIBDIR),'-Wl$(comma)-rpath$(comma)$(if $(PRIVATE_FUSE),$$ORIGIN/$(1)deps/fuse/lib,$(FUSE_LIBDIR))') $(2:%='-Wl$(comma)-rpath$(comma)%')

# The flags of the linters. `make -s list-NAME` prints a variable, for scripts.
LINT_FLAGS = -std=gnu17 -D_GNU_SOURCE -I. $(FUSE_CFLAGS) $(JANSSON_CFLAGS) $(CHECK_CFLAGS)
list-%:
	@echo '$($*)'

# --- build

.PHONY: all objects every-object driver-programs
.PHONY: unit-programs tsan-programs fuzz-programs mount-programs bench-programs
all: $(PROGRAM)
objects: $(OBJECTS)
every-object: $(OBJECTS)
unit-programs: $(UNIT_PROGRAMS)
tsan-programs: $(TSAN_PROGRAMS)
fuzz-programs: $(FUZZ_PROGRAMS)
# A mount test uses programs that also run on real GPUs.
mount-programs: $(MOUNT_PROGRAMS) $(GPU_PROGRAMS) $(LYING_SERVER) $(RUNTIME_USERS)
bench-programs: $(GPU_PROGRAMS)
# Prints nothing if there is nothing to do.
all unit-programs tsan-programs fuzz-programs mount-programs bench-programs driver-programs: ; @:

$(PROGRAM): $(OUT)/obj/fs/daemon/main.o $(LIBRARY)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call rpath,$(up_1)) $(LIBS)

# Written anew: an updated archive would keep the members of removed sources.
$(LIBRARY): $(filter-out $(OUT)/obj/fs/daemon/main.o,$(OBJECTS))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

$(RUNTIME_USERS): $(OUT)/mount/runtime%/user.so: $(RUNTIME_SOURCES) $(OUT)/flags | ready
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fPIC -shared -DRUNTIME=$* -Wl,-soname,libcudart.so.$* \
		-o $(@D)/libcudart.so.$* tests/mount/runtime/runtime.c
	$(Q)$(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ tests/mount/runtime/user.c $(@D)/libcudart.so.$* \
		'-Wl,-rpath,$$ORIGIN'

$(OUT)/obj/%.o: %.c $(OUT)/flags | ready
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(if $(filter tests/unit/%,$<),$(CHECK_CFLAGS)) -MMD -MP -c -o $@ $<

# tests/unit/unit.h has a _mark_point for all.
$(OUT)/tests/unit/%: $(OUT)/obj/tests/unit/%.o $(UNIT_SUPPORT:%.c=$(OUT)/obj/%.o) $(LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -Wl,--wrap=_mark_point -o $@ $^ \
		$(call rpath,$(up_4),$$ORIGIN/../../lib) $(CHECK_LIBS) $(LIBS)

# The calls that these tests make fail, and the functions that tell the kernel.
INJECTED := malloc calloc realloc reallocarray aligned_alloc strdup strndup asprintf __asprintf_chk open_memstream free \
	    mmap memfd_create ftruncate fallocate pwrite sendmsg epoll_create1 epoll_ctl eventfd fopen madvise \
	    pthread_create fcntl open openat _ck_assert_failed session_changed session_page_read session_drop_pages
$(OUT)/tests/unit/failures/%: ALL_LDFLAGS += $(INJECTED:%=-Wl,--wrap=%) -Wl,--export-dynamic-symbol=standin_refuses

$(OUT)/tests/fuzz/%: $(OUT)/obj/tests/fuzz/%.o $(LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(call rpath,$(up_3)) $(LIBS)

$(OUT)/mount/%: $(OUT)/obj/tests/mount/%.o
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ -lpthread

$(LYING_SERVER): $(LYING_SOURCES:%.c=$(OUT)/obj/%.o)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ $(call rpath,$(up_2)) $(LIBS)

$(GPU_PROGRAMS): $(OUT)/%: $(OUT)/obj/tests/%.o $(OUT)/obj/tests/bench/measure.o $(LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ $(call rpath,$(up_2),$$ORIGIN/../lib) $(LIBS)

# The daemon with the search paths of the folder where it is installed or bundled.
$(OUT)/installed/gpumemfs $(OUT)/bundled/gpumemfs: $(OUT)/obj/fs/daemon/main.o $(LIBRARY)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $^ $(INSTALLED_RPATH) $(LIBS)
$(OUT)/installed/gpumemfs: INSTALLED_RPATH = $(if $(PRIVATE_FUSE),'-Wl$(comma)-rpath$(comma)$$ORIGIN/../lib/gpumemfs',$(call rpath))
$(OUT)/bundled/gpumemfs: INSTALLED_RPATH = '-Wl,-rpath,$$ORIGIN/../lib:$$ORIGIN/lib'

# Objects depend on the flags that made them.
$(OUT)/flags: always
	@mkdir -p $(@D); \
	echo '$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS)' > $@

.PHONY: always ready
always:
ready:
	@BUILD='$(BUILD)' scripts/setup --verify

.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)

# The stand-in libcuda and its tests (DRIVER_LIBS, DRIVER_SELFTEST, DRIVER_PROBE), in $(OUT)/driver.
-include tests/driver/driver.mk
driver-programs: $(DRIVER_LIBS) $(DRIVER_DISCRETE) $(DRIVER_SELFTEST) $(DRIVER_PROBE)

include client/client.mk
include client/cli/cli.mk
include tests/doubles/doubles.mk
include tests/bench/bench.mk
include scripts/examples/examples.mk
every-object: $(TEST_SOURCES:%.c=$(OUT)/obj/%.o)
include scripts/targets.mk
