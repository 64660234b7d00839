/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "common/hash.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/ahead/ahead.h"
#include "fs/control/facts.h"
#include "fs/control/snapshot.h"
#include "fs/control/texts.h"
#include "fs/core/calibrate.h"
#include "fs/core/fs.h"
#include "fs/core/part.h"
#include "fs/core/worker.h"
#include "fs/daemon/gpu_faults.h"
#include "fs/daemon/idle_release.h"
#include "fs/daemon/volumes.h"
#include "fs/fuse/ended_files.h"
#include "fs/holders/holds.h"
#include "fs/holders/host_out.h"
#include "fs/holders/inode_lease.h"
#include "fs/journal/journal.h"
#include "fs/last_open/last_open.h"
#include "fs/ledger/ledger.h"
#include "fs/ledger/machine.h"
#include "fs/recovery/checkpoint.h"
#include "fs/recovery/restore.h"
#include "fs/share/lease_list.h"
#include "fs/share/share.h"
#include "fs/spool/spool.h"
#include "fs/tier/tier.h"
#include "fs/trace/access_log.h"
#include "fs/trace/trace.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"
#include "fs/turns/turns.h"

#define METADATA_PERCENT 25

/* Blocks of AHEAD_BLOCK_BYTES. A program that reads from front to back has three, so twice as many
 * programs as processors have all that they need. */
#define AHEAD_BLOCKS_EACH 6
#define AHEAD_BLOCKS_MOST 96

/* A thread of fs/turns ends after this time without a job: its copier takes GPU memory. */
#define TURNS_IDLE_SECONDS 30

static int ahead_part_open(struct fs *fs)
{
	unsigned blocks = (unsigned)get_nprocs() * AHEAD_BLOCKS_EACH;
	struct ahead *ahead = NULL;
	int error =
	    ahead_new(fs->backend, blocks < AHEAD_BLOCKS_MOST ? blocks : AHEAD_BLOCKS_MOST, &ahead);

	fs->states[FS_AHEAD] = ahead;
	return error;
}

static void ahead_part_close(struct fs *fs)
{
	ahead_free(ahead_of(fs));
}

static int topology_open(struct fs *fs)
{
	brlock_init(&fs->topology);
	return 0;
}

static void topology_close(struct fs *fs)
{
	brlock_destroy(&fs->topology);
}

static int settings_prepare(struct fs *fs)
{
	hash_seed_init();
	clock_gettime(CLOCK_REALTIME, &fs->started);
	/* If files of an earlier daemon are to be restored, the mount must come up even if the
	 * spool's directory cannot be used (see spool_open). */
	return fs->fdstore_ops ? 0 : spool_check(&fs->options);
}

static void counters_close(struct fs *fs)
{
	stats_free(&fs->stats);
}

static int tree_open(struct fs *fs)
{
	return fs->fdstore_ops ? fs_restore(fs) : tree_init(fs);
}

static void tree_close(struct fs *fs)
{
	if (journal_is_left(fs->journal))
		fs_restore_leave(fs);
	else
		tree_destroy(fs);
}

/* The end of a lease may free the memory of a file without names. */
static void leases_end(struct fs *fs)
{
	if (!journal_is_left(fs->journal))
		unclaimed_leases_end(fs);
}

static int turns_part_open(struct fs *fs)
{
	struct turns *turns = NULL;
	int error = turns_open(TURNS_IDLE_SECONDS, &turns);

	fs->states[FS_TURNS] = turns;
	return error;
}

static void turns_part_close(struct fs *fs)
{
	turns_stop(turns_of(fs));
	turns_free(turns_of(fs));
}

/* The thread that closes the mount copied nothing, but may have freed GPU memory. */
static void worker_close(struct fs *fs)
{
	(void)fs;
	worker_end();
}

static int inodes_open(struct fs *fs)
{
	return inode_table_new(&fs->inodes);
}

static void inodes_close(struct fs *fs)
{
	inode_table_free(fs->inodes);
}

static int ledger_part_open(struct fs *fs)
{
	uint64_t memory = machine_memory_allowed();
	struct ledger *ledger;
	int error = ledger_new(&ledger);

	if (error)
		return error;
	ledger->metadata_max =
	    (int64_t)amount_bytes(&fs->options.metadata, memory, memory / 100 * METADATA_PERCENT);
	fs->states[FS_LEDGER] = ledger;
	return 0;
}

static void ledger_part_close(struct fs *fs)
{
	ledger_free(ledger_of(fs));
}

/* Defines open and close of a part whose state is a single struct. */
#define STATE_PART(type, slot)                                                                     \
	static int type##_part_open(struct fs *fs)                                                 \
	{                                                                                          \
		struct type *state = NULL;                                                         \
		int error = type##_new(&state);                                                    \
                                                                                                   \
		fs->states[slot] = state;                                                          \
		return error;                                                                      \
	}                                                                                          \
	static void type##_part_close(struct fs *fs)                                               \
	{                                                                                          \
		type##_free(fs->states[slot]);                                                     \
	}

