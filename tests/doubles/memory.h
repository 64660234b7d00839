/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Doubles of the libraries of AMD and Intel, as far as client/gpu uses them, for files of
 * backend=vulkan on Mesa's lavapipe. A device address is an address of the CPU, so that tests see
 * what a GPU would. Settings, from the environment:
 *
 *   GPUMEM_DOUBLE_UUID   32 hex digits: the UUID of the second GPU; other GPUs have other UUIDs
 *   GPUMEM_DOUBLE_FAIL   the name of a function that fails
 *   GPUMEM_DOUBLE_ALONE  no GPU is a peer of another; no default context
 *
 * At the end of the process a line on stderr tells of memory that was not freed. Misuse ends the
 * process. */
#ifndef TESTS_DOUBLES_MEMORY_H
#define TESTS_DOUBLES_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOUBLE_API  __attribute__((visibility("default")))
#define DOUBLE_GPUS 2
#define DOUBLE_OWN  1 /* the GPU of the files */

bool double_fails(const char *function);
bool double_setting(const char *name);
void double_uuid(int gpu, uint8_t uuid[16]);

/* Maps the memory of a descriptor of lavapipe, which stays the caller's: a page of header, then the
 * bytes. NULL: the descriptor has fewer bytes. */
void *double_import(int fd, size_t bytes);
/* Unmaps what double_import returned. */
void double_free(void *address);

_Noreturn void double_misuse(const char *what);

#endif
