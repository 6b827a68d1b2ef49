"""Real numbers to predict: kept as they are, NaN for none, through import, partitioning, inspection and checks."""

import functools
import json

import h5py
import numpy as np
import pytest
from partition_helpers import node_data, view

from hpcgnn.graphfile import storage

N = 60
_, _, MASKS = node_data(N)
TARGETS = np.random.default_rng(5).standard_normal((N, 2)) * 30 - 1


@pytest.fixture
def npz(archive):
    """npz(option, ..., array=...) -> the words of an import of these arrays as a regression."""
    return functools.partial(archive, "--set", "labels.task=regression")


@pytest.mark.parametrize(
    "dtype, kept, columns", [("f2", "f4", 2), ("f4", "f4", 1), ("f8", "f8", 2), ("i8", "f8", 1), ("u1", "f4", 1)]
)
def test_numbers_stay_as_they_are(cli, tmp_path, npz, dtype, kept, columns):
    with np.errstate(invalid="ignore"):
        wanted = (TARGETS[:, :columns] if columns > 1 else TARGETS[:, 0]).astype(dtype)
    code, out, _ = cli(*npz(y=wanted))
    assert code == 0 and f"{columns} targets" in out
    assert cli("partition", "add", tmp_path / "g.h5", "--ranks", 2, "--clusters", 8)[0] == 0
    seen = view(tmp_path / "g.h5")
    assert seen.labels.dtype == kept and seen.meta.task == "regression" and seen.meta.num_classes == columns
    np.testing.assert_array_equal(seen.labels, wanted)
    assert cli("verify", tmp_path / "g.h5")[0] == 0


def test_what_is_not_known(cli, fails, tmp_path, npz):
    """Some columns of a node, or all where it is in no split; -1 is a number like any other."""
    wanted = TARGETS.copy()
    wanted[::2, 0], wanted[3], split = np.nan, -1, np.zeros(N, bool)
    unknown = ~np.any(list(MASKS.values()), axis=0)
    wanted[unknown] = np.nan
    assert cli(*npz(y=wanted))[0] == 0
    np.testing.assert_array_equal(view(tmp_path / "g.h5").labels, wanted)
    info = json.loads(cli("inspect", tmp_path / "g.h5", "--json")[1])
    assert info["task"] == "regression" and info["unlabelled"] == unknown.sum() and info["class_sizes"] == []
    assert [target["known"] for target in info["targets"]] == np.isfinite(wanted).sum(0).tolist()
    assert info["targets"][1]["mean"] == pytest.approx(np.nanmean(wanted[:, 1]))
    assert "targets" in cli("inspect", tmp_path / "g.h5")[1]
    split[0] = True
    wanted[0] = np.nan
    assert "node 0 is in the train split but has no label" in fails(*npz(y=wanted, train_mask=split, val_mask=None))


def test_only_a_file_that_older_programs_cannot_read_has_a_new_version(cli, tmp_path, npz):
    for options, version in ((("--set", "labels.task=auto"), 2), ((), 3)):
        assert cli(*npz(*options, y=np.arange(N) % 4))[0] == 0
        with h5py.File(tmp_path / "g.h5") as file:
            assert file.attrs["format_version"] == version and ("task" in file.attrs) == (version == 3)
    assert storage.READABLE[:2] == (2, 3)


def test_verify_finds_targets_that_are_wrong(cli, tmp_path, npz):
    assert cli(*npz(y=TARGETS[:, 0]))[0] == 0
    with h5py.File(tmp_path / "g.h5", "r+", libver="latest") as file:
        file["nodes/labels"][4] = np.inf
        file["nodes/labels"][int(np.argmax(file["nodes/split"][:] == 1))] = np.nan
    code, out, _ = cli("verify", tmp_path / "g.h5")
    assert code == 1 and "targets are infinite" in out and "is in a split but has no label" in out
