"""A file that rank 0 makes and all ranks write at once. It has its name only when it is complete."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.original_order import OriginalOrder, Slab
from hpcgnn.graphfile.storage import replacing
from hpcgnn.graphfile.writing import writing

Made = TypeVar("Made")
#: The place of the first row among all rows, and the Slab.
NumberedSlab = tuple[int, Slab]


@contextlib.contextmanager
def made_by_one(
    path: str | Path, make: Callable[[str], Made], comm: Communicator
) -> Iterator[tuple[str, int, Made, bool]]:
    """Make a file on rank 0, and rename it when the body has succeeded on all ranks. Collective.

    Yields:
        (temporary path, bytes of the file, result of `make` on rank 0, whether all ranks see the file). A rank of
            another node does not see a file on a local disk.

    Raises:
        FormatError: on all ranks, if the file cannot be made or renamed.
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
    """Return whether this rank finds rank 0's file at the path."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_size) == (number, size)


@contextlib.contextmanager
def put_into(path: str) -> Iterator[Callable[[int, np.ndarray | bytes], None]]:
    """Yield put(offset, bytes or array), which writes to a file; sync it at the end. Raises OSError."""
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
    """Write the slab of every rank, or all slabs on rank 0 if some rank does not see the file. Collective.

    Args:
        put_all: writes consecutive slabs; may raise OSError.
        order: brings rows into the original order of the nodes.
        seen: whether all ranks see the file.
        path: its final name, for messages.
        comm: the communicator.
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
    """Yield every slab with its offset."""
    first = 0
    for nodes, slab in slabs:
        yield first, (nodes, slab)
        first += len(nodes)
