"""Dense features as they are read: in the type that they have in memory, and finite."""

import numpy as np
import torch

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.storage import GraphFile

#: uint16 is the bits of bfloat16, which numpy has not.
NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
    torch.int8: np.int8,
}
# Numbers that are looked at together: what a check takes beside them.
_TILE = 1 << 18


def read_dense(
    file: GraphFile, ranges: list[tuple[int, int]], dtype: torch.dtype, number: np.ndarray | None = None
) -> torch.Tensor:
    """Dense features of the nodes in `ranges`, (m, F), in a type of NUMPY. number: as GraphFile.read has it.

    In int8 they are codes where the file has factors of them (graphfile/narrow.py), and numbers in all other types.
    Raises GraphError for NaN and infinity.
    """
    found = file.read("nodes/features", ranges, NUMPY[dtype], number)  # float64 may overflow here
    rows = torch.from_numpy(found.view(np.int16) if dtype == torch.bfloat16 else found).view(dtype)
    check_finite(file, rows, "node")
    if dtype.is_floating_point and (scales := read_scales(file)) is not None:
        rows.mul_(torch.from_numpy(scales))
    return rows


def check_finite(file: GraphFile, values: torch.Tensor, what: str) -> None:
    """Raise GraphError for features `values` with NaN or infinity. what: they belong to a node or an edge."""
    tile = max(1, _TILE // max(1, values[:1].numel()))
    if not all(bool(values[first : first + tile].isfinite().all()) for first in range(0, len(values), tile)):
        raise GraphError(
            f"{file.path}: {what} features hold NaN or infinite values; clean them and import the graph again"
        )
