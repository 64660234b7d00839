/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fs/core/limits.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"

#define SHARE_MEMORY_MAGIC 0x53465047u /* "GPFS" */

/* The kernel backs what is used of them. */
#define TOKEN_SLOTS TOKENS_MAX
#define LEASE_SLOTS (1U << 20)

/* A slot's state is stored last when it is filled, and first when it is emptied. */
enum { SLOT_EMPTY, SLOT_FULL, SLOT_ANSWERED };

struct token_slot {
	_Atomic uint32_t state;
	struct share_note_token token;
};

struct lease_slot {
	_Atomic uint32_t state;
	uint32_t token; /* 0, as memory is that a daemon before this field left */
	struct share_note_lease lease;
};

_Static_assert(sizeof(struct lease_slot) == 8 + sizeof(struct share_note_lease),
	       "the field lies where daemons before it had padding");

/* As it lies in memory, the same for all daemons of a mount. */
struct notes {
	struct region_head head;
	_Atomic uint32_t tokens_end, leases_end; /* behind the last that was ever filled */
	struct token_slot tokens[TOKEN_SLOTS];
	struct lease_slot leases[LEASE_SLOTS];
};

struct share_memory {
	struct notes *notes;
	uint32_t token_hint, lease_hint; /* where to look for an empty slot */
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-sharing",
    .head = {.magic = SHARE_MEMORY_MAGIC, .version = 1},
    .bytes = sizeof(struct notes),
};

int share_memory_open(struct fdstore *fdstore, struct share_memory **opened)
{
	*opened = NULL;
	if (!fdstore)
		return 0;
	struct share_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return -ENOMEM;
	void *notes = NULL;
	int error = region_open(fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_MEMORY),
				&region_kind, &notes);

	memory->notes = notes;
	if (error)
		share_memory_close(memory);
	else
		*opened = memory;
	return error;
}

void share_memory_close(struct share_memory *memory)
{
	if (!memory)
		return;
	if (memory->notes)
		munmap(memory->notes, sizeof(*memory->notes));
	free(memory);
}

uint32_t share_memory_token(struct share_memory *memory, const struct share_note_token *token)
{
	for (uint32_t tries = 0; memory && tries < TOKEN_SLOTS; tries++) {
		uint32_t at = memory->token_hint++ % TOKEN_SLOTS;
		struct token_slot *slot = &memory->notes->tokens[at];

		if (slot->state != SLOT_EMPTY)
			continue;
		if (at >= memory->notes->tokens_end)
			memory->notes->tokens_end = at + 1;
		slot->token = *token;
		atomic_store(&slot->state, SLOT_FULL);
		return at;
	}
	return SHARE_NO_SLOT;
}

uint32_t share_memory_lease(struct share_memory *memory, const struct share_note_lease *lease,
			    uint32_t token)
{
	for (uint32_t tries = 0; memory && tries < LEASE_SLOTS; tries++) {
		uint32_t at = memory->lease_hint++ % LEASE_SLOTS;
		struct lease_slot *slot = &memory->notes->leases[at];

		if (slot->state != SLOT_EMPTY)
			continue;
		if (at >= memory->notes->leases_end)
			memory->notes->leases_end = at + 1;
		slot->lease = *lease;
		slot->token = token;
		atomic_store(&slot->state, SLOT_FULL);
		return at;
	}
	return SHARE_NO_SLOT;
}

/* The lowest is filled again, so that as little as can be is ever looked at. */
void share_memory_forget_token(struct share_memory *memory, uint32_t slot)
{
	if (!memory || slot >= TOKEN_SLOTS)
		return;
	atomic_store(&memory->notes->tokens[slot].state, SLOT_EMPTY);
	if (slot < memory->token_hint)
		memory->token_hint = slot;
}

void share_memory_forget_lease(struct share_memory *memory, uint32_t slot)
{
	if (!memory || slot >= LEASE_SLOTS)
		return;
	atomic_store(&memory->notes->leases[slot].state, SLOT_EMPTY);
	if (slot < memory->lease_hint)
		memory->lease_hint = slot;
}

void share_memory_drop(struct share_memory *memory, uint32_t slot, uint32_t kind)
{
	if (memory && slot < LEASE_SLOTS)
		memory->notes->leases[slot].lease.kind = kind;
}

void share_memory_answered(struct share_memory *memory, uint32_t slot)
{
	if (memory && slot < LEASE_SLOTS)
		atomic_store(&memory->notes->leases[slot].state, SLOT_ANSWERED);
}

bool share_memory_next_token(struct share_memory *memory, uint32_t *slot,
			     struct share_note_token *token)
{
	while (memory && *slot < TOKEN_SLOTS && *slot < memory->notes->tokens_end) {
		const struct token_slot *at = &memory->notes->tokens[(*slot)++];

		if (at->state == SLOT_EMPTY)
			continue;
		*token = at->token;
		return true;
	}
	return false;
}

bool share_memory_next_lease(struct share_memory *memory, uint32_t *slot,
			     struct share_note_lease *lease, struct share_note_request *request)
{
	while (memory && *slot < LEASE_SLOTS && *slot < memory->notes->leases_end) {
		const struct lease_slot *at = &memory->notes->leases[(*slot)++];
		uint32_t state = at->state;

		if (state == SLOT_EMPTY)
			continue;
		*lease = at->lease;
		*request = (struct share_note_request){state == SLOT_ANSWERED, at->token};
		return true;
	}
	return false;
}
