"""A run as a table of pandas, for whoever goes on with it in Python: `hpcgnn.read_run`."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.report.read import Unusable, read_records, read_summary

if TYPE_CHECKING:
    import pandas as pd


def read_run(path: str | Path) -> "pd.DataFrame":
    """Return the metrics of a run directory as a DataFrame with a row for each epoch; the index counts from 1.

    Columns are loss, lr, train, val, test (NaN in epochs without an evaluation), and an epoch's costs by dotted names:
    seconds.epoch.max, bytes.halo_forward.sum, .... frame.attrs has 'config', the options of the run; 'summary', the
    content of summary.json, or None for an unfinished run; 'path'. Needs neither torch nor MPI.

    Raises:
        RunDirError: the path is no run directory, or damaged.
        ConfigError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            "read_run gives a table of pandas, which is not installed: pip install 'hpcgnn[plot]'"
        ) from error
    path = Path(path)
    if not (path / "config.toml").is_file():
        raise RunDirError(f"{path} is not the directory of a run: expected config.toml, which `hpcgnn train` writes")
    try:
        records = read_records(path) if (path / "metrics.jsonl").exists() else []
        summary: dict[str, Any] | None = read_summary(path) if (path / "summary.json").exists() else None
        sections = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except (Unusable, OSError, ValueError) as problem:
        raise RunDirError(f"{path} cannot be read: {problem}") from problem
    frame = pandas.json_normalize(records) if records else pandas.DataFrame({"epoch": [], "loss": []})
    frame = frame.set_index("epoch")
    for split in ("train", "val", "test"):
        if split in frame:
            frame[split] = frame[split].astype("float64")  # None, of a metric that is not defined
    config = {key: value for section in sections.values() for key, value in section.items()}
    frame.attrs.update(path=str(path), config=config, summary=summary)
    return frame
