"""Steps on shares of the clusters against a serial program, on any map, resumed, estimated, and refused."""

from dataclasses import replace

import numpy as np
import pytest
from mpi.runs import check_same, train_into
from mpi.small import stored
from mpi.training import build_trainer, configure

from extras.estimate.test_estimated import MAP, check, foretold, paths  # noqa: F401
from hpcgnn.errors import ConfigError

from .serial import RATE, Exact, Serial

pytestmark = pytest.mark.ranks(2, 3)

ORACLES = {"historical": Serial, "batches": Exact}
MODELS = {
    "gcn": {"model": "gcn"},
    "sage": {"model": "sage", "layers": 3},
    "gat": {"model": "gat", "heads": 2, "hidden": 4},
    "gcn, kept input": {"model": "gcn", "keep_input": "always", "input_dropout": "none"},
}
CASES = [
    ("historical", "random directed", "gcn", {}),
    ("historical", "random directed", "sage", {"extra_rows": 0.4}),
    ("historical", "random directed", "gat", {}),
    ("historical", "random undirected weighted", "gcn", {"extra_rows": 0.4}),
    ("historical", "random undirected", "gcn, kept input", {"extra_rows": 0.4}),
    ("historical", "no edges", "gcn", {}),
    ("historical", "random directed", "sage", {"history_dtype": "bf16"}),
    ("historical", "random undirected", "gcn", {"history_dtype": "int8"}),
    ("batches", "random directed", "sage", {}),
    ("batches", "random undirected", "gcn, kept input", {}),
    ("batches", "star", "gat", {}),
]


@pytest.mark.parametrize("schedule, name, model, more", CASES, ids=str)
def test_against_a_serial_program(comm, session_path, schedule, name, model, more):
    """Losses and parameters of three epochs, on two maps."""
    path, narrow = stored(comm, session_path, name)[2], "history_dtype" in more
    options = {"keep_input": "never", "hidden": 6, "layers": 2, "dropout": 0.0, "lr": RATE, **MODELS[model], **more}
    still = {"precision": "fp32" if narrow else "fp64", "optimizer": "sgd"}
    config = configure(path, schedule=schedule, steps=3, **still, **options)
    near = 2e-6 if narrow else 1e-10
    for map_name in ("dealt", "one empty"):
        alone = build_trainer(comm, config)
        if narrow:  # in float64 like the others, but for what is rounded
            alone.model.double()
            alone.local = replace(alone.local, features=alone.local.features.double())
        serial, trainer = ORACLES[schedule](alone, path, 3, **more), build_trainer(comm, config, map_name)
        for epoch in range(3):
            assert trainer.step(epoch) == pytest.approx(serial.epoch(epoch), rel=near)
        for ours, theirs in zip(trainer.model.parameters(), serial.model.parameters(), strict=True):
            np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=0, atol=near)


def losses(trainer):
    return [trainer.step(epoch) for epoch in range(4)]


@pytest.mark.parametrize("schedule", ORACLES)
@pytest.mark.parametrize(
    "name, options",
    [
        ("undirected", {"model": "sage"}),
        ("directed multi-label", {"model": "gat", "heads": 2, "attention_dropout": 0.2}),
    ],
    ids=str,
)
def test_the_curve_depends_on_no_map(comm, paths, name, options, schedule):  # noqa: F811
    """With dropout, for draws have no other key than nodes, epochs and layers."""
    config = configure(paths[name], schedule=schedule, steps=5, dropout=0.5, precision="fp64", **options)
    alone = losses(build_trainer(comm, config))
    np.testing.assert_allclose(losses(build_trainer(comm, config, MAP)), alone, rtol=1e-10)


@pytest.mark.parametrize("schedule", ORACLES)
def test_one_step_is_full_batch(comm, paths, schedule):  # noqa: F811
    one, full = (configure(paths["undirected"], **more) for more in ({"schedule": schedule, "steps": 1}, {}))
    assert losses(build_trainer(comm, one, MAP)) == losses(build_trainer(comm, full, MAP))


@pytest.mark.ranks(2)
def test_a_pause_changes_no_bit(comm, paths, shared_path):  # noqa: F811
    options = {"schedule": "historical", "steps": 4, "extra_rows": 0.3, "history_dtype": "int8", "model": "sage"}
    options |= {"partition": MAP, "epochs": 8, "eval_every": 2, "checkpoint_every": 4}
    train_into(comm, paths["undirected"], shared_path / "whole", **options)
    train_into(comm, paths["undirected"], shared_path / "run", **{**options, "epochs": 4})
    train_into(comm, paths["undirected"], shared_path / "run", **options, resume=True)
    check_same(shared_path / "run", shared_path / "whole")


REFUSED = [
    ({"history_dtype": "int8", "model": "gat"}, "history_dtype int8 is for float32 rows.*expected gcn, sage"),
    ({"history_dtype": "int8", "precision": "fp64"}, "history_dtype int8 is for float32 rows.*expected gcn, sage"),
    ({"steps": 100_000}, "--steps 100000.*expected at most"),
    ({"norm": "batch"}, "computes a share of the rows in each step: expected --norm none"),
]


@pytest.mark.parametrize("options, message", REFUSED, ids=str)
def test_what_does_not_go_together_is_refused(comm, paths, options, message):  # noqa: F811
    with pytest.raises(ConfigError, match=message):
        build_trainer(comm, configure(paths["undirected"], schedule="historical", **options))


@pytest.mark.ranks(2)
def test_an_estimate_counts_one_step(comm, paths):  # noqa: F811
    check(comm, configure(paths["undirected"], schedule="batches", layers=2, steps=1), MAP)
    with pytest.raises(ConfigError, match="estimate counts no messages of --steps 2; expected --steps 1"):
        foretold(comm, configure(paths["undirected"], schedule="historical", layers=2, steps=2), MAP)
