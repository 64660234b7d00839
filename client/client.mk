# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# libgpumem.so.0. The sources of backend/ that the library needs are compiled a second time, for a shared library.

CLIENT_VERSION := $(shell sed -n 's/.*GPUMEMFS_VERSION "\(.*\)"/\1/p' fs/core/version.h)
CLIENT_SOURCES := $(wildcard client/core/*.c client/gpu/*.c client/gpu/*/*.c client/lib/*.c client/lib/*/*.c) \
	$(addprefix backend/cuda/,driver/driver.c bar_dmabuf.c bar_gdrcopy.c bar_vulkan.c) \
	backend/vulkan_loader/loader.c \
	$(wildcard backend/stream/*.c) $(addprefix common/,driver_library.c io.c number.c system/ipc_memory.c system/mounts.c system/runtime_dir.c text/utf8.c)
CLIENT_OBJECTS := $(CLIENT_SOURCES:%.c=$(OUT)/pic/%.o)
CLIENT_LIBRARY := $(OUT)/libgpumem.so.0
# For the command, which runs without an installed library, and for the unit tests, which may replace the functions of
# a file.
CLIENT_ARCHIVE := $(OUT)/libgpumem-client.a
# For unmodified programs: replacements for functions of libc, and the library's code without the files that need jansson.
PRELOAD_SOURCES := $(wildcard client/preload/*.c client/preload/*/*.c)
PRELOAD_OBJECTS := $(PRELOAD_SOURCES:%.c=$(OUT)/pic/%.o) \
	$(filter-out $(addprefix $(OUT)/pic/client/lib/,arena/%.o safetensors/%.o),$(CLIENT_OBJECTS))
PRELOAD_LIBRARY := $(OUT)/libgpumem-preload.so
CLIENT_DEST     = $(DESTDIR)$(LIBDIR)
CLIENT_MAN      = $(DESTDIR)$(PREFIX)/share/man/man3
CLIENT_CMAKE   := gpumem-config.cmake gpumem-config-version.cmake
# Header, library and manual pages of the build in the folders of an installation, for shells with `make env`.
LOCAL_PREFIX   := $(OUT)/prefix
LOCAL_MAN      := $(LOCAL_PREFIX)/share/man
# Fills in a template; $(1) is the prefix, $(2) the library's folder.
client_fill     = sed -e 's|@PREFIX@|$(1)|g' -e 's|@LIBDIR@|$(2)|g' -e 's|@VERSION@|$(CLIENT_VERSION)|g'
# The prefix as seen from the folder of CMake's files.
CLIENT_CMAKE_PREFIX = $(shell realpath -ms --relative-to='$(LIBDIR)/cmake/gpumem' '$(PREFIX)')
# Writes gpumem.pc and CMake's files below the library's folder $(1); $(2) and $(3) are the prefix and the library's folder
# in gpumem.pc, and $(4) the prefix in CMake's files.
client_packages = $(call client_fill,$(2),$(3)) client/lib/gpumem.pc.in > $(1)/pkgconfig/gpumem.pc && \
	$(foreach file,$(CLIENT_CMAKE),$(call client_fill,$(4)) client/lib/$(file).in > $(1)/cmake/gpumem/$(file) &&) true
# The Python that gets the module, and the folder: scripts/python-module chooses both unless they are set.
PYTHON         ?= python3
PYTHON_DEST    ?=
PYTHON_MODULE   = PYTHON='$(PYTHON)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' PYTHON_DEST='$(PYTHON_DEST)' \
	RECORD='$(INSTALL_RECORD)' scripts/python-module
CLIENT_FUNCTIONS := $(shell sed -n 's/^\t\(gpumem_.*\);$$/\1/p' client/lib/libgpumem.map)

# Also for clang-tidy.
LINT_FLAGS += -DGPUMEM_VERSION=\"$(CLIENT_VERSION)\"

.PHONY: client install-client uninstall-client
client: $(OUT)/libgpumem.so $(PRELOAD_LIBRARY) $(LOCAL_PREFIX)/made
all: client
every-object: $(sort $(CLIENT_OBJECTS) $(PRELOAD_OBJECTS))
mount-programs: client

$(OUT)/pic/%.o: %.c $(OUT)/flags | ready
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden \
		-DGPUMEM_VERSION='"$(CLIENT_VERSION)"' -MMD -MP -c -o $@ $<

