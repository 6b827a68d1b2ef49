"""Models with batch norm have no bias before it. (Its statistics: test_batch_norm.py; curves: engine/test_curves.py.)

A bias before a batch norm has a gradient of rounding alone, and Adam made steps of ±lr of it. The loss cannot see the
steps, for the mean takes them away again. The running mean lags behind them, and validation differed between numbers of
ranks.
"""

import contextlib

import pytest

from hpcgnn.app.resuming import run_identity
from hpcgnn.engine.checkpoint import check_identity
from hpcgnn.errors import CheckpointError
from hpcgnn.graphfile.storage import GraphFile
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


def test_an_older_checkpoint_is_told_apart(path):
    """It has biases that this model has not: one line reports this, and no list of tensors."""
    for options, refused in (({"norm": "batch"}, True), ({"norm": "layer"}, False), ({"layers": 1}, False)):
        config = configure(path, model="gcn", **{"norm": "batch", **options})
        with GraphFile(path) as file:
            identity = run_identity(config, model_spec(file.meta, config), file.meta)
        older = {key: value for key, value in identity.items() if key != "hidden_bias"}
        words = pytest.raises(CheckpointError, match="^.*before hidden layers went without the bias.*train again.*$")
        with words if refused else contextlib.nullcontext():
            check_identity("c.h5", older, identity)
