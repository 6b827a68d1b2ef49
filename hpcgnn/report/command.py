"""`hpcgnn report`: from run directories to a folder of tables, figures and one page. Needs neither torch nor MPI."""

import argparse
import importlib.util
import sys
from pathlib import Path

from hpcgnn.errors import ConfigError
from hpcgnn.terminal import tell

ALL_GOOD, SOME_BROKEN = 0, 3

DESCRIPTION = """\
Make tables, figures and one page from the directories that `hpcgnn train` leaves behind. Needs their files only, so it
runs on any machine; it needs neither torch nor MPI.

    hpcgnn report runs/                                    every run below a folder
    hpcgnn report runs/p1-* runs/p2-* runs/p4-* --out scaling
    hpcgnn report runs/ --label-by halo_buffer --baseline 'cap 64 MiB'      compare with a larger communication memory
    hpcgnn report runs/gcn-* runs/gat-* --label-by model   a curve for each model

Runs that differ in seed alone are repetitions: medians are shown, with the least and the most. Runs of one graph on
several numbers of ranks are strong scaling. Runs with a graph for each number of ranks, of one size per rank, are weak
scaling. Whatever else differs names the curves. Runs on different graphs or with different
metrics are studies apart in one report, each in a folder of its own, unless --label-by graph or --mix joins them."""
EPILOG = """\
files in --out:
  report.html              the whole report in one file that needs no network
  report.md                its tables
  TABLE.md .csv .tex       each table: scaling, cost, accuracy, targets, losses, remedies, breakdown, bytes,
                           memory, baseline, runs, problems
  FIGURE.png .svg          each figure: epoch_time, speedup, efficiency, memory, bytes, imbalance, breakdown, loss,
                           validation, accuracy_bytes, accuracy_seconds, memory_phases, memory_account
  captions.md              how to read each figure
  graph-NAME/              these, for each study, where there are several
Files that do not apply are left out. Files of an earlier report in the folder are replaced. memory* tables and
figures need runs made with --profile-memory.

exit code:
  0  the report is written, and every named run was good; it lists unfinished, damaged and incomparable runs of
     folders, with the reason
  3  the report is written, and lists named runs that were missing or broken, with the reason
  2  nothing is written: no run was good, or an option was wrong"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command on an argparse parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EPILOG
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
        "folder that run directories lie in (default: whatever differs between the runs, model and graph excepted)",
    )
    parser.add_argument(
        "--scaling",
        default="auto",
        choices=("auto", "strong", "weak", "none"),
        help="kind of scaling; auto: by the graphs; none: no speed-up (default: auto)",
    )
    parser.add_argument("--baseline", metavar="LABEL", help="compare every other curve with this one, rank by rank")
    parser.add_argument("--mix", action="store_true", help="let runs of different models or graphs share a curve")
    parser.add_argument("--title", default="", help="the title of the page")


def report(arguments: argparse.Namespace) -> int:
    """Write the report that the parsed arguments ask for, and return the exit code. Raises ConfigError."""
    for library in ("pandas", "matplotlib"):
        if importlib.util.find_spec(library) is None:
            raise ConfigError(f"{library} is not installed; reports need it: pip install 'hpcgnn[plot]'")
    from hpcgnn.report.read import read_runs
    from hpcgnn.report.sections import make_sections
    from hpcgnn.report.write import PAGE, TEXT, check_folder, write_sections

    check_folder(Path(arguments.out), force=arguments.force)
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
    sections, left_out = make_sections(runs, keys, arguments.scaling, arguments.baseline, arguments.mix)
    for title, reason in left_out:
        tell(f"hpcgnn: warning: left out: {title}: {reason}", sys.stderr)
    problems = [*((one.name, one.reason) for one in broken), *left_out]
    tables = write_sections(sections, problems, Path(arguments.out), arguments.title, arguments.force)
    for section, table in zip(sections, tables, strict=True):
        if section.title:
            tell(f"## {section.title}, in {arguments.out}/{section.folder}/\n")
        tell(table.markdown())
    count = sum(len(section.study.runs) for section in sections)
    apart = f", {len(sections)} studies apart" if len(sections) > 1 else ""
    tell(f"report of {count} runs{apart} in {arguments.out}/: {PAGE}, {TEXT}, tables and figures")
    return SOME_BROKEN if any(one.asked for one in broken) else ALL_GOOD
