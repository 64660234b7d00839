/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/fact.h"

#include "fs/core/fs.h"
#include "fs/tier/internal.h"

#include "fs/tier/tier.h"

static bool tiers_read(const struct fact_subject *subject, void *numbers)
{
	*(struct tier_counters *)numbers = tier_counters(subject->fs);
	return tiers_of(subject->fs);
}

static const struct fact tier_rows[] = {
    FACT(struct tier_counters, evictions, "evictions", "spill_evictions_total",
	 "How often files left a full device for others."),
    FACT(struct tier_counters, evicted_bytes, "evicted_bytes", "spill_evicted_bytes_total",
	 "Bytes that left a full device for others."),
    FACT(struct tier_counters, returned_bytes, "returned_bytes", "spill_returned_bytes_total",
	 "Bytes of files that came back because they were used."),
};

struct spill_usage {
	uint64_t size, spare, held;
};

static bool spill_read(const struct fact_subject *subject, void *numbers)
{
	struct pool_budget *budget = &subject->fs->budgets[subject->place];

	*(struct spill_usage *)numbers = (struct spill_usage){
	    .size = budget->size, .spare = budget->spare, .held = atomic_load(&budget->held)};
	return tiers_of(subject->fs) && budget->size;
}

static const struct fact spill_rows[] = {
    FACT(struct spill_usage, size, "size_bytes", "spill_size_bytes",
	 "What files of full devices may take, by place."),
    FACT(struct spill_usage, spare, "spare_bytes", NULL, NULL),
    FACT(struct spill_usage, held, "held_bytes", "spill_held_bytes",
	 "The part of the size that is held."),
};

const struct fact_group tier_facts[] = {
    FACT_GROUP(FACT_MOUNT, "spill", tier_rows, struct tier_counters, tiers_read),
    FACT_GROUP(FACT_SPILL, "spill", spill_rows, struct spill_usage, spill_read),
    {0},
};

struct compaction_counters {
	uint64_t moved_bytes;
};

static bool compaction_read(const struct fact_subject *subject, void *numbers)
{
	((struct compaction_counters *)numbers)->moved_bytes = tier_compacted_bytes(subject->fs);
	return true;
}

static const struct fact compaction_rows[] = {
    FACT(struct compaction_counters, moved_bytes, "compacted_bytes", "compacted_bytes_total",
	 "Bytes of small files that moved together to free chunks."),
};

const struct fact_group compaction_facts[] = {
    FACT_GROUP(FACT_MOUNT, NULL, compaction_rows, struct compaction_counters, compaction_read),
    {0},
};
