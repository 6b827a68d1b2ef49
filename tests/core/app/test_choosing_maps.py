"""Which cluster map a run uses: the one asked for, the usual one, one made on the spot, or none at all."""

import graphs
import numpy as np
import pytest

from hpcgnn.app import choosing_maps
from hpcgnn.app.choosing_maps import choose_map
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli.partition_graph import partition_graph

CHOICES = registry_choices()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A graph of 16 clusters with a METIS map and a random one for 2 ranks."""
    path = tmp_path_factory.mktemp("maps") / "g.h5"
    graphs.planted(path, [2], features=4)
    partition_graph(path, [2], method="random-clusters")
    return path


def choose(path, ranks, **options):
    comm = SoloCommunicator()
    comm.size = ranks  # the choice needs no messages, only the number
    with GraphFile(path) as file:
        return choose_map(file, make_config({"graph": str(path), **options}, CHOICES), comm)


def test_the_map_made_by_default_unless_another_is_named(path):
    assert choose(path, 2)[0] == "metis"
    assert choose(path, 2, partition="random-clusters")[0] == "random-clusters"


def test_a_map_is_made_for_other_numbers_of_ranks_unless_one_is_named(path):
    name, clusters = choose(path, 3)
    assert name == "auto" and sorted(set(clusters.tolist())) == [0, 1, 2]
    for ranks, name in ((3, "metis"), (2, "mtis")):
        with pytest.raises(GraphError, match=f"no map '{name}' for {ranks} ranks.* or leave --partition out"):
            choose(path, ranks, partition=name)


@pytest.fixture(scope="module")
def unpartitioned(tmp_path_factory):
    """A graph of 300 nodes that `partition` never saw: one cluster."""
    return graphs.planted(tmp_path_factory.mktemp("maps") / "g.h5", features=4)


def test_a_small_graph_of_one_cluster_is_split_into_nodes(unpartitioned):
    """Once 2 ranks were "more than the 1 clusters", though a map could be made."""
    name, ranks = choose(unpartitioned, 3)
    assert name == "auto" and ranks.dtype == np.int32
    assert np.bincount(ranks, minlength=3).max() <= 1.04 * 100
    dealt = choose(unpartitioned, 3, partition="random-nodes")[1]
    with GraphFile(unpartitioned) as file:
        source, rows = file.read("topology/indices"), np.repeat(np.arange(300), np.diff(file.read("topology/indptr")))
    cut, at_random = (np.count_nonzero(each[source] != each[rows]) for each in (ranks, dealt))
    assert cut < 0.8 * at_random
    np.testing.assert_array_equal(ranks, choose(unpartitioned, 3)[1])


def test_a_directed_graph_is_split_along_all_its_edges(tmp_path):
    """Two directed rings: only the out-edges and in-edges together are symmetric, as METIS needs them."""
    source = np.arange(40)
    rings = graphs.PlainGraph("two rings", 40, source, source // 20 * 20 + (source + 1) % 20, False)
    where = graphs.Layout(source, [0, 40], {})
    graphs.write_file(tmp_path / "g.h5", graphs.with_task(rings), where, 1)
    ranks = choose(tmp_path / "g.h5", 2)[1]
    assert sorted(set(ranks[:20])) != sorted(set(ranks[20:])) and len(set(ranks[:20])) == 1


def test_what_cannot_be_split_into_nodes(unpartitioned, monkeypatch):
    with pytest.raises(ConfigError, match="301 ranks are more than the 300 nodes"):
        choose(unpartitioned, 301)
    monkeypatch.setattr(choosing_maps, "SPLIT_EDGES", 1000)
    with pytest.raises(ConfigError, match=r"partition the graph with --ranks 2 \["):
        choose(unpartitioned, 2)


def test_single_nodes_are_dealt_to_more_ranks_than_clusters(unpartitioned):
    ranks = choose(unpartitioned, 5, partition="random-nodes")[1]
    assert np.bincount(ranks).tolist() == [60] * 5
