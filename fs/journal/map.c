/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The journal's memory: creates, maps and locks the memory, or takes over the memory of an earlier
 * daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/journal/journal.h"

#define SLOTS_MAX (1ULL << 32)

/* The least size of a half, below which checkpoints would come too often. */
#define HALF_MIN (64ULL << 20)

/* How long journal_adopt waits for the end of an earlier daemon. */
#define LOCK_TRIES  500
#define LOCK_TRY_NS 10000000L

static uint64_t slots_bytes(uint64_t slots)
{
	uint64_t bytes = slots * sizeof(struct journal_slot);

	return (bytes + JOURNAL_UNIT - 1) / JOURNAL_UNIT * JOURNAL_UNIT;
}

static uint64_t journal_bytes(const struct journal_header *header)
{
	return JOURNAL_HEADER_BYTES + slots_bytes(header->slots) +
	       JOURNAL_HALVES * header->half_bytes;
}

static void journal_init(struct journal *journal, const struct fdstore_ops *fdstore, int fd)
{
	journal->fdstore = *fdstore;
	journal->fd = fd;
	journal->lock_fd = -1;
	pthread_mutex_init(&journal->checkpoint_lock, NULL);
	pthread_mutex_init(&journal->lock, NULL);
	pthread_cond_init(&journal->changed, NULL);
	for (unsigned i = 0; i < JOURNAL_WRITERS; i++)
		pthread_mutex_init(&journal->writers[i].lock, NULL);
	atomic_init(&journal->last_id, JOURNAL_FIRST_ID);
	atomic_init(&journal->limit, HALF_MIN / 4 / JOURNAL_UNIT);
}

/* header gives the sizes. */
static int journal_map(struct journal *journal, const struct journal_header *header)
{
	size_t bytes = journal_bytes(header);
	void *base =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, journal->fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	madvise(base, bytes, MADV_DONTDUMP);
	journal->bytes = bytes;
	journal->header = base;
	journal->slots = (void *)((char *)base + JOURNAL_HEADER_BYTES);
	journal->halves[0] = (char *)journal->slots + slots_bytes(header->slots);
	journal->halves[1] = journal->halves[0] + header->half_bytes;
	return 0;
}

static void journal_unmap(struct journal *journal)
{
	if (journal->header)
		munmap(journal->header, journal->bytes);
	if (journal->lock_fd >= 0)
		close(journal->lock_fd);
}

/* The sizes for this many inodes: any shard of the inode table may get all of them. */
static struct journal_header header_for(uint64_t inodes)
{
	uint64_t half = inodes * METADATA_INODE / JOURNAL_UNIT * JOURNAL_UNIT;
	uint64_t slots = (inodes + INODE_PAGE_SLOTS) * INODE_SHARDS;

	return (struct journal_header){
	    .magic = JOURNAL_MAGIC,
	    .version = JOURNAL_VERSION,
	    .slots = slots < SLOTS_MAX ? slots : SLOTS_MAX,
	    .half_bytes = half > HALF_MIN ? half : HALF_MIN,
	    .epoch = {1},
	};
}

static int memory_create(const struct journal_header *header, int *fd)
{
	int memfd = memfd_create("gpumemfs-journal", MFD_CLOEXEC);
	int rc = 0;

	if (memfd < 0)
		return -errno;
	if (ftruncate(memfd, (off_t)journal_bytes(header)) < 0 ||
	    pwrite(memfd, header, sizeof(*header), 0) != sizeof(*header) ||
	    fallocate(memfd, 0, 0, JOURNAL_HEADER_BYTES) < 0)
		rc = -errno;
	if (rc < 0)
		close(memfd);
	else
		*fd = memfd;
	return rc;
}

/* Only a single daemon may use the journal: this daemon waits for the end of another daemon that
 * has lost its keeper, or fails. The lock ends with the process. The file is opened anew for the
 * lock, because earlier processes share fd's open file. */
static int memory_lock(struct journal *journal)
{
	char path[32];
	int attempts = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", journal->fd);
	journal->lock_fd = open(path, O_RDWR | O_CLOEXEC);
	if (journal->lock_fd < 0)
		return 0; /* no /proc: no lock */
	while (flock(journal->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || attempts++ == LOCK_TRIES) {
			log_error("journal: another daemon uses it: %s", strerror(errno));
			return -EBUSY;
		}
		nanosleep(&(struct timespec){.tv_nsec = LOCK_TRY_NS}, NULL);
	}
	return 0;
}

