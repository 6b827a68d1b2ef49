"""What slows a job down is named by its loss report: a slow rank, a slow link, a bad map, shared cores, tiny buffers.

Every slowdown is far larger than what the job takes without it, and only the order of losses is asserted, so that a
busy machine does not matter.
"""

import json
from pathlib import Path

import pytest
from core.launching import start

from hpcgnn.report.read import read_rank_records
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

RANKS = 2
TOGETHER = ("slow rank", "slow link", "bad map", "tiny buffers", "slow evaluation", "slow disk", "page faults")
LIMIT_SECONDS = 240


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("losses") / "graph.h5"
    generate_graph("planted", path, Spec(nodes=4000, degree=10, features=32, classes=4, seed=1))
    partition_graph(path, [RANKS], num_clusters=64)
    return path


def slowed(graph, *names):
    """{name: summary} of a job that trains once with each of these slowdowns."""
    done = start(RANKS, Path(__file__).with_name("slowing.py"), graph.parent, graph, *names, limit=LIMIT_SECONDS)
    assert done.code == 0, done.err
    return {name: json.loads((graph.parent / name.replace(" ", "-") / "summary.json").read_text()) for name in names}


@pytest.fixture(scope="module")
def summaries(graph):
    return slowed(graph, *TOGETHER)


def line(summary, name):
    """The line of a loss."""
    lines = {each["name"]: each for each in summary["losses"]["lines"]}
    assert name in lines, f"{name} is not among {list(lines)}"
    return lines[name]


def largest(summary, *names):
    """Whether one of these parts is the largest but for the work itself."""
    parts = {name: share for name, share in summary["losses"]["parts"].items() if name != "work"}
    return max(parts, key=parts.get) in names


def test_shares_add_up(summaries):
    for summary in summaries.values():
        assert sum(summary["losses"]["parts"].values()) == pytest.approx(1)
        assert all(share >= -1e-6 for share in summary["losses"]["parts"].values())


def test_a_slow_rank(summaries):
    summary = summaries["slow rank"]
    found = line(summary, "imbalance")
    assert largest(summary, "imbalance") and "slow rank" in found["title"] and "rank 1 on" in found["found"]
    assert summary["losses"]["lines"][0]["name"] == "imbalance", "the most is to be gained there"


def test_a_slow_link(summaries):
    assert largest(summaries["slow link"], "wait_forward", "wait_backward")
    assert "--halo-dtype bf16" in line(summaries["slow link"], "wait_backward")["remedy"]


def test_a_bad_map(summaries):
    summary = summaries["bad map"]
    found = line(summary, "imbalance")
    assert largest(summary, "imbalance") and "the map" in found["title"] and "rank 0 on" in found["found"]
    assert "--balance" in found["remedy"]


def test_tiny_buffers(summaries):
    found = line(summaries["tiny buffers"], "short_rounds")
    assert "--halo-buffer" in found["remedy"]
    waits = [each for each in summaries["tiny buffers"]["losses"]["lines"] if each["name"].startswith("wait_forward")]
    assert all(each["remedy"].startswith("a larger `--halo-buffer`") for each in waits), "narrower rows would not help"
    assert "short_rounds" not in [each["name"] for each in summaries["slow rank"]["losses"]["lines"]]


def test_evaluation_and_checkpoints(summaries):
    for name, part, option in (
        ("slow evaluation", "evaluation", "--eval-every"),
        ("slow disk", "checkpoints", "--checkpoint-every"),
    ):
        assert largest(summaries[name], part) and option in line(summaries[name], part)["remedy"]


def test_page_faults(summaries):
    summary = summaries["page faults"]
    first = read_rank_records(summary["config"]["run"]["run_dir"], summary["ranks"])[0]
    if not first["losses"]["parts"]["forward"]["minor_faults"]:
        pytest.skip("the kernel does not count page faults")
    assert line(summaries["page faults"], "page_faults")["inside"] == "work"


def test_shared_cores(graph):
    summary = slowed(graph, "shared cores")["shared cores"]
    found = line(summary, "shared_cores")
    assert largest(summary, "shared_cores") and "2 ranks of 1 thread share 1 core" in found["found"]
    log = (graph.parent / "shared-cores" / "log.txt").read_text()
    assert "shared cores, " in log and "at the most" in log
