"""The tables of docs/performance.md, made again by the commands of that page: see paper.sh.

The page has the commands, and paper.toml beside this file has for each of its sections the number of its tables, the
files that its commands need, the rows that no command makes, and what --quick changes. tests/docs/test_paper.py holds
both together. Each section runs in a folder of its own, in which `jobs` and `docs` are those of this checkout.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (0, 2)]  # shared parts, this checkout

import numpy as np
from comparison.machine import describe_machine
from shared.tables import write_csv

import hpcgnn

ROOT = Path(__file__).resolve().parents[2]
PAGE, LIST = ROOT / "docs" / "performance.md", Path(__file__).with_name("paper.toml")
TITLE = "hpcgnn: tables of docs/performance.md, made again"


@dataclass(frozen=True)
class Section:
    """A section of the page. name: its anchor; tables: headings of its tables; blocks: its blocks of shell."""

    name: str
    title: str
    tables: tuple[str, ...]
    blocks: tuple[str, ...]


def sections(text):
    """[Section] of a page's sections that have tables, by their order."""
    found = []
    for part in re.split(r"^(?=##+ )", text, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0].lstrip("# ")
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
        tables = re.findall(r"^(\|.*\|)\n\|[-: |]+\|$", part, re.MULTILINE)
        blocks = re.findall(r"^```bash\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
        if tables:
            found.append(Section(name, title, tuple(tables), tuple(blocks)))
    return found


def changed(text, changes):
    """A text with [[old, new], ...] replaced, in this order."""
    for old, new in changes:
        text = text.replace(old, new)
    return text


def why_not(section, listed, options):
    """Why a section is not made, or None: it is."""
    if not section.blocks or listed.get("reason"):
        return listed["reason"]
    if options.only and section.name not in options.only:
        return "not asked for (--only)"
    missing = [name for name in listed.get("inputs", ()) if not (options.inputs / name).exists()]
    if missing and not options.quick:
        return f"{', '.join(missing)} not in {options.inputs} (--inputs)"
    return None


def stand_in(path):
    """Write a small planted graph in place of a downloaded data set, for --quick."""
    random, nodes, classes = np.random.default_rng(0), 600, 4
    y = np.arange(nodes) % classes
    edges = random.integers(nodes, size=(2, 8 * nodes))
    edges[1, ::2] -= (edges[1] - edges[0])[::2] % classes  # half of the edges join nodes of one class
    masks = {
        f"{name}_mask": np.arange(nodes) // classes % 3 == place for place, name in enumerate(("train", "val", "test"))
    }
    x = np.eye(classes, 16, dtype=np.float32)[y] + random.standard_normal((nodes, 16), np.float32)
    np.savez(path, edge_index=edges % nodes, x=x, y=y, **masks)


def run(script, folder, log):
    """Run lines of shell in a folder, with their output in a file. Returns (exit code, seconds)."""
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    with open(log, "w", encoding="utf-8") as output:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    return done.returncode, round(time.monotonic() - begun, 1)


def rows_of_runs(folder):
    """A row for each run directory below a folder: medians of the epochs after the first, and their spread."""
    rows = []
    for path in sorted(folder.rglob("summary.json")):
        epochs = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        seconds = [each["seconds"]["epoch"]["max"] for each in epochs[1:] or epochs]
        processor = [
            sum(each["cpu"][kind]["sum"] for kind in ("user_seconds", "system_seconds"))
            for each in epochs[1:] or epochs
        ]
        sent = sum(each["sum"] for kind, each in epochs[-1]["bytes"].items() if kind != "evaluation")
        result = json.loads(path.read_text())
        rows.append(
            {
                "run": str(path.parent.relative_to(folder)),
                "ranks": result["ranks"],
                "seconds of an epoch": spread(seconds),
                "processor seconds": spread(processor),
                "sent in an epoch (MiB)": f"{sent / 2**20:.3f}",
                "training memory, largest rank (MiB)": f"{result['training_growth_bytes']['max'] / 2**20:.0f}",
            }
        )
    return rows


def spread(values):
    """The median of some values, and their least and greatest in brackets."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def markdown(rows):
    """Dictionaries of the same keys as a table."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def linked(source, target):
    """Make a link, unless it is there."""
    if not target.exists():
        target.symlink_to(source)


def make(section, listed, graphs, options):
    """Run a section's commands. Returns its row of the summary."""
    folder = options.out / section.name
    row = {"section": section.name, "state": "made", "seconds": 0.0, "reason": ""}
    if folder.exists():
        return row | {"state": "failed", "reason": f"{folder} exists: name another folder (--out)"}
    folder.mkdir(parents=True)
    for name in ("jobs", "docs"):
        linked(ROOT / name, folder / name)
    for name in listed.get("inputs", ()):
        if options.quick:
            stand_in(folder / name)
        else:
            linked((options.inputs / name).resolve(), folder / name)
    changes = [*graphs["quick_all"], *listed["quick"]] if options.quick else []
    for name in listed.get("graphs", ()):
        if not (options.out / name).exists():
            lines = changed(graphs[name]["make"], graphs[name]["quick"] if options.quick else [])
            code, _ = run(lines, options.out, options.out / f"{name}.log")
            if code:
                return row | {"state": "failed", "reason": f"{name} could not be made: see {name}.log"}
        linked(Path("..") / name, folder / name)
    texts = []
    for number, block in enumerate(section.blocks, 1):
        script = changed(block, changes)
        log = folder / f"output-{number}.txt"
        code, seconds = run(script, folder, log)
        row["seconds"] = round(row["seconds"] + seconds, 1)
        texts.append(f"```bash\n{script}```\n\n```text\n{log.read_text(encoding='utf-8').strip()}\n```\n")
        if code:
            row |= {"state": "failed", "reason": f"code {code}: see {section.name}/{log.name}"}
            break
    if runs := rows_of_runs(folder):
        write_csv(folder / "runs.csv", runs)
        texts.append("Medians of the epochs after the first (least to most):\n\n" + markdown(runs))
    head = f"# {section.title}\n\n{time.strftime('%Y-%m-%d %H:%M')}, {options.machine}\n\n"
    (folder / "table.md").write_text(head + "\n".join(texts), encoding="utf-8")
    return row


def of_other_pages(others):
    """A line for each page: its sections that their own commands make again, and the others with the reason."""
    lines = []
    for page, reasons in others.items():
        path = PAGE.with_name(f"{page}.md")
        made = [section.name for section in sections(path.read_text(encoding="utf-8")) if section.name not in reasons]
        without = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        lines.append(f"* docs/{path.name}: by commands {', '.join(made)}. Without: {without}.")
    return lines


def summary(rows, listed, others, options):
    """Write summary.csv and summary.md: what was made, and all rows of the page that were not."""
    write_csv(options.out / "summary.csv", rows)
    lines = [f"# {TITLE}\n", f"{time.strftime('%Y-%m-%d %H:%M')}; {options.machine}"]
    if options.quick:
        lines.append("**Quick: graphs and repetitions are smaller, and small graphs stand in for data sets.**")
    lines += ["", markdown(rows), "## Rows that were not made again\n"]
    for row in rows:
        gone = [row["reason"]] if row["state"] != "made" else listed[row["section"]].get("not_made", [])
        lines += [f"* {row['section']}: {reason}." for reason in gone]
    lines += ["", "## Other pages, whose commands paper.sh does not run\n", *of_other_pages(others)]
    (options.out / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(prog="paper.sh", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the sections, and stop")
    parser.add_argument("--only", metavar="NAME", action="append", help="make this section; may be given several times")
    parser.add_argument("--quick", action="store_true", help="small graphs and few repetitions, to try the commands")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/paper"), help="the folder to write (default: runs/paper)"
    )
    parser.add_argument("--inputs", type=Path, default=Path(), help="the folder of downloaded data sets (default: .)")
    return parser.parse_args()


def main():
    """Entry point; returns the exit code: 0, or 1 if a section failed."""
    options = arguments()
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    graphs, pages = listed["graphs"], sections(PAGE.read_text(encoding="utf-8"))
    known = {section.name for section in pages}
    if unknown := set(options.only or ()) - known:
        print(f"paper.sh: error: no section {', '.join(sorted(unknown))}; --list shows the names", file=sys.stderr)
        return 2
    if options.list:
        for section in pages:
            state = listed["sections"][section.name]
            kind = state.get("reason") or "made by commands, also with --quick"
            print(f"{section.name:45} {len(section.tables)} tables  {kind}")
        print("\n".join(of_other_pages(listed["pages"])))
        return 0
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine() | {"python": platform.python_version(), "hpcgnn": hpcgnn.__version__}
    options.machine = f"{machine['cpu']}, {len(machine['cores'])} cores, commit {machine['commit']}"
    (options.out / "machine.json").write_text(json.dumps(machine, indent=1) + "\n", encoding="utf-8")
    rows = []
    for section in pages:
        of_section = listed["sections"][section.name]
        if reason := why_not(section, of_section, options):
            rows.append({"section": section.name, "state": "not made", "seconds": 0.0, "reason": reason})
            continue
        print(f"{section.name} ...", flush=True)
        rows.append(make(section, of_section, graphs, options))
        print(f"{section.name}: {rows[-1]['state']} {rows[-1]['reason']} ({rows[-1]['seconds']} s)", flush=True)
        summary(rows, listed["sections"], listed["pages"], options)
    summary(rows, listed["sections"], listed["pages"], options)
    print(f"{options.out}/summary.md has what was made, and the rows that were not")
    return int(any(row["state"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
