"""Memory profiles from training on two ranks: the account explains what the kernel measured, and the report shows
both.
"""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from core.launching import start

from hpcgnn.plugins.account import FREE, MADE, TAKEN
from hpcgnn.report.memory_tables import KEPT_FREE, profiles
from hpcgnn.report.read import read_rank_records, read_runs
from hpcgnn.report.study import build_study
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from .conftest import change_ranks, summary, write_report

RANKS, MODELS = 2, ("sage", "gcn", "gat")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A folder with a profiled run of each model, large enough that tensors outweigh what libraries allocate
    besides.
    """
    folder = tmp_path_factory.mktemp("profiled")
    graph = folder / "graph.h5"
    generate_graph("planted", graph, Spec(nodes=42000, degree=6, features=64, classes=8, seed=1))
    partition_graph(graph, [RANKS], num_clusters=32)
    options = {"graph": str(graph), "layers": 3, "hidden": 256, "heads": 1, "epochs": 2, "profile_memory": True}
    jobs = [(model, {**options, "model": model}) for model in MODELS]
    done = start(RANKS, Path(__file__).with_name("make_runs.py"), folder, json.dumps(jobs))
    assert done.code == 0, done.err
    return folder


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
    phases = summary(profiled / model)["memory_profile"]["phases"]
    assert phases["backward"]["measured"]["max"] >= phases["backward"]["accounted"]["min"] * 0.95


def test_the_report_shows_it(profiled, tmp_path, drawing_only):
    drawing_only("memory_phases", "memory_account")
    found, broken = read_runs([profiled])
    study = build_study(found, ["model"])
    write_report(study, broken, tmp_path)
    frame = pd.read_csv(tmp_path / "memory.csv").set_index("label")
    assert set(frame.index) == {f"model {model}" for model in MODELS}
    for profile in profiles(study):
        row = frame.loc[profile.label]
        assert row["backward_bytes"] == profile.phases["backward"]
        assert row["accounted_bytes"] + row["difference_bytes"] == profile.phases[profile.busiest]
        accounts = [row[name] for name in frame.columns if name.startswith("account ")]
        assert sum(accounts) == row["accounted_bytes"]
    for name, word in (("memory_phases", "backward"), ("memory_account", "activations and workspace")):
        words = re.findall("<!-- (.*) -->", (tmp_path / f"{name}.svg").read_text())
        assert word in words


def test_without_profiles_nothing_is_shown(runs, tmp_path):
    assert profiles(build_study(runs("p1-a"))) == []


def test_what_is_not_in_use_is_not_called_activations(profiled, tmp_path, drawing_only):
    """In the busiest phase nothing may be taken of the arena, all of which is resident: all that shows it tells that
    apart.
    """
    drawing_only("memory_account")
    assert FREE == KEPT_FREE and FREE not in (TAKEN, MADE)
    found, _ = read_runs([profiled / "sage"])
    write_report(build_study(found), [], tmp_path)
    (profile,) = profiles(build_study(found))
    frame, shown = pd.read_csv(tmp_path / "memory.csv"), (tmp_path / "memory.md").read_text()
    assert frame[f"account {FREE} (bytes)"].item() == profile.account[FREE] > 0
    assert "of it not in use" in shown and "neither activations nor workspace" in shown
    svg = (tmp_path / "memory_account.svg").read_text()
    assert (
        f"<!-- {FREE} -->" in svg and "nothing is stored there at that moment" in (tmp_path / "captions.md").read_text()
    )


def test_a_profile_that_had_another_name_for_it(profiled, tmp_path):
    path = shutil.copytree(profiled / "sage", tmp_path / "sage")
    change_ranks(path, rename_free)
    found, _ = read_runs([path])
    (profile,) = profiles(build_study(found))
    assert FREE in profile.account and "free pieces of the arena" not in profile.account


def rename_free(record):
    for account in record["memory_profile"]["account_bytes"].values():
        account["free pieces of the arena"] = account.pop(FREE)
