/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/preload/core/own.h"
#include "client/preload/window.h"

#define SLOTS 200

/* The class of a descriptor: not known, of no interest, or FIRST + the number of the slot. */
enum { UNKNOWN, OTHER, FIRST };
_Static_assert(FIRST + SLOTS <= UINT8_MAX, "a descriptor's slot is kept in a byte");

static atomic_uchar fd_classes[DESCRIPTORS_MAX];
static struct slot slot_table[SLOTS];
static atomic_uint n_slots;		/* slots used so far */
static pthread_mutex_t assignment_lock; /* held to give files to slots */

void slots_start(void)
{
	pthread_mutex_init(&assignment_lock, NULL);
	for (unsigned i = 0; i < SLOTS; i++)
		pthread_rwlock_init(&slot_table[i].lock, NULL);
}

/* Under assignment_lock and the slot's lock. */
static void slot_assign(struct slot *slot, const struct slot_identity *identity)
{
	slot->identity = *identity;
	slot->kind = ACCESS_NONE;
	slot->refused = identity_is_cached(identity);
	slot->reason = LEFT_CACHED;
	atomic_store(&slot->used, 0);
	atomic_store(&slot->next_attempt, slot->refused ? UINT64_MAX : window_use_first());
	slots_times_set();
}

/* Under assignment_lock. Finds or takes the file's slot, and counts one more descriptor. */
static struct slot *slot_find(const struct slot_identity *identity)
{
	unsigned n = atomic_load(&n_slots);
	struct slot *free = n < SLOTS ? &slot_table[n] : NULL;

	for (unsigned i = 0; i < n; i++) {
		if (slot_same(&slot_table[i].identity, identity)) {
			atomic_fetch_add(&slot_table[i].descriptors, 1);
			return &slot_table[i];
		}
		if (atomic_load(&slot_table[i].descriptors) == 0)
			free = &slot_table[i];
	}
	if (!free || pthread_rwlock_trywrlock(&free->lock) != 0)
		return NULL;
	if (free == &slot_table[n])
		atomic_store(&n_slots, n + 1);
	window_close(free);
	slot_assign(free, identity);
	atomic_store(&free->descriptors, 1);
	pthread_rwlock_unlock(&free->lock);
	return free;
}

/* Devices and whether they may be gpumemfs. The kernel reuses numbers of devices: then the library
 * looks at a file in vain, or leaves the file to the kernel. */
#define DEVICES_MAX 32
static struct {
	uint64_t number;
	bool may_be;
} device_table[DEVICES_MAX]; /* under assignment_lock */
static unsigned n_devices;

/* Under assignment_lock. */
static bool device_may_be(int fd, uint64_t device)
{
	for (unsigned i = 0; i < n_devices; i++)
		if (device_table[i].number == device)
			return device_table[i].may_be;
	bool verdict = access_may_be(fd);
	unsigned at = n_devices < DEVICES_MAX ? n_devices++ : (unsigned)(device % DEVICES_MAX);
	device_table[at].number = device;
	device_table[at].may_be = verdict;
	return verdict;
}

/* Under assignment_lock. */
static struct slot *file_classify(int fd, const struct slot_identity *identity)
{
	struct slot *slot = device_may_be(fd, identity->device) ? slot_find(identity) : NULL;
	unsigned char unknown = UNKNOWN;
	unsigned char class = slot ? (unsigned char)(FIRST + (slot - slot_table)) : OTHER;

	if (!atomic_compare_exchange_strong(&fd_classes[fd], &unknown, class) && slot)
		atomic_fetch_sub(&slot->descriptors, 1);
	return slot;
}

/* trylock: a signal's handler in a thread that holds the lock may get here again. */
static struct slot *fd_classify(int fd)
{
	struct slot_identity identity;
	unsigned char unknown = UNKNOWN;

	if (!identity_get(fd, &identity)) {
		atomic_compare_exchange_strong(&fd_classes[fd], &unknown, OTHER);
		return NULL;
	}
	if (pthread_mutex_trylock(&assignment_lock) != 0)
		return NULL;
	struct slot *slot = file_classify(fd, &identity);
	pthread_mutex_unlock(&assignment_lock);
	return slot;
}

struct slot *slot_of(int fd)
{
	if (own_inside || fd < 0 || fd >= DESCRIPTORS_MAX)
		return NULL;
	unsigned char class = atomic_load_explicit(&fd_classes[fd], memory_order_acquire);
	if (class == OTHER)
		return NULL;
	if (!own_process())
		return NULL;
	if (class != UNKNOWN)
		return &slot_table[class - FIRST];
	int error = errno;
	INSIDE();
	struct slot *slot = fd_classify(fd);
	errno = error;
	return slot;
}

/* For a descriptor that refers to another file now. */
static void fd_forget(int fd, const struct slot *slot)
{
	unsigned char class = (unsigned char)(FIRST + (slot - slot_table));

	if (atomic_compare_exchange_strong(&fd_classes[fd], &class, UNKNOWN))
		atomic_fetch_sub(&slot_table[slot - slot_table].descriptors, 1);
}

