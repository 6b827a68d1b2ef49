"""Generated graphs are a function of their parameters, and have the statistics that they promise."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
import scipy.sparse
from partition_helpers import drawn, graph_data, view

from hpcgnn.errors import ConfigError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.main import main
from partition_tools.generators import GENERATORS
from partition_tools.generators.spec import Spec

ARRAYS = [f"topology/{name}" for name in ("indptr", "indices")] + [f"edges/{name}" for name in ("weight", "type")]
ARRAYS += [f"nodes/{name}" for name in ("features", "labels", "split")]


@pytest.mark.parametrize("model", GENERATORS)
def test_same_parameters_same_file(cli, tmp_path, model):
    words = ("--nodes", 600, "--degree", 8, "--features", 6, "--classes", 4, "--weighted", "--edge-types", 3)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert cli("generate", model, "-o", tmp_path / f"{name}.h5", "--seed", seed, *words)[0] == 0
    contents = {}
    for name in "abc":
        assert cli("verify", tmp_path / f"{name}.h5")[0] == 0
        with GraphFile(tmp_path / f"{name}.h5") as file:
            contents[name] = file.meta.uuid, b"".join(file.read(array).tobytes() for array in ARRAYS)
    assert contents["a"] == contents["b"]
    assert contents["a"][0] != contents["c"][0] and contents["a"][1] != contents["c"][1]


@pytest.mark.parametrize("model", GENERATORS)
@pytest.mark.parametrize("directed", [False, True])
def test_statistics(model, directed):
    spec = Spec(nodes=5000, degree=12, features=16, classes=5, seed=7, directed=directed, train=0.6, val=0.1)
    data = graph_data(drawn(model, spec))
    degrees = np.diff(data.edges.indptr)
    assert 0.99 * 12 < degrees.mean() <= 12 and degrees.max() > 5 * degrees.mean()
    assert (data.edges_out is None) != directed
    row = np.repeat(np.arange(5000), degrees)
    assert data.num_self_loops == 0 and len(np.unique(row * 5000 + data.edges.indices)) == len(row)
    assert np.bincount(data.split, minlength=4).tolist() == [0, 3000, 500, 1500]
    assert data.labels.min() == 0 and data.labels.max() == 4
    features = data.features[0:5000]
    assert abs(features.std() - 1) < 0.05
    agree = np.mean(data.labels[row] == data.labels[data.edges.indices])
    assert agree > (0.5 if model == "planted" else 0.2)


def test_averaging_neighbours_helps():
    """The default task is neither trivial nor hopeless, and neighbours carry most of the signal."""
    data = graph_data(drawn("planted", Spec(nodes=6000, degree=15, features=64, classes=10, seed=1)))
    x, edges, labels = data.features[0:6000], data.edges, data.labels
    neighbours = scipy.sparse.csr_matrix((np.ones(len(edges.indices)), edges.indices, edges.indptr)) @ x
    accuracy = []
    for rows in (x, (x + neighbours) / (1 + np.diff(edges.indptr)[:, None])):
        means = np.stack([rows[labels == each].mean(0) for each in range(10)])
        distances = ((rows[:, None] - means) ** 2).sum(2)
        accuracy.append(np.mean(distances.argmin(1) == labels))
    assert 0.3 < accuracy[0] < 0.65 and 0.7 < accuracy[1] < 0.92, accuracy


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_number_of_types_is_used(count):
    spec = Spec(nodes=300, degree=10, features=2, classes=2, edge_types=count, node_types=count, directed=True)
    data = graph_data(drawn("planted", spec))
    for types in (data.edges.type, data.edges_out.type, data.node_type):
        assert sorted(set(types)) == list(range(count))


def test_graphs_without_node_types_keep_their_name():
    """Checkpoints know a graph by its name, so a new parameter must not rename graphs that do not use it."""
    spec = Spec(nodes=5000, degree=12, features=16, classes=5, seed=7)
    assert b"node_types" not in spec.identity("planted")
    assert b"node_types" in dataclasses.replace(spec, node_types=2).identity("planted")


@pytest.mark.parametrize("model", GENERATORS)
def test_options(tmp_path, model):
    spec = Spec(nodes=500, degree=6, features=0, classes=4, multi_label=True)
    generate_graph(model, tmp_path / "tiny.h5", Spec(nodes=1, degree=0, features=2, classes=1))
    assert view(tmp_path / "tiny.h5").edges == []
    generate_graph(model, tmp_path / "g.h5", spec)
    seen = view(tmp_path / "g.h5")
    assert seen.features is None and seen.labels.shape == (500, 4) and 0.05 < seen.labels.mean() < 0.6


WRONG = {"nodes": 0, "degree": 4000.0, "homophily": 1.5, "classes": 0, "a": 0.9, "seed": -1, "node_types": -1}


@pytest.mark.parametrize("name, value", [*WRONG.items(), ("val", 0.9)])
def test_bad_parameters(name, value):
    message = "a, b, c" if name == "a" else name
    with pytest.raises(ConfigError, match=message):
        Spec(**{"nodes": 5000, "degree": 12, "features": 16, "classes": 5, "train": 0.2, name: value})


def test_grid(tmp_path, capsys):
    for shape, spacing, periodic in ((7,), "1", False), ((1, 4, 3), "0.5,1,0.1", False), ((3, 5), "2", True):
        path, lengths = tmp_path / "grid.h5", ",".join(map(str, shape))
        words = ["generate", "grid", "-o", str(path), "--shape", lengths, "--spacing", spacing, "--force"]
        assert main([*words, *(["--periodic"] if periodic else [])]) == 0
        places = list(itertools.product(*map(range, shape)))
        edges = []
        for place, axis, step in itertools.product(places, range(len(shape)), (-1, 1)):
            other = list(place)
            other[axis] += step
            if periodic:
                other[axis] %= shape[axis]
            if tuple(other) in places:
                edges.append((places.index(place), places.index(tuple(other))))
        with GraphFile(path) as file:
            np.testing.assert_array_equal(
                file.read("nodes/position"), np.array(places) * np.array(spacing.split(","), float)
            )
            dst = np.repeat(np.arange(len(places)), np.diff(file.read("topology/indptr"))).tolist()
            assert sorted(zip(file.read("topology/indices").tolist(), dst, strict=True)) == sorted(edges)
            assert file.meta.undirected and file.meta.num_dimensions == len(shape)
    for words in ("--shape 4,2 --periodic", "--shape 4,0", "--shape 4 --spacing 1,2", "--shape 4 --spacing 0"):
        assert main(["generate", "grid", "-o", str(tmp_path / "wrong.h5"), *words.split()]) == 2
        assert re.search("must (have at least|be one number above 0).*got", capsys.readouterr().err)
