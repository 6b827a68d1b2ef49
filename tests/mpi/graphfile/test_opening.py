"""What all ranks must know of a graph file is read by rank 0 alone, if they have the same file."""

import shutil

import graphs
import h5py
import pytest

from hpcgnn.app.choosing_maps import choose_map
from hpcgnn.config import make_config
from hpcgnn.errors import FormatError, GraphError, HpcgnnError
from hpcgnn.graph import load
from hpcgnn.graph.load import load_local_graph, open_graph
from hpcgnn.graphfile.storage import GraphFile

from ..small import stored
from ..training import CHOICES

pytestmark = pytest.mark.ranks(2, 3)

FOR_ALL = ("attributes", "structure", "partitionings", "clusters", "maps")


@pytest.fixture
def path(comm, shared_path):
    """A graph file with maps of all kinds for these ranks."""
    return stored(comm, shared_path, "random directed weighted")[2]


@pytest.fixture
def looked_at(monkeypatch):
    """The set of what this rank reads of a graph file, of FOR_ALL and names of datasets."""
    found = set()

    def noting(owner, name, what):
        before = getattr(owner, name)

        def noted(*given, **named):
            found.add(what(*given) if callable(what) else what)
            return before(*given, **named)

        monkeypatch.setattr(owner, name, noted)

    def part(file, name, *rest):
        folder = name.split("/")[0]
        return {"clusters": "clusters", "partitionings": "maps"}.get(folder, name)

    noting(GraphFile, "_read_meta", "attributes")
    noting(GraphFile, "partitionings", "partitionings")
    noting(GraphFile, "read", part)
    noting(load, "check_structure", "structure")
    return found


def opened(comm, path, **options):
    """(GraphFile, name of the map, the map) as a job chooses them."""
    file = open_graph(path, comm)
    return file, *choose_map(file, make_config({"graph": str(path), **options}, CHOICES), comm)


@pytest.mark.processes
@pytest.mark.parametrize(
    "options", [{"partition": "random"}, {"partition": "random-nodes"}, {"partition": ""}],
    ids=str,
)  # fmt: skip
def test_one_rank_reads_for_all(comm, path, looked_at, options):
    file, name, cluster_to_rank = opened(comm, path, **options)
    with file:
        assert file.shared and (comm.rank == 0) == bool(looked_at)
        load_local_graph(file, cluster_to_rank, comm, 10, "keep", graphs.torch.float32)
    if comm.rank == 0:
        assert looked_at >= {"attributes", "structure", "clusters", "topology/indices"}
    else:
        assert not looked_at & set(FOR_ALL) and "topology/indices" in looked_at
    everyone = comm.allgather_object((name, cluster_to_rank.tolist(), str(cluster_to_rank.dtype), file.meta))
    assert everyone == [everyone[0]] * comm.size


def test_copies_of_a_file_are_read_by_each_rank(comm, path, looked_at):
    """As on the disks of nodes: no rank relies on what another has read of another file."""
    mine = path.with_name(f"{comm.rank}.h5")
    shutil.copy(path, mine)
    file, name, cluster_to_rank = opened(comm, mine, partition="random")
    with file:
        assert file.shared == (comm.size == 1) and looked_at >= {"attributes", "structure", "maps"}
    assert comm.allgather_object((name, cluster_to_rank.tolist())) == [(name, cluster_to_rank.tolist())] * comm.size


def test_copies_that_differ_in_whether_they_have_a_map(comm, path, shared_path):
    """Then it is made for all, and nobody waits."""
    mine = path.with_name(f"{comm.rank}.h5")
    shutil.copy(path, mine)
    if comm.rank == comm.size - 1:
        with h5py.File(mine, "r+") as file:
            del file["partitionings"]
    file, _, cluster_to_rank = opened(comm, mine, partition="")
    with file:
        everyone = comm.allgather_object(cluster_to_rank.tolist())
        assert everyone == [everyone[0]] * comm.size and sorted(set(everyone[0])) == list(range(comm.size))


@pytest.mark.parametrize("wrong", ["gone", "no labels", "no map", "clusters"])
def test_what_rank_0_finds_is_raised_everywhere_and_says_no_rank(comm, path, wrong):
    if comm.rank == 0:
        with h5py.File(path, "r+", libver="latest") as file:
            if wrong == "no labels":
                file.attrs["num_classes"] = 0
            if wrong == "clusters":
                file["clusters/offsets"][1] = -1
        if wrong == "gone":
            path.unlink()
    comm.barrier()
    words = {
        "gone": "no graph file",
        "no labels": "import it with labels",
        "no map": "it has",
        "clusters": "do not run",
    }
    with pytest.raises(HpcgnnError, match=words[wrong]) as caught:
        file, _, cluster_to_rank = opened(comm, path, partition="absent" if wrong == "no map" else "dealt")
        load_local_graph(file, cluster_to_rank, comm, 10, "keep", graphs.torch.float32)
    assert caught.value.everywhere and "[rank" not in str(caught.value)
    assert isinstance(caught.value, FormatError if wrong in ("gone", "clusters") else GraphError)


def test_a_file_that_one_rank_does_not_see(comm, path):
    if comm.size == 1:
        return
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
