"""The minimum vertex cover of a bipartite graph, which decides the messages between two ranks."""

import itertools

import torch

from .kernel import Arguments, kernel

# Bits of the results of `least_cover`.
MOST_LEFT, MOST_RIGHT = 1, 2


@kernel(
    "hg_least_cover",
    {
        "indptr": "int64 [num_left + 1]",
        "indices": "int32 [edges]",
        "left": "uint8 [num_left]",
        "right": "uint8 [num_right]",
    },
)
def _least_cover(a: Arguments) -> int:
    """By one alternating search for each vertex of the left (Kuhn, 1955): for small graphs."""
    ends, others, num_right = a.indptr.tolist(), a.indices.tolist(), len(a.right)
    right_of = [others[first:last] for first, last in itertools.pairwise(ends)]
    left_of: list[list[int]] = [[] for _ in range(num_right)]
    for u, found in enumerate(right_of):
        for v in found:
            left_of[v].append(u)
    mates: dict[int, int] = {}  # of right vertices

    def reached(starts: list[int], edges: list[list[int]], mate: dict[int, int]) -> dict[int, int]:
        """{vertex of the other side: from which it was reached}."""
        came_from = dict[int, int]()
        for u in starts:  # grows on the way
            for v in edges[u]:
                if v not in came_from:
                    came_from[v] = u
                    if v in mate:
                        starts.append(mate[v])
        return came_from

    partner: dict[int, int] = {}  # of left vertices
    for start in range(len(right_of)):
        came_from = reached([start], right_of, mates)
        v = next((each for each in came_from if each not in mates), -1)
        while v >= 0:
            u = came_from[v]
            mates[v], partner[u], v = u, v, -1 if u == start else partner[u]
    from_left = reached([u for u in range(len(right_of)) if u not in partner], right_of, mates)
    from_right = reached([v for v in range(num_right) if v not in mates], left_of, partner)
    a.left.zero_(), a.right.zero_()
    for v, u in mates.items():
        if v in from_left:
            a.right[v] = MOST_LEFT
        else:
            a.left[u] = MOST_LEFT
        if u in from_right:
            a.left[u] += MOST_RIGHT
        else:
            a.right[v] += MOST_RIGHT
    return len(mates)


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
    left = torch.empty(max(0, len(indptr) - 1), dtype=torch.uint8)
    right = torch.empty(num_right, dtype=torch.uint8)
    found = _least_cover(indptr, indices, left, right)
    if found < 0:
        raise MemoryError("least_cover: no memory for the matching")
    return found, left, right
