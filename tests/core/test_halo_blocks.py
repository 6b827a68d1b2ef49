"""The size of blocks of edges."""

import numpy as np

from hpcgnn.graph.blocks import halo_blocks


def test_the_size_of_halo_blocks_does_not_grow_with_their_number():
    """A row pointer over all own rows in each of P blocks would cost 8 n bytes on every rank, whatever P is."""
    edges = 100
    indptr, halo = np.arange(0, edges + 1, 2), np.arange(edges)  # of 50 rows
    few, many = (
        sum(b.nbytes for b in halo_blocks(np.linspace(0, edges, n + 1, dtype=np.int64), indptr, halo, None))
        for n in (2, 50)
    )
    assert many <= few + 50 * 8 + edges * (8 + 4)
