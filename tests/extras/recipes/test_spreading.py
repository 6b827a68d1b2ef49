"""Correct & Smooth and label propagation on every number of ranks, and in users' commands.

The reference is SciPy's sparse matrices in one process.
"""

import csv

import graphs
import h5py
import numpy as np
import pytest
import scipy.sparse
import torch
from mpi.runs import evaluated, predicted, session_of, train_into
from mpi.small import stored
from mpi.training import CHOICES, configure, make_graphs

from hpcgnn.__main__ import build_parser
from hpcgnn.app.corrections import CORRECTIONS, asked
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.extras.recipes.correct_and_smooth import CorrectAndSmooth
from hpcgnn.extras.recipes.label_propagation import LabelRequest, propagate_labels
from hpcgnn.extras.recipes.spreading import Spreading

pytestmark = pytest.mark.ranks(2, 3)

CLASSES = 3
KINDS = ["random undirected weighted", "random directed", "two cliques", "no edges", "star"]


def matrix(graph):
    """D_in^-½ A D_out^-½, sparse."""
    weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight.astype(np.float64)
    a = scipy.sparse.csr_array((weight, (graph.dst, graph.src)), shape=(graph.num_nodes,) * 2)

    def roots(degree):
        return scipy.sparse.diags_array(np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))

    return roots(a.sum(1)) @ a @ roots(a.sum(0))


def spread(s, start, alpha, steps, bound):
    y = start
    for _ in range(steps):
        y = bound(alpha * (s @ y) + (1 - alpha) * start)
    return y


def serial(graph, probabilities, options):
    """(label propagation, Correct & Smooth) of all nodes in the original order."""
    s, known = matrix(graph), (graph.split == graphs.TRAIN) & (graph.labels >= 0)
    hot = np.zeros_like(probabilities)
    hot[known, graph.labels[known]] = 1
    propagated = spread(s, hot, options.smooth_alpha, options.steps, lambda y: y.clip(0, 1))
    error = np.where(known[:, None], hot - probabilities, 0)
    found = spread(s, error, options.correct_alpha, options.steps, lambda y: y.clip(-1, 1))
    size = np.abs(found).sum(1, keepdims=True)
    mean = np.abs(error).sum() / known.sum()
    factor = np.divide(mean, size, out=np.ones_like(size), where=size > mean / 1000)
    scores = probabilities + factor * found
    scores = np.where(known[:, None], hot, scores)
    return propagated, spread(s, scores, options.smooth_alpha, options.steps, lambda y: y.clip(0, 1))


def drawn(graph):
    """Probabilities that a model could give."""
    return torch.randn(graph.num_nodes, CLASSES, generator=torch.Generator().manual_seed(3)).double().softmax(1).numpy()


