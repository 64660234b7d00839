/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: several files at once, and several parts of each. Threads take parts of the files that
 * are open, or else open the next one. */
#ifndef CLIENT_CLI_CP_CP_H
#define CLIENT_CLI_CP_CP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/cli/core/cli.h"
#include "client/lib/staging.h"

/* One write of this size is one request to the daemon. */
#define CP_PART ((uint64_t)1 << 20)
/* Between the mount and elsewhere, by way of staging memory. From 16 processors into an H200 parts
 * of 2 MiB went at 38 GB/s, of 4 at 44 and of 8 at 37, by 24 threads. */
#define CP_PART_STAGED ((uint64_t)4 << 20)
/* Of files of this size, and where so much is copied in all: making staging memory takes longer
 * than it saves where it is less (512 MiB 38 ms, and 29 without). */
#define CP_STAGED_FILE_MIN ((uint64_t)64 << 20)
#define CP_STAGED_ALL_MIN  ((uint64_t)1 << 30)
/* Of a copy inside the mount, which the GPU makes. */
#define CP_PART_ON_MOUNT ((uint64_t)1 << 30)

#define CP_THREADS_MAX 256

struct cp_options {
	bool recursive, verify, resume, quiet, json, verbose;
	bool archive;	 /* hard links and extended attributes, too */
	bool no_clobber; /* what is there at the target stays */
	unsigned threads;
};

enum cp_method {
	CP_STREAM,   /* a pipe: read in order, written in parallel */
	CP_RANGES,   /* any part at any time */
	CP_ON_MOUNT, /* copy_file_range */
};

/* What bytes go through between two files. */
enum cp_step {
	CP_BUFFER,
	CP_STAGED_IN,  /* into the mount: staging memory of the thread's own */
	CP_STAGED_OUT, /* out of it */
};

enum cp_phase { CP_COPYING, CP_VERIFYING };

/* What is known of a part. */
enum cp_mark { CP_TODO, CP_DONE, CP_HASHED };

struct cp_file {
	char *from, *to;   /* from is NULL for standard input */
	char *part;	   /* beside to, where the bytes gather until they are all there */
	struct stat st;	   /* of from */
	struct stat begun; /* of part, when it was opened */
	int in, in_direct, out;
	enum cp_method method;
	enum cp_phase phase;
	enum cp_step step; /* CP_RANGES */
	bool noted;	   /* an attribute of it may say how far it is */
	bool sparse;	   /* from has holes, or may have */
	bool from_mount;   /* CP_RANGES: from is on a mount of ours */
	uint64_t size;	   /* of a stream: what was read so far */
	uint64_t resumed;  /* bytes that an earlier run had copied */
	uint64_t part_bytes;
	_Atomic uint64_t parts; /* UINT64_MAX: a stream whose end has not come */
	_Atomic uint64_t next;	/* part to be taken */
	_Atomic int error;	/* errno; the first one counts */
	const char *where;	/* the path that it is about */
	atomic_bool room_made;	/* cp_file_make_room is through; written under cp.lock */
	char *mapped;		/* all of out, for cp_mapped_fill alone; or NULL */
	/* A byte and a sum for each part; sums when verifying. */
	_Atomic unsigned char *marks;
	uint64_t *sums;
	uint64_t marks_room;	/* of the two, in parts */
	pthread_mutex_t stream; /* whose turn it is to read a stream */
	atomic_uint users;	/* threads; written under cp.lock */
	/* cp.lock: */
	bool opened;
	struct cp_file *following;
};

/* A directory that was made, whose mode and times are set when everything is in it. */
struct cp_dir {
	char *path;
	struct stat st;
};

struct cp_link;

struct cp {
	struct cp_options options;
	pthread_mutex_t lock;
	pthread_cond_t work;			   /* there is some, or there will be none */
	pthread_cond_t idle;			   /* the queue is shorter; or a thread has ended */
	pthread_cond_t room;			   /* is made for a file */
	struct cp_file *queue, **queue_end, *open; /* open: with parts to be taken */
	unsigned queued, busy;			   /* files; threads at one */
	pthread_t threads[CP_THREADS_MAX];
	unsigned n_threads, running; /* begun; not ended */
	bool walked;		     /* the queue will not grow */
	mode_t umask;
	struct cp_dir *dirs;
	size_t n_dirs;
	struct cp_link *links; /* names of files that have several */
	int status;	       /* the first failure's */
	_Atomic uint64_t bytes_all, bytes_done, bytes_verified, files_all, files_done;
	_Atomic uint64_t bytes_skipped; /* resumed: not copied in this run */
	atomic_bool halted;		/* nothing more is begun: a signal, or no room */
	double started;			/* cli_seconds */
};

/* The signal that asked to end, or 0; and a descriptor that is readable from then on. */
extern atomic_int cp_signal;
extern int cp_signal_fd;

bool cp_stopped(const struct cp *cp);
/* Something failed: the exit status is its, unless something failed before. */
void cp_failed(struct cp *cp, int status);

/* cp_walk.c. Queues what a source word names, and makes the directories. to is the target itself,
 * not the directory that it goes into. */
