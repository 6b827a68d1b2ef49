"""The seed of every command: one line with the range for numbers that cannot be one."""

import pytest
from partition_helpers import odd_graph, save_npz

GENERATE = "--nodes 60 --degree 4 --features 3 --classes 2".split()


@pytest.mark.parametrize("seed", ["99999999999999999999999", "-1"])
def test_seeds(cli, fails, tmp_path, seed):
    raw, path, other = (tmp_path / name for name in ("raw.npz", "g.h5", "other.h5"))
    save_npz(raw, *odd_graph(), 60)
    assert cli("generate", "planted", "-o", path, *GENERATE, "--seed", 2**63 - 1)[0] == 0
    for command in (
        ("generate", "planted", "-o", other, *GENERATE, "--seed", seed),
        ("import", raw, "-o", other, "--train", 0.5, "--set", f"split.seed={seed}"),
        ("partition", "add", path, "--ranks", 2, "-o", other, "--seed", seed),
    ):
        assert "seed must be from 0 to 2^" in fails(*command)
