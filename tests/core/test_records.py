"""Files that are complete or absent, and JSON that any reader accepts."""

import json
import os
import stat
import struct

import numpy as np
import pytest
import torch

from hpcgnn.errors import RunDirError
from hpcgnn.records import replaced_by, to_json, write_atomically
from partition_tools.workspace.claim import claimed


def test_a_file_is_replaced_as_a_whole_or_not(tmp_path):
    path = tmp_path / "f.txt"
    path.touch()
    rights = path.stat().st_mode
    path.unlink()
    write_atomically(path, "one")
    assert path.stat().st_mode == rights, "of a new file those of any other, which the system gives"
    write_atomically(path, "two ü")
    with pytest.raises(RuntimeError), replaced_by(path) as temporary:
        with open(temporary, "w") as file:
            file.write("half")
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "two ü" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_rights(tmp_path, mode):
    path = tmp_path / "f"
    path.write_text("one")
    path.chmod(mode)
    if os.getuid() == 0:  # others may give a file to groups of their own alone
        os.chown(path, 12, 34)
    before = path.stat()
    with replaced_by(path) as temporary:
        assert stat.S_IMODE(os.stat(temporary).st_mode) == 0o600, "at no time more people may read it"
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.skipif(os.getuid() != 0, reason="a file of another group is needed")
def test_a_group_that_cannot_be_kept_hands_its_rights_to_no_other(tmp_path, monkeypatch):
    path, said = tmp_path / "f", []
    path.write_text("one")
    path.chmod(0o664)
    os.chown(path, -1, 34)
    monkeypatch.setattr("hpcgnn.records.log.warning", lambda text, *given: said.append(text))
    monkeypatch.setattr(os, "chown", lambda *given: os.stat(tmp_path / "absent"))  # an OSError
    write_atomically(path, "two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and "keep its group" in said[0]


def test_a_replaced_file_keeps_its_access_list(tmp_path):
    """Without it the people that it names would have the group's rights."""
    path, name = tmp_path / "f", "system.posix_acl_access"
    path.write_text("one")
    entries = [(1, 6, -1), (2, 6, 1000), (4, 0, -1), (16, 6, -1), (32, 0, -1)]  # user 1000 reads and writes, no group
    try:
        os.setxattr(path, name, struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *each) for each in entries))
    except OSError:
        pytest.skip("the file system has no access lists")
    before = os.getxattr(path, name)
    write_atomically(path, "two")
    assert os.getxattr(path, name) == before


def test_a_write_protected_file_stays(tmp_path):
    """A rename asks for the rights of the folder alone, and root may do all."""
    path = tmp_path / "f"
    path.write_text("one")
    path.chmod(0o444)
    with pytest.raises(RunDirError, match="f: it is write-protected; choose"):
        write_atomically(path, "two")
    with pytest.raises(RunDirError, match="choose a --run-dir"):
        write_atomically(tmp_path / "absent" / "f", "")
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["n" * 240 + ".h5", "ü" * 127])
def test_a_name_as_long_as_the_file_system_allows(tmp_path, name):
    """The name of the temporary file was longer still."""
    write_atomically(tmp_path / name, "one")
    with claimed(tmp_path / name):
        assert (tmp_path / name).read_text() == "one"
    assert os.listdir(tmp_path) == [name]


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
