"""The sub-command `verify`: everything that the format promises, checked against the bytes of a file."""

import argparse
import dataclasses
import json
from pathlib import Path

from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.terminal import tell
from partition_tools.cli.verification import Check, verification
from partition_tools.workspace.progress import Reporter

HELP = "check a graph file: checksums, ranges, symmetry, splits, maps"
DESCRIPTION = """Read every dataset of a graph file and check all that the format promises.
Exit code: 0 all checks passed, 1 at least one failed, 2 the file cannot be opened as a graph.
Peak memory: about 25 E + 40 n bytes (30 E + 40 n for directed graphs, 20 E more with weights and types)."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("graph", type=Path, metavar="GRAPH")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    checks = verify_graph(arguments.graph, reporter)
    failed = [check for check in checks if check.ok is False]
    if arguments.json:
        shown = [dataclasses.asdict(check) for check in checks]
        tell(json.dumps({"file": str(arguments.graph), "ok": not failed, "checks": shown}, indent=2), needed=True)
    else:
        for check in checks:
            tell(
                f"{ {True: 'ok', False: 'FAILED', None: 'skipped'}[check.ok]:8} {check.name}"
                f"{': ' + check.detail if check.detail else ''}",
                needed=True,
            )
        remarks = sum(check.ok is True and check.detail != "" for check in checks)
        verdict = f"{len(failed)} of {len(checks)} checks failed" if failed else "sound"
        verdict += f" (remarks above: {remarks})" if remarks else ""
        tell(f"{arguments.graph}: {verdict}", needed=True)
    return 1 if failed else 0


def verify_graph(path: str | Path, reporter: Reporter | None = None) -> list[Check]:
    """The list of `Check`s of a graph file. Raises FormatError if it cannot be opened as one."""
    with GraphFile(path) as file:
        return verification(file, reporter or Reporter())
