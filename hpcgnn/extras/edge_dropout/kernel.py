"""The kernel of edge dropout: the rest of a block after each edge is dropped with probability p (DropEdge: Rong et al.,
ICLR 2020).

The decision is a function of (key, destination, source, number of equal edges before), in ids of nodes. So the owner of
either end drops the same edges, and both directions of an aggregation do.
"""

from typing import Any, NamedTuple

import torch

from hpcgnn.kernels.aggregation import ALL_ROWS, BLOCK, ROWS, edge_pieces
from hpcgnn.kernels.attention import edge_words
from hpcgnn.kernels.interface import codes
from hpcgnn.kernels.kernel import Arguments, kernel
from hpcgnn.kernels.randomness import rule

#: {the end of the edges that a block's rows are: code}.
EDGE_ENDS = codes("rows_are_destinations", "rows_are_sources", "rows_are_either")


class EdgeColumns(NamedTuple):
    """The columns of edges: indices (E,) int32; weight (E,) float32 or float64, or None.

    edge: (E,) int32 or int64, or None.
    """

    indices: torch.Tensor
    weight: torch.Tensor | None = None
    edge: torch.Tensor | None = None


@kernel(
    "hg_drop_edges",
    {
        **BLOCK,
        "rows": ROWS,
        "weight": "optional float [edges]",
        "edge": "optional index [edges]",
        "row_ids": "int64 [n]",
        "column_ids": "int64 [columns]",
        "degree": "written float64 [n]",
        "kept_indptr": "written int64 [num_rows + 1]",
        "kept_indices": "optional written int32 [capacity]",
        "kept_weight": "optional written type of weight [capacity]",
        "kept_edge": "optional written type of edge [capacity]",
    },
    without=ALL_ROWS,
)
def _drop_edges(a: Arguments) -> int:
    counts, filled = torch.zeros(len(a.indptr) - 1, dtype=torch.int64), 0
    copies = (a.kept_indices, a.indices), (a.kept_weight, a.weight), (a.kept_edge, a.edge)
    for edges, target, columns, duplicate in edge_pieces(a, 16):
        row_id, column_id = a.row_ids[target], a.column_ids[columns]
        dst, src = (row_id, column_id) if a.ends == EDGE_ENDS["rows_are_destinations"] else (column_id, row_id)
        if a.ends == EDGE_ENDS["rows_are_either"]:
            dst, src = torch.maximum(row_id, column_id), torch.minimum(row_id, column_id)
        words = edge_words(dst, src, duplicate, 1, a.key)[:, 0]
        kept = edges[(words >= a.threshold) | (row_id == column_id)]
        stored = torch.searchsorted(a.indptr, kept, right=True) - 1
        counts += torch.bincount(stored, minlength=len(counts))
        weight = torch.ones(len(kept), dtype=torch.float64) if a.weight is None else a.weight[kept].double()
        a.degree.index_add_(0, stored if a.rows is None else a.rows[stored], weight)
        end = filled + len(kept)
        if a.kept_indices is not None and end <= len(a.kept_indices):
            for to, source in copies:
                if to is not None:
                    to[filled:end] = source[kept]
        filled = end
    a.kept_indptr[0] = 0
    torch.cumsum(counts, 0, out=a.kept_indptr[1:])
    return filled


def drop_edges(columns: EdgeColumns, kept: EdgeColumns | None, ends: str, key: int, p: float, **block: Any) -> int:
    """Writes the kept edges of a block to `kept_indptr` and `kept`, in their order; returns their number.

    Args:
        columns: of the block's edges.
        kept: EdgeColumns of the same kinds and of any length. If it is None or too short, edges are only counted.
        ends: the rows' end of their edges: `rows_are_destinations`, `rows_are_sources`, or `rows_are_either`. The last
            treats an edge and its reverse as one edge, which is kept or dropped whole.
        key: from `stream_key`.
        p: below 1, rounded to a multiple of 2**-32.
        block: indptr (R + 1,) int64, and rows (R,) int32 or None, as of `gather`; not checked. row_ids (n,) and
            column_ids (columns,) int64: original ids of all rows and of all columns. degree (n,) float64: the weights
            of kept edges (ones, if there are none) are added at their row. kept_indptr (R + 1,) int64, from 0.

    An edge of a node to itself is never dropped. Equal edges must be neighbours in their row. Results do not depend on
    the number of threads. Raises ValueError for a wrong dtype, shape, layout, key or p.
    """
    threshold, _ = rule(p)
    if kept is not None:
        for name, of, to in zip(EdgeColumns._fields, columns, kept, strict=True):
            if (of is None) != (to is None):
                raise ValueError(f"kept {name}: expected it where, and only where, the block has it")
        block |= {f"kept_{name}": to for name, to in kept._asdict().items()}
    sizes = (0 if each is None else each.element_size() for each in columns[1:])
    block |= columns._asdict() | dict(zip(("weight_bytes", "edge_bytes"), sizes, strict=True))
    return _drop_edges(**block, key=key, threshold=threshold, ends=EDGE_ENDS[ends])