static struct journal *journal_alloc(void)
{
	struct journal *journal = aligned_alloc(CACHELINE_ALIGN, sizeof(*journal));

	return journal ? memset(journal, 0, sizeof(*journal)) : NULL;
}

int journal_new(const struct fdstore_ops *fdstore, uint64_t inodes, struct journal **journal)
{
	struct journal_header header = header_for(inodes);
	struct journal *new_journal = journal_alloc();
	int fd = -1, rc = new_journal ? memory_create(&header, &fd) : -ENOMEM;

	if (rc == 0) {
		journal_init(new_journal, fdstore, fd);
		rc = journal_map(new_journal, &header);
	}
	if (rc == 0)
		rc = memory_lock(new_journal);
	if (rc == 0)
		rc = fdstore->hold(fdstore->context, fdstore_id(FDSTORE_JOURNAL, 0), fd);
	if (rc < 0) {
		log_error("cannot make the journal: %s", strerror(-rc));
		if (new_journal && new_journal->header)
			journal_unmap(new_journal);
		if (fd >= 0)
			close(fd);
		free(new_journal);
		return rc;
	}
	*journal = new_journal;
	return 0;
}

static int log_unreadable(const char *reason)
{
	log_error("journal: %s: the files of the last daemon cannot be restored", reason);
	return -EUCLEAN;
}

static int header_check(const struct journal_header *header, uint64_t bytes)
{
	if (header->magic != JOURNAL_MAGIC)
		return log_unreadable("not a journal");
	if (!journal_version_is_known(atomic_load(&header->version)))
		return log_unreadable("of another version");
	if (atomic_load(&header->broken))
		return log_unreadable("records were lost when there was no memory for them");
	if (!header->slots || header->slots > SLOTS_MAX || header->half_bytes < HALF_MIN ||
	    header->half_bytes % JOURNAL_UNIT || header->half_bytes > bytes ||
	    journal_bytes(header) != bytes || atomic_load(&header->state) >= JOURNAL_STATES ||
	    header->n_volumes > JOURNAL_VOLUMES)
		return log_unreadable("damaged");
	for (unsigned i = 0; i < JOURNAL_HALVES; i++)
		if (atomic_load(&header->units[i]) > header->half_bytes / JOURNAL_UNIT)
			return log_unreadable("damaged");
	for (unsigned i = 0; i < INODE_SHARDS; i++)
		if ((uint64_t)atomic_load(&header->pages[i]) >
		    header->slots / INODE_PAGE_SLOTS + INODE_SHARDS)
			return log_unreadable("damaged");
	return 0;
}

static int header_read(int fd, struct journal_header *header)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || pread(fd, header, sizeof(*header), 0) != sizeof(*header))
		return log_unreadable("too short");
	return header_check(header, (uint64_t)st.st_size);
}

int journal_adopt(const struct fdstore_ops *fdstore, int fd, struct journal **journal)
{
	struct journal_header header;
	struct journal *new_journal = journal_alloc();

	if (!new_journal)
		return -ENOMEM;
	journal_init(new_journal, fdstore, fd);
	new_journal->adopted = true;
	int rc = memory_lock(new_journal);

	if (rc == 0)
		rc = header_read(fd, &header);
	if (rc == 0)
		rc = journal_map(new_journal, &header);
	if (rc < 0) {
		journal_unmap(new_journal);
		free(new_journal);
		return rc;
	}
	*journal = new_journal;
	return 0;
}

void journal_close(struct journal *journal)
{
	if (!journal)
		return;
	journal_unmap(journal);
	close(journal->fd);
	for (unsigned i = 0; i < JOURNAL_WRITERS; i++)
		pthread_mutex_destroy(&journal->writers[i].lock);
	pthread_mutex_destroy(&journal->checkpoint_lock);
	pthread_mutex_destroy(&journal->lock);
	pthread_cond_destroy(&journal->changed);
	free(journal->drc);
	free(journal);
}
