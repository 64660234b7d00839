# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""torch.multiprocessing. Tensors of a GPU go from process to process as files on a mount in place of CUDA's handles, also
from torch's expandable segments and between PID namespaces."""

from __future__ import annotations

import errno
import functools
from types import ModuleType
from typing import Any

from ._settings import say

_failures = set[str]()
_LASTING = (errno.EPERM, errno.EACCES)  # no later tensor fares better


def _is_for_files(tensor: Any) -> bool:
    """Whether a tensor is nothing but its bytes: torch refuses, or pickles in its own way, what is more."""
    import torch
    return (type(tensor) in (torch.Tensor, torch.nn.parameter.Parameter) and tensor.is_cuda and
            tensor.layout == torch.strided and bool(tensor.numel()) and not tensor._backward_hooks and
            (tensor.is_leaf or not tensor.requires_grad) and not (tensor.is_conj() or tensor.is_neg()))


class _Reducer:
    """By files, until they cannot be had; then as torch does."""

    def __init__(self, original: Any) -> None:
        self.original, self.by_files = original, True

    def _fail(self, error: Exception) -> None:
        """A line on stderr for each kind of failure. A program must not fail because of files."""
        self.by_files = not isinstance(error, OSError) or error.errno not in _LASTING
        text = f"torch.multiprocessing passes tensors by CUDA's handles: {error}"
        if str(error).partition(":")[0] not in _failures:
            _failures.add(str(error).partition(":")[0])
            say(text)

    def __call__(self, tensor: Any) -> Any:
        if self.by_files and _is_for_files(tensor):
            try:
                from gpumem.torch import _queues
                return _queues.reduce(tensor)
            except Exception as error:
                self._fail(error)
        return self.original(tensor)


def change(module: ModuleType) -> None:
    """module: torch.multiprocessing.reductions, before the package registers its functions."""
    original = getattr(module, "reduce_tensor")
    reducer = _Reducer(original)

    @functools.wraps(original)
    def reduce_tensor(tensor: Any) -> Any:
        return reducer(tensor)
    setattr(module, "reduce_tensor", reduce_tensor)


__all__ = ["change"]
