"""`hpcgnn predict` on every number of ranks, against a model that is computed by hand from its checkpoint."""

import json

import h5py
import numpy as np
import pandas
import pytest
import torch

import partition_tools
from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.errors import ConfigError, FormatError, GraphError
from hpcgnn.graphfile import original_order
from hpcgnn.graphfile.hdf5 import read_attributes
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.outputs import files

from ..runs import predicted, summary, train_into

pytestmark = pytest.mark.ranks(2, 3)

NODES, WIDTH = 90, 5
WORDS = {"cat": 0, "cow": 1, "dog": 2}
IDS = [f"nœud {n * 7919 % 1000}" for n in range(NODES)]
NUMBERS = [n * 7919 % 1000 for n in range(NODES)]


def save(path, seed, ids, width=WIDTH, labelled=True):
    """Write a graph with words for labels; the last node has no edges."""
    draw, ids = np.random.default_rng(seed), np.array(ids)
    arrays = ids[draw.integers(0, NODES - 1, (2, 240))], draw.standard_normal((NODES, width))
    how = {"labels": draw.choice(list(WORDS), NODES), "fractions": (0.5, 0.2)} if labelled else {}
    partition_tools.save_graph(path, *arrays, node_ids=ids, ranks=[1, 2, 3, 4], **how)


@pytest.fixture(scope="module")
def trained(comm, session_path):
    """(folder with three graphs, run directory on the first)."""
    folder = session_path / "predicted"
    if comm.rank == 0:
        folder.mkdir()
        save(folder / "own.h5", 1, IDS)
        save(folder / "new.h5", 2, NUMBERS, labelled=False)
        save(folder / "wide.h5", 3, IDS, WIDTH + 1)
    comm.barrier()
    train_into(comm, folder / "own.h5", folder / "run", epochs=4, lr=0.05, model="sage", norm="batch")
    return folder, folder / "run"


def by_hand(graph, run_dir):
    """[hidden states after layer 1 and 2, logits] of all nodes in their original order, in float64."""
    state = Checkpoint(checkpoints(run_dir)[-1]).model
    state = {name: tensor.double().numpy() for name, tensor in state.items()}
    with h5py.File(graph) as file:
        place = np.argsort(file["nodes/original_id"][:])
        indptr, indices = file["topology/indptr"][:], file["topology/indices"][:]
        x = file["nodes/features"][:].astype(np.float64)
    mean = np.zeros((NODES, NODES))
    for node in range(NODES):
        for source in indices[indptr[node] : indptr[node + 1]]:
            mean[node, source] += 1 / (indptr[node + 1] - indptr[node])
    states = []
    for layer in range(3):
        conv = f"convs.{layer}"
        y = mean @ x @ state[f"{conv}.neighbour.weight"] + x @ state[f"{conv}.own.weight"]
        if layer == 2:
            y += state[f"{conv}.own.bias"]
        else:
            norm = f"norms.{layer}"
            y = (y - state[f"{norm}.running_mean"]) / np.sqrt(state[f"{norm}.running_var"] + 1e-5)
            y = np.maximum(y * state[f"{norm}.weight"] + state[f"{norm}.bias"], 0)
        states.append(y[place])
        x = y
    return states


@pytest.mark.parametrize("layer", [1, 2])
def test_all_kinds_of_rows_with_the_users_ids(comm, trained, shared_path, monkeypatch, layer):
    folder, run_dir = trained
    monkeypatch.setattr(original_order, "SLAB_BYTES", 1000)
    predicted(comm, run_dir, shared_path / "p.h5", probabilities=True, logits=True, layer=layer)
    states = by_hand(folder / "own.h5", run_dir)
    with h5py.File(shared_path / "p.h5") as file:
        assert file["id"].asstr()[:].tolist() == IDS
        assert file["class_names"].asstr()[:].tolist() == list(WORDS)
        np.testing.assert_allclose(file["embedding"][:], states[layer - 1], atol=1e-5)
        np.testing.assert_allclose(file["logit"][:], states[2], atol=1e-5)
        np.testing.assert_allclose(file["probability"][:], torch.from_numpy(states[2]).softmax(1), atol=1e-5)
        np.testing.assert_array_equal(file["prediction"][:], file["logit"][:].argmax(1))
        assert file["prediction"].shape == (NODES,) and file["prediction"].dtype == np.int64, "as labels are"
        assert "node" not in file
        found = read_attributes(file)
        assert (found["layer"], found["epoch"], found["weights"]) == (layer, 4, "last")