bool slot_is_of(const struct slot *slot, int fd)
{
	struct slot_identity identity;

	return identity_get(fd, &identity) && slot_same(&identity, &slot->identity);
}

bool slot_enter(struct slot *slot, int fd)
{
	if (pthread_rwlock_tryrdlock(&slot->lock) != 0)
		return false;
	if (slot_is_of(slot, fd))
		return true;
	pthread_rwlock_unlock(&slot->lock);
	fd_forget(fd, slot);
	return false;
}

void slot_leave(struct slot *slot)
{
	pthread_rwlock_unlock(&slot->lock);
}

/* Takes the slot's write lock, if that is free and the descriptor refers to the slot's file. The
 * calling thread is in the library. */
static bool slot_enter_alone(struct slot *slot, int fd)
{
	if (!own_process() || pthread_rwlock_trywrlock(&slot->lock) != 0)
		return false;
	if (slot_is_of(slot, fd))
		return true;
	pthread_rwlock_unlock(&slot->lock);
	return false;
}

void slot_look(struct slot *slot, int fd)
{
	if (slot->kind != ACCESS_NONE || atomic_load(&slot->next_attempt) == UINT64_MAX)
		return;
	int error = errno;
	INSIDE();
	if (slot_enter_alone(slot, fd)) {
		window_look(slot, fd);
		slot_leave(slot);
	}
	errno = error;
}

void slot_used(struct slot *slot, int fd, uint64_t bytes, uint64_t end)
{
	uint64_t weight = bytes < WINDOW_CALL_WEIGHT ? WINDOW_CALL_WEIGHT : bytes;
	uint64_t used = atomic_fetch_add(&slot->used, weight) + weight;
	int error = errno;

	if (used < atomic_load(&slot->next_attempt) || end <= atomic_load(&slot->reach))
		return;
	INSIDE();
	if (slot_enter_alone(slot, fd)) {
		if (!slot->refused)
			window_follow(slot, fd, end);
		slot_leave(slot);
	}
	errno = error;
}

static void slot_release(struct slot *slot)
{
	if (atomic_fetch_sub(&slot->descriptors, 1) != 1)
		return;
	pthread_rwlock_wrlock(&slot->lock);
	if (atomic_load(&slot->descriptors) == 0)
		window_close(slot);
	pthread_rwlock_unlock(&slot->lock);
}

void slot_closing(int fd)
{
	if (own_inside || fd < 0 || fd >= DESCRIPTORS_MAX)
		return;
	unsigned char class = atomic_load(&fd_classes[fd]);
	if (class == UNKNOWN || (class >= FIRST && !own_process()))
		return;
	int error = errno;
	INSIDE();
	class = atomic_exchange(&fd_classes[fd], UNKNOWN);
	if (class >= FIRST)
		slot_release(&slot_table[class - FIRST]);
	errno = error;
}

void slot_opened(int fd)
{
	slot_closing(fd);
}

bool slots_yield(const struct slot_identity *identity)
{
	unsigned n = atomic_load(&n_slots);
	bool had = false;

	for (unsigned i = 0; i < n; i++) {
		struct slot *slot = &slot_table[i];
		pthread_rwlock_wrlock(&slot->lock);
		if (slot->file && (!identity || slot_same(identity, &slot->identity))) {
			window_close(slot);
			atomic_store(&slot->next_attempt,
				     atomic_load(&slot->used) + WINDOW_PAUSE * WINDOW_CALL_WEIGHT);
			had = true;
		}
		pthread_rwlock_unlock(&slot->lock);
	}
	return had;
}

void slots_refuse(const struct slot_identity *identity)
{
	pthread_mutex_lock(&assignment_lock);
	identity_add_cached(identity);
	unsigned n = atomic_load(&n_slots);
	for (unsigned i = 0; i < n; i++) {
		struct slot *slot = &slot_table[i];
		pthread_rwlock_wrlock(&slot->lock);
		if (identity_is_cached(&slot->identity)) {
			window_close(slot);
			slot->refused = true;
			slot->reason = LEFT_CACHED;
			atomic_store(&slot->next_attempt, UINT64_MAX);
		}
		pthread_rwlock_unlock(&slot->lock);
	}
	pthread_mutex_unlock(&assignment_lock);
}

void slots_times_set(void)
{
	unsigned n = atomic_load(&n_slots);

	for (unsigned i = 0; i < n; i++) {
		atomic_store(&slot_table[i].written, 0);
		atomic_store(&slot_table[i].accessed, 0);
	}
}

void slots_lock(void)
{
	pthread_mutex_lock(&assignment_lock);
	for (unsigned i = 0; i < atomic_load(&n_slots); i++)
		pthread_rwlock_wrlock(&slot_table[i].lock);
}

void slots_unlock(void)
{
	for (unsigned i = 0; i < atomic_load(&n_slots); i++)
		pthread_rwlock_unlock(&slot_table[i].lock);
	pthread_mutex_unlock(&assignment_lock);
}

/* The windows belong to the parent. */
void slots_forked(void)
{
	slots_start();
	for (unsigned i = 0; i < atomic_load(&n_slots); i++)
		window_close(&slot_table[i]);
}