@pytest.mark.parametrize("name", KINDS)
def test_element_by_element(comm, session_path, name):
    graph, where, path = stored(comm, session_path, name)
    options = CorrectAndSmooth(7, 0.9, 0.6)
    probabilities = drawn(graph)
    expected = serial(graph, probabilities, options)
    for map_name in ("random", "one empty", "all on last"):
        local = graphs.load(path, where.maps[map_name], comm, cap=5)
        spreading = Spreading(local, comm, HaloBuffers(3 * 5 * CLASSES * 8), torch.float64)
        own = local.original_id.numpy()
        propagated = spreading.labels(options.smooth_alpha, options.steps)
        corrected = options.corrected(torch.from_numpy(probabilities)[own], spreading)
        np.testing.assert_allclose(propagated, expected[0][own], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(corrected, expected[1][own], rtol=1e-11, atol=1e-13)


@pytest.fixture(scope="module")
def planted(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


def plain(path):
    """The PlainGraph of a file."""
    with h5py.File(path) as file:
        ids, indptr = file["nodes/original_id"][:], file["topology/indptr"][:]
        order = np.argsort(ids)
        src, dst = ids[file["topology/indices"][:]], np.repeat(ids, np.diff(indptr))
        labels, split = file["nodes/labels"][:][order].astype(int), file["nodes/split"][:][order]
    return graphs.PlainGraph("file", len(ids), src, dst, True, None, None, labels, split, labels.max() + 1)


@pytest.mark.ranks(2)
def test_a_run_is_corrected_and_its_predictions_are(comm, planted, shared_path):
    """The classes of a run that had only just begun to learn, which its neighbours' labels make better."""
    path, run_dir, options = planted["undirected"], shared_path / "run", CorrectAndSmooth(20, 0.8, 0.7)
    train_into(comm, path, run_dir, model="sage", layers=2, epochs=2, precision="fp64", hidden=4)
    found, probabilities = [], []
    for corrections in ([], [options]):
        found.append(evaluated(comm, run_dir, "last", corrections))
        output = shared_path / f"{len(corrections)}.h5"
        predicted(comm, run_dir, output, probabilities=True, corrections=corrections)
        with h5py.File(output) as file:
            probabilities.append(file["probability"][:])
            assert ("correct_and_smooth" in file.attrs) == bool(corrections)
    graph = plain(path)
    _, expected = serial(graph, probabilities[0], options)
    np.testing.assert_allclose(probabilities[1], expected / expected.sum(1, keepdims=True), rtol=1e-6, atol=1e-9)
    right = expected.argmax(1) == graph.labels
    for split, number in (("val", graphs.VAL), ("test", graphs.TEST)):
        assert found[1][split] == pytest.approx(right[graph.split == number].mean())
    assert found[1]["test"] > found[0]["test"]
    assert found[0]["correct_and_smooth"] is None
    assert found[1]["correct_and_smooth"] == {"steps": 20, "correct_alpha": 0.8, "smooth_alpha": 0.7}


def test_the_command_label_propagation(comm, planted, shared_path, capsys):
    path, out = planted["undirected"], shared_path / "classes.csv"
    config, session = configure(path, partition="metis", precision="fp64"), session_of(comm)
    assert propagate_labels(config, session, LabelRequest(0.7, 20, str(out), probabilities=True)) == 0
    comm.barrier()
    graph = plain(path)
    expected, _ = serial(graph, np.zeros((graph.num_nodes, graph.num_classes)), CorrectAndSmooth(20, 0.5, 0.7))
    with open(out) as file:
        rows = list(csv.DictReader(file))
    assert [int(row["class"]) for row in rows] == expected.argmax(1).tolist()
    right = (expected.argmax(1) == graph.labels)[graph.split == graphs.TEST].mean()
    shown = comm.broadcast_object(capsys.readouterr().out if comm.rank == 0 else None)
    assert f"test accuracy     │ {right:.4f}" in shown, shown


def test_what_cannot_spread_is_refused(comm, planted, session_path, shared_path):
    session = session_of(comm)
    with pytest.raises(ConfigError, match="one class per node.*multilabel"):
        propagate_labels(configure(planted["directed multi-label"]), session, LabelRequest())
    with pytest.raises(ConfigError, match="one class per node.*multilabel"):
        CorrectAndSmooth().check("multilabel")
    for force in (False, True):
        path = planted["undirected"]
        with pytest.raises(ConfigError, match="is the input itself"):
            propagate_labels(configure(path), session, LabelRequest(output=str(path), force=force))
    graph, where, path = stored(comm, session_path, "path")
    local = graphs.load(path, where.maps["dealt"], comm)
    bare = graphs.replace(local, split=local.split * 0)
    with pytest.raises(GraphError, match="no label can spread"):
        Spreading(bare, comm, HaloBuffers(1 << 20), torch.float64)


def test_words_of_the_options():
    parser = build_parser(CHOICES)

    def parsed(*words):
        return asked(parser.parse_args(["evaluate", "run", *words]), CORRECTIONS)

    assert parsed() == []
    assert parsed("--correct-and-smooth") == [CorrectAndSmooth()]
    words = "--correct-and-smooth --spread-steps 9 --correct-alpha 0.5 --smooth-alpha 1".split()
    assert parsed(*words) == [CorrectAndSmooth(9, 0.5, 1.0)]
    with pytest.raises(ConfigError, match="--smooth-alpha belongs to --correct-and-smooth"):
        parsed("--smooth-alpha", "0.5")
    for wrong in ("--smooth-alpha 1.1", "--spread-steps 0", "--correct-alpha nan"):
        with pytest.raises(ConfigError, match=f"{wrong.split()[0]}: expected"):
            parsed("--correct-and-smooth", *wrong.split())
