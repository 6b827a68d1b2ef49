"""Whatever is wrong with the input, all ranks learn of it together, in one line that says what to do, and nothing
is left behind.
"""

from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import pytest

from hpcgnn.app.train import train
from hpcgnn.engine.checkpoint import checkpoints, read_checkpoint
from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile.attributes import write_attributes

from ..training import configure

pytestmark = [pytest.mark.ranks(2), pytest.mark.usefixtures("no_pictures")]

N = 40


def graph_of(**changes):
    return graphs.replace(graphs.with_task(graphs.random_undirected(N)), **changes)


def changed(name, index, value):
    array = getattr(graph_of(), name).copy()
    array[index] = value
    return {name: array}


def edit(path, dataset, index, value):
    """Change a stored value, checksums and all: what a faulty writer would leave."""
    with h5py.File(path, "r+", libver="latest") as file:
        file[dataset][index] = value


def flip_a_byte(path, dataset):
    with h5py.File(path, "r") as file:
        chunk = file[dataset].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size - 9] ^= 1
    path.write_bytes(data)


def set_attribute(path, name, value):
    with h5py.File(path, "r+", libver="latest") as file:
        write_attributes(file, **{name: value})


# name: (changes of the graph, what is then done to its file, options, words of the message)
CASES = {
    "missing": ({}, lambda p: p.unlink(), {}, "no graph file"),
    "truncated": ({}, lambda p: p.write_bytes(p.read_bytes()[:-2000]), {}, "truncated, corrupted or foreign"),
    "foreign": ({}, lambda p: p.write_text("1 2\n2 3\n"), {}, "truncated, corrupted or foreign"),
    "another HDF5 file": ({}, lambda p: set_attribute(p, "format", "other"), {}, "import the graph"),
    "another version": ({}, lambda p: set_attribute(p, "format_version", 99), {}, "format version 99"),
    "a flipped byte in the features": (
        {},
        lambda p: flip_a_byte(p, "nodes/features"),
        {},
        "nodes/features is corrupted",
    ),
    "a flipped byte in the edges": (
        {},
        lambda p: flip_a_byte(p, "topology/indices"),
        {},
        "topology/indices is corrupted",
    ),
    "no such map": ({}, None, {"partition": "absent"}, "python -m partition_tools partition"),
    "a label outside the classes": ({}, lambda p: edit(p, "nodes/labels", 3, 17), {}, "labels leave the classes"),
    "NaN features": (changed("features", (5, 1), np.nan), None, {}, "NaN or infinite"),
    "infinite features": (changed("features", (5, 1), np.inf), None, {}, "NaN or infinite"),
    "an edge beyond the nodes": ({}, lambda p: edit(p, "topology/indices", -1, N), {}, f"node {N}"),
    "a negative end of an edge": ({}, lambda p: edit(p, "topology/indices", 0, -1), {}, "verify the graph file"),
    "a broken row pointer": ({}, lambda p: edit(p, "topology/indptr", 7, 10**6), {}, "not monotone"),
    "no training node": ({"split": np.full(N, graphs.TEST, np.uint8)}, None, {}, "training split is empty"),
    "no training node with a label": ({"labels": np.full(N, -1)}, None, {}, "training split is empty"),
    "no labels at all": ({"labels": np.full(N, -1), "num_classes": 0}, None, {}, "import it with labels"),
    "no features": ({"features": None}, None, {}, "no node features"),
    "a buffer too small for a row": ({}, None, {"halo_buffer": 0.0001}, "too small for one row: expected at least"),
    "no buffer": ({}, None, {"halo_buffer": 0.0}, "--halo-buffer"),
    "a metric that does not fit": ({}, None, {"metric": "roc-auc"}, "--metric"),
}


def run(comm, path, run_dir, **options):
    config = configure(path, **{"run_dir": str(run_dir), "epochs": 1, "partition": "dealt", **options})
    return train(config, SimpleNamespace(comm=comm, threads=1))


@pytest.fixture
def write(comm, shared_path):
    """A function that writes a graph file, spoiled or not."""

    def write(graph, spoil=None):
        path = shared_path / "g.h5"
        if comm.rank == 0:
            where = graphs.layout(graph, comm.size)
            graphs.write_file(path, graph, where, comm.size)
            if spoil is not None:
                spoil(path)
        comm.barrier()
        return path

    return write


def refused(comm, path, run_dir, words, **options):
    with pytest.raises(HpcgnnError) as caught:
        run(comm, path, run_dir, **options)
    assert caught.value.everywhere, "else the job would be torn down"
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert comm.allgather_object(comm.rank) == list(range(comm.size)), "the ranks are still in step"


@pytest.mark.parametrize("case", CASES)
def test_bad_input(comm, shared_path, write, case):
    changes, spoil, options, words = CASES[case]
    refused(comm, write(graph_of(**changes), spoil), shared_path / "run", words, **options)
    assert not (shared_path / "run").exists(), "nothing is left behind"


def test_a_run_directory_that_is_a_file_or_below_one(comm, shared_path, write):
    path = write(graph_of())
    refused(comm, path, path, "choose another --run-dir")
    refused(comm, path, path / "run", "--run-dir")
    refused(comm, path, "/proc/none/run", "--run-dir")


def test_an_unbalanced_map_is_warned_of(comm, shared_path, write):
    path = write(graph_of())
    assert run(comm, path, shared_path / "run", partition="all on last") == 0
    assert ("out of balance" in (shared_path / "run" / "log.txt").read_text()) == (comm.size > 1)


def test_a_loss_that_is_not_finite(comm, shared_path, write):
    """The layer is named, and the parameters of the epoch before are still there, for the checkpoint that is kept."""
    path = write(graph_of())
    refused(comm, path, shared_path / "run", "of layer convs.", optimizer="sgd", lr=1e30, epochs=9)
    refused(comm, path, shared_path / "other", "Lower --lr", optimizer="sgd", lr=1e30, epochs=9, checkpoint_every=1)
    for checkpoint in checkpoints(shared_path / "other"):
        assert all(tensor.isfinite().all() for tensor in read_checkpoint(checkpoint)[1].values())
