"""From a study to the files of a report: all made first, then each written complete, the page first."""

import base64
import datetime
import html
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from hpcgnn import __version__
from hpcgnn.errors import ConfigError
from hpcgnn.output_files import check_outputs, files_of_run, run_of
from hpcgnn.records import latex, replaced_by
from hpcgnn.report.figures import FIGURES, FORMATS, draw_figures
from hpcgnn.report.read import MARKS
from hpcgnn.report.study import notes, runs_table, spoken_graph, study_table, title

if TYPE_CHECKING:
    from hpcgnn.report.study import Study


MADE = "Made by hpcgnn"  # in every report
PAGE = "report.html"
FILES = [PAGE, *(f"{name}.{kind}" for name in ("study", "runs") for kind in ("csv", "tex"))]
FILES += [f"{name}.{kind}" for name, kind in itertools.product(FIGURES, FORMATS)]
# The policy makes the browser enforce that the page needs no network, and runs no script.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.25rem 0.5rem; border-bottom: 1px solid #ddd; text-align: right; }}
th {{ vertical-align: bottom; }} td {{ white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
.wide {{ overflow-x: auto; }} .figures {{ display: flex; flex-wrap: wrap; gap: 1rem 2rem; margin: 1.5rem 0; }}
figure {{ margin: 0; width: 34rem; max-width: 100%; }} img {{ width: 100%; }} figcaption {{ text-align: center; }}
pre {{ white-space: pre-wrap; }}
</style>
</head>
<body>
"""


def write_report(study: "Study", problems: Sequence[tuple[str, str]], out: Path, force: bool = False) -> str:
    """Write all files of a report into the folder `out`, made if need be, and return the table of the study.

    Args:
        study: the content.
        problems: [(name, reason)] of the runs left out.
        out: the folder.
        force: replace files that are not a report's.

    Raises:
        ConfigError: the folder has files that are not a report's, or cannot be written.
    """
    _check_folder(out, study, force)
    texts = {"study": study_table(study), "runs": runs_table(study)}
    figures, files = draw_figures(study), dict[str, str | bytes]()
    for name, numbers in (("study", study.points), ("runs", study.table)):
        files[f"{name}.csv"] = numbers.to_csv(index=False)
        files[f"{name}.tex"] = _latex(texts[name])
    for name, images in figures.items():
        files |= {f"{name}.{kind}": image for kind, image in images.items()}
    graphs = sorted({spoken_graph(run) for run in study.runs})
    about = f"{MADE} {__version__} on {datetime.date.today()} from {len(study.runs)} run{'s' * (len(study.runs) > 1)}; "
    about += f"graph{'s' * (len(graphs) > 1)}: {', '.join(graphs)}."
    files[PAGE] = _page(about, study, texts, problems, figures)
    _write_files(out, files)
    return texts["study"].to_markdown(index=False, disable_numparse=True)


def _page(
    about: str,
    study: "Study",
    texts: Mapping[str, pd.DataFrame],
    problems: Sequence[tuple[str, str]],
    figures: Mapping[str, Mapping[str, bytes]],
) -> str:
    """The report as one page that stands alone: images inside, no script, no network, everything escaped."""
    heading = html.escape(title(study))
    parts = [f"{_HEAD.format(title=heading)}<h1>{heading}</h1>\n<p>{html.escape(about)}</p>"]
    if problems:
        parts += ["<h2>Runs left out</h2>", _html(pd.DataFrame(problems, columns=["run", "reason"]))]
    parts += ["<h2>Results</h2>", _html(texts["study"]), '<div class="figures">']
    for name, images in figures.items():
        caption, image = html.escape(FIGURES[name][1]), base64.b64encode(images["png"]).decode()
        parts.append(f'<figure><img alt="{caption}" src="data:image/png;base64,{image}">')
        parts.append(f"<figcaption>{caption}</figcaption></figure>")
    reading = [*notes(study), *dict.fromkeys(FIGURES[name][2] for name in figures)]
    parts.append(f"</div>\n<p>{html.escape(' '.join(reading))}</p>")
    if len(study.runs) > 1:
        parts += ["<h2>Runs</h2>", _html(texts["runs"])]
    return "\n".join([*parts, *_provenance(study), "</body>\n</html>\n"])


def _html(frame: pd.DataFrame) -> str:
    """A table; ranges and deviations stand below their values."""
    table = frame.to_html(index=False, border=0).replace(" [", "<br>[").replace(" ± ", "<br>± ")
    return f'<div class="wide">{table}</div>'


_NUMBER = re.compile(r"(–|-?[\d,]+)((?:\.\d+)?(?: .*)?)")


def _latex(frame: pd.DataFrame) -> str:
    """A table for LaTeX with the package booktabs, whose numbers are aligned by the decimal point: such a column is two
    for LaTeX, and the second begins with the point.
    """
    kinds, columns = [], []
    for head, cells in frame.items():
        split = [_NUMBER.fullmatch(cell) for cell in cells]
        if all(split) and any(match and match[2] for match in split):
            kinds.append("r@{}l")
            parts = [" & ".join(latex(part) for part in match.groups()) for match in split if match]
            columns.append([rf"\multicolumn{{2}}{{c}}{{{latex(head)}}}", *parts])
        else:
            kinds.append("r" if all(split) else "l")
            columns.append([latex(head), *map(latex, cells)])
    first, *rest = (" & ".join(row) + r" \\" for row in zip(*columns, strict=True))
    lines = [rf"\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule", first, r"\midrule", *rest, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", ""])


def _provenance(study: "Study") -> list[str]:
    """List what the numbers depend on: versions, kernels and hosts of each run, and its command."""
    lines = []
    for run in study.runs:
        versions = ", ".join(f"{name} {version}" for name, version in run.summary["versions"].items())
        lines.append(f"# {run.name}: {run.summary['ranks']} ranks; {versions}; kernels: {run.summary.get('kernels')}")
        lines.append(f"# hosts: {', '.join(run.summary['hosts'])}\n{shlex.join(run.summary['command'])}")
    return ["<h2>Provenance</h2>", f"<pre>{html.escape(chr(10).join(lines))}</pre>"]


def _check_folder(out: Path, study: "Study", force: bool) -> None:
    """Raise ConfigError unless a report may be written to a folder: others than a report's files stay without force."""
    if any((out / mark).exists() for mark in MARKS) or run_of(Path(os.path.realpath(out)) / PAGE) is not None:
        raise ConfigError(f"--out {out} is a run directory or in one; choose another folder for the report")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} exists and is no directory; choose another name")
    read = [path for run in study.runs for path in files_of_run(run.path)]
    for name in sorted(FILES):
        if (out / name).exists():
            check_outputs({"--out": out / name}, read, force or _is_report(out))


def _is_report(out: Path) -> bool:
    """Whether an earlier report lies in a folder."""
    try:
        return MADE in (out / PAGE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _write_files(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Write {name: text or bytes}, and remove stale files of an earlier report."""
    stale = [name for name in FILES if name not in files] if _is_report(out) else []
    try:
        out.mkdir(parents=True, exist_ok=True)
        # The page comes first: by it the folder of a report that was interrupted is known as one.
        for name, content in sorted(files.items(), key=lambda item: item[0] != PAGE):
            with replaced_by(out / name) as temporary, open(temporary, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        for name in stale:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write the report to {out}: {error.strerror}; choose another --out") from error
