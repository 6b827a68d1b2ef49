"""A script of one's own under a launcher: the one of docs/python.md, and the ways in which a script ends."""

import re

import graphs
import pytest
from pages import blocks, read
from run_files import records

from .. import launching
from ..forked import start, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with graph.h5, for 1 and 2 ranks."""
    folder = tmp_path_factory.mktemp("script")
    graphs.planted(folder / "graph.h5", [1, 2], clusters=24, nodes=600, degree=8, features=16, classes=4)
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """The records of `hpcgnn train` with the options that the page names, on one rank."""
    text = " ".join(read("python.md").split())
    options = re.search(r"`hpcgnn train (--model.*?)`", text)[1].split()
    run = train(0, "--graph", folder / "graph.h5", *options, "--run-dir", folder / "run")
    assert run.code == 0, run.err
    return records(folder / "run")


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_script_of_the_page_learns_what_hpcgnn_train_learns(folder, tmp_path, trained, ranks):
    (tmp_path / "script.py").write_text(blocks(read("python.md"), "python")[0])
    done = launching.start(ranks, tmp_path / "script.py", cwd=folder)
    assert done.code == 0, done.err
    lines = re.findall(r"^(\d+) loss (\S+) val (\S+)$", done.out, re.MULTILINE)
    assert [int(epoch) for epoch, _, _ in lines] == list(range(1, 21))
    assert [float(loss) for _, loss, _ in lines] == pytest.approx([record["loss"] for record in trained], rel=1e-4)
    assert float(lines[-1][2]) == pytest.approx(trained[-1]["val"], abs=0.02)


BEGIN = """
import sys
import torch
import hpcgnn
graph = hpcgnn.load("graph.h5", watchdog={watchdog})
"""


def ended(folder, body, ranks=2, watchdog=60):
    return start(ranks, "-c", BEGIN.format(watchdog=watchdog) + body, cwd=folder)


@pytest.mark.parametrize(
    "body, words",
    [
        ("from hpcgnn.nn import GCNConv\nGCNConv(16, 4)(graph, graph.features)\n", "self_loops='add'"),
        ("hpcgnn.load('graph.h5', halo_buffer=-1.0)\n", "--halo-buffer: expected at least"),
    ],
)
def test_a_mistake_that_all_ranks_know_of_is_one_line(folder, body, words):
    done = ended(folder, body)
    assert done.code == 2 and len(done.errors) == 1 and words in done.errors[0], done.err
    assert "Traceback" not in done.err


def test_a_rank_that_leaves_alone_is_found(folder):
    body = "if graph.rank == 1:\n    sys.exit(3)\ngraph.total(torch.ones(1))\n"
    done = ended(folder, body, watchdog=2)
    assert done.code != 0 and "no rank has got on" in done.err and "the end of the script" in done.err
    assert done.seconds < 60


def test_ranks_wait_for_each_other_at_the_end(folder):
    done = ended(folder, "import time\nif graph.rank == 0:\n    time.sleep(1)\n    print('late')\n")
    assert done.code == 0 and "late" in done.out, done.err
