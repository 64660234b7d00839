/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char error_text[640];

int client_fail(int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error_text, sizeof(error_text), format, arguments);
	va_end(arguments);
	return -error;
}

const char *client_error_text(void)
{
	return error_text;
}

int client_errno_return(int rc)
{
	if (rc >= 0)
		return 0;
	errno = -rc;
	return -1;
}
