"""Ranks that do not see the same graph file: copies, a file that one of them lacks, one that is replaced meanwhile."""

import shutil

import h5py
import pytest

from hpcgnn.app.choosing_maps import choose_map
from hpcgnn.config import make_config
from hpcgnn.errors import FormatError, HpcgnnError
from hpcgnn.graph import load
from hpcgnn.graph.load import open_graph

from ..small import stored
from ..training import CHOICES

pytestmark = pytest.mark.ranks(2, 3)


@pytest.fixture
def path(comm, shared_path):
    """A graph file with maps of all kinds for these ranks."""
    return stored(comm, shared_path, "random directed weighted")[2]


def test_copies_that_differ_in_whether_they_have_a_map(comm, path, shared_path):
    """Then it is made for all, and nobody waits."""
    mine = path.with_name(f"{comm.rank}.h5")
    shutil.copy(path, mine)
    if comm.rank == comm.size - 1:
        with h5py.File(mine, "r+") as file:
            del file["partitionings"]
    with open_graph(mine, comm) as file:
        _, cluster_to_rank = choose_map(file, make_config({"graph": str(mine), "partition": ""}, CHOICES), comm)
        everyone = comm.allgather_object(cluster_to_rank.tolist())
        assert everyone == [everyone[0]] * comm.size and sorted(set(everyone[0])) == list(range(comm.size))


def test_a_file_that_one_rank_does_not_see(comm, path):
    mine = path if comm.rank else path.with_name("absent.h5")
    with pytest.raises(HpcgnnError, match=r"no graph file.*\[rank 0 of"):
        open_graph(mine, comm)
    assert comm.allgather_object(comm.rank) == list(range(comm.size))


def test_a_file_that_is_replaced_meanwhile(comm, path, monkeypatch):
    """Rank 0 has read the one before; the others would read their slabs of the new one."""

    def replaced(file, labelled):
        new = path.with_name("new.h5")
        shutil.copy(path, new)
        new.replace(path)

    monkeypatch.setattr(load, "check_trainable", replaced)
    with pytest.raises(FormatError, match="was replaced while the ranks opened it") as caught:
        open_graph(path, comm)
    assert caught.value.everywhere
