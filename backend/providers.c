/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/providers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"

const struct backend_provider backend_providers[BACKEND_PROVIDERS] = {
    {BACKEND_CUDA, &backend_cuda_ops, "no NVIDIA GPU is in use"},
    {BACKEND_VULKAN, &backend_vulkan_ops, "no other GPU has a Vulkan driver"},
    {BACKEND_HOST, &backend_host_ops, NULL},
};

/* Whether the provider has any device. A list with a missing GPU fails with -ENODEV as well, and
 * simulating the GPU would hide the mistake. */
static bool provider_has_device(const struct backend_ops *ops, const struct backend_config *config)
{
	struct backend_config all = *config;
	struct backend *backend;

	all.gpus = NULL;
	if (ops->open(&all, &backend) < 0)
		return false;
	ops->close(backend);
	return true;
}

/* "no NVIDIA GPU is in use: libcuda.so.1: cannot open ...; ..." */
static void reason_add(char *reasons, size_t size, const char *absent, const char *reason)
{
	size_t at = strlen(reasons);

	snprintf(reasons + at, size - at, "%s%s%s%s", at ? "; " : "", absent, *reason ? ": " : "",
		 reason);
}

static int provider_open_auto(const struct backend_config *config, struct backend **backend)
{
	const struct backend_provider *provider = backend_providers;
	char reasons[512] = "";

	for (; provider->absent; provider++) {
		char reason[200] = "";
		struct backend_config tried = *config;

		tried.reason = reason;
		tried.reason_bytes = sizeof(reason);
		int rc = provider->ops->open(&tried, backend);

		if (rc == 0 && *reasons)
			log_info("backend: %s (%s)", provider->ops->name, reasons);
		if (rc != -ENODEV && rc != -ENOTSUP)
			return rc;
		if (config->gpus && !config->recovers && provider_has_device(provider->ops, &tried))
			return rc;
		reason_add(reasons, sizeof(reasons), provider->absent, reason);
	}
	int rc = provider->ops->open(config, backend);

	if (rc == 0)
		log_info("backend: %s (files are kept in system memory: %s)", provider->ops->name,
			 reasons);
	return rc;
}

enum backend_kind backend_kind_named(const char *name)
{
	for (unsigned i = 0; i < BACKEND_PROVIDERS; i++)
		if (strcmp(backend_providers[i].ops->name, name) == 0)
			return backend_providers[i].kind;
	return BACKEND_AUTO;
}

int provider_open(const struct backend_config *config, struct backend **backend)
{
	for (unsigned i = 0; i < BACKEND_PROVIDERS; i++)
		if (backend_providers[i].kind == config->kind)
			return backend_providers[i].ops->open(config, backend);
	return config->kind == BACKEND_AUTO ? provider_open_auto(config, backend) : -EINVAL;
}
