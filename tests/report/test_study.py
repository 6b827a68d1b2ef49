"""Medians, speed-up and labels against figures taken from the runs' own files; unlike runs are kept apart."""

import json
import math
import statistics

import pytest
from run_files import summary

from hpcgnn.errors import ConfigError
from hpcgnn.report.figures import draw_curves
from hpcgnn.report.read import MIB, PARTS, cumulative_bytes, cumulative_seconds, parts_of_epoch, read_runs
from hpcgnn.report.study import build_study, notes, number, study_table, title

from .conftest import change


def test_strong_scaling(runs, study_dir):
    study = build_study(runs("p1-a", "p1-b", "p2-a", "p2-b"))
    assert study.labels == ["GraphSAGE (SAR)"]
    one, two = (row for _, row in study.curve("GraphSAGE (SAR)").iterrows())
    times = {n: [summary(study_dir / f"p{n}-{s}")["epoch_seconds"]["median"] for s in "ab"] for n in (1, 2)}
    for ranks, point in ((1, one), (2, two)):
        assert (point["ranks"], point["repetitions"], point["seeds"]) == (ranks, 2, 2)
        assert point["epoch_seconds"] == pytest.approx(statistics.median(times[ranks]))
        assert (point["epoch_seconds_min"], point["epoch_seconds_max"]) == (min(times[ranks]), max(times[ranks]))
    gain = statistics.median(times[1]) / statistics.median(times[2])
    assert (one["speedup"], one["efficiency"]) == (1, 1)
    assert (two["speedup"], two["efficiency"]) == (pytest.approx(gain), pytest.approx(gain / 2))


def test_measures(runs, study_dir):
    study, said = build_study(runs("sent-p2")), summary(study_dir / "sent-p2")
    point = study.points.iloc[0]
    assert math.isnan(point["speedup"]) and math.isnan(point["efficiency"]), "one number of ranks has no scaling"
    sent = point["rows_bytes_epoch"], point["gradients_bytes_epoch"]
    assert min(sent) > 0 and sent == (said["halo_bytes_per_epoch"], said["allreduce_bytes_per_epoch"])
    kinds = said["bytes_total"]
    assert point["bytes_total"] == sum(kinds[k] for k in ("halo_forward", "halo_backward", "input", "allreduce"))
    assert point["seconds_total"] >= said["epochs"] * said["epoch_seconds"]["min"] > 0
    assert point["growth_bytes"] == said["training_growth_bytes"]["max"]
    assert point["imbalance_edges"] == pytest.approx(said["partition"]["imbalance_edges"])
    point = build_study(runs("p1-a")).points.iloc[0]
    assert point["rows_bytes_epoch"] == point["gradients_bytes_epoch"] == point["bytes_total"] == 0, "one rank"


def test_the_share_of_the_bound(runs, copied):
    """The busiest rank's least seconds, of the median epoch; earlier versions measured none."""
    (run,) = runs("p2-a")
    bound = max((rank["bound"] for rank in run.ranks), key=lambda each: each["seconds"])
    assert run.summary["bound"] == bound
    study = build_study([run])
    share = study.points["bound_share"].item()
    assert 0 < share < 1 and share == bound["seconds"] / run.summary["epoch_seconds"]["median"]
    assert study_table(study)["share of the bound (%)"].item() == number(100 * share)
    assert f"multiplied {number(bound['multiplications_per_second'] / 1e9)} billion" in notes(study)[-1]
    path = copied("p2-a")
    change(path, "summary.json", lambda summary: summary.pop("bound"))
    study = build_study(read_runs([path])[0])
    assert "share of the bound (%)" not in study_table(study) and len(notes(study)) == 1


def test_parts_of_an_epoch_add_up(runs):
    """In every epoch they add up to the slowest rank's time; their medians do so nearly."""
    for record in runs("p2-a")[0].records:
        parts = parts_of_epoch(record["seconds"])
        assert parts.keys() == PARTS.keys()
        assert sum(parts.values()) == pytest.approx(record["seconds"]["epoch"]["max"])


def test_weak_scaling(runs, study_dir):
    study = build_study(runs("p1-a", "p1-b", "weak-p2"), scaling="weak")
    one, two = (row for _, row in study.curve("GraphSAGE (SAR)").iterrows())
    gain = one["epoch_seconds"] / summary(study_dir / "weak-p2")["epoch_seconds"]["median"]
    assert (two["speedup"], two["efficiency"]) == (pytest.approx(2 * gain), pytest.approx(gain))


