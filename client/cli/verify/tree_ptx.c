/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The text of the kernel, with a NUL behind, as the driver wants. */
#include "client/cli/verify/tree.h"

__asm__(".pushsection .rodata\n"
	".global tree_ptx\n"
	".type tree_ptx, %object\n"
	"tree_ptx:\n"
	".incbin \"client/cli/verify/tree.ptx\"\n"
	".byte 0\n"
	".size tree_ptx, . - tree_ptx\n"
	".popsection\n");
