/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The numbers that the mount shows to programs, in .gpumem/stats.json and in .gpumem/metrics. A new
 * number is a row in a table of the folder that counts, and a row in gpumem(7). */
#ifndef FS_CORE_FACT_H
#define FS_CORE_FACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct fs;
struct volume;

struct fact {
	const char *json;   /* the member of stats.json; NULL: not in there */
	const char *metric; /* the name after "gpumemfs_"; NULL: not in there */
	const char *help;   /* of the metric */
	size_t offset;	    /* of a uint64_t in the numbers that the group reads */
};

/* The row for a member of the group's struct. A metric whose name ends in _total is a counter, and
 * every other metric a gauge. */
#define FACT(type, member, json, metric, help)                                                     \
	{                                                                                          \
		json, metric, help,                                                                \
		    _Generic(((type *)0)->member, uint64_t                                         \
			     : offsetof(type, member))                                             \
	}

/* What has numbers of its own. FACT_SPILL: each place for files that leave GPUs, of all GPUs. */
enum fact_scope { FACT_MOUNT, FACT_VOLUME, FACT_GPU, FACT_GPU_PLACE, FACT_SPILL };

struct fact_subject {
	struct fs *fs;
	struct volume *volume;	 /* NULL with FACT_MOUNT and FACT_SPILL */
	enum memory_place place; /* with FACT_GPU_PLACE and FACT_SPILL */
};

/* Facts that are read together. The groups of a part are an array that ends with a group without
 * facts. */
struct fact_group {
	enum fact_scope scope;
	const char *object; /* the object of stats.json around the members; NULL: none */
	const struct fact *facts;
	size_t count;
	size_t bytes; /* of the struct that read fills */
	/* numbers is zeroed before. False: the mount does not have what is counted. Then the object
	 * is null if the scope is the mount, and else left out, and the metrics are 0. */
	bool (*read)(const struct fact_subject *subject, void *numbers);
};

#define FACT_GROUP(scope, object, facts, type, read)                                               \
	{                                                                                          \
		scope, object, facts, sizeof(facts) / sizeof((facts)[0]), sizeof(type), read       \
	}

static inline uint64_t fact_value(const struct fact *fact, const void *numbers)
{
	return *(const uint64_t *)((const char *)numbers + fact->offset);
}

#endif
