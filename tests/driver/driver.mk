# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors

# Stand-ins for the vendors' libraries, so that backend/cuda runs without a GPU.
# Included by the Makefile in the root, or used alone: make -f tests/driver/driver.mk BUILD=/tmp/x

BUILD ?= build
CC ?= cc
CFLAGS ?= -O2 -g -Wall -Wextra -Werror
CUDA_HOME ?= /usr/local/cuda
DRIVER_CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)

# OUT and SANITIZE come from the root Makefile: a program under a sanitizer loads libraries built with the sanitizer.
DRIVER_DIR := $(or $(OUT),$(BUILD))/driver
DRIVER_CUDA := $(DRIVER_DIR)/libcuda.so.1
DRIVER_LIBS := $(DRIVER_CUDA) $(DRIVER_DIR)/libnvidia-ml.so.1 $(DRIVER_DIR)/libvulkan.so.1 \
	$(DRIVER_DIR)/libgdrapi.so.2
# A driver for Vulkan's real loader, by the manifest beside it.
DRIVER_DISCRETE := $(DRIVER_DIR)/libdiscrete.so
DRIVER_SELFTEST := $(DRIVER_DIR)/selftest
DRIVER_PROBE := $(DRIVER_DIR)/probe

DRIVER_CUDA_SOURCES := $(wildcard tests/driver/cuda_*.c) tests/driver/settings.c \
	tests/driver/table.c
DRIVER_HEADERS := $(wildcard tests/driver/*.h)
DRIVER_COMPILE = $(CC) -std=gnu17 -D_GNU_SOURCE -I. $(WARNINGS) $(SANITIZE) $(CFLAGS)
# The drivers are never unloaded: their threads would crash.
DRIVER_SHARED = -fPIC -shared -pthread -fvisibility=hidden -Wl,-Bsymbolic-functions -Wl,-z,nodelete -Wl,-soname,$(@F)

.PHONY: driver driver-check driver-abi
driver: $(DRIVER_LIBS) $(DRIVER_DISCRETE)

$(DRIVER_DISCRETE): tests/driver/discrete.c $(DRIVER_HEADERS) tests/driver/driver.mk
	@mkdir -p $(@D)
	$(DRIVER_COMPILE) $(DRIVER_SHARED) -o $@ tests/driver/discrete.c $(LDFLAGS) -ldl
	@echo '{"file_format_version": "1.0.0", "ICD": {"library_path": "./$(@F)",' \
		'"api_version": "1.3.0"}}' >$(@D)/discrete.json

$(DRIVER_CUDA): $(DRIVER_CUDA_SOURCES) $(DRIVER_HEADERS) tests/driver/driver.mk
	@mkdir -p $(@D)
	$(DRIVER_COMPILE) $(DRIVER_SHARED) -o $@ $(DRIVER_CUDA_SOURCES) $(LDFLAGS) -ldl

$(DRIVER_DIR)/libnvidia-ml.so.1: tests/driver/nvml.c
$(DRIVER_DIR)/libvulkan.so.1: tests/driver/vulkan.c tests/driver/vulkan_client.c \
	tests/driver/vulkan_memory.c
$(DRIVER_DIR)/libgdrapi.so.2: tests/driver/gdrapi.c
$(filter-out $(DRIVER_CUDA),$(DRIVER_LIBS)): tests/driver/other.c $(DRIVER_HEADERS) \
		tests/driver/driver.mk
	@mkdir -p $(@D)
	$(DRIVER_COMPILE) $(DRIVER_SHARED) -o $@ $(filter %.c,$^) $(LDFLAGS) -ldl

# Linked with the stand-ins: the functions are tested, not how the loader finds them.
$(DRIVER_SELFTEST): $(wildcard tests/driver/selftest*.c)
$(DRIVER_PROBE): $(wildcard tests/driver/probe*.c)
$(DRIVER_SELFTEST) $(DRIVER_PROBE): $(DRIVER_HEADERS) $(DRIVER_LIBS)
	@mkdir -p $(@D)
	$(DRIVER_COMPILE) -o $@ $(filter %.c,$^) $(DRIVER_LIBS) -Wl,-rpath,'$$ORIGIN' -pthread \
		$(LDFLAGS) $(DRIVER_CHECK_LIBS) -ldl

# probe.txt: the real driver's answer and, after a bar, the stand-in's answer if it differs.
driver-check: $(DRIVER_SELFTEST) $(DRIVER_PROBE)
	$(DRIVER_SELFTEST)
	$(DRIVER_PROBE) > $(DRIVER_DIR)/probe.out
	sed -E 's/^(.{52}) .* \| /\1 /' tests/driver/probe.txt | diff -u - $(DRIVER_DIR)/probe.out

# Compares every function of the stand-in with its prototype in the real cuda.h.
driver-abi:
	$(DRIVER_COMPILE) -DSTANDIN_CUDA_H -isystem $(CUDA_HOME)/include -Wno-switch \
		-fsyntax-only $(DRIVER_CUDA_SOURCES)