def test_tables_and_arrays_of_some_nodes(comm, trained, shared_path, monkeypatch):
    monkeypatch.setattr(original_order, "SLAB_BYTES", 200)
    monkeypatch.setattr(files, "_NUMBERS", 12)
    folder, run_dir = trained
    states = by_hand(folder / "own.h5", run_dir)
    some = [IDS[n] for n in (50, 3, 89, 3, 4)]
    if comm.rank == 0:
        (shared_path / "some.txt").write_text("id\n" + "\n".join(some) + "\n\n")
    comm.barrier()
    nodes = [3, 4, 50, 89]
    for name in ("p.csv", "p.h5"):
        predicted(comm, run_dir, shared_path / name, logits=True, nodes=str(shared_path / "some.txt"))
    table = pandas.read_csv(shared_path / "p.csv", dtype=str)
    assert list(table) == ["node", "id", "class", "class_name", "logit_0", "logit_1", "logit_2"]
    assert table["node"].astype(int).tolist() == nodes and table["id"].tolist() == [IDS[node] for node in nodes]
    assert table["class_name"].map(WORDS).tolist() == table["class"].astype(int).tolist()
    array = table.iloc[:, 4:].to_numpy(np.float32)
    np.testing.assert_allclose(array, states[2][nodes], atol=1e-5)
    with h5py.File(shared_path / "p.h5") as file:
        assert file["node"][:].tolist() == nodes and file["id"].asstr()[:].tolist() == [IDS[n] for n in nodes]
        np.testing.assert_array_equal(file["logit"][:], array)


def test_on_another_graph(comm, trained, paths, shared_path):
    """One without labels, with numbers for ids; refused where the features differ."""
    folder, run_dir = trained
    for name in ("p.h5", "p.csv"):
        predicted(comm, run_dir, shared_path / name, graph=folder / "new.h5", logits=True)
    states = by_hand(folder / "new.h5", run_dir)
    assert pandas.read_csv(shared_path / "p.csv")["id"].tolist() == NUMBERS
    with h5py.File(shared_path / "p.h5") as file, GraphFile(folder / "new.h5") as graph:
        assert graph.meta.num_classes == 0 and read_attributes(file)["graph_uuid"] == graph.meta.uuid
        np.testing.assert_allclose(file["logit"][:], states[2], atol=1e-5)
        assert file["id"][:].tolist() == NUMBERS
    unlike = (folder / "wide.h5", "expected features 5, got 6"), (paths["undirected"], "expected features 5")
    for graph, words in unlike:
        with pytest.raises(GraphError, match=words) as caught:
            predicted(comm, run_dir, shared_path / "no.h5", graph=graph)
        assert caught.value.everywhere
    comm.barrier()
    assert not (shared_path / "no.h5").exists()


def test_several_labels(comm, shared_path):
    """Names of the labels, from the columns of a DataFrame, are headings, and an attribute of arrays."""
    graph, draw, names = shared_path / "g.h5", np.random.default_rng(4), ["sports", "arts", "node"]
    if comm.rank == 0:
        labels = pandas.DataFrame(draw.integers(0, 2, (NODES, 3)), columns=names)
        arrays = draw.integers(0, NODES, (2, 300)), draw.standard_normal((NODES, 4)), labels
        partition_tools.save_graph(graph, *arrays, fractions=(0.5, 0.2), ranks=[1, 2, 3, 4])
    comm.barrier()
    train_into(comm, graph, shared_path / "run", epochs=2)
    predicted(comm, shared_path / "run", shared_path / "p.h5", logits=True, probabilities=True)
    with h5py.File(shared_path / "p.h5") as file:
        logits = torch.from_numpy(file["logit"][:])
        np.testing.assert_allclose(file["probability"][:], torch.sigmoid(logits).numpy(), atol=1e-6)
        np.testing.assert_array_equal(file["prediction"][:], (logits > 0).int().numpy())
        assert "id" not in file and "class_names" not in file
        assert json.loads(read_attributes(file)["column_names"]) == names
        predicted_labels = file["prediction"][:]
    predicted(comm, shared_path / "run", shared_path / "p.csv", logits=True)
    table = pandas.read_csv(shared_path / "p.csv")
    assert list(table) == ["node", *(f"label_{name}" for name in names), *(f"logit_{name}" for name in names)]
    np.testing.assert_array_equal(table.iloc[:, 1:4], predicted_labels)
    assert [row["name"] for row in summary(shared_path / "run")["classes"]["test"]] == names


def test_what_is_refused(comm, trained, shared_path):
    _, run_dir = trained
    if comm.rank == 0:
        (shared_path / "no.txt").write_text("nœud 0\nnobody\n")
    comm.barrier()
    for asked, kind, words in (
        ({"layer": 3}, ConfigError, r"--embeddings 3: expected a layer in 1\.\.2"),
        ({"nodes": str(shared_path / "no.txt")}, FormatError, "no node has the id nobody"),
        ({"nodes": str(shared_path / "absent.txt")}, FormatError, "there is no such file"),
    ):
        with pytest.raises(kind, match=words) as caught:
            predicted(comm, run_dir, shared_path / "p.h5", **asked)
        assert caught.value.everywhere
    assert not list(shared_path.glob("p.h5"))
