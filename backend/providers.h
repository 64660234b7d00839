/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of providers, which no other file of backend/ names. A new vendor adds a folder and a
 * row. For backend/ and its tests only. */
#ifndef BACKEND_PROVIDERS_H
#define BACKEND_PROVIDERS_H

#include "backend/backend.h"

extern const struct backend_ops backend_cuda_ops, backend_vulkan_ops, backend_host_ops;

struct backend_provider {
	enum backend_kind kind;
	const struct backend_ops *ops;
	const char *absent; /* for a log line, if BACKEND_AUTO did not find any of its devices */
};

/* BACKEND_AUTO tries the rows in this order, down to the last, which has devices on every machine
 * and no text for their absence. */
extern const struct backend_provider backend_providers[];
#define BACKEND_PROVIDERS 3

/* Opens the provider that config asks for, without its BAR caches: see backend_open. */
int provider_open(const struct backend_config *config, struct backend **backend);

#endif
