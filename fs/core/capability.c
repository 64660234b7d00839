/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/capability.h"

#include <stdarg.h>
#include <stdio.h>

void capability_set(struct capability *capability, bool on, const char *format, ...)
{
	va_list args;

	capability->on = on;
	va_start(args, format);
	vsnprintf(capability->reason, sizeof(capability->reason), format, args);
	va_end(args);
}
