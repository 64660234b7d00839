/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where the bytes of a file lie, by its attribute resident. */
#ifndef CLIENT_CLI_CORE_RESIDENCE_H
#define CLIENT_CLI_CORE_RESIDENCE_H

#include <stdint.h>

/* A GPU, system memory and a disk. */
#define RESIDENCE_PLACES   3
#define RESIDENCE_NAME_MAX 32
#define RESIDENCE_TEXT_MAX (RESIDENCE_PLACES * RESIDENCE_NAME_MAX)

struct residence {
	unsigned count;
	struct residence_place {
		char name[RESIDENCE_NAME_MAX]; /* "gpu0", "host", "disk"; the first is the file's
						* own */
		uint64_t bytes;
	} places[RESIDENCE_PLACES];
};

/* The residence of a path; no place if the path has no such attribute. */
void residence_read(const char *path, struct residence *residence);
/* All places with bytes: "gpu0", "host", "gpu0+host"; the first place for a file without bytes. */
const char *residence_text(const struct residence *residence, char text[RESIDENCE_TEXT_MAX]);
/* The bytes in all places, and in the place of a name. */
uint64_t residence_bytes(const struct residence *residence);
uint64_t residence_bytes_in(const struct residence *residence, const char *name);

#endif
