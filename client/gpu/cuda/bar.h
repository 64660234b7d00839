/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ways to map GPU memory for the CPUs of this process. A way is opened once for each GPU, when
 * first needed, and stays open, because opening a way takes up to a second. */
#ifndef CLIENT_GPU_CUDA_BAR_H
#define CLIENT_GPU_CUDA_BAR_H

#include <stdatomic.h>

#include "backend/cuda/bar_way.h"
#include "client/core/answer.h"
#include "client/gpu/cuda/cuda.h"

extern const struct bar_way cuda_bar_system;

/* A way that is open for a GPU. */
struct client_bar {
	struct client_bar *next;
	const struct bar_way *way;
	void *state;
	const struct client_cuda *cuda; /* NULL: the way does not need CUDA */
	struct bar_device device;
	bool on_driver_thread; /* the way's driver runs in the driver thread */
	atomic_bool proven;    /* a mapping has shown the bytes of a file */
};

/* A mapped chunk. */
struct client_bar_piece {
	void *address;	    /* that the way gave */
	void *at;	    /* of the mapping now */
	void *mapping;	    /* for the way's unmap */
	gm_CUdeviceptr gpu; /* the device address, for a way that needs an address; 0: none */
	uint64_t bytes;
	bool stranded; /* the way's address belongs to another mapping now: never call the way's
			  unmap */
};

/* Gives the ways for a GPU, the best way for rank 0, the next for rank 1, ..., and for
 * CLIENT_BAR_SYSTEM the way for memory in system memory. -ENOTSUP: this way does not work, for the
 * reason given. -ENOENT: there are no more ways. */
#define CLIENT_BAR_SYSTEM (-1)
/* The only way for memory that Vulkan allocated: CUDA does not know the descriptors. */
#define CLIENT_BAR_VULKAN (-2)
int client_bar_open(const uint8_t uuid[16], int rank, struct client_bar **bar, char *reason);

/* Maps a chunk at an address of a reservation, or anywhere for NULL. If neither the way nor the
 * kernel can put the mapping there, piece->at is another address. 0 or -errno, with the reason. */
int client_bar_map(struct client_bar *bar, const struct client_chunk *chunk, void *at,
		   struct client_bar_piece *piece, char *reason);
/* Removes the mapping at piece->at. */
void client_bar_unmap(struct client_bar *bar, const struct client_bar_piece *piece);
/* Removes the mapping and reserves its address: false if another thread took the address just then.
 */
bool client_bar_park(struct client_bar *bar, const struct client_bar_piece *piece);

/* Compares some bytes of the mapping with those that the daemon reads through file, any descriptor
 * of the file. 0, or -EILSEQ with the reason. CLIENT_BAR_COPY: the mapping is of a private
 * copy, which may differ from the file by now. */
enum client_bar_subject { CLIENT_BAR_FILE, CLIENT_BAR_COPY };
int client_bar_prove(struct client_bar *bar, const char *mapping, uint64_t size, int file,
		     enum client_bar_subject subject, char *reason);

#endif
