# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Tensors of torch in files on gpumemfs: what safetensors does for files elsewhere, by the GPU and without a copy.

    weights = gpumem.torch.load_file("/mnt/gpumem/gpu0/model.safetensors")
    weights = gpumem.torch.load_model("/mnt/gpumem/gpu0/llama")
    gpumem.torch.save_file(model.state_dict(), "/mnt/gpumem/gpu0/saved.safetensors")

The mode says where the tensors lie:

"view"   in the file's own memory; nothing is allocated. Needs user.gpumem.share=trusted, or write permission: with
         write permission alone, writing to a tensor changes the file. Tensors of a file that was opened because of
         "trusted" must not be written.
"copy"   in torch's memory, copied by the GPU.
"auto"   "view" if the file's attribute user.gpumem.share is "trusted", otherwise "copy". What was chosen is logged
         once in a process, by the logger "gpumem" at level INFO.

A GPU's file that is not trusted gives readers a private copy of its memory; "copy" and "auto" use this private copy
as it is, instead of a second copy. Tensors on the CPU are read from the file, except with "view" in host/ and on a
simulated GPU. Files that are not on gpumemfs are read too.

See gpumem-python(3). This package needs torch; the rest of gpumem does not.
"""

from ._errors import SafetensorError
from ._load import load_file, load_model
from ._open import Slice, safe_open
from ._pool import pool, pool_place
from ._save import empty, save_file
from ._sets import Shared, Tensors, attach, share
from ._sleep import sleep, wake
from ._versions import Versions

__all__ = ["SafetensorError", "Shared", "Slice", "Tensors", "Versions", "attach", "empty", "load_file", "load_model", "pool",
           "pool_place", "safe_open", "save_file", "share", "sleep", "wake"]
