/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ways to GPU memory for the CPUs of this process: opened once per GPU when first needed, and
 * kept, because one of them takes up to a second. */
#ifndef CLIENT_GPU_CUDA_BAR_H
#define CLIENT_GPU_CUDA_BAR_H

#include <stdatomic.h>

#include "backend/cuda/bar_way.h"
#include "client/core/answer.h"
#include "client/gpu/cuda.h"

/* A way, opened for a GPU. */
struct client_bar {
	struct client_bar *next;
	const struct bar_way *way;
	void *state;
	const struct client_cuda *cuda; /* NULL: the way needs none */
	struct bar_device device;
	bool on_driver_thread; /* its driver's descriptors are the service's */
	atomic_bool proven;    /* seen to show a file's own bytes */
};

/* One mapped chunk. */
struct client_bar_piece {
	void *address;	    /* as the way gave it */
	void *at;	    /* where it is */
	void *mapping;	    /* the way's */
	gm_CUdeviceptr gpu; /* for a way that needs it there; 0: none */
	uint64_t bytes;
	bool stranded; /* the way's address is somebody else's now: the way cannot be told */
};

/* The ways to try for a GPU, best first, one after the other: 0, or -ENOTSUP where the turn-th is
 * not to be had, with why; -ENOENT past the last. */
int client_bar_open(const uint8_t uuid[16], unsigned turn, struct client_bar **bar, char *why);

/* Maps a chunk, at the given place of a reservation when the way or the kernel can put it there;
 * piece->at tells. NULL: anywhere. 0 or -errno, with why. */
int client_bar_map(struct client_bar *bar, const struct client_chunk *chunk, void *at,
		   struct client_bar_piece *piece, char *why);
/* Nothing is mapped at piece->at afterwards. */
void client_bar_unmap(struct client_bar *bar, const struct client_bar_piece *piece);

/* Whether the mapping shows the file's bytes: compares some with what the daemon reads. file is any
 * descriptor of it. 0, or -EILSEQ with why. copy: the mapping is of a private copy, which may
 * differ from the file by now. */
enum client_bar_subject { CLIENT_BAR_FILE, CLIENT_BAR_COPY };
int client_bar_prove(struct client_bar *bar, const char *mapping, uint64_t size, int file,
		     enum client_bar_subject subject, char *why);

#endif
