"""The size of datasets' chunks: HDF5 reads, checks and writes whole chunks.

Every rank that needs a row of a chunk reads all of it. Chunks of 1 MiB are read at full speed. But if clusters are
small and a map scatters them, every rank has one in every chunk: 128 ranks read an R-MAT graph 85 times. So a chunk is
no larger than a mean cluster, down to a page.
"""

from typing import Any

import numpy as np

from hpcgnn.graphfile.ranges import MOST_CHUNKS

CHUNK_BYTES = 1 << 20
LEAST_CHUNK_BYTES = 1 << 12


def create_dataset(group: Any, name: str, shape: tuple[int, ...], dtype: np.typing.DTypeLike, clusters: int = 1) -> Any:
    """A chunked, checksummed dataset. One axis is resizable so that empty arrays can be chunked too. Texts are packed,
    being padding for the most part. clusters: into how many runs of rows its readers may take it apart.
    """
    row_bytes = max(1, int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize)
    of_cluster = max(shape[0] // max(1, clusters), LEAST_CHUNK_BYTES // row_bytes)
    rows = max(1, min(max(shape[0], 1), CHUNK_BYTES // row_bytes, of_cluster))
    chunks, packing = (rows, *(max(1, s) for s in shape[1:])), 1 if np.dtype(dtype).kind == "S" else None
    return group.create_dataset(
        name, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]), fletcher32=True, compression=packing
    )


def most_chunks(chunk_bytes: int) -> int:
    """Return the number of chunks to read at a time, to pick rows from them: the same bytes for small and large
    chunks.
    """
    return max(MOST_CHUNKS, MOST_CHUNKS * CHUNK_BYTES // max(1, chunk_bytes))
