/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Measures the backend alone, without the filesystem:
 *   raw copy FROM TO BYTES    the median time of five copies between two GPUs, or inside a GPU
 *   raw hold GPU              allocates all memory of a GPU, until standard input ends */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/copy.h"
#include "common/log.h"
#include "common/number.h"
#include "tests/bench/measure.h"

#define ROUNDS	  5
#define TAKEN_MAX 4096

static struct device *device_of(struct backend *backend, uint64_t index)
{
	for (unsigned i = 0; i < backend->n_devices; i++)
		if (backend->devices[i]->index == index)
			return backend->devices[i];
	fprintf(stderr, "raw: there is no GPU %llu\n", (unsigned long long)index);
	return NULL;
}

/* The first round creates the contexts and does not count. */
static int time_copies(struct copier *copier, const struct span *to, const struct span *from)
{
	double times[ROUNDS];

	for (int i = -1; i < ROUNDS; i++) {
		double start = measure_now();
		int rc = copy_across(copier, to, 0, from, 0, to->bytes);

		if (rc == 0)
			rc = copier_wait(copier);
		if (rc < 0)
			return rc;
		if (i >= 0)
			times[i] = measure_now() - start;
	}
	printf("%.9f\n", measure_median(times, ROUNDS));
	return 0;
}

static int copy(struct backend *backend, struct device *from, struct device *to, uint64_t bytes)
{
	struct chunk *chunks[2] = {NULL, NULL};
	struct copier *copier;
	int rc = copier_open(backend, &copier);

	if (rc < 0)
		return rc;
	rc = chunk_new(from, PLACE_GPU, bytes, &chunks[0]);
	if (rc == 0)
		rc = chunk_new(to, PLACE_GPU, bytes, &chunks[1]);
	if (rc == 0)
		rc = time_copies(copier, &(struct span){chunks[1], 0, bytes},
				 &(struct span){chunks[0], 0, bytes});
	chunk_free(chunks[0]);
	chunk_free(chunks[1]);
	copier_close(copier);
	return rc;
}

static int hold(struct device *device)
{
	static struct chunk *taken[TAKEN_MAX];
	uint64_t held = 0;
	size_t n = 0;

	for (uint64_t bytes = 16ULL << 30; bytes >= CHUNK_ALIGN; bytes /= 2)
		while (n < TAKEN_MAX && chunk_new(device, PLACE_GPU, bytes, &taken[n]) == 0) {
			held += bytes;
			n++;
		}
	printf("%llu\n", (unsigned long long)held);
	fflush(stdout);
	for (char byte; read(STDIN_FILENO, &byte, 1) > 0;)
		;
	while (n)
		chunk_free(taken[--n]);
	return 0;
}

static int run(struct backend *backend, char **words)
{
	uint64_t numbers[3] = {0};
	bool copying = strcmp(words[0], "copy") == 0;

	for (int i = 0; words[i + 1]; i++)
		if (parse_u64(words[i + 1], 0, UINT64_MAX, &numbers[i]) < 0) {
			fprintf(stderr, "raw: %s is not a number\n", words[i + 1]);
			return -1;
		}
	struct device *first = device_of(backend, numbers[0]);
	struct device *second = device_of(backend, numbers[copying ? 1 : 0]);

	if (!first || !second)
		return -1;
	return copying ? copy(backend, first, second, numbers[2] / CHUNK_ALIGN * CHUNK_ALIGN)
		       : hold(first);
}

int main(int argc, char **argv)
{
	struct backend_config config = {.kind = BACKEND_CUDA, .bar = BAR_OFF};
	struct backend *backend;

	if (!(argc == 5 && strcmp(argv[1], "copy") == 0) &&
	    !(argc == 3 && strcmp(argv[1], "hold") == 0)) {
		fprintf(stderr, "usage: raw copy FROM TO BYTES | raw hold GPU\n");
		return 1;
	}
	log_setup(LOG_LEVEL_WARN, LOG_TO_TERMINAL);
	if (backend_open(&config, &backend))
		return 1;
	int rc = run(backend, argv + 1);

	backend_close(backend);
	return rc ? 1 : 0;
}
