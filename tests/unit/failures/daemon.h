/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon of a scenario: simulated GPUs with system memory and a disk below them, a journal, and
 * a keeper that may fail to hold or give back a descriptor. */
#ifndef TESTS_UNIT_FAILURES_DAEMON_H
#define TESTS_UNIT_FAILURES_DAEMON_H

#include "fs/tier/tier.h"
#include "tests/unit/failures/runner.h"
#include "tests/unit/journal_fixture.h"
#include "tests/unit/kernel_fixture.h"
#include "tests/unit/recount.h"

#define KIB 1024ULL
#define MIB (1ULL << 20)

static struct held held;
static struct fdstore_ops keeper;
static const char *daemon_options;

/* What the keeper does is not the daemon's. */
static int keeper_hold(void *of, uint64_t id, int fd)
{
	bool counts = inject_counts;
	int rc = inject_fails(INJECT_SYSTEM, "hold") ? -EMFILE : 0;

	inject_counts = false;
	if (rc == 0)
		rc = held_hold(of, id, fd);
	inject_counts = counts;
	return rc;
}

static void keeper_drop(void *of, uint64_t id)
{
	bool counts = inject_counts;

	inject_counts = false;
	held_drop(of, id);
	inject_counts = counts;
}

static int keeper_take(void *of, uint64_t id)
{
	bool counts = inject_counts;
	int rc = inject_fails(INJECT_SYSTEM, "take") ? -EMFILE : 0;

	inject_counts = false;
	if (rc == 0)
		rc = held_take(of, id);
	inject_counts = counts;
	return rc;
}

static inline struct fdstore_ops keeper_of(struct held *of)
{
	return (struct fdstore_ops){.context = of,
				    .hold = keeper_hold,
				    .drop = keeper_drop,
				    .take = keeper_take,
				    .each = held_each};
}

static inline int places_open(struct fs *fs)
{
	int rc = disk_dir_open(fs->backend, "/tmp");

	fs->budgets[PLACE_DISK].size = 64 * MIB;
	for (unsigned i = 0; rc == 0 && i < fs->backend->n_devices; i++)
		rc = volume_open_place(&fs->volumes[i], PLACE_DISK, &fs->budgets[PLACE_DISK]);
	return rc;
}

/* The stand-in for the driver has as many GPUs of this size as the simulated ones. */
static inline void driver_prepare(const char *options)
{
	char size[16] = "";

	ck_assert_int_eq(sscanf(strstr(options, "host_size="), "host_size=%15[^,]", size), 1);
	setenv("GPUMEM_STANDIN_MEMORY", size, 1);
}

static inline void options_of(struct fs *fs, const char *options)
{
	char *argv[] = {"gpumemfs", "/tmp", "-o", (char *)options, "-o", "log_level=error",
			NULL,	    NULL,   NULL};
	bool counts = inject_counts;

	inject_counts = false;
	if (inject.kind == INJECT_DRIVER) {
		driver_prepare(options);
		argv[6] = "-o";
		argv[7] = "backend=cuda";
	}
	memset(fs, 0, sizeof(*fs));
	ck_assert_int_eq(options_parse(inject.kind == INJECT_DRIVER ? 8 : 6, argv, &fs->options),
			 0);
	inject_counts = counts;
}

/* After an error no part is open, and the keeper of a first daemon has ended. */
static inline int daemon_start(struct fs *fs, const char *options, const struct fdstore_ops *keeper,
			       enum fs_mount mount)
{
	options_of(fs, options);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fs->can.max_write = BODY_BYTES;
	fs->fdstore_ops = keeper;
	fs->mount = mount;
	int rc = fs_prepare(fs);

	if (rc == 0) {
		rc = places_open(fs);
		if (rc)
			fs_unprepare(fs);
	}
	if (rc == 0)
		rc = fs_fill(fs);
	if (rc)
		options_free(&fs->options);
	while (rc && mount == FS_MOUNT_NEW && held.n)
		close(held.fds[--held.n]);
	return rc;
}

static void daemon_recount(void)
{
	recount(&fixture);
}

/* The daemon that may be killed. */
static struct {
	struct held *held;
	const struct fdstore_ops *keeper;
} watched;

/* A new daemon finds all files whole, and gives all memory back. */
static inline void next_daemon_check(void)
{
	static struct fs next;

	worker_end(); /* the thread's worker belongs to the first daemon */
	ck_assert_int_eq(daemon_start(&next, daemon_options, watched.keeper, FS_MOUNT_KEPT), 0);
	recount(&next);
	free(describe(&next, DESCRIBE_ALL));
	daemon_down(&next);
	ck_assert_uint_eq(watched.held->n, 0);
}

/* After a store to the journal: the daemon may be killed here. */
static void journal_stored(void *of)
{
	struct journal *journal = of;

	if (!inject_fails(INJECT_KILL, "journal"))
		return;
	inject_counts = false;
	run->fired = true;
	run->trace = inject.trace;
	close(journal->lock_fd);
	next_daemon_check();
	_exit(SCENARIO_PASSED);
}

static inline void journal_watch(struct fs *fs, struct held *of, const struct fdstore_ops *ops)
{
	watched.held = of;
	watched.keeper = ops;
	fs->journal->fault = journal_stored;
	fs->journal->fault_of = fs->journal;
}

static inline void scenario_up(const char *options)
{
	held_init(&held);
	keeper = keeper_of(&held);
	daemon_options = options;
	TRY(daemon_start(&fixture, options, &keeper, FS_MOUNT_NEW));
	/* These threads move files by themselves, also during a recount. */
	tier_balance_close(&fixture);
	tier_compact_close(&fixture);
	recount_all = daemon_recount;
	journal_watch(&fixture, &held, &keeper);
	kernel_up();
}

static inline void scenario_down(void)
{
	recount_all();
	recount_all = NULL;
	kernel_down();
	daemon_down(&fixture);
	ck_assert_uint_eq(held.n, 0);
	held_free(&held);
}

#endif
