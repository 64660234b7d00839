/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* All facts of the mount: core/fact.h. */
#ifndef FS_CONTROL_FACTS_H
#define FS_CONTROL_FACTS_H

#include "fs/core/fact.h"

/* Of the parts for the mount as a whole, and for volumes. */
extern const struct fact_group mount_facts[], volume_facts[];

#define FACT_SUBJECTS_MAX ((BACKEND_DEVICES_MAX + 1) * PLACES)

struct fact_readings {
	unsigned count; /* of subjects */
	struct fact_subject subjects[FACT_SUBJECTS_MAX];
	bool was_read[FACT_SUBJECTS_MAX]; /* what read returned */
	char *numbers;			  /* a struct of the group for each subject; to be freed */
};

/* Reads a group for the mount, or for each volume, GPU or place of the scope: 0 or -ENOMEM. */
int facts_read(struct fs *fs, const struct fact_group *group, struct fact_readings *readings);
/* Calls visit for each group of each part, until visit returns an error: 0 or the error. */
typedef int (*fact_visit)(struct fs *fs, const struct fact_group *group, void *context);
int facts_each(struct fs *fs, fact_visit visit, void *context);
static inline const void *fact_numbers(const struct fact_group *group,
				       const struct fact_readings *readings, unsigned subject)
{
	return readings->numbers + subject * group->bytes;
}

#endif
