"""Medians, speed-up and labels against figures taken from the runs' own files; unlike runs are kept apart."""

import json
import math
import statistics

import pytest

from hpcgnn.errors import ConfigError
from hpcgnn.report.accuracy_table import accuracy_tables
from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study
from hpcgnn.report.tables import make_tables, number

from .conftest import summary

STRONG = ("p1-a", "p1-b", "p2-a", "p2-b")


def test_strong_scaling(runs, study_dir):
    study = build_study(runs(*STRONG))
    assert (study.mode, study.labels) == ("strong", ["sage, sar"])
    one, two = (row for _, row in study.curve("sage, sar").iterrows())
    times = {n: [summary(study_dir / f"p{n}-{s}")["epoch_seconds"]["median"] for s in "ab"] for n in (1, 2)}
    for ranks, point in ((1, one), (2, two)):
        assert (point["ranks"], point["repetitions"]) == (ranks, 2)
        assert point["epoch_seconds"] == pytest.approx(statistics.median(times[ranks]))
        assert (point["epoch_seconds_min"], point["epoch_seconds_max"]) == (min(times[ranks]), max(times[ranks]))
    gain = statistics.median(times[1]) / statistics.median(times[2])
    assert (one["speedup"], one["efficiency"]) == (1, 1)
    assert (two["speedup"], two["efficiency"]) == (pytest.approx(gain), pytest.approx(gain / 2))


def test_measures(runs, study_dir):
    study, said = build_study(runs("p2-a")), summary(study_dir / "p2-a")
    point = study.points.iloc[0]
    assert study.mode == "none" and "speedup" not in point
    assert point["bytes_halo_forward"] + point["bytes_halo_backward"] == said["halo_bytes_per_epoch"] > 0
    assert point["bytes_epoch"] == said["halo_bytes_per_epoch"] + said["allreduce_bytes_per_epoch"]
    kinds = said["bytes_total"]
    rows = sum(kinds[k] for k in ("halo_forward", "halo_backward", "input"))
    assert (point["bytes_rows_total"], point["bytes_total"]) == (rows, rows + kinds["allreduce"])
    assert point["seconds_total"] >= said["epochs"] * said["epoch_seconds"]["min"] > 0
    assert point["growth_bytes"] == said["training_growth_bytes"]["max"]
    assert point["imbalance_nodes"] == pytest.approx(said["partition"]["imbalance_nodes"])
    assert point["imbalance_edges"] == pytest.approx(said["partition"]["imbalance_edges"])


def test_one_rank_sends_nothing(runs):
    point = build_study(runs("p1-a")).points.iloc[0]
    assert point["bytes_epoch"] == point["bytes_total"] == 0


def test_parts_of_an_epoch_add_up(runs):
    """In every epoch they add up to the slowest rank's time; their medians do so nearly."""
    from hpcgnn.report.measures import PARTS, parts_of_epoch

    for record in runs("p2-a")[0].records:
        parts = parts_of_epoch(record["seconds"])
        assert parts.keys() == PARTS.keys()
        assert sum(parts.values()) == pytest.approx(record["seconds"]["epoch"]["max"])


def test_weak_scaling(runs, study_dir):
    study = build_study(runs("p1-a", "p1-b", "weak-p2"))
    assert study.mode == "weak"
    one, two = (row for _, row in study.curve("sage, sar").iterrows())
    gain = one["epoch_seconds"] / summary(study_dir / "weak-p2")["epoch_seconds"]["median"]
    assert (two["speedup"], two["efficiency"]) == (pytest.approx(2 * gain), pytest.approx(gain))


def test_whatever_else_differs_names_the_curves(runs):
    study = build_study(runs("p1-a", "p2-a", "fine-p2"))
    assert study.labels == ["cap 8 MiB", "cap 0.05 MiB"]
    assert study.curve("cap 0.05 MiB")["ranks"].tolist() == [2]


def test_models_are_not_mixed(runs):
    found = runs("p1-a", "p2-a", "gcn-p2")
    with pytest.raises(ConfigError, match="different models: model is gcn, sage; .*--label-by model"):
        build_study(found)
    assert build_study(found, ["model"]).labels == ["model sage", "model gcn"]
    assert build_study(found, mix=True).points["repetitions"].tolist() == [1, 2]
    assert build_study(found, scaling="none").labels == [
        "model sage, self_loops keep",
        "model gcn, self_loops add",
    ]


