"""Gather and pack, the two ways rows of a node matrix are read at random, and the adding of rows at random places.

`gather` is aggregation over a block of the adjacency; `pack` fills a send buffer; `add_rows` adds returned gradients.
All are bound by memory. So scalings are part of the same pass, and a missing edge weight is not read.

`gather_largest` takes the elementwise maximum of neighbours' rows. Equal elements share the gradient evenly, as in
torch.amax. This rule does not depend on the order of the edges, and so neither on the partition nor on the number of
ranks. After a ReLU many neighbours are zero, so the rule matters.
"""

from collections.abc import Iterator

import torch

from .kernel import Arguments, accumulation_dtype, kernel

#: Elements of an expanded piece of edges in torch: 16 MiB of float32.
PIECE = 1 << 22
#: The structure of a block: indptr may start above 0, as a slice of a longer one does; rows increase strictly.
BLOCK = {"indptr": "int64 [num_rows + 1]", "indices": "int32 [edges]"}
ROWS = "optional int32 [num_rows]"
#: Without stored rows, the block has all rows.
ALL_ROWS = (("rows", "num_rows", "n", "indptr"),)


def edge_pieces(a: Arguments, width: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yields (edges, row of each, column of each, number of equal edges before each) of a block, some whole rows at a
    time.
    """
    step, stored, first = max(1, PIECE // max(1, width)), len(a.indptr) - 1, 0
    while first < stored:
        last = int(torch.searchsorted(a.indptr, a.indptr[first] + step, right=True)) - 1
        last = min(stored, max(last, first + 1))
        edges = torch.arange(int(a.indptr[first]), int(a.indptr[last]))
        row = torch.repeat_interleave(torch.arange(first, last), a.indptr[first : last + 1].diff())
        columns = a.indices[edges].to(torch.int64)
        fresh = torch.ones_like(edges, dtype=torch.bool)
        fresh[1:] = (row[1:] != row[:-1]) | (columns[1:] != columns[:-1])
        start = torch.where(fresh, torch.arange(len(edges)), 0).cummax(0).values if len(edges) else edges
        yield edges, row if a.rows is None else a.rows[row].to(torch.int64), columns, torch.arange(len(edges)) - start
        first = last


@kernel(
    "hg_gather",
    {
        "y": "written result of x (n, width)",
        "x": "narrow (sources, width)",
        **BLOCK,
        "rows": ROWS,
        "weight": "optional sum of x [edges]",
        "source_scale": "optional sum of x [sources]",
        "row_scale": "optional sum of x [n]",
    },
    without=ALL_ROWS,
    memory="gather: no memory for the partial sums of rows with very many edges",
)
def gather(a: Arguments) -> None:
    """Sums the rows of `x` that the edges of each stored row name, into `y`:

        y[r] (= or +=) row_scale[r] * sum over e of weight[e] * source_scale[indices[e]] * x[indices[e]]

    with e in [indptr[i], indptr[i+1]) and r = rows[i], or i where `rows` is None. Without `accumulate`, stored rows
    that have no edges become 0. Rows of y that are not stored are left alone.

    Sums are formed in float64 for float64 x, else in float32, in the order of the edges (longer rows in chunks of 8192
    edges). So results do not depend on the number of threads. Index ranges are not checked (see `check_block`). y must
    not overlap x.
    """
    dtype = accumulation_dtype(a.x.dtype)
    sums = torch.zeros(a.y.shape, dtype=dtype)
    for edges, target, sources, _ in edge_pieces(a, a.x.shape[1]):
        message = a.x[sources].to(dtype)
        if a.weight is not None or a.source_scale is not None:
            coefficient = torch.ones(len(edges), dtype=dtype) if a.weight is None else a.weight[edges]
            if a.source_scale is not None:
                coefficient = coefficient * a.source_scale[sources]
            message = message * coefficient[:, None]
        sums.index_add_(0, target, message)
    if a.row_scale is not None:
        sums *= a.row_scale[:, None]
    if a.accumulate:
        sums += a.y
    stored = slice(None) if a.rows is None else a.rows
    a.y[stored] = sums[stored].to(a.y.dtype)


@kernel(
    "hg_gather_largest",
    {
        "y": "written float (n, width)",
        "count": "written type of y (n, width)",
        "x": "type of y (sources, width)",
        **BLOCK,
        "rows": ROWS,
    },
    without=ALL_ROWS,
)
def gather_largest(a: Arguments) -> None:
    """Takes the edges of one block into the largest elements of the rows it stores:

        y[r, c]     = max(itself, x[indices[e], c] over e)
        count[r, c] = number of edges of all blocks so far with that element

    with e in [indptr[i], indptr[i+1]) and r = rows[i], or i where `rows` is None. Before the first block y is -inf and
    count 0. A NaN stays, and its count means nothing. Ranges of indices are not checked.
    """
    for _, target, sources, _ in edge_pieces(a, a.y.shape[1]):
        index, value, before = target[:, None].expand(-1, a.y.shape[1]), a.x[sources], a.y.clone()
        a.y.scatter_reduce_(0, index, value, "amax")
        a.count.masked_fill_((a.y > before) | a.y.isnan(), 0)
        a.count.scatter_add_(0, index, (value == a.y[target]).to(a.count.dtype))


@kernel(
    "hg_largest_gradient",
    {
        "gx": "written type of x (sources, width)",
        "x": "float (sources, width)",
        "y": "type of x (n, width)",
        "gy": "type of x (n, width)",
        **BLOCK,
        "rows": ROWS,
    },
    without=ALL_ROWS,
)
def largest_gradient(a: Arguments) -> None:
    """gx[indices[e], c] = gy[r, c] where x[indices[e], c] = y[r, c], else 0, of sources that are one row's alone.

    y is of `gather_largest`, and gy its gradient, divided by the count. gx must not overlap the others.
    """
    for _, target, sources, _ in edge_pieces(a, a.y.shape[1]):
        a.gx[sources] = torch.where(a.x[sources] == a.y[target], a.gy[target], 0)


@kernel(
    "hg_edge_rows",
    {"out": "written int32 [edges]", "indptr": "int64 [num_rows + 1]", "rows": "optional int32 [num_rows]"},
)
def edge_rows(a: Arguments) -> None:
    """out[e] = rows[i], or i where `rows` is None, of each edge e in [indptr[i], indptr[i+1])."""
    row = torch.repeat_interleave(a.indptr.diff())
    a.out[a.indptr[0] : a.indptr[-1]] = row if a.rows is None else a.rows[row]


@kernel(
    "hg_pack",
    {
        "out": "written packed of x (num, width)",
        "x": "narrow (rows, width)",
        "index": "int32 [num]",
        "scale": "optional sum of x [rows]",
    },
)
def pack(a: Arguments) -> None:
    """out[i] = scale[index[i]] * x[index[i]]: rows to send, scaled, and rounded or widened if `out` has another type.

    out (m, F) and x (n, F) are of one dtype (float32, float64, bfloat16; without scale also float16, int8). Or out is
    bfloat16 and x float32, or out is float32 and x narrower. index is (m,) int32 in [0, n), not checked. scale is (n,)
    float64 with float64 x, else float32.
    """
    taken = a.x[a.index]
    if a.scale is not None:
        taken = taken.to(a.scale.dtype) * a.scale[a.index][:, None]
    a.out.copy_(taken)


@kernel(
    "hg_add_rows",
    {
        "out": "written number (n, width)",
        "index": "int32 [num]",
        "x": "type of out (rows, width)",
        "place": "optional int32 [num]",
        "weight": "optional sum of out [num]",
    },
    without=(("place", "rows", "num", "x"),),
)
def add_rows(a: Arguments) -> None:
    """out[index[i]] += weight[i] * x[place[i]], for one i after another, as torch's index_add_ with one thread.

    Sums are formed in the order of i, whatever the number of threads. index and place are in range, not checked.
    Without place, x has a row for each i. `distinct` says that index has no row twice, for a better split of the work;
    not checked. out and x must not overlap.
    """
    rows = a.x if a.place is None else a.x[a.place]
    if a.weight is not None:
        rows = (rows.to(a.weight.dtype) * a.weight[:, None]).to(a.x.dtype)
    a.out.index_add_(0, a.index, rows)


def _faults(
    indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor | None, num_rows: int, num_sources: int
) -> Iterator[tuple[str, torch.Tensor, int, torch.Tensor]]:
    """(fault, numbers, the first one that was looked at, whether each from there on is wrong)."""
    yield "indptr must start at 0 or above", indptr, 0, indptr[:1] < 0
    yield "indptr must not decrease", indptr, 0, indptr[1:] < indptr[:-1]
    yield "indptr must not exceed the number of indices", indptr, 0, indptr > len(indices)
    if rows is not None:
        yield "rows must lie in [0, num_rows)", rows, 0, (rows < 0) | (rows >= num_rows)
        yield "rows must increase strictly", rows, 1, rows[1:] <= rows[:-1]
    begin = int(indptr[0])
    used = indices[begin : int(indptr[-1])]
    if len(used) and (used.min() < 0 or used.max() >= num_sources):  # no memory is taken for each edge before
        yield "indices must lie in [0, num_sources)", indices, begin, (used < 0) | (used >= num_sources)


def check_block(
    indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor | None, num_rows: int, num_sources: int
) -> None:
    """Checks that every index of a block is in range; `gather` does not check this.

    indptr (R + 1,) int64, indices (E,) int32, rows (R,) int32 or None. `num_rows` and `num_sources` are the numbers of
    rows of y and x. Raises ValueError naming the first fault and its place.
    """
    if rows is None and len(indptr) != num_rows + 1:
        raise ValueError(f"indptr: expected {num_rows + 1} entries for {num_rows} rows, got {len(indptr)}")
    for said, numbers, first, wrong in _faults(indptr, indices, rows, num_rows, num_sources):
        if wrong.any():
            position = first + int(wrong.to(torch.int8).argmax())
            window = numbers[max(0, position - 1) : position + 2].tolist()
            raise ValueError(
                f"block: {said} (num_rows {num_rows}, num_sources {num_sources}, {len(indices)} indices); first wrong "
                f"at position {position}, near {window}"
            )
