/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Slots of equal size in a region (region.h), each empty or full. A daemon may be killed between
 * any two stores: the state is stored last when a slot is filled, and first when a slot is emptied.
 * The caller's lock protects the slots. */
#ifndef FS_KEEPER_SLOTS_H
#define FS_KEEPER_SLOTS_H

#include <stddef.h>
#include <stdint.h>

/* The state begins each slot, as an _Atomic uint32_t. A caller may use states above SLOT_FULL. */
enum { SLOT_EMPTY, SLOT_FULL };

#define SLOT_NONE UINT32_MAX

struct slots {
	char *first;
	size_t stride; /* from slot to slot */
	size_t offset; /* of the content in a slot */
	uint32_t count;
	_Atomic uint32_t *end; /* behind the last slot that was ever filled; in the region */
	uint32_t hint;	       /* the search for an empty slot begins here */
};

/* The slot of the copy, or SLOT_NONE: all slots are full. */
uint32_t slot_fill(struct slots *slots, const void *content, size_t bytes);
/* Ignores SLOT_NONE. */
void slot_empty(struct slots *slots, uint32_t slot);
_Atomic uint32_t *slot_state(const struct slots *slots, uint32_t slot);
void *slot_content(const struct slots *slots, uint32_t slot);
/* The content of the first full slot from *slot on, or NULL; *slot is then the slot after. */
const void *slot_next(const struct slots *slots, uint32_t *slot);

#endif
