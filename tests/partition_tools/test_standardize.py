"""`import --set features.standardize=true`, and the warning about columns of very different size."""

import numpy as np
import pytest
from partition_helpers import node_data, odd_graph, save_npz

from partition_tools.canonical import rows

N = 60
TRAIN = node_data(N)[2]["train"]


@pytest.mark.parametrize("slab, dtype", [(7, "fp32"), (1 << 16, "fp16")])
def test_columns_have_the_mean_and_deviation_of_the_training_nodes(imports, tmp_path, monkeypatch, slab, dtype):
    monkeypatch.setattr(rows, "SLAB_ROWS", slab)
    # Several sizes, one far from zero, a constant one, and one that is constant among training nodes.
    x = np.random.default_rng(8).normal(size=(N, 6)) * [1, 1e-3, 50, 1, 0, 1] + [0, 0, -7, 1e6, 4, 0]
    x[TRAIN, 5] = 0.25
    deviation = x[TRAIN].std(0)
    deviation[[4, 5]] = 1
    expected = (x - x[TRAIN].mean(0)) / deviation
    save_npz(tmp_path / "g.npz", *odd_graph(), N, x=x)
    seen = imports(tmp_path / "g.npz", "--set", "features.standardize=true", "--set", f"features.dtype={dtype}")
    assert "times as large" not in seen.said
    assert seen.features.dtype == {"fp32": np.float32, "fp16": np.float16}[dtype]
    np.testing.assert_allclose(seen.features, expected, rtol=1e-6 if dtype == "fp32" else 1e-3, atol=1e-6)
    assert not seen.features[TRAIN][:, 4:].any(), "constant columns become zero"
