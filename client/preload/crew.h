/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Large stores to a GPU's memory by several threads at once: on the reference machine one fills a
 * third of what the BAR takes, and less where the pages of its mapping are touched first. */
#ifndef CLIENT_PRELOAD_CREW_H
#define CLIENT_PRELOAD_CREW_H

#include <stddef.h>

/* How many threads help whoever stores; they are made by the first large store. 0: none. */
#define CREW_MAX 3
void crew_start(unsigned helpers);
/* As many as the processors of this process allow. */
void crew_start_for_machine(void);

/* As stream_store and a fence: all of it is on its way to the GPU on return. The threads help one
 * caller at a time; others do without. */
void crew_store(char *to, const char *from, size_t bytes);

/* In the child of a fork, which has none of the threads. */
void crew_forked(void);

#endif
