/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The text of each thread's last failure. The function that notices a failure writes the text;
 * callers pass the errno on. */
#ifndef CLIENT_CORE_ERROR_H
#define CLIENT_CORE_ERROR_H

/* Sets the text and returns -error; error is a positive errno. */
int client_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *client_error_text(void);

/* What a public function returns after rc, 0 or more or -errno: 0, or -1 with errno. */
int client_errno_return(int rc);

#endif
