"""Accuracy against what it cost: the table of targets, and the picture of a single run."""

import json
import math

import pytest

from hpcgnn.report.accuracy_table import target_tables
from hpcgnn.report.curves import draw_curves
from hpcgnn.report.measures import MIB, cumulative_bytes, cumulative_seconds
from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study

SECONDS, SENT = (1.0, 2.0, 4.0, 8.0, 16.0), (1, 1, 2, 2, 4)


def made_up(path, seed, values, better="higher"):
    """Let a copied run have these validation metrics, and seconds and MiB of halo rows that are easy to add."""
    summary = json.loads((path / "summary.json").read_text()) | {"better": better, "seed": seed}
    summary["config"]["run"]["seed"] = seed
    (path / "summary.json").write_text(json.dumps(summary))
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for record, value, seconds, sent in zip(records, values, SECONDS, SENT, strict=True):
        record["seconds"]["epoch"]["max"] = seconds
        record["bytes"] = {"halo_forward": {"sum": sent * MIB, "max": 0}, "evaluation": {"sum": 99 * MIB, "max": 0}}
        record["val"] = value
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    "better, good, worse, targets",
    [
        ("higher", (0.5, 0.951, 0.9, 1.0, 0.2), (0.1, None, 0.96, 0.97, 0.9), (0.95, 0.98, 0.99)),
        ("lower", (2.0, 1.05, 1.2, 1.0, 3.0), (9.0, None, 1.04, 1.03, 1.1), (1 / 0.95, 1 / 0.98, 1 / 0.99)),
    ],
)
def test_the_first_epoch_that_reaches_a_share(copied, better, good, worse, targets):
    for seed, values in enumerate((good, worse)):
        made_up(copied("p2-a", f"runs/{seed}"), seed, values, better)
    found, broken = read_runs([copied("p2-a", "other").parent / "runs"])
    assert not broken
    (table,) = target_tables(build_study(found))
    rows = table.frame.set_index("share")
    assert rows["target"].tolist() == pytest.approx(targets)
    names = ["runs", "repetitions", "epochs", "seconds", "bytes", "seconds_min", "seconds_max"]
    assert rows.loc[95, names].tolist() == [2, 2, 2.5, 5.0, 3 * MIB, 3.0, 7.0]
    assert rows.loc[98, names].tolist() == [2, 1, 4, 15.0, 6 * MIB, 15.0, 15.0]
    assert table.rows[0][2:6] == ["2 of 2", "2.50 [2.00, 3.00]", "5.00 [3.00, 7.00]", "3.00 [2.00, 4.00]"]


def test_without_a_metric_there_is_none(copied):
    made_up(copied("p1-a"), 0, (None,) * 5)
    assert target_tables(build_study(read_runs([copied("p1-a", "new").parent / "p1-a"])[0])) == []


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
    assert not math.isnan(spent[1][-1])
