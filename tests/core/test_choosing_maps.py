"""Which cluster map a run uses: the one asked for, the usual one, one made on the spot, or none at all."""

import pytest

from hpcgnn.app.choosing_maps import choose_map
from hpcgnn.comm import SoloCommunicator
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.choices import registry_choices
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

CHOICES = registry_choices()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A graph of 16 clusters with a METIS map and a random one for 2 ranks."""
    path = tmp_path_factory.mktemp("maps") / "g.h5"
    generate_graph("planted", path, Spec(nodes=300, degree=6, features=4, classes=3, seed=1))
    partition_graph(path, [2], num_clusters=16)
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


def test_one_rank_needs_no_map(path):
    name, clusters = choose(path, 1)
    assert name == "whole" and not clusters.any()


@pytest.mark.parametrize("options", [{}, {"partition": "metis"}], ids=str)
def test_a_map_is_made_for_other_numbers_of_ranks_if_allowed(path, options):
    """A named method that has no map for this number of ranks once was refused with the advice to allow what was
    allowed.
    """
    with pytest.raises(GraphError, match="no map 'metis' for 3 ranks"):
        choose(path, 3, **options)
    name, clusters = choose(path, 3, auto_partition=True, **options)
    assert name == "auto" and sorted(set(clusters.tolist())) == [0, 1, 2]


def test_a_misspelt_name_is_an_error_even_if_maps_may_be_made(path):
    """It once trained on a map made on the spot, without a word."""
    with pytest.raises(GraphError, match="no map 'mtis'"):
        choose(path, 2, partition="mtis", auto_partition=True)


def test_more_ranks_than_clusters(path):
    with pytest.raises(ConfigError, match="17 ranks are more than the 16 clusters"):
        choose(path, 17, auto_partition=True)
