"""MLflow reads from its store what the files of runs say (`hpcgnn report --mlflow`)."""

import sys

import pytest

from hpcgnn.__main__ import main
from hpcgnn.report.read import measure, read_runs

from .conftest import change


def reported(out, store, *folders):
    return main(["report", *map(str, folders), "--out", str(out), "--mlflow", store])


@pytest.mark.usefixtures("undrawn")
def test_a_store_has_the_runs_once(study_dir, copied, tmp_path, capsys):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow's databases need SQLAlchemy")
    store, folders = f"sqlite:///{tmp_path / 'mlflow.db'}", [study_dir / "p1-a", copied("p2-a", "it's")]
    assert reported(tmp_path / "out", store, *folders) == 0, capsys.readouterr().err
    assert "2 of 2 runs written to the experiment hpcgnn" in capsys.readouterr().out
    client = tracking.MlflowClient(store)
    experiment = client.get_experiment_by_name("hpcgnn").experiment_id
    found = {each.data.tags["hpcgnn.run_dir"]: each for each in client.search_runs([experiment])}
    for run in read_runs(folders)[0]:
        there = found.pop(str(run.path))
        assert there.data.params["hidden"] == "8" and there.info.status == "FINISHED"
        assert 0 < there.info.end_time - there.info.start_time
        losses = [(each.step, each.value) for each in client.get_metric_history(there.info.run_id, "loss")]
        assert losses == [(record["epoch"], record["loss"]) for record in run.records]
        assert there.data.metrics["run/epoch_seconds"] == measure(run)["epoch_seconds"]
    assert not found
    # A second time: a run that has changed takes the place of the earlier one, and the other stays.
    change(folders[1], "summary.json", lambda summary: summary.update(final_loss=7.0))
    assert reported(tmp_path / "out", store, *folders) == 0
    assert "1 of 2 runs written" in capsys.readouterr().out
    values = [each.data.metrics["run/final_loss"] for each in client.search_runs([experiment])]
    assert len(values) == 2 and 7.0 in values
    # What a killed command left beside a whole run goes, and the run stays.
    key = client.search_runs([experiment])[0].data.tags["hpcgnn.key"]
    unfinished = client.create_run(experiment, tags={"hpcgnn.key": key}).info.run_id
    assert reported(tmp_path / "out", store, *folders) == 0
    assert "0 of 2 runs written" in capsys.readouterr().out
    left = [each.info.run_id for each in client.search_runs([experiment])]
    assert len(left) == 2 and unfinished not in left
    (tmp_path / "no.db").write_text("no database")
    for place in ("sqlite:////proc/none/mlflow.db", f"sqlite:///{tmp_path / 'no.db'}"):
        assert reported(tmp_path / "out", place, folders[0]) == 2
        assert "expected a store that MLflow can write" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
def test_without_the_library_a_line_says_what_to_install(study_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    assert reported(tmp_path / "out", "sqlite:///mlflow.db", study_dir / "p1-a") == 2
    assert "pip install mlflow-skinny sqlalchemy alembic" in capsys.readouterr().err
