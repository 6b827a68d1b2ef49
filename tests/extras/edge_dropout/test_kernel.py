"""`drop_edges` against draws of the oracle's own: rows of all lengths, equal edges, loops, both ends, room."""

import numpy as np
import oracle
import pytest
import torch
from kernels.conftest import kernels  # noqa: F401

from hpcgnn.extras.edge_dropout.kernel import EdgeColumns, drop_edges

KEY, N = 0x9E3779B97F4A7C15, 40
pytestmark = pytest.mark.usefixtures("kernels")


def block(generator, weights=None, places=None, rows=None):
    """(indptr, EdgeColumns) with empty rows, a row of more edges than are drawn for at a time, equal edges and
    loops.
    """
    lengths = generator.integers(0, 9, N if rows is None else len(rows))
    lengths[3], lengths[5] = 700, 0
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.sort(generator.integers(0, N, length)) for length in lengths])
    weight = None if weights is None else torch.from_numpy(generator.random(len(indices))).to(weights)
    edge = None if places is None else torch.arange(len(indices), dtype=places) + 7
    return torch.from_numpy(indptr), EdgeColumns(torch.from_numpy(indices).int(), weight, edge)


@pytest.mark.parametrize("ends", ["rows_are_destinations", "rows_are_sources", "rows_are_either"])
@pytest.mark.parametrize("kinds", [(None, None), (torch.float32, torch.int32), (torch.float64, torch.int64)])
def test_against_the_oracle(ends, kinds):
    generator = np.random.default_rng(1)
    ids = generator.integers(0, 1 << 45, N)
    for rows in (None, np.arange(2, N, 3, dtype=np.int32)):
        indptr, columns = block(generator, *kinds, rows)
        stored = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        row = stored if rows is None else rows[stored]
        kept = oracle.kept_edges(KEY, ids[row], ids[columns.indices], ends, 0.4)
        room = EdgeColumns(*(None if each is None else torch.full((len(each) + 3,), -1).to(each) for each in columns))
        degree, kept_indptr = torch.full((N,), 0.5, dtype=torch.float64), torch.empty_like(indptr)
        of_nodes = torch.from_numpy(ids)
        given = {"indptr": indptr, "rows": None if rows is None else torch.from_numpy(rows), "row_ids": of_nodes}
        given |= {"column_ids": of_nodes, "degree": degree, "kept_indptr": kept_indptr}
        assert drop_edges(columns, room, ends, KEY, 0.4, **given) == kept.sum()
        np.testing.assert_array_equal(kept_indptr, np.append(0, np.cumsum(kept))[indptr])
        for found, of in zip(room, columns):
            assert (found is None) == (of is None)
            if found is not None:
                np.testing.assert_array_equal(found[: kept.sum()], of[torch.from_numpy(kept)])
                assert (found[kept.sum() :] == -1).all()
        weight = np.ones(len(row)) if columns.weight is None else columns.weight.double().numpy()
        expected = 0.5 + np.bincount(row[kept], weight[kept], N)
        np.testing.assert_allclose(degree, expected, rtol=1e-12)
        # Without room nothing is copied, and all is counted.
        small = EdgeColumns(*(None if each is None else each[:4].clone() for each in room))
        for short in (None, small):
            degree.fill_(0.5)
            assert drop_edges(columns, short, ends, KEY, 0.4, **given) == kept.sum()
            np.testing.assert_allclose(degree, expected, rtol=1e-12)
