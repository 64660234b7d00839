/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the command line, the start and the end of the threads. */
#include "client/cli/cp/cp.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/buffer.h"
#include "client/cli/core/output_json.h"
#include "client/cli/cp/print.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/number.h"
#include "common/system/descriptors.h"

#define THREADS_USUAL 24
#define TICK_SECONDS  0.1
/* Ticks between two notes of the progress: a copy that is killed loses no more than this time. */
#define NOTE_TICKS 10

/* Ends the program by the signal, for the shell that waits. */
static void signal_raise(const struct cp *cp)
{
	int number = atomic_load(&cp_signal);
	uint64_t all = atomic_load(&cp->files_all);

	cli_error("ended by SIG%s: %ju of %ju file%s %s copied%s", sigabbrev_np(number),
		  (uintmax_t)atomic_load(&cp->files_done), (uintmax_t)all, output_plural(all),
		  all == 1 ? "is" : "are",
		  cp->options.resume ? "" : ", and nothing is left of the others");
	fflush(NULL);
	signal(number, SIG_DFL);
	raise(number);
}

static bool thread_start(struct cp *cp, void *(*cp_run)(void *))
{
	scoped_lock(&cp->lock);
	if (pthread_create(&cp->threads[cp->n_threads], NULL, cp_run, cp))
		return false;
	cp->n_threads++;
	cp->running++;
	return true;
}

static void *thread_start_others(void *context)
{
	struct cp *cp = context;

	for (unsigned i = 1; i < cp->options.threads && thread_start(cp, cp_worker); i++)
		;
	return cp_worker(cp);
}

/* The first thread starts the others, so that the walk need not wait a millisecond for the starts.
 */
