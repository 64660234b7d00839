/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A filesystem on the host backend with a spool in a scratch directory, mounted repeatedly in the
 * same process: up and down are a mount and its orderly end, crash is an end without a save. */
#ifndef TESTS_UNIT_SPOOL_FIXTURE_H
#define TESTS_UNIT_SPOOL_FIXTURE_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/attributes/inode_attributes.h"
#include "fs/spool/internal.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

static char spool_at[64];

static inline int mount_try(const char *options)
{
	char text[256];
	char *argv[] = {"gpumemfs", "/proc", "-o", text, NULL};

	snprintf(text, sizeof(text),
		 "backend=host,host_gpus=2,host_size=256M,log_level=error,spool=%s%s", spool_at,
		 options);
	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(4, argv, &fixture.options), 0);
	fixture.can.max_write = SPOOL_BLOCK;
	int rc = fs_open(&fixture);

	if (rc)
		options_free(&fixture.options);
	return rc;
}

static inline void mount_up(void)
{
	ck_assert_int_eq(mount_try(",restore=lazy"), 0);
}

/* Ends the mount like a SIGKILL: the spool saves no further data. */
static inline void mount_crash(void)
{
	fs_close(&fixture);
	options_free(&fixture.options);
}

static inline void mount_down(void)
{
	spool_end(&fixture);
	mount_crash();
}

static inline void remount(void)
{
	mount_down();
	mount_up();
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static inline void spool_scratch(void)
{
	snprintf(spool_at, sizeof(spool_at), "/tmp/gpumemfs-spool-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(spool_at));
}

static inline void spool_scratch_gone(void)
{
	nftw(spool_at, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Setup and teardown: a first mount over an empty spool, and an end without an umount. */
static inline void spool_up(void)
{
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	spool_scratch();
	mount_up();
}

static inline void spool_down(void)
{
	mount_crash();
	spool_scratch_gone();
}

static inline int persist(struct inode *inode, const char *value)
{
	return inode_attr_set(&fixture, worker_copier(&fixture), inode, ATTR_PERSIST, value,
			      strlen(value), 0);
}

/* Changes a file as the write request does. */
static inline void put_bytes(struct inode *inode, const void *data, size_t bytes, uint64_t offset)
{
	ck_assert_int_eq(write_to(inode, data, bytes, offset), (ssize_t)bytes);
	spool_mark_dirty(inode, offset, bytes);
	inode_touch_write(inode);
}

/* Returns the bytes that open and read give. */
static inline ssize_t get_bytes(struct inode *inode, void *data, size_t bytes, uint64_t offset)
{
	int rc = inode_require_bytes(&fixture, inode);

	return rc ? rc : read_from(inode, data, bytes, offset);
}

static inline uint64_t saved_bytes(void)
{
	return spool_counters(&fixture).saved_bytes;
}

#endif
