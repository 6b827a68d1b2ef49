"""Every class of torch_geometric.nn.conv, and whole models: equal to PyG in one process, or refused in one line."""

from dataclasses import replace
from pathlib import Path

import graphs
import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install torch_geometric")
from mpi.ops.test_propagate import local_edges  # noqa: E402
from mpi.small import written  # noqa: E402
from mpi.training import CHOICES  # noqa: E402

from hpcgnn.config import make_config  # noqa: E402
from hpcgnn.interface.load import load_graph  # noqa: E402

from . import pyg_layers  # noqa: E402

pytestmark = [pytest.mark.ranks(1, 2, 3), pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "pyg.md"


@pytest.fixture(scope="module")
def share(comm, session_path):
    """(the graph, its Layout, the TrainingGraph of this rank): 30 nodes, directed, with self loops, nodes without
    in-edges and without any; no edge twice.
    """
    graph = graphs.random_directed(30)
    src, dst = np.unique(np.stack([graph.src, graph.dst]), axis=1)
    graph, where, file = written(comm, session_path, graphs.with_task(replace(graph, src=src, dst=dst)), "every-layer")
    options = {"graph": str(file), "partition": "one empty", "precision": "fp64", "halo_buffer": 0.1}
    return graph, where, load_graph(comm, make_config(options, CHOICES), True, 64, True)


@pytest.fixture(scope="module")
def rows_of_page():
    """{name: (way, reason)} of the page."""
    if not PAGE.exists():
        pytest.skip("there is no documentation beside the tests")
    cells = [line.strip("| \n").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `" in line]
    return {cell[0].strip("`"): (cell[1], cell[2].strip() if len(cell) > 2 else "") for cell in cells}


@pytest.mark.parametrize("name", pyg_layers.every())
def test_equals_pyg_or_is_refused(comm, share, rows_of_page, name):
    graph, where, mine = share
    order = np.lexsort((graph.src, graph.dst))
    src, dst = graph.src[order], graph.dst[order]
    places = local_edges(mine._local, where, "one empty", comm, src, dst)
    way, reason, conv = pyg_layers.wrapped(name)
    x = pyg_layers.rows(name, graph.num_nodes)
    own = x[mine.ids].clone().requires_grad_()
    if conv is not None:
        nodes, edges = pyg_layers.inputs(name, conv.layer, graph.num_nodes, len(src))
        given = {key: value[mine.ids] for key, value in nodes.items()}
        given |= {key: value[places] for key, value in edges.items()}
        used = []
        way, why, found = pyg_layers.tried(name, conv, lambda each: (used.append(each), each(mine, own, **given))[1])
        reason = why or reason
    assert rows_of_page.get(name) == (way, reason), "run `python docs/pyg.py`"
    if way in ("streams", "keeps messages"):
        layer, inputs = pyg_layers.make(name), x.clone().requires_grad_()
        expected = layer(inputs, edge_index=torch.from_numpy(np.stack([src, dst])), **nodes, **edges)
        pyg_layers.assert_same(comm, mine, (layer, inputs, expected), (used[-1], own, found))
