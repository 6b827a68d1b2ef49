"""Features from the graph file to a scratch file, never whole in memory.

The graph file itself is not read in every epoch. Its chunks have checksums to verify and may be compressed. Its rows
are in the order and the type of the file. It may lie on a file system that all nodes share.
"""

from collections.abc import Iterator

import numpy as np
import torch

from hpcgnn.extras.offload.on_disk import OnDisk
from hpcgnn.graph.own_rows import read_dense
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.placement.order import LocalOrder

# Bytes of rows that are read at a time: some chunks.
_AT_A_TIME = 16 << 20


def write_features(to: OnDisk, file: GraphFile, ranges: list[tuple[int, int]], order: LocalOrder) -> OnDisk:
    """Write the dense features of own nodes, in the local order, to an empty matrix. Returns it."""
    (count, width), dtype = to.shape, to.dtype
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    ends = np.cumsum(stops - starts)
    taken = None if order.number is None else order.taken()

    def parts() -> Iterator[torch.Tensor]:
        size = max(1, _AT_A_TIME // max(1, width * dtype.itemsize))
        for first in range(0, count, size):
            places = np.arange(first, min(first + size, count)) if taken is None else taken[first : first + size]
            number = np.searchsorted(ends, places, side="right")
            rows = places - (ends - stops)[number]
            begins = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
            wanted = list(
                zip(rows[begins].tolist(), (rows[np.append(begins[1:], len(rows)) - 1] + 1).tolist(), strict=False)
            )
            yield read_dense(file, wanted, dtype)

    to.append(slice(0, width), parts())
    return to
