/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Raw targets on a machine without a GPU: copies from memory to memory by this program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/stream/stream.h"
#include "tests/bench/raw.h"

struct raw_memory {
	struct raw base; /* must be the first member */
	char *memory, *copies[2];
	uint64_t bytes, copy_bytes;
};

static struct raw_memory *raw_memory(struct raw *raw)
{
	return (struct raw_memory *)raw;
}

static int enter(struct target *target, unsigned lane)
{
	(void)target, (void)lane;
	return 0;
}

static ssize_t copy_read(struct target *target, unsigned lane, void *to, size_t bytes,
			 uint64_t offset)
{
	(void)lane;
	memcpy(to, raw_memory(target->raw)->memory + offset, bytes);
	return (ssize_t)bytes;
}

static ssize_t copy_write(struct target *target, unsigned lane, const void *from, size_t bytes,
			  uint64_t offset)
{
	(void)lane;
	memcpy(raw_memory(target->raw)->memory + offset, from, bytes);
	return (ssize_t)bytes;
}

static const struct target_ops copy_ops = {enter, copy_read, copy_write};
static const struct target_ops bar_ops = {enter, raw_bar_read, raw_bar_write};

static int across(struct raw *raw, unsigned gpu, uint64_t bytes)
{
	struct raw_memory *memory = raw_memory(raw);

	memcpy(memory->copies[gpu], memory->memory, bytes);
	return 0;
}

static int read_copy(struct raw *raw, unsigned gpu, void *to, uint64_t bytes, uint64_t offset)
{
	memcpy(to, raw_memory(raw)->copies[gpu] + offset, bytes);
	return 0;
}

static int fetch(struct raw *raw, void *to, unsigned long long address, uint64_t bytes)
{
	(void)raw, (void)to, (void)address, (void)bytes;
	return -ENODEV;
}

static int use(struct raw *raw)
{
	(void)raw;
	return -ENODEV;
}

static void give_back(struct raw *raw)
{
	struct raw_memory *memory = raw_memory(raw);

	for (unsigned i = 0; i < 2; i++)
		if (memory->copies[i])
			munmap(memory->copies[i], memory->copy_bytes);
	if (memory->memory)
		munmap(memory->memory, memory->bytes);
	free(memory);
}

static char *populated(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

struct raw *raw_memory_open(const struct data *data, uint64_t copy_bytes, char *why)
{
	struct raw_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return NULL;
	memory->base = (struct raw){.copy_ops = &copy_ops,
				    .bar_ops = &bar_ops,
				    .across = across,
				    .read_copy = read_copy,
				    .fetch = fetch,
				    .use = use,
				    .close = give_back};
	snprintf(memory->base.device, WHY_MAX, "no GPU: simulated in system memory");
	snprintf(memory->base.copy_about, WHY_MAX, "memcpy inside this process (no GPU here)");
	snprintf(memory->base.bar_about, WHY_MAX,
		 "streaming stores and loads (%s) to ordinary memory (no GPU here)", stream_name());
	memory->bytes = data->lanes * data->region;
	memory->copy_bytes = copy_bytes;
	memory->memory = populated(memory->bytes);
	memory->base.bar = memory->memory;
	memory->copies[0] = populated(copy_bytes);
	memory->copies[1] = populated(copy_bytes);
	if (memory->memory && memory->copies[0] && memory->copies[1])
		return &memory->base;
	snprintf(why, WHY_MAX, "no memory");
	give_back(&memory->base);
	return NULL;
}
