"""The output of a command replaces none of its inputs, and nothing but a plain file."""

import os
import re

import numpy as np
import pytest

from hpcgnn.errors import FormatError
from partition_tools.workspace.scratch import Scratch

GENERATE = ("generate", "planted", "--nodes", 60, "--degree", 4, "--features", 2, "--classes", 2)
EDGES = "src,dst\n0,1\n1,2\n2,3\n3,0\n"


def name_of(option):
    return re.findall(r"\w+", option)[-1]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """An edge list with all the tables that may accompany it; {option: file}."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text(EDGES)
    texts = {
        "--features": "id,f\n0,1\n1,2\n2,3\n3,4\n",
        "--labels": "id,label\n0,1\n1,0\n2,1\n3,0\n",
        "--splits": "id,split\n0,train\n1,val\n2,test\n3,train\n",
        "--set tables.node_types=": "id,type\n0,a\n1,a\n2,b\n3,b\n",
    }
    for option, text in texts.items():
        (tmp_path / f"{name_of(option)}.csv").write_text(text)
    np.save(tmp_path / "edge-features.npy", np.ones((4, 2), np.float32))
    return {option: f"{name_of(option)}.csv" for option in texts} | {"--set edges.features=": "edge-features.npy"}


def test_import_keeps_its_edge_list_and_every_table(tables, fails, cli):
    words = ["import", "e.csv"]
    for option, name in tables.items():
        words += f"{option}{name}".split() if "=" in option else [option, name]
    os.link("e.csv", "hard")
    for output in ("e.csv", "hard", *tables.values()):
        for force in ((), ("--force",)):
            assert "is the input" in fails(*words, "-o", output, *force)
    assert cli(*words, "-o", "g.h5")[0] == 0
    assert "choose another name or overwrite it with --force" in fails(*words, "-o", "g.h5")
    assert cli(*words, "-o", "g.h5", "--force")[0] == 0
    assert "is the input" in fails("partition", "add", "g.h5", "--ranks", 2, "-o", "g.h5", "--force")
    assert "expected a new name; g.h5 exists" in fails(*GENERATE, "-o", "g.h5")


def test_import_keeps_the_files_of_a_folder(tmp_path, monkeypatch, fails, cli):
    monkeypatch.chdir(tmp_path)
    os.mkdir("graph")
    np.save("graph/edge_index.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    np.save("graph/x.npy", np.ones((3, 2), np.float32))
    for output in ("graph/x.npy", "graph/edge_index.npy"):
        assert "is the input itself" in fails("import", "graph", "-o", output, "--force")
    os.link("graph/x.npy", "beside")
    assert "is the input graph/x.npy itself" in fails("import", "graph", "-o", "beside", "--force")
    assert "is a directory" in fails("import", "graph", "-o", "graph", "--force")
    for _ in range(2):
        assert cli("import", "graph", "-o", "graph/g.h5", "--force")[0] == 0, "what an earlier import has left there"


def test_a_private_graph_stays_private_and_a_protected_one_as_it_is(tmp_path, monkeypatch, fails, cli):
    """Maps are added in place."""
    monkeypatch.chdir(tmp_path)
    assert cli(*GENERATE, "-o", "g.h5")[0] == 0
    for mode in (0o600, 0o640):
        os.chmod("g.h5", mode)
        assert cli("partition", "add", "g.h5", "--ranks", 2)[0] == 0 and os.stat("g.h5").st_mode & 0o777 == mode
    os.symlink("g.h5", "link")
    assert cli("partition", "add", "link", "--ranks", 3)[0] == 0 and os.path.islink("link")
    os.unlink("link")
    os.chmod("g.h5", 0o444)
    before = os.stat("g.h5").st_mode, os.stat("g.h5").st_mtime_ns
    assert "g.h5 is write-protected; allow the change with chmod u+w" in fails("partition", "add", "g.h5", "--ranks", 3)
    assert (os.stat("g.h5").st_mode, os.stat("g.h5").st_mtime_ns) == before and os.listdir() == ["g.h5"]


def test_a_folder_that_is_no_scratch_directory_stays(tables, fails):
    os.mkdir(".g.h5.work")
    with open(".g.h5.work/mine", "w") as file:
        file.write("mine")
    assert "is no scratch directory of ours" in fails("import", "e.csv", "-o", "g.h5")
    with pytest.raises(FormatError, match="is no scratch directory"):
        Scratch(".g.h5.work", 1 << 20)