void cp_walk(struct cp *cp, const char *from, const char *to);
/* Modes and times of directories, innermost first. */
void cp_walk_end(struct cp *cp);
/* The directory's path and a name in it, allocated; NULL: no memory. */
char *cp_join(const char *dir, const char *name);
/* A name that is there now: for --verbose. From any thread. */
void cp_tell(const struct cp *cp, const char *from, const char *to);

/* cp_links.c: hard links between the files that are copied. */
/* Whether the target becomes a further name of a file that is copied already, when all is. */
bool cp_link_later(struct cp *cp, const struct stat *st, const char *from, const char *to);
void cp_links_make(struct cp *cp);

/* cp_attributes.c */
enum cp_xattrs { CP_XATTRS_OURS, CP_XATTRS_OTHERS };
/* Extended attributes, those of user.gpumem. or the others, as far as the target takes them: the
 * page size has to be known before there is memory. */
void cp_xattrs(int from, int to, enum cp_xattrs which);
/* Owner, mode and times of what has been copied, by its descriptor, or by its path where fd is < 0:
 * 0 or errno. Owners stay where they may not be given. now: what it has; NULL: that is not known.
 */
int cp_attributes(int fd, const char *path, const struct stat *st, const struct stat *now);

/* cp_pool.c */
void cp_queue(struct cp *cp, struct cp_file *file);
/* Waits until the target has room for all that is to come; false: it has none, as the file's error
 * says. */
bool cp_await_room(struct cp *cp, struct cp_file *file);
void *cp_worker(void *cp);
/* What was never begun. No worker is left. */
void cp_queue_free(struct cp *cp);

/* cp_file.c: a file from its opening to its name. Errors are kept in the file. */
/* from NULL: standard input. NULL: no memory. */
struct cp_file *cp_file_new(const char *from, const char *to, const struct stat *st);
void cp_file_open(struct cp *cp, struct cp_file *file);
/* After that. Not a byte goes into the target before. */
void cp_file_make_room(const struct cp *cp, struct cp_file *file);
/* All parts are there, or an error is: true: it is to be verified now. */
bool cp_file_copied(struct cp *cp, struct cp_file *file);
/* Gives it its name, or says why not; and frees it. */
void cp_file_end(struct cp *cp, struct cp_file *file);
void cp_file_free(struct cp_file *file);
void cp_file_fail(struct cp_file *file, const char *where, int error);
/* Room for the marks and sums of so many parts: 0 or ENOMEM. */
int cp_file_room(struct cp_file *file, uint64_t parts, bool sums);

/* In the mount that was asked for last. */
struct cp_staging {
	struct client_staging memory;
	dev_t device; /* of that mount, which may have none for us; 0: none was asked for */
	bool touched; /* all its pages are there */
};

/* A thread's own. */
struct cp_buffers {
	char *data, *other; /* CP_PART bytes and a page */
	struct cp_staging staging;
};
#define CP_BUFFER_BYTES (CP_PART + 4096)

/* cp_part.c: takes the next part of the file and copies or verifies it; false: there is none left.
 */
bool cp_part(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers);

/* All of it: 0, or an errno. A file that has become shorter is ESTALE. */
int cp_read(const struct cp_file *file, char *to, uint64_t bytes, uint64_t offset);
/* The bytes of a part. */
uint64_t cp_part_bytes(const struct cp_file *file, uint64_t part);

/* cp_staged.c. Copies a part by way of the thread's staging memory; false: there is none for this
 * file. Errors are kept in the file. */
bool cp_staged(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers, uint64_t part);

/* cp_mapped.c. Maps the target, whose size is set, where that is faster. */
void cp_mapped_begin(const struct cp *cp, struct cp_file *file);
void cp_mapped_end(struct cp_file *file);
/* Reads the bytes at the place at of from into the target; false: not mapped, or not all are there:
 * whoever copies them as ever then hears why. */
bool cp_mapped_fill(const struct cp_file *file, uint64_t offset, uint64_t bytes, int from,
		    uint64_t at);

/* cp_partial.c: the file beside the target. */
/* The attribute that says how far it is, which no copy has. Not below user.gpumem.: those names are
 * the daemon's. */
#define CP_PARTIAL_NOTE "user.gpumem-cp"
/* Its path, allocated; NULL: no memory. */
char *cp_partial_path(const char *to);
/* Opens it for this process alone: the descriptor, and what it is now; or -errno. */
int cp_partial_open(const char *path, struct stat *st);
/* How many bytes from the start on an earlier run has put there from this very source. */
uint64_t cp_partial_kept(int fd, const struct stat *st);
/* Notes it for a later run: 0 or -errno. */
int cp_partial_keep(int fd, const struct stat *st, uint64_t bytes);
/* How many bytes from the start on are there. */
uint64_t cp_file_prefix(const struct cp_file *file);
void cp_partial_note_all(struct cp *cp);

/* cp_progress.c: draws a line, from the main thread alone. */
void cp_progress(const struct cp *cp);
void cp_progress_end(const struct cp *cp);

#endif