# nodelete: the library registers a fork handler, and the drivers have threads. In a bundle, jansson is in lib/
# beside the library.
CLIENT_BUNDLED := $(OUT)/bundled/libgpumem.so.0
$(CLIENT_BUNDLED): private CLIENT_RPATH := '-Wl$(comma)-rpath$(comma)$$ORIGIN/lib'
$(CLIENT_LIBRARY) $(CLIENT_BUNDLED): $(CLIENT_OBJECTS) client/lib/libgpumem.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script,client/lib/libgpumem.map \
		$(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,--as-needed \
		$(SANITIZE) $(LDFLAGS) -o $@ $(CLIENT_OBJECTS) $(CLIENT_RPATH) $(JANSSON_LIBS) -lpthread -ldl

$(PRELOAD_LIBRARY): $(PRELOAD_OBJECTS) client/preload/preload.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script,client/preload/preload.map \
		$(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl,-z,nodelete -Wl,-z,relro,-z,now \
		-Wl,--as-needed $(SANITIZE) $(LDFLAGS) -o $@ $(PRELOAD_OBJECTS) -lpthread -ldl

$(OUT)/libgpumem.so: $(CLIENT_LIBRARY)
	$(Q)ln -sf $(<F) $@

# Links, so that a changed header counts at once.
$(LOCAL_PREFIX)/made: client/client.mk $(wildcard client/lib/*.in) client/lib/libgpumem.map $(MANPAGES)
	$(call say,LINKS,$(@D))
	$(Q)rm -rf $(@D) && mkdir -p $(@D)/include $(@D)/lib/pkgconfig $(@D)/lib/cmake/gpumem
	$(Q)ln -sr client/lib/gpumem.h $(@D)/include/
	$(Q)ln -sr $(OUT)/libgpumem.so $(CLIENT_LIBRARY) $(@D)/lib/
	$(Q)$(call client_packages,$(@D)/lib,$${pcfiledir}/../..,$${prefix}/lib,../../..)
	$(Q)for page in $(MANPAGES); do mkdir -p $(LOCAL_MAN)/man$${page##*.} && ln -sr $$page $(LOCAL_MAN)/man$${page##*.}/; done
	$(Q)for name in $(CLIENT_FUNCTIONS); do ln -s libgpumem.3 $(LOCAL_MAN)/man3/$$name.3; done
	$(Q)touch $@

$(CLIENT_ARCHIVE): $(CLIENT_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

$(filter $(OUT)/tests/unit/client/%,$(UNIT_PROGRAMS)): $(CLIENT_ARCHIVE)
$(filter $(OUT)/tests/fuzz/fuzz_client_%,$(FUZZ_PROGRAMS)): $(CLIENT_ARCHIVE)

# The tests of the library in a mount, linked with the library as other programs are.
CLIENT_MOUNT_PROGRAMS := $(filter $(OUT)/mount/prog_client%,$(MOUNT_PROGRAMS))
CLIENT_TOOL := $(OUT)/mount/client_tool
mount-programs: $(CLIENT_TOOL)
$(CLIENT_MOUNT_PROGRAMS) $(CLIENT_TOOL): $(CLIENT_LIBRARY)
$(CLIENT_MOUNT_PROGRAMS) $(CLIENT_TOOL): private LDFLAGS += '-Wl,-rpath,$$ORIGIN/..:$$ORIGIN/../lib' -ldl

# Programs that compare the library with the driver's own calls, for real GPUs.
CLIENT_GPU_PROGRAMS := $(filter $(addprefix $(OUT)/gpu/,adopted arena hops pointers sharers),$(GPU_PROGRAMS))
$(CLIENT_GPU_PROGRAMS): $(CLIENT_LIBRARY)
$(CLIENT_GPU_PROGRAMS): private LDFLAGS += '-Wl,-rpath,$$ORIGIN/..'

install: install-client
uninstall: uninstall-client

install-client: $(CLIENT_LIBRARY) $(PRELOAD_LIBRARY)
	$(Q)$(call make_folders,$(CLIENT_DEST)/pkgconfig $(CLIENT_DEST)/cmake/gpumem $(DESTDIR)$(PREFIX)/include $(CLIENT_MAN))
	$(Q)install -m 755 $< $(CLIENT_DEST)/$(<F)
	$(Q)ln -sf $(<F) $(CLIENT_DEST)/libgpumem.so
	$(Q)install -m 755 $(PRELOAD_LIBRARY) $(CLIENT_DEST)/libgpumem-preload.so
	$(Q)install -m 644 client/lib/gpumem.h $(DESTDIR)$(PREFIX)/include/gpumem.h
	$(Q)$(call client_packages,$(CLIENT_DEST),$(PREFIX),$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR)),$(CLIENT_CMAKE_PREFIX))
	$(Q)$(foreach name,$(CLIENT_FUNCTIONS),ln -sf libgpumem.3 $(CLIENT_MAN)/$(name).3 &&) true
	@echo 'installed $(CLIENT_DEST)/libgpumem.so.0'
	$(Q)$(if $(DESTDIR),,scripts/loader-cache '$(LIBDIR)')
	$(Q)$(PYTHON_MODULE) install '$(CLIENT_VERSION)'

uninstall-client:
	$(Q)rm -f $(CLIENT_DEST)/libgpumem.so $(CLIENT_DEST)/libgpumem.so.0 $(CLIENT_DEST)/libgpumem-preload.so \
		$(CLIENT_DEST)/pkgconfig/gpumem.pc $(CLIENT_CMAKE:%=$(CLIENT_DEST)/cmake/gpumem/%) $(DESTDIR)$(PREFIX)/include/gpumem.h \
		$(CLIENT_FUNCTIONS:%=$(CLIENT_MAN)/%.3)
	$(Q)rmdir $(CLIENT_DEST)/cmake/gpumem 2>/dev/null || true
	$(Q)$(if $(DESTDIR),,scripts/loader-cache '$(LIBDIR)' >/dev/null)
	$(Q)$(PYTHON_MODULE) uninstall '$(CLIENT_VERSION)'

-include $(shell find $(OUT)/pic -name '*.d' 2>/dev/null)