def test_graphs_are_not_mixed(runs):
    found = runs("p1-a", "p2-a", "weak-p2")
    with pytest.raises(ConfigError, match=r"different graphs: large.h5 \(\w{8}\), small.h5 \(\w{8}\)"):
        build_study(found)
    assert build_study(found, ["graph"]).labels == ["graph small.h5", "graph large.h5"]
    assert build_study(found, mix=True).points["repetitions"].tolist() == [1, 2]
    with pytest.raises(ConfigError, match="different graphs"):
        build_study(runs("p1-a", "weak-p2"), scaling="strong")


def test_weak_scaling_is_not_claimed_of_one_graph(runs):
    with pytest.raises(ConfigError, match="--scaling weak: expected a graph of its own"):
        build_study(runs(*STRONG), scaling="weak")


def test_asked_labels_must_tell_all_apart(runs):
    with pytest.raises(ConfigError, match="different configurations: halo_buffer is 0.05, 8.0"):
        build_study(runs("p2-a", "fine-p2"), ["schedule"])


def test_unknown_names(runs):
    with pytest.raises(
        ConfigError, match="--label-by halo_bufer: .* no such configuration key; expected one of: .*halo_buffer"
    ):
        build_study(runs("p2-a"), ["halo_bufer"])
    with pytest.raises(ConfigError, match="--baseline 'one-shot' is no label; expected one of: cap 0.05 MiB; cap"):
        build_study(runs("fine-p2", "p2-a"), baseline="one-shot")


def test_folders_name_the_variants_of_a_study(copied):
    """Runs of unlike schedules, each in the folder of its variant, whatever else differs between the folders."""
    paths = [
        copied(name, f"{folder}/{name}") for folder, name in (("exact", "p2-a"), ("exact", "p2-b"), ("fine", "fine-p2"))
    ]
    found, broken = read_runs(paths)
    study = build_study(found, ["folder"], baseline="exact")
    assert not broken and study.labels == ["exact", "fine"]
    table = next(table for table in make_tables(study) if table.name == "cost")
    exact, fine = (study.points.set_index("label").loc[label] for label in ("exact", "fine"))
    assert [row[0] for row in table.rows] == ["exact", "fine"] and table.head[6] == "times fewer than exact"
    assert table.rows[1][6] == number(exact["bytes_rows_total"] / fine["bytes_rows_total"])
    mixed, _ = read_runs([copied("fine-p2", "exact/other"), *paths])
    with pytest.raises(ConfigError, match="curve 'exact' are of different configurations: halo_buffer"):
        build_study(mixed, ["folder"])


def test_mean_and_deviation_over_seeds(copied):
    """Of made-up results, against Python's statistics; a curve of one run has no deviation."""
    values = {"good/a": (0, 0.81, 0.80), "good/b": (1, 0.83, 0.79), "good/c": (2, 0.82, 0.84), "alone/a": (0, 0.7, 0.9)}
    for path, (seed, val, test) in values.items():
        found = copied("p2-a", path)
        said = json.loads((found / "summary.json").read_text())
        said |= {"seed": seed, "best_val": val, "test_at_best_val": test}
        said["config"]["run"]["seed"] = seed
        said["config"]["optim"]["lr"] = 0.5 if path.startswith("good") else 0.1
        (found / "summary.json").write_text(json.dumps(said))
    found, _ = read_runs([copied_path.parent for copied_path in found.parent.parent.glob("*/*/summary.json")])
    (table,) = accuracy_tables(build_study(found, ["folder"]))
    rows = {row[0]: row for row in table.rows}
    tests = [0.80, 0.79, 0.84]
    assert rows["good"][1:6] == ["2", "3", "3", "0.8200 ± 0.0100", f"{statistics.mean(tests):.4f} ± 0.0265"]
    assert rows["alone"][2:6] == ["1", "1", "0.7000", "0.9000"]
    frame = table.frame.set_index("label")
    assert frame.loc["good", "test_at_best_val_deviation"] == pytest.approx(statistics.stdev(tests))
    assert math.isnan(frame.loc["alone", "test_at_best_val_deviation"])
    assert "Best mean validation: good, on 2 ranks." in table.note and "same run again" not in table.note


def test_repeated_seeds_are_pointed_out_and_single_runs_have_no_table(runs, copied):
    (table,) = accuracy_tables(build_study(runs(*STRONG)))
    assert len(table.rows) == 2 and "same run again" not in table.note
    (table,) = accuracy_tables(build_study(read_runs([copied("p2-a", name) for name in ("once", "again")])[0]))
    assert table.rows[0][2:4] == ["2", "1"] and "same run again" in table.note
    assert accuracy_tables(build_study(runs("p1-a", "p2-a"))) == []
