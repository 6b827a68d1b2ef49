"""The recipes of docs/python.md run as they stand. (Its script: tests/core/interface/test_script.py.)"""

import re

import numpy as np
import pytest
import scipy.sparse
from pages import example, read

import partition_tools
from hpcgnn.graphfile.storage import GraphFile

N = 40


def names():
    """The names that the recipes take as given."""
    random = np.random.default_rng(1)
    split = random.integers(0, 3, N)
    return {
        "partition_tools": partition_tools,
        "matrix": scipy.sparse.random(N, N, 0.1, random_state=1),
        "edge_index": random.integers(0, N, (2, 4 * N)),
        "features": random.random((N, 3)),
        "labels": random.integers(0, 2, N),
        **{f"{name}_mask": split == number for number, name in enumerate(("train", "val", "test"))},
    }


@pytest.mark.parametrize("words", ["partition_tools.save_graph(", "partition_tools.from_scipy("])
def test_recipes_write_graph_files(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(example("python.md", words), names())
    (path,) = tmp_path.glob("*.h5")
    with GraphFile(path) as file:
        assert file.partitionings() and file.meta.num_classes == 2 and file.meta.num_features


def test_the_page_of_the_api_has_every_name():
    import hpcgnn.nn

    shown = set(re.findall(r"^::: \S*\.(\w+)$", read("api.md"), re.MULTILINE))
    layers = {name for name in vars(hpcgnn.nn) if name[0].isupper()}
    assert {*hpcgnn.__all__, *layers, *partition_tools.__all__} <= shown
