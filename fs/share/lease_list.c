/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/lease_list.h"

#include <errno.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "fs/share/viewer.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

/* So many entries are read before another thread gets the lock. */
#define ENTRIES_PER_LOCK 256

/* The arguments of lease_list_drop. */
struct lease_dropping {
	const struct inode *inode;
	int64_t cutoff;
	bool (*drop)(void *context, struct lease_entry *entry);
	void *context;
};

int lease_list_new(struct lease_list **new_list)
{
	struct lease_list *list = calloc(1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	pthread_mutex_init(&list->lock, NULL);
	*new_list = list;
	return 0;
}

void lease_list_free(struct lease_list *list)
{
	pthread_mutex_destroy(&list->lock);
	free(list);
}

static void sums_add(struct lease_list *list, const struct lease_entry *entry, int sign)
{
	struct lease_sums *sums = &list->sums[entry->volume];

	sums->leases += (uint64_t)sign;
	sums->bytes += (uint64_t)sign * entry->bytes;
}

void lease_list_add(struct lease_list *list, struct lease_entry *entry)
{
	entry->volume = file_volume(entry->inode->file)->index;
	entry->bytes = file_size(entry->inode->file);
	scoped_lock(&list->lock);
	entry->sequence = ++list->last_sequence;
	DL_APPEND2(list->first, entry, previous, next);
	sums_add(list, entry, 1);
}

/* lock is held. */
static void entry_unlink(struct lease_list *list, struct lease_entry *entry)
{
	DL_DELETE2(list->first, entry, previous, next);
	sums_add(list, entry, -1);
	entry->sequence = 0;
}

void lease_list_remove(struct lease_list *list, struct lease_entry *entry)
{
	scoped_lock(&list->lock);
	if (entry->sequence)
		entry_unlink(list, entry);
}

void lease_list_measure(struct lease_list *list, struct lease_entry *entry)
{
	uint64_t bytes = file_size(entry->inode->file);

	scoped_lock(&list->lock);
	if (!entry->sequence)
		return;
	sums_add(list, entry, -1);
	entry->bytes = bytes;
	sums_add(list, entry, 1);
}

struct lease_sums lease_list_sums(struct lease_list *list, unsigned volume)
{
	scoped_lock(&list->lock);
	return list->sums[volume];
}

static bool place_is_listed(const struct lease_place *place)
{
	return place->entry.previous; /* the previous of the list's head is the tail */
}

/* lock is held. */
static void place_begin(struct lease_list *list, struct lease_place *place)
{
	struct lease_entry *at = &place->entry;

	if (place_is_listed(place))
		return;
	place->end = list->last_sequence;
	DL_PREPEND2(list->first, at, previous, next);
}

/* Collects entries from a place on, at most ENTRIES_PER_LOCK of them read. *at_end: the place is at
 * the last entry that was in the list at the start. lock is held. */
static unsigned entries_collect(struct lease_list *list, struct lease_place *place,
				const struct viewer *viewer, struct lease_entry *found,
				unsigned room, bool *at_end)
{
	struct lease_entry *at = &place->entry, *last = at;
	unsigned n_found = 0;

	for (unsigned n_read = 0; n_read < ENTRIES_PER_LOCK && n_found < room; n_read++) {
		struct lease_entry *next = last->next;

		*at_end = !next || next->sequence > place->end;
		if (*at_end)
			break;
		last = next;
		if (!next->sequence || !viewer_sees_lease(viewer, next->file, next->uid))
			continue;
		inode_ref(next->inode);
		inode_ref(next->file);
		found[n_found++] = *next;
	}
	if (last == at)
		return n_found;
	DL_DELETE2(list->first, at, previous, next);
	DL_APPEND_ELEM2(list->first, last, at, previous, next);
	return n_found;
}

unsigned lease_list_next(struct lease_list *list, struct lease_place *place,
			 const struct viewer *viewer, struct lease_entry *found, unsigned room)
{
	unsigned n_found = 0;

	for (bool at_end = false; !n_found && !at_end;) {
		scoped_lock(&list->lock);
		place_begin(list, place);
		n_found = entries_collect(list, place, viewer, found, room, &at_end);
	}
	return n_found;
}

void lease_list_leave(struct lease_list *list, struct lease_place *place)
{
	struct lease_entry *at = &place->entry;

	scoped_lock(&list->lock);
	if (place_is_listed(place))
		DL_DELETE2(list->first, at, previous, next);
	*place = (struct lease_place){0};
}

/* Drops entries from a place on, at most ENTRIES_PER_LOCK of them read. False: the place is at the
 * last entry that was in the list at the start. lock is held. */
static bool entries_drop(struct lease_list *list, struct lease_place *place,
			 const struct lease_dropping *dropping, uint64_t *dropped)
{
	struct lease_entry *at = &place->entry;

	for (unsigned n_read = 0; n_read < ENTRIES_PER_LOCK; n_read++) {
		struct lease_entry *next = at->next;

		if (!next || next->sequence > place->end)
			return false;
		DL_DELETE2(list->first, at, previous, next);
		DL_APPEND_ELEM2(list->first, next, at, previous, next);
		if (!next->sequence || next->inode != dropping->inode ||
		    next->since >= dropping->cutoff || !dropping->drop(dropping->context, next))
			continue;
		entry_unlink(list, next);
		++*dropped;
	}
	return true;
}

uint64_t lease_list_drop(struct lease_list *list, const struct inode *inode, int64_t cutoff,
			 bool (*drop)(void *context, struct lease_entry *entry), void *context)
{
	struct lease_dropping dropping = {inode, cutoff, drop, context};
	struct lease_place place = {0};
	uint64_t dropped = 0;
	bool has_more = true;

	while (has_more) {
		scoped_lock(&list->lock);
		place_begin(list, &place);
		has_more = entries_drop(list, &place, &dropping, &dropped);
	}
	lease_list_leave(list, &place);
	return dropped;
}
