# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Copies of files on many nodes, by torch.distributed or MPI.

    torchrun --nnodes 4 ... -m gpumem.broadcast /mnt/gpumem/gpu0/llama
    mpirun -n 4 python3 -m gpumem.broadcast model.safetensors /mnt/gpumem/gpu0/

    gpumem.broadcast.broadcast(path, destination)      # in each process of a program, with the same arguments
    gpumem.broadcast.shard(path, destination)

See gpumem-python(3) and docs/many-nodes.md. The rest of gpumem does not need torch or mpi4py.
"""

from ._agree import BroadcastError
from ._copy import Report, broadcast
from ._shard import ShardReport, shard

__all__ = ["BroadcastError", "Report", "ShardReport", "broadcast", "shard"]
