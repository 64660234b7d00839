/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How the functions that take the place of libc's are written. */
#ifndef CLIENT_PRELOAD_CALLS_H
#define CLIENT_PRELOAD_CALLS_H

#include "client/preload/own.h"
#include "client/preload/real.h"

/* CALL(symbol, type, name, arguments) { ... }: the symbol is libc's, the name is ours. */
#define CALL(symbol, type, name, ...)                                                              \
	__attribute__((visibility("default"))) type name(__VA_ARGS__) __asm__(symbol);             \
	type name(__VA_ARGS__)

/* The same function under another of libc's names: those with and without 64 are one. */
#define CALL_ALSO(symbol, of) __asm__(".globl " symbol "\n\t.set " symbol ", " of);

#endif
