# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""python3 -m gpumem.broadcast: in each process that torchrun or mpirun starts."""

from __future__ import annotations

import argparse
import re
import socket
import sys
from typing import Any, Optional

from . import _pieces
from ._agree import BroadcastError, describe
from ._copy import Report, broadcast
from ._engine import ENGINES, Engine, open_engine
from ._shard import ShardReport, shard

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def _size(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 64M")
    return int(found[1]) << _UNITS[found[2]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m gpumem.broadcast", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Copies a file, or the files of a directory, from one rank to all others.",
        epilog="torchrun or mpirun starts each rank. Status: 0 success, 1 failure of a rank, 2 wrong arguments,\n"
               "3 a rank was lost: start it again to send the missing pieces. See docs/many-nodes.md.")
    parser.add_argument("path", metavar="PATH", help="a file or a directory, which the root reads")
    parser.add_argument("dest", metavar="DEST", nargs="?",
                        help="where the other ranks write (default: PATH), with {rank} or {local_rank} for a number")
    parser.add_argument("--root", type=int, default=0, metavar="RANK", help="the rank that has PATH (default: 0)")
    parser.add_argument("--piece", type=_size, metavar="SIZE",
                        help="bytes that are sent at once (default: 64M, between GPUs 256M)")
    parser.add_argument("--shard", action="store_true",
                        help="each rank, the root too, gets its slice of the tensors of PATH in the file DEST")
    parser.add_argument("--dim", type=int, default=0, metavar="N",
                        help="the dimension that --shard slices (default: 0)")
    parser.add_argument("--engine", choices=ENGINES, default="auto", help="default: that of the launcher")
    parser.add_argument("--timeout", type=float, metavar="SECONDS",
                        help="how long a rank waits for another (torch; default: that of torch)")
    return parser


def _rate(size: int, seconds: float) -> str:
    return f"{seconds:.2f} s, {size / max(seconds, 1e-9) / 1e9:.2f} GB/s"


def _text(report: Any) -> str:
    if isinstance(report, ShardReport):
        return (f"{report.ranks} slices along dimension {report.dim}: {report.sliced} tensors sliced, {report.whole} "
                f"whole in every slice; {report.bytes} bytes sent, {_rate(report.bytes, report.seconds)}")
    assert isinstance(report, Report)
    way = report.engine + (", GPU to GPU" if report.cuda else "")
    return (f"{report.files} file{'s' * (report.files != 1)} of {report.bytes} bytes, {report.copies} copies by {way}: sent {report.sent} of "
            f"{report.pieces} pieces, {_rate(report.bytes, report.seconds)} until all was checked; start "
            f"{report.starting:.2f} s")


def _run(args: argparse.Namespace, engine: Engine) -> Any:
    if args.shard:
        return shard(args.path, args.dest, dim=args.dim, root=args.root, piece=args.piece or _pieces.PIECE, engine=engine)
    return broadcast(args.path, args.dest, root=args.root, piece=args.piece, engine=engine)


def _fail(text: str, status: int) -> int:
    # Names of files may have characters that a terminal obeys.
    print(f"gpumem.broadcast: {text if text.isprintable() else ascii(text)}", file=sys.stderr, flush=True)
    return status


def main(argv: Optional[list[str]] = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.shard and args.dest is None:
        parser.error("--shard needs DEST")
    try:
        engine = open_engine(args.engine, args.timeout)
    except (ValueError, ImportError) as error:
        return _fail(str(error), 2)
    except RuntimeError as error:
        return _fail(describe(error), 3)
    try:
        report = _run(args, engine)
        if engine.rank == args.root:
            print(_text(report), flush=True)
        engine.close()
        return 0
    except BroadcastError as error:
        status = _fail(str(error), 1) if engine.rank == 0 else 1
    except ValueError as error:
        status = _fail(str(error), 2) if engine.rank == 0 else 2
    except RuntimeError as error:
        status = _fail(f"rank {engine.rank} ({socket.gethostname()}): {args.path}: {describe(error)}", 3)
        engine.abort(status)
        return status
    engine.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
