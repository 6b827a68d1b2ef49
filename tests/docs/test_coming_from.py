"""The scripts and commands of docs/coming-from.md run, on small folders and in fewer epochs; PyG's has equal losses."""

import contextlib
import io
import re
import shlex
import tarfile
from pathlib import Path

import pages
import pytest
import torch
from core.forked import start

from partition_tools.cli.main import main as tools

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Inputs under the names that the page has; folders have two parts."""
    parts = TESTS / "extras" / "readers"
    for archive, name, called in (
        ("dgl-sar", "arxiv", "partition_data"),
        ("dgl-sar", "cora", "parts"),
        ("dgl-graphbolt", "graphstorm", "mag_parts"),
    ):
        with tarfile.open(parts / f"{archive}.tgz") as packed:
            packed.extractall(tmp_path, filter="data")
        (tmp_path / name).rename(tmp_path / called)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(section, language):
    """The blocks of a section in a language."""
    return pages.blocks(pages.read("coming-from.md").partition(f"\n## {section}\n")[2].partition("\n## ")[0], language)


def launch(line):
    """Run a line of `mpiexec` on two ranks. Returns its output."""
    words = shlex.split(line)
    program = ["-m", "hpcgnn"] if words[3] == "hpcgnn" else []
    done = start(2, *program, *words[4:], cwd=Path.cwd(), modules=("torch._dynamo",))  # for optimizers of torch
    assert done.code == 0, f"{line}: {done.out}{done.err}"
    return done.out


def commands(section):
    return "".join(blocks(section, "bash")).splitlines()


def test_pyg_beside_ours(folder):
    data = pytest.importorskip("torch_geometric.data").Data
    torch.manual_seed(1)
    nodes, label = 120, torch.arange(120) % 4
    ends = torch.randint(nodes, (2, 900))
    masks = {
        f"{name}_mask": torch.arange(nodes) // 4 % 3 == place for place, name in enumerate(("train", "val", "test"))
    }
    x = torch.randn(nodes, 16) + torch.eye(4, 16)[label]
    torch.save(data(x=x, edge_index=torch.unique(ends, dim=1), y=label, **masks), "data.pt")
    before, after = blocks("PyG", "python")
    (folder / "after.py").write_text(after)
    with contextlib.redirect_stdout(io.StringIO()) as losses:
        exec(before, {})
    importing, partitioning, training = commands("PyG")
    exec(shlex.split(importing)[2], {})
    assert tools(shlex.split(partitioning)[3:]) == 0
    assert launch(training).splitlines()[-20:] == losses.getvalue().splitlines()


def test_sar_beside_ours(folder):
    before, after = blocks("SAR", "python")
    compile(before, "before.py", "exec")
    (folder / "after.py").write_text(after.replace("epochs(100)", "epochs(20)").replace("256", "16"))
    importing, training = commands("SAR")
    assert tools(shlex.split(importing)[3:]) == 0
    losses = [float(line.split()[1]) for line in launch(training).splitlines() if re.fullmatch(r"\d+ [\d.]+", line)]
    assert len(losses) == 20 and losses[-1] < losses[0]


def test_the_folders_of_distdgl_and_graphstorm():
    """`predict` is in test_inference.py."""
    compile(blocks("DistDGL", "python")[0], "part.py", "exec")
    importing, training, _ = commands("DistDGL")
    assert tools(shlex.split(importing)[3:]) == 0
    launch(training.replace("--epochs 100", "--epochs 1").replace("256", "8"))
    importing, partitioning, training = commands("GraphStorm")
    assert tools([*shlex.split(importing)[3:], "--set", "arrays.ignore=edge_train_mask"]) == 0
    assert tools(shlex.split(partitioning.replace("--ranks 8 --clusters 512", "--ranks 2 --clusters 4"))[3:]) == 0
    launch(f"{training} --epochs 1")
