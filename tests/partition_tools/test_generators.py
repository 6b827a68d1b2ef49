"""Generated graphs are a function of their parameters, and have the statistics that they promise."""

import numpy as np
import pytest
from partition_helpers import view

from hpcgnn.errors import ConfigError
from hpcgnn.graph.storage import GraphFile
from partition_tools.canonical import canonical
from partition_tools.generate_graph import generate_graph
from partition_tools.generators import GENERATORS
from partition_tools.generators.spec import Spec

SPEC = Spec(nodes=5000, degree=12, features=16, classes=5, seed=7)


@pytest.mark.parametrize("model", GENERATORS)
def test_same_parameters_same_file(cli, tmp_path, model):
    words = ("--nodes", 3000, "--degree", 8, "--features", 6, "--classes", 4, "--weighted", "--edge-types", 3)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert cli("generate", model, "-o", tmp_path / f"{name}.h5", "--seed", seed, *words)[0] == 0
    contents = {}
    for name in "abc":
        assert cli("verify", tmp_path / f"{name}.h5")[0] == 0
        with GraphFile(tmp_path / f"{name}.h5") as file:
            arrays = ("topology/indptr", "topology/indices", "edges/weight", "edges/type", "nodes/features",
                      "nodes/labels", "nodes/split")
            contents[name] = file.meta.uuid, b"".join(file.read(array).tobytes() for array in arrays)
    assert contents["a"] == contents["b"]
    assert contents["a"][0] != contents["c"][0] and contents["a"][1] != contents["c"][1]


@pytest.mark.parametrize("model", GENERATORS)
@pytest.mark.parametrize("directed", [False, True])
def test_statistics(model, directed):
    spec = Spec(nodes=5000, degree=12, features=16, classes=5, seed=7, directed=directed, train=0.6, val=0.1)
    data = canonical(GENERATORS[model].generate(spec))
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


def test_features_do_not_depend_on_the_slab():
    spec = Spec(nodes=150_000, degree=0, features=3, classes=5)
    features = GENERATORS["planted"].generate(spec).features
    whole = features[0:150_000]
    for start, stop in ((0, 10), (65_530, 65_540), (100_000, 150_000), (149_999, 150_001), (20, 20)):
        np.testing.assert_array_equal(features[start:stop], whole[start:stop])


def test_averaging_neighbours_helps():
    """The default task is neither trivial nor hopeless, and neighbours carry most of the signal."""
    data = canonical(GENERATORS["planted"].generate(Spec(nodes=20_000, degree=15, features=64, classes=10, seed=1)))
    x, n = data.features[0:20_000].astype(np.float64), 20_000
    row = np.repeat(np.arange(n), np.diff(data.edges.indptr))
    smooth = x.copy()
    for _ in range(2):
        sums = smooth.copy()
        for column in range(64):
            sums[:, column] += np.bincount(row, smooth[data.edges.indices, column], n)
        smooth = sums / (1 + np.diff(data.edges.indptr))[:, None]
    train, test = data.split == 1, data.split == 3
    accuracy = []
    for rows in (x, smooth):
        rows = (rows - rows.mean(0)) / rows.std(0)
        weights = np.linalg.lstsq(rows[train], np.eye(10)[data.labels[train]], rcond=None)[0]
        accuracy.append(np.mean((rows[test] @ weights).argmax(1) == data.labels[test]))
    assert 0.3 < accuracy[0] < 0.65 and 0.7 < accuracy[1] < 0.92, accuracy


@pytest.mark.parametrize("model", GENERATORS)
def test_options(tmp_path, model):
    spec = Spec(nodes=500, degree=6, features=0, classes=4, multi_label=True)
    generate_graph(model, tmp_path / "g.h5", spec)
    seen = view(tmp_path / "g.h5")
    assert seen.features is None and seen.labels.shape == (500, 4) and 0.05 < seen.labels.mean() < 0.6


def test_tiny():
    for model in GENERATORS.values():
        assert len(canonical(model.generate(Spec(nodes=1, degree=0, features=2, classes=1))).edges.indices) == 0


@pytest.mark.parametrize("words, message", [
    ({"nodes": 0}, "nodes"), ({"degree": 4000.0}, "degree"), ({"homophily": 1.5}, "homophily"),
    ({"classes": 0}, "classes"),
    ({"train": 0.9, "val": 0.2}, "val"), ({"a": 0.9}, "a, b, c"), ({"seed": -1}, "seed")])
def test_bad_parameters(words, message):
    with pytest.raises(ConfigError, match=message):
        Spec(**{"nodes": 5000, "degree": 12, "features": 16, "classes": 5, **words})


def test_bad_parameters_on_the_command_line(fails, tmp_path):
    assert "degree" in fails("generate", "planted", "-o", tmp_path / "g.h5", "--nodes", 10, "--degree", 20,
                             "--features", 4, "--classes", 2, "--seed", 1)
