# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""Rewriting a safetensors file so that its tensors can be viewed where they lie."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Union

from . import _header, _native


class AlignReport(NamedTuple):
    """What align() did. data_start: of the data in the new file, in bytes. aligned: names of the
    tensors that begin at a multiple of the alignment. viewable: of those that do not, but can be
    viewed in place because they begin at a multiple of their element's size. misaligned: of those that
    cannot be."""

    data_start: int
    aligned: list[str]
    viewable: list[str]
    misaligned: list[str]


def align(src: Union[str, bytes, os.PathLike[Any]], dst: Union[str, bytes, os.PathLike[Any]],
          alignment: int = 256) -> AlignReport:
    """Writes the safetensors file src to dst with its header padded by spaces, as the format allows, so
    that as many tensors as possible can be viewed in place, and as many of those as possible begin at
    a multiple of alignment (bytes, a power of two up to 1 MiB).

    All tensors move by the same number of bytes, so some may stay misaligned: the report has their
    names. Neither file has to be on gpumemfs; where both are on one GPU, the GPU copies. The new file is
    written beside dst and takes its place when it is complete: dst may be src, or a link to it, and until
    then, and after a failure, is what it was. It keeps its permissions, and its owner if dst is src; a file that
    did not exist gets the permissions of src.

    ValueError: src is no safetensors file, dst is there and no regular file, or alignment is wrong.
    OSError."""
    _header.check_alignment(alignment)
    header = _header.align(_native.path_name(src), _native.path_name(dst), alignment)

    def names(place: int) -> list[str]:
        return [name for name, tensor in header.tensors.items() if tensor.place == place]
    return AlignReport(header.data_start, names(_native.ALIGNED), names(_native.VIEWABLE), names(_native.MISALIGNED))
