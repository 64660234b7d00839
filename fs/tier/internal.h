/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The state of fs/tier, for its own sources only. */
#ifndef FS_TIER_INTERNAL_H
#define FS_TIER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "common/background.h"
#include "fs/core/fs.h"
#include "fs/tier/victims.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

/* The thread of a GPU that balance.c has. */
struct balancer {
	struct background background;
	struct fs *fs;
	struct volume *volume;
};

/* A place that can be full: a GPU, or the system memory that all GPUs share. */
struct tier {
	/* Of each slower place: one thread at a time moves files there. Under no other lock. */
	pthread_mutex_t turns[PLACES];
	pthread_mutex_t lock; /* of victims; before the locks of files and inodes */
	struct victims victims;
	_Atomic uint64_t departures; /* how often memory of a file has left */
	struct balancer balancer;    /* of a GPU */
};

struct tiers {
	struct tier host;
	_Atomic uint64_t evictions, evicted_bytes, returned_bytes;
	pthread_mutex_t exchange_lock; /* one exchange at a time; before turns */
	pthread_mutex_t ask_lock;      /* of all below; before the locks that ask takes */
	void (*ask)(void *owner, const struct volume *volume, uint64_t bytes); /* NULL: none */
	void *owner;
	int64_t next_ask[BACKEND_DEVICES_MAX]; /* of each volume: not before (clock_ms) */
	unsigned n_gpus;
	struct tier gpus[]; /* of each volume */
};

static inline FS_STATE(struct tiers, tiers_of, FS_TIERS)

    /* Of a place that files can leave. */
    static inline struct tier *tier_of(struct tiers *tiers, const struct volume *volume,
				       enum memory_place place)
{
	return place == PLACE_GPU ? &tiers->gpus[volume->index] : &tiers->host;
}

/* Why files leave, and which of them may. */
struct eviction {
	struct fs *fs;
	struct copier *copier;
	const struct volume *volume;
	struct tier *tier;	      /* where room is needed */
	enum memory_place place;      /* of the tier */
	struct inode_call *requester; /* for the memory of this file; NULL: for other programs */
	const struct file *keep;      /* stays */
	const uid_t *only_owner;      /* files of this user leave, by priority; NULL: of all */
	bool may_use_own_file;	      /* memory of the requester's file may leave, too */
	bool may_block;		      /* for files that are in use */
	bool found_busy;	      /* such files were passed over */
	bool lower_places_full;	      /* files could not leave without their leases either */
	enum memory_place only_to;    /* the one place to leave for; PLACE_GPU: each slower place */
	bool exchanges;		      /* the spare of that place may be taken */
	bool may_overdraw;	      /* the requester's files may, for a moment */
	bool is_served;		      /* other threads have made the room */
	uint64_t bytes_wanted, bytes_freed;
	uint64_t departures_seen; /* of the tier, when this thread looked last */
	uint64_t scan_seen;	  /* of the tier's victims */
};

/* evict.c. Makes room for the eviction: true if memory was freed, by this thread or others. Under
 * no lock. */
bool room_make(struct tiers *tiers, struct eviction *eviction);
/* The memory of the requester's own file leaves, from the front on. */
bool own_file_leave(struct tiers *tiers, struct eviction *eviction);

/* exchange.c. Sets the spares of the places that files leave for. */
void exchange_open(struct fs *fs);
/* The spare may be in use by files that an earlier daemon has left. */
void exchange_restored(struct fs *fs);
/* Brings memory of the requester's file back to a full device, and other files take its place:
 * whether bytes came. Under no lock. */
bool exchange_file(struct tiers *tiers, const struct eviction *eviction);

/* The least that leaves a full device at once. */
uint64_t tier_room_part(const struct volume *volume);
/* Frees up to bytes of the device for other programs; false: no file can leave. */
bool tier_evict(struct fs *fs, const struct volume *volume, uint64_t bytes);

/* ask.c. Tells processes that map files that bytes of the volume's device are wanted, unless they
 * were told a moment ago. Does not wait for them. */
void tier_ask(struct tiers *tiers, const struct volume *volume, uint64_t bytes);

#endif
