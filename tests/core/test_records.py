"""Files that are complete or absent, and JSON that any reader accepts."""

import json
import os

import numpy as np
import pytest
import torch

from hpcgnn.errors import RunDirError
from hpcgnn.records import counted_from_one, replaced_by, spread, to_json, write_atomically
from partition_tools.workspace.claim import claimed


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "f.txt"
    write_atomically(path, "one")
    write_atomically(path, "two ü")
    assert path.read_text(encoding="utf-8") == "two ü" and list(tmp_path.iterdir()) == [path]


def test_a_failure_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "f.txt"
    write_atomically(path, "one")
    with pytest.raises(RuntimeError), replaced_by(path) as temporary:
        with open(temporary, "w") as file:
            file.write("half")
        raise RuntimeError
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path):
    """Temporary files are made for their owner alone; results are to be read by the group."""
    write_atomically(tmp_path / "a", "")
    open(tmp_path / "b", "w").close()
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


@pytest.mark.parametrize("name", ["n" * 240 + ".h5", "ü" * 127])
def test_a_name_as_long_as_the_file_system_allows(tmp_path, name):
    """That of the temporary file was longer still."""
    write_atomically(tmp_path / name, "one")
    with claimed(tmp_path / name):
        assert (tmp_path / name).read_text() == "one"
    assert os.listdir(tmp_path) == [name]


def test_an_impossible_place_is_an_error_of_the_user(tmp_path):
    with pytest.raises(RunDirError, match="choose a --run-dir"):
        write_atomically(tmp_path / "absent" / "f", "")


def test_numbers_that_json_does_not_know():
    text = to_json(
        {
            "nan": float("nan"),
            "inf": [np.float32("inf"), 1],
            "torch": torch.tensor(2.5),
            "numpy": np.int64(3),
            4: (True, None, "x"),
        }
    )
    assert json.loads(text) == {"nan": None, "inf": [None, 1], "torch": 2.5, "numpy": 3, "4": [True, None, "x"]}
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_spread():
    assert spread([1, 2, 6]) == {"max": 6, "mean": 3.0, "min": 1}


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_count_from_one_whatever_wrote_them(first):
    records = [{"epoch": first + index, "loss": 1.0} for index in range(3)]
    assert [record["epoch"] for record in counted_from_one(records)] == [1, 2, 3]
    assert counted_from_one([]) == []
