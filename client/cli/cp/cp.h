/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp copies several files at once, and several parts of each file. A thread takes a part of
 * an open file, or else opens the next file. */
#ifndef CLIENT_CLI_CP_CP_H
#define CLIENT_CLI_CP_CP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/cli/core/cli.h"
#include "client/lib/staging.h"

/* A write of this size is a single request to the daemon. */
#define CP_PART ((uint64_t)1 << 20)
/* The size of parts between the mount and other file systems, through staging memory. From 16
 * processors into an H200 parts of 2 MiB moved at 38 GB/s, of 4 at 44 and of 8 at 37, by 24
 * threads. */
#define CP_PART_STAGED ((uint64_t)4 << 20)
/* Staging memory is used for files of this size, if the copy has so many bytes in all: for fewer
 * bytes, making staging memory takes longer than it saves (512 MiB take 38 ms, and 29 ms without).
 */
#define CP_STAGED_FILE_MIN ((uint64_t)64 << 20)
#define CP_STAGED_ALL_MIN  ((uint64_t)1 << 30)
/* The size of parts of a copy inside the mount, which the GPU makes. */
#define CP_PART_ON_MOUNT ((uint64_t)1 << 30)

#define CP_THREADS_MAX 256

struct cp_options {
	bool recursive, verify, resume, quiet, json, verbose;
	bool archive;	 /* hard links and extended attributes, too */
	bool no_clobber; /* an existing target stays */
	bool follow;	 /* links in the source are followed, not copied */
	unsigned threads;
};

enum cp_method {
	CP_STREAM,   /* a pipe: read in order, written in parallel */
	CP_RANGES,   /* any part at any time */
	CP_ON_MOUNT, /* copy_file_range */
};

/* The way of the bytes between two files. */
enum cp_step {
	CP_BUFFER,
	CP_STAGED_IN,  /* into the mount, through staging memory of the thread */
	CP_STAGED_OUT, /* out of the mount, the same way */
};

enum cp_phase { CP_COPYING, CP_VERIFYING };

/* The state of a part. */
enum cp_mark { CP_TODO, CP_DONE, CP_HASHED };

/* A directory of the target. Other users may own directories there, and replace them at any moment:
 * the descriptors of the command line's directories stay open, and the directories below are opened
 * from there, without links, and must be the same as at first. */
struct cp_dir {
	int base;   /* the directory of the command line */
	char *path; /* for messages; from path + prefix on beneath base */
	size_t prefix;
	struct stat identity; /* the directory itself */
	int held;	      /* O_PATH; -1: too many are open */
	bool is_copy;	      /* mode and times of st are set when all of its files are there */
	struct stat st;	      /* of the source */
	struct cp_dir *previous;
};

/* The place of a source for the threads. */
struct cp_source {
	char *path; /* for messages; from path + prefix on beneath base. NULL: standard input */
	size_t prefix;
	int base; /* a directory of the command line; AT_FDCWD: path is of the command line */
};

/* A file of a directory of the target. */
struct cp_target {
	struct cp_dir *dir;
	char *name;
	char *path; /* for messages */
};

struct cp_file {
	struct cp_source from;
	struct cp_target to;
	char *part;	     /* the name of the partial file beside to, which gets the bytes */
	struct stat st;	     /* of from */
	struct stat part_st; /* of part at its opening */
	int folder;	     /* to.dir, O_PATH */
	int in, in_direct, out;
	enum cp_method method;
	enum cp_phase phase;
	enum cp_step step; /* CP_RANGES */
	bool noted;	   /* part may have an attribute with the progress */
	bool sparse;	   /* from has holes, or may have */
	bool from_mount;   /* CP_RANGES: from is on a mount of gpumemfs */
	uint64_t size;	   /* of a stream: bytes read so far */
	uint64_t resumed;  /* bytes that an earlier run had copied */
	uint64_t part_bytes;
	_Atomic uint64_t parts; /* UINT64_MAX: a stream that has not ended */
	_Atomic uint64_t next;	/* number of the next part */
	_Atomic int error;	/* errno of the first error */
	const char *error_path;
	atomic_bool room_made; /* the room was made, or there is none; written under cp.lock */
	char *mapped;	       /* a mapping of all of out, for cp_mapped_fill alone; or NULL */
	/* For each part a mark and, when verifying, a sum. */
	_Atomic unsigned char *marks;
	uint64_t *sums;
	uint64_t marks_room;	/* of marks and sums, in parts */
	pthread_mutex_t stream; /* held while reading a stream */
	atomic_uint users;	/* threads that work on the file; written under cp.lock */
	/* Under cp.lock: */
	bool opened;
	struct cp_file *following;
};

