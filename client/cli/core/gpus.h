/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the kernel tells about the machine's GPUs, without a vendor's library. root is "", or in
 * tests a folder in front of /sys and /proc. */
#ifndef CLIENT_CLI_CORE_GPUS_H
#define CLIENT_CLI_CORE_GPUS_H

#include <stdbool.h>
#include <stdint.h>

struct gpu_facts {
	char pci[16];	  /* "0000:03:00.0" */
	char driver[32];  /* of the kernel: "amdgpu", "xe", "nvidia"; "" without a driver */
	uint64_t vram;	  /* bytes; 0: the driver does not tell, also for the next two */
	uint64_t used;	  /* by all programs; of xe by the programs that this user may see */
	uint64_t visible; /* the part that the CPU can map at once */
};

/* false: no such device. Values that make no sense count as not told. */
bool gpu_facts_read(const char *root, const char *pci, struct gpu_facts *facts);

/* Whether the VRAM that the CPU sees is a small window, as without resizable BAR. */
bool gpu_facts_small_window(const struct gpu_facts *facts);

/* "driver amdgpu, 24 GiB of VRAM (1.5 GiB used), 256 MiB visible to the CPU: resizable BAR is off",
 * allocated. */
char *gpu_facts_text(const struct gpu_facts *facts);

/* Calls visit for every GPU of AMD, Intel or NVIDIA with a DRM card, by PCI address. */
void gpus_each(const char *root, void (*visit)(void *context, const struct gpu_facts *facts),
	       void *context);

/* gpu_clients.c: bytes that the DRM clients of this GPU have in VRAM, as far as the user may see
 * the processes. */
uint64_t gpu_clients_used(const char *root, const char *pci);

#endif
