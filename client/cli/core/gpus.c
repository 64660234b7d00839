/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/gpus.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/facts.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"

#define PCI_DEVICES "/sys/bus/pci/devices"
#define DRM_CARDS   "/sys/class/drm"

/* More tiles and more bytes than a GPU has. */
#define TILES_MAX 8
#define VRAM_MAX  (1ULL << 50)
#define CARDS_MAX 64
#define SMALL_BAR (256ULL << 20) /* the largest BAR of VRAM without resizable BAR */
#define BAR_OF_XE 2		 /* LMEM_BAR of drivers/gpu/drm/xe/regs/xe_bars.h */

/* The first line of a file of the device, allocated, or NULL. */
static char *device_line(const char *root, const char *pci, const char *name)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, PCI_DEVICES "/%s/%s", pci, name) < 0)
		return NULL;
	return facts_first_line(root, path);
}

static uint64_t device_bytes(const char *root, const char *pci, const char *name)
{
	AUTO_FREE char *line = device_line(root, pci, name);
	uint64_t bytes;

	return line && parse_u64(line, 0, VRAM_MAX, &bytes) == 0 ? bytes : 0;
}

/* The size of a BAR is the size of its file (Documentation/PCI/sysfs-pci.rst). */
static uint64_t device_bar_bytes(const char *root, const char *pci, unsigned bar)
{
	AUTO_FREE char *path = NULL;
	struct stat state;

	if (asprintf(&path, "%s" PCI_DEVICES "/%s/resource%u", root, pci, bar) < 0 ||
	    stat(path, &state) < 0)
		return 0;
	return (uint64_t)state.st_size;
}

/* drivers/gpu/drm/amd/amdgpu/amdgpu_vram_mgr.c describes the files. */
static void amdgpu_read(const char *root, const char *pci, struct gpu_facts *facts)
{
	facts->vram = device_bytes(root, pci, "mem_info_vram_total");
	facts->used = device_bytes(root, pci, "mem_info_vram_used");
	facts->visible = device_bytes(root, pci, "mem_info_vis_vram_total");
}

/* Some versions of xe_tile_sysfs.c have the size of each tile's VRAM. Without the size, BAR 2 may
 * be that of an integrated GPU, which has no VRAM. */
static void xe_read(const char *root, const char *pci, struct gpu_facts *facts)
{
	for (unsigned tile = 0; tile < TILES_MAX; tile++) {
		char name[48];

		snprintf(name, sizeof(name), "tile%u/physical_vram_size_bytes", tile);
		facts->vram += device_bytes(root, pci, name);
	}
	if (facts->vram)
		facts->visible = device_bar_bytes(root, pci, BAR_OF_XE);
	facts->used = gpu_clients_used(root, pci);
}

static const struct {
	const char *driver;
	void (*read)(const char *root, const char *pci, struct gpu_facts *facts);
} gpu_readers[] = {{"amdgpu", amdgpu_read}, {"xe", xe_read}};

/* The name of the driver is the last part of the link's target. */
static void driver_read(const char *root, const char *pci, char driver[32])
{
	AUTO_FREE char *path = NULL;
	char target[256];
	ssize_t length;

	if (asprintf(&path, "%s" PCI_DEVICES "/%s/driver", root, pci) < 0)
		return;
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return;
	target[length] = '\0';
	const char *slash = strrchr(target, '/');

	snprintf(driver, 32, "%.31s", slash ? slash + 1 : target);
}

static bool is_pci_address(const char *text)
{
	static const char form[] = "xxxx:xx:xx.x";
	size_t i = 0;

	while (form[i] && (form[i] == 'x' ? isxdigit((unsigned char)text[i]) : text[i] == form[i]))
		i++;
	return !form[i] && !text[i];
}

bool gpu_facts_read(const char *root, const char *pci, struct gpu_facts *facts)
{
	AUTO_FREE char *path = NULL;

	*facts = (struct gpu_facts){0};
	if (!is_pci_address(pci) || asprintf(&path, "%s" PCI_DEVICES "/%s", root, pci) < 0 ||
	    access(path, F_OK) < 0)
		return false;
	snprintf(facts->pci, sizeof(facts->pci), "%.12s", pci);
	driver_read(root, pci, facts->driver);
	for (unsigned i = 0; i < sizeof(gpu_readers) / sizeof(gpu_readers[0]); i++)
		if (strcmp(facts->driver, gpu_readers[i].driver) == 0)
			gpu_readers[i].read(root, pci, facts);
	return true;
}

