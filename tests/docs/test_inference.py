"""The page on models of other programs, carried out: PyG trains, hpcgnn predicts on two ranks, and both agree."""

import shlex

import pytest
from core.forked import start
from pages import blocks, read

from hpcgnn.__main__ import main
from partition_tools.cli.main import main as tools


@pytest.mark.slow
def test_the_page_from_its_first_script_to_its_last(tmp_path, monkeypatch):
    pytest.importorskip("torch_geometric")
    scripts, commands = (blocks(read("inference.md"), language) for language in ("python", "bash"))
    monkeypatch.chdir(tmp_path)
    exec(scripts[0], {})
    for line in "".join(commands).splitlines():
        words = shlex.split(line)
        if words[0] == "mpiexec":
            done = start(int(words[2]), "-m", "hpcgnn", *words[4:], cwd=tmp_path)
            assert done.code == 0, f"{line}: {done.out}{done.err}"
        elif words[1] == "-c":
            exec(words[2], {})
        else:
            assert (main(words[1:]) if words[0] == "hpcgnn" else tools(words[3:])) == 0, line
    compared = {}
    exec(scripts[1], compared)  # it compares outputs and hidden states itself
    assert compared["same"] == 1 and compared["logits"].shape == (300, 5)