static bool threads_start(struct cp *cp)
{
	sigset_t all, old_mask;

	/* The main thread alone handles signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old_mask);
	bool started = thread_start(cp, thread_start_others);
	pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
	return started;
}

/* Waits until all threads have ended. */
static void threads_wait(struct cp *cp)
{
	unsigned ticks = 0;

	pthread_mutex_lock(&cp->lock);
	cp->walked = true;
	pthread_cond_broadcast(&cp->work);
	while (cp->running) {
		clock_cond_wait(&cp->idle, &cp->lock,
				clock_ns() + (int64_t)(TICK_SECONDS * CLOCK_SECOND));
		if (cp_stopped(cp))
			pthread_cond_broadcast(&cp->work);
		if (cp->options.resume && ++ticks % NOTE_TICKS == 0)
			cp_partial_note_all(cp);
		cp_progress(cp);
	}
	pthread_mutex_unlock(&cp->lock);
}

static int report_write(struct cp *cp)
{
	double seconds = cli_seconds() - cp->started;
	uint64_t bytes = atomic_load(&cp->bytes_done), skipped = atomic_load(&cp->bytes_skipped);

	return output_json(json_pack(
	    "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:i}", "files",
	    (json_int_t)atomic_load(&cp->files_done), "files_wanted",
	    (json_int_t)atomic_load(&cp->files_all), "bytes", (json_int_t)bytes, "resumed_bytes",
	    (json_int_t)skipped, "dangling_links", (json_int_t)cp->n_dangling, "seconds", seconds,
	    "bytes_per_second", seconds > 0 ? (double)(bytes - skipped) / seconds : 0.0, "verified",
	    cp->options.verify && !cp->status && !atomic_load(&cp_signal), "status", cp->status));
}

/* Whether an earlier source has the same name: both copies would be one file. */
static bool source_is_repeated(char **words, int i)
{
	for (int j = 0; j < i; j++) {
		AUTO_FREE char *copy = strdup(words[i]), *earlier = strdup(words[j]);

		if (copy && earlier && strcmp(basename(copy), basename(earlier)) == 0 &&
		    strcmp(basename(copy), ".") != 0)
			return true;
	}
	return false;
}

/* The last name of a source is the name of the copy in a directory; "" for "." and "..": their
 * contents are copied, as by cp(1). copy is an allocated copy of the word. */
static const char *source_name(char *copy)
{
	const char *name = basename(copy);

	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || *name == '/' ? "" : name;
}

/* Copies into the target, which is a directory. */
static void source_walk_into(struct cp *cp, char **words, int i, const char *target,
			     struct cp_dir *dir)
{
	AUTO_FREE char *copy = strdup(words[i]), *path = NULL;
	const char *name = copy ? source_name(copy) : NULL;

	if (source_is_repeated(words, i)) {
		cli_error("%s: another source has this name", words[i]);
		cp_failed(cp, CLI_USAGE);
	} else if (strcmp(words[i], "-") == 0) {
		cli_error("standard input has no name: name a file below %s", target);
		cp_failed(cp, CLI_USAGE);
	} else if (!name || !(path = cp_join(target, name))) {
		cp_failed(cp, cli_fail(words[i], ENOMEM));
	} else {
		cp_walk(cp, words[i], &(struct cp_target){dir, (char *)name, path});
	}
}

/* Copies to a name. Only a directory may have a slash behind the name. */
static void source_walk_to(struct cp *cp, const char *word, const char *target,
			   const struct cp_target *to)
{
	struct stat st;

	if (to->path[strlen(to->path) - 1] != '/' && strlen(target) > strlen(to->path) &&
	    !(stat(word, &st) == 0 && S_ISDIR(st.st_mode)))
		cp_failed(cp, cli_fail(target, ENOTDIR));
	else
		cp_walk(cp, word, to);
}

/* words: the sources and then the target. */
static void sources_walk(struct cp *cp, char **words, int count)
{
	const char *target = words[count - 1];
	AUTO_FREE char *name = NULL, *path = strdup(target);
	struct cp_dir *dir = path ? cp_target_find(cp, target, &name) : NULL;

	if (!dir)
		return;
	if (name && count > 2) {
		cli_error("%s is not a directory, but there are several sources", target);
		cp_failed(cp, CLI_USAGE);
		return;
	}
	for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
		path[length - 1] = '\0';
	if (name)
		source_walk_to(cp, words[0], target, &(struct cp_target){dir, name, path});
	for (int i = 0; !name && i < count - 1 && !cp_stopped(cp); i++)
		source_walk_into(cp, words, i, target, dir);
}

/* Any other cp would have done. */
static void note_foreign(void)
{
	cli_error("copied, but neither side is on a mount of gpumemfs");
}

static int files_copy(struct cp *cp, char **words, int count)
{
	int error = cp_signals_catch();

	if (error)
		return cli_fail("eventfd", -error);
	cp->started = cli_seconds();
	if (!threads_start(cp))
		return cli_fail("a thread", EAGAIN);
	sources_walk(cp, words, count);
	threads_wait(cp);
	for (unsigned i = 0; i < cp->n_threads; i++)
		pthread_join(cp->threads[i], NULL);
	cp_queue_free(cp);
	cp_links_make(cp);
	cp_dangling_report(cp);
	cp_dirs_end(cp);
	cp_progress_end(cp);
	if (cp->options.json)
		report_write(cp);
	if (atomic_load(&cp_signal))
		signal_raise(cp);
	if (atomic_load(&cp->files_done) && !atomic_load(&cp->uses_mount))
		note_foreign();
	return cp->status;
}

/* Half of the threads wait for copies by the GPU while the others read. More threads move no more:
 * from 16 processors into an H200 16 threads moved 41 GB/s, 24 45 and 32 45. */
static unsigned threads_default(void)
{
	unsigned threads = buffer_threads() * 3 / 2;

	return threads < THREADS_USUAL ? threads : THREADS_USUAL;
}

/* The other options are about copies with names. */
static bool cp_is_printable(const struct cp *cp)
{
	const struct cp_options *options = &cp->options;

	return !(options->recursive || options->archive || options->resume || options->no_clobber ||
		 options->verbose || options->verify || options->json);
}

static int print_run(const struct cp *cp, const struct cli_args *args)
{
	bool uses_mount;

	if (!cp_is_printable(cp))
		return cli_usage(args->command, "standard output is no copy: it takes none of -a, "
						"-c, -n, -r, -v, -V and --json");
	int status = cp_print(args->argv, args->argc - 1, &uses_mount);
	if (!status && !uses_mount)
		note_foreign();
	return status;
}

static int cp_run(struct cli_args *args)
{
	struct cp cp = {.lock = PTHREAD_MUTEX_INITIALIZER,
			.work = PTHREAD_COND_INITIALIZER,
			.idle = PTHREAD_COND_INITIALIZER,
			.room = PTHREAD_COND_INITIALIZER};
	uint64_t threads = 0;
	int code;

	cp.queue_end = &cp.queue;
	while ((code = cli_option(args)) > 0) {
		cp.options.recursive |= code == 'r';
		cp.options.quiet |= code == 'q';
		cp.options.verify |= code == 'V';
		cp.options.resume |= code == 'c';
		cp.options.json |= code == CLI_JSON_CODE;
		cp.options.recursive |= code == 'a';
		cp.options.archive |= code == 'a';
		cp.options.no_clobber |= code == 'n';
		cp.options.follow |= code == 'L';
		cp.options.verbose |= code == 'v';
		if (code == 'j' && parse_u64(args->value, 1, CP_THREADS_MAX, &threads) < 0)
			return cli_usage(args->command, "--threads=%s: 1 to %d", args->value,
					 CP_THREADS_MAX);
	}
	if (code < 0)
		return CLI_USAGE;
	if (cp_prints_to(args->argv[args->argc - 1]))
		return print_run(&cp, args);
	cp.options.threads = threads ? (unsigned)threads : threads_default();
	/* Each directory of the command line stays open. */
	descriptors_raise();
	cp.umask = umask(0);
	umask(cp.umask);
	return files_copy(&cp, args->argv, args->argc);
}

static const struct cli_option copy_options[] = {
    {'a', "archive", NULL, "-r, with hard links and extended attributes"},
    {'c', "resume", NULL, "keep partial files, and continue them in the next run"},
    {'f', "force", NULL, "replace existing files (always done)"},
    {'j', "threads", "N", "how many threads (default: by the processors, 3 to 24)"},
    {'L', "dereference", NULL, "copy files and directories in place of links to them"},
    {'n', "no-clobber", NULL, "do not replace existing files"},
    {'p', "preserve", NULL, "keep modes, times and owners (always done)"},
    {'q', "quiet", NULL, "no progress on the terminal"},
    {'r', "recursive", NULL, "copy directories with their contents"},
    {'v', "verbose", NULL, "print the name of each finished file"},
    {'V', "verify", NULL, "read the copies back and compare XXH3 sums"},
    CLI_JSON,
    {0},
};

const struct command command_cp = {
    .name = "cp",
    .words = "SRC... DST",
    .summary = "Copy files into, out of and inside GPU memory, in parallel",
    .help = "A file gets its name when it is complete. Modes, times and, for root,\n"
	    "owners are kept. SRC may be a pipe, and - for standard input; DST may be - for\n"
	    "standard output.",
    .options = copy_options,
    .min_words = 2,
    .max_words = -1,
    .run = cp_run,
};
