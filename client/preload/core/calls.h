/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Macros that define functions in the place of libc's. */
#ifndef CLIENT_PRELOAD_CORE_CALLS_H
#define CLIENT_PRELOAD_CORE_CALLS_H

#include "client/preload/core/own.h"
#include "client/preload/core/real.h"

/* CALL(symbol, type, name, arguments) { ... }: symbol is libc's name, name is the one in C. */
#define CALL(symbol, type, name, ...)                                                              \
	__attribute__((visibility("default"))) type name(__VA_ARGS__) __asm__(symbol);             \
	type name(__VA_ARGS__)

/* Defines the same function under a second name of libc: names with and without 64 are the same
 * function. */
#define CALL_ALSO(symbol, of) __asm__(".globl " symbol "\n\t.set " symbol ", " of);

#endif
