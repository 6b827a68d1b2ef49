"""`hpcgnn report --mlflow`: each run becomes one of MLflow, with its configuration, curves and measures.

MLflow is no requirement. From version 3.7 on its store is a database; 3.17 refuses a folder (`file:`).
"""

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

from hpcgnn.errors import ConfigError
from hpcgnn.report.read import Run, measure

EXPERIMENT, INSTALL = "hpcgnn", "pip install mlflow-skinny sqlalchemy alembic"
# Tags: the directory, a name of it that a search can quote, and the contents, written last.
PLACE, KEY, CONTENTS = "hpcgnn.run_dir", "hpcgnn.key", "hpcgnn.contents"


def digest(content: bytes) -> str:
    """A short name of a content."""
    return hashlib.sha256(content).hexdigest()[:32]


def series(run: Run) -> Iterator[tuple[str, float, int]]:
    """(name, value, epoch) of a run: the numbers of each epoch, then the measures of reports, at the last one."""
    for record in run.records:
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        numbers |= {f"seconds/{name}": value["max"] for name, value in record["seconds"].items()}
        numbers |= {f"bytes/{name}": value["sum"] for name, value in record["bytes"].items()}
        for name, value in numbers.items():
            yield name, value, record["epoch"]
    for name, value in measure(run).items():
        if value == value:
            yield f"run/{name}", value, run.records[-1]["epoch"]


def write_runs(runs: Sequence[Run], store: str) -> str:
    """Write runs to a store, and return a line about it. Raises ConfigError."""
    try:
        entities, tracking = importlib.import_module("mlflow.entities"), importlib.import_module("mlflow.tracking")
        failures = [OSError, ImportError, importlib.import_module("mlflow.exceptions").MlflowException]
        if importlib.util.find_spec("sqlalchemy"):
            failures.append(importlib.import_module("sqlalchemy.exc").SQLAlchemyError)
    except ImportError as error:
        raise ConfigError(f"--mlflow needs MLflow, which is not installed ({error}): {INSTALL}") from error
    try:
        client = tracking.MlflowClient(store)
        name = importlib.import_module("mlflow.environment_variables").MLFLOW_EXPERIMENT_NAME.get() or EXPERIMENT
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        written = sum(_write_run(client, entities, experiment, run) for run in runs)
    except tuple(failures) as error:
        said = " ".join(str(error).split()).split(". ")[0][:200]
        raise ConfigError(
            f"--mlflow {store}: {said}; expected a store that MLflow can write, such as sqlite:///mlflow.db ({INSTALL})"
        ) from error
    unchanged = "; the others are there unchanged" if written < len(runs) else ""
    return f"{written} of {len(runs)} runs written to the experiment {name} of {store}{unchanged}"


def _write_run(client: Any, entities: Any, experiment: str, run: Run) -> bool:
    """Write a run unless it is there, then delete other contents of its directory. Returns whether it was written."""
    contents, key = digest((run.path / "summary.json").read_bytes()), digest(bytes(run.path))
    earlier = client.search_runs([experiment], f"tags.`{KEY}` = '{key}'")
    changed = [each for each in earlier if each.data.tags.get(CONTENTS) != contents]
    written = len(changed) == len(earlier)
    if written:
        _write_new(client, entities, experiment, run, key, contents)
    for each in changed:
        client.delete_run(each.info.run_id)
    return written


def _write_new(client: Any, entities: Any, experiment: str, run: Run, key: str, contents: str) -> None:
    """Write a run. The tag of its contents comes last, so that a run without it is known as unfinished."""
    end = int((run.path / "summary.json").stat().st_mtime * 1000)
    start = end - int(1000 * measure(run)["seconds_total"])
    tags = {PLACE: str(run.path), KEY: key, "hpcgnn.command": " ".join(run.summary["command"])}
    new = client.create_run(experiment, start_time=start, run_name=run.name, tags=tags).info.run_id
    client.log_batch(
        new,
        [entities.Metric(name, value, end, epoch) for name, value, epoch in series(run)],
        [entities.Param(name, str(value)) for name, value in run.config.items()],
    )
    client.set_terminated(new, "FINISHED", end)
    client.set_tag(new, CONTENTS, contents)
