"""The script and the commands of docs/coming-from.md for users of PyG."""

import contextlib
import io
import shlex

import pages
import pytest
import torch
from core.forked import start

from partition_tools.cli.main import main as tools

pytestmark = pytest.mark.slow


def test_pyg_beside_ours(tmp_path, monkeypatch):
    """The PyG script of the page and ours have equal losses."""
    monkeypatch.chdir(tmp_path)
    section = pages.read("coming-from.md").partition("\n## PyG\n")[2].partition("\n## ")[0]
    data = pytest.importorskip("torch_geometric.data").Data
    torch.manual_seed(1)
    nodes, label = 120, torch.arange(120) % 4
    ends = torch.randint(nodes, (2, 900))
    masks = {
        f"{name}_mask": torch.arange(nodes) // 4 % 3 == place for place, name in enumerate(("train", "val", "test"))
    }
    x = torch.randn(nodes, 16) + torch.eye(4, 16)[label]
    torch.save(data(x=x, edge_index=torch.unique(ends, dim=1), y=label, **masks), "data.pt")
    before, after = pages.blocks(section, "python")
    (tmp_path / "after.py").write_text(after)
    with contextlib.redirect_stdout(io.StringIO()) as losses:
        exec(before, {})
    importing, partitioning, training = "".join(pages.blocks(section, "bash")).splitlines()
    exec(shlex.split(importing)[2], {})
    assert tools(shlex.split(partitioning)[3:]) == 0
    done = start(2, *shlex.split(training)[4:], cwd=tmp_path, modules=("torch._dynamo",))  # for optimizers of torch
    assert done.code == 0, done.err
    assert done.out.splitlines()[-20:] == losses.getvalue().splitlines()
