"""The tables of docs/performance.md, made again by the commands of that page: see paper.sh.

The first block of commands on the page makes the graphs, in the folder --out. Each section with commands then runs in a
folder of its own, in which the graphs, the data sets of --inputs, `jobs` and `docs` are links.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (0, 2)]  # shared parts, this checkout

from comparison.machine import describe_machine

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"


@dataclass(frozen=True)
class Section:
    """A section of the page. name: its anchor; tables: how many it has; blocks: its blocks of shell."""

    name: str
    title: str
    tables: int
    blocks: tuple[str, ...]


def sections(text):
    """[Section] of a page, the part above the first heading first."""
    found = []
    for part in re.split(r"^(?=##+ )", text, flags=re.MULTILINE):
        title = part.partition("\n")[0].lstrip("# ")
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
        tables = re.findall(r"^\|.*\|\n\|[-: |]+\|$", part, re.MULTILINE)
        blocks = re.findall(r"^```bash\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
        found.append(Section(name, title, len(tables), tuple(blocks)))
    return found


def run(script, folder, log):
    """Run lines of shell in a folder, with their output in a file; returns the exit code."""
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with open(log, "w", encoding="utf-8") as output:
        command = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode


def rows_of_runs(folder):
    """A row for each run directory below a folder: medians of the epochs after the first, and their spread."""
    rows = []
    for path in sorted(folder.rglob("summary.json")):
        epochs = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        epochs = epochs[1:] or epochs
        parts = "user_seconds", "system_seconds"
        result = json.loads(path.read_text())
        rows.append(
            {
                "run": str(path.parent.relative_to(folder)),
                "ranks": result["ranks"],
                "seconds of an epoch": spread([each["seconds"]["epoch"]["max"] for each in epochs]),
                "processor seconds": spread([sum(each["cpu"][part]["sum"] for part in parts) for each in epochs]),
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


def make(section, out, inputs, machine):
    """Run a section's commands, and write their output as table.md of its folder; returns the exit code."""
    folder = out / section.name
    folder.mkdir(parents=True)
    for path in (ROOT / "jobs", ROOT / "docs", *out.glob("*.h5"), *inputs.resolve().glob("*.npz")):
        (folder / path.name).symlink_to(path)
    texts, code = [f"# {section.title}\n\n{time.strftime('%Y-%m-%d %H:%M')}, {machine}\n"], 0
    for number, block in enumerate(section.blocks, 1):
        log = folder / f"output-{number}.txt"
        code = code or run(block, folder, log)
        texts.append(f"```bash\n{block}```\n\n```text\n{log.read_text(encoding='utf-8').strip()}\n```\n")
        if code:
            texts.append(f"The commands ended with code {code}.\n")
            break
    if runs := rows_of_runs(folder):
        texts.append("Medians of the epochs after the first (least to most):\n\n" + markdown(runs))
    (folder / "table.md").write_text("\n".join(texts), encoding="utf-8")
    return code


def main():
    """Entry point; returns the exit code: 0, or 1 if a section failed."""
    parser = argparse.ArgumentParser(prog="paper.sh", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the sections, and stop")
    parser.add_argument("--only", metavar="NAME", action="append", help="make this section; may be given several times")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="a new folder (default: runs/paper)")
    parser.add_argument("--inputs", type=Path, default=Path(), help="the folder of downloaded data sets (default: .)")
    options = parser.parse_args()
    head, *others = sections(PAGE.read_text(encoding="utf-8"))
    made = {section.name: section for section in others if section.blocks}
    if unknown := set(options.only or ()) - made.keys():
        parser.error(f"no section {', '.join(sorted(unknown))}; --list shows the names")
    if options.list:
        print(*made, sep="\n")
        return 0
    out = options.out.resolve()
    if out.exists():
        parser.error(f"--out {out} exists: name another folder")
    out.mkdir(parents=True)
    about = describe_machine()
    machine = f"{about['cpu']}, {len(about['cores'])} cores, commit {about['commit']}"
    if code := run("".join(head.blocks), out, out / "graphs.txt"):
        parser.error(f"the graphs could not be made: see {out}/graphs.txt (code {code})")
    failed = []
    for name in options.only or made:
        print(f"{name} ...", flush=True)
        if make(made[name], out, options.inputs, machine):
            failed.append(name)
    print(f"{out}/SECTION/table.md have the output" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
