# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files on gpumemfs as tensors, by path and without a copy.

    buffer = gpumem.open("/mnt/gpumem/gpu0/activations", "r+")
    x = torch.from_dlpack(buffer.view("float16", (1024, 4096)))

    weights = gpumem.safetensors("/mnt/gpumem/gpu0/model.safetensors", "r+")
    w = torch.from_dlpack(weights["lm_head.weight"])

Mode "r+" is the memory of the file itself. A process that may only read the file opens it with "r", and has its memory
where the file's attribute user.gpumem.share is "trusted", else a private copy.

Needs libgpumem.so.0 (or its path in the environment variable GPUMEM_LIBRARY). torch, cupy, jax and
numpy are not needed: what this module gives has their interfaces.

Failures of the file or the daemon are OSError with errno and libgpumem's text, so FileNotFoundError,
PermissionError and IsADirectoryError where those apply; wrong arguments and malformed files are
ValueError; the CUDA driver's own failures are CudaError, a RuntimeError. See gpumem-python(3) for the errno values.
"""

from ._align import AlignReport, align
from ._cuda import CudaError
from ._leases import drop_leases
from ._modes import CopyWarning
from ._safetensors import MisalignedError, SafeTensors, safetensors
from ._views import Buffer, View, open

__version__ = "0.1.0"
__all__ = [
    "AlignReport",
    "Buffer",
    "CopyWarning",
    "CudaError",
    "MisalignedError",
    "SafeTensors",
    "View",
    "align",
    "drop_leases",
    "open",
    "safetensors",
]
