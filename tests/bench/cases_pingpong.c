/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CPU stores a word in a mapped file, a kernel polls the word and stores the answer. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/driver/driver.h"
#include "backend/stream/stream.h"
#include "client/lib/gpumem.h"
#include "tests/bench/cases.h"
#include "tests/bench/measure.h"
#include "tests/bench/raw.h"
#include "tests/bench/whole.h"

#define ROUNDS	     20000
#define WARM_UP	     1000
#define GIVE_UP	     2.0 /* seconds to wait for an answer */
#define FILE_BYTES   (2ULL << 20)
#define LAST	     UINT32_C(0xffffffff) /* tells the kernel to end */
#define ANSWER_AFTER 1024		  /* bytes behind the flag, in another cache line */

typedef struct gm_CUmod_st *gm_CUmodule;
typedef struct gm_CUfunc_st *gm_CUfunction;

/* clang-format off */
#define FUNCTIONS(X) \
	X(cuModuleLoadData, (gm_CUmodule *, const void *)) \
	X(cuModuleGetFunction, (gm_CUfunction *, gm_CUmodule, const char *)) \
	X(cuModuleUnload, (gm_CUmodule)) \
	X(cuLaunchKernel, (gm_CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
			   unsigned, gm_CUstream, void **, void **))
/* clang-format on */

#define FIELD(symbol, arguments) gm_CUresult(*symbol) arguments;
struct kernels {
	FUNCTIONS(FIELD)
};

/* Answers each new word of flag with the same word in answer, until the word is LAST or the flag
 * has not changed for about 3 seconds: a kernel that never ends would hold the GPU. */
