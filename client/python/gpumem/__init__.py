# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Files on gpumemfs as tensors, by path and without a copy.

    buffer = gpumem.open("/mnt/gpumem/gpu0/activations", "r+")
    x = torch.from_dlpack(buffer.view("float16", (1024, 4096)))

    weights = gpumem.safetensors("/mnt/gpumem/gpu0/model.safetensors", "r+")
    w = torch.from_dlpack(weights["lm_head.weight"])

Mode "r+" gives the memory of the file itself. A process without write permission opens the file with "r": if the file's
attribute user.gpumem.share is "trusted", "r" gives the memory of the file too, otherwise a private copy.

Needs libgpumem.so.0 (or its path in the environment variable GPUMEM_LIBRARY). torch, cupy, jax and
numpy are optional: buffers and views have the interfaces by which these packages take arrays.

Failures of the file or the daemon are OSError with errno and libgpumem's text, so FileNotFoundError,
PermissionError and IsADirectoryError too; wrong arguments and malformed files are
ValueError; failures of the CUDA driver are CudaError, a RuntimeError. See gpumem-python(3) for the errno values.
"""

from ._align import AlignReport, align
from ._cuda import CudaError
from ._leases import drop_leases
from ._modes import CopyWarning
from ._pieces import Piece
from ._pressure import on_pressure, safe_point
from ._safetensors import MisalignedError, SafeTensors, safetensors
from ._share import share
from ._status import Sharer, evict, fetch, mounts, residence, sharers, status
from ._timeline import Timeline
from ._views import Buffer, View, create, open

__version__ = "0.1.0"
__all__ = [
    "AlignReport",
    "Buffer",
    "CopyWarning",
    "CudaError",
    "MisalignedError",
    "Piece",
    "SafeTensors",
    "Sharer",
    "Timeline",
    "View",
    "align",
    "create",
    "drop_leases",
    "evict",
    "fetch",
    "mounts",
    "on_pressure",
    "open",
    "residence",
    "safe_point",
    "safetensors",
    "share",
    "sharers",
    "status",
]
