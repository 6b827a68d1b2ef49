"""Whole jobs in less memory than they take: the advised limit is enough and kept, and what goes wrong is said."""

import json
import math
import re
import resource
import subprocess

import graphs
import pytest
from core import forked
from core.launching import command_and_environment, train

from hpcgnn.report.read import read_rank_records

pytestmark = pytest.mark.slow

OPTIONS = "--model", "sage", "--layers", 12, "--hidden", 256, "--epochs", 3, "--eval-every", 3, "--seed", 1
RANKS = 2


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return graphs.planted(
        tmp_path_factory.mktemp("within") / "g.h5", [RANKS], clusters=64, nodes=6_000, features=16, classes=4, seed=3
    )


def told(run, count=RANKS):
    """(losses, records of the ranks)."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines], read_rank_records(run, count)


def test_a_job_takes_what_the_batch_system_gives(graph, tmp_path):
    """Where that is too little for training but not for a layer, the rest is on disk; where it is too little for that,
    the job goes on as without a limit, and says so.
    """
    free, held, scratch = tmp_path / "free", tmp_path / "held", tmp_path / "scratch"
    scratch.mkdir()
    options = "--graph", graph, *OPTIONS, "--scratch", scratch
    tight = train(RANKS, *options, "--run-dir", free, SLURM_MEM_PER_NODE="100")
    assert tight.code == 0 and "too little for rank" in tight.err and "it goes on without a limit" in tight.err
    limit = re.search(r"expected at least ([\d.]+)G for the 2 ranks of a node", tight.err)[1]
    enough = str(math.ceil(float(limit) * 1024 * 16 / 15))
    result = train(RANKS, *options, "--run-dir", held, SLURM_MEM_PER_NODE=enough)
    assert result.code == 0 and "for the ranks of a node, which is what they have (--memory auto)" in result.err
    assert "a step keeps up to 0.03 GiB on this rank" in result.err
    (losses, plain), (others, ranks) = told(free), told(held)
    assert losses == others
    for before, rank in zip(plain, ranks):
        assert "scratch" not in before
        assert rank["scratch"]["read_bytes"] > 2 * rank["scratch"]["file_bytes"] > 0, "in each of three epochs"
        assert rank["traffic"]["scratch_read"]["bytes_sent"] == rank["scratch"]["read_bytes"]
    assert sum(rank["peak_rss_bytes"] for rank in ranks) <= float(enough) * 2**20
    assert list(scratch.iterdir()) == []


def test_too_little_for_two_ranks(graph, tmp_path):
    refused = train(RANKS, "--graph", graph, *OPTIONS, "--run-dir", tmp_path / "r", "--memory", "100M")
    assert refused.code != 0 and "--memory 100M is too little for rank" in refused.errors[0]
    assert re.search(r"expected at least ([\d.]+)G for the 2 ranks of a node", refused.errors[0])


def test_a_disk_that_is_full(graph, tmp_path):
    """Files of this process may not grow beyond some size: a write then fails as on a full disk."""
    run = tmp_path / "run"
    options = "--graph", graph, *OPTIONS, "--run-dir", run, "--memory", "1M", "--scratch", tmp_path
    wanted = train(1, *options)
    limit = re.search(r"expected at least ([\d.]+)G", wanted.errors[0])[1]
    words, variables = command_and_environment(1, "-m", "hpcgnn", "train", *options[:-3], f"{limit}G", *options[-2:])
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


def test_what_cannot_be(graph, tmp_path):
    for options, message in (
        (("--memory", "lots"), "--memory: expected a size such as 48G, 1.5T or 800M, auto or none, got 'lots'"),
        (("--memory", "4G", "--schedule", "stale"), "--memory is for --schedule sar and lazy, got stale"),
        (("--memory", "4G", "--scratch", tmp_path / "absent"), "there is no such directory"),
    ):
        words = "--graph", graph, "--model", "gcn", "--run-dir", tmp_path / "r", *options
        result = forked.train(0, *words)
        assert result.code != 0 and message in result.errors[0], result.err


def test_features_on_disk(tmp_path):
    """Wide features, which have no room beside a layer at work: the same curve, and the limit is kept."""
    path, free, held = tmp_path / "wide.h5", tmp_path / "free", tmp_path / "held"
    graphs.planted(path, nodes=20_000, features=800, classes=4, degree=4, seed=3)
    options = "--graph", path, "--model", "sage", "--hidden", 16, "--keep-input", "always", "--epochs", 2, "--seed", 1
    options += "--eval-every", 2
    assert train(1, *options, "--run-dir", free).code == 0
    within = *options, "--run-dir", held, "--scratch", tmp_path, "--memory"
    limit = re.search(r"expected at least ([\d.]+)G", train(1, *within, "1M").errors[0])[1]
    result = train(1, *within, f"{limit}G", "--resume")
    assert result.code == 0, result.err
    assert f"memory: the features and their aggregate are on disk, in {tmp_path}" in result.err
    (losses, plain), (others, (rank,)) = told(free, 1), told(held, 1)
    assert losses == others
    assert rank["peak_rss_bytes"] <= float(limit) * 2**30 < plain[0]["peak_rss_bytes"]
    assert rank["scratch"]["read_bytes"] > 3 * 2 * 20_000 * 800 * 4, "in two epochs and in an evaluation"
