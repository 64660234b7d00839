/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The VRAM of the processes that use a GPU, from /proc/PID/fdinfo/, where each DRM client tells its
 * own (Documentation/gpu/drm-usage-stats.rst). A client can have several descriptors. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/gpus.h"
#include "common/cleanup.h"
#include "common/number.h"

/* Clients beyond this number are not counted. */
#define CLIENTS_MAX 1024
#define BYTES_MAX   (1ULL << 50)

struct client {
	uint64_t id; /* 0: none */
	uint64_t bytes;
	bool is_of_gpu;
};

struct clients {
	uint64_t ids[CLIENTS_MAX];
	unsigned n;
	uint64_t bytes;
};

/* "123 KiB", "4 MiB", "56". */
static uint64_t amount_parse(char *text)
{
	char *unit = strchr(text, ' ');
	unsigned shift = 0;
	uint64_t value;

	if (unit) {
		*unit++ = '\0';
		shift = strcmp(unit, "KiB") == 0 ? 10 : strcmp(unit, "MiB") == 0 ? 20 : 64;
	}
	if (shift == 64 || parse_u64(text, 0, BYTES_MAX >> shift, &value) < 0)
		return 0;
	return value << shift;
}

/* A line "drm-resident-vram0:	123 KiB". */
static void line_read(char *line, const char *pci, struct client *client)
{
	static const char resident[] = "drm-resident-vram";
	char *value = strchr(line, ':');
	uint64_t id;

	if (!value)
		return;
	*value++ = '\0';
	value += strspn(value, " \t");
	value[strcspn(value, "\n")] = '\0';
	if (strcmp(line, "drm-pdev") == 0)
		client->is_of_gpu = strcmp(value, pci) == 0;
	else if (strcmp(line, "drm-client-id") == 0 && parse_u64(value, 1, UINT64_MAX, &id) == 0)
		client->id = id;
	else if (strncmp(line, resident, strlen(resident)) == 0)
		client->bytes += amount_parse(value);
}

static void fdinfo_read(const char *path, const char *pci, struct clients *clients)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	struct client client = {0};
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		line_read(line, pci, &client);
	if (!client.is_of_gpu || !client.id || clients->n == CLIENTS_MAX)
		return;
	for (unsigned i = 0; i < clients->n; i++)
		if (clients->ids[i] == client.id)
			return;
	clients->ids[clients->n++] = client.id;
	clients->bytes += client.bytes;
}

/* Calls visit for the entries of a folder whose names are numbers. */
static void numbers_each(const char *folder, const char *pci, struct clients *clients,
			 void (*visit)(const char *path, const char *pci, struct clients *clients))
{
	DIR *dir = opendir(folder);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		AUTO_FREE char *path = NULL;

		if (isdigit((unsigned char)entry->d_name[0]) &&
		    asprintf(&path, "%s/%s", folder, entry->d_name) >= 0)
			visit(path, pci, clients);
	}
	if (dir)
		closedir(dir);
}

static void process_read(const char *path, const char *pci, struct clients *clients)
{
	AUTO_FREE char *folder = NULL;

	if (asprintf(&folder, "%s/fdinfo", path) >= 0)
		numbers_each(folder, pci, clients, fdinfo_read);
}

uint64_t gpu_clients_used(const char *root, const char *pci)
{
	AUTO_FREE char *proc = NULL;
	struct clients clients = {.n = 0};

	if (asprintf(&proc, "%s/proc", root) >= 0)
		numbers_each(proc, pci, &clients, process_read);
	return clients.bytes;
}
