"""The memory and the scratch directory that a command works in: its two options, and their meaning."""

import argparse
import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcgnn.errors import ConfigError, HpcgnnError
from partition_tools.workspace.budget import memory_budget, parse_memory
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

# Finished files of more than this part of the memory are kept for the next call; others are soon made again.
WORTH = 64


@dataclass(frozen=True)
class Resources:
    """What a command may use.

    Attributes:
        memory: bytes to work in (None: half of the free memory).
        scratch: the parent of the scratch directory (None: the output's folder).
        reporter: gets stages, progress and warnings.
    """

    memory: int | None = None
    scratch: str | Path | None = None
    reporter: Reporter = field(default_factory=Reporter)


def add_memory_options(parser: argparse.ArgumentParser) -> None:
    """--memory and --scratch."""
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=_memory,
        help="memory to work in, such as 8G (default: half of the free memory); larger data go to files of --scratch",
    )
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="parent of the scratch directory (default: the output's folder)"
    )


def _memory(text: str) -> int:
    try:
        return parse_memory(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def scratch_directory(output: str | Path, place: str | Path | None) -> Path:
    """The scratch directory for an output file. place: its parent; None: the output's folder."""
    output = Path(os.path.realpath(output))  # of a link the file that it leads to
    if place is None:
        return output.parent / f".{output.name}.work"
    mark = hashlib.sha256(os.fsencode(output)).hexdigest()[:8]  # of outputs of one name in several folders
    return Path(place) / f".{output.name}.{mark}.work"


@contextlib.contextmanager
def working(output: str | Path, identity: Any, resources: Resources, keep: bool = True) -> Iterator[Scratch]:
    """A `Scratch` for the body, removed at its end and after a fault of the input.

    After a signal, a full disk or a failure of this program the directory stays if its finished files are large: more
    than a part of the memory. The same call continues from it.

    Args:
        output: the output file; the directory is named after it.
        identity: see `Scratch`.
        keep: whether the directory may stay.

    Raises:
        FormatError: the directory cannot be made, or another process works in it.
    """
    directory = scratch_directory(output, resources.scratch)
    with contextlib.suppress(OSError):  # told below
        directory.parent.mkdir(parents=True, exist_ok=True)
    with claimed(directory):
        scratch = Scratch(directory, identity, memory_budget(resources.memory), resources.reporter)
        if scratch.resumed:
            resources.reporter.stage(f"going on with what is finished in {directory}")
        try:
            yield scratch
        except BaseException as error:
            # A fault of the input will be there again; a disk that was full need not be.
            again = isinstance(error, HpcgnnError) and not isinstance(error.__cause__, OSError)
            held = sum(path.stat().st_size for path in directory.rglob("*.npy"))
            if not keep or again or held <= scratch.memory // WORTH:
                scratch.remove()
            raise
        scratch.remove()
