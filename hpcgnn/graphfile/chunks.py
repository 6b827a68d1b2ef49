"""Datasets written slab by slab, and the size of their chunks: HDF5 reads, checks and writes whole chunks.

Every rank that needs a row of a chunk reads all of it. Chunks of 1 MiB are read at full speed. But if clusters are
small and a map scatters them, every rank has one in every chunk: 128 ranks read an R-MAT graph 85 times. So a chunk is
no larger than a mean cluster, down to a page.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcgnn.graphfile import bfloat16
from hpcgnn.graphfile.ranges import MOST_CHUNKS
from hpcgnn.graphfile.schema import Csr, Rows

CHUNK_BYTES = 1 << 20
LEAST_CHUNK_BYTES = 1 << 12
SLAB_ROWS = 1 << 16
# Called with a number of rows that are done.
Progress = Callable[[int], object]


def create_dataset(group: Any, name: str, shape: tuple[int, ...], dtype: Any, clusters: int = 1) -> Any:
    """A chunked, checksummed dataset. One axis is resizable so that empty arrays can be chunked too. Texts are packed,
    being padding for the most part. clusters: into how many runs of rows its readers may take it apart.
    dtype: as numpy has it, or bfloat16.stored_type().
    """
    row_bytes = max(1, int(np.prod(shape[1:], dtype=np.int64)) * bfloat16.itemsize(dtype))
    of_cluster = max(shape[0] // max(1, clusters), LEAST_CHUNK_BYTES // row_bytes)
    rows = max(1, min(max(shape[0], 1), CHUNK_BYTES // row_bytes, of_cluster))
    chunks, packing = (rows, *(max(1, s) for s in shape[1:])), 1 if getattr(dtype, "kind", "") == "S" else None
    return group.create_dataset(
        name, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]), fletcher32=True, compression=packing
    )


def most_chunks(chunk_bytes: int) -> int:
    """Return the number of chunks to read at a time, to pick rows from them: the same bytes for small and large
    chunks.
    """
    return max(MOST_CHUNKS, MOST_CHUNKS * CHUNK_BYTES // max(1, chunk_bytes))


def write_rows(
    group: Any,
    name: str,
    array: Rows,
    check: Callable[[], None],
    progress: Progress | None = None,
    clusters: int = 1,
    halved: bool = False,
) -> Any:
    """Write an array-like slab by slab, so that memory-mapped and lazily permuted sources never lie whole in memory.
    clusters: as of `create_dataset`. halved: whether the numbers are stored in bfloat16."""
    shape = tuple(array.shape)
    dataset = create_dataset(group, name, shape, bfloat16.stored_type() if halved else array.dtype, clusters)
    for start in range(0, shape[0], SLAB_ROWS):
        stop = min(start + SLAB_ROWS, shape[0])
        if halved:
            bfloat16.write_rows(dataset, start, array[start:stop])
        else:
            dataset[start:stop] = array[start:stop]
        check()
        if progress is not None:
            progress(stop - start)
    return dataset


def write_csr(group: Any, name: str, rows: Csr, last: str, *how: Any) -> None:
    """how: as `write_rows` takes it."""
    for part, array in (("indptr", rows.indptr), ("indices", rows.indices), (last, rows.data)):
        assert array is not None, "what is written states its values"
        write_rows(group, f"{name}/{part}", array, *how)
