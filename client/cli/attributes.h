/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Attributes by the names that users type. */
#ifndef CLIENT_CLI_ATTRIBUTES_H
#define CLIENT_CLI_ATTRIBUTES_H

#include "common/attributes.h"

/* NULL: no attribute has this name; "user.gpumem." may stand before it. */
const struct attribute *attribute_find(const char *name);

#endif
