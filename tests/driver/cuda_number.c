/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which GPUs and MIG instances CUDA shows to this process, and in which order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/standin.h"

static unsigned shown[STANDIN_GPUS_MAX]; /* numbers of helpers.h, by CUDA's ordinal */

unsigned standin_physical(unsigned device)
{
	return shown[device];
}

int standin_ordinal(unsigned gpu)
{
	for (unsigned i = 0; i < settings.gpus; i++)
		if (shown[i] == gpu)
			return (int)i;
	return -1;
}

bool standin_gpu_exists(unsigned gpu)
{
	return gpu < settings.whole_gpus ||
	       (gpu >= STANDIN_MIG_FIRST && gpu - STANDIN_MIG_FIRST < settings.mig);
}

void standin_uuid(unsigned gpu, uint8_t uuid[16])
{
	static const uint8_t base[16] = STANDIN_UUID;

	memcpy(uuid, base, 16);
	uuid[15] = (uint8_t)(uuid[15] + gpu);
}

/* The instances of GPU 0 share its memory. */
uint64_t standin_gpu_memory(unsigned gpu)
{
	if (gpu < STANDIN_MIG_FIRST)
		return settings.memory;
	return settings.memory / settings.mig / STANDIN_GRANULARITY * STANDIN_GRANULARITY;
}

/* Whether text begins with the instance's UUID, "MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx". */
static bool is_uuid_of(const char *text, size_t length, unsigned gpu)
{
	char wanted[40] = "";
	uint8_t uuid[16];

	standin_uuid(gpu, uuid);
	for (unsigned i = 0; i < 16; i++)
		sprintf(wanted + strlen(wanted), "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return length == 4 + strlen(wanted) && strncmp(text, "MIG-", 4) == 0 &&
	       strncmp(text + 4, wanted, strlen(wanted)) == 0;
}

/* CUDA_VISIBLE_DEVICES names instances by UUID; CUDA ignores the rest of the list behind a name
 * that it does not know. */
static void show_named(const char *list)
{
	for (size_t length; *list; list += length + (list[length] == ',')) {
		unsigned i = 0;

		length = strcspn(list, ",");
		while (i < settings.mig && !is_uuid_of(list, length, STANDIN_MIG_FIRST + i))
			i++;
		if (i == settings.mig)
			return;
		shown[settings.gpus++] = STANDIN_MIG_FIRST + i;
	}
}

void numbers_load(bool reverse)
{
	const char *list = settings.mig ? getenv("CUDA_VISIBLE_DEVICES") : NULL;
	unsigned n = settings.mig ? settings.mig : settings.whole_gpus;

	if (list) {
		show_named(list);
		return;
	}
	settings.gpus = n;
	for (unsigned i = 0; i < n; i++)
		shown[i] = (settings.mig ? STANDIN_MIG_FIRST : 0) + (reverse ? n - 1 - i : i);
}
