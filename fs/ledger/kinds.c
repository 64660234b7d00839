/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ledger/kinds.h"

#include <errno.h>

#include "common/protocol.h"
#include "common/system/descriptors.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"

/* A user may have one part in this many of the daemon's memory for metadata. */
#define METADATA_USERS 16

#define RECEIPTS   (1U << 20)
#define TEXTS	   128
#define TEXT_BYTES (2U << 20)
/* The limits of all ordinary users together leave a part to root. They are needed because a user
 * namespace gives a user any number of uids. */
#define ALL_TEXT_BYTES (14U << 20)
/* Connections, and processes with memory, each take at most one in this many descriptors. */
#define CONNECTION_PART 8
/* Of the held chunks of all, a single user may have one in this many. */
#define HELD_CHUNKS_PART 15

/* What the kernel uses for a tmpfs: 6.1 KiB measured on 2 processors, and some bytes for each more.
 */
#define TMPFS_COST 8192

static uint64_t text_bytes_of_all(const struct fs *fs)
{
	(void)fs;
	return ALL_TEXT_BYTES;
}

/* Each costs a descriptor. */
static uint64_t connections_of_all(const struct fs *fs)
{
	uint64_t part = descriptors_limit() / CONNECTION_PART;

	(void)fs;
	return part < LEDGER_CONNECTIONS_OF_ALL ? part : LEDGER_CONNECTIONS_OF_ALL;
}

static uint64_t connections_limit(const struct fs *fs)
{
	uint64_t half = connections_of_all(fs) / 2;

	return half < GPUMEM_CONNECTIONS_MAX ? half : GPUMEM_CONNECTIONS_MAX;
}

static uint64_t leases_of_all(const struct fs *fs)
{
	(void)fs;
	return LEDGER_LEASES_OF_ALL;
}

static uint64_t leases_limit(const struct fs *fs)
{
	return fs->options.user_leases;
}

static uint64_t held_chunks_of_all(const struct fs *fs)
{
	(void)fs;
	return LEDGER_HELD_CHUNKS_OF_ALL;
}

/* Each chunk or object costs a descriptor, and a second descriptor if a keeper has a copy. */
static uint64_t memory_of_all(const struct fs *fs)
{
	return descriptors_for(DESCRIPTOR_MEMORY, descriptors_limit()) / (fs->fdstore ? 2 : 1);
}

/* A user gets at most half of the descriptors, and all users three quarters: the rest is for root
 * and for connections. */
static uint64_t memory_limit(const struct fs *fs)
{
	return memory_of_all(fs) / 2;
}

static uint64_t descriptors_most(const struct fs *fs)
{
	return memory_limit(fs) * LEDGER_DESCRIPTOR;
}

static uint64_t descriptors_of_all(const struct fs *fs)
{
	return memory_of_all(fs) / 4 * 3 * LEDGER_DESCRIPTOR;
}

static uint64_t host_files_limit(const struct fs *fs)
{
	return fs->options.user_host_files ? fs->options.user_host_files : memory_limit(fs);
}

static uint64_t spill_host_limit(const struct fs *fs)
{
	return amount_bytes(&fs->options.user_spill, fs->budgets[PLACE_HOST].size, 0);
}

static uint64_t spill_disk_limit(const struct fs *fs)
{
	return amount_bytes(&fs->options.user_spill, fs->budgets[PLACE_DISK].size, 0);
}

static uint64_t metadata_limit(const struct fs *fs)
{
	uint64_t all = (uint64_t)ledger_of(fs)->metadata_max;

	return amount_bytes(&fs->options.user_metadata, all, all / METADATA_USERS);
}

