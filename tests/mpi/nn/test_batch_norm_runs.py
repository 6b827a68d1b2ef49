"""Models with batch norm have no bias before it. (Its statistics: test_batch_norm.py; curves: engine/test_curves.py.)

A bias before a batch norm has a gradient of rounding alone, and Adam made steps of ±lr of it. The loss cannot see the
steps, for the mean takes them away again. The running mean lags behind them, and validation differed between numbers of
ranks.
"""

from dataclasses import replace

import pytest

from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn import registry
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.registry import MODELS, complete, register
from hpcgnn.plan.model_spec import model_spec

from ..training import build_trainer, configure, generated

pytestmark = pytest.mark.ranks(2)

# What each model needs beside the common options, and which of its biases stand before something else than the norm.
RUNS = {
    "gcn": ({}, ()),
    "sage": ({}, ()),
    "gin": ({}, ("first.bias",)),
    "gatv2": ({"heads": 2}, ("source.bias", "target.bias")),
    "transformer": ({"heads": 2}, ("query.bias",)),
    "pna": ({}, ()),
    "rgcn": ({}, ()),
}


@pytest.fixture(scope="module")
def path(comm, session_path):
    return generated(comm, session_path / "batch-norm.h5", edge_types=3)


@pytest.mark.parametrize("kind", RUNS)
def test_no_bias_stands_before_a_norm(comm, path, kind):
    options, stay = RUNS[kind]
    model = build_trainer(comm, configure(path, model=kind, norm="batch", hidden=12, **options), "metis").model
    biases = [name.split(".", 2) for name, _ in model.named_parameters() if name.startswith("convs.")]
    biases = [(int(layer), rest) for _, layer, rest in biases if rest.endswith("bias")]
    last = max(layer for layer, _ in biases)
    assert {rest for layer, rest in biases if layer < last} <= set(stay), biases


def test_biases_of_plugins_stay(path, monkeypatch):
    """A model of the user's own may add biases, though it inherits from one of ours."""
    monkeypatch.delitem(MODELS, "kept-bias", raising=False)
    register("kept-bias", self_loops="add")(type("Mine", (GCNConv,), {}))
    with GraphFile(path) as file:
        spec = model_spec(file.meta, configure(path, norm="batch"))
    spec = complete(replace(spec, options=replace(spec.options, model="kept-bias")))
    model = registry.MODELS["kept-bias"].build(spec)
    assert spec.hidden_bias and all(conv.linear.bias is not None for conv in model.convs)
