/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/spool/note.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/number.h"
#include "fs/spool/internal.h"
#include "fs/tree/owner.h"
#include "fs/tree/record.h"
#include "fs/tree/xattr.h"

#define NOTE	  XATTR_OURS "spool"
#define NOTE_MAX  32
#define NOTE_DONE "done"

static const char *const state_suffixes[] = {"", " away", " damaged"};

static int note_write(struct fs *fs, struct inode *inode, const char *text)
{
	if (!fs->journal)
		return 0;
	int rc = journal_room(fs->journal);

	if (rc)
		return rc;
	scoped_lock(&inode->lock);
	/* The daemon's note: a user at the limit keeps the files that the user has. */
	rc = xattr_store(fs, inode, NOTE, text, strlen(text), 0, OWNER_ALWAYS);
	if (rc)
		return rc;
	record_xattr(fs, inode, NOTE, text, strlen(text));
	return 0;
}

int spool_note(struct fs *fs, struct inode *inode, uint64_t id, enum inode_residency residency)
{
	char text[NOTE_MAX];

	snprintf(text, sizeof(text), "%" PRIu64 "%s", id, state_suffixes[residency]);
	return note_write(fs, inode, text);
}

static ssize_t note_read(struct inode *inode, char text[NOTE_MAX])
{
	scoped_lock(&inode->lock);
	ssize_t length = xattr_get(inode->xattrs, NOTE, text, NOTE_MAX - 1);

	if (length >= 0)
		text[length] = 0;
	return length;
}

int spool_noted(struct inode *inode, uint64_t *id, enum inode_residency *residency)
{
	char text[NOTE_MAX];

	if (note_read(inode, text) < 0)
		return -ENODATA;
	char *blank = strchr(text, ' ');
	const char *state = blank ? blank : "";
	char word[NOTE_MAX];

	snprintf(word, sizeof(word), "%s", state);
	if (blank)
		*blank = 0;
	if (parse_u64(text, 1, UINT64_MAX, id))
		return -ENODATA;
	for (unsigned i = 0; i < sizeof(state_suffixes) / sizeof(state_suffixes[0]); i++)
		if (strcmp(word, state_suffixes[i]) == 0) {
			*residency = (enum inode_residency)i;
			return 0;
		}
	return -ENODATA;
}

int spool_note_done(struct fs *fs)
{
	return note_write(fs, fs->root, NOTE_DONE);
}

bool spool_is_done(struct fs *fs)
{
	char text[NOTE_MAX];

	return fs->journal && note_read(fs->root, text) >= 0 && strcmp(text, NOTE_DONE) == 0;
}
