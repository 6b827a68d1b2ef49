"""The recipes of docs/python.md run as they stand. (Its script: tests/core/interface/test_script.py.)"""

import re
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.sparse

import partition_tools
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.partitioners import metis_process

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
N = 40


def recipe(words):
    """The one example of the page that has these words."""
    if not PAGE.exists():
        pytest.skip("there is no documentation beside the tests")
    found = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if words in block]
    assert len(found) == 1, words
    return found[0]


def names():
    """What the recipes take as given."""
    random = np.random.default_rng(1)
    split = random.integers(0, 3, N)
    return {
        "partition_tools": partition_tools,
        "networkx": networkx,
        "matrix": scipy.sparse.random(N, N, 0.1, random_state=1),
        "edge_index": random.integers(0, N, (2, 4 * N)),
        "features": random.random((N, 3)),
        "labels": random.integers(0, 2, N),
        **{f"{name}_mask": split == number for number, name in enumerate(("train", "val", "test"))},
    }


@pytest.mark.parametrize(
    "words", ["partition_tools.save_graph(", "partition_tools.from_scipy(", "partition_tools.from_networkx("]
)
def test_recipes_write_graph_files(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(recipe(words), names())
    metis_process.end()
    (path,) = tmp_path.glob("*.h5")
    with GraphFile(path) as file:
        assert file.partitionings() and file.meta.num_classes == 2 and file.meta.num_features


def test_the_page_of_the_api_has_every_name():
    import hpcgnn.nn

    page = PAGE.with_name("api.md")
    if not page.exists():
        pytest.skip("there is no documentation beside the tests")
    shown = set(re.findall(r"^::: \S*\.(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert {*hpcgnn.__all__, *hpcgnn.nn.__all__, *partition_tools.__all__} <= shown


def test_pyg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Data = pytest.importorskip("torch_geometric.data", reason="PyG is not installed").Data
    import torch

    given = {name: torch.as_tensor(value) for name, value in names().items() if isinstance(value, np.ndarray)}
    data = Data(given.pop("features").float(), given.pop("edge_index"), y=given.pop("labels"), **given)
    exec(
        recipe("partition_tools.from_pyg(").partition("\n")[2], {"partition_tools": partition_tools, "dataset": [data]}
    )
    metis_process.end()
    with GraphFile(tmp_path / "cora.h5") as file:
        assert file.meta.num_nodes == N
