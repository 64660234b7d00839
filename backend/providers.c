/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/providers.h"

#include <errno.h>

#include "common/log.h"

const struct backend_provider backend_providers[BACKEND_PROVIDERS] = {
    {BACKEND_CUDA, &backend_cuda_ops, "this machine has no NVIDIA GPU in use"},
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

static int provider_open_auto(const struct backend_config *config, struct backend **backend)
{
	const struct backend_provider *provider = backend_providers;
	char why[256] = "";
	struct backend_config tried = *config;

	tried.why = why;
	tried.why_bytes = sizeof(why);
	for (; provider->absent; provider++) {
		int rc = provider->ops->open(&tried, backend);

		if (rc != -ENODEV && rc != -ENOTSUP)
			return rc;
		if (config->gpus && provider_has_device(provider->ops, &tried))
			return rc;
	}
	int rc = provider->ops->open(config, backend);

	if (rc == 0)
		log_info("backend: %s (files are kept in system memory: %s%s%s)",
			 provider->ops->name, provider[-1].absent, *why ? "; " : "", why);
	return rc;
}

int provider_open(const struct backend_config *config, struct backend **backend)
{
	for (unsigned i = 0; i < BACKEND_PROVIDERS; i++)
		if (backend_providers[i].kind == config->kind)
			return backend_providers[i].ops->open(config, backend);
	return config->kind == BACKEND_AUTO ? provider_open_auto(config, backend) : -EINVAL;
}
