"""The memory and the scratch directory that a command works in: its two options, and their meaning."""

import argparse
import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpcgnn.errors import ConfigError
from partition_tools.workspace.budget import memory_budget, parse_memory
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch


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
def working(output: str | Path, resources: Resources) -> Iterator[Scratch]:
    """A `Scratch` for the body, removed at its end. The directory is named after the output file.

    Raises:
        FormatError: the directory cannot be made, or another process works in it.
    """
    directory = scratch_directory(output, resources.scratch)
    with contextlib.suppress(OSError):  # told below
        directory.parent.mkdir(parents=True, exist_ok=True)
    with claimed(directory):
        scratch = Scratch(directory, memory_budget(resources.memory), resources.reporter)
        try:
            yield scratch
        finally:
            scratch.remove()