struct cp_link;
struct cp_dangling;

struct cp {
	struct cp_options options;
	pthread_mutex_t lock;
	pthread_cond_t work; /* a part or a file to work on, or the end */
	pthread_cond_t idle; /* the queue has become shorter, or a thread has ended */
	pthread_cond_t room; /* a file has its room */
	struct cp_file *queue, **queue_end, *open; /* open: files with parts to take */
	unsigned queued, busy;			   /* queued files; threads that work on a file */
	pthread_t threads[CP_THREADS_MAX];
	unsigned n_threads, running; /* threads started; threads not ended */
	bool walked;		     /* the queue will get no more files */
	atomic_bool uses_mount;	     /* a copied file is, or was, on a mount of gpumemfs */
	mode_t umask;
	struct cp_dir *dirs; /* the last directory first */
	size_t n_held;
	int *bases; /* directories of the command line */
	size_t n_bases;
	struct cp_link *links;	      /* names of files with several names */
	struct cp_dangling *dangling; /* copied links that may lead nowhere */
	size_t n_dangling;	      /* that do, in the end */
	int status;		      /* of the first failure */
	_Atomic uint64_t bytes_all, bytes_done, bytes_verified, files_all, files_done;
	_Atomic uint64_t bytes_skipped; /* resumed bytes, which this run did not copy */
	atomic_bool halted; /* start no more work, because of a signal or a full target */
	double started;	    /* cli_seconds */
};

/* state.c: the lowest source, which calls no other source of cp. */
/* The signal that asked cp to end, or 0; and a descriptor that is readable after the signal. */
extern atomic_int cp_signal;
extern int cp_signal_fd;
/* Catches signals that end a program: 0 or -errno. */
int cp_signals_catch(void);

bool cp_stopped(const struct cp *cp);
/* Sets the exit status, unless an earlier failure has set it. */
void cp_failed(struct cp *cp, int status);
/* For --verbose: reports a finished name. Any thread may call this. */
void cp_tell(const struct cp *cp, const char *from, const char *to);

/* walk.c. Queues the files of a source, and makes the directories. to.name "": the directory
 * itself. */
void cp_walk(struct cp *cp, const char *from, const struct cp_target *to);
/* The directory's path and a name in it, allocated; NULL: no memory. */
char *cp_join(const char *dir, const char *name);

/* target.c: the directories of the target. */
/* Finds the target that the command line names: a directory (name is NULL), or a name in a
 * directory, of the file that a link there leads to. The caller frees name. NULL: an error, which
 * was reported. */
struct cp_dir *cp_target_find(struct cp *cp, const char *word, char **name);
/* A directory that is open as fd: a new name in dir. NULL: no memory. */
struct cp_dir *cp_dir_new(struct cp *cp, const struct cp_dir *parent, const struct cp_target *to,
			  int fd);
/* Opens the directory again (O_PATH), or gives -errno. */
int cp_dir_open(const struct cp_dir *dir);
/* Keeps a directory of the command line open until the end, and gives its descriptor or -errno. */
int cp_base_keep(struct cp *cp, int fd);
/* Sets modes and times of directories, innermost first, and frees all. */
void cp_dirs_end(struct cp *cp);
bool cp_target_copy(struct cp_target *copy, const struct cp_target *to);
void cp_target_free(struct cp_target *to);

/* dangling.c. Warns of copied links that lead nowhere. All files are copied. */
void cp_dangling_report(struct cp *cp);

/* links.c: hard links between the files that are copied. */
/* Whether to becomes a further name of a file that is copied already. The name is made when all
 * files are copied. */
bool cp_link_later(struct cp *cp, const struct stat *st, const char *from,
		   const struct cp_target *to);
void cp_links_make(struct cp *cp);

/* attributes.c */
/* Whether the open file is on a mount of gpumemfs. */
bool cp_is_on_mount(int fd);

enum cp_xattrs { CP_XATTRS_OURS, CP_XATTRS_OTHERS };
/* Copies extended attributes, those of user.gpumem. or the others, as far as the target supports
 * them. The page size must be set before the file has memory, so user.gpumem. comes first. */
void cp_xattrs(int from, int to, enum cp_xattrs kind);
/* Sets times, owner and mode of a copy: 0 or errno. If the owner may not be set, the owner stays.
 * fd may be O_PATH. from: the source, to copy its other extended attributes too; -1: not copied.
 * now: the copy's present state; NULL: unknown. */
