"""The minimum vertex cover of a bipartite graph, which decides the messages between two ranks."""

import torch

from . import checks
from .library import kernels

# Bits of the results of `least_cover`.
MOST_LEFT, MOST_RIGHT = 1, 2


def least_cover(indptr: torch.Tensor, indices: torch.Tensor, num_right: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """The least vertex covers of a bipartite graph: (vertices of each, left uint8 (n,), right uint8 (num_right,)).

    There may be many. Bit MOST_LEFT of left and right marks the least cover with the most left vertices, bit MOST_RIGHT
    the one with the most right vertices.

    indptr is int64 (n + 1,), of the left vertices; it may start above 0, as a slice of a longer one does. indices is
    int32 (E,) in [0, num_right), not checked; edges may be repeated. It takes time O(E √V), and 4 bytes for each edge
    and 24 for each vertex. The result depends on the order of vertices and edges alone.

    A least cover has as many vertices as a largest matching has edges (König 1931). Hopcroft and Karp's algorithm
    (SIAM J. Comput. 1973) finds the matching. Raises ValueError for a wrong dtype or layout, MemoryError.
    """
    checks.row_pointer(indptr)
    checks.vector("indices", indices, torch.int32, None)
    if not 0 <= num_right < 2**31:
        raise ValueError(f"num_right: expected 0 to 2^31 - 1, got {num_right}")
    return kernels().least_cover(indptr, indices, num_right)