STATE_PART(access_log, FS_ACCESS_LOG)
STATE_PART(trace, FS_TRACE)
STATE_PART(lease_list, FS_LEASES)

/* In the order in which parts are opened and started, and their facts shown. */
static const struct fs_part daemon_parts[] = {
    {.name = "settings",
     .open = settings_prepare,
     .close = counters_close,
     .facts = mount_facts,
     .files = control_files},
    {.name = "topology", .open = topology_open, .close = topology_close},
    {.name = "access log", .open = access_log_part_open, .close = access_log_part_close},
    {.name = "trace", .open = trace_part_open, .close = trace_part_close, .files = trace_files},
    {.name = "ledger", .open = ledger_part_open, .close = ledger_part_close},
    {.name = "leases", .open = lease_list_part_open, .close = lease_list_part_close},
    {.name = "snapshots", .open = snapshots_open, .close = snapshots_close},
    {.name = "inodes", .open = inodes_open, .close = inodes_close},
    {.name = "backend", .open = backend_part_open, .close = backend_part_close},
    /* Volumes that close drop chunks from the fdstore through the journal. */
    {.name = "held chunks", .close = fs_forget_held},
    {.name = "read ahead", .open = ahead_part_open, .close = ahead_part_close},
    {.name = "volumes", .open = volumes_open, .close = volumes_close, .facts = volume_facts},
    {.name = "calibration", .open = calibrate_open, .close = calibrate_close},
    {.name = "worker", .stop = worker_close},
    {.name = "holds", .start = holds_open, .stop = holds_close},
    {.name = "tree", .start = tree_open, .stop = tree_close},
    {.name = "holds of files", .stop = holds_end},
    {.name = "checkpoint", .start = checkpoint_start, .stop = checkpoint_end},
    {.name = "spool",
     .start = spool_open,
     .stop = spool_close,
     .inode = &spool_hooks,
     .facts = spool_facts},
    {.name = "host objects",
     .open = host_outs_open,
     .start = host_outs_start,
     .stop = host_outs_end,
     .close = host_outs_close},
    {.name = "unclaimed leases",
     .open = unclaimed_leases_open,
     .stop = leases_end,
     .close = unclaimed_leases_close},
    {.name = "tiers",
     .open = tiers_open,
     .start = tier_balance_open,
     .stop = tier_balance_close,
     .close = tiers_close,
     .facts = tier_facts},
    {.name = "compaction",
     .start = tier_compact_open,
     .stop = tier_compact_close,
     .facts = compaction_facts},
    {.name = "idle release", .start = idle_release_open, .stop = idle_release_close},
    {.name = "GPU faults", .start = gpu_faults_start, .stop = gpu_faults_end},
    {.name = "last open", .inode = &last_open_hooks},
    {.name = "ended files",
     .open = ended_files_open,
     .stop = ended_files_leave,
     .close = ended_files_close,
     .inode = &ended_files_hooks},
    {.name = "sharing", .open = sharing_open, .close = sharing_close, .facts = delegation_facts},
    {.name = "turns", .start = turns_part_open, .stop = turns_part_close},
    {.name = NULL},
};

#define N_PARTS (sizeof(daemon_parts) / sizeof(daemon_parts[0]) - 1)

static void parts_stop(struct fs *fs, size_t n)
{
	while (n--)
		if (daemon_parts[n].stop)
			daemon_parts[n].stop(fs);
}

static void parts_close(struct fs *fs, size_t n)
{
	while (n--)
		if (daemon_parts[n].close)
			daemon_parts[n].close(fs);
}

static void inode_hooks_gather(struct fs *fs)
{
	unsigned n_hooks = 0;

	for (const struct fs_part *part = daemon_parts; part->name; part++)
		if (part->inode) {
			assert(n_hooks < INODE_HOOKS_MAX);
			fs->inode_hooks[n_hooks++] = part->inode;
		}
}

int fs_prepare(struct fs *fs)
{
	int error = 0;

	fs->parts = daemon_parts;
	inode_hooks_gather(fs);
	for (size_t i = 0; i < N_PARTS && !error; i++) {
		error = daemon_parts[i].open ? daemon_parts[i].open(fs) : 0;
		if (error)
			parts_close(fs, i);
	}
	return error;
}

void fs_unprepare(struct fs *fs)
{
	parts_close(fs, N_PARTS);
}

int fs_fill(struct fs *fs)
{
	int error = 0;

	for (size_t i = 0; i < N_PARTS && !error; i++) {
		error = daemon_parts[i].start ? daemon_parts[i].start(fs) : 0;
		if (error) {
			journal_leave(fs->journal);
			parts_stop(fs, i);
			fs_unprepare(fs);
		}
	}
	return error;
}

int fs_open(struct fs *fs)
{
	int error = fs_prepare(fs);

	return error ? error : fs_fill(fs);
}

void fs_close(struct fs *fs)
{
	parts_stop(fs, N_PARTS);
	parts_close(fs, N_PARTS);
}
