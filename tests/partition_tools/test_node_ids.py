"""Ids that are not row numbers: which row of a table is whose, and what is said where that cannot be told."""

import numpy as np
import pytest
from partition_helpers import view

from hpcgnn.graphfile.storage import GraphFile

FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)


def test_gaps_in_an_archive(cli, fails, tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]))
    code, _, err = cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert code == 0 and "only 4 of the node ids 0..40 occur" in err and "numpy.unique" in err
    np.savez(tmp_path / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]), x=FEATURES)
    assert "numpy.unique" in fails("import", tmp_path / "g.npz", "-o", tmp_path / "n.h5")


def words(tmp_path, *more):
    return ("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", *more)


def test_ids_with_gaps(cli, fails, tmp_path):
    """What is the matter is said, and what to do about it."""
    (tmp_path / "e.csv").write_text("src,dst\n10,20\n20,40\n40,7\n")
    np.save(tmp_path / "x.npy", FEATURES)
    (tmp_path / "x.csv").write_text("id,a\n10,1\n20,2\n40,4\n7,0\n")
    error = fails(*words(tmp_path, "--features", tmp_path / "x.csv"))
    assert "node 0 has no row" in error and "gaps" in error and "--relabel" in error
    error = fails(*words(tmp_path, "--features", tmp_path / "x.npy"))
    assert "the table of features has 4 rows" in error and "--relabel" in error
    code, _, err = cli(*words(tmp_path))
    assert code == 0 and "only 4 of the node ids 0..40 occur" in err and "--relabel" in err
    code, _, err = cli(*words(tmp_path, "--force", "--relabel", "--features", tmp_path / "x.csv"))
    assert code == 0 and "warning: only" not in err
    np.testing.assert_array_equal(view(tmp_path / "g.h5").features[:, 0], [0, 1, 2, 4])
    (tmp_path / "e.csv").write_text("1 2\n2 3\n3 4\n4 1\n")
    code, _, err = cli(*words(tmp_path, "--force"))
    assert code == 0 and "the ids begin with 1" in err and "--relabel" in err


@pytest.mark.parametrize("first", [2**31 + 5, 2**62, 2**63 + 5])
def test_ids_of_64_bits(cli, tmp_path, first):
    (tmp_path / "e.txt").write_text("".join(f"{first + k} {first + (3 * k) % 50}\n" for k in range(50)))
    assert cli("import", tmp_path / "e.txt", "-o", tmp_path / "g.h5", "--relabel")[0] == 0
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.num_nodes == 50
