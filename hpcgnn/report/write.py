"""From a study to the files of its report: all made first, then each written complete, the page last."""

import datetime
import itertools

from hpcgnn import __version__
from hpcgnn.errors import ConfigError
from hpcgnn.records import replaced_by
from hpcgnn.report.figures import FIGURES, FORMATS, draw_figures
from hpcgnn.report.memory import has_profiles, memory_table
from hpcgnn.report.page import make_page
from hpcgnn.report.read import MARKS
from hpcgnn.report.tables import make_tables

PAGE, TEXT = "report.html", "report.md"
TABLES = ("scaling", "cost", "breakdown", "bytes", "memory", "baseline", "runs", "problems")
KINDS = ("md", "csv", "tex")
TITLES = {"strong": "Strong scaling", "weak": "Weak scaling", "none": "Runs"}


def write_report(study, broken, out, title=""):
    """Write all files of a report into the folder `out`, made if need be; returns the tables. Raises ConfigError."""
    tables = make_tables(study, broken)
    if has_profiles(study):
        tables.append(memory_table(study))
    figures = draw_figures(study)
    title = title or TITLES[study.mode]
    made = [
        _about(study, broken),
        f"Made by hpcgnn {__version__} on {datetime.date.today()}, from run directories alone.",
    ]
    files = {}
    for table in tables:
        files |= {
            f"{table.name}.{kind}": text for kind, text in zip(KINDS, (table.markdown(), table.csv(), table.latex()))
        }
    for figure, images in figures.items():
        files |= {f"{figure.name}.{kind}": data for kind, data in images.items()}
    files[TEXT] = "\n\n".join([f"# {title}", *made, *[table.markdown() for table in tables]])
    files[PAGE] = make_page(title, study, tables, figures, made)
    _write_files(out, files)
    return tables


def _about(study, broken):
    graphs = sorted(
        {f"{run.summary['graph'].rsplit('/', 1)[-1]} ({run.summary['graph_uuid'][:8]})" for run in study.runs}
    )
    failed = f", and {len(broken)} that could not be used" if broken else ""
    return f"{len(study.runs)} runs{failed}; graphs: {', '.join(graphs)}."


def _ours():
    """The names of all files that any report may have."""
    tables = itertools.product(TABLES, KINDS)
    figures = itertools.product((figure.name for figure in FIGURES), FORMATS)
    return {f"{name}.{kind}" for name, kind in itertools.chain(tables, figures)}


def _write_files(out, files):
    """Write {name: text or bytes}, in order, and remove what an earlier report left that this one does not have."""
    if any((out / mark).exists() for mark in MARKS):
        raise ConfigError(f"--out {out} is a run directory; choose another folder for the report")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replaced_by(out / name) as temporary, open(temporary, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        for name in _ours() - files.keys():
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write the report to {out}: {error.strerror}; choose another --out") from error
