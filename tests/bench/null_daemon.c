/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/null_daemon.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/hash.h"
#include "common/number.h"
#include "fs/fuse/session.h"
#include "fs/ops/ops.h"
#include "tests/bench/null_operations.h"

int null_daemon_main(int argc, char **argv)
{
	static struct fs fs; /* only the members used by the session and the workers are set */
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = CHUNK_ALIGN, .host_gpus = 1};
	const struct session_table table = {.operations = &null_operations};
	struct session *session;

	if (options_parse(argc, argv, &fs.options))
		return 1;
	fs.options.recovery = RECOVERY_OFF; /* the null daemon has no keeper */
	log_setup(fs.options.log_level, LOG_TO_TERMINAL);
	hash_seed_init();
	session_block_signals();
	if (backend_open(&config, &fs.backend))
		return 1;
	int error = session_open(&fs, &table, &session);

	if (!error) {
		error = session_start(session);
		if (!error)
			session_wait(session);
		session_close(session);
	}
	backend_close(fs.backend);
	options_free(&fs.options);
	return error ? 1 : 0;
}

static int stock_serve(struct fuse_session *fuse, unsigned threads)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (!config)
		return -1;
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, threads);
	int error = fuse_session_loop_mt(fuse, config);

	fuse_loop_cfg_destroy(config);
	return error;
}

static int stock_run(struct fuse_args *args, const char *mountpoint, unsigned threads)
{
	struct fuse_session *fuse =
	    fuse_session_new(args, &null_operations, sizeof(null_operations), NULL);

	if (!fuse)
		return -1;
	int error = fuse_set_signal_handlers(fuse);

	if (!error)
		error = fuse_session_mount(fuse, mountpoint);
	if (!error)
		error = stock_serve(fuse, threads);
	fuse_session_unmount(fuse);
	fuse_remove_signal_handlers(fuse);
	fuse_session_destroy(fuse);
	return error;
}

int stock_daemon_main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	uint64_t threads;

	if (argc != 4 || parse_u64(argv[1], 1, STOCK_THREADS_MAX, &threads)) {
		fprintf(stderr, "usage: --stock-daemon THREADS OPTIONS MOUNTPOINT\n");
		return 2;
	}
	int error = fuse_opt_add_arg(&args, "null-fuse") || fuse_opt_add_arg(&args, "-o") ||
		    fuse_opt_add_arg(&args, argv[2]) ||
		    stock_run(&args, argv[3], (unsigned)threads);

	fuse_opt_free_args(&args);
	return error ? 1 : 0;
}
