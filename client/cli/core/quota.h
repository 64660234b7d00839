/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which quota has refused (EDQUOT). */
#ifndef CLIENT_CLI_CORE_QUOTA_H
#define CLIENT_CLI_CORE_QUOTA_H

#include <limits.h>
#include <stdint.h>

#define QUOTA_TEXT_MAX (PATH_MAX + 128)

/* Says which directory above path has a quota that leaves no room for so many bytes, with the
 * quota and its use; or else that a limit of the user was reached. needed 0: not known. */
const char *quota_text(const char *path, uint64_t needed, char text[QUOTA_TEXT_MAX]);

#endif
