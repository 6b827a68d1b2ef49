"""Ids that are not row numbers: the node of each row of a table, and the error where it is unknown."""

import numpy as np

FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)


def test_gaps_in_an_archive(cli, fails, tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]))
    code, _, err = cli("import", tmp_path / "g.npz", "-o", tmp_path / "g.h5")
    assert code == 0 and "only 4 of the node ids 0..40 occur" in err and "numpy.unique" in err
    np.savez(tmp_path / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]), x=FEATURES)
    assert "numpy.unique" in fails("import", tmp_path / "g.npz", "-o", tmp_path / "n.h5")


def test_ids_with_gaps(imports, fails, tmp_path):
    """The message names the problem and the remedy."""
    path, table, array = (tmp_path / name for name in ("e.csv", "x.csv", "x.npy"))
    path.write_text("src,dst\n10,20\n20,40\n40,7\n")
    np.save(array, FEATURES)
    table.write_text("id,a\n10,1\n20,2\n40,4\n7,0\n")
    for given, words in ((table, ("node 0 has no row", "gaps")), (array, ("the table of features has 4 rows",))):
        error = fails("import", path, "-o", tmp_path / "g.h5", "--features", given)
        assert all(word in error for word in (*words, "--relabel"))
    said = imports(path).said
    assert "only 4 of the node ids 0..40 occur" in said and "--relabel" in said
    seen = imports(path, "--relabel", "--features", table)
    assert "warning: only" not in seen.said
    np.testing.assert_array_equal(seen.features[:, 0], [0, 1, 2, 4])
    path.write_text("1 2\n2 3\n3 4\n4 1\n")
    said = imports(path).said
    assert "the ids begin with 1" in said and "--relabel" in said
