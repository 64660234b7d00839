/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tells the program that the process which shared a file's memory has ended. */
#ifndef CLIENT_LIB_END_H
#define CLIENT_LIB_END_H

#include <stdbool.h>

struct gpumem;

#define CLIENT_END_NEW ((struct client_end){.fd = -1})

/* Part of a file; under the file's lock. */
struct client_end {
	bool watched, ended;
	void (*callback)(struct gpumem *file, void *context); /* NULL: none, or called already */
	void *context;
	int fd; /* of gpumem_end_fd; -1: none */
};

/* Forgets the callback. Afterwards it does not run, except in the calling thread. Outside the gate,
 * and without the file's lock. */
void client_end_forget(struct gpumem *file);

#endif