int cp_attributes(int from, int fd, const struct stat *st, const struct stat *now);

/* pool.c */
void cp_queue(struct cp *cp, struct cp_file *file);
void *cp_worker(void *cp);
/* Frees files that were never opened. All workers have ended. */
void cp_queue_free(struct cp *cp);

/* file.c: a file from its opening to its final name. The file keeps its first error. */
/* NULL: no memory. */
struct cp_file *cp_file_new(const struct cp_source *from, const struct cp_target *to,
			    const struct stat *st);
void cp_file_open(struct cp *cp, struct cp_file *file);
/* For a file whose parts are all copied, or that has an error. True: the file must be verified now.
 */
bool cp_file_copied(struct cp *cp, struct cp_file *file);
/* Gives the file its final name, or reports the error; and frees the file. */
void cp_file_end(struct cp *cp, struct cp_file *file);
void cp_file_free(struct cp_file *file);
void cp_file_fail(struct cp_file *file, const char *path, int error);

/* room.c: the room of the target. */
/* Gives the target its room. To be called after the opening and before any write. */
void cp_room_make(struct cp *cp, struct cp_file *file);
/* Waits until the target has room for all bytes. False: there is no room, as the file's error says.
 */
bool cp_room_await(struct cp *cp, struct cp_file *file);

/* marks.c: the ends, marks and sums of a file's parts. */
/* The end of a part, if the file has parts of so many bytes. */
uint64_t cp_part_end(const struct cp_file *file, uint64_t part, uint64_t bytes);
/* The size of a part in bytes. */
uint64_t cp_part_bytes(const struct cp_file *file, uint64_t part);
/* Makes room for the marks and sums of so many parts: 0 or ENOMEM. */
int cp_marks_reserve(struct cp_file *file, uint64_t parts, bool sums);
/* The number of bytes from the start that are copied. */
uint64_t cp_marks_prefix(const struct cp_file *file);

/* Staging memory on the mount of the last file. */
struct cp_staging {
	struct client_staging memory;
	dev_t device; /* of the mount, which may not offer staging memory; 0: no mount yet */
	bool touched; /* all pages are allocated */
};

/* Buffers of a thread. */
struct cp_buffers {
	char *data, *source; /* CP_PART bytes and a page */
	struct cp_staging staging;
};
#define CP_BUFFER_BYTES (CP_PART + 4096)

/* part.c: takes the next part of the file and copies or verifies it. False: no parts are left. */
bool cp_part(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers);

/* read.c. Reads all bytes: 0, or an errno. ESTALE: the file has become shorter. */
int cp_read(const struct cp_file *file, char *to, uint64_t bytes, uint64_t offset);

/* staged.c. Copies a part through the thread's staging memory. False: no staging memory for this
 * file. The file keeps an error. */
bool cp_staged(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers, uint64_t part);

/* mapped.c. Maps the target, whose size is set, if a mapping is faster. */
void cp_mapped_begin(const struct cp *cp, struct cp_file *file);
void cp_mapped_end(struct cp_file *file);
/* Reads bytes at the offset at of from into the target. False: the target is not mapped, or bytes
 * are missing; the ordinary copy then reports the error. */
bool cp_mapped_fill(const struct cp_file *file, uint64_t offset, uint64_t bytes, int from,
		    uint64_t at);

/* partial.c: the partial file beside the target. */
/* The attribute with the progress of a partial file; no finished copy has this attribute. Not below
 * user.gpumem., which is the daemon's. */
#define CP_PARTIAL_NOTE "user.gpumem-cp"
/* The name of the partial file, allocated; NULL: no memory. */
char *cp_partial_name(const char *name);
/* Opens the partial file in the directory for this process alone: the file of an earlier run with
 * the first *bytes_kept bytes of the unchanged source st, if st is not NULL; otherwise a new file.
 * Gives the descriptor, and the present state of the file; or -errno. */
int cp_partial_open(int folder, const char *name, const struct stat *st, struct stat *part_st,
		    uint64_t *bytes_kept);
/* Notes the progress for a later run: 0 or -errno. */
int cp_partial_keep(int fd, const struct stat *st, uint64_t bytes);
void cp_partial_note_all(struct cp *cp);

/* progress.c: draws the progress. The main thread alone may call this. */
void cp_progress(const struct cp *cp);
void cp_progress_end(const struct cp *cp);

#endif