bool gpu_facts_small_window(const struct gpu_facts *facts)
{
	return facts->visible && facts->visible < facts->vram;
}

/* "24 GiB". */
static const char *size_words(uint64_t bytes, char text[OUTPUT_TEXT_MAX])
{
	char number[OUTPUT_TEXT_MAX];
	size_t digits = strspn(output_size(bytes, number), "0123456789.");

	snprintf(text, OUTPUT_TEXT_MAX, "%.*s %.1s%s", (int)digits, number, number + digits,
		 number[digits] ? "iB" : "bytes");
	return text;
}

/* "24 GiB of VRAM (1.5 GiB used), 256 MiB visible to the CPU: resizable BAR is off". */
static int vram_text(const struct gpu_facts *facts, char **text)
{
	char total[OUTPUT_TEXT_MAX], used[OUTPUT_TEXT_MAX], visible[OUTPUT_TEXT_MAX];
	AUTO_FREE char *amounts = NULL;

	size_words(facts->used, used);
	if (!facts->vram)
		return asprintf(text, "%s of VRAM used", used);
	size_words(facts->vram, total);
	if (asprintf(&amounts, facts->used ? "%s of VRAM (%s used)" : "%s of VRAM", total, used) <
	    0)
		return -1;
	if (!gpu_facts_small_window(facts))
		return asprintf(text, "%s%s", amounts,
				facts->visible ? ", all of it visible to the CPU" : "");
	return asprintf(text, "%s, %s visible to the CPU: %s", amounts,
			size_words(facts->visible, visible),
			facts->visible <= SMALL_BAR ? "resizable BAR is off"
						    : "the BAR is smaller than the VRAM");
}

char *gpu_facts_text(const struct gpu_facts *facts)
{
	const char *driver = *facts->driver ? facts->driver : "none";
	AUTO_FREE char *vram = NULL;
	char *text;

	if ((facts->vram || facts->used) && vram_text(facts, &vram) < 0)
		return NULL;
	return asprintf(&text, "driver %s%s%s", driver, vram ? ", " : "", vram ? vram : "") < 0
		   ? NULL
		   : text;
}

static int address_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Whether the device of a card is of a vendor whose GPUs hold files. */
static bool is_gpu(const char *root, const char *pci)
{
	AUTO_FREE char *vendor = device_line(root, pci, "vendor");

	return vendor && (strcmp(vendor, "0x1002") == 0 || strcmp(vendor, "0x8086") == 0 ||
			  strcmp(vendor, "0x10de") == 0);
}

/* The PCI address of "cardN": the last part of its link's target "device". Connectors are in the
 * folder too ("card0-DP-1"). */
static bool card_address(const char *root, const char *card, char pci[16])
{
	AUTO_FREE char *path = NULL;
	char target[256];
	ssize_t length;

	if (strncmp(card, "card", 4) != 0 || !isdigit((unsigned char)card[4]) ||
	    card[4 + strspn(card + 4, "0123456789")] ||
	    asprintf(&path, "%s" DRM_CARDS "/%s/device", root, card) < 0)
		return false;
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;

	if (!is_pci_address(name))
		return false;
	snprintf(pci, 16, "%.12s", name);
	return true;
}

void gpus_each(const char *root, void (*visit)(void *context, const struct gpu_facts *facts),
	       void *context)
{
	AUTO_FREE char *path = NULL;
	char found[CARDS_MAX][16];
	struct gpu_facts facts;
	size_t n = 0;

	if (asprintf(&path, "%s" DRM_CARDS, root) < 0)
		return;
	DIR *dir = opendir(path);

	for (struct dirent *entry; dir && n < CARDS_MAX && (entry = readdir(dir));)
		n += card_address(root, entry->d_name, found[n]) && is_gpu(root, found[n]);
	if (dir)
		closedir(dir);
	qsort(found, n, sizeof(found[0]), address_compare);
	for (size_t i = 0; i < n; i++)
		if (gpu_facts_read(root, found[i], &facts))
			visit(context, &facts);
}
