"""Result arrays with a row per node, in HDF5 or NumPy's format, which all ranks write at once.

Rank 0 makes a file with space for the arrays and no contents. Every rank then writes its slab of the original order in
place. The bytes are the same for every number of ranks. If some rank does not see the file, for example on a local disk
of rank 0's node, rank 0 writes for all. The file gets its name after the last byte is written.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.hdf5 import (
    as_texts,
    create_dataset,
    replacing,
    reserve,
    text_type,
    write_attributes,
    writing,
    written_file,
)
from hpcgnn.graphfile.original_order import OriginalOrder, Slab
from hpcgnn.graphfile.own_ids import read_ids
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.outputs.files import KINDS, Contents

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


#: {name: the place of an array's first byte}.
Places = dict[str, int]


def write_arrays(
    path: str | Path, contents: Contents, order: OriginalOrder, graph: GraphFile, comm: Communicator
) -> None:
    """Write the rows of `order` to a new file. Collective.

    Args:
        path: the new file.
        contents: arrays that the file holds.
        order: brings rows into the original order of the nodes.
        graph: source of the nodes' ids, opened by every rank.
        comm: the communicator.

    Raises:
        FormatError: on a rank that cannot write; all other ranks raise RemoteError.
    """
    words, hdf5 = contents.ids == "words", KINDS[Path(path).suffix.lower()] == "hdf5"

    def make(temporary: str) -> Places:
        return _make_hdf5(temporary, contents) if hdf5 else _make_npy(temporary, contents)

    with made_by_one(path, make, comm) as (temporary, _, places, seen):

        def put_all(slabs: Iterator[NumberedSlab]) -> None:
            _put_all(temporary, places, slabs, contents, graph)

        by_all_or_one(put_all, order, seen, path, comm)
        if hdf5 and words:
            if comm.rank == 0:
                with writing(path):
                    _add_words(temporary, contents, order, graph)
            else:
                order.hand_over(nodes_alone=True)


def _shapes(contents: Contents) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return {name: (shape, dtype)} of the numeric arrays in an HDF5 file."""
    rows = contents.num_rows
    shapes: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        name: (contents.shape(name), dtype) for name, dtype in contents.dtypes.items()
    }
    if contents.some:
        shapes["node"] = (rows,), np.dtype(np.int64)
    if contents.ids == "numbers":
        shapes["id"] = (rows,), contents.id_dtype
    return shapes


def _make_hdf5(path: str, contents: Contents) -> Places:
    with written_file(path) as (file, check):
        write_attributes(file, **contents.origin)
        names = contents.class_names
        if names:
            dtype = text_type(max(len(name.encode()) for name in names))
            create_dataset(file, "class_names", (len(names),), dtype)[:] = as_texts(names, dtype)
        places = {name: reserve(file, name, shape, dtype) for name, (shape, dtype) in _shapes(contents).items()}
        check()
    return places


def _make_npy(path: str, contents: Contents) -> Places:
    (name, width), *_ = contents.widths.items()
    dtype = contents.dtypes[name]
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": contents.shape(name),
    }
    with open(path, "wb") as file:
        np.lib.format.write_array_header_2_0(file, described)
        place = file.tell()
        file.truncate(place + contents.num_rows * width * dtype.itemsize)
    return {name: place}


def _put_all(path: str, places: Places, slabs: Iterator[NumberedSlab], contents: Contents, graph: GraphFile) -> None:
    with put_into(path) as put:
        for first, (nodes, slab) in slabs:
            rows: dict[str, np.ndarray] = {**slab, "node": nodes}
            if "id" in places:
                rows["id"] = read_ids(graph, nodes)
            for name, place in places.items():
                put(place + first * rows[name][:1].nbytes, rows[name])


def _add_words(path: str, contents: Contents, order: OriginalOrder, graph: GraphFile) -> None:
    """Add text ids, packed. Two processes cannot write these at once, so rank 0 writes while the others send their
    nodes.
    """
    dtype = text_type(contents.longest)
    with written_file(path, change=True) as (file, check):
        column = create_dataset(file, "id", (contents.num_rows,), dtype)
        for first, (nodes, _) in numbered(order.slabs(nodes_alone=True)):
            column[first : first + len(nodes)] = as_texts(read_ids(graph, nodes).tolist(), dtype)
            check()