def test_whatever_else_differs_names_the_curves(runs):
    study = build_study(runs("p1-a", "p2-a", "fine-p2"))
    assert study.labels == ["halo buffer 8", "halo buffer 0.05"]
    assert study.curve("halo buffer 0.05")["ranks"].tolist() == [2]
    assert build_study(runs("p2-a", "gcn-p2")).labels == ["GCN", "GraphSAGE"], "no more keys than needed"
    assert build_study(runs("p2-a", "weak-p2")).labels == ["small", "large"]
    # One rank has no other to read, two ranks of a node read each other's rows unasked.
    kinds = [run.config["intra_node"] for run in runs("p1-a", "p2-a", "sent-p2")]
    assert kinds == ["messages", "shared", "messages"]
    assert build_study(runs("p1-a", "p2-a")).labels == ["GraphSAGE (SAR)"]
    assert build_study(runs("p2-a", "sent-p2")).labels == ["intra node shared", "intra node messages"]


def test_asked_labels_must_tell_all_apart(runs):
    with pytest.raises(ConfigError, match="different configurations: halo_buffer is 0.05, 8.0; add halo_buffer to"):
        build_study(runs("p2-a", "fine-p2"), ["schedule"])
    with pytest.raises(ConfigError, match=r"graph is large.h5 \(\w{8}\), small.h5 \(\w{8}\); add graph to --label-by"):
        build_study(runs("p1-a", "weak-p2"), ["model"])


def test_mean_and_deviation_over_seeds(copied):
    """Of made-up results in folders of variants, against Python's statistics; a curve of one run has no deviation."""
    values = {"good/a": (0, 0.81, 0.80), "good/b": (1, 0.83, 0.79), "good/c": (1, 0.82, 0.84), "alone/a": (0, 0.7, 0.9)}

    for path, (seed, val, test) in values.items():
        (run,), _ = read_runs([copied("p2-a", path)])
        said = run.summary | {"seed": seed, "best_val": val, "test_at_best_val": test}
        said["config"]["run"]["seed"] = seed
        said["config"]["optim"]["lr"] = 0.5 if path.startswith("good") else 0.1
        (run.path / "summary.json").write_text(json.dumps(said))
    found, _ = read_runs([found.parent for found in run.path.parent.parent.glob("*/*/summary.json")])
    study = build_study(found, ["folder"])
    rows = study_table(study).set_index("curve")
    tests = [0.80, 0.79, 0.84]
    assert rows.loc["good", "best val"] == "0.8200 ± 0.0100"
    assert rows.loc["good", "test there"] == f"{statistics.mean(tests):.4f} ± 0.0265"
    assert rows.loc["alone", ["runs", "best val", "test there"]].tolist() == ["1", "0.7000", "0.9000"]
    point = study.points.set_index("label").loc["good"]
    assert point["test_at_best_val_deviation"] == pytest.approx(statistics.stdev(tests)) and point["seeds"] == 2
    assert any("the same run again" in line for line in notes(study))


def test_headings_fit_the_study(runs):
    for names, scaling, words in (
        (["p1-a"], "strong", "GraphSAGE (SAR) on small, 1 rank"),
        (["p2-a", "gcn-p2"], "strong", "GCN and GraphSAGE on small, 2 ranks"),
        (["p1-a", "p2-a"], "strong", "Strong scaling of GraphSAGE (SAR) on small, 1 to 2 ranks"),
        (["p1-a", "weak-p2"], "weak", "Weak scaling of GraphSAGE (SAR) on 2 graphs, 1 to 2 ranks"),
    ):
        assert title(build_study(runs(*names), scaling=scaling)) == words


@pytest.mark.parametrize("name, panels", [("p2-a", 4), ("p1-a", 3)])
def test_a_run_is_drawn_over_epochs_seconds_and_bytes(runs, copied, monkeypatch, name, panels):
    figure, kept = pytest.importorskip("matplotlib.figure").Figure, []
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *path, **how: (kept.append(self), save(self, *path, **how)))
    assert draw_curves(copied(name)).stat().st_size > 0
    (run,) = runs(name)
    spent = [[1, 2, 3, 4, 5], cumulative_seconds(run), [sent / MIB for sent in cumulative_bytes(run)]]
    _, *others = kept[0].axes
    assert len(others) == panels - 1
    for axis, costs, word in zip(others, spent, ("epoch", "training time", "MiB"), strict=False):
        assert word in axis.get_xlabel()
        line = next(line for line in axis.lines if line.get_label().startswith("val"))
        assert list(line.get_xdata()) == costs and list(line.get_ydata()) == [r["val"] for r in run.records]
