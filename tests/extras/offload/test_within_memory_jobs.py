"""Whole jobs in less memory than they take: the advised limit is enough and kept, and errors are reported."""

import math
import re
import resource
import subprocess

import graphs
import pytest
from core.launching import command_and_environment, train
from run_files import losses

from hpcgnn.report.read import read_rank_records

pytestmark = pytest.mark.slow

OPTIONS = "--model", "sage", "--layers", 12, "--hidden", 256, "--epochs", 3, "--eval-every", 3, "--seed", 1
RANKS = 2


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return graphs.planted(
        tmp_path_factory.mktemp("within") / "g.h5", [RANKS], clusters=64, nodes=6_000, features=16, classes=4, seed=3
    )


def test_a_job_takes_what_the_batch_system_gives(graph, tmp_path):
    """Where that is too little for training but not for a layer, the rest is on disk.

    Where it is too little for a layer, the job reports this and goes on as without a limit.
    """
    free, held, scratch = tmp_path / "free", tmp_path / "held", tmp_path / "scratch"
    scratch.mkdir()
    options = "--graph", graph, *OPTIONS, "--scratch", scratch
    tight = train(RANKS, *options, "--run-dir", free, SLURM_MEM_PER_NODE="100")
    assert tight.code == 0 and "is too little: rank" in tight.err and "it goes on without a limit" in tight.err
    limit = re.search(r"expected at least --memory (\d+)M for a node with its 2 ranks", tight.err)[1]
    enough = str(math.ceil(int(limit) * 16 / 15))
    result = train(RANKS, *options, "--run-dir", held, SLURM_MEM_PER_NODE=enough)
    assert result.code == 0 and "for the ranks of a node, which is what they have (--memory auto)" in result.err
    assert "a step keeps up to 0.03 GiB on this rank" in result.err
    plain, ranks = (read_rank_records(run, RANKS) for run in (free, held))
    assert losses(free) == losses(held)
    for before, rank in zip(plain, ranks):
        assert "scratch" not in before
        assert rank["scratch"]["read_bytes"] > 2 * rank["scratch"]["file_bytes"] > 0, "in each of three epochs"
        assert rank["traffic"]["scratch_read"]["bytes_sent"] == rank["scratch"]["read_bytes"]
    assert sum(rank["peak_rss_bytes"] for rank in ranks) <= float(enough) * 2**20
    assert list(scratch.iterdir()) == []


def test_a_disk_that_is_full(graph, tmp_path):
    """Files of this process may not grow beyond some size: a write then fails as on a full disk."""
    run = tmp_path / "run"
    options = "--graph", graph, *OPTIONS, "--run-dir", run, "--memory", "1M", "--scratch", tmp_path
    wanted = train(1, *options)
    limit = re.search(r"expected at least --memory (\d+)M", wanted.errors[0])[1]
    words, variables = command_and_environment(1, "-m", "hpcgnn", "train", *options[:-3], f"{limit}M", *options[-2:])
    most = 8 << 20
    done = subprocess.run(
        [*words, "--resume"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=90,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("hpcgnn: error")]
    assert done.returncode != 0 and f"the scratch file in {tmp_path}" in lines[0] and "File too large" in lines[0]
    assert "Traceback" not in done.stderr
