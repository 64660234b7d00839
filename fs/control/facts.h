/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* All facts of the mount: core/fact.h. */
#ifndef FS_CONTROL_FACTS_H
#define FS_CONTROL_FACTS_H

#include "fs/core/fact.h"

/* Ends with NULL. */
extern const struct fact_group *const fact_groups[];

#define FACT_SUBJECTS_MAX ((BACKEND_DEVICES_MAX + 1) * PLACES)

struct fact_readings {
	unsigned count; /* of subjects */
	struct fact_subject subjects[FACT_SUBJECTS_MAX];
	bool was_read[FACT_SUBJECTS_MAX]; /* what read returned */
	char *numbers;			  /* a struct of the group for each subject; to be freed */
};

/* Reads a group for the mount, or for each volume, GPU or place of the scope: 0 or -ENOMEM. */
int facts_read(struct fs *fs, const struct fact_group *group, struct fact_readings *readings);
static inline const void *fact_numbers(const struct fact_group *group,
				       const struct fact_readings *readings, unsigned subject)
{
	return readings->numbers + subject * group->bytes;
}

#endif
