"""Errors of the input: all ranks learn of one together, in one line with the remedy, and nothing is left behind."""

import re

import graphs
import h5py
import numpy as np
import pytest

from hpcgnn.app.dry_run import check_training
from hpcgnn.app.train import train
from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile.hdf5 import write_attributes

from ..runs import log_of, session_of
from ..small import written
from ..training import configure, generated

pytestmark = pytest.mark.ranks(2)

N = 40


def graph_of(**changes):
    return graphs.replace(graphs.with_task(graphs.random_undirected(N)), **changes)


def edit(path, dataset, index, value):
    """Change a stored value, checksums and all, as a faulty writer would."""
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
    "a flipped byte of features": ({}, lambda p: flip_a_byte(p, "nodes/features"), {}, "nodes/features is corrupted"),
    "a flipped byte of edges": ({}, lambda p: flip_a_byte(p, "topology/indices"), {}, "topology/indices is corrupted"),
    "no such map": ({}, None, {"partition": "absent"}, "python -m partition_tools partition"),
    "a label outside the classes": ({}, lambda p: edit(p, "nodes/labels", 3, 17), {}, "labels leave the classes"),
    "NaN features": ({}, lambda p: edit(p, "nodes/features", (5, 1), np.nan), {}, "NaN or infinite"),
    "infinite features": ({}, lambda p: edit(p, "nodes/features", (5, 1), np.inf), {}, "NaN or infinite"),
    "an edge beyond the nodes": ({}, lambda p: edit(p, "topology/indices", -1, N), {}, f"node {N}"),
    "a negative end of an edge": ({}, lambda p: edit(p, "topology/indices", 0, -1), {}, "verify the graph file"),
    "clusters that fall": ({}, lambda p: edit(p, "clusters/offsets", 1, -1), {}, "do not run"),
    "a broken row pointer": ({}, lambda p: edit(p, "topology/indptr", 7, 10**6), {}, "not monotone"),
    "no training node": ({"split": np.full(N, graphs.TEST, np.uint8)}, None, {}, "training split is empty"),
    "no training node with a label": ({"labels": np.full(N, -1)}, None, {}, "training split is empty"),
    "no labels at all": ({"labels": np.full(N, -1), "num_classes": 0}, None, {}, "import it again with --labels"),
    "no features": ({"features": None}, None, {}, "no node features"),
    "a buffer too small for a row": ({}, None, {"halo_buffer": 0.0001}, "too small for one row: expected at least"),
    "no buffer": ({}, None, {"halo_buffer": 0.0}, "--halo-buffer"),
    "a metric that does not fit": ({}, None, {"metric": "roc-auc"}, "--metric"),
}


def run(comm, path, run_dir, **options):
    config = configure(path, **{"run_dir": str(run_dir), "epochs": 1, "partition": "dealt", **options})
    return train(config, session_of(comm))


def refused(comm, path, run_dir, words, **options):
    with pytest.raises(HpcgnnError) as caught:
        run(comm, path, run_dir, **options)
    assert caught.value.everywhere, "else the job would be torn down"
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert comm.allgather_object(comm.rank) == list(range(comm.size)), "the ranks are still in step"


TMA = {"schedule": "tma", "average_steps": 2}
# graph, options, words of the message
MISTAKES = [
    ("undirected", {"schedule": "lazy", "layer_epochs": "5,5"}, "one whole number from 1, or 3 for the 3 layers"),
    ("undirected", {"schedule": "tma"}, "--schedule tma needs one of --average-steps"),
    ("undirected", {**TMA, "average_seconds": 1.0}, "needs one of --average-steps"),
    ("undirected", {**TMA, "correct_every": 6, "epochs": 5}, "--correct-every 6 is longer than the run"),
    ("undirected", {"model": "gat", "halo": "least"}, "--halo least: --model gat with --schedule sar needs"),
    ("undirected", {"schedule": "bns", "halo": "least"}, "--halo least: --model gcn with --schedule bns needs"),
    ("undirected", {"model": "gat", "schedule": "lazy", "intra_node": "shared"}, "--intra-node messages"),
    ("undirected", {"comm": "torch", "intra_node": "shared"}, "--intra-node messages"),
    ("undirected", {"keep": "int8", "model": "pna"}, "--keep exact"),
    ("undirected", {"keep": "int8", "model": "sage", "precision": "mixed"}, "--keep exact"),
    ("undirected", {"keep": "int8", "jumping": "max"}, "--keep exact"),
    ("undirected", {"keep": "int8", "schedule": "lazy"}, "--keep exact"),
    ("undirected", {"keep": "int8", "intra_node": "shared"}, "only --keep exact"),
    ("targets", {"metric": "accuracy"}, "--metric accuracy does not fit the task regression"),
    ("targets", {"loss": "cross-entropy"}, "--loss cross-entropy does not fit"),
    ("targets", {"task": "classification"}, "are for regression"),
    ("no validation", {"patience": 5}, "--patience 5: expected a graph with validation nodes, and"),
    ("no features", {}, "has no node features; "),
]


@pytest.mark.parametrize("name, options, words", MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
def test_options_that_do_not_fit(comm, paths, session_path, shared_path, name, options, words):
    """The graph, or each other. A dry run reports the same."""
    made = {"targets": {"targets": 2}, "no validation": {"train": 0.6, "val": 0.0}, "no features": {"features": 0}}
    path = paths[name] if name in paths else generated(comm, session_path / f"{name}.h5", **made[name])
    with pytest.raises(HpcgnnError) as caught:
        config = configure(path, run_dir=str(shared_path / "run"), **options)
        caught.reached = True
        train(config, session_of(comm))
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.everywhere or not hasattr(caught, "reached")
    comm.barrier()
    assert not (shared_path / "run").exists(), "nothing is left behind"
    if comm.rank == 0 and "validation" not in words:  # which takes the labels of all nodes
        with pytest.raises(HpcgnnError, match=re.escape(words)):
            check_training(configure(path, **options), [comm.size])


@pytest.mark.parametrize("case", CASES)
def test_bad_input(comm, shared_path, case):
    changes, spoil, options, words = CASES[case]
    path = written(comm, shared_path, graph_of(**changes), "g")[2]
    if comm.rank == 0 and spoil is not None:
        spoil(path)
    comm.barrier()
    refused(comm, path, shared_path / "run", words, **options)
    assert not (shared_path / "run").exists(), "nothing is left behind"


def test_a_run_directory_that_is_a_file_or_below_one(comm, shared_path):
    path = written(comm, shared_path, graph_of(), "g")[2]
    refused(comm, path, path, "choose another --run-dir")
    refused(comm, path, path / "run", "--run-dir")
    refused(comm, path, "/proc/none/run", "--run-dir")


def test_an_unbalanced_map_is_warned_of(comm, shared_path):
    path = written(comm, shared_path, graph_of(), "g")[2]
    assert run(comm, path, shared_path / "run", partition="all on last") == 0
    assert ("out of balance" in log_of(shared_path / "run")) == (comm.size > 1)


def test_a_loss_that_is_not_finite(comm, shared_path):
    """The parameters of the epoch before are still there, for the checkpoint that is kept."""
    path = written(comm, shared_path, graph_of(), "g")[2]
    refused(comm, path, shared_path / "other", "Lower --lr", optimizer="sgd", lr=1e30, epochs=9, checkpoint_every=1)
    for checkpoint in checkpoints(shared_path / "other"):
        assert all(tensor.isfinite().all() for tensor in Checkpoint(checkpoint).model.values())
