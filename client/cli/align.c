/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem align: pads the headers of safetensors files. */
#include <errno.h>

#include "client/cli/core/cli.h"
#include "client/cli/output/output.h"
#include "client/lib/gpumem.h"

/* Alignment in bytes of torch's own allocations, up to which kernels of cuBLAS differ. */
#define ALIGNMENT 256

static int file_align(const char *path)
{
	struct gpumem_safetensors *header;
	size_t aligned = 0;

	if (gpumem_align(path, path, ALIGNMENT, &header) < 0) {
		int status = (int)cli_status_of(errno);

		cli_error("%s", gpumem_error());
		return status;
	}
	for (size_t i = 0; i < header->n_tensors; i++)
		aligned += header->tensors[i].place == GPUMEM_ALIGNED;
	output_line(stdout, "%s: %zu of %zu tensors are aligned to %d bytes", path, aligned,
		    header->n_tensors, ALIGNMENT);
	gpumem_safetensors_free(header);
	return CLI_OK;
}

static int align_run(struct cli_args *args)
{
	int status = CLI_OK;

	if (cli_option(args) < 0)
		return CLI_USAGE;
	for (int i = 0; i < args->argc; i++) {
		int rc = file_align(args->argv[i]);

		status = status ? status : rc;
	}
	return status;
}

const struct command command_align = {
    .name = "align",
    .words = "FILE...",
    .summary = "Pad safetensors files, so that GPUs can view each tensor",
    .help = "Libraries choose other kernels for tensors that begin at other addresses than\n"
	    "multiples of 16, as in most files of safetensors, and these kernels round otherwise.\n"
	    "A file on a GPU is rewritten by the GPU, and needs room there for a second copy\n"
	    "until then.",
    .min_words = 1,
    .max_words = -1,
    .run = align_run,
};
