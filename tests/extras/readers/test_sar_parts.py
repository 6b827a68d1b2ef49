"""Folders that DGL partitioned by the steps of SAR's examples (sar_parts.py) are read, with their parts as a map."""

import json
import tarfile

import numpy as np
import pytest
import sar_parts

from hpcgnn.extras.readers.distdgl import Options
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("sar")
    with tarfile.open(sar_parts.ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    return home


def edges_of(file):
    indptr, src = file.read("topology/indptr"), file.read("topology/indices")
    return src, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


@pytest.mark.parametrize("name", ["arxiv", "cora"])
def test_one_type(folder, tmp_path, name):
    import_graph(folder / name, tmp_path / "g.h5")
    (book,) = (folder / name).glob("*.json")
    ranges = np.array(json.loads(book.read_text())["node_map"]["_N"])
    with GraphFile(tmp_path / "g.h5") as file:
        ends, number = np.stack(edges_of(file)), file.read("nodes/features")[:, 0].astype(int)
        assert file.meta.undirected
        np.testing.assert_array_equal(np.unique(number[ends], axis=1), sar_parts.bidirected())
        assert ends.shape == sar_parts.bidirected().shape
        np.testing.assert_array_equal(file.read("nodes/labels"), number % 3)
        np.testing.assert_array_equal(file.read("nodes/split"), np.array([1, 2, 3, 0])[number % 4])
        np.testing.assert_array_equal(file.read("clusters/offsets"), [0, *ranges[:, 1]])
        assert file.cluster_map("distdgl", 2)[0].tolist() == [0, 1]


def test_several_types(folder, tmp_path):
    """`features` equal to `feat`, and the number of the relation at each edge, need no option."""
    told = Reporter()
    import_graph(
        folder / "mag", tmp_path / "g.h5", tables=Options(ignore=("year",)), resources=Resources(reporter=told)
    )
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.num_features == 2 and file.cluster_map("distdgl", 2)[0].tolist() == [0, 1]
        kinds, relations = file.meta.type_names["nodes"], file.meta.type_names["edges"]
        papers = file.read("nodes/type") == kinds.index("paper")
        (src, dst), kind = edges_of(file), file.read("edges/type")
        number = file.read("nodes/features")[:, 0].astype(int)
        np.testing.assert_array_equal(file.read("nodes/labels"), np.where(papers, number % 3, -1))
        split = np.where(papers, np.array([1, 2, 3, 0])[number % 4], 0)
        np.testing.assert_array_equal(file.read("nodes/split"), split)
        cited = kind == relations.index("paper___cites___paper")
        expected = np.stack(sar_parts.ends(2, 20, 12, 12))
        found = np.stack([number[src[cited]], number[dst[cited]]])
        np.testing.assert_array_equal(found[:, np.lexsort(found)], expected[:, np.lexsort(expected)])
        counts = {"___".join(relation): count for relation, count in sar_parts.RELATIONS.items()}
        assert dict(zip(relations, np.bincount(kind))) == counts
    assert sum("no features for author" in warning for warning in told.warnings) == 1
