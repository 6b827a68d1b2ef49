"""Ids that are not row numbers: which row of a table is whose, and what is said where that cannot be told."""

import numpy as np
import pytest
from partition_helpers import view

from hpcgnn.graphfile.storage import GraphFile

# Ids in the order of the rows of the tables, which is not their sorted order.
ORDER = ["pear", "fig", "zebra", "apple"]
EDGES = "src,dst\napple,pear\npear,fig\nzebra,fig\n"
FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)
LABELS = np.array([2, 0, 1, 1])
SORTED = np.argsort(ORDER)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    np.save(tmp_path / "x.npy", FEATURES)
    np.save(tmp_path / "y.npy", LABELS)
    (tmp_path / "s.csv").write_text("split\ntrain\nval\ntrain\ntest\n")
    (tmp_path / "t.csv").write_text("type\na\nb\nb\nc\n")
    (tmp_path / "ids.txt").write_text("\n".join(ORDER) + "\n")
    return tmp_path


def words(folder, *more):
    return ("import", folder / "e.csv", "-o", folder / "g.h5", *more)


def test_keyed_tables_beside_the_order_of_ids(cli, folder):
    (folder / "y.csv").write_text("id,label\napple,1\npear,2\nfig,0\n")
    tables = ("--features", folder / "x.npy", "--labels", folder / "y.csv")
    code, _, err = cli(*words(folder, *tables, "--set", f"tables.node_ids={folder / 'ids.txt'}"))
    assert code == 0, err
    seen = view(folder / "g.h5")
    np.testing.assert_array_equal(seen.features, FEATURES[SORTED])
    assert seen.labels.tolist() == [1, 0, 2, -1]


def test_row_numbers_need_no_ids(cli, folder):
    """With ids 0..n-1 all of which occur, rows in node order are what they say."""
    (folder / "e.csv").write_text("3 0\n1 2\n")
    code, _, err = cli(*words(folder, "--relabel", "--features", folder / "x.npy"))
    assert code == 0, err
    np.testing.assert_array_equal(view(folder / "g.h5").features, FEATURES)


def test_wrong_orders(fails, folder):
    given = words(folder, "--features", folder / "x.npy", "--set", f"tables.node_ids={folder / 'ids.txt'}")
    for text, message in (
        ("pear\nfig\nzebra\n", "apple"),
        ("pear\nfig\nzebra\npear\napple\n", "pear twice"),
        ("pear\nfig\nzebra\napple\nplum\n", "4 rows but"),
        ("pear,1\nfig,2\n", "one node id per row"),
        ("pear\n\nzebra\napple\n", "row 1 has no id"),
    ):
        (folder / "ids.txt").write_text(text)
        assert message in fails(*given)
    (folder / "ids.txt").write_text("\n".join(ORDER))
    (folder / "y.csv").write_text("id,label\nplum,1\n")
    assert "plum" in fails(
        *words(folder, "--labels", folder / "y.csv", "--set", f"tables.node_ids={folder / 'ids.txt'}")
    )
    assert "written alike" in fails(*words(folder, "--labels", folder / "y.csv", "--relabel"))
    np.save(folder / "ids.npy", np.zeros((2, 2)))
    assert "vector of node ids" in fails(
        *words(folder, "--labels", folder / "y.npy", "--set", f"tables.node_ids={folder / 'ids.npy'}")
    )


def test_gaps_in_an_archive(cli, fails, folder):
    np.savez(folder / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]))
    code, _, err = cli("import", folder / "g.npz", "-o", folder / "g.h5")
    assert code == 0 and "only 4 of the node ids 0..40 occur" in err and "numpy.unique" in err
    np.savez(folder / "g.npz", edge_index=np.array([[10, 20, 40], [20, 40, 7]]), x=FEATURES)
    assert "numpy.unique" in fails("import", folder / "g.npz", "-o", folder / "n.h5")


def test_ids_with_gaps(cli, fails, folder):
    """What is the matter is said, and what to do about it."""
    (folder / "e.csv").write_text("src,dst\n10,20\n20,40\n40,7\n")
    (folder / "x.csv").write_text("id,a\n10,1\n20,2\n40,4\n7,0\n")
    error = fails(*words(folder, "--features", folder / "x.csv"))
    assert "node 0 has no row" in error and "gaps" in error and "--relabel" in error
    error = fails(*words(folder, "--features", folder / "x.npy"))
    assert "the table of features has 4 rows" in error and "--relabel" in error
    code, _, err = cli(*words(folder))
    assert code == 0 and "only 4 of the node ids 0..40 occur" in err and "--relabel" in err
    code, _, err = cli(*words(folder, "--force", "--relabel", "--features", folder / "x.csv"))
    assert code == 0 and "warning: only" not in err
    np.testing.assert_array_equal(view(folder / "g.h5").features[:, 0], [0, 1, 2, 4])
    (folder / "e.csv").write_text("1 2\n2 3\n3 4\n4 1\n")
    code, _, err = cli(*words(folder, "--force"))
    assert code == 0 and "the ids begin with 1" in err and "--relabel" in err


@pytest.mark.parametrize("first", [2**31 + 5, 2**62, 2**63 + 5])
def test_ids_of_64_bits(cli, tmp_path, first):
    (tmp_path / "e.txt").write_text("".join(f"{first + k} {first + (3 * k) % 50}\n" for k in range(50)))
    assert cli("import", tmp_path / "e.txt", "-o", tmp_path / "g.h5", "--relabel")[0] == 0
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.num_nodes == 50
