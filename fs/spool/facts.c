/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/fact.h"

#include "fs/core/fs.h"
#include "fs/spool/spool.h"

static bool spool_read(const struct fact_subject *subject, void *numbers)
{
	*(struct spool_counters *)numbers = spool_counters(subject->fs);
	return spool_of(subject->fs);
}

static const struct fact spool_rows[] = {
    FACT(struct spool_counters, saves, "saves", "spool_saves_total",
	 "Records written to the spool."),
    FACT(struct spool_counters, saved_bytes, "saved_bytes", "spool_saved_bytes_total",
	 "Bytes of files written to the spool."),
    FACT(struct spool_counters, errors, "errors", "spool_errors_total",
	 "Saves to the spool that failed."),
    FACT(struct spool_counters, fetched_bytes, "fetched_bytes", "spool_fetched_bytes_total",
	 "Bytes of files brought back from the spool."),
    FACT(struct spool_counters, damaged, "damaged", "spool_damaged",
	 "Files whose copy in the spool was found damaged."),
};

const struct fact_group spool_facts[] = {
    FACT_GROUP(FACT_MOUNT, "spool", spool_rows, struct spool_counters, spool_read),
    {0},
};
