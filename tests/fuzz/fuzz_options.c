/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A command line, with a word on each line of the input: the parser refuses the whole command line,
 * or fills in usable options. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "fs/options/options.h"

#define WORDS_MAX 24

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* "gpu0", "gpu0.mig1", or a UUID of a GPU or of a MIG instance. */
static bool is_name(const char *item, size_t length)
{
	static const char uuid[] = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";

	if (!memcmp(item, "gpu", 3))
		return length > 3 && strspn(item + 3, "0123456789.mig") >= length - 3;
	if (length != 4 + strlen(uuid) || (memcmp(item, "GPU-", 4) && memcmp(item, "MIG-", 4)))
		return false;
	for (size_t i = 0; uuid[i]; i++)
		if (uuid[i] == 'h' ? !isxdigit((unsigned char)item[4 + i]) : item[4 + i] != '-')
			return false;
	return true;
}

/* Names as given, and then numbers: ascending, each once. */
static void check_gpus(const char *list)
{
	for (long last = -1;; list++) {
		size_t length = strcspn(list, ",");
		char *end;

		if (isdigit((unsigned char)*list)) {
			long number = strtol(list, &end, 10);

			require(end == list + length && length <= 2 && number > last &&
				number < BACKEND_DEVICES_MAX);
			last = number;
		} else {
			require(last < 0 && length > 3 && is_name(list, length));
		}
		list += length;
		if (!*list)
			return;
	}
}

static void check(const struct options *options)
{
	if (options->help || options->version)
		return;
	require(options->mountpoint && options->mountpoint[0] == '/');
	if (options->gpus)
		check_gpus(options->gpus);
	require(options->host_gpus >= 1 && options->host_gpus <= BACKEND_DEVICES_MAX);
	require(options->threads <= 256);
	require(options->umask <= 0777);
	require(options->max_chunk && options->max_chunk % CHUNK_ALIGN == 0);
	require(options->host_size.given && amount_bytes(&options->host_size, 100, 0) > 0);
	require(!options->size.percent || amount_bytes(&options->size, 1000, 0) <= 1000);
	require(options->n_shares <= USER_SHARES_MAX &&
		(options->spill.given || !options->n_shares));
	for (unsigned i = 0; i < options->n_shares; i++)
		require(options->shares[i].weight >= 1 && options->shares[i].weight <= WEIGHT_MAX &&
			options->shares[i].uid != (uid_t)-1);
	require(options->log_level <= LOG_LEVEL_DEBUG && options->bar <= BAR_OFF);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	/* Log lines are formatted, then discarded. */
	log_setup(LOG_LEVEL_DEBUG, 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *rest = text;
	char *argv[WORDS_MAX + 1];
	struct options options;
	int argc = 0;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	while (rest && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, "\n");
	argv[argc] = NULL;

	int rc = options_parse(argc, argv, &options);
	require(rc == 0 || rc == -EINVAL);
	if (rc == 0)
		check(&options);
	else
		require(!options.mountpoint && !options.mount_options && !options.gpus &&
			!options.shares);
	options_free(&options);
	free(text);
	return 0;
}
