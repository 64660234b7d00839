/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef FS_FILE_CORE_ADOPTION_H
#define FS_FILE_CORE_ADOPTION_H

#include <stdbool.h>
#include <stdint.h>

/* Memory that another program allocated, as a file's bytes: a descriptor for each piece, in order.
 * The bytes begin after skip bytes of the first piece, and end in the last piece. */
struct file_piece {
	uint64_t bytes; /* a multiple of CHUNK_ALIGN */
	int fd;		/* -1 when it is the file's */
};

struct file_adoption {
	struct file_piece *pieces;
	uint32_t n_pieces;
	uint64_t skip, size;
	bool ends;  /* the file is to end with the program */
	bool later; /* the pieces may be imported at their first use, which fails if they lie */
};

#endif
