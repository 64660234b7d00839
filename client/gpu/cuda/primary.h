/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Devices by the numbers that CUDA gives them in this process, and their primary contexts, which
 * the CUDA runtime uses. No lock. All functions give 0, or -errno with client_error_text. */
#ifndef CLIENT_GPU_CUDA_PRIMARY_H
#define CLIENT_GPU_CUDA_PRIMARY_H

#include <stdint.h>

int cuda_device_uuid(int number, uint8_t uuid[16]);
/* Calls work in the primary context of the device; a work of NULL waits for all work of the
 * context. */
int cuda_primary_run(int number, int (*work)(void *argument), void *argument);

#endif
