"""Memory profiles from training on two ranks: the account explains the bytes that the kernel measured, and the report
shows both.
"""

import json
from pathlib import Path

import graphs
import pytest
from core.launching import start

from hpcgnn.plugins.account import FREE
from hpcgnn.report.figures import draw_figures, profiles
from hpcgnn.report.read import read_rank_records, read_runs
from hpcgnn.report.study import build_study

RANKS, MODELS = 2, ("sage", "gcn", "gat")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A folder with a profiled run of each model, large enough that tensors outweigh other allocations of libraries."""
    folder = tmp_path_factory.mktemp("profiled")
    graph = folder / "graph.h5"
    graphs.planted(graph, [RANKS], clusters=32, nodes=42000, features=64, classes=8)
    options = {"graph": str(graph), "layers": 3, "hidden": 256, "heads": 1, "epochs": 2, "profile_memory": True}
    jobs = [(model, {**options, "model": model}) for model in MODELS]
    done = start(RANKS, Path(__file__).with_name("make_runs.py"), folder, json.dumps(jobs))
    assert done.code == 0, done.err
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_account_explains_what_was_measured(profiled, model):
    for rank, record in enumerate(read_rank_records(profiled / model, RANKS)):
        marks, base = record["memory_profile"]["phase_peak_bytes"], record["memory_profile"]["base_bytes"]
        assert {"load", "plan", "forward", "backward", "reduction", "step", "evaluation"} == marks.keys()
        assert max(marks.values()) <= record["peak_rss_bytes"]
        highest = max(mark for phase, mark in marks.items() if phase not in ("load", "plan"))
        assert highest <= record["baseline_rss_bytes"] + record["training_growth_bytes"]
        for phase in ("forward", "backward"):
            known = sum(record["memory_profile"]["account_bytes"][phase].values())
            assert 0.9 <= known / (marks[phase] - base) <= 1.05, (rank, phase)


@pytest.mark.slow
def test_the_report_shows_it(profiled, runs):
    """Memory that is resident but not in use has a name of its own, so that it is not taken for activations."""
    found, _ = read_runs([profiled])
    study = build_study(found, ["model"])
    for (measured, account), (_, (run,)) in zip(profiles(study), study.groups().items(), strict=True):
        assert 0.9 <= sum(account.values()) / measured <= 1.05 and account[FREE] > 0
        assert any(account in rank["memory_profile"]["account_bytes"].values() for rank in run.ranks)
    assert FREE.endswith("not in use then") and "memory" in draw_figures(study)
    assert profiles(build_study(runs("p1-a"))) == [None]
