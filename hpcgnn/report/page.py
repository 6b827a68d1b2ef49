"""The report as one HTML page that stands alone: images inside, no script, no network, everything escaped."""

import base64
import html
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcgnn.report.remarks import SHARED

if TYPE_CHECKING:
    from hpcgnn.report.figures import Drawn
    from hpcgnn.report.study import Study
    from hpcgnn.report.tables import Table


# The policy makes the browser enforce the promise above.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
table {{ border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
thead th {{ border-bottom: 2px solid #444; vertical-align: bottom; }}
.wide {{ overflow-x: auto; }} .note {{ color: #555; font-size: 0.85rem; }}
.note.shared {{ color: #9b1c1c; }}
.problems td {{ text-align: left; }} .problems h2 {{ color: #9b1c1c; }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
figure {{ margin: 0; flex: 1 1 26rem; }} figure img {{ width: 100%; max-width: 46rem; }}
figcaption {{ font-size: 0.85rem; max-width: 46rem; color: #333; margin-bottom: 0.3rem; }}
figcaption strong {{ color: #1a1a1a; }}
h1.part {{ font-size: 1.35rem; margin-top: 3rem; border-top: 2px solid #444; padding-top: 0.6rem; }}
pre {{ white-space: pre-wrap; font-size: 0.8rem; background: #f5f5f5; padding: 0.6rem; }}
</style>
</head>
<body>
"""


# Of a study: heading or "", the study, its tables, its figures.
Part = tuple[str, "Study", list["Table"], list["Drawn"]]


def make_page(title: str, made: Sequence[str], problems: list["Table"], parts: list["Part"]) -> str:
    """Return the text of the page.

    Args:
        title: its title.
        made: lines about the program and the source of the page.
        problems: tables of problems.
        parts: one (heading or '', Study, list of Table, list of Drawn) per study.
    """
    texts = [_HEAD.format(title=html.escape(title)), f"<h1>{html.escape(title)}</h1>"]
    texts += [f'<p class="note">{html.escape(line)}</p>' for line in made]
    texts += [_section(table, "problems") for table in problems]
    for heading, study, tables, figures in parts:
        texts += [f'<h1 class="part">{html.escape(heading)}</h1>'] if heading else []
        texts += _study(study, tables, figures)
    return "\n".join([*texts, "</body>\n</html>\n"])


def _study(study: "Study", tables: list["Table"], figures: list["Drawn"]) -> list[str]:
    main = [table for table in tables if table.name != "runs"]
    parts = [_section(table) for table in main[:1]]
    parts.append('<h2>Figures</h2>\n<div class="figures">')
    parts += [_figure(drawn) for drawn in figures]
    parts.append("</div>")
    parts += [_section(table) for table in main[1:]]
    parts += [_section(table) for table in tables if table.name == "runs"]
    return [*parts, _provenance(study)]


def _section(table: "Table", kind: str = "") -> str:
    look = "note shared" if SHARED in table.note else "note"
    note = f'<p class="{look}">{html.escape(table.note)}</p>' if table.note else ""
    body = f'<div class="wide">{table.html()}</div>{note}'
    return f'<section class="{kind}"><h2>{html.escape(table.title)}</h2>\n{body}</section>'


def _figure(drawn: "Drawn") -> str:
    image = f"data:image/svg+xml;base64,{base64.b64encode(drawn.images['svg']).decode()}"
    title, text = html.escape(drawn.figure.title), html.escape(drawn.caption)
    caption = f"<figcaption><strong>{title}.</strong> {text}</figcaption>"
    return f'<figure>{caption}<img alt="{title}. {text}" src="{image}"></figure>'


def _provenance(study: "Study") -> str:
    """List the facts that the numbers depend on: each distinct set of versions, kernels and hosts, and every
    command.
    """
    parts = ["<h2>Provenance</h2>"]
    seen: dict[str, list[str]] = {}
    for run in study.runs:
        versions = ", ".join(f"{name} {version}" for name, version in run.summary["versions"].items())
        text = f"{versions}; kernels: {run.summary.get('kernels', 'unknown')}; hosts: {', '.join(run.summary['hosts'])}"
        seen.setdefault(text, []).append(run.name)
    for text, names in seen.items():
        which = "all runs" if len(seen) == 1 else ", ".join(names)
        parts.append(f"<p>{html.escape(text)} <span class=note>({html.escape(which)})</span></p>")
    lines = [f"# {run.name}: {run.summary['ranks']} ranks\n{shlex.join(run.summary['command'])}" for run in study.runs]
    parts.append(f"<details><summary>Commands</summary><pre>{html.escape(chr(10).join(lines))}</pre></details>")
    return "\n".join(parts)
