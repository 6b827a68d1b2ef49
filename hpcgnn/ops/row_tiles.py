"""Some rows at a time in the type that is computed with, of a matrix that may be kept in a narrower one.

And rows of a tile of edges.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch

from hpcgnn import kernels
from hpcgnn.graph.edge_tiles import EdgeTile
from hpcgnn.memory.arena import Arena
from hpcgnn.memory.resident import MANY_THREADS
from hpcgnn.memory.stored_rows import StoredRows

# Rows that one thread works on at a time: they stay in the cache from one step to the next, and a product of so many
# rows still runs at full speed.
TILE_ROWS = 2048
# Several threads wait for each other at the end of every step, so steps are larger: at 2048 rows two threads took a
# quarter longer (SAGE, 3 x 256) than at 8192. No tile is larger than MOST_ROWS, in which 64 threads have 256 rows
# each: tiles are most of the memory that many threads take more. Without our own products Python takes the steps of a
# tile one by one, which is serial work: tiles are larger there (see kernels.convolves).
MOST_ROWS, MOST_ROWS_STEPWISE = 1 << 14, 1 << 17
# What the rows of an edge tile take together: enough to hide the cost of calls, little enough to stay in the cache.
# With MANY_THREADS or more it is 1.5 times that for each of them: waking these costs more than fresh pages of larger
# tensors. The most bounds the memory.
EDGE_TILE_BYTES, MOST_EDGE_SHARES = 1 << 21, 96
# A function of rows that is one kernel makes nothing else on the way. Its tiles are so many times as large.
KERNEL_TILES = 4
# Set by those who try out what a process of other threads would hold.
_SET: ContextVar[int | None] = ContextVar("tile rows", default=None)


def tile_rows(threads: int | None = None) -> int:
    """Rows that are worked on at a time, by all threads. threads: of a process (None: of this one)."""
    fixed = _SET.get()
    if threads is None and fixed is not None:
        return fixed
    threads = threads or torch.get_num_threads()
    if threads == 1:
        return TILE_ROWS
    most = MOST_ROWS if kernels.one_pass(torch.float32, threads) else MOST_ROWS_STEPWISE
    return min(2 * TILE_ROWS * threads, most)


def edge_tile_bytes() -> int:
    """Bytes that the rows of an edge tile take together, which all threads work on. Each of the many operations of a
    tile wakes all threads once.
    """
    threads = torch.get_num_threads()
    return EDGE_TILE_BYTES * (1 if threads < MANY_THREADS else min(3 * threads // 2, MOST_EDGE_SHARES))


@contextlib.contextmanager
def tiles_of(rows: int) -> Iterator[None]:
    """Work on `rows` rows at a time in the body, whatever the threads."""
    before = _SET.set(rows)
    try:
        yield
    finally:
        _SET.reset(before)


def row_tiles(num_rows: int, first: int = 0) -> list[slice]:
    """Slices of `tile_rows()` rows that cover first .. num_rows - 1."""
    step = tile_rows()
    return [slice(start, min(start + step, num_rows)) for start in range(first, num_rows, step)]


def tiles_or_all(num_rows: int, all_at_once: bool) -> list[slice]:
    """The same, or one slice where that is possible and there are many threads: they wait for each other after each."""
    if num_rows and all_at_once and torch.get_num_threads() >= MANY_THREADS:
        return [slice(0, num_rows)]
    return row_tiles(num_rows)


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums of numbers of a type are made: float64 for itself, else float32."""
    return torch.promote_types(dtype, torch.float32)


#: A matrix (n, F), in memory or not.
Matrix = torch.Tensor | StoredRows


def read_type(x: Matrix, dtype: torch.dtype) -> torch.dtype:
    """The type in which the kernels' products, which compute in `dtype`, are given rows of x: bfloat16 as it is if they
    can.
    """
    return x.dtype if x.dtype == torch.bfloat16 and kernels.one_pass(dtype) else dtype


def in_rows(x: torch.Tensor) -> torch.Tensor:
    """x (n, F) itself if its rows lie one after the other, as kernels read them, else a copy: gradients may share one
    row.
    """
    return x if x.stride(1) == 1 and x.stride(0) >= x.shape[1] else x.contiguous()


class Cast:
    """Reads and writes rows of matrices like x (n, F). dtype: to compute with. Where that is x's, nothing is ever
    copied.
    """

    def __init__(self, arena: Arena, x: Matrix, dtype: torch.dtype) -> None:
        count, width = x.shape
        self._memory = None if x.dtype == dtype else arena.empty(min(tile_rows(), count), width, dtype=dtype)

    def read(self, part: torch.Tensor) -> torch.Tensor:
        """The rows `part` (at most a tile) to compute with; a copy is valid until the next."""
        return part if self._memory is None else self._memory[: len(part)].copy_(part)

    def write(self, part: torch.Tensor, compute: Callable[[torch.Tensor], object]) -> None:
        """Let compute(out) make the rows `part` (at most a tile)."""
        if self._memory is None:
            compute(part)
        else:
            out = self._memory[: len(part)]
            compute(out)
            part.copy_(out)


def picked(x: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
    """x[index], or x itself. index: int32 (m,) or None."""
    if index is None:
        return x
    out = x.new_empty(len(index), x.shape[1])
    kernels.pack(out, x, index)
    return out


def add_by_source(back: torch.Tensor, to: torch.Tensor, gradient: torch.Tensor) -> None:
    """back[to] += the gradients of edges, one after the other. to: int32 (E,), sources of the edges.

    In bfloat16 the edges of a source are summed first: they are sorted by it, and rounded once.
    """
    if back.dtype != torch.bfloat16:
        kernels.add_rows(back, to, gradient.contiguous())
        return
    order = torch.argsort(to, stable=True)
    sources, starts = to[order], torch.empty(len(order) + 1, dtype=torch.bool)
    starts[0] = starts[-1] = True
    torch.ne(sources[1:], sources[:-1], out=starts[1:-1])  # unique_consecutive is serial
    indptr = starts.nonzero().squeeze(1)
    kernels.gather(back, gradient.contiguous(), indptr, order.int(), rows=sources[indptr[:-1]], accumulate=True)


def add_by_row(total: torch.Tensor, tile: EdgeTile, gradient: torch.Tensor) -> None:
    """total[row] += the sum of its edges' gradients."""
    kernels.gather(total, gradient.contiguous(), tile.indptr, tile.each, rows=tile.rows, accumulate=True)


def put_by_edge(out: torch.Tensor, tile: EdgeTile, x: torch.Tensor, *, add: bool) -> None:
    """out[places of the tile's edges] = x, or with `add` += x. Rows (E, …)."""
    if not add:
        out[tile.at] = x
    elif isinstance(tile.at, slice):
        out[tile.at].add_(x)
    else:
        kernels.add_rows(out.view(len(out), -1), tile.at.int(), x.reshape(len(x), -1), distinct=True)
