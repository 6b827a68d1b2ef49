"""Features, and their aggregate, on disk: the same bits as in memory, and as many bytes as foretold."""

import math

import h5py
import numpy as np
import pytest
import torch
from mpi.runs import evaluated, of_run, predicted, train_into
from mpi.training import FEATURES, configure, make_graphs, trained

from hpcgnn.app.loaded_model import load_trained
from hpcgnn.errors import ConfigError, RemoteError
from hpcgnn.extras.offload import on_disk
from hpcgnn.extras.offload.features import Placing, place, reads_of_epoch
from hpcgnn.extras.offload.on_disk import OnDisk
from hpcgnn.extras.offload.scratch import ScratchFile
from hpcgnn.extras.offload.writing import write_features
from hpcgnn.ops.row_tiles import tiles_of

pytestmark = pytest.mark.ranks(2)

TILE = 64
ALL_KEEP = {"hidden": 16, "layers": 2, "keep_input": "always"}
CASES = {
    "gcn": {"model": "gcn"},
    "sage": {"model": "sage", "dropout": 0.5},
    "sage, mixed": {"model": "sage", "precision": "mixed"},
    "sage, pruned": {"model": "sage", "prune": "auto", "dropout": 0.5},
    "gin": {"model": "gin", "dropout": 0.5},
    "sgc": {"model": "sgc"},
    "lazy": {"model": "sage", "schedule": "lazy", "epochs": 2},
    "gat": {"model": "gat", "heads": 2},
    "gat, pruned": {"model": "gat", "heads": 2, "prune": "auto", "dropout": 0.5},
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Features of a small graph are many blocks."""
    monkeypatch.setattr(on_disk, "REQUEST", 2 * TILE * FEATURES * 4)


def stored(folder, columns, results):
    """Writes the features of a share to a file in a folder. columns, results: as of OnDisk."""

    def store(arena, local, source):
        shape = local.num_owned, source.columns
        matrix = OnDisk(ScratchFile(str(folder)), arena, shape, source.dtype, TILE, columns, results)
        return write_features(matrix, source.file, source.ranges, source.order)

    return store


@pytest.mark.parametrize("name", CASES)
@tiles_of(TILE)
def test_the_same_bits(comm, session_path, tmp_path, small_blocks, name):
    config = configure(make_graphs(comm, session_path)["undirected"], **{**ALL_KEEP, **CASES[name]})
    losses, metrics, parameters, _ = trained(comm, config)
    for columns, results in ((FEATURES, False), (16, True)):  # at once, and in two groups of columns
        again, found, others, trainer = trained(comm, config, stored(tmp_path, columns, results))
        features = trainer.local.features
        assert isinstance(features, OnDisk)
        assert again == losses and found == metrics
        assert all(torch.equal(a, b) for a, b in zip(parameters, others))
        _as_foretold(trainer, results)


def _bytes_read(matrix, stop=None):
    """Bytes of the file, by who reads rows 0 … stop - 1 (None: all)."""
    last = math.ceil((len(matrix) if stop is None else stop) / matrix.block)
    return sum(block.size for _, blocks in matrix._groups for block in blocks[:last])


def _as_foretold(trainer, results):
    """An epoch reads the input of its first layer, forwards and backwards, and an evaluation all of it."""
    scratch, features = trainer.local.features.scratch, trainer.local.features
    conv, aggregate = trainer.model.convs[0], trainer.constants.get("input aggregate")
    projects = trainer.model.spec.options.model == "gat"  # again for the gradient, and of all rows
    # Layers that are trained one by one keep theirs themselves.
    if trainer.local.num_owned == 0 or aggregate is None and not projects:
        return
    inputs = [features] if projects else [aggregate] * results + [features] * conv.traits.reads_self
    outputs = None if projects else trainer.training_graph.at(0)._local.outputs
    stop = None if outputs is None else 0 if len(outputs) == 0 else int(outputs[-1]) + 1
    times = 3 if projects else 2
    assert reads_of_epoch(trainer.model.spec) == times
    before = scratch.read, scratch.written
    trainer.step(9)
    assert scratch.read - before[0] == times * sum(_bytes_read(each, stop) for each in inputs)
    trainer.evaluate()
    assert scratch.read - before[0] == sum(times * _bytes_read(each, stop) + _bytes_read(each) for each in inputs)
    assert scratch.written == before[1]


@tiles_of(TILE)
def test_a_trained_run_with_features_on_disk(comm, session_path, shared_path, job_session, small_blocks, monkeypatch):
    """Evaluations and predictions have the same bits; too little memory is refused, with the least that would do."""
    run_dir, folder = shared_path / "run", shared_path / "scratch"
    train_into(comm, make_graphs(comm, session_path)["undirected"], run_dir, epochs=2, model="sage", **ALL_KEEP)
    if comm.rank == 0:
        folder.mkdir()
    comm.barrier()
    found = []
    for given in ({"intra_node": "messages"}, {"memory": "100G", "scratch": folder}):
        monkeypatch.setattr("hpcgnn.extras.offload.features.place", lambda *_: Placing(True, True, 0.7))
        output = shared_path / f"p{len(found)}.h5"
        predicted(comm, run_dir, output, options=given, logits=True, layer=1)
        record = evaluated(comm, run_dir, "last", **given)
        with h5py.File(output) as file:
            rows = [file[name][:] for name in ("prediction", "logit", "embedding")]
        found.append((rows, [record[split] for split in ("train", "val", "test")]))
        comm.barrier()
        trained_again = load_trained(of_run(run_dir, **given), job_session, "last")
        assert isinstance(trained_again.trainer.local.features, OnDisk) == ("memory" in given)
    assert found[0][1] == found[1][1]
    assert all(np.array_equal(a, b) for a, b in zip(found[0][0], found[1][0]))
    wanted = r"--memory 1M is too little: .* expected at least --memory \d+M for"
    with pytest.raises((ConfigError, RemoteError), match=wanted):
        load_trained(of_run(run_dir, memory="1M", scratch=folder), job_session, "last")


def test_what_goes_where():
    """With room for all nothing goes; features go before their aggregate; an input without readers goes first."""
    features = aggregate = 1000

    def placed(room, reads_input=True, kept=500):
        found = place(room, 300, kept, 60, (features, aggregate), reads_input)
        return found.features, found.aggregate

    assert placed(2000) == placed(2400) == (False, False)
    assert placed(1999) == placed(1060) == (True, False)
    assert placed(1059) == placed(0) == (True, True)
    assert placed(2400, reads_input=False) == (True, False)  # else 100 bytes of what a step keeps would go
    assert placed(2500, reads_input=False) == (False, False)
    assert place(0, 300, 0, 60, (1000, 1000), True).share == 0.12
