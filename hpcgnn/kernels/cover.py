"""The fewest vertices that touch every edge of a bipartite graph: who sends what between two ranks hangs on it."""

import torch

from . import checks
from .library import kernels

# Bits of what `least_cover` returns.
MOST_LEFT, MOST_RIGHT = 1, 2


def least_cover(indptr: torch.Tensor, indices: torch.Tensor, num_right: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """The least vertex covers of a bipartite graph: (vertices of each, left uint8 (n,), right uint8 (num_right,)).

    There may be many. Bit MOST_LEFT of left and right marks the one that has as many left vertices as a least cover can
    have, bit MOST_RIGHT the one with as many right ones.

    indptr: int64 (n + 1,), of the left vertices; may start above 0, as a slice of a longer one does. indices: int32
    (E,) in [0, num_right), not checked; an edge may stand there more than once. Time O(E √V), beside the edges 4 bytes
    for each and 24 for each vertex. The result depends on the order of vertices and edges alone.

    A cover has as many vertices as a matching has edges (König 1931), which is found by Hopcroft and Karp's algorithm
    (SIAM J. Comput. 1973). Raises ValueError for a wrong dtype or layout, MemoryError.
    """
    checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    if not 0 <= num_right < 2**31:
        raise ValueError(f"num_right: expected 0 to 2^31 - 1, got {num_right}")
    return kernels().least_cover(indptr, indices, num_right)
