/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/slots.h"

#include <stdatomic.h>
#include <string.h>

_Atomic uint32_t *slot_state(const struct slots *slots, uint32_t slot)
{
	return (_Atomic uint32_t *)(slots->first + slot * slots->stride);
}

void *slot_content(const struct slots *slots, uint32_t slot)
{
	return slots->first + slot * slots->stride + slots->offset;
}

uint32_t slot_fill(struct slots *slots, const void *content, size_t bytes)
{
	for (uint32_t attempt = 0; attempt < slots->count; attempt++) {
		uint32_t slot = slots->hint++ % slots->count;
		_Atomic uint32_t *state = slot_state(slots, slot);

		if (*state != SLOT_EMPTY)
			continue;
		if (slot >= *slots->end)
			*slots->end = slot + 1;
		memcpy(slot_content(slots, slot), content, bytes);
		atomic_store(state, SLOT_FULL);
		return slot;
	}
	return SLOT_NONE;
}

/* The lowest empty slot is filled next, so that a restore reads few slots. */
void slot_empty(struct slots *slots, uint32_t slot)
{
	if (slot >= slots->count)
		return;
	atomic_store(slot_state(slots, slot), SLOT_EMPTY);
	if (slot < slots->hint)
		slots->hint = slot;
}

const void *slot_next(const struct slots *slots, uint32_t *slot)
{
	while (*slot < slots->count && *slot < *slots->end) {
		uint32_t at = (*slot)++;

		if (*slot_state(slots, at) != SLOT_EMPTY)
			return slot_content(slots, at);
	}
	return NULL;
}
