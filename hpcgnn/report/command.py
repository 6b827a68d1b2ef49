"""`hpcgnn report`: from run directories to a folder of tables, figures and one page. Needs neither torch nor MPI."""

import argparse
import importlib.util
import sys
from pathlib import Path

from hpcgnn.errors import ConfigError
from hpcgnn.terminal import tell

ALL_GOOD, SOME_BROKEN = 0, 3

DESCRIPTION = """\
Make tables, figures and one page from the directories that `hpcgnn train` leaves behind, without torch and MPI.

    hpcgnn report runs/                                    every run below a folder
    hpcgnn report runs/p1-* runs/p2-* runs/p4-* --out scaling
    hpcgnn report runs/gcn-* runs/gat-* --label-by model   a curve for each model
    hpcgnn report runs/weak-* --scaling weak               a graph for each number of ranks, of one size per rank

Runs that differ in seed alone are repetitions. The table of the study has medians with the least and the most, and
means of metrics with their deviation. Runs that differ in the number of ranks make a curve. Whatever else differs
names the curves. Files of an earlier report in --out are replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command on an argparse parser."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN_DIR",
        help="a run directory, or a directory with run directories somewhere below",
    )
    parser.add_argument("--out", default="report", metavar="DIR", help="where to write (default: report)")
    parser.add_argument(
        "--force", action="store_true", help="overwrite files in --out that an earlier report has not left there"
    )
    parser.add_argument(
        "--label-by",
        default="",
        metavar="KEY[,KEY]",
        help="a curve for each value of these configuration keys, such as schedule, model, halo_buffer, graph, or the "
        "folder that run directories lie in (default: whatever differs between the runs)",
    )
    parser.add_argument(
        "--scaling",
        default="strong",
        choices=("strong", "weak"),
        help="strong: one graph on several numbers of ranks; weak: a graph for each number of ranks (default: strong)",
    )
    parser.add_argument(
        "--mlflow",
        default="",
        metavar="STORE",
        help="also write the runs to this tracking store of MLflow, such as sqlite:///mlflow.db (docs/formats.md)",
    )


def report(arguments: argparse.Namespace) -> int:
    """Write the report that the parsed arguments ask for, and return the exit code. Raises ConfigError."""
    for library in ("pandas", "matplotlib", "jinja2"):
        if importlib.util.find_spec(library) is None:
            raise ConfigError(f"{library} is not installed; reports need it: pip install 'hpcgnn[plot]'")
    from hpcgnn.report.read import read_runs
    from hpcgnn.report.study import build_study
    from hpcgnn.report.write import PAGE, write_report

    out = Path(arguments.out)
    runs, broken = read_runs(arguments.runs)
    alone = not runs and len(broken) == 1
    for one in broken[: 0 if alone else None]:
        tell(f"hpcgnn: warning: {one.path}: {one.reason}", sys.stderr)
    if not runs:
        why = f": {broken[0].path}: {broken[0].reason}" if alone else " (reasons above)"
        raise ConfigError(
            f"none of the {len(broken)} run directories can be reported{why}; expected directories that `hpcgnn "
            "train` has left behind"
        )
    keys = [key.strip().lstrip("-").replace("-", "_") for key in arguments.label_by.split(",") if key.strip()]
    study = build_study(runs, keys, arguments.scaling)
    tell(write_report(study, [(one.name, one.reason) for one in broken], out, arguments.force))
    tell(f"report of {len(runs)} runs in {out}/: {PAGE}, tables and figures")
    if arguments.mlflow:
        from hpcgnn.report.tracking_store import write_runs

        tell(write_runs(runs, arguments.mlflow))
    return SOME_BROKEN if any(one.asked for one in broken) else ALL_GOOD
