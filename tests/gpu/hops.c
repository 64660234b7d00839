/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The times of timelines:
 *   hops FOLDER WORDS BATCHES   FOLDER of the GPU, WORDS the folder of the timelines' files.
 * Streams of two processes signal each other in turns, HOPS times a batch. All operations are in
 * the streams before the first is free to go, so that no CPU takes part. And a thread waits for
 * what a stream of its process signals. */
#include <sys/wait.h>

#include "tests/gpu/pointers.h"

#define HOPS	    200
#define BATCHES_MAX 1000

/* In the file of the process that begins: the turns, the gate, and a word for the CPU. */
enum { TURN, GATE, FOR_CPU, TIMELINES };

struct player {
	struct gpu gpu;
	gm_CUstream stream;
	gpumem_timeline *own, *other;
};

static gpumem_timeline *timeline_made(const char *path)
{
	gpumem_timeline *timeline = gpumem_timeline_create(path, TIMELINES, 0600, 0);

	if (!timeline)
		FAIL("gpumem_timeline_create: %s", gpumem_error());
	return timeline;
}

static gpumem_timeline *timeline_found(const char *path)
{
	gpumem_timeline *timeline;

	while (!(timeline = gpumem_timeline_open(path)))
		if (errno != ENOENT)
			FAIL("gpumem_timeline_open: %s", gpumem_error());
	return timeline;
}

static struct player player_begin(const uint8_t uuid[16], const char *own, const char *other)
{
	struct player player = {0};

	gpu_use(&player.gpu, uuid);
	MUST(player.gpu.cu.cuStreamCreate(&player.stream, 1));
	player.own = timeline_made(own);
	player.other = timeline_found(other);
	return player;
}

static void player_end(struct player *player)
{
	MUST(player->gpu.cu.cuStreamDestroy(player->stream));
	GOOD(gpumem_timeline_close(player->other));
	GOOD(gpumem_timeline_close(player->own));
}

/* The process that answers. */
static void answer(const uint8_t uuid[16], const char *own, const char *other, size_t batches)
{
	struct player player = player_begin(uuid, own, other);

	for (uint64_t batch = 0; batch < batches; batch++) {
		for (uint64_t hop = batch * HOPS + 1; hop <= (batch + 1) * HOPS; hop++) {
			GOOD(gpumem_timeline_wait(player.other, TURN, player.stream, hop));
			GOOD(gpumem_timeline_signal(player.own, TURN, player.stream, hop));
		}
		GOOD(gpumem_timeline_signal_host(player.own, GATE, batch + 1));
		MUST(player.gpu.cu.cuStreamSynchronize(player.stream));
	}
	/* Until the other process has seen all. */
	GOOD(gpumem_timeline_wait_host(player.other, GATE, batches + 1, -1));
	player_end(&player);
	exit(0);
}

/* Seconds of a hop from one process to the other. */
static double batch_run(struct player *player, uint64_t batch)
{
	GOOD(gpumem_timeline_wait(player->own, GATE, player->stream, batch + 1));
	for (uint64_t hop = batch * HOPS + 1; hop <= (batch + 1) * HOPS; hop++) {
		GOOD(gpumem_timeline_signal(player->own, TURN, player->stream, hop));
		GOOD(gpumem_timeline_wait(player->other, TURN, player->stream, hop));
	}
	GOOD(gpumem_timeline_wait_host(player->other, GATE, batch + 1, -1));
	double start = measure_now();

	GOOD(gpumem_timeline_signal_host(player->own, GATE, batch + 1));
	MUST(player->gpu.cu.cuStreamSynchronize(player->stream));
	return (measure_now() - start) / (2 * HOPS);
}

static double cpu_wake(struct player *player, uint64_t batch)
{
	double start = measure_now();

	GOOD(gpumem_timeline_signal(player->own, FOR_CPU, player->stream, batch + 1));
	GOOD(gpumem_timeline_wait_host(player->own, FOR_CPU, batch + 1, -1));
	return measure_now() - start;
}

static void value_print(const char *name, double *values, size_t n)
{
	printf("%s %.2f\n", name, measure_median(values, n) * 1e6);
	printf("%s_p90 %.2f\n", name, values[n * 9 / 10] * 1e6);
}

int main(int argc, char **argv)
{
	static double hops[BATCHES_MAX], wakes[BATCHES_MAX];
	char mine[4096], theirs[4096];
	uint8_t uuid[16];
	int status;

	if (argc != 4)
		FAIL("usage: hops FOLDER WORDS BATCHES");
	size_t batches = number(argv[3], BATCHES_MAX);

	uuid_find(argv[1], uuid);
	snprintf(mine, sizeof(mine), "%s/hops.mine", argv[2]);
	snprintf(theirs, sizeof(theirs), "%s/hops.theirs", argv[2]);
	/* Before this process uses CUDA, which does not survive a fork. */
	pid_t pid = fork();

	if (pid == 0)
		answer(uuid, theirs, mine, batches);
	struct player player = player_begin(uuid, mine, theirs);

	for (uint64_t batch = 0; batch < batches; batch++) {
		hops[batch] = batch_run(&player, batch);
		wakes[batch] = cpu_wake(&player, batch);
	}
	GOOD(gpumem_timeline_signal_host(player.own, GATE, batches + 1));
	if (waitpid(pid, &status, 0) < 0 || status)
		FAIL("the process that answers failed");
	player_end(&player);
	value_print("hop", hops, batches);
	value_print("wake", wakes, batches);
	return 0;
}
