"""Formats of other programs and libraries: SciPy's matrices, METIS's graphs, Parquet."""

import pytest
from partition_helpers import edge_list, node_data, odd_graph

N = 60
SRC, DST = odd_graph()
FEATURES, LABELS, MASKS = node_data(N)


METIS = {
    "11": ("3 2 11 2", ["1 1 2 5", "1 1 1 5 3 7", "9 9 2 7"]),
    "1": ("3 2 1", ["2 5", "1 5 3 7", "2 7"]),
    "100": ("3 2 100", ["4 2", "4 1 3", "4 2"]),
    "": ("3 2", ["2", "1 3", "2"]),
}


@pytest.mark.parametrize("fmt", METIS)
def test_metis(imports, tmp_path, fmt):
    head, lines = METIS[fmt]
    (tmp_path / "g.graph").write_text("\n".join(["% made by hand", head, lines[0], "% and more", *lines[1:]]) + "\n")
    seen = imports(tmp_path / "g.graph")
    assert seen.meta.undirected
    weights = [5, 5, 7, 7] if fmt in ("1", "11") else None
    assert seen.edges == edge_list([0, 1, 1, 2], [1, 0, 2, 1], weights)
    assert ("weights of nodes are not read" in seen.said) == (fmt in ("11", "100"))
