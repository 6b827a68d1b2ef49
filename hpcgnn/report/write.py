"""From studies to the files of a report: all made first, then each written complete, the page last."""

import datetime
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcgnn import __version__
from hpcgnn.errors import ConfigError
from hpcgnn.output_files import check_outputs, files_of_run, run_of
from hpcgnn.records import replaced_by
from hpcgnn.report.accuracy_table import accuracy_tables, target_tables
from hpcgnn.report.figures import FIGURES, FORMATS, draw_figures
from hpcgnn.report.loss_tables import make_loss_tables
from hpcgnn.report.memory_tables import has_profiles, memory_table
from hpcgnn.report.page import Part, make_page
from hpcgnn.report.read import MARKS
from hpcgnn.report.sections import Section
from hpcgnn.report.tables import make_tables, problems_table

if TYPE_CHECKING:
    from hpcgnn.report.figures import Drawn
    from hpcgnn.report.tables import Table


MADE = "Made by hpcgnn"  # in every report
PAGE, TEXT, CAPTIONS = "report.html", "report.md", "captions.md"
TABLES = (
    "scaling",
    "cost",
    "accuracy",
    "targets",
    "losses",
    "remedies",
    "breakdown",
    "bytes",
    "memory",
    "baseline",
    "runs",
    "problems",
)
KINDS = ("md", "csv", "tex")
TITLES = {"strong": "Strong scaling", "weak": "Weak scaling", "none": "Runs"}


def write_sections(
    sections: list[Section], problems: Sequence[tuple[str, str]], out: Path, title: str = "", force: bool = False
) -> list["Table"]:
    """Write all files of a report into the folder `out`, made if need be.

    Args:
        sections: sections; the tables and figures of each go into its folder.
        problems: [(name, reason)] of the runs left out.
        out: the folder.
        title: title of the page.
        force: replace files that are not a report's.

    Returns:
        the first table of each section.

    Raises:
        ConfigError: the folder has files that are not a report's, or cannot be written.
    """
    check_folder(out, [section_run.path for section in sections for section_run in section.study.runs], force)
    files: dict[str, str | bytes] = {}
    parts: list[Part] = []
    texts: list[str] = []
    for section in sections:
        study, folder = section.study, f"{section.folder}/" if section.folder else ""
        tables = make_tables(study) + accuracy_tables(study) + target_tables(study) + make_loss_tables(study)
        tables += [memory_table(study)] if has_profiles(study) else []
        figures = draw_figures(study)
        files |= {folder + name: content for name, content in _files(tables, figures).items()}
        parts.append((section.title, study, tables, figures))
        texts += [f"# {section.title}"] * bool(section.title) + [table.markdown() for table in tables]
    left_out = [problems_table(problems)] if problems else []
    files |= _files(left_out, [])
    modes = {section.study.mode for section in sections}
    title = title or (TITLES[modes.pop()] if len(modes) == 1 else "Runs")
    made = [
        _about(sections, problems),
        f"{MADE} {__version__} on {datetime.date.today()}, from run directories alone.",
    ]
    files[TEXT] = "\n\n".join([f"# {title}", *made, *[table.markdown() for table in left_out], *texts])
    files[PAGE] = make_page(title, made, left_out, parts)
    _write_files(out, files)
    return [tables[0] for _, _, tables, _ in parts]


def _files(tables: list["Table"], figures: list["Drawn"]) -> dict[str, str | bytes]:
    """{name: text or bytes} of tables and figures, with the captions of these."""
    files: dict[str, str | bytes] = {}
    for table in tables:
        texts = zip(KINDS, (table.markdown(), table.csv(), table.latex()), strict=True)
        files |= {f"{table.name}.{kind}": text for kind, text in texts}
    for drawn in figures:
        files |= {f"{drawn.figure.name}.{kind}": data for kind, data in drawn.images.items()}
    if figures:
        captions = [
            f"![{_plain(one.figure.title)}]({one.figure.name}.png)\n\n**{one.figure.title}.** {_plain(one.caption)}"
            for one in figures
        ]
        files[CAPTIONS] = "\n\n".join(["# How to read the figures", *captions]) + "\n"
    return files


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)


def _about(sections: list[Section], problems: Sequence[tuple[str, str]]) -> str:
    runs = [run for section in sections for run in section.study.runs]
    graphs = sorted({f"{run.summary['graph'].rsplit('/', 1)[-1]} ({run.summary['graph_uuid'][:8]})" for run in runs})
    failed = f", and {len(problems)} entries that could not be used" if problems else ""
    return f"{len(runs)} runs{failed}; graphs: {', '.join(graphs)}."


def _ours() -> set[str]:
    """The names of all files that any study of a report may have."""
    tables = itertools.product(TABLES, KINDS)
    figures = itertools.product((*(figure.name for figure in FIGURES), "timeline"), FORMATS)  # one of version 0.4.0
    return {CAPTIONS, *(f"{name}.{kind}" for name, kind in itertools.chain(tables, figures))}


def check_folder(out: Path, runs: Iterable[Path] = (), force: bool = False) -> None:
    """Raise ConfigError unless a report of these runs may be written to a folder. Files of an earlier report are
    replaced; others with force alone.
    """
    if any((out / mark).exists() for mark in MARKS) or run_of(Path(os.path.realpath(out)) / TEXT) is not None:
        raise ConfigError(f"--out {out} is a run directory or in one; choose another folder for the report")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} exists and is no directory; choose another name")
    names = [PAGE, TEXT, *_ours()]
    there = [folder / name for folder in [out, *out.glob("graph-*/")] for name in names if (folder / name).exists()]
    read = [path for run in runs for path in files_of_run(run)]
    for path in sorted(there):
        check_outputs({"--out": path}, read, force or _is_report(out))


def _is_report(out: Path) -> bool:
    """Whether an earlier report lies in a folder."""
    try:
        return MADE in (out / TEXT).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _write_files(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Write {name: text or bytes}, in order, and remove stale files of an earlier report."""
    earlier = _is_report(out)
    try:
        # The text comes first: by it the folder of a report that was interrupted is known as one.
        for name, content in sorted(files.items(), key=lambda item: item[0] != TEXT):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            with replaced_by(out / name) as temporary, open(temporary, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        for folder in [out, *out.glob("graph-*/")] if earlier else ():
            prefix = "" if folder == out else f"{folder.name}/"
            for name in (name for name in _ours() if prefix + name not in files):
                (folder / name).unlink(missing_ok=True)
            if folder != out and not any(folder.iterdir()):
                folder.rmdir()
    except OSError as error:
        raise ConfigError(f"cannot write the report to {out}: {error.strerror}; choose another --out") from error
