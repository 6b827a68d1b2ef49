"""The seed of every command: one line with the range for numbers that cannot be one."""

import numpy as np
import pytest

from partition_tools.cli.main import main


@pytest.mark.parametrize("seed", ["99999999999999999999999", "-1"])
def test_seeds(tmp_path, capsys, seed):
    draw, path = np.random.default_rng(0), tmp_path / "g.h5"
    np.savez(
        tmp_path / "raw.npz",
        edge_index=draw.integers(0, 30, (2, 90)),
        x=draw.random((30, 3), np.float32),
        y=draw.integers(0, 2, 30),
    )
    generate = [
        "generate",
        "planted",
        "-o",
        str(path),
        "--nodes",
        "60",
        "--degree",
        "4",
        "--features",
        "3",
        "--classes",
        "2",
    ]
    assert main([*generate, "--seed", str(2**63 - 1)]) == 0
    capsys.readouterr()
    other = str(tmp_path / "other.h5")
    for command in (
        [*generate[:3], other, *generate[4:]],
        ["import", str(tmp_path / "raw.npz"), "-o", other, "--train", "0.5"],
        ["partition", "add", str(path), "--ranks", "2", "-o", other],
    ):
        given = ["--set", f"split.seed={seed}"] if command[0] == "import" else ["--seed", seed]
        assert main([*command, *given]) == 2
        error = capsys.readouterr().err
        assert "seed must be from 0 to 2^" in error and error.strip().count("\n") == 0, error
        assert not (tmp_path / "other.h5").exists()
