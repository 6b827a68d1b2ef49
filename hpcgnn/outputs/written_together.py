"""A file that rank 0 makes and all ranks write their parts of at once, complete under its name or not there."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.hdf5 import replacing, writing
from hpcgnn.graphfile.original_order import OriginalOrder, Slab

Made = TypeVar("Made")
#: The place of the first row among all rows, and the Slab.
NumberedSlab = tuple[int, Slab]


@contextlib.contextmanager
def made_by_one(
    path: str | Path, make: Callable[[str], Made], comm: Communicator
) -> Iterator[tuple[str, int, Made, bool]]:
    """Let rank 0 make a file; the file gets its name when the body has succeeded on all ranks. Collective.

    A rank does not see the file if it is on a disk of another node.

    Yields:
        (temporary path, bytes of the file, result of make(temporary path) on rank 0, whether all ranks see the file).

    Raises:
        FormatError: on all ranks together, if the file cannot be made or renamed.
    """
    with contextlib.ExitStack() as until_whole:
        made: Any = None
        with comm.together("making the file of results", on_one=True):
            if comm.rank == 0:
                temporary = until_whole.enter_context(replacing(path))
                with writing(path):
                    result = make(temporary)
                    made = temporary, os.path.getsize(temporary), result, os.stat(temporary).st_ino
        temporary, size, result, number = comm.broadcast_object(made)
        yield temporary, size, result, all(comm.allgather_object(_is_there(temporary, number, size)))
        with comm.together("ending the file of results", on_one=True):
            until_whole.close()


def _is_there(path: str, number: int, size: int) -> bool:
    """Return whether this rank finds the file of rank 0 at its path."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_size) == (number, size)


@contextlib.contextmanager
def put_into(path: str) -> Iterator[Callable[[int, np.ndarray | bytes], None]]:
    """Yield put(place, bytes or array), which writes at this place of a file; at the end all is on the disk. Raises
    OSError.
    """
    # For writing alone: an NFS client would else read pages that another rank writes the rest of.
    handle = os.open(path, os.O_WRONLY)
    try:

        def put(place: int, contents: np.ndarray | bytes) -> None:
            array = contents if isinstance(contents, np.ndarray) else np.frombuffer(contents, np.uint8)
            rest = np.ascontiguousarray(array).data.cast("B")
            while len(rest):
                count = os.pwrite(handle, rest, place)
                rest, place = rest[count:], place + count

        yield put
        os.fsync(handle)
    finally:
        os.close(handle)


def by_all_or_one(
    put_all: Callable[[Iterator[NumberedSlab]], None],
    order: OriginalOrder,
    seen: bool,
    path: str | Path,
    comm: Communicator,
) -> None:
    """Let every rank write its own rows, or rank 0 all rows if some rank does not see the file. Collective.

    put_all: writes consecutive slabs to the file that will be at `path`; may raise OSError.
    """
    with comm.together("writing results"), writing(path):
        if seen:
            put_all(order.own_slabs())
    if not seen and comm.rank == 0:
        with writing(path):
            put_all(numbered(order.slabs()))
    elif not seen:
        order.hand_over()


def numbered(slabs: Iterator[Slab]) -> Iterator[NumberedSlab]:
    """All slabs, each with its place."""
    first = 0
    for nodes, slab in slabs:
        yield first, (nodes, slab)
        first += len(nodes)
