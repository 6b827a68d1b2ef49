"""Whole models with batch norm over ranks: not the loss alone but what evaluation sees, running statistics and scores.

A bias before a batch norm has a gradient of rounding and nothing else, of which Adam made steps of ±lr. The loss cannot
see them, for the mean takes them away again; the running mean lags behind them, and validation was another one for
every number of ranks.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcgnn.app.restart import run_identity
from hpcgnn.engine.checkpoint_checks import check_identity
from hpcgnn.errors import CheckpointError
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn import registry
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.registry import MODELS, complete, register
from hpcgnn.plan.model_spec import model_spec
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..training import build_trainer, configure

pytestmark = pytest.mark.ranks(2)

EPOCHS = 3
# What each model needs beside the common options; rgcn has types of edges.
RUNS = {
    "gcn decay": {"weight_decay": 5e-4, "precision": "fp64"},
    "sage pool": {"aggregator": "pool"},
    "gin": {},
    "gatv2": {"heads": 2, "hidden": 8},
    "transformer": {"heads": 2, "hidden": 8},
    "pna": {"hidden": 12},
    "rgcn": {},
    "sage lazy": {"schedule": "lazy", "warm_start": True},
}


@pytest.fixture(scope="module")
def paths(comm, session_path):
    """Path of an R-MAT graph, and of one with types."""
    kinds = {"rmat": {}, "typed": {"edge_types": 3}}
    found = {name: session_path / f"batch-norm-{name}.h5" for name in kinds}
    if comm.rank == 0:
        for name, options in kinds.items():
            spec = Spec(nodes=2000, degree=10, features=24, classes=5, seed=4, **options)
            generate_graph("planted" if options else "rmat", found[name], spec)
            partition_graph(found[name], [1, 2, 3, 4], num_clusters=64)
    comm.barrier()
    return found


def learned(comm, config, map_name):
    """(losses, metrics, buffers, names of the parameters) after some epochs."""
    trainer = build_trainer(comm, config, map_name, rows=200)
    losses = [trainer.step(epoch) for epoch in range(EPOCHS)]
    buffers = {name: buffer.clone() for name, buffer in trainer.model.named_buffers()}
    return losses, trainer.evaluate(), buffers, [name for name, _ in trainer.model.named_parameters()]


@pytest.mark.parametrize("run", RUNS)
def test_what_evaluation_sees(comm, paths, run):
    kind, options = run.split()[0], {"norm": "batch", "hidden": 32, "seed": 4, "dropout": 0.0, **RUNS[run]}
    config = configure(paths["typed" if kind == "rgcn" else "rmat"], model=kind, **options)
    expected = comm.broadcast_object(learned(comm, config, None) if comm.rank == 0 else None)
    losses, metrics, buffers, names = learned(comm, config, "metis")
    tolerance = {"fp64": 1e-9, "mixed": 3e-2}.get(config.run.precision, 1e-3)
    np.testing.assert_allclose(losses, expected[0], rtol=tolerance)
    for name, buffer in buffers.items():
        scale = float(expected[2][name].abs().max()) + 1e-3
        torch.testing.assert_close(
            buffer, expected[2][name], rtol=0, atol=tolerance * scale, msg=lambda text: f"{name}: {text}"
        )
    for split, value in metrics.items():  # a node in a thousand may stand between two classes
        assert value == pytest.approx(expected[1][split], abs=0.01 if config.run.precision == "mixed" else 2e-3), split
    split_up = [name.split(".", 2) for name in names if name.startswith("convs.") and name.endswith("bias")]
    last = max(int(layer) for _, layer, _ in split_up)
    assert not [rest for _, layer, rest in split_up if int(layer) < last and rest not in STAY], split_up


# These biases stand before something else than the norm.
STAY = ("first.bias", "pool.bias", "source.bias", "target.bias", "query.bias")


def test_an_older_checkpoint_is_told_apart(paths):
    """It has biases that this model has not: one line that says so, and not a list of tensors."""
    for options, refused in (
        ({"norm": "batch"}, True),
        ({"norm": "layer"}, False),
        ({"norm": "batch", "layers": 1}, False),
    ):
        config = configure(paths["rmat"], model="gcn", **options)
        with GraphFile(paths["rmat"]) as file:
            identity = run_identity(config, model_spec(file.meta, config), file.meta)
        older = {key: value for key, value in identity.items() if key != "hidden_bias"}
        check_identity("c.h5", identity, identity)
        if not refused:
            check_identity("c.h5", older, identity)
            continue
        with pytest.raises(CheckpointError, match="before hidden layers went without the bias.*train again") as caught:
            check_identity("c.h5", older, identity)
        assert "\n" not in str(caught.value)


def test_biases_of_plugins_stay(paths, monkeypatch):
    """What a model of the user's own adds is its business, though it inherits from one of ours."""
    monkeypatch.setattr("hpcgnn.nn.registry.MODELS", dict(MODELS))
    register("kept-bias", self_loops="add")(type("Mine", (GCNConv,), {}))
    with GraphFile(paths["rmat"]) as file:
        spec = replace(model_spec(file.meta, configure(paths["rmat"], model="gcn", norm="batch")), model="kept-bias")
    spec = complete(spec)
    model = registry.MODELS["kept-bias"].build(spec)
    assert spec.hidden_bias and all(conv.linear.bias is not None for conv in model.convs)