static const char ponger[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
			     ".visible .entry pong(.param .u64 flag, .param .u64 answer)\n"
			     "{\n"
			     ".reg .pred %p<3>;\n.reg .b32 %r<4>;\n.reg .b64 %d<6>;\n"
			     "ld.param.u64 %d1, [flag];\n"
			     "ld.param.u64 %d2, [answer];\n"
			     "cvta.to.global.u64 %d1, %d1;\n"
			     "cvta.to.global.u64 %d2, %d2;\n"
			     "mov.u32 %r1, 0;\n"
			     "mov.u64 %d3, %globaltimer;\n"
			     "poll:\n"
			     "ld.relaxed.sys.global.u32 %r2, [%d1];\n"
			     "setp.ne.u32 %p1, %r2, %r1;\n"
			     "@%p1 bra changed;\n"
			     "mov.u64 %d4, %globaltimer;\n"
			     "sub.u64 %d4, %d4, %d3;\n"
			     "setp.lt.u64 %p1, %d4, 3000000000;\n"
			     "@%p1 bra poll;\n"
			     "ret;\n"
			     "changed:\n"
			     "mov.u32 %r1, %r2;\n"
			     "st.relaxed.sys.global.u32 [%d2], %r1;\n"
			     "mov.u64 %d3, %globaltimer;\n"
			     "setp.ne.u32 %p2, %r1, 4294967295;\n"
			     "@%p2 bra poll;\n"
			     "ret;\n"
			     "}\n";

enum answer_in { ANSWER_PINNED, ANSWER_SAME };

static void points(struct bench *bench)
{
	static const char *const labels[] = {"answer in pinned memory", "answer beside the word"};

	for (unsigned i = ANSWER_PINNED; i <= ANSWER_SAME; i++) {
		struct point point = {
		    .bytes = sizeof(uint32_t), .lanes = 1, .variant = i, .unit = UNIT_SECONDS};

		snprintf(point.label, sizeof(point.label), "%s", labels[i]);
		point_add(bench, &point);
	}
}

/* Memory that both the CPU and the GPU can access. */
struct shared {
	char *host;
	gm_CUdeviceptr device;
};

struct game {
	struct cuda_driver cu;
	struct kernels kernels;
	gm_CUmodule module;
	gm_CUfunction pong;
	gm_CUstream stream;
	void *pinned;
	struct shared flag, answer;
};

static void game_close(struct game *game)
{
	if (game->stream) {
		game->cu.cuStreamSynchronize(game->stream);
		game->cu.cuStreamDestroy(game->stream);
	}
	if (game->module)
		game->kernels.cuModuleUnload(game->module);
	if (game->pinned)
		game->cu.cuMemFreeHost(game->pinned);
}

static int game_load(struct game *game, char *why)
{
	static const struct driver_symbol symbols[] = {
#define ROW(symbol, arguments) {#symbol, offsetof(struct kernels, symbol), REQUIRED},
	    FUNCTIONS(ROW)};
	void *library;

	if (driver_load_cuda(&game->cu, why, WHY_MAX) < 0)
		return -ENODEV;
	return driver_load("libcuda.so.1", symbols, sizeof(symbols) / sizeof(symbols[0]),
			   &game->kernels, why, WHY_MAX, &library);
}

/* 0, or -errno with the reason in why. */
static int game_open(struct bench *bench, struct game *game, char *why)
{
	if (bench->options.backend == BENCH_HOST || !bench->raw) {
		snprintf(why, WHY_MAX, "there is no GPU");
		return -ENODEV;
	}
	int error = game_load(game, why);

	if (!error)
		error = bench->raw->use(bench->raw);
	if (error) {
		if (bench->options.backend == BENCH_STANDIN)
			snprintf(why, WHY_MAX, "the stand-in driver runs no kernels");
		return error;
	}
	gm_CUresult result = game->kernels.cuModuleLoadData(&game->module, ponger);

	if (result == GM_CUDA_SUCCESS)
		result = game->kernels.cuModuleGetFunction(&game->pong, game->module, "pong");
	if (result == GM_CUDA_SUCCESS)
		result = game->cu.cuStreamCreate(&game->stream, GM_CU_STREAM_NON_BLOCKING);
	if (result == GM_CUDA_SUCCESS)
		result =
		    game->cu.cuMemHostAlloc(&game->pinned, DATA_PAGE, GM_CU_MEMHOSTALLOC_PORTABLE);
	if (result != GM_CUDA_SUCCESS) {
		if (bench->options.backend == BENCH_STANDIN)
			snprintf(why, WHY_MAX, "the stand-in driver does not run this kernel");
		else
			snprintf(why, WHY_MAX, "the driver: error %d", (int)result);
		return driver_error(result).error;
	}
	memset(game->pinned, 0, DATA_PAGE);
	return 0;
}

/* Memory allocated by the driver has a single address for the CPU and all GPUs. */
static struct shared in_pinned(const struct game *game, size_t offset)
{
	return (struct shared){(char *)game->pinned + offset,
			       (gm_CUdeviceptr)(uintptr_t)game->pinned + offset};
}

static void write_word(const struct shared *at, uint32_t word)
{
	*(volatile uint32_t *)at->host = word;
	stream_fence();
}

/* Waits until the word appears; false after GIVE_UP seconds. */
static bool await(const struct shared *at, uint32_t word)
{
	double end = measure_now() + GIVE_UP;

	for (unsigned i = 1;; i++) {
		if (*(volatile uint32_t *)at->host == word)
			return true;
		if (i % 4096 == 0 && measure_now() > end)
			return false;
	}
}

static int play(const struct bench *bench, const struct game *game, struct figure *figure)
{
	static double times[ROUNDS];
	double end = measure_now() + bench->window;
	unsigned n = 0;

	for (uint32_t word = 1; n < ROUNDS && (word <= WARM_UP + 2 || measure_now() < end);
	     word++) {
		double start = measure_now();

		write_word(&game->flag, word);
		if (!await(&game->answer, word)) {
			figure_wrong(figure, "no answer to word %u", word);
			return -1;
		}
		if (word > WARM_UP)
			times[n++] = measure_now() - start;
		else
			end = measure_now() + bench->window;
	}
	figure->verified = true; /* every word was answered */
	figure_good(figure, measure_percentile(times, n, 0.5), measure_percentile(times, n, 0.99));
	return 0;
}

static void play_kernel(const struct bench *bench, struct game *game, struct figure *figure)
{
	void *arguments[] = {&game->flag.device, &game->answer.device};

	write_word(&game->flag, 0);
	write_word(&game->answer, 0);
	gm_CUresult result = game->kernels.cuLaunchKernel(game->pong, 1, 1, 1, 1, 1, 1, 0,
							  game->stream, arguments, NULL);
	if (result != GM_CUDA_SUCCESS) {
		figure_wrong(figure, "the kernel does not start: CUDA error %d", (int)result);
		return;
	}
	play(bench, game, figure);
	write_word(&game->flag, LAST);
	game->cu.cuStreamSynchronize(game->stream);
}

static void in_file(const struct bench *bench, const struct point *point, struct game *game,
		    const char *path, struct figure *figure)
{
	gpumem *file = gpumem_open(path, O_RDWR);
	unsigned long long device;
	void *host;

	if (!file || gpumem_map_device(file, &device, NULL) < 0 ||
	    gpumem_map_host(file, &host, NULL) < 0) {
		figure_skip(figure, "%.150s", gpumem_error());
	} else {
		game->flag = (struct shared){host, device};
		if (point->variant == ANSWER_SAME)
			game->answer =
			    (struct shared){(char *)host + ANSWER_AFTER, device + ANSWER_AFTER};
		play_kernel(bench, game, figure);
	}
	gpumem_close(file);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	struct game game = {0};
	char path[PATH_MAX_], why[WHY_MAX] = "";

	(void)n;
	if (!target_is_gpumemfs(target) && target->kind != TARGET_RAW_COPY) {
		figure_skip(figure, "no memory that a kernel sees");
		return;
	}
	if (game_open(bench, &game, why)) {
		/* A real GPU has to run the kernel: on a GPU a failure here fails the case. */
		if (bench->options.backend == BENCH_CUDA)
			figure_wrong(figure, "%s", why);
		else
			figure_skip(figure, "%s", why);
		game_close(&game);
		return;
	}
	game.flag = in_pinned(&game, 0);
	game.answer = in_pinned(&game, ANSWER_AFTER);
	if (target->kind == TARGET_RAW_COPY) {
		play_kernel(bench, &game, figure);
	} else {
		whole_path(path, target->dir, "pingpong");
		int error = whole_make(bench, path, FILE_BYTES);

		if (error)
			whole_explain(figure, "preparing", error);
		else
			in_file(bench, point, &game, path, figure);
		unlink(path);
	}
	game_close(&game);
}

const struct bench_case case_pingpong = {
    .name = "pingpong",
    .about =
	"round trip: the CPU stores a word through libgpumem's mapping of a file, a kernel that "
	"polls the file stores it to the answer, which the CPU polls; 'raw copy': word and answer "
	"in memory that the driver pinned",
    .points = points,
    .run = run,
};
