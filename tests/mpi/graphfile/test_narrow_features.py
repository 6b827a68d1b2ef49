"""Features that stay in memory in the file's type: the numbers of widened ones bit for bit, in their own bytes."""

import h5py
import numpy as np
import pytest
import torch

from hpcgnn.graphfile import narrow
from hpcgnn.graphfile.narrow import SCALES, rounded
from hpcgnn.graphfile.storage import write_rows

from ..training import FEATURES, build_trainer, configure, traffic_of, trained

KINDS = ("halo_forward", "input")
TYPES = {"float16": torch.float16, "int8": torch.int8, "bfloat16": torch.bfloat16, "int8, scaled": torch.int8}
CASES = {
    "gcn": {"model": "gcn", "dropout": 0.3},
    "sage": {"model": "sage", "dropout": 0.5, "prune": "auto"},
    "sage, mixed": {"model": "sage", "precision": "mixed"},
    "gin": {"model": "gin", "input_dropout": "none"},
    "sgc": {"model": "sgc"},
    "gcn, rounded at random": {"model": "gcn", "halo_dtype": "int8"},
    "sage, rounded": {"model": "sage", "halo_dtype": "bf16", "halo": "rows"},
    "gat": {"model": "gat", "heads": 2},
    "gat, dropped": {"model": "gat", "heads": 2, "dropout": 0.5},
    "sage, inductive": {"model": "sage", "inductive": True, "dropout": 0.5},
    "gat, inductive": {"model": "gat", "heads": 2, "inductive": True},
    "lazy": {"model": "sage", "schedule": "lazy", "epochs": 2},
}


# Transformed before aggregated.
WIDE = {
    "wide gcn": {"model": "gcn"},
    "wide gcn, dropped": {"model": "gcn", "dropout": 0.3},
    "wide sage": {"model": "sage", "dropout": 0.5, "prune": "auto"},
    "wide sage, mixed": {"model": "sage", "precision": "mixed", "dropout": 0.5},
    "wide sage, inductive": {"model": "sage", "inductive": True},
    "wide gin": {"model": "gin", "prune": "auto"},
    "wide sgc": {"model": "sgc"},
    "wide gatv2": {"model": "gatv2", "heads": 2, "dropout": 0.5},
    "wide transformer": {"model": "transformer", "heads": 2},
    "wide appnp": {"model": "appnp", "dropout": 0.5},
}
# Their products are torch's.
TORCHS = "wide gin", "wide sgc", "wide gatv2", "wide transformer", "wide appnp"


@pytest.fixture(scope="module")
def files(comm, graph, session_path):
    """{type: (a file with features of that type, the same with the same numbers as float32)}."""
    paths = {name: [session_path / f"{name}-{kind}.h5" for kind in ("held", "wide")] for name in TYPES}
    if comm.rank == 0:
        for name, pair in paths.items():
            kind, _, how = name.partition(", ")
            for path, dtype in zip(pair, (kind, "float32"), strict=True):
                path.write_bytes(graph.read_bytes())
                with h5py.File(path, "r+") as file:
                    rows = file["nodes/features"][:]
                    scales = 2.0 ** np.arange(-9, FEATURES - 9, dtype=np.float32)
                    if kind == "int8":
                        rows = np.rint(40 * rows).clip(-128, 127)
                    del file["nodes/features"]
                    numbers = rounded(rows) if kind == narrow.BFLOAT16 else rows.astype(kind)
                    halved = dtype == narrow.BFLOAT16
                    held = numbers if halved else numbers.astype(dtype)
                    if how == "scaled" and dtype == kind:
                        file[SCALES] = scales
                    elif how == "scaled":
                        held = held * scales
                    write_rows(file, "nodes/features", held, lambda: None, clusters=8, halved=halved)
    comm.barrier()
    return paths


def check_types(trainers, dtype):
    """One trainer holds features of this type, in its own bytes; the other float32."""
    held, wide = (trainer.local for trainer in trainers)
    assert held.features.dtype == dtype and wide.features.dtype == torch.float32
    assert held.features.untyped_storage().nbytes() == held.num_owned * FEATURES * dtype.itemsize


def compare(comm, pair, options, dtype):
    """Train on features of a type, and on the same numbers as float32: to the same bits."""
    held, wide = (trained(comm, configure(path, **options)) for path in pair)
    check_types((held[3], wide[3]), dtype)
    assert held[:2] == wide[:2]
    assert all(torch.equal(a, b) for a, b in zip(held[2], wide[2], strict=True))


def compare_gradients(comm, pair, options, dtype):
    """The first loss and each gradient but for rounding; later losses say less: Adam steps by gradients' signs.

    int8: numbers up to 128 make scores of thousands, of which float32 keeps three digits behind the point.
    """
    trainers = [build_trainer(comm, configure(path, **options), "metis") for path in pair]
    check_types(trainers, dtype)
    held, wide = (trainer.step(0) for trainer in trainers)
    np.testing.assert_allclose(held, wide, rtol=1e-6)
    tolerance = 2e-3 if dtype == torch.int8 else 1e-5
    for a, b in zip(*(trainer.model.parameters() for trainer in trainers), strict=True):
        assert torch.linalg.norm(a.grad - b.grad) <= tolerance * torch.linalg.norm(b.grad)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", [*CASES, *WIDE])
def test_the_bits_of_widened_features(comm, files, name, kind):
    """Features wider than the layer's output are multiplied with its weights first, some rows at a time."""
    usual = {"hidden": 16, "keep_input": "always"} if name in CASES else {"hidden": 3, "keep_input": "never"}
    check = compare_gradients if name in TORCHS else compare
    check(comm, files[kind], {"layers": 2, **usual, **(CASES | WIDE)[name]}, TYPES[kind])


@pytest.mark.ranks(2)
def test_others_are_widened(comm, files):
    """Where a layer reads rows out of order, and where sums are made in float64."""
    for kind in ("float16", "int8, scaled"):
        for options in (
            {"model": "pna"},
            {"model": "sage", "precision": "fp64"},
            {"keep_input": "never", "hidden": 99},
        ):
            held, wide = (build_trainer(comm, configure(path, **options), "metis") for path in files[kind])
            assert held.local.features.dtype == held.model.spec.dtype and held.local.feature_scales is None
            assert torch.equal(held.local.features, wide.local.features)
            assert np.isfinite(held.step(0))


@pytest.mark.parametrize("name", ["int8", "bfloat16", "float16"])
def test_rows_travel_as_they_are(comm, files, name):
    """The features are sent once: in their own bytes where neither factors nor sums of rows travel."""
    sent, made = [], []
    options = {"model": "sage", "hidden": 16, "layers": 2, "halo": "rows", "keep_input": "always"}
    for path in files[name]:
        trainer = build_trainer(comm, configure(path, **options), "metis")
        sent.append(traffic_of(trainer, 0))
        made.append(trainer.constants["input aggregate"])
    assert torch.equal(*made)
    narrow, wide = (sum(each.bytes_sent for kind, each in of.items() if kind in KINDS) for of in sent)
    rows = trainer.local.inward.plan.num_boundary * FEATURES
    assert wide - narrow == (4 - TYPES[name].itemsize) * rows
