"""Arrays of results by node, HDF5 or numpy's, written by all ranks at once.

Rank 0 makes the file, in which arrays have their place and no contents yet. Every rank then writes the rows that it
keeps of the original order where they belong. The bytes are the same for every number of ranks. Where some rank does
not see the file, such as one on a disk of rank 0's node, rank 0 writes for all. The file gets its name when all is
written.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.attributes import write_attributes
from hpcgnn.graphfile.columns import as_texts, reserve, text_type
from hpcgnn.graphfile.original_order import OriginalOrder, Slab
from hpcgnn.graphfile.own_ids import read_ids
from hpcgnn.graphfile.storage import GraphFile, create_dataset, replacing, writing
from hpcgnn.graphfile.writing import written_file
from hpcgnn.train.result_files import KINDS, Contents

#: {name: the place of an array's first byte}.
Places = dict[str, int]


def write_arrays(
    path: str | Path, contents: Contents, order: OriginalOrder, graph: GraphFile, comm: Communicator
) -> None:
    """Write the rows of `order` to a new file. Collective.

    graph: whose ids the nodes have; opened by every rank. Raises, on all ranks together, FormatError where a rank
    cannot write and RemoteError on the others.
    """
    words, hdf5 = contents.ids == "words", KINDS[Path(path).suffix.lower()] == "hdf5"
    with contextlib.ExitStack() as until_whole:
        made: tuple[str, int, int, Places] | None = None
        with comm.together("making the file of results", on_one=True):
            if comm.rank == 0:
                temporary = until_whole.enter_context(replacing(path))
                with writing(path):
                    places = _make_hdf5(temporary, contents) if hdf5 else _make_npy(temporary, contents)
                    made = temporary, os.stat(temporary).st_ino, os.path.getsize(temporary), places
        temporary, number, size, places = comm.broadcast_object(made)
        seen = all(comm.allgather_object(_is_there(temporary, number, size)))
        writers: Iterator[tuple[int, Slab]] = order.own_slabs() if seen else iter(())
        with comm.together("writing results"), writing(path):
            _put_all(temporary, places, writers, contents, graph)
        if not seen and comm.rank == 0:
            with writing(path):
                _put_all(temporary, places, _numbered(order.slabs()), contents, graph)
        elif not seen:
            order.hand_over()
        if hdf5 and words:
            if comm.rank == 0:
                with writing(path):
                    _add_words(temporary, contents, order, graph)
            else:
                order.hand_over(nodes_alone=True)
        with comm.together("ending the file of results", on_one=True):
            until_whole.close()


def _shapes(contents: Contents) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """{name: (shape, dtype)} of the arrays of numbers in an HDF5 file."""
    rows = contents.num_rows
    shapes: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        name: ((rows, width), contents.dtypes[name]) for name, width in contents.widths.items()
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
    flat = name == "prediction" and width == 1
    shape = (contents.num_rows,) if flat else (contents.num_rows, width)
    dtype = contents.dtypes[name]
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_2_0(file, described)
        place = file.tell()
        file.truncate(place + contents.num_rows * width * dtype.itemsize)
    return {name: place}


def _is_there(path: str, number: int, size: int) -> bool:
    """Whether the file that rank 0 made is what this rank finds at its path."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_size) == (number, size)


def _numbered(slabs: Iterator[Slab]) -> Iterator[tuple[int, Slab]]:
    first = 0
    for nodes, slab in slabs:
        yield first, (nodes, slab)
        first += len(nodes)


def _put_all(
    path: str, places: Places, slabs: Iterator[tuple[int, Slab]], contents: Contents, graph: GraphFile
) -> None:
    """Write slabs, each with the place of its first row among all rows. Raises OSError."""
    handle = None
    try:
        for first, (nodes, slab) in slabs:
            # For writing alone: an NFS client would else read pages that another rank writes the rest of.
            handle = os.open(path, os.O_WRONLY) if handle is None else handle
            rows: dict[str, np.ndarray] = {**slab, "node": nodes}
            if "id" in places:
                rows["id"] = read_ids(graph, nodes)
            for name, place in places.items():
                _put(handle, place + first * rows[name][:1].nbytes, rows[name])
        if handle is not None:
            os.fsync(handle)
    finally:
        if handle is not None:
            os.close(handle)


def _put(handle: int, place: int, rows: np.ndarray) -> None:
    rest = np.ascontiguousarray(rows).data.cast("B")
    while len(rest):
        count = os.pwrite(handle, rest, place)
        rest, place = rest[count:], place + count


def _add_words(path: str, contents: Contents, order: OriginalOrder, graph: GraphFile) -> None:
    """Add the ids that are words, packed, which no two processes can write at once. On rank 0, while the others hand
    over their nodes.
    """
    dtype = text_type(contents.longest)
    with written_file(path, change=True) as (file, check):
        column = create_dataset(file, "id", (contents.num_rows,), dtype)
        for first, (nodes, _) in _numbered(order.slabs(nodes_alone=True)):
            column[first : first + len(nodes)] = as_texts(read_ids(graph, nodes).tolist(), dtype)
            check()
