/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests that a mapping shows the file's bytes. The bytes belong to the user, so the test does not
 * write. The test compares the mapping with bytes that the daemon, which has tested its own way,
 * reads from the file. Zero bytes prove no mapping: a file of zeros leaves the test to the next
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "client/core/private_fd.h"
#include "client/gpu/cuda/bar.h"

#define SAMPLE_BYTES 4096
#define SAMPLES	     3
#define LINE	     64
#define TRIES	     20
#define PAUSE_NS     1000000

struct samples {
	uint64_t at[SAMPLES];
	size_t bytes[SAMPLES];
	char data[SAMPLES][SAMPLE_BYTES];
};

/* The system call is made directly: libc's pread may be a wrapper that reads this very mapping. */
static int samples_read(int fd, void *argument)
{
	struct samples *samples = argument;

	for (unsigned i = 0; i < SAMPLES; i++) {
		long n =
		    syscall(SYS_pread64, fd, samples->data[i], SAMPLE_BYTES, (off_t)samples->at[i]);
		if (n < 0)
			return -errno;
		samples->bytes[i] = (size_t)n;
	}
	return 0;
}

struct verdict {
	unsigned n_same, n_different; /* lines with a byte that is not zero, on either side */
};

static void verdict_add_line(struct verdict *verdict, const char *file, const char *mapping)
{
	static const char zero[LINE];

	if (memcmp(file, mapping, LINE) != 0)
		verdict->n_different++;
	else if (memcmp(file, zero, LINE) != 0)
		verdict->n_same++;
}

static struct verdict samples_compare(const struct samples *samples, const char *mapping)
{
	struct verdict verdict = {0, 0};
	char sample[SAMPLE_BYTES];

	for (unsigned i = 0; i < SAMPLES; i++) {
		size_t lines = samples->bytes[i] / LINE;
		stream_load(sample, mapping + samples->at[i], lines * LINE);
		for (size_t line = 0; line < lines; line++)
			verdict_add_line(&verdict, samples->data[i] + line * LINE,
					 sample + line * LINE);
	}
	return verdict;
}

int client_bar_prove(struct client_bar *bar, const char *mapping, uint64_t size, int file,
		     enum client_bar_subject subject, char *reason)
{
	struct samples samples = {0};

	if (atomic_load(&bar->proven) || size < SAMPLE_BYTES)
		return 0;
	samples.at[1] = (size - SAMPLE_BYTES) / 2 / LINE * LINE;
	samples.at[2] = (size - SAMPLE_BYTES) / LINE * LINE;
	for (unsigned attempt = 0; attempt < TRIES; attempt++) {
		const struct timespec pause = {.tv_nsec = PAUSE_NS};
		if (client_private_fd(file, O_RDONLY, samples_read, &samples) < 0)
			return 0; /* no test is possible: a sandbox, or no right to open the file
				     again */
		struct verdict verdict = samples_compare(&samples, mapping);
		if (verdict.n_same)
			atomic_store(&bar->proven, true);
		if (verdict.n_same || !verdict.n_different || subject == CLIENT_BAR_COPY)
			return 0;
		nanosleep(&pause, NULL); /* another process may be writing */
	}
	snprintf(reason, BAR_REASON_MAX, "its mapping does not show the file's bytes");
	return -EILSEQ;
}
