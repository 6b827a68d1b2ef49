"""A largest matching of a bipartite graph, which gives the least messages between two ranks."""

import torch

from .kernel import Arguments, kernel


@kernel(
    "hg_match",
    {
        "indptr": "int64 [num_left + 1]",
        "indices": "int32 [edges]",
        "right_of": "int32 [num_left]",
        "left_of": "int32 [num_right]",
    },
)
def _match(a: Arguments) -> int:
    # SciPy is loaded where there is no compiled library: it takes a rank 17 MB.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    indices = a.indices[a.indptr[0] : a.indptr[-1]].numpy()
    shape = len(a.right_of), len(a.left_of)
    edges = csr_matrix((indices >= 0, indices, (a.indptr - a.indptr[0]).numpy()), shape=shape, copy=True)
    edges.sum_duplicates()
    a.right_of.copy_(torch.from_numpy(maximum_bipartite_matching(edges, perm_type="column")))
    matched = (a.right_of >= 0).nonzero()[:, 0]
    a.left_of.fill_(-1)
    a.left_of[a.right_of[matched].long()] = matched.int()
    return len(matched)


def match(indptr: torch.Tensor, indices: torch.Tensor, num_right: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The mates of the left vertices, int32 (n,), and of the right ones, int32 (num_right,), in a largest matching.

    -1: no mate. indptr is int64 (n + 1,), of the left vertices; it may start above 0, as a slice of a longer one does.
    indices is int32 (E,) in [0, num_right), not checked; edges may be repeated. Memory: 24 bytes a left vertex.

    Raises:
        ValueError: a wrong dtype or layout.
        MemoryError: no memory.
    """
    right_of = torch.empty(max(0, len(indptr) - 1), dtype=torch.int32)
    left_of = torch.empty(num_right, dtype=torch.int32)
    if _match(indptr, indices, right_of, left_of) < 0:
        raise MemoryError("no memory for the matching of the rows between two ranks")
    return right_of, left_of
