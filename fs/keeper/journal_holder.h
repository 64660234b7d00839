/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A keeper as the journal knows its holder. */
#ifndef FS_KEEPER_JOURNAL_HOLDER_H
#define FS_KEEPER_JOURNAL_HOLDER_H

#include "fs/journal/journal.h"

struct journal_holder fdstore_journal_holder(struct fdstore *fdstore);

#endif
