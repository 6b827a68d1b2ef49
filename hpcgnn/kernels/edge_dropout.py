"""Edge dropout: the rest of a block after each edge is dropped with probability p (DropEdge: Rong et al., ICLR 2020).

The decision is a function of (key, destination, source, number of equal edges before), in ids of nodes. So the owner of
either end drops the same edges, and both directions of an aggregation do.
"""

from typing import NamedTuple

import torch

from . import checks
from .interface import EDGE_ENDS
from .library import kernels
from .masking import rule
from .randomness import checked_key


class Columns(NamedTuple):
    """The columns of edges: indices (E,) int32; weight (E,) float32 or float64, or None.

    edge: (E,) int32 or int64, or None.
    """

    indices: torch.Tensor
    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None


def drop_edges(
    indptr: torch.Tensor,
    columns: Columns,
    rows: torch.Tensor | None,
    ids: tuple[torch.Tensor, torch.Tensor],
    ends: str,
    key: int,
    p: float,
    degree: torch.Tensor,
    kept_indptr: torch.Tensor,
    kept: Columns | None,
) -> int:
    """Writes the kept edges of a block to `kept_indptr` and `kept`, in their order; returns their number.

    Args:
        indptr, columns, rows: (R + 1,) int64, Columns, and (R,) int32 or None: the block, as of `gather`; not checked.
        ids: (n,) and (columns,) int64: original ids of all rows and of all columns.
        ends: the rows' end of their edges: `rows_are_destinations`, `rows_are_sources`, or `rows_are_either`. The last
            treats an edge and its reverse as one edge, which is kept or dropped whole.
        key: from `stream_key`.
        p: below 1, rounded to a multiple of 2**-32.
        degree: (n,) float64: the weights of kept edges (ones, if there are none) are added at their row.
        kept_indptr: (R + 1,) int64, from 0.
        kept: Columns of the same kinds and of any length. If it is None or too short, edges are only counted.

    An edge of a node to itself is never dropped. Equal edges must be neighbours in their row. Results do not depend on
    the number of threads. Raises ValueError for a wrong dtype, shape, layout, key or p.
    """
    num_stored, num_edges = checks.row_pointer(indptr), len(columns.indices)
    checks.vector("indices", columns.indices, torch.int32, None)
    checks.vector("rows", rows, torch.int32, num_stored, optional=True)
    for name, each in zip(("row ids", "column ids"), ids, strict=True):
        checks.vector(name, each, torch.int64, None)
    checks.vector("degree", degree, torch.float64, len(ids[0]))
    checks.vector("kept_indptr", kept_indptr, torch.int64, num_stored + 1)
    if rows is None and num_stored != len(ids[0]):
        raise ValueError(f"indptr: expected {len(ids[0]) + 1} entries, got {num_stored + 1}; or pass rows")
    for name, dtypes in (("weight", (torch.float32, torch.float64)), ("edge", (torch.int32, torch.int64))):
        column = getattr(columns, name)
        if column is not None and column.dtype not in dtypes:
            raise ValueError(f"{name}: expected {dtypes[0]} or {dtypes[1]}, got {column.dtype}")
        checks.vector(name, column, dtypes[0] if column is None else column.dtype, num_edges, optional=True)
    if kept is not None:
        for name, of, to in zip(Columns._fields, columns, kept, strict=True):
            if (of is None) != (to is None):
                raise ValueError(f"kept {name}: expected it where, and only where, the block has it")
            checks.vector(f"kept {name}", to, torch.int32 if of is None else of.dtype, len(kept.indices), optional=True)
    threshold, _ = rule(p)
    if threshold == 2**32 or ends not in EDGE_ENDS:
        raise ValueError(f"expected p below 1 and ends of {', '.join(EDGE_ENDS)}, got {p!r} and {ends!r}")
    found = kernels().drop_edges(
        *(indptr, columns.indices, rows, columns.weight, columns.edge, *ids),
        *(checked_key(key), threshold, EDGE_ENDS[ends], kept_indptr, *(kept or (None, None, None)), degree),
    )
    for written in (degree, kept_indptr, *(kept or ())):
        if written is not None:
            checks.written(written)
    return found