const struct ledger_row ledger_rows[LEDGER_KINDS] = {
    [LEDGER_METADATA] = {.key = "metadata_bytes",
			 .name = "bytes of names and attributes",
			 .remedy = " (-o user_metadata=)",
			 .error = -EDQUOT,
			 .warn_once = true,
			 .limit = metadata_limit},
    [LEDGER_LEASES] = {.key = "leases",
		       .name = "leases",
		       .remedy = " (-o user_leases=)",
		       .error = -EMFILE,
		       .limit = leases_limit,
		       .limit_of_all = leases_of_all,
		       .cost = 512},
    [LEDGER_CONNECTIONS] = {.key = "connections",
			    .name = "connections",
			    .remedy = "",
			    .error = -EMFILE,
			    .limit = connections_limit,
			    .limit_of_all = connections_of_all,
			    .cost = 512},
    [LEDGER_PROCESSES] = {.key = "processes",
			  .name = "processes with memory of files",
			  .remedy = "",
			  .error = -EMFILE,
			  .limit = connections_limit,
			  .limit_of_all = connections_of_all,
			  .cost = 512},
    [LEDGER_RECEIPTS] = {.key = "receipts",
			 .name = "files whose memory processes received",
			 .remedy = "",
			 .error = -EMFILE,
			 .of_one = RECEIPTS,
			 .cost = 256},
    [LEDGER_TEXTS] = {.key = "control_files",
		      .name = "open files of .gpumem/",
		      .remedy = "",
		      .error = -EMFILE,
		      .of_one = TEXTS,
		      .cost = 256},
    [LEDGER_TEXT_BYTES] = {.key = "control_file_bytes",
			   .name = "bytes of open files of .gpumem/",
			   .remedy = "",
			   .error = -EMFILE,
			   .of_one = TEXT_BYTES,
			   .limit_of_all = text_bytes_of_all,
			   .cost = 1},
    [LEDGER_HOST_FILES] = {.key = "host_files",
			   .name = "files of host/",
			   .remedy =
			       " (-o user_host_files=, below the daemon's limit of open files)",
			   .error = -ENOSPC,
			   .limit = host_files_limit},
    [LEDGER_HOST_TMPFS] = {.key = "host_tmpfs",
			   .name = "files of host/ below a quota",
			   .unlimited = true,
			   .cost = TMPFS_COST},
    [LEDGER_DESCRIPTORS] = {.key = "descriptors",
			    .name = "descriptors of chunks and files of host/",
			    .remedy = " (half of the daemon's limit of open files)",
			    .error = -EDQUOT,
			    .warn_once = true,
			    .limit = descriptors_most,
			    .limit_of_all = descriptors_of_all,
			    .error_of_all = -ENOSPC,
			    .unit = LEDGER_DESCRIPTOR},
    [LEDGER_BYTES] = {.key = "bytes", .name = "bytes of files", .unlimited = true},
    [LEDGER_GPU] = {.key = "gpu_bytes", .name = "bytes of GPUs", .unlimited = true},
    [LEDGER_SPILL_HOST] = {.key = "spill_host_bytes",
			   .name = "bytes of files that left a GPU in system memory",
			   .remedy = " (-o user_spill=)",
			   .error = -EDQUOT,
			   .warn_once = true,
			   .limit = spill_host_limit},
    [LEDGER_SPILL_DISK] = {.key = "spill_disk_bytes",
			   .name = "bytes of files that left a GPU on the disk",
			   .remedy = " (-o user_spill=)",
			   .error = -EDQUOT,
			   .warn_once = true,
			   .limit = spill_disk_limit},
    [LEDGER_HELD] = {.key = "held_bytes",
		     .name = "bytes that files gave up and processes have",
		     .unlimited = true},
    [LEDGER_HELD_CHUNKS] = {.key = "held_chunks",
			    .name = "chunks that files gave up and processes have",
			    .remedy = "",
			    .error = -EMFILE,
			    .of_one = LEDGER_HELD_CHUNKS_OF_ALL / HELD_CHUNKS_PART,
			    .limit_of_all = held_chunks_of_all,
			    .cost = 256},
};

uint64_t ledger_limit(const struct fs *fs, enum ledger_kind kind)
{
	const struct ledger_row *row = &ledger_rows[kind];

	if (row->unlimited)
		return UINT64_MAX;
	return row->limit ? row->limit(fs) : row->of_one;
}

uint64_t ledger_limit_of_all(const struct fs *fs, enum ledger_kind kind)
{
	return ledger_rows[kind].limit_of_all ? ledger_rows[kind].limit_of_all(fs) : UINT64_MAX;
}
